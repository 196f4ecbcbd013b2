"""A figure of known antigens: numbers of matching sequences, by organism, and numbers expected by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from deeprc.drawing import INK, require_matplotlib, shorten_name
from deeprc.interpretation.figures.elements import draw_grid, draw_legend_below, get_class_colour, make_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_antigen_figure"]


@require_matplotlib
def draw_antigen_figure(organisms: pd.DataFrame, colour_index: int) -> Figure:
    """Draw a bar for each organism, and a line at the number expected by chance.

    Parameters
    ----------
    organisms
        Table with antigen_organism, n_exact, n_within_one and expected_within_one; see `Annotation.organisms`.
    colour_index
        Index of the class to which the sequences contribute, see `index_classes`.
    """
    figure, axis = make_panel(3.4, 0.24 * len(organisms) + 0.2, left=1.5)
    y, colour = -np.arange(len(organisms)), get_class_colour(colour_index)
    within_one = axis.barh(y, organisms["n_within_one"], height=0.7, color=colour, alpha=0.45, linewidth=0)
    exact = axis.barh(y, organisms["n_exact"], height=0.7, color=colour, linewidth=0)
    expected = organisms["expected_within_one"].to_numpy(np.float64)
    chance = axis.vlines(expected, y - 0.42, y + 0.42, color=INK, linewidth=1.6)
    axis.set_yticks(y, [shorten_name(str(name), 40) for name in organisms["antigen_organism"]])
    axis.set_ylim(-len(organisms) + 0.4, 0.6)
    axis.set_xlim(left=0)
    axis.set_xlabel("different sequences")
    draw_grid(axis, "x")
    draw_legend_below(axis, {"exactly the same": exact, "at most one substitution": within_one, "by chance": chance})
    return figure
