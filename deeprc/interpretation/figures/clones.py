"""A volcano plot of clones: strength and p-value of their association with a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from deeprc.drawing import CLASS_COLOURS, INK, MUTED, require_matplotlib, shorten_name
from deeprc.interpretation.figures.elements import draw_legend_below, escape_legend_text, make_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_volcano_figure"]

_LEVEL = 0.05
_BEYOND = 1.15  # position of infinite odds ratios, relative to the largest finite one (logarithms)
_SMALLEST = 1e-300


@require_matplotlib
def draw_volcano_figure(table: pd.DataFrame, classes: Sequence[str]) -> Figure:
    """Draw p-values against odds ratios from the table of `associate_clones`.

    With two classes, clones of the second class are on the right and those of the first on the left. Clones with a
    q-value of at most 5% have the colour of their class; q-values by permutations are used if the table has them.
    Infinite odds ratios, of clones that no other donor carries, are triangles at the edge. If the table is stratified,
    odds ratios and p-values are those of the stratified test.

    Parameters
    ----------
    table
        Table of `associate_clones`.
    classes
        Names of all classes of the target.
    """
    from matplotlib.ticker import FuncFormatter

    figure, axis = make_panel(4.2, 3.4)
    stratified = "_stratified" if "p_value_stratified" in table else ""
    ratios = np.log2(np.maximum(table[f"odds_ratio{stratified}"].to_numpy(np.float64), 1.0))
    is_infinite = np.isinf(ratios)
    edge = _BEYOND * max(ratios[np.isfinite(ratios)].max(initial=0.0), 1.0)
    sign = np.where((table["class"] == classes[0]) & (len(classes) == 2), -1.0, 1.0)
    x = sign * np.where(is_infinite, edge, ratios)
    y = -np.log10(np.maximum(table[f"p_value{stratified}"].to_numpy(np.float64), _SMALLEST))
    is_found = (table["q_permutation" if "q_permutation" in table else "q_value"] <= _LEVEL).to_numpy(bool)
    entries = {}
    groups = [("a larger false discovery rate", ~is_found, MUTED)]
    for colour_index, class_name in enumerate(classes):
        in_class = is_found & (table["class"] == class_name).to_numpy(bool)
        groups.append((f"{class_name}: {in_class.sum():,}", in_class, CLASS_COLOURS[colour_index % len(CLASS_COLOURS)]))
    for label, chosen, colour in groups:
        for marker, shown in (("^", chosen & is_infinite), ("o", chosen & ~is_infinite)):
            points = axis.scatter(x[shown], y[shown], s=10, marker=marker, color=colour, linewidths=0, alpha=0.7)
        entries[escape_legend_text(label)] = points
    if is_infinite.any():
        entries["infinite odds ratio"] = axis.scatter([], [], s=10, marker="^", color=INK)
    axis.axvline(0, color=INK, linewidth=0.6)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{2 ** abs(value):.3g}"))
    kind = "stratified " if stratified else ""
    left, right = (shorten_name(name, 20) for name in (classes[0], classes[-1]))
    sides = f" ({left} on the left, {right} on the right)" if len(classes) == 2 else ""
    axis.set_xlabel(f"{kind}odds ratio{sides}")
    axis.set_ylabel(f"-log10 of the {kind}p-value")
    axis.set_ylim(bottom=0)
    draw_legend_below(axis, entries)
    return figure
