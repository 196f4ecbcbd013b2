"""The figures of a report: drawn, described for those who do not see them, and captioned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.errors import InputError
from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.scoring import BINARY, Scoring
from deeprc.interpretation.report.page import Figure
from deeprc.interpretation.survey import Side
from deeprc.runs.judged import SIDE_NAMES, Contrast, Judged, Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

    from deeprc.interpretation.motifs import Motif

__all__ = [
    "attention_pictures",
    "contrast_pictures",
    "curves_picture",
    "gene_pictures",
    "history_picture",
    "kernel_picture",
    "logo",
    "number_picture",
]


def _figure(drawn: Drawn, name: str, description: str, caption: str) -> Figure:
    from deeprc.interpretation.figures import svg

    return Figure(svg(drawn, name=name, description=description), caption)


def contrast_pictures(judged: Judged, contrast: Contrast, places: Mapping[str, int]) -> list[Figure]:
    """Return ROC, precision-recall and calibration of a contrast; those that exist.

    `places` are those of its target's classes, see `class_places`.
    """
    from deeprc.interpretation.figures import calibration_figure, precision_recall_figure, roc_figure

    table = judged.predictions
    sides = {side: contrast.auc(judged.rows(side)) for side in SIDE_NAMES}
    aucs = [f"{SIDE_NAMES[side]} {auc.value:.3f}" for side, auc in sides.items() if auc is not None]
    what = contrast.about or f"{contrast.positive} against {contrast.negative}"
    figures = []
    if aucs:
        says = f"ROC curve for {what}; area under it: {', '.join(aucs)}."
        caption = (
            f"ROC curve{contrast.named}: how many {contrast.positive} repertoires are found (upwards) at the price of "
            "how many false alarms (to the right). The bold curve counts; the training curve is always too good."
        )
        figures.append(_figure(roc_figure(table, target=contrast.key), f"ROC curve, {what}", says, caption))
        says = f"Precision against recall for {what}."
        caption = (
            f"Precision and recall{contrast.named}: of the repertoires called {contrast.positive}, how many are "
            "(upwards), against how many of all are found (to the right)."
        )
        drawn = precision_recall_figure(table, target=contrast.key)
        figures.append(_figure(drawn, f"Precision and recall, {what}", says, caption))
    judging = judged.rows(judged.side) & ~np.isnan(contrast.label)
    if judging.any():
        says = (
            f"How often {contrast.positive} came true against its predicted probability, and a histogram of the "
            "probabilities of both classes."
        )
        caption = (
            f"Calibration{contrast.named}: of the repertoires that were given a probability (to the right), how many "
            f"are {contrast.positive} (upwards). On the dashed line, probabilities can be taken at their word. Below: "
            "the probabilities of both classes."
        )
        classes = [(name, places.get(name)) for name in (contrast.negative, contrast.positive)]
        drawn = calibration_figure(table, target=contrast.key, split=judged.side, classes=classes)
        figures.append(_figure(drawn, f"Calibration, {what}", says, caption))
    return figures


def number_picture(judged: Judged, numbers: Numbers) -> list[Figure]:
    """Return predicted against true values; nothing where none is known."""
    from deeprc.interpretation.figures import regression_figure

    if np.isnan(numbers.label).all():
        return []
    says = f"Predicted against true {numbers.target}, a point for each repertoire."
    caption = f"Each point is a repertoire; on the dashed line, the predicted {numbers.target} is the true one."
    drawn = regression_figure(judged.predictions, target=numbers.target)
    return [_figure(drawn, f"Prediction of {numbers.target}", says, caption)]


def history_picture(history: pd.DataFrame) -> list[Figure]:
    """Return loss and AUC during training; nothing where there is no history."""
    from deeprc.interpretation.figures import history_figure

    if history.empty:
        return []
    last = int(history["update"].iloc[-1])
    says = f"Training and validation loss over {last:,} updates; the lowest validation loss is marked."
    caption = (
        "The loss says how wrong the predictions are; lower is better. The network of the marked update was kept. A "
        "validation loss that rises while the training loss falls is learning by heart."
    )
    return [_figure(history_figure(history), "Training history", says, caption)]


def attention_pictures(
    heads: pd.DataFrame,
    curves: pd.DataFrame,
    classes: Mapping[str, str],
    places: Mapping[str, int],
    target: str = "",
    by: str = "by class",
) -> list[Figure]:
    """Return sizes of metastable states and attention curves by class; those that exist.

    Parameters
    ----------
    heads, curves
        See `deeprc.interpretation.survey.Survey`.
    classes
        The class of each repertoire by its id.
    places
        Of the classes, see `drawn_places`.
    target
        Whose classes they are, where there are several targets.
    by
        By what the repertoires are parted, in words.
    """
    from deeprc.interpretation.figures import attention_figure, metastable_figure

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
    figures = [_figure(metastable_figure(heads, classes, places), f"Size of the attended part{named}", says, caption)]
    says = f"Share of the attention that the most attended sequences hold, {by}: median and quartiles."
    caption = (
        f"How attention gathers, {by}: the most attended 1% of the sequences hold so much of it (line: median, band: "
        "middle half of the repertoires). The dotted line is attention that makes no difference between sequences."
    )
    figures.append(_figure(attention_figure(curves, classes, places), f"Attention curves{named}", says, caption))
    return figures


def gene_pictures(genes: pd.DataFrame) -> list[Figure]:
    """Return the usage of V and J genes by attended and by all sequences; those that are known."""
    from deeprc.interpretation.figures import gene_figure

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
            figures.append(_figure(gene_figure(genes, field), f"Usage of {name} genes", says, caption))
    return figures


def logo(motif: Motif, number: int, side: str, *, top: float) -> Figure:
    """Return a motif's logo, on an axis up to `top` bits."""
    from deeprc.interpretation.figures import logo_figure

    says = f"Sequence logo of the motif {motif.pattern}."
    return _figure(logo_figure(motif, top=top), f"Logo {number} for {side}", says, f"{number}. {motif.pattern}")


def kernel_picture(kernels: NDArray[np.float64], side: Side, place: int) -> list[Figure]:
    """Return what each kernel adds to a side in the mean over its sequences, (n, D); nothing without sequences.

    `place` is that of the side's class, see `class_places`.
    """
    from deeprc.interpretation.figures import kernels_figure

    if kernels.size == 0:
        return []
    mean = side.sign * kernels.mean(axis=0)
    best = [str(kernel + 1) for kernel in np.argsort(-mean)[:3] if mean[kernel] > 0]
    says = f"What each kernel adds for {side.name}, in the mean; the strongest: {', '.join(best) or 'none'}."
    caption = (
        f"What each kernel (a detector of short patterns that the network learned) adds for {side.name}, in the mean "
        "over the sequences that speak most for it."
    )
    drawn = kernels_figure(side.sign * kernels, output=side.name, place=place)
    return [_figure(drawn, f"Kernels for {side.name}", says, caption)]


def curves_picture(predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY) -> list[Figure]:
    """Return the curves of all methods, or predicted against true numbers; nothing where none can be drawn."""
    from deeprc.evaluation.curves import curves_figure

    try:
        drawn = curves_figure(predictions, methods, scoring)
    except InputError as error:
        if "no curve" in str(error):
            return []
        raise
    if scoring.kind == "regression":
        says = "Predicted against true values of all methods, a panel for each, the highest r² first."
        caption = (
            "Predicted (upwards) against true values: a point is a repertoire, predicted by the model of its test "
            "fold; on the dashed line the prediction is right. Grey: controls. Points on the border lie outside."
        )
        return [_figure(drawn, "Predictions of all methods", says, caption)]
    says = "Mean ROC and precision-recall curves of all methods; their areas are the AUC and average precision."
    caption = "ROC (left) and precision against recall (right), averaged over the test folds; the best is on top."
    return [_figure(drawn, "Curves of all methods", says, caption)]
