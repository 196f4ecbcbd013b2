r"""The table of a benchmark in LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deeprc.benchmarking.tables import (
    Cell,
    incomplete_methods,
    number_text,
    one_line,
    table_columns,
    table_legend,
    table_rows,
)
from deeprc.errors import show_parameters

if TYPE_CHECKING:
    from deeprc.benchmarking.result import BenchmarkResult

__all__ = ["render_latex"]

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "`": r"\textasciigrave{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "²": r"$^2$",
    "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$",
    "\N{GREEK SMALL LETTER BETA}": r"$\beta$",
    "\N{GREEK SMALL LETTER GAMMA}": r"$\gamma$",
    "\N{GREEK SMALL LETTER DELTA}": r"$\delta$",
}


def render_latex(result: BenchmarkResult, *, label: str = "tab:benchmark") -> str:
    r"""Return the table of all methods as a LaTeX float in the form of the paper's; it needs booktabs and graphicx.

    Its caption holds what Markdown says below the table, except for the chosen settings; `\ref` finds it by `label`.
    """
    columns = table_columns(result.scoring)
    header = " & ".join(["", *map(_latex, columns[1:])]) + r" \\"
    lines = [
        r"% \usepackage{booktabs, graphicx}",
        r"\begin{table}[htp]",
        r"  \centering",
        r"  \resizebox{\textwidth}{!}{%",
        rf"  \begin{{tabular}}{{l{'c' * (len(columns) - 1)}}}",
        r"    \toprule",
        f"    {header}",
    ]
    for group in table_rows(result).values():
        if group:
            lines += [r"    \midrule", *(f"    {_latex_row(row)}" for row in group)]
    lines += [r"    \bottomrule", r"  \end{tabular}%", "  }", r"  \caption{"]
    lines += [f"    {_latex(show_parameters(sentence))}" for sentence in _caption(result)]
    lines += ["  }", rf"  \label{{{label}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _caption(result: BenchmarkResult) -> list[str]:
    missing = incomplete_methods(result.comparison, result.methods, result.failures)
    return [
        *([result.title.rstrip(".") + "."] if result.title else []),
        *table_legend(result.comparison, result.methods, result.scoring),
        *(each.text for each in result.cautions),
        *([f"Not complete: {'; '.join(missing)}."] if missing else []),
    ]


def _latex(cell: Cell) -> str:
    if isinstance(cell, str):
        return "--" if cell == "-" else "".join(_LATEX.get(character, character) for character in one_line(cell))
    value, sd = number_text(cell.value), number_text(cell.sd)
    mean = rf"\textbf{{{value}}}" if cell.is_best else value
    return mean if sd == "-" else rf"{mean} {{\footnotesize $\pm$ {sd}}}"


def _latex_row(row: Sequence[Cell]) -> str:
    text = " & ".join(map(_latex, row))
    # a bracket or star would belong to the \\ before it
    return ("{}" if text[0] in "[*" else "") + text + r" \\"
