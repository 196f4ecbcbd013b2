"""The folder that `deeprc power` writes: `power.tsv`, `power.png`, and the outcomes of its jobs.

`power.png` shows learning curves, or a simulated study.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from deeprc.drawing import COLOURS, MARKERS, MUTED, SCREEN_DPI, require_matplotlib, save_figure, shorten_name
from deeprc.errors import InputError
from deeprc.files import check_new_folder, write_text
from deeprc.power.curve import LearningCurve
from deeprc.power.planning import SimulatedStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "check_power_folder",
    "draw_learning_curve_figure",
    "draw_study_figure",
    "get_jobs_folder",
    "write_curves",
    "write_study",
]

_TABLE, _PICTURE, _JOBS = "power.tsv", "power.png", "jobs"


def get_jobs_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder with the outcomes of the jobs."""
    return Path(folder) / _JOBS


def check_power_folder(folder: str | os.PathLike[str], *, resume: bool) -> None:
    """Refuse a folder that cannot be written, before anything is computed.

    Raises
    ------
    InputError
        If the folder holds anything but an earlier call that is continued, or matplotlib is missing.
    """
    if find_spec("matplotlib") is None:
        raise InputError("the picture needs matplotlib: pip install 'deeprc[plots]'")
    if not (resume and get_jobs_folder(folder).is_dir()):
        hint = "continue it with `resume`, or " if get_jobs_folder(folder).is_dir() else ""
        check_new_folder(Path(folder), hint=hint)


def write_curves(folder: str | os.PathLike[str], curves: Sequence[LearningCurve]) -> None:
    """Write learning curves as a table and a picture."""
    tables = []
    for curve in curves:
        low, high = curve.n_needed[1:]
        tables.append(
            curve.table.assign(
                method=curve.method,
                ceiling=curve.law.ceiling,
                loss=curve.law.deficit,  # the file keeps the first name of this column
                exponent=curve.law.exponent,
                target_auc=curve.target_auc,
                n_needed=curve.n_needed[0],
                n_needed_low=low,
                n_needed_high=high,
                p_value=curve.p_value,
            )
        )
    _write_table(folder, pd.concat(tables, ignore_index=True))
    save_figure(draw_learning_curve_figure(curves), Path(folder) / _PICTURE, dpi=SCREEN_DPI)


def write_study(folder: str | os.PathLike[str], study: SimulatedStudy) -> None:
    """Write the results of a planned study's simulated cohorts, as a table and a picture."""
    simulated = study.simulated
    table = study.table.assign(
        n_repertoires=simulated.n_repertoires, depth=simulated.depth, witness_rate=simulated.witness_rate
    )
    _write_table(folder, table)
    save_figure(draw_study_figure(study), Path(folder) / _PICTURE, dpi=SCREEN_DPI)


def _write_table(folder: str | os.PathLike[str], table: pd.DataFrame) -> None:
    columns = ["method", *(name for name in table if name != "method")]
    text = table[columns].to_csv(sep="\t", index=False, float_format="%.6g", lineterminator="\n")
    write_text(Path(folder) / _TABLE, text)


@require_matplotlib
def draw_learning_curve_figure(curves: Sequence[LearningCurve]) -> Figure:
    """Return a figure of the AUC by the size of the cohort: measured values with 95% intervals, and fitted laws."""
    figure, axes = _make_axes()
    for i, curve in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        measured = curve.table[curve.table["kind"] == "measured"]
        errors = [measured["auc"] - measured["auc_low"], measured["auc_high"] - measured["auc"]]
        axes.errorbar(
            measured["n_cohort"],
            measured["auc"],
            yerr=np.maximum(errors, 0),
            fmt=MARKERS[1 + i % (len(MARKERS) - 1)],
            color=colour,
            markersize=4,
            capsize=2,
            linewidth=0.8,
            label=shorten_name(curve.method, 40),
        )
        sizes = np.geomspace(curve.table["n_cohort"].min(), curve.table["n_cohort"].max(), 200)
        scale = float(measured["n_cohort"].iloc[-1] / measured["n_learned"].iloc[-1])
        axes.plot(sizes, [curve.law.predict_auc(n / scale) for n in sizes], color=colour, linewidth=1)
        beyond = curve.table[curve.table["n_cohort"] >= measured["n_cohort"].iloc[-1]]
        axes.fill_between(
            beyond["n_cohort"], beyond["auc_low"], beyond["auc_high"], color=colour, alpha=0.15, linewidth=0
        )
    axes.set_xscale("log")
    sizes = np.unique(np.round(np.concatenate([curve.table["n_cohort"] for curve in curves])))
    axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("Repertoires in the cohort")
    axes.set_ylabel("AUC of the test folds")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure


@require_matplotlib
def draw_study_figure(study: SimulatedStudy) -> Figure:
    """Return a figure of the AUC of each method on each simulated cohort, with the 95% interval of such a study."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(study.table["method"]))
    figure = Figure(figsize=(6, 1 + 0.6 * len(methods)))
    axes = figure.add_subplot()
    axes.axvline(0.5, color=MUTED, linewidth=0.8, linestyle="--")
    for i, method in enumerate(methods):
        rows = study.table[study.table["method"] == method]
        positions = i + np.linspace(-0.25, 0.25, len(rows)) if len(rows) > 1 else np.array([float(i)])
        errors = [rows["auc"] - rows["auc_low"], rows["auc_high"] - rows["auc"]]
        colour = COLOURS[i % len(COLOURS)]
        axes.errorbar(
            rows["auc"],
            positions,
            xerr=np.maximum(errors, 0),
            fmt="o",
            color=colour,
            markersize=4,
            capsize=2,
            linewidth=0.8,
        )
    axes.set_yticks(range(len(methods)), [shorten_name(name, 40) for name in methods])
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.set_xlim(0.3, 1.02)
    axes.grid(axis="x")
    axes.set_xlabel("AUC of the test folds, for each simulated cohort")
    return figure


def _make_axes() -> tuple[Figure, Axes]:
    """Return a figure and its axes in the style of both figures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.4))
    axes = figure.add_subplot()
    axes.axhline(0.5, color=MUTED, linewidth=0.8, linestyle="--")
    axes.set_ylim(0.3, 1.02)
    axes.grid(axis="y")
    return figure, axes
