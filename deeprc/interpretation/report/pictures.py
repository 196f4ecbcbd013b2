"""Figures of a report, with descriptions for screen readers and captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.reliability import judge_probabilities
from deeprc.evaluation.scoring import BINARY
from deeprc.evaluation.scoring_base import Scoring
from deeprc.interpretation.directions import Direction
from deeprc.interpretation.report.page import Figure
from deeprc.runs.performance import SPLIT_NAMES, Contrast, Numbers, Performance

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

    from deeprc.interpretation.motifs import AttendedMotif

__all__ = [
    "draw_attention_pictures",
    "draw_contrast_pictures",
    "draw_curves_picture",
    "draw_gene_pictures",
    "draw_history_picture",
    "draw_kernel_pictures",
    "draw_reliability_picture",
    "make_logo_figure",
    "number_picture",
    "render_figure",
]


def render_figure(drawn: Drawn, name: str, description: str, caption: str) -> Figure:
    """Return a drawn figure for a page, with a name, a description for screen readers, and a caption."""
    from deeprc.interpretation.figures import render_svg

    return Figure(render_svg(drawn, name=name, description=description), caption)


def draw_contrast_pictures(performance: Performance, contrast: Contrast, places: Mapping[str, int]) -> list[Figure]:
    """Return the figures of ROC, precision-recall and calibration of a contrast, as far as they exist.

    `places` has the index of each class of its target, see `index_classes`.
    """
    from deeprc.interpretation.figures import draw_calibration_figure, draw_precision_recall_figure, draw_roc_figure

    table = performance.predictions
    splits = {split: contrast.auc(performance.rows(split)) for split in SPLIT_NAMES}
    aucs = [f"{SPLIT_NAMES[split]} {auc.value:.3f}" for split, auc in splits.items() if auc is not None]
    what = contrast.about or f"{contrast.positive} against {contrast.negative}"
    figures = []
    if aucs:
        says = f"ROC curve for {what}; area under it: {', '.join(aucs)}."
        caption = (
            f"ROC curve{contrast.named}: how many {contrast.positive} repertoires are found (upwards) at the price of "
            "how many false alarms (to the right). The bold curve counts; the training curve is always too good."
        )
        drawn = draw_roc_figure(table, target=contrast.key, donors=performance.donors_by_id)
        figures.append(render_figure(drawn, f"ROC curve, {what}", says, caption))
        says = f"Precision against recall for {what}."
        caption = (
            f"Precision and recall{contrast.named}: of the repertoires called {contrast.positive}, how many are "
            "(upwards), against how many of all are found (to the right)."
        )
        drawn = draw_precision_recall_figure(table, target=contrast.key)
        figures.append(render_figure(drawn, f"Precision and recall, {what}", says, caption))
    judging = performance.rows(performance.held_out) & ~np.isnan(contrast.label)
    if judging.any():
        says = (
            f"How often {contrast.positive} came true against its predicted probability, and a histogram of the "
            "probabilities of both classes."
        )
        caption = (
            f"Calibration{contrast.named}: of the repertoires that were given a probability (to the right), how many "
            f"are {contrast.positive} (upwards; bars: 95% intervals). On the dashed line, probabilities can be taken "
            f"at their word. {_describe_probabilities(contrast, judging)} Below: the probabilities of both classes."
        )
        classes = [(name, places.get(name)) for name in (contrast.negative, contrast.positive)]
        drawn = draw_calibration_figure(table, target=contrast.key, split=performance.held_out, classes=classes)
        figures.append(render_figure(drawn, f"Calibration, {what}", says, caption))
    return figures


def _describe_probabilities(contrast: Contrast, judging: NDArray[np.bool_]) -> str:
    """Return a sentence about the quality of the probabilities of the repertoires `judging`, (B,)."""
    found = judge_probabilities(contrast.label[judging].astype(np.int64), contrast.probability[judging])
    error = found["calibration_error"]
    shown = "not measured in so few repertoires" if np.isnan(error) else f"{error:.3f}"
    return f"Brier score {found['brier']:.3f} (base rate: {found['brier_base_rate']:.3f}), calibration error {shown}."


def number_picture(performance: Performance, numbers: Numbers) -> list[Figure]:
    """Return the figure of predicted against true values; empty if no value is known."""
    from deeprc.interpretation.figures import draw_regression_figure

    if np.isnan(numbers.label).all():
        return []
    says = f"Predicted against true {numbers.target}, a point for each repertoire."
    caption = f"Each point is a repertoire; on the dashed line, the predicted {numbers.target} is the true one."
    drawn = draw_regression_figure(performance.predictions, target=numbers.target)
    return [render_figure(drawn, f"Prediction of {numbers.target}", says, caption)]


def draw_history_picture(history: pd.DataFrame, name: str = "") -> list[Figure]:
    """Return the figure of loss and AUC during training; empty if there is no history.

    Parameters
    ----------
    history
        Table `history.tsv` of a run.
    name
        Name of the run, if there are several.
    """
    from deeprc.interpretation.figures import draw_history_figure

    if history.empty:
        return []
    last, of_run = int(history["update"].iloc[-1]), f" of {name}" * bool(name)
    says = f"Training and validation loss{of_run} over {last:,} updates; the update that was kept is marked."
    caption = (
        "The loss says how wrong the predictions are; lower is better. The network of the marked update was kept. A "
        "validation loss that rises while the training loss falls is overfitting."
    )
    if "fitted" in history:
        caption += (
            " Squares are losses and AUCs of whole validation repertoires, which decided which network was kept. Lines "
            "are of samples."
        )
    drawn = draw_history_figure(history)
    return [render_figure(drawn, f"Training history{of_run}", says, f"{name}: {caption}" if name else caption)]


def draw_attention_pictures(
    heads: pd.DataFrame,
    curves: pd.DataFrame,
    classes: Mapping[str, str],
    places: Mapping[str, int],
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
    places
        Index of each class, see `index_drawn_classes`.
    target
        Name of the target of the classes, if there are several.
    by
        Text that says how the repertoires are divided.
    """
    from deeprc.interpretation.figures import draw_attention_figure, draw_metastable_figure

    known = heads[heads["repertoire_id"].isin(list(classes)) & (heads["n_sequences"] > 0)]
    if known.empty:
        return []
    median = float(known["metastable_size"].median())
    named = f" by {target}" * bool(target)
    says = f"Number of sequences that hold 90% of the attention, {by}; in the median {median:,.0f}."
    caption = (
        f"How many sequences hold 90% of the attention in each repertoire (a point each), {by}. Few: the network "
        "looks for particular sequences. Most of the repertoire: it averages."
    )
    figures = [
        render_figure(
            draw_metastable_figure(heads, classes, places), f"Size of the attended part{named}", says, caption
        )
    ]
    says = f"Share of the attention that the most attended sequences hold, {by}: median and quartiles."
    caption = (
        f"How attention gathers, {by}: the most attended 1% of the sequences hold so much of it (line: median, band: "
        "middle half of the repertoires). The dotted line is attention that makes no difference between sequences."
    )
    figures.append(
        render_figure(draw_attention_figure(curves, classes, places), f"Attention curves{named}", says, caption)
    )
    return figures


def draw_gene_pictures(genes: pd.DataFrame) -> list[Figure]:
    """Return the figures of the usage of V and J genes by attended and by all sequences, as far as genes are known."""
    from deeprc.interpretation.figures import draw_gene_figure

    figures = []
    for field, name in (("v_call", "V"), ("j_call", "J")):
        own = genes[genes["field"] == field] if len(genes) else genes
        if len(own):
            most = own.iloc[int((own["attended"] - own["all"]).to_numpy().argmax())]
            says = (
                f"Usage of {name} genes, weighted by attention and among all sequences. Attention raises "
                f"{most['name']} most, from {most['all']:.1%} to {most['attended']:.1%}."
            )
            caption = (
                f"{name} genes of the attended sequences (diamonds) and of all (rings), in the mean over repertoires; "
                "those that differ most."
            )
            figures.append(render_figure(draw_gene_figure(genes, field), f"Usage of {name} genes", says, caption))
    return figures


def make_logo_figure(motif: AttendedMotif, index: int, direction: str, *, top: float) -> Figure:
    """Return the figure of a motif's logo, on an axis up to `top` bits."""
    from deeprc.interpretation.figures import draw_logo_figure

    says = f"Sequence logo of the motif {motif.pattern}."
    return render_figure(
        draw_logo_figure(motif, top=top), f"Logo {index} for {direction}", says, f"{index}. {motif.pattern}"
    )


def draw_kernel_pictures(
    kernels: NDArray[np.float64], members: Sequence[tuple[str, int]], direction: Direction, place: int
) -> list[Figure]:
    """Return figures of the mean contribution of each kernel to a direction; empty without sequences.

    Parameters
    ----------
    kernels
        Contributions of the kernels of all models, (n, D), one model after the other.
    members
        Name of each model, "" if there is only one, and its number of kernels.
    direction
        Direction of an output.
    place
        Index of the direction's class, see `index_classes`.
    """
    from deeprc.interpretation.figures import draw_kernels_figure

    if kernels.size == 0:
        return []
    figures, first = [], 0
    for name, size in members:
        own, of_model = kernels[:, first : first + size], f" of {name}" * bool(name)
        first += size
        mean = direction.sign * own.mean(axis=0)
        best = [str(kernel + 1) for kernel in np.argsort(-mean)[:3] if mean[kernel] > 0]
        strongest = ", ".join(best) or "none"
        says = f"What each kernel{of_model} adds for {direction.name}, in the mean; the strongest: {strongest}."
        caption = (
            f"What each kernel{of_model} (a detector of short patterns that the network learned) adds for "
            f"{direction.name}, in the mean over the sequences that contribute most to it."
        )
        drawn = draw_kernels_figure(direction.sign * own, output=direction.name, place=place)
        figures.append(render_figure(drawn, f"Kernels{of_model} for {direction.name}", says, caption))
    return figures


def draw_reliability_picture(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> list[Figure]:
    """Return the figure of the reliability curves of all methods; empty if no classes are predicted."""
    from deeprc.evaluation.reliability_figure import draw_reliability_figure

    if scoring.kind == "regression" or predictions.empty:
        return []
    drawn = draw_reliability_figure(predictions, methods, scoring)
    says = "How often what each method predicted came true, a panel for each, the lowest log loss first."
    caption = (
        "The share of repertoires whose class came true (upwards) against its predicted probability, in bins of test "
        "repertoires; bars are 95% intervals. On the dashed line, probabilities can be taken at their word. Controls "
        "are grey."
    )
    return [render_figure(drawn, "Reliability of all methods", says, caption)]


def draw_curves_picture(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> list[Figure]:
    """Return the figure of the curves of all methods, or of predicted against true numbers; empty if there is none."""
    from deeprc.evaluation.curves import draw_curves_figure
    from deeprc.evaluation.scatter import NoCurveError

    try:
        drawn = draw_curves_figure(predictions, methods, scoring)
    except NoCurveError:
        return []
    if scoring.kind == "regression":
        says = "Predicted against true values of all methods, a panel for each, the highest r² first."
        caption = (
            "Predicted (upwards) against true values: a point is a repertoire, predicted by the model of its test "
            "fold; on the dashed line the prediction is right. Grey: controls. Points on the border lie outside."
        )
        return [render_figure(drawn, "Predictions of all methods", says, caption)]
    says = "Mean ROC and precision-recall curves of all methods; their areas are the AUC and average precision."
    caption = "ROC (left) and precision against recall (right), averaged over the test folds; the best is on top."
    return [render_figure(drawn, "Curves of all methods", says, caption)]
