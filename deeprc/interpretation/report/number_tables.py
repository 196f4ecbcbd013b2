"""Tables of numbers: metrics by part of the split, controls, and rankings of witnesses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from deeprc.evaluation.significance import format_p_value
from deeprc.evaluation.splits import HELD_OUT, NEW
from deeprc.evaluation.strata import StratifiedAuc
from deeprc.interpretation.directions import Direction
from deeprc.interpretation.report.page import (
    DASH,
    Cell,
    Column,
    Table,
    make_interval_cell,
    make_number_cell,
    make_percent_cell,
    make_text_cell,
)
from deeprc.runs.control_comparison import TITLES, ControlComparison
from deeprc.runs.performance import PART_NAMES, Performance
from deeprc.tasks import Task

__all__ = [
    "MEASURES",
    "MEASURE_NOTES",
    "make_control_table",
    "make_metrics_table",
    "make_within_table",
    "make_witness_table",
]

_ORDER = ("test", NEW, "validation", "train")
_SHARES = {"f1": "F1", "balanced_accuracy": "Balanced accuracy", "accuracy": "Accuracy"}
_NOTES = {
    "f1": "harmonic mean of precision and recall (of the positive class, or the mean over several classes)",
    "balanced_accuracy": "share of the repertoires of a class that are predicted correctly, mean over the classes",
    "accuracy": "share of repertoires whose class is predicted correctly",
}

_PROBABILITIES = {
    "brier": "Brier score",
    "brier_base_rate": "Brier score of the base rate",
    "calibration_error": "Calibration error",
    "loss": "Loss",
    "loss_base_rate": "Loss of the base rate",
}
_BASE_RATE = "value if each prediction is the frequency of the class among these repertoires"
_PROBABILITY_NOTES = {
    "brier": "mean squared error of the probabilities; lower is better",
    "brier_base_rate": _BASE_RATE,
    "calibration_error": (
        "root mean square difference between predicted probabilities and observed frequencies, in bins of repertoires; "
        "the part that is expected by chance is subtracted (0: no more than chance)"
    ),
    "loss": "error of the probabilities (cross entropy with natural logarithms); lower is better",
    "loss_base_rate": _BASE_RATE,
}
MEASURES = _SHARES | _PROBABILITIES
"""Headings of the measures of called classes and of probabilities, by their names in `metrics.json`."""

MEASURE_NOTES = _NOTES | _PROBABILITY_NOTES
"""Explanations of these measures."""


def make_metrics_table(performance: Performance, task: Task, table_index: int) -> Table:
    """Return the table of the metrics of a target, with a row for each part of the split, the held-out one first."""
    if task.kind == "regression":
        return _make_regression_table(performance, task, table_index)
    contrasts = [contrast for contrast in performance.contrasts if contrast.target == task.name]
    columns = [Column("Split", is_number=False), Column("Repertoires")]
    for contrast in contrasts:
        name = "" if len(contrasts) == 1 else f" {contrast.positive}"
        columns += [Column(f"AUC{name}"), Column(f"95% interval{name}")]
    columns += [Column(heading, note=MEASURE_NOTES[name]) for name, heading in MEASURES.items()]
    rows = []
    for part, metrics in _list_parts(performance, task):
        cells = [make_text_cell(_name_part(part)), make_number_cell(metrics["n"], ",d")]
        for contrast in contrasts:
            auc = contrast.measure_auc(performance.is_in(part))
            cells.append(make_number_cell(auc and auc.value))
            known = auc if part in HELD_OUT else None
            cells.append(make_interval_cell((known.low, known.high) if known else None))
        rows.append([*cells, *(make_number_cell(metrics.get(name)) for name in MEASURES)])
    called = ""
    if task.kind == "binary":
        called = f"; {task.positive} is predicted if its probability is at least {task.calibration.min_probability:.3f}"
    return Table(f"metrics-{table_index}", f"How well {task.name} is predicted{called}", columns, rows)


def _make_regression_table(performance: Performance, task: Task, table_index: int) -> Table:
    """Return the table of the metrics of a numeric target, with a row for each part of the split."""
    columns = [
        Column("Split", is_number=False),
        Column("Repertoires"),
        Column("r²", note="share of the variance that is explained: 1 is perfect, 0 no better than the mean"),
        Column("95% interval of r²", note="by the jackknife of log(1 - r²)"),
        Column("Spearman", note="correlation of the ranks of true and predicted values"),
        Column("95% interval of Spearman"),
        Column("Mean error", note=f"mean absolute difference to the true value, in the units of {task.column}"),
        Column("95% interval of the mean absolute error"),
    ]
    rows = [
        [
            make_text_cell(_name_part(part)),
            make_number_cell(metrics["n"], ",d"),
            *_make_interval_cells(metrics, "r2", ".3f"),
            *_make_interval_cells(metrics, "spearman", ".3f"),
            *_make_interval_cells(metrics, "mae", ",.3g"),
        ]
        for part, metrics in _list_parts(performance, task)
    ]
    return Table(f"metrics-{table_index}", f"How well {task.name} is predicted", columns, rows)


def _make_interval_cells(metrics: Mapping[str, Any], name: str, form: str) -> list[Cell]:
    return [make_number_cell(metrics.get(name), form), make_interval_cell(metrics.get(f"{name}_ci"), form)]


def make_within_table(stratified_aucs: Mapping[str, Sequence[StratifiedAuc]]) -> Table | None:
    """Return the table of the AUC of each target within the values of metadata columns; None if there is none."""
    has_targets = len(stratified_aucs) > 1
    columns = [Column("Column of the sheet", is_number=False)]
    columns += [Column("Target", is_number=False)] if has_targets else []
    columns += [Column("AUC", note="over all pairs of repertoires with the same value"), Column("95% interval")]
    columns += [
        Column("Repertoires", note="number of repertoires with a value that occurs in both classes"),
        Column("Values", note="number of these values"),
    ]
    rows = [
        [
            make_text_cell(stratified.column),
            *([make_text_cell(target)] if has_targets else []),
            make_number_cell(stratified.auc),
            make_interval_cell((stratified.low, stratified.high)),
            make_number_cell(stratified.n, ",d"),
            make_number_cell(stratified.n_strata, ",d"),
        ]
        for target, aucs in stratified_aucs.items()
        for stratified in aucs
    ]
    return Table("within", "The AUC among repertoires with the same value of a column", columns, rows) if rows else None


def _name_part(part: str) -> str:
    """Return the name of a part of the split; that of the validation fold says that its figures are no result."""
    return PART_NAMES[part] + (" (used for choosing)" if part == "validation" else "")


def _list_parts(performance: Performance, task: Task) -> list[tuple[str, Mapping[str, Any]]]:
    metrics_by_part = [(part, performance.metrics.get(part, {}).get(task.name, {})) for part in _ORDER]
    return [(part, metrics) for part, metrics in metrics_by_part if metrics.get("n")]


def make_control_table(comparison: ControlComparison, table_index: int) -> Table:
    """Return the table of the AUC, or r2, of the network and the controls, and whether they differ."""
    quantity, scoring = comparison.quantity, comparison.scoring
    by = (
        "by the jackknife of log(1 - r²)"
        if scoring.kind == "regression"
        else "from the class sizes (Newcombe's method 5); wider if donors have several repertoires"
    )
    columns = [
        Column("Model", is_number=False),
        Column(scoring.heading),
        Column("95% interval", note=by),
        Column("Difference", note=f"{scoring.heading} of the control minus that of the network"),
        Column("p", note="how often chance alone gives a difference at least as large (paired, two-sided test)"),
        Column("Test", is_number=False),
    ]
    rows = []
    for _, row in comparison.table.iterrows():
        is_network = row["method"] == "network"
        rows.append(
            [
                make_text_cell(TITLES[str(row["method"])]),
                make_number_cell(row[scoring.estimate_column]),
                make_interval_cell((row["ci_low"], row["ci_high"])),
                make_number_cell(None)
                if is_network
                else make_number_cell(row["difference"] or 0.0, "+.3f" if row["difference"] else ".3f"),
                make_number_cell(None) if is_network else Cell(format_p_value(row["p_value"]), float(row["p_value"])),
                make_text_cell("" if is_network else row["test"]),
            ]
        )
    if quantity.kind == "regression":
        caption = f"Predicting {quantity.target}"
    elif quantity.kind == "multiclass":
        caption = f"Distinguishing all classes of {quantity.target}"
    else:
        caption = f"Distinguishing {quantity.about or ' from '.join(quantity.classes)}"
    return Table(f"controls-{table_index}", f"{caption}, on the same repertoires", columns, rows)


def make_witness_table(rankings: Sequence[tuple[Direction, pd.DataFrame]]) -> Table:
    """Return the table of how well each score finds witnesses, for each direction; see `witness_ranking`.

    Attention has no direction, so only its first row is shown.
    """
    columns = [
        Column(
            "Ranked by",
            is_number=False,
            note="attention: how strongly the network looks at a sequence; contribution: what it adds to the output of"
            " its repertoire; response: the output if all attention were on it",
        ),
        Column(
            "For", is_number=False, note="class, or direction, to which the first sequences of the ranking contribute"
        ),
        Column("Sequences"),
        Column("Witnesses", note="sequences into which the simulation put the signal"),
        Column("AUC", note="for witnesses against all others"),
        Column("Average precision"),
        Column("Of the first 100", note="share of witnesses among them"),
        Column("Of the first 1,000", note="share of witnesses among them"),
        Column("Recall at 1,000", note="share of all witnesses that are among the first 1,000"),
    ]
    rows = [
        [
            make_text_cell(row["score"]),
            make_text_cell(DASH if row["score"] == "attention" else direction.name),
            make_number_cell(int(row["n_sequences"]), ",d"),
            make_number_cell(int(row["n_witnesses"]), ",d"),
            make_number_cell(row["auc"]),
            make_number_cell(row["average_precision"]),
            make_percent_cell(row["precision_at_100"]),
            make_percent_cell(row["precision_at_1000"]),
            make_percent_cell(row["recall_at_1000"]),
        ]
        for index, (direction, ranking) in enumerate(rankings)
        for row in ranking.to_dict("records")
        if index == 0 or row["score"] != "attention"
    ]
    return Table("witness-ranking", "How well the implanted sequences are found", columns, rows)
