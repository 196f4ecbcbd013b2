"""The curves of a cross-validation: of predictions by runs that have not learned from the repertoire."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeprc.errors import InputError
from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.curves import draw_curves_figure
from deeprc.evaluation.scatter import NoCurveError
from deeprc.evaluation.scoring import choose_scoring
from deeprc.evaluation.scoring_base import Scoring
from deeprc.interpretation.report.cv_results import StoredCrossValidation, list_classes, read_cross_validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["METHOD", "convert_to_comparison", "draw_cv_curves"]

METHOD = MethodInfo("deeprc", "DeepRC")
"""The network, as the only method of a comparison."""


def draw_cv_curves(folder: str | os.PathLike[str], target: str | None = None) -> Figure:
    """Draw the ROC and precision-recall curves of a target, or predicted against true numbers of the first repeat.

    The curves are the means over all test folds and repeats.

    Parameters
    ----------
    folder
        Path of the folder of `deeprc cv`.
    target
        Name of the target; None if there is only one.

    Raises
    ------
    InputError
        If the folder has no finished cross-validation, no such target, or nothing to draw.
    """
    result = read_cross_validation(Path(folder))
    names = list(result.metrics)
    if target is None and len(names) > 1:
        raise InputError(f"{folder}: expected one target (`target`): {', '.join(names)}")
    name = names[0] if target is None else target
    if name not in names:
        raise InputError(f"{folder}: no target {name!r}; its targets: {', '.join(names)}")
    if result.metrics[name].n == 0:
        raise InputError(f"{folder}: target {name!r}: no repertoire has a label, so there is nothing to draw")
    scoring, table = convert_to_comparison(result, name)
    if scoring.kind == "regression":
        table = table[table["repeat"] == 0]
    try:
        return draw_curves_figure(table, [METHOD], scoring)
    except NoCurveError as error:
        raise InputError(f"{folder}: target {name!r}: no test fold has both classes, so there is no curve") from error


def convert_to_comparison(result: StoredCrossValidation, name: str) -> tuple[Scoring, pd.DataFrame]:
    """Return the scoring of a target, and its predictions in the form of a benchmark's, with their repeat."""
    table = result.predictions
    rows = table[table["target"] == name]
    classes = list_classes(table, name)
    if len(rows):
        kind = "regression" if result.is_regression(name) else "binary"
        scoring = choose_scoring(kind, ())
        values = {"prediction": rows["prediction"]} if kind == "regression" else {"score": rows["log_odds"]}
        compared = rows[["repertoire_id", "repeat", "fold", "label", "probability"]].assign(**values)
    else:
        scoring, compared = choose_scoring("multiclass", classes), _pivot_classes(table, name, classes)
    compared = compared[compared["label"].notna()]
    fold = compared["repeat"] * (int(table["fold"].max()) + 1) + compared["fold"]
    ids = compared["repertoire_id"].astype(str) + " (" + compared["repeat"].astype(str) + ")"
    return scoring, compared.assign(method=METHOD.name, fold=fold, repertoire_id=ids)


def _pivot_classes(table: pd.DataFrame, name: str, classes: Sequence[str]) -> pd.DataFrame:
    """Return predictions of several classes with one row per repertoire, and the name of its class as label."""
    key_columns, parts = ["repertoire_id", "repeat", "fold"], []
    for class_name in classes:
        rows = table[table["target"] == f"{name}={class_name}"].set_index(key_columns)
        part = {
            f"score={class_name}": rows["log_odds"],
            f"probability={class_name}": rows["probability"],
            f"is {class_name}": rows["label"],
        }
        parts.append(pd.DataFrame(part))
    wide = pd.concat(parts, axis=1).reset_index()
    member = wide[[f"is {class_name}" for class_name in classes]].to_numpy(np.float64)
    index = np.where(np.isnan(member), -1, member).argmax(axis=1)
    label: Any = np.where(np.isnan(member).any(axis=1), None, np.array(classes, object)[index])
    return wide.assign(label=label)
