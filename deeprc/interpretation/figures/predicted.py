"""Figures of the predictions of a run: ROC, precision and recall, calibration, regression.

The predictions are a table from `Run.predict` or from the `predictions.tsv` of a run. Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, r2_score, roc_auc_score

from deeprc.drawing import INK, MUTED, require_matplotlib, shorten_name
from deeprc.errors import InputError, join_names
from deeprc.evaluation.auc_intervals import compute_fold_aucs_interval
from deeprc.evaluation.curves import compute_precision_recall_corners, compute_roc_corners
from deeprc.evaluation.reliability import compute_calibration_bins
from deeprc.evaluation.splits import HELD_OUT
from deeprc.interpretation.figures.elements import (
    draw_diagonal,
    draw_grid,
    draw_legend_below,
    fix_ticks,
    get_class_colour,
    make_panel,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "draw_calibration_figure",
    "draw_precision_recall_figure",
    "draw_regression_figure",
    "draw_roc_figure",
]

_SHOWN_TARGETS = 10  # number of targets that a message lists
_SIDE = 2.9  # side of a square panel in inches
_STYLES: dict[str, dict[str, Any]] = {
    "train": {"color": MUTED, "linewidth": 1.2, "dashes": (1.2, 1.4)},
    "validation": {"color": INK, "linewidth": 1.0},
    "new": {"color": INK, "linewidth": 2.4, "dashes": (5, 1.5)},
    "test": {"color": INK, "linewidth": 2.4},
}
_DOTS: dict[str, dict[str, Any]] = {
    "train": {"marker": ".", "color": MUTED, "markersize": 4},
    "validation": {"marker": "^", "color": MUTED, "markersize": 5, "markerfacecolor": "none"},
    "new": {"marker": "D", "color": INK, "markersize": 5},
    "test": {"marker": "o", "color": INK, "markersize": 5},
}
_NAMES = {"train": "training, fitted"}
_ByPart = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


@require_matplotlib
def draw_roc_figure(
    predictions: pd.DataFrame, *, target: str | None = None, donors: Mapping[str, int] | None = None
) -> Figure:
    """Draw the ROC curve of each part of the split: test bold, validation thin, training dotted.

    The AUCs of test and new repertoires have 95% intervals; the others have none, because the model has seen them.

    Parameters
    ----------
    predictions
        Table with the columns split, target, label (0, 1 or missing) and probability, see `make_predictions_table`.
    target
        Name of the target whose rows are drawn, `column=class` for one of several classes; required only if there are
        several.
    donors
        Index of the donor of each repertoire, by its id; None if every repertoire is from a different donor.

    Raises
    ------
    InputError
        If there is no such target, if it is required and not given, or if no part of the split has both classes.
    """
    by_part = _select_two_classes(predictions, target)
    figure, axis = make_panel(_SIDE, _SIDE)

    def text(part: str, label: NDArray[Any], score: NDArray[Any]) -> str:
        auc = f"AUC {float(roc_auc_score(label, score)):.3f}"
        if part in HELD_OUT:
            rows = _select_rows(predictions, target, "probability")[1]
            numbers: list[NDArray[np.int64]] | None = None
            if donors is not None:
                ids = rows.loc[rows["split"] == part, "repertoire_id"]
                numbers = [np.asarray(ids.map(donors), np.int64)]
            interval = compute_fold_aucs_interval([label.astype(np.int64)], [score], numbers)
            auc += f" ({interval.low:.3f} to {interval.high:.3f})"
        return f"{auc}, n = {len(label)}"

    entries = _draw_curves(axis, by_part, compute_roc_corners, text)
    entries["chance"] = draw_diagonal(axis)
    axis.set(xlabel="false positive rate", ylabel="true positive rate")
    draw_legend_below(axis, entries)
    return figure


@require_matplotlib
def draw_precision_recall_figure(predictions: pd.DataFrame, *, target: str | None = None) -> Figure:
    """Draw precision against recall of each part of the split, as steps.

    The line of chance is that of the first part in this order: test, new, validation, train. Parameters and errors are
    those of `draw_roc_figure`.
    """
    by_part = _select_two_classes(predictions, target)
    figure, axis = make_panel(_SIDE, _SIDE)

    def text(_part: str, label: NDArray[Any], score: NDArray[Any]) -> str:
        average_precision = float(average_precision_score(label, score))
        return f"average precision {average_precision:.3f}, n = {len(label)}"

    entries = _draw_curves(axis, by_part, compute_precision_recall_corners, text)
    first = next(iter(by_part))
    share = float(by_part[first][0].mean())
    (chance,) = axis.plot([0, 1], [share, share], color=MUTED, linewidth=0.8, dashes=(4, 3), zorder=0)
    entries[f"chance: {100 * share:.0f}% of {_NAMES.get(first, first)} are positive"] = chance
    axis.set(xlabel="recall", ylabel="precision")
    draw_legend_below(axis, entries)
    return figure


def _draw_curves(
    axis: Axes,
    by_part: _ByPart,
    corners_of: Callable[[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]],
    text: Callable[[str, NDArray[Any], NDArray[Any]], str],
) -> dict[str, Any]:
    """Draw a line for each part of the split, the first on top; return the entries of the legend."""
    entries = {}
    for i, (part, (label, probability)) in enumerate(by_part.items()):
        score = rankdata(probability)
        x, y = corners_of(label, score)
        (line,) = axis.plot(x, y, zorder=3 - 0.1 * i, solid_joinstyle="miter", **_STYLES[part])
        entries[f"{_NAMES.get(part, part)}: {text(part, label, score)}"] = line
    axis.set(xlim=(-0.015, 1.015), ylim=(-0.015, 1.015))
    draw_grid(axis, "both")
    return entries


def _select_rows(predictions: pd.DataFrame, target: str | None, column: str) -> tuple[str, pd.DataFrame]:
    """Return the name of the target, and its rows with a label and a value in `column`."""
    if predictions.empty:
        raise InputError("the predictions are empty: there is no repertoire to draw")
    with_value = predictions[predictions[column].notna()] if column in predictions else predictions.iloc[:0]
    kind = "with classes" if column == "probability" else "with numbers (a numeric target)"
    known = [str(name) for name in with_value["target"].unique()]
    all_targets = join_names([str(name) for name in predictions["target"].unique()], _SHOWN_TARGETS)
    names = join_names(known, _SHOWN_TARGETS)
    if target is None and len(known) > 1:
        raise InputError(f"expected one target (`target`): {names}")
    if not known or (target is not None and target not in known):
        request = "no target" if target is None else f"no target {target!r}"
        suitable = f"choose one of {names}" if known else f"their targets: {all_targets}"
        raise InputError(f"the predictions have {request} {kind}; {suitable}")
    name = known[0] if target is None else target
    rows = with_value[(with_value["target"].astype(str) == name) & with_value["label"].notna()]
    return name, rows


def _group_by_part(rows: pd.DataFrame, column: str) -> _ByPart:
    """Return labels and values, (B,) each, of every part of the split, held-out parts first."""
    by_part: _ByPart = {}
    for part in (*HELD_OUT, "validation", "train"):
        part_rows = rows[rows["split"] == part]
        if len(part_rows):
            by_part[part] = (part_rows["label"].to_numpy(np.float64), part_rows[column].to_numpy(np.float64))
    return by_part


def _select_two_classes(predictions: pd.DataFrame, target: str | None) -> _ByPart:
    name, rows = _select_rows(predictions, target, "probability")
    by_part = {
        part: both for part, both in _group_by_part(rows, "probability").items() if 0 < both[0].sum() < len(both[0])
    }
    if not by_part:
        raise InputError(f"target {name!r}: no part of the split has labels of both classes, so there is no curve")
    return by_part


@require_matplotlib
def draw_calibration_figure(
    predictions: pd.DataFrame,
    *,
    target: str | None = None,
    part: str | None = None,
    classes: Sequence[tuple[str, int | None]] = (("negative", 0), ("positive", 1)),
) -> Figure:
    """Draw observed frequencies against predicted probabilities, and below a histogram of the probabilities by class.

    Parameters
    ----------
    predictions, target
        Predictions and target, see `draw_roc_figure`.
    part
        Part of the split; None takes test, or else new repertoires.
    classes
        Name and index (see `index_classes`) of the negative and the positive class; the index is None if there is no
        such class.

    Raises
    ------
    InputError
        If there is no such target, if it is required and not given, or if the part of the split has no labelled
        repertoire.
    """
    name, rows = _select_rows(predictions, target, "probability")
    by_part = _group_by_part(rows, "probability")
    part = next((name for name in HELD_OUT if name in by_part), "test") if part is None else part
    if part not in by_part:
        raise InputError(f"target {name!r}: the part {part!r} of the split has no labelled repertoire")
    label, probability = by_part[part]
    figure, axis = make_panel(_SIDE, _SIDE, bottom=1.6)
    line = draw_diagonal(axis)
    bins = compute_calibration_bins(label, probability)
    error = np.abs(bins[["lower", "upper"]].to_numpy() - bins[["share"]].to_numpy()).T
    bars = axis.errorbar(
        bins["probability"], bins["share"], error, color=INK, marker="o", markersize=5, linewidth=1.2, capsize=2
    )
    axis.set(xlim=(-0.015, 1.015), ylim=(-0.015, 1.015))
    axis.set_ylabel(f"share of {shorten_name(classes[1][0], 20)} repertoires")
    axis.tick_params(axis="x", labelbottom=False)
    draw_grid(axis, "both")
    lower = _draw_histogram(figure, axis, label, probability, classes)
    brier = float(((probability - label) ** 2).mean())
    entries = {
        f"{_NAMES.get(part, part)}: Brier score {brier:.3f}, n = {len(label)}; bars: 95% intervals": bars,
        "perfectly calibrated": line,
    }
    draw_legend_below(lower, entries)
    return figure


def _draw_histogram(
    figure: Figure,
    above: Axes,
    label: NDArray[Any],
    probability: NDArray[Any],
    classes: Sequence[tuple[str, int | None]],
) -> Axes:
    """Draw a histogram of probabilities, positive repertoires upwards and negative ones downwards."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    box, up = above.get_position(), figure.get_size_inches()[1]
    axis = figure.add_axes((box.x0, box.y0 - 1.1 / up, box.width, 0.95 / up))
    fix_ticks(axis)
    edges = np.linspace(0, 1, 21)
    colours = [MUTED if colour_index is None else get_class_colour(colour_index) for _, colour_index in classes]
    for value, sign, colour, hatch in ((1, 1, colours[1], None), (0, -1, colours[0], "////")):
        counts, _ = np.histogram(probability[label == value], edges)
        fill: dict[str, Any] = {"facecolor": "none", "hatch": hatch} if hatch else {"facecolor": colour}
        axis.bar(edges[:-1], sign * counts, 0.05, align="edge", edgecolor=colour, linewidth=0.7, **fill)
    axis.axhline(0, color=INK, linewidth=0.8)
    most = max(1.0, *np.abs(axis.get_ylim()))
    axis.set(xlim=(-0.015, 1.015), ylim=(-most, most), xlabel="predicted probability", ylabel="repertoires")
    axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):g}"))
    for text, y, where in ((classes[1][0], 0.97, "top"), (classes[0][0], 0.03, "bottom")):
        axis.text(0.5, y, text, transform=axis.transAxes, ha="center", va=where, fontsize=8)
    return axis


@require_matplotlib
def draw_regression_figure(predictions: pd.DataFrame, *, target: str | None = None) -> Figure:
    """Draw predicted against true values of each part of the split, with r2 and mean absolute error.

    Parameters
    ----------
    predictions
        Table with the columns split, target, label and prediction, both in the units of the target, see
        `make_predictions_table`.
    target
        Name of the target; required only if there are several.

    Raises
    ------
    InputError
        If there is no such target, if it is required and not given, or if no repertoire has a label.
    """
    name, rows = _select_rows(predictions, target, "prediction")
    by_part = _group_by_part(rows, "prediction")
    if not by_part:
        raise InputError(f"target {name!r}: no repertoire has a label")
    figure, axis = make_panel(_SIDE, _SIDE)
    entries: dict[str, Any] = {}
    for i, (part, (true, predicted)) in enumerate(by_part.items()):
        (dots,) = axis.plot(true, predicted, linestyle="", zorder=3 - 0.1 * i, **_DOTS[part])
        r2 = f"r2 {r2_score(true, predicted):.2f}, " if len(true) > 1 and np.ptp(true) > 0 else ""
        error = float(np.abs(true - predicted).mean())
        entries[f"{_NAMES.get(part, part)}: {r2}mean absolute error {error:.3g}, n = {len(true)}"] = dots
    low = min(float(min(true.min(), predicted.min())) for true, predicted in by_part.values())
    high = max(float(max(true.max(), predicted.max())) for true, predicted in by_part.values())
    margin = 0.05 * (high - low) or 1.0
    entries["as it is"] = draw_diagonal(axis, low, high)
    axis.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin))
    short = shorten_name(name, 30)
    axis.set(xlabel=f"{short}, true", ylabel=f"{short}, predicted")
    draw_grid(axis, "both")
    draw_legend_below(axis, entries)
    return figure
