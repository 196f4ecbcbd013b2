"""The folder that `deeprc power` writes: `power.tsv`, `power.png`, and the outcomes of its jobs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from deeprc.drawing import SCREEN_DPI, save_figure
from deeprc.errors import InputError
from deeprc.files import check_new_folder, write_text
from deeprc.power.curve import LearningCurve
from deeprc.power.figure import draw_learning_curve_figure, draw_study_figure
from deeprc.power.planning import SimulatedStudy

__all__ = ["check_power_folder", "get_jobs_folder", "write_curves", "write_study"]

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
