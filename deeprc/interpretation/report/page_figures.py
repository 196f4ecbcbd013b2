"""Figures of a report, with descriptions for screen readers and captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.curves import draw_curves_figure
from deeprc.evaluation.reliability import judge_probabilities
from deeprc.evaluation.reliability_figure import draw_reliability_figure
from deeprc.evaluation.scatter import NoCurveError
from deeprc.evaluation.scoring import BINARY
from deeprc.evaluation.scoring_base import Scoring
from deeprc.interpretation.figures import (
    draw_attention_figure,
    draw_calibration_figure,
    draw_gene_figure,
    draw_history_figure,
    draw_kernels_figure,
    draw_logo_figure,
    draw_metastable_figure,
    draw_precision_recall_figure,
    draw_regression_figure,
    draw_roc_figure,
    render_svg,
)
from deeprc.interpretation.motifs import AttendedMotif
from deeprc.interpretation.report.direction_context import DirectionContext
from deeprc.interpretation.report.page import Figure
from deeprc.runs.performance import PART_NAMES, Contrast, NumericTarget, Performance

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


__all__ = [
    "make_attention_figures",
    "make_contrast_figures",
    "make_curves_figures",
    "make_gene_figures",
    "make_history_figures",
    "make_kernel_figures",
    "make_logo_figure",
    "make_regression_figures",
    "make_reliability_figures",
    "render_figure",
]


def render_figure(figure: MatplotlibFigure, name: str, description: str, caption: str) -> Figure:
    """Return a figure of matplotlib for a page, with a name, a description for screen readers, and a caption."""
    return Figure(render_svg(figure, name=name, description=description), caption)


def make_contrast_figures(
    performance: Performance, contrast: Contrast, colour_of_class: Mapping[str, int]
) -> list[Figure]:
    """Return the figures of ROC, precision-recall and calibration of a contrast, as far as they exist.

    `colour_of_class` has the index of each class of its target, see `index_classes`.
    """
    figures = []
    if aucs := _list_aucs(performance, contrast):
        figures.append(_make_roc_figure(performance, contrast, aucs))
        figures.append(_make_precision_recall_figure(performance, contrast))
    is_judged = performance.is_held_out & ~np.isnan(contrast.label)
    if is_judged.any():
        figures.append(_make_calibration_figure(performance, contrast, is_judged, colour_of_class))
    return figures


def _list_aucs(performance: Performance, contrast: Contrast) -> list[str]:
    """Return the AUC of each part of the split as text; a part whose AUC is not defined is left out."""
    auc_of = {name: contrast.measure_auc(performance.is_in(part)) for part, name in PART_NAMES.items()}
    return [f"{name} {auc.value:.3f}" for name, auc in auc_of.items() if auc is not None]


def _name_contrast(contrast: Contrast) -> str:
    return contrast.about or f"{contrast.positive} against {contrast.negative}"


def _make_roc_figure(performance: Performance, contrast: Contrast, aucs: Sequence[str]) -> Figure:
    title = _name_contrast(contrast)
    description = f"ROC curve for {title}; area under it: {', '.join(aucs)}."
    caption = (
        f"ROC curve{contrast.for_target}. Vertical axis: share of {contrast.positive} repertoires that are found. "
        f"Horizontal axis: share of the others that are predicted as {contrast.positive} by mistake. Judge the model "
        "by the bold curve; the training curve is often too good."
    )
    figure = draw_roc_figure(performance.predictions, target=contrast.key, donors=performance.donors_by_id)
    return render_figure(figure, f"ROC curve, {title}", description, caption)


def _make_precision_recall_figure(performance: Performance, contrast: Contrast) -> Figure:
    title = _name_contrast(contrast)
    description = f"Precision against recall for {title}."
    caption = (
        f"Precision and recall{contrast.for_target}. Vertical axis: precision, the share of repertoires predicted as "
        f"{contrast.positive} that are {contrast.positive}. Horizontal axis: recall, the share of all "
        f"{contrast.positive} repertoires that are found."
    )
    figure = draw_precision_recall_figure(performance.predictions, target=contrast.key)
    return render_figure(figure, f"Precision and recall, {title}", description, caption)


def _make_calibration_figure(
    performance: Performance, contrast: Contrast, is_judged: NDArray[np.bool_], colour_of_class: Mapping[str, int]
) -> Figure:
    """Return the figure of the calibration, which is judged by some of the repertoires, (B,)."""
    description = (
        f"Observed share of {contrast.positive} repertoires against the predicted probability, and a histogram of "
        "the probabilities of both classes."
    )
    caption = (
        f"Calibration{contrast.for_target}. Horizontal axis: predicted probability. Vertical axis: share of these "
        f"repertoires that are {contrast.positive}; bars are 95% intervals. On the dashed line, probabilities "
        f"agree with observed frequencies. {_describe_probabilities(contrast, is_judged)} Below: histogram of the "
        "probabilities of both classes."
    )
    classes = [(name, colour_of_class.get(name)) for name in (contrast.negative, contrast.positive)]
    figure = draw_calibration_figure(
        performance.predictions, target=contrast.key, part=performance.held_out, classes=classes
    )
    return render_figure(figure, f"Calibration, {_name_contrast(contrast)}", description, caption)


def _describe_probabilities(contrast: Contrast, is_judged: NDArray[np.bool_]) -> str:
    """Return a sentence about the quality of the probabilities of some of the repertoires, (B,)."""
    measures = judge_probabilities(contrast.label[is_judged].astype(np.int64), contrast.probability[is_judged])
    error = measures["calibration_error"]
    shown = "not measured in so few repertoires" if np.isnan(error) else f"{error:.3f}"
    brier = f"Brier score {measures['brier']:.3f} (base rate: {measures['brier_base_rate']:.3f})"
    return f"{brier}, calibration error {shown}."


def make_regression_figures(performance: Performance, numeric: NumericTarget) -> list[Figure]:
    """Return the figure of predicted against true values; empty if no value is known."""
    if np.isnan(numeric.label).all():
        return []
    description = f"Predicted against true {numeric.target}, a point for each repertoire."
    caption = f"Each point is a repertoire; on the dashed line, the predicted {numeric.target} is the true one."
    figure = draw_regression_figure(performance.predictions, target=numeric.target)
    return [render_figure(figure, f"Prediction of {numeric.target}", description, caption)]


def make_history_figures(history: pd.DataFrame, name: str = "") -> list[Figure]:
    """Return the figure of loss and AUC during training; empty if there is no history.

    Parameters
    ----------
    history
        Table `history.tsv` of a run.
    name
        Name of the run, if there are several.
    """
    if history.empty:
        return []
    last, run_phrase = int(history["update"].iloc[-1]), f" of {name}" if name else ""
    description = f"Training and validation loss{run_phrase} over {last:,} updates; the update that was kept is marked."
    caption = (
        "The loss says how wrong the predictions are; lower is better. The network of the marked update was kept. (A "
        "later one is kept only if its validation loss is clearly lower, by the setting least_gain.) If the validation "
        "loss rises while the training loss falls, the network is overfitted."
    )
    if "fitted" in history:
        caption += (
            " Squares are losses and AUCs of whole validation repertoires, which decided which network was kept. The "
            "validation lines are of samples of these repertoires."
        )
    figure = draw_history_figure(history)
    return [
        render_figure(figure, f"Training history{run_phrase}", description, f"{name}: {caption}" if name else caption)
    ]


def make_attention_figures(
    heads: pd.DataFrame,
    curves: pd.DataFrame,
    classes: Mapping[str, str],
    colour_of_class: Mapping[str, int],
    target: str = "",
    by: str = "by class",
) -> list[Figure]:
    """Return the figures of metastable sizes and of attention curves by class, as far as they exist.

    Parameters
    ----------
    heads, curves
        Tables of heads and of curves, see `deeprc.interpretation.survey.Survey`.
    classes
        Class of each repertoire, by its id.
    colour_of_class
        Index of each class, see `index_drawn_classes`.
    target
        Name of the target of the classes, if there are several.
    by
        Text that says how the repertoires are divided.
    """
    known = heads[heads["repertoire_id"].isin(list(classes)) & (heads["n_sequences"] > 0)]
    if known.empty:
        return []
    by_target = f" by {target}" if target else ""
    return [
        render_figure(
            draw_metastable_figure(heads, classes, colour_of_class),
            f"Size of the attended part{by_target}",
            f"Number of sequences that have 90% of the attention, {by}; the median is "
            f"{float(known['metastable_size'].median()):,.0f}.",
            "Number of sequences that have 90% of the attention of their repertoire (each point is a repertoire), "
            f"{by}. If it is small, the network looks for particular sequences. If it is most of the repertoire, the "
            "network averages over all.",
        ),
        render_figure(
            draw_attention_figure(curves, classes, colour_of_class),
            f"Attention curves{by_target}",
            f"Share of the attention on the most attended sequences, {by}: median and quartiles.",
            f"Concentration of the attention, {by}. Horizontal axis: share of the sequences, the most attended first. "
            "Vertical axis: share of the attention on them (line: median, band: middle half of the repertoires). On "
            "the dotted line, all sequences have equal attention.",
        ),
    ]


def make_gene_figures(genes: pd.DataFrame) -> list[Figure]:
    """Return the figures of the usage of V and J genes by attended and by all sequences, as far as genes are known."""
    figures = []
    for field, name in (("v_call", "V"), ("j_call", "J")):
        usage = genes[genes["field"] == field] if len(genes) else genes
        if len(usage):
            most = usage.iloc[int((usage["attended"] - usage["all"]).to_numpy().argmax())]
            description = (
                f"Usage of {name} genes, weighted by attention and among all sequences. Attention raises "
                f"{most['name']} most, from {most['all']:.1%} to {most['attended']:.1%}."
            )
            caption = (
                f"Usage of {name} genes, weighted by attention (diamonds) and among all sequences (rings): means over "
                "repertoires. Only the genes that differ most are shown."
            )
            figures.append(
                render_figure(draw_gene_figure(genes, field), f"Usage of {name} genes", description, caption)
            )
    return figures


def make_logo_figure(motif: AttendedMotif, index: int, context: DirectionContext) -> Figure:
    """Return the figure of a motif's logo; `index` counts the motifs of the direction, from 1."""
    description = f"Sequence logo of the motif {motif.pattern}."
    figure = draw_logo_figure(motif, top=context.logo_height)
    return render_figure(figure, f"Logo {index} for {context.direction.name}", description, f"{index}. {motif.pattern}")


def make_kernel_figures(kernels: NDArray[np.float64], context: DirectionContext) -> list[Figure]:
    """Return figures of the mean contribution of each kernel to a direction; empty without sequences.

    Parameters
    ----------
    kernels
        Contributions of the kernels of all models, (n, D), one model after the other.
    context
        The direction, and the number of kernels of each model.
    """
    if kernels.size == 0:
        return []
    direction, figures, first = context.direction, [], 0
    for name, size in context.members:
        block, model_phrase = kernels[:, first : first + size], f" of {name}" if name else ""
        first += size
        mean = direction.sign * block.mean(axis=0)
        best = [str(kernel + 1) for kernel in np.argsort(-mean)[:3] if mean[kernel] > 0]
        strongest = ", ".join(best) or "none"
        description = (
            f"Mean contribution of each kernel{model_phrase} to {direction.name}; the strongest kernels: {strongest}."
        )
        caption = (
            f"Mean contribution of each kernel{model_phrase} (a detector of short patterns that the network learned) "
            f"to {direction.name}, over the sequences that contribute most to it."
        )
        figure = draw_kernels_figure(direction.sign * block, output=direction.name, colour_index=context.colour_index)
        figures.append(render_figure(figure, f"Kernels{model_phrase} for {direction.name}", description, caption))
    return figures


def make_reliability_figures(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> list[Figure]:
    """Return the figure of the reliability curves of all methods; empty if no classes are predicted."""
    if scoring.kind == "regression" or predictions.empty:
        return []
    figure = draw_reliability_figure(predictions, methods, scoring)
    description = (
        "Observed frequencies against predicted probabilities: a panel for each method, the lowest log loss first."
    )
    caption = (
        "Horizontal axis: predicted probability of a class, in bins of test repertoires. Vertical axis: share of these "
        "repertoires that have the class; bars are 95% intervals. On the dashed line, probabilities agree with "
        "observed frequencies. Control methods are grey."
    )
    return [render_figure(figure, "Reliability of all methods", description, caption)]


def make_curves_figures(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> list[Figure]:
    """Return the figure of the curves of all methods, or of predicted against true numbers; empty if there is none."""
    try:
        figure = draw_curves_figure(predictions, methods, scoring)
    except NoCurveError:
        return []
    if scoring.kind == "regression":
        description = "Predicted against true values of all methods, a panel for each, the highest r² first."
        caption = (
            "Predicted values (vertical axis) against true values: each point is a repertoire, predicted by the model "
            "of its test fold. On the dashed line, the prediction is right. Control methods are grey. Points on the "
            "border lie outside the panel."
        )
        return [render_figure(figure, "Predictions of all methods", description, caption)]
    description = "Mean ROC and precision-recall curves of all methods; their areas are the AUC and average precision."
    caption = "ROC (left) and precision against recall (right), averaged over the test folds; the best method is first."
    return [render_figure(figure, "Curves of all methods", description, caption)]
