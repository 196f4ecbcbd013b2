"""Figures of the attention: numbers of averaged sequences, concentration on few sequences, and attended genes.

Letters: N sequences of one repertoire, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.drawing import INK, MUTED, require_matplotlib
from deeprc.errors import InputError
from deeprc.interpretation.figures.elements import (
    choose_class_styles,
    draw_grid,
    draw_legend_below,
    escape_legend_text,
    group_by_class,
    make_panel,
    set_count_ticks,
    set_percent_ticks,
    spread_points,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["compute_attention_bands", "draw_attention_figure", "draw_gene_figure", "draw_metastable_figure"]

_MAX_POINTS = 200  # largest number of points beside a box
_MAX_GENES = 25
_SHARES_OF_N = ((1.0, "all"), (1 / 2, "1/2"), (1 / 8, "1/8"), (1 / 32, "1/32"))  # limits of the operating classes


@require_matplotlib
def draw_metastable_figure(
    heads: pd.DataFrame, classes: Mapping[str, str], colour_of_class: Mapping[str, int] | None = None
) -> Figure:
    """Draw the number of sequences over which each head averages: a box and points per head and class, on a log axis.

    Lines at the right mark shares of a repertoire (of the median size), which are the limits of the operating classes.

    Parameters
    ----------
    heads
        Table with repertoire_id, head (from 1), n_sequences, metastable_size (smallest number of sequences whose
        weights sum to 0.90).
    classes
        Class of each repertoire, by its id, a dictionary or a Series; repertoires without a class are left out.
    colour_of_class
        Index of each class, see `choose_class_styles`.

    Raises
    ------
    InputError
        If no repertoire with sequences has a class.
    """
    parts = group_by_class(heads[heads["n_sequences"] > 0], classes)
    styles = choose_class_styles(list(parts), colour_of_class)
    numbers = sorted({int(head) for part in parts.values() for head in part["head"]})
    width = min(6.4, max(2.5, 0.55 * len(numbers) * len(parts)))
    figure, axis = make_panel(width, 2.6)
    axis.set_yscale("log")
    step = 0.8 / len(parts)
    entries = {}
    for i, (name, part) in enumerate(parts.items()):
        for x, head in enumerate(numbers):
            sizes = np.sort(part.loc[part["head"] == head, "metastable_size"].to_numpy(np.float64))
            if len(sizes):
                dots = _draw_box(axis, sizes, x + (i - (len(parts) - 1) / 2) * step, 0.8 * step, styles[name])
                entries[escape_legend_text(name)] = dots
    all_heads = pd.concat(parts.values())
    high = float(all_heads["n_sequences"].max())
    low = 10.0 ** np.floor(np.log10(float(all_heads["metastable_size"].min())))
    axis.set(xlim=(-0.55, len(numbers) - 0.45), ylim=(0.8 * low, 1.3 * high))
    set_count_ticks(axis, "y", low, high)
    axis.set_xticks(range(len(numbers)), [str(head) for head in numbers])
    axis.set(xlabel="head", ylabel="sequences with 90% of the attention")
    _draw_share_lines(axis, float(all_heads["n_sequences"].median()))
    draw_legend_below(axis, entries, columns=min(3, len(entries)))
    return figure


def _draw_box(axis: Axes, sizes: NDArray[np.float64], centre: float, width: float, style: Mapping[str, Any]) -> Any:
    """Draw median, quartiles, range and points of sorted values; return the points."""
    line = {"color": style["color"], "linewidth": 1.2}
    axis.boxplot(
        sizes,
        positions=[centre],
        widths=width,
        whis=(0, 100),
        manage_ticks=False,
        boxprops=line,
        whiskerprops=line,
        capprops=line,
        medianprops={"color": INK, "linewidth": 1.8, "zorder": 4},
    )
    shown = sizes[np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), _MAX_POINTS)).astype(np.int64))]
    x = centre + 0.8 * width * spread_points(len(shown))
    (dots,) = axis.plot(
        x, shown, linestyle="", marker=style["marker"], markersize=3, color=style["color"], markerfacecolor="none"
    )
    return dots


def _draw_share_lines(axis: Axes, n: float) -> None:
    for share, text in _SHARES_OF_N:
        if axis.get_ylim()[0] < n * share < axis.get_ylim()[1]:
            axis.axhline(n * share, color=MUTED, linewidth=0.7, dashes=(1, 2), zorder=0)
            axis.text(1.01, n * share, text, transform=axis.get_yaxis_transform(), va="center", fontsize=8, color=MUTED)
    axis.text(1.01, 1.02, "of a\nrepertoire", transform=axis.transAxes, va="bottom", fontsize=8, color=MUTED)


def compute_attention_bands(curves: pd.DataFrame, *, n_points: int = 120) -> pd.DataFrame:
    """Return median and quartiles over repertoires of the attention on the most attended share of the sequences.

    Parameters
    ----------
    curves
        Table with repertoire_id, share (of the repertoire's sequences, most attended first, ascending in (0, 1]),
        attention (sum of their weights). Below its first share, the curve of a repertoire is a straight line from 0.
    n_points
        Number of shares.

    Returns
    -------
    A table with share (from the smallest one to 1, evenly on a logarithmic scale), lower, median, upper.
    """
    shares = np.geomspace(float(curves["share"].min()), 1.0, n_points)
    interpolated = [
        np.interp(shares, [0.0, *part["share"]], [0.0, *part["attention"]])
        for _, part in curves.sort_values("share").groupby("repertoire_id")
    ]
    lower, median, upper = np.quantile(interpolated, [0.25, 0.5, 0.75], axis=0)
    return pd.DataFrame({"share": shares, "lower": lower, "median": median, "upper": upper})


@require_matplotlib
def draw_attention_figure(
    curves: pd.DataFrame, classes: Mapping[str, str], colour_of_class: Mapping[str, int] | None = None
) -> Figure:
    """Draw the cumulated attention against the share of sequences: median and quartiles over repertoires, by class.

    Parameters
    ----------
    curves
        Table of the attention, see `compute_attention_bands`.
    classes
        Class of each repertoire, by its id, a dictionary or a Series; repertoires without a class are left out.
    colour_of_class
        Index of each class, see `choose_class_styles`.

    Raises
    ------
    InputError
        If no repertoire has a class.
    """
    parts = group_by_class(curves, classes)
    styles = choose_class_styles(list(parts), colour_of_class)
    figure, axis = make_panel(3.1, 2.5)
    axis.set_xscale("log")
    low, entries = float(curves["share"].min()), {}
    for name, part in parts.items():
        bands, style = compute_attention_bands(part), styles[name]
        look = {"color": style["color"], "dashes": style["dashes"]}
        (line,) = axis.plot(bands["share"], bands["median"], linewidth=2, zorder=3, **look)
        axis.fill_between(bands["share"], bands["lower"], bands["upper"], color=style["color"], alpha=0.18, linewidth=0)
        for edge in ("lower", "upper"):
            axis.plot(bands["share"], bands[edge], linewidth=0.7, zorder=2, **look)
        entries[f"{escape_legend_text(name)} ({part['repertoire_id'].nunique()} repertoires)"] = line
    equal = np.geomspace(low, 1, 100)
    (chance,) = axis.plot(equal, equal, color=MUTED, linewidth=0.9, dashes=(1, 2), zorder=1)
    entries["equal attention"] = chance
    left = low if low < 1 else 0.1  # if each repertoire has one sequence, all of them are attended
    axis.set(xlim=(left, 1), ylim=(0, 1.01))
    powers = range(int(np.ceil(np.log10(left) - 1e-9)), 1)
    set_percent_ticks(axis, "x", [10.0**power for power in powers])
    set_percent_ticks(axis, "y", [0, 0.25, 0.5, 0.75, 1])
    axis.set(xlabel="sequences, most attended first", ylabel="share of the attention")
    draw_grid(axis, "both")
    draw_legend_below(axis, entries)
    return figure


@require_matplotlib
def draw_gene_figure(genes: pd.DataFrame, field: str = "v_call") -> Figure:
    """Draw the usage of genes by attended and by all sequences, sorted by the difference.

    If there are more than 25 genes, those with the largest differences are drawn.

    Parameters
    ----------
    genes
        Table with field, name, all and attended (shares from 0 to 1).
    field
        Gene field, v_call or j_call.

    Raises
    ------
    InputError
        If the table has no genes of this field.
    """
    usage = genes[genes["field"] == field] if len(genes) else genes
    if usage.empty:
        raise InputError(f"the cohort has no {field}, so there is no gene usage to draw")
    difference = usage["attended"] - usage["all"]
    kept = difference.abs().sort_values(ascending=False, kind="stable").index[:_MAX_GENES]
    usage = usage.loc[difference[kept].sort_values(kind="stable").index]
    names = [str(name) or "unknown" for name in usage["name"]]
    figure, axis = make_panel(2.7, 0.17 * len(usage) + 0.2, left=1.1)
    y = np.arange(len(usage))
    axis.hlines(y, usage["all"], usage["attended"], color=MUTED, linewidth=1.2, zorder=1)
    style: dict[str, Any] = {"linestyle": "", "color": INK, "markersize": 4.5}
    (unweighted,) = axis.plot(usage["all"], y, marker="o", markerfacecolor="none", **style)
    (attended,) = axis.plot(usage["attended"], y, marker="D", **style)
    axis.set_yticks(y, names)
    axis.set(ylim=(-0.7, len(usage) - 0.3), xlabel="share of sequences")
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    most = float(usage[["all", "attended"]].to_numpy().max())
    axis.set_xlim(-0.03 * most, 1.04 * most)  # so that markers at the edge are not cut
    draw_grid(axis, "both")
    draw_legend_below(axis, {"weighted by attention": attended, "all sequences": unweighted}, columns=2)
    return figure
