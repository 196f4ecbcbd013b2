"""The report of a cross-validation: metrics with intervals, all folds, and curves."""

from __future__ import annotations

import os
import shlex
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from deeprc.evaluation.curves import draw_curves_figure
from deeprc.evaluation.parse_folds import LEAVE_ONE_OUT
from deeprc.evaluation.reliability_figure import draw_reliability_figure
from deeprc.evaluation.scatter import NoCurveError
from deeprc.evaluation.significance import format_p_value
from deeprc.evaluation.strata import StratifiedAuc
from deeprc.interpretation.report.cv_curves import METHOD, convert_to_comparison
from deeprc.interpretation.report.cv_results import StoredCrossValidation, TargetMetrics, read_cross_validation
from deeprc.interpretation.report.number_tables import MEASURE_NOTES, MEASURES, make_within_table
from deeprc.interpretation.report.origin import format_adjust_options
from deeprc.interpretation.report.page import (
    Cell,
    Column,
    Figure,
    Table,
    check_report_output,
    format_today,
    make_interval_cell,
    make_number_cell,
    make_text_cell,
    write_page,
)
from deeprc.interpretation.report.page_figures import render_figure
from deeprc.runs.control_comparison import TITLES
from deeprc.runs.cross_metrics import NOT_MEASURED
from deeprc.runs.cross_plan import RUNS, CrossValidationHeader, index_runs
from deeprc.runs.run_settings import read_settings
from deeprc.settings import format_setting
from deeprc.shift.sketches import SKETCHES_FILE

__all__ = ["write_cv_report"]

_CONTENTS = [
    ("figure", "How good is it?"),
    ("controls", "Control methods"),
    ("folds", "Folds"),
    ("motifs", "Motifs"),
    ("curves", "Curves"),
    ("reproduce", "To reproduce"),
]
_NUMBERS = {"r2": "r²", "spearman": "Spearman", "mae": "Mean absolute error"}


def write_cv_report(folder: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Write the report of a folder of `deeprc cv`.

    Parameters
    ----------
    folder
        Path of the folder of the cross-validation.
    output
        Path of the HTML file; an existing file is replaced only if it is a report.

    Raises
    ------
    InputError
        If the folder has no finished cross-validation, if a file of it is damaged, or if `output` cannot be written.
    """
    check_report_output(Path(output))
    result = read_cross_validation(Path(folder))
    names = list(result.metrics)
    write_page(
        Path(output),
        "cv.html.j2",
        title=f"Cross-validation: {', '.join(names)} of {Path(result.header.cohort).name or 'a cohort'}",
        lead=_format_lead(result),
        date=format_today(),
        contents=_CONTENTS,
        cautions=[replace(caution, section="") for caution in result.cautions],
        answers=[_describe_performance(name, result.metrics[name]) for name in names],
        n_repeats=max((metric.n_repeats for metric in result.metrics.values()), default=0),
        metrics=[_make_metrics_table(result, name, table_index) for table_index, name in enumerate(names)],
        controls=[table for table in (_make_within_table(result), *_make_control_tables(result)) if table is not None],
        folds=[_make_folds_table(result, name, table_index) for table_index, name in enumerate(names)],
        motifs=None if result.motifs is None else _make_motifs_table(result.motifs),
        has_motifs=result.motifs is not None and len(result.motifs) > 0,
        figures_by_target=[(name, _make_figures(result, name)) for name in names],
        command=_format_command(result.header, Path(folder)),
        knows_settings=(Path(folder) / RUNS).exists(),
        has_classes=any(metric.mae is None for metric in result.metrics.values()),
        has_numbers=any(metric.mae is not None for metric in result.metrics.values()),
    )


def _format_lead(result: StoredCrossValidation) -> str:
    header = result.header
    predictor = "one run" if header.members == 1 else f"{header.members} runs together"
    repeats = max((metric.n_repeats for metric in result.metrics.values()), default=1)
    times = "" if repeats == 1 else f" This was done {repeats} times, with other folds and seeds."
    design = f"Each of {header.folds} folds was the test fold once"
    if header.left_out is not None:
        design = f"Each of the {header.folds} values of {header.left_out!r} was left out for testing once"
    return f"{design}. It was then predicted by {predictor} that had not seen it.{times}"


def _describe_performance(name: str, metrics: TargetMetrics) -> str:
    """Return a sentence with the AUC, or r2, of a target and its interval."""
    if metrics.mae is not None:
        key, heading, value, limits = "r2", "r²", metrics.r2, metrics.r2_ci
    else:
        key, heading, value, limits = "auc", "AUC", metrics.auc, metrics.auc_ci
    if value is None:
        return f"{name}: {NOT_MEASURED['n' if metrics.n == 0 else key]}."
    interval = "" if limits is None else f", 95% interval {make_interval_cell(limits).text}"
    positive = "" if metrics.n_positive is None else f", {metrics.n_positive:,} of them {metrics.positive_class}"
    return f"{name}: {heading} {make_number_cell(value).text}{interval}, on {metrics.n:,} repertoires{positive}."


def _make_metrics_table(result: StoredCrossValidation, name: str, table_index: int) -> Table:
    """Return the table of the metrics of one target over all folds and repeats."""
    metrics = result.metrics[name]
    columns, cells = [Column("Target", is_number=False)], [make_text_cell(name)]
    if result.is_regression(name):
        for measure, heading in _NUMBERS.items():
            columns += [Column(heading), Column(f"95% interval of {heading}")]
            value, limits = getattr(metrics, measure), getattr(metrics, f"{measure}_ci")
            cells += [make_number_cell(value), make_interval_cell(limits)]
    else:
        columns += [
            Column("AUC", note="mean over the test folds of all repeats"),
            Column(
                "95% interval", note="covers donors with several repertoires, training sets that overlap, and repeats"
            ),
            Column("Standard deviation over folds"),
            *(Column(heading, note=MEASURE_NOTES[measure]) for measure, heading in MEASURES.items()),
        ]
        cells += [make_number_cell(metrics.auc), make_interval_cell(metrics.auc_ci), make_number_cell(metrics.auc_sd)]
        cells += [make_number_cell(getattr(metrics, measure)) for measure in MEASURES]
    return Table(f"metrics-{table_index}", f"How well {name} is predicted", columns, [cells])


def _make_within_table(result: StoredCrossValidation) -> Table | None:
    """Return a table of the AUC of each target within the values of columns; None if there is none."""
    stratified_aucs = {
        name: [
            StratifiedAuc(stored.column, stored.auc, *stored.auc_ci, stored.n, stored.n_strata)
            for stored in metrics.within
        ]
        for name, metrics in result.metrics.items()
    }
    return make_within_table({name: aucs for name, aucs in stratified_aucs.items() if aucs})


def _make_control_tables(result: StoredCrossValidation) -> Iterator[Table]:
    """Yield a table of the controls of each target that has controls."""
    for table_index, (name, metrics) in enumerate(result.metrics.items()):
        heading = "r²" if result.is_regression(name) else "AUC"
        columns = [Column("Control method", is_number=False), Column(heading), Column("95% interval")]
        columns += [
            Column("Difference", note=f"{heading} of the control minus that of the network"),
            Column("p", note="paired test"),
        ]
        rows = []
        for control in metrics.controls:
            value, limits = (control.r2, control.r2_ci) if result.is_regression(name) else (control.auc, control.auc_ci)
            p = control.p_value
            rows.append(
                [
                    make_text_cell(TITLES.get(control.control, control.control)),
                    make_number_cell(value),
                    make_interval_cell(limits),
                    make_number_cell(control.difference, "+.3f"),
                    make_number_cell(None) if p is None else Cell(format_p_value(p), p),
                ]
            )
        if rows:
            yield Table(
                f"controls-{table_index}",
                f"Control methods of {name}, on the test folds of the first repeat",
                columns,
                rows,
            )


def _make_folds_table(result: StoredCrossValidation, name: str, table_index: int) -> Table:
    """Return the table of the metrics of one target in each test fold."""
    table = result.folds[result.folds["target"] == name]
    text = {"left_out": str(result.header.left_out)}
    counts = {"repeat": "Repeat", "fold": "Fold", "n": "Repertoires", "n_positive": "Positive"}
    measures = _NUMBERS if result.is_regression(name) else {"auc": "AUC", **MEASURES}
    headings = {column: heading for column, heading in (text | counts | measures).items() if column in table}

    def make_cell(row: Mapping[Hashable, Any], column: str) -> Cell:
        if column in text:
            return make_text_cell(row[column])
        return make_number_cell(row[column], ",.0f" if column in counts else ",.3f")

    rows = [[make_cell(row, column) for column in headings] for row in table.to_dict("records")]
    columns = [Column(heading, is_number=column not in text) for column, heading in headings.items()]
    return Table(f"folds-{table_index}", f"Each test fold of {name}", columns, rows, sortable=True)


def _make_motifs_table(motifs: pd.DataFrame) -> Table:
    """Return the table of the motifs that the runs started from, with the number of runs that found each."""
    columns = [
        Column("Motif", is_number=False),
        Column("Output", is_number=False),
        Column("Runs", note="number of runs that found it, of all runs"),
        Column("Test folds", note="number of folds with such a run, of all folds of all repeats"),
        Column("Repeats", note="number of repeats with such a run, of all repeats"),
        Column(
            "Correlation", note="between its frequency and the label, in the training repertoires; median over the runs"
        ),
        Column("Largest p", note="over the runs that found it"),
        Column("Other forms", is_number=False),
    ]
    rows = [
        [
            make_text_cell(row["motif"]),
            make_text_cell(row["output"]),
            *(_make_share_cell(row[f"n_{unit}"], row[f"n_all_{unit}"]) for unit in ("runs", "test_folds", "repeats")),
            make_number_cell(row["correlation"], "+.2f"),
            Cell(format_p_value(row["max_p_value"]), row["max_p_value"]),
            make_text_cell(" ".join(row["forms"].split()[1:])),
        ]
        for row in motifs.to_dict("records")
    ]
    return Table("motifs-found", "Motifs that the runs started from", columns, rows, sortable=True)


def _make_share_cell(n: int, n_all: int) -> Cell:
    return Cell(f"{n:,} of {n_all:,}", n)


def _make_figures(result: StoredCrossValidation, name: str) -> list[Figure]:
    """Return the figures of a target: its curves, and the reliability of its probabilities."""
    if result.metrics[name].n == 0:
        return []
    scoring, table = convert_to_comparison(result, name)
    first = table[table["repeat"] == 0]
    if scoring.kind == "regression":
        description = (
            "Predicted values (vertical axis) against true values, of the first repeat: each point is a repertoire."
        )
        return [
            render_figure(
                draw_curves_figure(first, [METHOD], scoring), f"Predictions of {name}", description, description
            )
        ]
    figures = []
    try:
        figure = draw_curves_figure(table, [METHOD], scoring)
    except NoCurveError:
        pass
    else:
        description = "ROC curve (left), and precision against recall (right), averaged over all test folds."
        figures.append(render_figure(figure, f"Curves of {name}", description, description))
    description = (
        "Horizontal axis: predicted probability of a class, in bins of the repertoires of the first repeat. Vertical "
        "axis: share of these repertoires that have the class; bars are 95% intervals. On the dashed line, "
        "probabilities agree with observed frequencies."
    )
    figures.append(
        render_figure(
            draw_reliability_figure(first, [METHOD], scoring), f"Reliability of {name}", description, description
        )
    )
    return figures


def _format_command(header: CrossValidationHeader, folder: Path) -> str:
    """Return the command that repeats the cross-validation."""
    words, run = ["deeprc", "cv", header.cohort], folder / RUNS / next(iter(index_runs(header)))
    if run.exists():  # not if the tables alone were copied
        words += [f"{name}={format_setting(value)}" for name, value in read_settings(run).config.changes().items()]
        words += [] if (run / SKETCHES_FILE).exists() else ["--no-sketches"]
    for target in header.targets:
        words += ["--target", target]
    folds = str(header.folds) if header.left_out is None else f"{LEAVE_ONE_OUT}{header.left_out}"
    words += ["--folds", folds, "--repeats", str(header.repeats), "--members", str(header.members)]
    if header.group_by is not None:
        words += ["--group-by", header.group_by]
    words += format_adjust_options(header.adjust_for)
    return shlex.join([*words, "--seed", str(header.seed), "--output", str(folder)])
