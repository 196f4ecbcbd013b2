"""ROC and precision-recall curves of a benchmark: their points, and figures of them.

The mean curve is the mean of the folds' y at every x at which one of their curves has a corner. So the area under it is
the mean of the folds' areas: the AUC and the average precision of the tables. Precision is not interpolated between
thresholds (Davis and Goadrich, ICML 2006): it is a step function of recall, whose area is the average precision. Scores
of different folds come from different models and are never pooled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import precision_recall_curve, roc_curve

from deeprc.drawing import (
    COLOURS,
    DASHES,
    INK,
    MARKERS,
    MUTED,
    require_matplotlib,
    save_for_screen,
    shorten_name,
)
from deeprc.evaluation.comparison import MethodInfo, compute_fold_metrics, validate_predictions
from deeprc.evaluation.scatter import NoCurveError, draw_scatter, draw_scatter_figure, make_scatter_table
from deeprc.evaluation.scoring import BINARY, MulticlassScoring
from deeprc.evaluation.scoring_base import Scoring
from deeprc.files import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "MEAN",
    "binarize_predictions",
    "compute_precision_recall_corners",
    "compute_roc_corners",
    "draw_curves",
    "draw_curves_figure",
    "make_curves_table",
]

MEAN = "mean"
"""The value of the column `fold` for the mean curve, in tables of points."""

_Curve = tuple[NDArray[np.float64], NDArray[np.float64]]  # x and y of the corners, in the order they are drawn
_ComputeCorners = Callable[[NDArray[Any], NDArray[Any]], _Curve]  # from the labels and the scores of a fold


def binarize_predictions(predictions: pd.DataFrame, scoring: Scoring) -> pd.DataFrame:
    """Return predictions of two classes, made from predictions of several classes where necessary.

    Each fold then occurs once for each class, which is compared with all others. So the mean curve is the mean over
    folds and classes, and its area is the macro AUC.
    """
    if not isinstance(scoring, MulticlassScoring):
        return predictions
    tables = []
    for code, name in enumerate(scoring.classes):
        ids = predictions["repertoire_id"].astype(str) + f" ({name})"
        fold = predictions["fold"] * len(scoring.classes) + code
        table = predictions[["method"]].assign(fold=fold, repertoire_id=ids)
        table["label"] = (predictions["label"].astype(str) == name).astype(int)
        for column in ("score", "probability"):
            table[column] = predictions[f"{column}={name}"]
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def make_curves_table(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> pd.DataFrame:
    """Return all points: method, fold, curve ("roc" or "precision-recall"; for numbers "predicted"), x, y.

    With several classes there is a curve for each fold and class (against all others); its `fold` is the index
    fold * number of classes + class.
    """
    if scoring.kind == "regression":
        return make_scatter_table(predictions)
    table = validate_predictions(binarize_predictions(predictions, scoring), methods)
    functions = {"roc": compute_roc_corners, "precision-recall": compute_precision_recall_corners}
    parts = []
    for method in methods:
        for curve, compute_corners in functions.items():
            points = _compute_points(table[table["method"] == method.name], compute_corners)
            if len(points):  # pandas 2 warns of empty parts
                parts.append(points.assign(method=method.name, curve=curve))
    columns = ["method", "fold", "curve", "x", "y"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _compute_points(predictions: pd.DataFrame, compute_corners: _ComputeCorners) -> pd.DataFrame:
    """Return the points of the curve of each fold that has both classes, and of their mean: columns fold, x and y."""
    curves: dict[str, _Curve] = {}
    for fold, rows in predictions.groupby("fold"):
        label = rows["label"].to_numpy()
        if 0 < label.sum() < len(label):
            ranks = rankdata(rows["score"])  # a score may be infinite, its rank is not
            curves[str(fold)] = compute_corners(label, ranks)
    if curves:
        curves[MEAN] = _average_vertically(list(curves.values()))
    parts = [pd.DataFrame({"fold": fold, "x": x, "y": y}) for fold, (x, y) in curves.items()]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["fold", "x", "y"])


def compute_roc_corners(label: NDArray[Any], score: NDArray[Any]) -> _Curve:
    """Return the false and the true positive rates at the corners of the ROC curve, one array each.

    Parameters
    ----------
    label
        The class of each repertoire, 0 or 1, each at least once, (B,).
    score
        The score of each repertoire, (B,).
    """
    x, y, _ = roc_curve(label, score)
    return x, y


def compute_precision_recall_corners(label: NDArray[Any], score: NDArray[Any]) -> _Curve:
    """Return recall and precision at the corners of the steps, one array each; see `compute_roc_corners`."""
    precision, recall, _ = precision_recall_curve(label, score)
    precision, recall = precision[-2::-1], recall[-2::-1]  # strictest threshold first, without the point at no recall
    reaches = np.diff(recall, prepend=0.0) > 0
    precision, recall = precision[reaches], recall[reaches]
    left = np.concatenate([[0.0], recall[:-1]])
    return np.stack([left, recall], axis=1).ravel(), np.repeat(precision, 2)


def _average_vertically(curves: Sequence[_Curve]) -> _Curve:
    """Return the mean of y over curves, left and right of every x at which a curve has a corner."""
    x_values = np.unique(np.concatenate([x for x, _ in curves]))
    # For an x that repeats, numpy.interp takes the last y; in the mirrored curve, this is the first y.
    before = np.mean([np.interp(-x_values, -x[::-1], y[::-1]) for x, y in curves], axis=0)
    after = np.mean([np.interp(x_values, x, y) for x, y in curves], axis=0)
    x, y = np.repeat(x_values, 2), np.stack([before, after], axis=1).ravel()
    differs_from_previous = np.concatenate([[True], (np.diff(x) > 0) | (np.diff(y) != 0)])
    return x[differs_from_previous], y[differs_from_previous]


@require_matplotlib
def draw_curves_figure(predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY) -> Figure:
    """Return the mean curves of all methods as one figure, with a legend in the order of their AUC.

    If numbers are predicted, a panel for each method shows predicted against true numbers.

    Parameters
    ----------
    predictions, methods, scoring
        As in `compare`. A method without a fold that has both classes is left out.

    Raises
    ------
    NoCurveError
        If no method has a curve.
    InputError
        If matplotlib is not installed, or the table is not what `validate_predictions` expects.
    """
    if scoring.kind == "regression":
        return draw_scatter_figure(predictions, methods)
    predictions = validate_predictions(binarize_predictions(predictions, scoring), methods)
    drawn = _prepare_curves(predictions, methods, make_curves_table(predictions, methods))
    if not drawn:
        raise NoCurveError("predictions: no fold has both classes, so there is no curve")
    return _draw_all(drawn)


@require_matplotlib
def draw_curves(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], folder: Path | str, scoring: Scoring = BINARY
) -> list[Path]:
    """Draw the curves of every method, and of all methods together; write `curves.tsv` with their points.

    Parameters
    ----------
    predictions, methods, scoring
        As in `compare`. A method without a fold that has both classes gets no figure.
    folder
        The folder that gets `<name>.png` and `<name>.svg` for each method (letters that a file's name cannot have
        become "-"), `all.png`, `all.svg` and `curves.tsv`; files of these names are replaced.

    Returns
    -------
    The paths of all files.

    Raises
    ------
    InputError
        If matplotlib is not installed, or the table is not what `validate_predictions` expects.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if scoring.kind == "regression":
        stems = _make_file_stems([method.name for method in methods])
        return draw_scatter(predictions, dict(zip(methods, stems, strict=True)), folder)
    predictions = validate_predictions(binarize_predictions(predictions, scoring), methods)
    table = make_curves_table(predictions, methods)
    curves_of_methods = _prepare_curves(predictions, methods, table)
    write_text(folder / "curves.tsv", table.to_csv(sep="\t", index=False, float_format="%.8g", lineterminator="\n"))
    paths = [folder / "curves.tsv"]
    for curves in curves_of_methods:
        paths += save_for_screen(_draw_one(curves), folder / curves.stem)
    if curves_of_methods:
        paths += save_for_screen(_draw_all(curves_of_methods), folder / "all")
    return paths


@dataclass(frozen=True)
class _MethodCurves:
    """A method as it is drawn: the points of its curves, its metrics by fold, and the style of its lines."""

    label: str
    stem: str
    roc: pd.DataFrame
    precision_recall: pd.DataFrame
    metrics: pd.DataFrame  # fold x metric
    prevalence: float
    style: dict[str, Any]

    def compute_mean(self, metric: str) -> float:
        """Return the mean of a metric over folds."""
        return float(self.metrics[metric].mean())

    def format_mean(self, metric: str) -> str:
        """Return the mean of a metric with its standard deviation over folds, if there are several, as text."""
        spread = self.metrics[metric].std(ddof=1)
        return f"{self.compute_mean(metric):.3f}" + ("" if np.isnan(spread) else f" ± {spread:.3f}")


def _prepare_curves(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], table: pd.DataFrame
) -> list[_MethodCurves]:
    """Return the points, metrics and line style of each method that has a ROC curve; `table` has all points."""
    metrics = compute_fold_metrics(predictions)
    shares = predictions.groupby(["method", "fold"])["label"].mean()
    shares = shares[(shares > 0) & (shares < 1)]
    drawn = []
    styles = _choose_styles(methods)
    for method, stem in zip(methods, _make_file_stems([method.name for method in methods]), strict=True):
        roc, precision_recall = (
            table[(table["method"] == method.name) & (table["curve"] == curve)] for curve in ("roc", "precision-recall")
        )
        if roc.empty:
            continue
        rows = metrics[metrics["method"] == method.name]
        by_fold = rows.pivot_table(index="fold", columns="metric", values="value")
        prevalence = float(shares.loc[method.name].mean())
        style = styles[method.name]
        drawn.append(_MethodCurves(method.label, stem, roc, precision_recall, by_fold, prevalence, style))
    return drawn


def _choose_styles(methods: Sequence[MethodInfo]) -> dict[str, dict[str, Any]]:
    """Return the style of each method's line; no two methods have the same dashes and marker."""
    styles = {}
    for i, method in enumerate(methods):
        cycle, index = divmod(i, len(DASHES))
        colour = {"control": MUTED, "truth": INK}.get(method.kind, COLOURS[(index + cycle) % len(COLOURS)])
        marker = MARKERS[cycle % len(MARKERS)]
        styles[method.name] = {"color": colour, "dashes": DASHES[index], "marker": marker}
    return styles


def _make_file_stems(names: Sequence[str]) -> list[str]:
    """Return a different file name for each method, without the ending; they differ also if case is ignored."""
    taken, stems = {"all", "curves", "reliability"}, []
    for name in names:
        plain = _make_plain_stem(name)
        candidates = chain([plain], (f"{plain}-{number}" for number in count(2)))
        stem = next(candidate for candidate in candidates if candidate.lower() not in taken)
        taken.add(stem.lower())
        stems.append(stem)
    return stems


def _make_plain_stem(name: str) -> str:
    """Return a name with letters that a file's name can have, at most 100, and not that of a device of Windows."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "method"
    is_device = re.fullmatch(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?", plain)
    return f"method-{plain}" if is_device else plain


def _draw_one(curves: _MethodCurves) -> Figure:
    """Draw a thin line for every fold, and a thick one for their mean."""
    figure, (left, right) = _make_panels()
    figure.suptitle(shorten_name(curves.label, 80), y=1.02, fontsize=11)
    for axis, points, metric, name in (
        (left, curves.roc, "auc", "AUC"),
        (right, curves.precision_recall, "average_precision", "average precision"),
    ):
        folds = [part for fold, part in points.groupby("fold") if fold != MEAN]
        for part in folds:
            (thin,) = axis.plot(part["x"], part["y"], color=COLOURS[0], linewidth=0.8, alpha=0.5)
        mean = points[points["fold"] == MEAN]
        (bold,) = axis.plot(mean["x"], mean["y"], color=COLOURS[0], linewidth=2.2)
        chance = _draw_chance_line(axis, curves.prevalence, is_roc=axis is left)
        text = "chance" if axis is left else f"chance: {curves.prevalence:.2f} are positive"
        entries = {
            f"mean: {name} {curves.format_mean(metric)}": bold,
            f"the {len(folds)} test folds": thin,
            text: chance,
        }
        axis.legend(entries.values(), entries.keys(), loc="upper left", bbox_to_anchor=(0, -0.16), borderaxespad=0)
    return figure


def _draw_all(curves_of_methods: Sequence[_MethodCurves]) -> Figure:
    """Draw the mean curves of all methods, with a legend in the order of their AUC."""
    ordered = sorted(curves_of_methods, key=lambda curves: -curves.compute_mean("auc"))
    figure, (left, right) = _make_panels()
    handles = []
    for curves in ordered:
        for axis, points in ((left, curves.roc), (right, curves.precision_recall)):
            mean = points[points["fold"] == MEAN]
            (line,) = axis.plot(mean["x"], mean["y"], linewidth=1.5, markersize=4, markevery=0.12, **curves.style)
        handles.append(line)
    _draw_chance_line(left, 0.5, is_roc=True)
    prevalence = float(np.mean([curves.prevalence for curves in curves_of_methods]))
    handles.append(_draw_chance_line(right, prevalence, is_roc=False))
    names = [shorten_name(curves.label, 48) for curves in ordered]
    values = [
        f"{curves.compute_mean('auc'):.3f}   {curves.compute_mean('average_precision'):.3f}" for curves in ordered
    ]
    texts = [f"{value}   {name}" for value, name in zip(values, names, strict=True)]
    right.legend(
        handles,
        [*texts, "chance"],
        loc="center left",
        bbox_to_anchor=(1.04, 0.5),
        borderaxespad=0,
        handlelength=4.5,
        title="AUC, average precision, method",
        alignment="left",
    )
    return figure


def _make_panels() -> tuple[Figure, tuple[Axes, Axes]]:
    """Return a figure with two square panels; a legend beside them widens the figure when it is saved."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 4))
    left, right = (figure.add_axes((start, 0.15, 3 / 7.6, 0.75)) for start in (0.08, 0.58))  # 3 inches each way
    left.set(xlabel="false positive rate", ylabel="true positive rate", title="ROC")
    right.set(xlabel="recall", ylabel="precision", title="Precision and recall")
    for axis in (left, right):
        axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    return figure, (left, right)


def _draw_chance_line(axis: Axes, prevalence: float, *, is_roc: bool) -> Any:
    y = [0, 1] if is_roc else [prevalence] * 2
    (line,) = axis.plot([0, 1], y, color=MUTED, linewidth=0.8, zorder=0)
    return line
