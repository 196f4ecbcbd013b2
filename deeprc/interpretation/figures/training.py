"""The figure of the training of a run: losses and AUC against updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from deeprc.drawing import INK, MUTED, require_matplotlib
from deeprc.interpretation.figures.elements import draw_grid, draw_legend_below, fix_ticks, make_panel
from deeprc.training.history import WHOLE_VALIDATION_PREFIXES, find_kept_weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_history_figure"]

_WIDTH = 3.1
_SQUARES: dict[str, Any] = {"color": INK, "marker": "s", "markersize": 4, "fillstyle": "none", "linestyle": ""}


@require_matplotlib
def draw_history_figure(history: pd.DataFrame) -> Figure:
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
    kept = find_kept_weights(history)
    decisive = [name for name in WHOLE_VALIDATION_PREFIXES if f"{name}_loss" in history]
    losses = history[["train_loss", "validation_loss", *(f"{name}_loss" for name in decisive)]]
    with_auc = "validation_auc" in history and bool(history["validation_auc"].notna().any())
    figure, axis = make_panel(_WIDTH, 1.7, bottom=1.9 if with_auc else 0.5)
    update = history["update"]
    marker = "o" if len(history) == 1 else ""
    (train,) = axis.plot(update, history["train_loss"], color=MUTED, dashes=(1.2, 1.4), marker=marker, linewidth=1.2)
    (validation,) = axis.plot(update, history["validation_loss"], color=INK, marker=marker, linewidth=1.6)
    lines = {"training": train, "validation": validation}
    for name in decisive:
        (lines["whole validation repertoires"],) = axis.plot(update, history[f"{name}_loss"], **_SQUARES)
    axis.set(ylabel="loss", ylim=(0, 1.05 * float(losses.max().max())))
    axes, last = [axis], axis
    if with_auc:
        last = _add_axes_below(figure, axis)
        axes.append(last)
        last.plot(update, history["validation_auc"], color=INK, marker=marker, linewidth=1.6)
        aucs = history[["validation_auc", *(f"{name}_auc" for name in decisive)]]
        for name in decisive:
            last.plot(update, history[f"{name}_auc"], **_SQUARES)
        last.set(ylabel="validation AUC", ylim=(min(0.45, float(aucs.min().min()) - 0.05), 1.02))
        axis.tick_params(axis="x", labelbottom=False)
    for panel in axes:
        line = panel.axvline(kept.update, color=INK, linewidth=0.9, dashes=(6, 2, 1.5, 2), zorder=1)
        panel.set_xlim(*_compute_limits(update))
        draw_grid(panel, "y")
    axis.plot([kept.update], [kept.loss], color=INK, marker="o", markersize=5, linestyle="")
    last.set_xlabel("update")
    last.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    text = f"chosen: update {kept.update:,}, loss {kept.loss:.3f}" + (f", AUC {kept.auc:.3f}" if with_auc else "")
    draw_legend_below(last, {**lines, text: line})
    return figure


def _compute_limits(update: pd.Series[int]) -> tuple[float, float]:
    """Return the limits of the horizontal axis, the number of updates, with a margin of 2%."""
    margin = 0.02 * float(update.max())
    return min(0.0, float(update.min())) - margin, float(update.max()) + margin


def _add_axes_below(figure: Figure, above: Axes) -> Axes:
    box, up = above.get_position(), figure.get_size_inches()[1]
    axis = figure.add_axes((box.x0, box.y0 - 1.4 / up, box.width, 1.25 / up))
    fix_ticks(axis)
    return axis
