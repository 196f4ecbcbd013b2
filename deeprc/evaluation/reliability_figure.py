"""Reliability curves of a benchmark: observed against predicted frequencies.

All test repertoires are pooled, each with the probability from the model of its fold. Several classes are pooled, each
against all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from deeprc.drawing import COLOURS, MUTED, require_matplotlib, shorten_name
from deeprc.evaluation.comparison import MethodInfo, compare_probabilities, validate_predictions
from deeprc.evaluation.curves import binarize_predictions
from deeprc.evaluation.reliability import compute_calibration_bins
from deeprc.evaluation.scatter import NoCurveError, make_panels
from deeprc.evaluation.scoring import BINARY
from deeprc.evaluation.scoring_base import Scoring

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_reliability_figure", "make_reliability_table"]

_PANEL = 2.2  # inches


def make_reliability_table(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> pd.DataFrame:
    """Return the points of the reliability curve of each method that has predictions of classes.

    The columns are method, and those of `deeprc.evaluation.reliability.compute_calibration_bins`.
    """
    columns = ["method", "probability", "share", "lower", "upper", "n"]
    if scoring.kind == "regression":
        return pd.DataFrame(columns=columns)
    table = validate_predictions(binarize_predictions(predictions, scoring), methods)
    parts = []
    for method in methods:
        rows = table[table["method"] == method.name]
        if len(rows):
            bins = compute_calibration_bins(rows["label"].to_numpy(np.float64), rows["probability"].to_numpy())
            parts.append(bins.assign(method=method.name))
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


@require_matplotlib
def draw_reliability_figure(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> Figure:
    """Return a figure with a panel for each method: observed share against probability, with 95% intervals.

    The method with the lowest log loss comes first.

    Raises
    ------
    NoCurveError
        If there is no prediction of classes.
    InputError
        If matplotlib is not installed, or the table is not what `validate_predictions` expects.
    """
    judged = compare_probabilities(predictions, methods, scoring).set_index("method")
    if judged.empty:
        raise NoCurveError("predictions: no method predicts classes, so there is no curve")
    points, by_name = make_reliability_table(predictions, methods, scoring), {method.name: method for method in methods}
    figure, axes = make_panels(len(judged), _PANEL, _PANEL + 0.35, x="probability", y="observed share")
    for axis, name in zip(axes, judged.index, strict=True):
        method = by_name[str(name)]
        _draw_panel(axis, points[points["method"] == name], is_control=method.kind == "control")
        error = float(judged.loc[name, "calibration_error"])
        shown = "not measured" if np.isnan(error) else f"{error:.3f}"
        axis.set_title(f"{shorten_name(method.label, 30)}\ncalibration error {shown}", fontsize=8)
    return figure


def _draw_panel(axis: Axes, points: pd.DataFrame, *, is_control: bool) -> None:
    axis.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="--", zorder=0)
    error = np.abs(points[["lower", "upper"]].to_numpy() - points[["share"]].to_numpy()).T
    colour = MUTED if is_control else COLOURS[0]
    axis.errorbar(
        points["probability"], points["share"], error, color=colour, marker="o", markersize=4, linewidth=1.1, capsize=2
    )
    axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
