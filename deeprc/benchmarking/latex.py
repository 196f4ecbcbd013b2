"""Rendering of the tables of a benchmark in LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deeprc.benchmarking.tables import (
    PROBABILITY_COLUMNS,
    PROBABILITY_LEGEND,
    ResultCell,
    collapse_whitespace,
    describe_incomplete_methods,
    format_metric,
    list_headings,
    make_probability_rows,
    make_table_legend,
    make_table_rows,
)
from deeprc.errors import show_parameters

if TYPE_CHECKING:
    from deeprc.benchmarking.result import BenchmarkResult

__all__ = ["render_latex"]

_LABEL = "tab:benchmark"  # label of the first table; that of the table of probabilities begins with it

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


def render_latex(result: BenchmarkResult) -> str:
    r"""Return the tables of all methods as LaTeX floats in the form of the paper's; they need booktabs and graphicx.

    The captions have the text that is below the tables in Markdown, without the chosen settings.
    """
    groups = [_render_rows(rows) for rows in make_table_rows(result).values() if rows]
    text = r"% \usepackage{booktabs, graphicx}" + "\n"
    text += _render_float(list_headings(result.scoring), groups, _format_caption(result), _LABEL)
    if len(result.probabilities):
        *rows, base_rate = _render_rows(make_probability_rows(result))
        caption = [*_format_title(result), PROBABILITY_LEGEND]
        text += "\n" + _render_float(PROBABILITY_COLUMNS, [rows, [base_rate]], caption, f"{_LABEL}-probabilities")
    return text


def _render_float(
    columns: Sequence[str], groups: Sequence[Sequence[Sequence[str]]], caption: Sequence[str], label: str
) -> str:
    """Return a float of a table with rules between groups of rows; the cells are already LaTeX."""
    header = " & ".join(["", *map(_render_cell, columns[1:])]) + r" \\"
    lines = [
        r"\begin{table}[htp]",
        r"  \centering",
        r"  \resizebox{\textwidth}{!}{%",
        rf"  \begin{{tabular}}{{l{'c' * (len(columns) - 1)}}}",
        r"    \toprule",
        f"    {header}",
    ]
    for group in groups:
        lines += [r"    \midrule", *(f"    {_render_row(row)}" for row in group)]
    lines += [r"    \bottomrule", r"  \end{tabular}%", "  }", r"  \caption{"]
    lines += [f"    {_render_cell(show_parameters(sentence))}" for sentence in caption]
    lines += ["  }", rf"  \label{{{label}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _format_title(result: BenchmarkResult) -> list[str]:
    return [result.title.rstrip(".") + "."] if result.title else []


def _format_caption(result: BenchmarkResult) -> list[str]:
    missing = describe_incomplete_methods(result.comparison, result.methods, result.failures)
    return [
        *_format_title(result),
        *make_table_legend(result.comparison, result.methods, result.scoring),
        *(caution.text for caution in result.cautions),
        *([f"Not complete: {'; '.join(missing)}."] if missing else []),
    ]


def _render_rows(rows: Sequence[Sequence[ResultCell]]) -> list[list[str]]:
    """Return the cells of some rows as LaTeX."""
    return [[_render_cell(cell) for cell in row] for row in rows]


def _render_cell(cell: ResultCell) -> str:
    if cell == "-":
        return "--"
    if isinstance(cell, str):
        return "".join(_LATEX.get(character, character) for character in collapse_whitespace(cell))
    value, sd = format_metric(cell.value), format_metric(cell.sd)
    mean = rf"\textbf{{{value}}}" if cell.is_best else value
    return mean if sd == "-" else rf"{mean} {{\footnotesize $\pm$ {sd}}}"


def _render_row(row: Sequence[str]) -> str:
    text = " & ".join(row)
    # otherwise a bracket or star would belong to the \\ before it
    return ("{}" if text[0] in "[*" else "") + text + r" \\"
