"""The report of a benchmark: all methods in one table, and their curves."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from deeprc.benchmarking.store import holds_benchmark, read_header
from deeprc.benchmarking.tables import (
    REFIT_HEADING,
    VALIDATION_MEASURES,
    MetricEstimate,
    describe_incomplete_methods,
    estimate_metrics,
    estimate_refit,
    make_table_legend,
    summarise_chosen_settings,
)
from deeprc.documents import MAX_YAML_BYTES, read_text
from deeprc.errors import InputError, describe_names
from deeprc.evaluation.caution import Caution, read_cautions
from deeprc.evaluation.comparison import MethodInfo, compare_probabilities
from deeprc.evaluation.parse_folds import LEAVE_ONE_OUT
from deeprc.evaluation.reliability import MEASURES
from deeprc.evaluation.scoring import choose_scoring
from deeprc.evaluation.scoring_base import Scoring
from deeprc.evaluation.significance import format_p_value
from deeprc.evaluation.stored_tables import read_choices, read_comparison, read_method_predictions, read_results
from deeprc.interpretation.report.origin import format_adjust_options
from deeprc.interpretation.report.page import (
    DASH,
    Cell,
    Column,
    Table,
    check_report_output,
    format_today,
    make_interval_cell,
    make_number_cell,
    make_text_cell,
    write_page,
)
from deeprc.interpretation.report.page_figures import make_curves_figures, make_reliability_figures

__all__ = ["write_benchmark_report"]

_COSTS = ("search_seconds", "final_seconds", "peak_memory_mb")
_KINDS = {"method": "method", "control": "control", "truth": "ground truth"}
_CONTENTS = [
    ("table", "Which method is best?"),
    ("curves", "Curves"),
    ("probabilities", "Probabilities"),
    ("settings", "Settings that were chosen"),
    ("costs", "Time and memory"),
    ("reproduce", "To reproduce"),
]


def write_benchmark_report(folder: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Write the report of a folder of `deeprc benchmark`.

    Parameters
    ----------
    folder
        Path of the folder of the benchmark.
    output
        Path of the HTML file; an existing file is replaced only if it is a report.

    Raises
    ------
    InputError
        If the folder has no finished benchmark, if a file of it is damaged, or if `output` cannot be written.
    """
    check_report_output(Path(output))
    files = _read_files(Path(folder))
    write_page(
        Path(output),
        "benchmark.html.j2",
        title=f"Benchmark: {_format_title(files)}",
        lead=_format_lead(files),
        date=format_today(),
        contents=_CONTENTS,
        kind=files.scoring.kind,
        measure=VALIDATION_MEASURES[files.scoring.kind],
        cautions=[replace(caution, section="") for caution in files.cautions if caution.section != "controls"],
        legend=make_table_legend(files.comparison, files.methods, files.scoring),
        verdict=[caution.text for caution in files.cautions if caution.section == "controls"],
        incomplete=describe_incomplete_methods(files.comparison, files.methods, {}),
        chosen=[
            (choice.method, ": ".join(filter(None, (choice.validation, choice.settings))))
            for choice in summarise_chosen_settings(files.choices, files.methods, files.scoring)
        ],
        table=_make_comparison_table(files),
        costs=_make_cost_table(files),
        curves=make_curves_figures(files.predictions, files.methods, files.scoring),
        probabilities=_make_probability_table(files),
        reliability=make_reliability_figures(files.predictions, files.methods, files.scoring),
        command=_format_command(files.header, str(folder)),
        header=read_text(Path(folder) / "benchmark.yaml", limit=MAX_YAML_BYTES),
        facts=_list_facts(files.header),
    )


@dataclass(frozen=True)
class _BenchmarkFiles:
    """The files of a benchmark's folder."""

    header: Mapping[str, Any]
    methods: Sequence[MethodInfo]
    comparison: pd.DataFrame
    results: pd.DataFrame
    predictions: pd.DataFrame
    choices: pd.DataFrame
    scoring: Scoring
    cautions: Sequence[Caution]


def _read_files(folder: Path) -> _BenchmarkFiles:
    """Read the files of a finished benchmark; raise InputError if one is missing or damaged."""
    if not holds_benchmark(folder):
        raise InputError(f"{folder}: holds no benchmark (no benchmark.yaml); expected one made by `deeprc benchmark`")
    header = read_header(folder)
    for name in ("comparison.tsv", "results.tsv", "predictions.tsv", "settings.tsv"):
        if not (folder / name).exists():
            raise InputError(f"{folder}: the benchmark has not ended (no {name})")
    scoring = choose_scoring(str(header.get("kind", "binary")), header.get("classes", ()))
    comparison = read_comparison(folder / "comparison.tsv", scoring)
    results = read_results(folder / "results.tsv")
    predictions = read_method_predictions(folder / "predictions.tsv", scoring)
    choices = read_choices(folder / "settings.tsv", scoring)
    if without_row := sorted(set(predictions["method"]) - set(comparison["method"])):
        raise InputError(
            f"{folder / 'comparison.tsv'}: expected each method of predictions.tsv, found none of "
            f"{describe_names(without_row, 'method', 'methods')}"
        )
    methods = [
        MethodInfo(name, str(header["methods"].get(name, {}).get("label", name)), kind)
        for name, kind in zip(comparison["method"], comparison["kind"], strict=True)
    ]
    return _BenchmarkFiles(header, methods, comparison, results, predictions, choices, scoring, read_cautions(folder))


def _format_title(files: _BenchmarkFiles) -> str:
    return f"{files.header['target']} of {Path(str(files.header.get('cohort', ''))).name or 'a cohort'}"


def _format_lead(files: _BenchmarkFiles) -> str:
    header = files.header
    n, n_positive = header.get("n_repertoires", 0), header.get("n_positive")
    classes = header.get("classes") or ["positive"]
    positive = header.get("positive_class") or classes[-1]  # earlier versions wrote only the classes
    share = "" if n_positive is None else f" {n_positive:,} of them {positive},"
    return (
        f"{len(files.methods)} methods predicted {header['target']} for the same {n:,} repertoires,{share} in "
        f"{header['n_folds']} folds: each repertoire was tested once, by models that had not seen it."
    )


def _make_comparison_table(files: _BenchmarkFiles) -> Table:
    """Return the table of the methods with their metrics and tests; methods without a finished fold are left out."""
    return Table(
        "methods",
        "All methods; press a heading to sort by it",
        _list_comparison_columns(files.scoring),
        _make_comparison_rows(files),
        sortable=True,
    )


def _list_comparison_columns(scoring: Scoring) -> list[Column]:
    over_folds = "mean ± standard deviation over the test folds"
    main_note = over_folds
    if scoring.kind == "regression":
        main_note = "of all test repertoires together ± standard deviation over the test folds"
    main_heading, *other_headings = scoring.headings.values()
    return [
        Column("Method", is_number=False),
        Column(
            "Kind",
            is_number=False,
            note="a control method sees no amino acids; the ground truth knows what was simulated",
        ),
        Column(main_heading, note=main_note),
        Column("95% interval", note=f"of the {main_heading}"),
        Column("p", note="test of the difference from the best method, on the same repertoires (paired)"),
        Column("p (Holm)", note="the same, corrected for the number of methods"),
        Column(REFIT_HEADING, note="after a fit to the training and validation folds together; see below"),
        *(Column(heading, note=over_folds) for heading in other_headings),
    ]


def _make_comparison_rows(files: _BenchmarkFiles) -> list[list[Cell]]:
    """Return the rows of the comparison table, with the cells of `_list_comparison_columns`."""
    comparison = files.comparison
    complete_methods = set(comparison.loc[(comparison["kind"] == "method") & comparison["complete"], "method"])
    estimates = estimate_metrics(files.results, comparison, complete_methods, files.scoring)
    refits = estimate_refit(files.choices, files.scoring)
    label_of = {method.name: method.label for method in files.methods}
    rows = []
    for _, row in comparison[comparison["n_folds"] > 0].iterrows():
        name, is_best = str(row["method"]), bool(row["best"])
        missing_folds = "" if row["complete"] else f" ({row['n_folds']} of {row['n_wanted']} folds)"
        main, *others = (_make_estimate_cell(estimates[metric].get(name)) for metric in files.scoring.headings)
        rows.append(
            [
                make_text_cell(label_of[name] + missing_folds),
                make_text_cell(_KINDS.get(str(row["kind"]), str(row["kind"]))),
                main,
                make_interval_cell((row["ci_low"], row["ci_high"])),
                _make_p_value_cell(row["p_value"], is_best=is_best),
                _make_p_value_cell(row["p_holm"], is_best=is_best),
                _make_estimate_cell(refits.get(name)),
                *others,
            ]
        )
    return rows


def _make_estimate_cell(estimate: MetricEstimate | None) -> Cell:
    """Return a cell of a metric with its deviation over folds; it is bold if it is the best after rounding."""
    if estimate is None:
        return make_number_cell(None)
    spread = "" if np.isnan(estimate.sd) else f" ± {estimate.sd:.3f}"
    shown = make_number_cell(estimate.value).text
    bold = Markup("<strong>{}</strong>{}").format(shown, spread)
    return Cell(bold if estimate.is_best else shown + spread, estimate.value)


def _make_p_value_cell(value: float, *, is_best: bool) -> Cell:
    if is_best:
        return Cell("best", None)
    return make_number_cell(None) if np.isnan(value) else Cell(format_p_value(value), value)


def _make_probability_table(files: _BenchmarkFiles) -> Table | None:
    """Return the table of the quality of each method's probabilities; None if no classes are predicted."""
    judged = compare_probabilities(files.predictions, files.methods, files.scoring)
    if judged.empty:
        return None
    label = {method.name: method.label for method in files.methods}
    columns = [
        Column("Method", is_number=False),
        Column("Kind", is_number=False),
        Column("Brier score", note="mean squared error of the probabilities"),
        Column("Brier score of the base rate", note="the Brier score if only the frequency of each class is known"),
        Column("Log loss", note="with natural logarithms"),
        Column("Log loss of the base rate", note="the log loss if only the frequency of each class is known"),
        Column(
            "Calibration error",
            note="root mean square difference between predicted probabilities and observed frequencies",
        ),
    ]
    rows = [
        [
            make_text_cell(label[str(row["method"])]),
            make_text_cell(_KINDS[str(row["kind"])]),
            *(make_number_cell(row[name]) for name in MEASURES),
        ]
        for row in judged.to_dict("records")
    ]
    return Table(
        "probability-measures", "How good the probabilities are: lower is better", columns, rows, sortable=True
    )


def _make_cost_table(files: _BenchmarkFiles) -> Table:
    """Return the table of the time and memory of each method."""
    cells = files.results[files.results["metric"].isin(["search_seconds", "final_seconds", "peak_memory_mb"])]
    rows = []
    for method in files.methods:
        costs = cells[cells["method"] == method.name]
        if costs.empty:
            continue
        values = {name: costs.loc[costs["metric"] == name, "value"] for name in _COSTS}
        seconds = [float(values[name].sum()) for name in _COSTS[:2]]
        memory = values["peak_memory_mb"].max()
        rows.append(
            [
                make_text_cell(method.label),
                *(make_number_cell(value, ",.1f") for value in (*seconds, sum(seconds), memory)),
            ]
        )
    columns = [
        Column("Method", is_number=False),
        Column("Search, s", note="seconds for all settings that were tried, in all folds"),
        Column("Final fits, s"),
        Column("Sum, s"),
        Column("Memory, MB", note="largest amount of memory that a fit added to its process"),
    ]
    return Table("times", "Time of all fits (sum over all processes), and memory", columns, rows, sortable=True)


def _format_command(header: Mapping[str, Any], folder: str) -> str:
    """Return the command that repeats the benchmark."""
    words = ["deeprc", "benchmark", str(header.get("cohort", "cohort.h5")), "--target", str(header["target"])]
    words += ["--methods", ",".join(map(str, header["asked"])), "--preset", str(header["preset"])]
    left_out = header.get("left_out")
    if header.get("folds_file"):
        words += ["--folds", f"{folder}/folds.tsv"]
    else:
        words += ["--folds", str(header["n_folds"]) if left_out is None else f"{LEAVE_ONE_OUT}{left_out}"]
    if header["group_by"] is not None:
        words += ["--group-by", str(header["group_by"])]
    words += format_adjust_options(header.get("adjust_for") or ())
    output = f"{folder}-again" if header.get("folds_file") else folder  # the folder with the folds exists already
    words += ["--seed", str(header["seed"]), "--output", output]
    return shlex.join(words)


def _list_facts(header: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Cohort", str(header.get("cohort", DASH))),
        ("Digest of its content", str(header["content"])),
        ("Digest of the folds", str(header["folds"])),
        ("deeprc", str(header.get("deeprc", DASH))),
    ]
