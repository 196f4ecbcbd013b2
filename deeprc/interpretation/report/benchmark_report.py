"""The report of a benchmark's folder: all methods in one table, and their curves."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from deeprc.errors import InputError
from deeprc.evaluation.comparison import MethodInfo, p_text
from deeprc.evaluation.store import holds_benchmark, read_header
from deeprc.files import read_table
from deeprc.interpretation.report import pictures
from deeprc.interpretation.report.page import (
    DASH,
    Cell,
    Column,
    Table,
    check_report_output,
    number,
    text,
    today,
    write_page,
)

__all__ = ["write_benchmark_report"]

_KINDS = {"method": "method", "control": "control", "truth": "ground truth"}
_METRICS = {"f1": "F1", "balanced_accuracy": "Balanced accuracy", "average_precision": "Average precision"}
_CONTENTS = [
    ("table", "Which method is best?"),
    ("curves", "Curves"),
    ("settings", "Settings that were chosen"),
    ("costs", "Time and memory"),
    ("reproduce", "To reproduce"),
]


def write_benchmark_report(folder: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Write the report of a folder that `deeprc benchmark` has made.

    Parameters
    ----------
    folder
        Of the benchmark.
    output
        The HTML file to write; it is replaced only if it is a report.

    Raises
    ------
    InputError
        If the folder holds no benchmark that has ended, a file of it is damaged, or `output` cannot be written.
    """
    check_report_output(Path(output))
    found = _read(Path(folder))
    write_page(
        Path(output),
        "benchmark.html.j2",
        title=f"Benchmark: {found.notes.title or found.header['target']}",
        lead=_lead(found),
        date=today(),
        contents=_CONTENTS,
        legend=found.notes.legend,
        verdict=found.notes.section("What the controls say"),
        incomplete=found.notes.section("Not complete"),
        chosen=[_term(line) for line in found.notes.section("Settings chosen")],
        table=_comparison_table(found),
        costs=_cost_table(found),
        curves=pictures.curves_picture(found.predictions, found.methods),
        command=_command(found.header, str(folder)),
        header=(Path(folder) / "benchmark.yaml").read_text(encoding="utf-8"),
        facts=_facts(found.header),
    )


@dataclass(frozen=True)
class _Notes:
    """What `table.md` says around its table."""

    title: str
    legend: str
    sections: Mapping[str, Sequence[str]]

    def section(self, heading: str) -> Sequence[str]:
        return self.sections.get(heading, [])


@dataclass(frozen=True)
class _Found:
    """What the folder holds."""

    header: Mapping[str, Any]
    methods: Sequence[MethodInfo]
    comparison: pd.DataFrame
    results: pd.DataFrame
    predictions: pd.DataFrame
    notes: _Notes


def _read(folder: Path) -> _Found:
    if not holds_benchmark(folder):
        raise InputError(f"{folder}: holds no benchmark (no benchmark.yaml); expected one made by `deeprc benchmark`")
    header = read_header(folder)
    comparison = _table(folder / "comparison.tsv", ("method", "kind", "best", "auc_mean", "ci_low", "ci_high"))
    results = _table(folder / "results.tsv", ("method", "fold", "metric", "value"))
    predictions = _table(folder / "predictions.tsv", ("method", "fold", "repertoire_id", "label", "score"))
    try:
        notes = _notes((folder / "table.md").read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{folder}: the benchmark has not ended (no table.md)") from None
    methods = [
        MethodInfo(name, str(header["methods"].get(name, {}).get("label", name)), kind)
        for name, kind in zip(comparison["method"], comparison["kind"], strict=True)
    ]
    return _Found(header, methods, comparison, results, predictions, notes)


def _table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    if not path.exists():
        raise InputError(f"{path.parent}: the benchmark has not ended (no {path.name})")
    return read_table(path, {"method": str, "repertoire_id": str}, columns=columns)


def _notes(markdown: str) -> _Notes:
    """Read title, legend and lists from the Markdown that `table_markdown` makes."""
    title = ""
    legend: list[str] = []
    sections: dict[str, list[str]] = {}
    items: list[str] | None = None
    for line in markdown.splitlines():
        if line.startswith("# "):
            title = line[2:]
        elif line.startswith("## "):
            items = sections.setdefault(line[3:], [])
        elif line.startswith("- ") and items is not None:
            items.append(_plain(line[2:]))
        elif line and not line.startswith("|") and items is None:
            legend.append(_plain(line))
    return _Notes(title, " ".join(legend), sections)


def _plain(markdown: str) -> str:
    return re.sub(r"\\([\\|*`<_])", r"\1", markdown)


def _term(line: str) -> tuple[str, str]:
    """Return the method that a line of settings begins with, and the rest."""
    name, _, rest = line.partition(", validation AUC") if ", validation AUC" in line else line.partition(": ")
    return name, f"validation AUC{rest}" if ", validation AUC" in line else rest


def _lead(found: _Found) -> str:
    header = found.header
    n, n_positive = header.get("n_repertoires", 0), header.get("n_positive", 0)
    classes = header.get("classes", [])
    positive = classes[-1] if classes else "positive"
    return (
        f"{len(found.methods)} methods predicted {header['target']} for the same {n:,} repertoires, {n_positive:,} of "
        f"them {positive}, in {header['n_folds']} folds: each repertoire was tested once, by models that had not seen "
        "it."
    )


def _comparison_table(found: _Found) -> Table:
    means = found.results.groupby(["method", "metric"])["value"].agg(["mean", "std"])
    judged = set(found.comparison.loc[(found.comparison["kind"] == "method") & found.comparison["complete"], "method"])
    best = {metric: _best(means, judged, metric) for metric in ("auc", *_METRICS)}
    rows = []
    label = {each.name: each.label for each in found.methods}
    for _, row in found.comparison.iterrows():
        if row["n_folds"] == 0:
            continue
        name = str(row["method"])
        own = best if name in judged else dict.fromkeys(best, "")
        whole = "" if row["complete"] else f" ({row['n_folds']} of {row['n_wanted']} folds)"
        interval = f"{row['ci_low']:.3f} to {row['ci_high']:.3f}"
        rows.append(
            [
                text(label[name] + whole),
                text(_KINDS.get(str(row["kind"]), str(row["kind"]))),
                _estimate(row["auc_mean"], row["auc_sd"], own["auc"]),
                Cell(interval, float(row["ci_low"])),
                _p_value(row["p_value"], is_best=bool(row["best"])),
                _p_value(row["p_holm"], is_best=bool(row["best"])),
                *(_estimate(*_of(means, name, metric), own[metric]) for metric in _METRICS),
            ]
        )
    columns = [
        Column("Method", False),
        Column("Kind", False, "a control reads no receptor sequence; the ground truth knows what was simulated"),
        Column("AUC", note="mean ± standard deviation over the test folds"),
        Column("95% interval", note="of the mean AUC"),
        Column("p", note="of the difference to the best method, on the same repertoires"),
        Column("p (Holm)", note="the same, corrected for the number of methods"),
        *(Column(heading, note="mean ± standard deviation over the test folds") for heading in _METRICS.values()),
    ]
    return Table("methods", "All methods; press a heading to sort by it", columns, rows, sortable=True)


def _of(means: pd.DataFrame, method: str, metric: str) -> tuple[float, float]:
    if (method, metric) not in means.index:
        return np.nan, np.nan
    return float(means["mean"][method, metric]), float(means["std"][method, metric])


def _best(means: pd.DataFrame, methods: Iterable[str], metric: str) -> str:
    """Return the highest mean of a metric among methods, as printed."""
    values = [_of(means, method, metric)[0] for method in methods]
    return max((f"{value:.3f}" for value in values if not np.isnan(value)), default="")


def _estimate(mean: float, sd: float, best: str) -> Cell:
    """Return a mean with its deviation; bold if it is the best as printed."""
    if np.isnan(mean):
        return number(None)
    spread = "" if np.isnan(sd) else f" ± {sd:.3f}"
    shown = f"{mean:.3f}"
    return Cell(Markup("<strong>{}</strong>{}").format(shown, spread) if shown == best else shown + spread, mean)


def _p_value(value: float, *, is_best: bool) -> Cell:
    if is_best:
        return Cell("best", None)
    return number(None) if np.isnan(value) else Cell(p_text(value), value)


def _cost_table(found: _Found) -> Table:
    cells = found.results[found.results["metric"].isin(["search_seconds", "final_seconds", "peak_memory_mb"])]
    rows = []
    for each in found.methods:
        own = cells[cells["method"] == each.name]
        if own.empty:
            continue
        seconds = [float(own.loc[own["metric"] == name, "value"].sum()) for name in ("search_seconds", "final_seconds")]
        memory = own.loc[own["metric"] == "peak_memory_mb", "value"].max()
        rows.append([text(each.label), *(number(value, ",.1f") for value in (*seconds, sum(seconds), memory))])
    columns = [
        Column("Method", False),
        Column("Search, s", note="of all settings that were tried, in all folds"),
        Column("Final fits, s"),
        Column("Together, s"),
        Column("Memory, MB", note="the most that a fit added to its process"),
    ]
    return Table("times", "Time of all fits, one after another, and memory", columns, rows, sortable=True)


def _command(header: Mapping[str, Any], folder: str) -> str:
    words = ["deeprc", "benchmark", str(header.get("cohort", "cohort.h5")), "--target", str(header["target"])]
    words += ["--methods", ",".join(map(str, header["asked"])), "--preset", str(header["preset"])]
    words += ["--folds", str(header["n_folds"])]
    if header["group_by"] is not None:
        words += ["--group-by", str(header["group_by"])]
    words += ["--seed", str(header["seed"]), "--output", folder]
    return shlex.join(words)


def _facts(header: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Cohort", str(header.get("cohort", DASH))),
        ("Digest of its content", str(header["content"])),
        ("Digest of the folds", str(header["folds"])),
        ("deeprc", str(header.get("deeprc", DASH))),
    ]
