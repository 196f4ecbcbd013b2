"""Predicted against true numbers of a benchmark: points, and figures of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from deeprc.drawing import COLOURS, MUTED, require_matplotlib, save_for_screen, shorten_name
from deeprc.errors import InputError
from deeprc.evaluation.comparison import MethodInfo, validate_predictions
from deeprc.evaluation.scoring import RegressionScoring
from deeprc.files import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["NoCurveError", "draw_scatter", "draw_scatter_figure", "make_panels", "make_scatter_table"]

_PANEL = 2.6  # inches
_MAX_COLUMNS = 4
_SCORING = RegressionScoring()


class NoCurveError(InputError):
    """Raised if predictions are as expected, but have no curve: for example, no fold has both classes."""


def make_scatter_table(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return method, fold, curve ("predicted"), x (true) and y (predicted) of each prediction."""
    table = predictions[["method", "fold"]].assign(curve="predicted", x=predictions["label"])
    return table.assign(y=predictions["prediction"])


@require_matplotlib
def draw_scatter_figure(predictions: pd.DataFrame, methods: Sequence[MethodInfo]) -> Figure:
    """Return a figure with a panel for each method, best r2 first: predicted against true numbers of repertoires.

    Raises
    ------
    NoCurveError
        If there is no prediction.
    InputError
        If matplotlib is not installed, or the table is not what `validate_predictions` expects.
    """
    table = validate_predictions(predictions, methods, _SCORING)
    parts = {method: table[table["method"] == method.name] for method in methods}
    r2_of = {method: _SCORING.estimate_over_folds([part]).value for method, part in parts.items() if len(part)}
    ranked = sorted(((r2, method) for method, r2 in r2_of.items()), key=lambda pair: -pair[0])
    if not ranked:
        raise NoCurveError("predictions: there are none, so there is nothing to draw")
    figure, axes = make_panels(len(ranked), _PANEL, _PANEL + 0.3, x="true", y="predicted")
    limits = _choose_limits(table)
    for (r2, method), axis in zip(ranked, axes, strict=True):
        _draw_panel(axis, parts[method], limits, is_control=method.kind == "control")
        axis.set_title(f"{shorten_name(method.label, 34)}\nr² {r2:.3f}", fontsize=9)
    return figure


def make_panels(n: int, width: float, height: float, *, x: str, y: str) -> tuple[Figure, list[Axes]]:
    """Return a figure with n panels of this size in inches, at most four side by side.

    The x axis of the lowest panel of each column, and the y axis of the first panel of each row, have labels.
    """
    from matplotlib.figure import Figure

    n_columns = min(n, _MAX_COLUMNS)
    n_rows = -(-n // n_columns)
    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for axis in axes[:, 0]:
        axis.set_ylabel(y)
    for axis in axes.ravel()[max(0, n - n_columns) : n]:
        axis.set_xlabel(x)
    for axis in axes.ravel()[n:]:
        axis.set_visible(False)
    return figure, list(axes.ravel()[:n])


@require_matplotlib
def draw_scatter(predictions: pd.DataFrame, stems: Mapping[MethodInfo, str], folder: Path) -> list[Path]:
    """Draw a figure for each method and one of all methods; write `curves.tsv`. Return the paths of all files.

    Parameters
    ----------
    predictions
        Predictions of numbers, see `deeprc.evaluation.scoring`.
    stems
        The name of each method's files without their ending.
    folder
        The folder to write to.
    """
    table = make_scatter_table(predictions)
    write_text(folder / "curves.tsv", table.to_csv(sep="\t", index=False, float_format="%.8g", lineterminator="\n"))
    paths = [folder / "curves.tsv"]
    groups = {stem: [method] for method, stem in stems.items() if (predictions["method"] == method.name).any()}
    if groups:
        groups["all"] = list(stems)
    for stem, methods in groups.items():
        names = [method.name for method in methods]
        figure = draw_scatter_figure(predictions[predictions["method"].isin(names)], methods)
        paths += save_for_screen(figure, folder / stem)
    return paths


def _choose_limits(table: pd.DataFrame) -> tuple[float, float]:
    """Return limits of the axes: all true values and 96% of the predictions, with a margin."""
    low, high = float(table["label"].min()), float(table["label"].max())
    low = min(low, float(np.quantile(table["prediction"], 0.02)))
    high = max(high, float(np.quantile(table["prediction"], 0.98)))
    margin = 0.05 * (high - low or 1.0)
    return low - margin, high + margin


def _draw_panel(axis: Axes, part: pd.DataFrame, limits: tuple[float, float], *, is_control: bool) -> None:
    axis.plot(limits, limits, color=MUTED, linewidth=0.8, linestyle="--", zorder=0)
    colour = MUTED if is_control else COLOURS[0]
    predicted = part["prediction"].clip(*limits)  # a prediction outside of the limits is drawn on the border
    axis.scatter(part["label"], predicted, s=12, color=colour, alpha=0.7, linewidths=0, clip_on=False)
    axis.set(xlim=limits, ylim=limits, aspect="equal")
