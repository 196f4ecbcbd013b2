"""What a benchmark found: all numbers as TSV, and a table like the paper's (lines 9186-9435) in Markdown and LaTeX."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from deeprc.errors import PARAMETER
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.scoring import BINARY, Scoring
from deeprc.evaluation.trust import p_text

__all__ = [
    "VALIDATED",
    "ChosenSettings",
    "MetricEstimate",
    "chosen_settings",
    "incomplete_methods",
    "metric_estimates",
    "number_text",
    "results_tsv",
    "table_latex",
    "table_legend",
    "table_markdown",
]

VALIDATED = {"binary": "AUC", "multiclass": "macro AUC", "regression": "r²"}
"""What a setting was chosen by, by the kind of the target."""

_GROUPS = {
    "method": "Methods",
    "control": "Controls",
    "truth": "Ground truth",
}
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


@dataclass(frozen=True)
class _Estimate:
    """A mean with its standard deviation, as printed; the best are bold."""

    mean: str
    sd: str
    bold: bool = False


_Cell = str | _Estimate


def results_tsv(
    metrics: pd.DataFrame, *, choices: pd.DataFrame | None = None, costs: pd.DataFrame | None = None
) -> str:
    """Return all numbers as tab-separated text: method, fold, metric, value.

    Parameters
    ----------
    metrics
        Of `fold_metrics`.
    choices
        method, fold, validation_auc (or validation_r2): adds this metric.
    costs
        method, fold, task ("search" or "final"), seconds, cpu_seconds, peak_memory_mb: adds `search_seconds` and
        `final_seconds`; `seconds` and `cpu_seconds`, sums over the tasks; and `peak_memory_mb`, the largest.

    What is undefined is an empty value.
    """
    parts = [metrics[["method", "fold", "metric", "value"]]]
    if choices is not None and len(choices):
        name = next(name for name in choices.columns if str(name).startswith("validation_"))
        parts.append(choices[["method", "fold"]].assign(metric=name, value=choices[name]))
    if costs is not None and len(costs):
        place = ["method", "fold"]
        by_task = costs.groupby([*place, "task"], as_index=False)["seconds"].sum()
        parts.append(by_task.assign(metric=by_task["task"] + "_seconds", value=by_task["seconds"]))
        for metric, how in (("seconds", "sum"), ("cpu_seconds", "sum"), ("peak_memory_mb", "max")):
            whole = costs.groupby(place, as_index=False)[metric].agg(how)
            parts.append(whole.assign(metric=metric, value=whole[metric]))
    table = pd.concat([part[["method", "fold", "metric", "value"]] for part in parts], ignore_index=True)
    table = table.sort_values(["method", "fold"], kind="stable")
    return table.to_csv(sep="\t", index=False, float_format="%.8g", lineterminator="\n")


def table_markdown(
    comparison: pd.DataFrame,
    metrics: pd.DataFrame,
    methods: Sequence[MethodInfo],
    *,
    scoring: Scoring = BINARY,
    cautions: Sequence[Caution] = (),
    title: str = "",
    choices: pd.DataFrame | None = None,
    costs: pd.DataFrame | None = None,
    failures: Mapping[str, str] | None = None,
) -> str:
    """Return the table of all methods in Markdown that reads well in a terminal, too, and what to know about it.

    Parameters
    ----------
    comparison
        Of `compare`.
    metrics
        Of `fold_metrics`.
    methods
        As `compare` was given them; rows are in their order: methods, then controls, then those with the ground truth.
    scoring
        Of the kind of target.
    cautions
        What to know: that of the section "controls" under a heading of its own.
    title
        A heading, as the cohort and the target.
    choices
        method, fold, validation_auc (or validation_r2), settings (JSON).
    costs
        See `results_tsv`.
    failures
        Why methods are incomplete or absent, by name; such a method need not be in `methods`.
    """
    groups = _groups(comparison, metrics, methods, costs, scoring)
    columns = _columns(scoring)
    rows: list[list[str]] = []
    for kind, group in groups.items():
        if group and kind != "method":
            rows.append([f"*{_GROUPS[kind]}*", *[""] * (len(columns) - 1)])
        rows += [[_markdown(cell) for cell in row] for row in group]
    parts = [f"# {_one_line(title)}"] if title else []
    parts.append(_aligned([columns, *rows]))
    legend = " ".join(map(_escaped, table_legend(comparison, methods, scoring)))
    parts.append(textwrap.fill(legend, 110, break_long_words=False, break_on_hyphens=False))
    for heading, lines in (
        ("Warnings", [each.text for each in cautions if each.section != "controls"]),
        ("What the controls say", [each.text for each in cautions if each.section == "controls"]),
        ("Not complete", incomplete_methods(comparison, methods, failures or {})),
        ("Settings chosen", [each.line() for each in chosen_settings(choices, methods, scoring)]),
    ):
        if lines:
            parts.append(f"## {heading}\n\n" + "\n".join(f"- {_escaped(line)}" for line in lines))
    return "\n\n".join(parts) + "\n"


def table_latex(
    comparison: pd.DataFrame,
    metrics: pd.DataFrame,
    methods: Sequence[MethodInfo],
    *,
    scoring: Scoring = BINARY,
    cautions: Sequence[Caution] = (),
    title: str = "",
    label: str = "tab:benchmark",
    costs: pd.DataFrame | None = None,
    failures: Mapping[str, str] | None = None,
) -> str:
    r"""Return the table of all methods as a LaTeX float in the form of the paper's; it needs booktabs and graphicx.

    Parameters
    ----------
    comparison, metrics, methods, scoring, cautions, title, costs, failures
        As `table_markdown`; they make the caption, too.
    label
        For `\ref`.
    """
    groups = [group for group in _groups(comparison, metrics, methods, costs, scoring).values() if group]
    columns = _columns(scoring)
    header = " & ".join(["", *map(_latex, columns[1:])]) + r" \\"
    body = [[_latex_row(row) for row in group] for group in groups]
    caption = [title.rstrip(".") + "." if title else "", *table_legend(comparison, methods, scoring)]
    caption += [each.text for each in cautions]
    missing = incomplete_methods(comparison, methods, failures or {})
    caption += [f"Not complete: {'; '.join(missing)}."] if missing else []
    lines = [
        r"% \usepackage{booktabs, graphicx}",
        r"\begin{table}[htp]",
        r"  \centering",
        r"  \resizebox{\textwidth}{!}{%",
        rf"  \begin{{tabular}}{{l{'c' * (len(columns) - 1)}}}",
        r"    \toprule",
        f"    {header}",
    ]
    for group_lines in body:
        lines += [r"    \midrule", *(f"    {line}" for line in group_lines)]
    lines += [r"    \bottomrule", r"  \end{tabular}%", "  }", r"  \caption{"]
    lines += [f"    {_latex(sentence)}" for sentence in caption if sentence]
    lines += ["  }", rf"  \label{{{label}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _groups(
    comparison: pd.DataFrame,
    metrics: pd.DataFrame,
    methods: Sequence[MethodInfo],
    costs: pd.DataFrame | None,
    scoring: Scoring,
) -> dict[str, list[list[_Cell]]]:
    """Return the rows of the table by the kind of their method; those without a measured fold are left out."""
    by_name = _by_name(comparison)
    judged = [each.name for each in methods if each.kind == "method" and by_name[each.name]["complete"]]
    estimates = metric_estimates(metrics, comparison, judged, scoring)
    groups: dict[str, list[list[_Cell]]] = {kind: [] for kind in _GROUPS}
    for each in methods:
        row = by_name[each.name]
        if row["n_folds"] == 0:
            continue
        name = each.label if row["complete"] else f"{each.label} ({row['n_folds']} of {row['n_wanted']} folds)"
        interval = f"[{number_text(row['ci_low'])}, {number_text(row['ci_high'])}]"
        tests = [p_text(row["p_value"]), p_text(row["p_holm"])]
        main, *others = (_cell(estimates[metric].get(each.name)) for metric in scoring.headings)
        groups[each.kind].append([name, main, interval, *tests, *others, *_cost(costs, each.name)])
    return groups


def _by_name(comparison: pd.DataFrame) -> dict[str, dict[Hashable, Any]]:
    return {str(row["method"]): row for row in comparison.to_dict("records")}


class MetricEstimate(NamedTuple):
    """A metric of a method: over all folds, its standard deviation over them, and whether it is the best as printed."""

    value: float
    sd: float
    is_best: bool


def metric_estimates(
    metrics: pd.DataFrame, comparison: pd.DataFrame, judged: Collection[str], scoring: Scoring
) -> dict[str, dict[str, MetricEstimate]]:
    """Return each metric that is shown, of each method; the best are those of the judged that equal their best.

    The measure by which methods are ranked is that of the comparison, the others are means over folds.
    """
    found: dict[str, dict[str, MetricEstimate]] = {}
    for metric in scoring.headings:
        if metric == scoring.measure:
            of_each = comparison.set_index("method")
            values, sds = of_each[scoring.estimate].dropna(), of_each[scoring.sd]
        else:
            by_method = metrics[metrics["metric"] == metric].groupby("method")["value"]
            values, sds = by_method.mean().dropna(), by_method.std(ddof=1)
        best = min if metric in scoring.lower_is_better else max
        highest = number_text(best((float(values[name]) for name in judged if name in values), default=np.nan))
        found[metric] = {
            str(name): MetricEstimate(float(value), float(sd), name in judged and number_text(value) == highest)
            for name, value, sd in zip(values.index, values, sds.reindex(values.index), strict=True)
        }
    return found


def _cell(estimate: MetricEstimate | None) -> _Cell:
    if estimate is None:
        return "-"
    return _Estimate(number_text(estimate.value), number_text(estimate.sd), estimate.is_best)


def _columns(scoring: Scoring) -> list[str]:
    main, *others = scoring.headings.values()
    return ["Method", main, "95% interval", "p", "p (Holm)", *others, "Time", "Memory"]


def table_legend(comparison: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY) -> list[str]:
    """Return sentences that say what the numbers are."""
    if not comparison["n_folds"].any():
        return ["No method has a fold yet."]
    label = {each.name: each.label for each in methods}
    largest = max(_by_name(comparison).values(), key=lambda row: row["n_folds"])
    of_classes = f", {largest['n_positive']} of them positive" if "n_positive" in largest else ""
    sentences = [
        f"Mean ± standard deviation (n-1) over {largest['n_folds']} test folds with {largest['n_repertoires']} "
        f"repertoires{of_classes}; {scoring.means_note}",
        "Bold: the best method, and those that equal it in the printed digits.",
        scoring.interval_note,
    ]
    if comparison["best"].any():
        best = label[comparison.loc[comparison["best"], "method"].iloc[0]]
        is_permuted = (comparison["test"] == "permutation") & (scoring.kind == "binary")
        permuted = [label[name] for name in comparison.loc[is_permuted, "method"]]
        test = scoring.test_note
        test += f"; for {', '.join(permuted)} a permutation test, as DeLong's variance is 0" if permuted else ""
        sentences.append(
            f"p: {scoring.heading} against that of the best method, {best}, on the same repertoires ({test}); "
            f"p (Holm): corrected for the {comparison['p_holm'].notna().sum()} methods and controls compared with it."
        )
    if set(comparison["kind"]) & {"control", "truth"}:
        sentences.append(
            "Controls read no receptor sequence; known motifs come from the ground truth of a simulation: "
            "neither can be the best."
        )
    sentences.append("Interval and p take the trained models as given, and repertoires as independent.")
    sentences.append(
        "Time: of all fits of all folds, one after another; features that methods share count where they were first "
        "needed. Memory: the most that a fit added to its process."
    )
    return sentences


def incomplete_methods(
    comparison: pd.DataFrame, methods: Sequence[MethodInfo], failures: Mapping[str, str]
) -> list[str]:
    """Return which methods lack folds, and why."""
    by_name = _by_name(comparison)
    lines = []
    for each in methods:
        row = by_name[each.name]
        if not row["complete"] or each.name in failures:
            done = f"{row['n_folds']} of {row['n_wanted']} folds"
            lines.append(f"{each.label}: {done}; {_one_line(failures.get(each.name, 'not finished'))}")
    known = {each.name for each in methods}
    return lines + [f"{name}: {_one_line(reason)}" for name, reason in failures.items() if name not in known]


class ChosenSettings(NamedTuple):
    """What a method chose: its label, with its folds if it is incomplete; how it did when it was chosen, if known."""

    method: str
    validation: str
    settings: str

    def line(self) -> str:
        """Return it as one line."""
        return f"{', '.join(filter(None, (self.method, self.validation)))}: {self.settings}"


def chosen_settings(
    choices: pd.DataFrame | None, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> list[ChosenSettings]:
    """Return what each method chose in all folds alike, and fold by fold what differs."""
    if choices is None or choices.empty:
        return []
    n_folds, found = choices["fold"].nunique(), []
    for each in methods:
        rows = choices[choices["method"] == each.name].sort_values("fold")
        if rows.empty:
            continue
        where = "" if len(rows) == n_folds else f", folds {', '.join(map(str, rows['fold']))}"
        values, validation = rows[f"validation_{scoring.measure}"].astype(float), ""
        if values.notna().any():
            spread = number_text(values.std(ddof=1))
            validation = f"validation {VALIDATED[scoring.kind]} {number_text(values.mean())} ± {spread}"
        settings = _chosen([json.loads(text) for text in rows["settings"]])
        found.append(ChosenSettings(each.label + where, validation, settings))
    return found


def _chosen(settings: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    texts = {name: [_value(setting[name]) if name in setting else "-" for setting in settings] for name in names}
    alike = [f"{name} = {values[0]}" for name, values in texts.items() if len(set(values)) == 1]
    differing = [f"{name} = {', '.join(values)} by fold" for name, values in texts.items() if len(set(values)) > 1]
    return "; ".join(alike + differing) or "nothing to choose"


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def _cost(costs: pd.DataFrame | None, method: str) -> list[str]:
    own = None if costs is None else costs[costs["method"] == method]
    if own is None or own.empty:
        return ["-", "-"]
    memory = float(own["peak_memory_mb"].max())
    size = "-" if np.isnan(memory) else f"{memory / 1000:.1f} GB" if memory >= 999.5 else f"{memory:.0f} MB"
    return [_duration(float(own["seconds"].sum())), size]


def _duration(seconds: float) -> str:
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def number_text(value: float) -> str:
    """Return a metric with three decimals; "-" where there is none."""
    return "-" if np.isnan(value) else f"{value:.3f}"


def _one_line(text: str) -> str:
    return " ".join(str(text).split())


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned as text; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        return f"| {' | '.join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)])} |"

    rule = f"|{'|'.join(['-' * (widths[0] + 2), *('-' * (width + 1) + ':' for width in widths[1:])])}|"
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def _markdown(cell: _Cell) -> str:
    if isinstance(cell, str):
        return _escaped(cell)
    mean = f"**{cell.mean}**" if cell.bold else cell.mean
    return mean if cell.sd == "-" else f"{mean} ± {cell.sd}"


def _escaped(text: str) -> str:
    """Return text in one line with what Markdown would read as more than text escaped; `a_b` and `<0.001` are text.

    The name of a parameter stays code.
    """
    marks = rf"{PARAMETER.pattern}|[\\|*`]|<(?=[A-Za-z/!?])|(?<![^\W_])_|_(?![^\W_])"
    return re.sub(marks, lambda mark: mark[0] if len(mark[0]) > 1 else f"\\{mark[0]}", _one_line(text))


def _latex(cell: _Cell) -> str:
    if isinstance(cell, str):
        return "--" if cell == "-" else "".join(_LATEX.get(character, character) for character in _one_line(cell))
    mean = rf"\textbf{{{cell.mean}}}" if cell.bold else cell.mean
    return mean if cell.sd == "-" else rf"{mean} {{\footnotesize $\pm$ {cell.sd}}}"


def _latex_row(row: Sequence[_Cell]) -> str:
    text = " & ".join(map(_latex, row))
    # a bracket or star would belong to the \\ before it
    return ("{}" if text[0] in "[*" else "") + text + r" \\"
