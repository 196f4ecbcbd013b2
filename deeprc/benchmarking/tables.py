"""Content of the tables of a benchmark: rows, legend and incomplete methods, and all numbers as a TSV.

The tables have the form of the paper's (lines 9186-9435); `markdown.py` and `latex.py` render them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.scoring import BINARY
from deeprc.evaluation.scoring_base import Scoring
from deeprc.evaluation.significance import format_p_value

if TYPE_CHECKING:
    from deeprc.benchmarking.result import BenchmarkResult

__all__ = [
    "PROBABILITY_COLUMNS",
    "PROBABILITY_LEGEND",
    "REFIT_HEADING",
    "VALIDATION_MEASURES",
    "ChosenSettings",
    "MetricEstimate",
    "ResultCell",
    "collapse_whitespace",
    "describe_incomplete_methods",
    "describe_members",
    "estimate_metrics",
    "estimate_refit",
    "format_metric",
    "format_results_tsv",
    "list_headings",
    "make_probability_rows",
    "make_table_legend",
    "make_table_rows",
    "summarise_chosen_settings",
]

VALIDATION_MEASURES = {"binary": "AUC", "multiclass": "macro AUC", "regression": "r²"}
"""Measure on the validation fold by which a setting is chosen, by the kind of the target."""


class MetricEstimate(NamedTuple):
    """A metric of a method over all folds, its standard deviation over folds, and whether it is printed bold."""

    value: float
    sd: float
    is_best: bool


PROBABILITY_COLUMNS = ["Method", "Brier score", "Log loss", "Calibration error"]
"""Headings of the table of probabilities."""

PROBABILITY_LEGEND = (
    "Of all test repertoires together; lower is better. Probabilities are calibrated on the validation fold; a method "
    "that learns from this fold calibrates its own. The base rate predicts the frequency of each class for every "
    "repertoire. Calibration error: the root mean square difference between probabilities and observed frequencies in "
    "at most 10 bins, minus what chance adds (0: no more than chance)."
)
"""Explanation of the numbers in the table of probabilities."""

REFIT_HEADING = "Refitted"
"""Heading of the column of measures after a second fit."""

REFIT_LEGEND = (
    "Refitted: mean {measure} over the folds after a second fit, to the training and validation folds together, with "
    "the same setting. DeepRC then keeps a fifth of these repertoires to stop early; its branches learn from all. A "
    "method without this number needs the validation fold to stop early."
)
"""Explanation of this column."""

ResultCell = str | MetricEstimate
"""A cell of a table; "-" if there is no value."""


def format_results_tsv(result: BenchmarkResult) -> str:
    """Return all numbers as tab-separated text: method, fold, metric, value; an undefined value is empty.

    Metrics are those of `compute_fold_metrics`; the measure on the validation fold (`validation_auc` or
    `validation_r2`); the measure after a refit (`refit_auc` or `refit_r2`); and the costs: `search_seconds` and
    `final_seconds`; `seconds` and `cpu_seconds`, which are sums over search and final fit; and `peak_memory_mb`, the
    larger value of both.
    """
    choices, costs = result.choices, result.costs
    parts = [result.metrics]
    if len(choices):
        measured = choices.columns[choices.columns.str.startswith(("validation_", "refit_"))]
        parts += [choices[["method", "fold"]].assign(metric=name, value=choices[name]) for name in measured]
    if len(costs):
        by = ["method", "fold"]
        by_task = costs.groupby([*by, "task"], as_index=False)["seconds"].sum()
        parts.append(by_task.assign(metric=by_task["task"] + "_seconds", value=by_task["seconds"]))
        for metric, aggregation in (("seconds", "sum"), ("cpu_seconds", "sum"), ("peak_memory_mb", "max")):
            total = costs.groupby(by, as_index=False)[metric].agg(aggregation)
            parts.append(total.assign(metric=metric, value=total[metric]))
    table = pd.concat([part[["method", "fold", "metric", "value"]] for part in parts], ignore_index=True)
    table = table.sort_values(["method", "fold"], kind="stable")
    return table.to_csv(sep="\t", index=False, float_format="%.8g", lineterminator="\n")


def list_headings(scoring: Scoring) -> list[str]:
    """Return the headings of the columns of the table."""
    main, *others = scoring.headings.values()
    return ["Method", main, "95% interval", "p", "p (Holm)", REFIT_HEADING, *others, "Time", "Memory"]


def make_table_rows(result: BenchmarkResult) -> dict[str, list[list[ResultCell]]]:
    """Return the rows of the table by kind of method; methods without a measured fold have no row."""
    by_name, scoring = _index_by_method(result.comparison), result.scoring
    eligible = [
        method.name for method in result.methods if method.kind == "method" and by_name[method.name]["complete"]
    ]
    estimates = estimate_metrics(result.metrics, result.comparison, eligible, scoring)
    refits = estimate_refit(result.choices, scoring)
    rows: dict[str, list[list[ResultCell]]] = {"method": [], "control": [], "truth": []}
    for method in result.methods:
        row = by_name[method.name]
        if row["n_folds"] == 0:
            continue
        name = method.label if row["complete"] else f"{method.label} ({row['n_folds']} of {row['n_wanted']} folds)"
        interval = f"[{format_metric(row['ci_low'])}, {format_metric(row['ci_high'])}]"
        tests = [format_p_value(row["p_value"]), format_p_value(row["p_holm"])]
        main, *others = (estimates[metric].get(method.name, "-") for metric in scoring.headings)
        measures = [refits.get(method.name, "-"), *others]
        rows[method.kind].append([name, main, interval, *tests, *measures, *_format_cost(result.costs, method.name)])
    return rows


def make_probability_rows(result: BenchmarkResult) -> list[list[str]]:
    """Return the rows of the table of probabilities as text; the last row is the base rate."""
    labels, table = {method.name: method.label for method in result.methods}, result.probabilities
    names = ("brier", "log_loss", "calibration_error")
    rows = [
        [labels[str(row["method"])], *(format_metric(row[name]) for name in names)] for row in table.to_dict("records")
    ]
    largest = table.iloc[int(table["n_repertoires"].to_numpy().argmax())]
    return [*rows, ["Base rate", *(format_metric(largest[f"{name}_base_rate"]) for name in names[:2]), "-"]]


def _index_by_method(comparison: pd.DataFrame) -> dict[str, dict[Hashable, Any]]:
    return {str(row["method"]): row for row in comparison.to_dict("records")}


def estimate_metrics(
    metrics: pd.DataFrame, comparison: pd.DataFrame, eligible: Collection[str], scoring: Scoring
) -> dict[str, dict[str, MetricEstimate]]:
    """Return the estimate of each metric of the table for each method.

    The measure by which methods are ranked is that of the comparison; other metrics are means over folds. The best
    methods are those of the `eligible` ones that equal the best value after rounding.
    """
    estimates: dict[str, dict[str, MetricEstimate]] = {}
    for metric in scoring.headings:
        if metric == scoring.measure_name:
            by_name = comparison.set_index("method")
            values, sds = by_name[scoring.estimate_column].dropna(), by_name[scoring.sd_column]
        else:
            by_method = metrics[metrics["metric"] == metric].groupby("method")["value"]
            values, sds = by_method.mean().dropna(), by_method.std(ddof=1)
        best = min if metric in scoring.lower_is_better else max
        best_text = format_metric(best((float(values[name]) for name in eligible if name in values), default=np.nan))
        estimates[metric] = {
            str(name): MetricEstimate(float(value), float(sd), name in eligible and format_metric(value) == best_text)
            for name, value, sd in zip(values.index, values, sds.reindex(values.index), strict=True)
        }
    return estimates


def estimate_refit(choices: pd.DataFrame, scoring: Scoring) -> dict[str, MetricEstimate]:
    """Return the mean measure over folds of each method after a fit to training and validation folds together.

    Methods that always learn from both are left out.
    """
    by_method = choices.dropna(subset=f"refit_{scoring.measure_name}").groupby("method")[
        f"refit_{scoring.measure_name}"
    ]
    means, sds = by_method.mean(), by_method.std(ddof=1)
    return {str(name): MetricEstimate(float(means[name]), float(sds[name]), is_best=False) for name in means.index}


def make_table_legend(comparison: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY) -> list[str]:
    """Return sentences that explain the numbers of the table."""
    if not comparison["n_folds"].any():
        return ["No method has a fold yet."]
    label = {method.name: method.label for method in methods}
    largest = max(_index_by_method(comparison).values(), key=lambda row: row["n_folds"])
    n_positive = f", {largest['n_positive']} of them positive" if "n_positive" in largest else ""
    sentences = [
        f"Mean ± standard deviation (n-1) over {largest['n_folds']} test folds with {largest['n_repertoires']} "
        f"repertoires{n_positive}.",
        scoring.means_note,
        "Bold: the best method, and those that equal it in the printed digits.",
        scoring.interval_note,
    ]
    if comparison["best"].any():
        best = label[comparison.loc[comparison["best"], "method"].iloc[0]]
        is_permuted = (comparison["test"] == "permutation") & (scoring.kind == "binary")
        permuted = [label[name] for name in comparison.loc[is_permuted, "method"]]
        test = scoring.test_note
        if permuted:
            test += f"; for {', '.join(permuted)} a permutation test, because DeLong's variance is 0 or not defined"
        sentences.append(
            f"p: whether the {scoring.heading} differs from that of the best method, {best}, on the same repertoires "
            f"({test}). It is about the trained models, not about how much they depend on the training repertoires. "
            "p and the interval assume that donors are independent."
        )
        n_compared = comparison["p_holm"].notna().sum()
        sentences.append(
            f"p (Holm): the same, corrected for the {n_compared} methods that are compared with the best one."
        )
    if set(comparison["kind"]) & {"control", "truth"}:
        sentences.append(
            "Control methods see no amino-acid sequence. Known motifs come from the ground truth of a simulation. "
            "Neither kind counts as the best method, even if its value is higher."
        )
    sentences.append(REFIT_LEGEND.format(measure=scoring.heading))
    sentences.append(
        "Time: the sum over all fits of all folds. If several methods share features, their time counts for the method "
        "that needed them first."
    )
    sentences.append("Memory: the largest amount that a fit added to its process.")
    return sentences


def describe_incomplete_methods(
    comparison: pd.DataFrame, methods: Sequence[MethodInfo], failures: Mapping[str, str]
) -> list[str]:
    """Return texts that say which methods lack folds, and why."""
    by_name = _index_by_method(comparison)
    lines = []
    for method in methods:
        row = by_name[method.name]
        if not row["complete"] or method.name in failures:
            done = f"{row['n_folds']} of {row['n_wanted']} folds"
            lines.append(f"{method.label}: {done}; {collapse_whitespace(failures.get(method.name, 'not finished'))}")
    others = failures.keys() - {method.name for method in methods}
    return lines + [f"{name}: {collapse_whitespace(reason)}" for name, reason in failures.items() if name in others]


class ChosenSettings(NamedTuple):
    """The settings that were chosen for a method.

    Attributes
    ----------
    method
        Label of the method, with its folds if some are missing.
    validation
        Measure on the validation folds, as text; "" if not known.
    settings
        Values of the settings, as text.
    """

    method: str
    validation: str
    settings: str

    def to_line(self) -> str:
        """Return method, validation and settings as one line."""
        return f"{', '.join(filter(None, (self.method, self.validation)))}: {self.settings}"


def summarise_chosen_settings(
    choices: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> list[ChosenSettings]:
    """Return the settings of each method: first those that are equal in all folds, then the others by fold."""
    if choices.empty:
        return []
    n_folds, chosen = choices["fold"].nunique(), []
    for method in methods:
        rows = choices[choices["method"] == method.name].sort_values("fold")
        if rows.empty:
            continue
        where = "" if len(rows) == n_folds else f", folds {', '.join(map(str, rows['fold']))}"
        values, validation = rows[f"validation_{scoring.measure_name}"].astype(float), ""
        if values.notna().any():
            sd = format_metric(values.std(ddof=1))
            validation = f"validation {VALIDATION_MEASURES[scoring.kind]} {format_metric(values.mean())} ± {sd}"
        settings = _format_chosen([json.loads(text) for text in rows["settings"]])
        chosen.append(ChosenSettings(method.label + where, validation, settings))
    return chosen


def _format_chosen(settings: Sequence[Mapping[str, Any]]) -> str:
    """Return settings as text; those of the network have the names that `deeprc config` lists."""
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    rows = [
        (name.removeprefix("overrides."), [_format_value(each[name]) if name in each else "-" for each in settings])
        for name in names
    ]
    equal = [f"{name} = {values[0]}" for name, values in rows if len(set(values)) == 1]
    differing = [f"{name} = {', '.join(values)} by fold" for name, values in rows if len(set(values)) > 1]
    return "; ".join(equal + differing) or "nothing to choose"


def describe_members(members: pd.DataFrame, methods: Sequence[MethodInfo]) -> list[str]:
    """Return a line for each stack with the share and AUC of each member, as means over folds."""
    lines = []
    for method in methods:
        rows = members[members["method"] == method.name].drop_duplicates(["fold", "member"])
        means = rows.groupby("member", sort=False)[["share", "auc"]].mean().sort_values("share", ascending=False)
        texts = [f"{name} {share:.0%} (AUC {auc:.3f})" for name, share, auc in means.itertuples()]
        if texts:
            lines.append(f"{method.label}: {', '.join(texts)}")
    return lines


def _format_value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def _format_cost(costs: pd.DataFrame, method: str) -> list[str]:
    rows = costs[costs["method"] == method]
    if rows.empty:
        return ["-", "-"]
    memory = float(rows["peak_memory_mb"].max())
    size = "-" if np.isnan(memory) else f"{memory / 1000:.1f} GB" if memory >= 999.5 else f"{memory:.0f} MB"
    return [_format_duration(float(rows["seconds"].sum())), size]


def _format_duration(seconds: float) -> str:
    if not np.isfinite(seconds):  # only in a file that deeprc has not written
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_metric(value: float) -> str:
    """Return a metric with three decimals; "-" if it is NaN."""
    return "-" if np.isnan(value) else f"{value:.3f}"


def collapse_whitespace(text: str) -> str:
    """Return text with each run of blanks and line ends as one blank."""
    return " ".join(str(text).split())
