"""The figure of the training of a run: losses and AUC against updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deeprc.drawing import INK, MUTED, require_matplotlib
from deeprc.errors import InputError
from deeprc.interpretation.figures.parts import draw_grid, draw_legend_below, fix_ticks, make_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["find_chosen_update", "history_figure"]

_WIDTH = 3.1
_SQUARES: dict[str, Any] = {"color": INK, "marker": "s", "markersize": 4, "fillstyle": "none", "linestyle": ""}


def find_chosen_update(history: pd.DataFrame) -> int:
    """Return the update whose weights were kept.

    Raises
    ------
    InputError
        If the history has no row.
    """
    if history.empty:
        raise InputError("the history of the training is empty")
    if "best_update" in history:  # runs of earlier versions kept the lowest loss
        return int(history["best_update"].iloc[-1])
    return int(history["update"].iloc[int(history["validation_loss"].to_numpy(np.float64).argmin())])


@require_matplotlib
def history_figure(history: pd.DataFrame) -> Figure:
    """Draw training and validation loss, and the validation AUC if there is one, against updates.

    Parameters
    ----------
    history
        Table `history.tsv` of a run: update, train_loss, validation_loss and, with a binary target, validation_auc.
        If whole repertoires decided which weights were kept, their losses and AUCs are drawn as squares.

    Raises
    ------
    InputError
        If the history has no row.
    """
    chosen = find_chosen_update(history)
    with_auc = "validation_auc" in history and bool(history["validation_auc"].notna().any())
    figure, axis = make_panel(_WIDTH, 1.7, bottom=1.9 if with_auc else 0.5)
    update = history["update"]
    marker = "o" if len(history) == 1 else ""
    (train,) = axis.plot(update, history["train_loss"], color=MUTED, dashes=(1.2, 1.4), marker=marker, linewidth=1.2)
    (validation,) = axis.plot(update, history["validation_loss"], color=INK, marker=marker, linewidth=1.6)
    axis.set_ylim(bottom=0, top=1.05 * float(history[["train_loss", "validation_loss"]].max().max()))
    decisive = [f"{name}_validation" for name in ("whole", "fitted") if f"{name}_validation_loss" in history]
    lines = {"training": train, "validation": validation}
    for name in decisive:
        (lines["whole validation repertoires"],) = axis.plot(update, history[f"{name}_loss"], **_SQUARES)
    axis.set_ylabel("loss")
    axes, last = [axis], axis
    if with_auc:
        last = _add_axes_below(figure, axis)
        axes.append(last)
        last.plot(update, history["validation_auc"], color=INK, marker=marker, linewidth=1.6)
        for name in decisive:
            last.plot(update, history[f"{name}_auc"], **_SQUARES)
        last.set(ylabel="validation AUC", ylim=(min(0.45, float(history["validation_auc"].min()) - 0.05), 1.02))
        axis.tick_params(axis="x", labelbottom=False)
    for each in axes:
        line = each.axvline(chosen, color=INK, linewidth=0.9, dashes=(6, 2, 1.5, 2), zorder=1)
        each.set_xlim(*_compute_limits(update))
        draw_grid(each, "y")
    at = history[update == chosen].iloc[0]
    judged = [name for name in decisive if at.notna()[f"{name}_loss"]] or ["validation"]
    judged = [name for name in decisive if at.notna()[f"{name}_loss"]] or ["validation"]
    best = min(judged, key=lambda name: float(at[f"{name}_loss"]))
    axis.plot([chosen], [at[f"{best}_loss"]], color=INK, marker="o", markersize=5, linestyle="")
    last.set_xlabel("update")
    last.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    text = f"chosen: update {chosen:,}, loss {at[f'{best}_loss']:.3f}"
    text += f", AUC {at[f'{best}_auc']:.3f}" if with_auc else ""
    draw_legend_below(last, {**lines, text: line})
    return figure


def _compute_limits(update: pd.Series[int]) -> tuple[float, float]:
    margin = 0.02 * float(update.max())
    return min(0.0, float(update.min())) - margin, float(update.max()) + margin


def _add_axes_below(figure: Figure, above: Axes) -> Axes:
    place, up = above.get_position(), figure.get_size_inches()[1]
    axis = figure.add_axes((place.x0, place.y0 - 1.4 / up, place.width, 1.25 / up))
    fix_ticks(axis)
    return axis
