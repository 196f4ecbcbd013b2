"""A figure of a cohort before any training: sizes, lengths, genes, and two maps of its repertoires, by class.

Letters: B repertoires, G genes, L lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeprc.drawing import INK, MUTED, require_matplotlib, shorten_name
from deeprc.interpretation.figures.elements import (
    choose_class_styles,
    draw_grid,
    escape_legend_text,
    fix_ticks,
    set_count_ticks,
    spread_points,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["CohortNumbers", "draw_cohort_figure"]

_MAX_GENES = 20
_UNLABELLED: Mapping[str, Any] = {"linestyle": "", "marker": ".", "markersize": 4, "color": MUTED}
_MAX_LEGEND_LETTERS, _MAX_TICK_LETTERS = 190, 36  # in a line of the legend, and below the x axis
_MIN_SHARE = 0.001  # smallest mean share of the sequences of a length that is drawn


@dataclass(frozen=True)
class CohortNumbers:
    """The numbers of B repertoires that the figure shows.

    Attributes
    ----------
    classes
        Class of each repertoire, (B,); "" if not known.
    sizes
        Number of sequences of each repertoire, (B,).
    lengths
        Share of sequences with each length, from 0, in each repertoire, (B, L).
    genes
        Share of sequences with each gene in each repertoire, (B, G), and names of the genes, by field; fields that the
        container lacks are left out.
    by_clones, by_kmers
        Points of the two maps, (B, 2) each.
    variance
        Share of the variance on each axis of the map by k-mers, (2,).
    """

    classes: Sequence[str]
    sizes: NDArray[np.int64]
    lengths: NDArray[np.float64]
    genes: Mapping[str, tuple[NDArray[np.float64], tuple[str, ...]]]
    by_clones: NDArray[np.float64]
    by_kmers: NDArray[np.float64]
    variance: NDArray[np.float64]


@require_matplotlib
def draw_cohort_figure(cohort: CohortNumbers, colour_of_class: Mapping[str, int]) -> Figure:
    """Draw sizes, lengths, genes and maps of the repertoires of a cohort, with a colour and marker for each class.

    Parameters
    ----------
    cohort
        Numbers of the repertoires.
    colour_of_class
        Index of each class, in the order in which they are drawn; see `choose_class_styles`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.6, 6.9))
    panels = figure.subplots(2, 3)
    figure.subplots_adjust(left=0.06, right=0.99, top=0.95, bottom=0.13, wspace=0.32, hspace=0.38)
    for axis in panels.flat:
        fix_ticks(axis)
    rows_of_class = {
        name: np.flatnonzero([class_name == name for class_name in cohort.classes]) for name in colour_of_class
    }
    styles = choose_class_styles(list(rows_of_class), colour_of_class)
    _draw_sizes(panels[0, 0], cohort.sizes, rows_of_class, styles)
    has_sequences = cohort.sizes > 0
    filled_rows = {name: rows[has_sequences[rows]] for name, rows in rows_of_class.items()}
    _draw_lengths(panels[1, 0], cohort.lengths, has_sequences, filled_rows, styles)
    for axis, (field, letter) in zip(panels[:, 1], (("v_call", "V"), ("j_call", "J")), strict=True):
        if field in cohort.genes:
            _draw_genes(axis, *cohort.genes[field], rows_of_class, styles, letter)
        else:
            axis.set_axis_off()
            axis.set_title(f"{letter} genes: not known", loc="left")
    _draw_map(panels[0, 2], cohort.by_clones, rows_of_class, styles, "Repertoires that share clones are near")
    _draw_map(panels[1, 2], cohort.by_kmers, rows_of_class, styles, "Repertoires with similar 3-mers are near")
    panels[0, 2].set(xlabel="1st coordinate", ylabel="2nd coordinate")
    panels[1, 2].set(
        xlabel=f"1st component ({cohort.variance[0]:.0%} of the variance)",
        ylabel=f"2nd component ({cohort.variance[1]:.0%})",
    )
    _draw_legend(figure, panels[0, 0], len(cohort.sizes), rows_of_class, styles)
    return figure


def _draw_legend(
    figure: Figure, axis: Axes, n_repertoires: int, rows_of_class: Mapping[str, Any], styles: Mapping[str, Any]
) -> None:
    """Draw the legend of all panels below them, with the number of repertoires of each class; `axis` is one of them."""
    handles = [
        axis.plot([], [], linestyle="", marker=style["marker"], color=style["color"], mfc="none")[0]
        for style in styles.values()
    ]
    texts = [escape_legend_text(f"{shorten_name(name, 40)}: {len(rows):,}") for name, rows in rows_of_class.items()]
    n_unlabelled = n_repertoires - sum(map(len, rows_of_class.values()))
    if n_unlabelled:
        handles += axis.plot([], [], **_UNLABELLED)
        texts.append(f"no label: {n_unlabelled:,} (only in the maps)")
    columns = max(1, min(len(texts), _MAX_LEGEND_LETTERS // (max(map(len, texts)) + 4)))
    figure.legend(handles, texts, loc="upper left", ncols=columns, bbox_to_anchor=(0.05, 0.04), handletextpad=0.2)


def _draw_sizes(
    axis: Axes, sizes: NDArray[np.int64], rows_of_class: Mapping[str, Any], styles: Mapping[str, Any]
) -> None:
    """Draw the number of sequences of each repertoire and the median of each class."""
    shown = np.maximum(sizes, 1)
    low, high = float(shown.min()), float(shown.max())
    axis.set(yscale="log", ylim=(0.8 * low, 1.25 * high), xlim=(-0.6, len(rows_of_class) - 0.4))
    for centre, (name, rows) in enumerate(rows_of_class.items()):
        style, values = styles[name], np.sort(shown[rows])
        x = centre + 0.6 * spread_points(len(values))
        axis.plot(x, values, linestyle="", marker=style["marker"], markersize=4, color=style["color"], mfc="none")
        if len(values):
            axis.hlines(np.median(values), centre - 0.35, centre + 0.35, color=INK, linewidth=1.8, zorder=4)
    set_count_ticks(axis, "y", low, high)
    letters = max(3, _MAX_TICK_LETTERS // max(len(rows_of_class), 1))
    axis.set_xticks(range(len(rows_of_class)), [shorten_name(name, letters) for name in rows_of_class])
    axis.set_title("Sequences of a repertoire, and medians", loc="left")
    draw_grid(axis, "y")


def _draw_lengths(
    axis: Axes,
    shares: NDArray[np.float64],
    has_sequences: NDArray[np.bool_],
    rows_of_class: Mapping[str, Any],
    styles: Mapping[str, Any],
) -> None:
    """Draw mean and quartiles of the share of sequences with each length over the repertoires of each class."""
    from matplotlib.ticker import MaxNLocator

    drawn = np.flatnonzero(shares[has_sequences].mean(axis=0) >= _MIN_SHARE) if has_sequences.any() else np.arange(1)
    lengths_shown = np.arange(drawn.min(), drawn.max() + 1)
    for name, rows in rows_of_class.items():
        if len(rows):
            style, class_shares = styles[name], shares[rows][:, lengths_shown]
            axis.plot(
                lengths_shown, class_shares.mean(axis=0), color=style["color"], dashes=style["dashes"], linewidth=1.8
            )
            lower, upper = np.quantile(class_shares, [0.25, 0.75], axis=0)
            axis.fill_between(lengths_shown, lower, upper, color=style["color"], alpha=0.2, linewidth=0)
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("residues of a junction")
    axis.set_title("Share of sequences, mean and quartiles", loc="left")
    draw_grid(axis, "y")


def _draw_genes(
    axis: Axes,
    shares: NDArray[np.float64],
    names: Sequence[str],
    rows_of_class: Mapping[str, Any],
    styles: Mapping[str, Any],
    letter: str,
) -> None:
    """Draw the mean share of each gene in each class; of many genes, those with the largest differences."""
    means = np.array([shares[rows].mean(axis=0) for rows in rows_of_class.values() if len(rows)])
    chosen = _choose_genes(means)
    y = -np.arange(len(chosen))
    axis.hlines(y, means[:, chosen].min(axis=0), means[:, chosen].max(axis=0), color=MUTED, linewidth=1, zorder=1)
    drawn = [name for name, rows in rows_of_class.items() if len(rows)]
    for name, usage in zip(drawn, means, strict=True):
        style = styles[name]
        axis.plot(
            usage[chosen], y, linestyle="", marker=style["marker"], markersize=4.5, color=style["color"], mfc="none"
        )
    axis.set_yticks(y, [names[index] for index in chosen])
    axis.tick_params(axis="y", labelsize=6.5 if len(chosen) > _MAX_GENES // 2 else 8, length=0)
    axis.set_ylim(-len(chosen) + 0.3, 0.7)
    axis.set_xlim(0, 1.05 * float(means[:, chosen].max(initial=0.01)))
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    suffix = " that differ most" if len(chosen) < len(names) and len(means) > 1 else ""
    axis.set_title(f"{letter} genes{suffix}, mean share", loc="left")
    draw_grid(axis, "x")


def _choose_genes(means: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the genes to draw, from top to bottom, by the mean share of each gene in each class, (classes, G).

    They are those that differ most between classes, from those of the last class to those of the first. Of a single
    class, they are the most frequent ones.
    """
    if len(means) == 1:
        return np.argsort(-means[0], kind="stable")[:_MAX_GENES]
    difference = means.max(axis=0) - means.min(axis=0)
    chosen = np.argsort(-difference, kind="stable")[:_MAX_GENES]
    rise = (means[-1] - means[0])[chosen]
    return chosen[np.argsort(-rise, kind="stable")]


def _draw_map(
    axis: Axes, points: NDArray[np.float64], rows_of_class: Mapping[str, Any], styles: Mapping[str, Any], title: str
) -> None:
    """Draw a point for each repertoire, (B, 2), in the style of its class."""
    unlabelled = np.setdiff1d(np.arange(len(points)), np.concatenate([*rows_of_class.values(), np.zeros(0, np.int64)]))
    axis.plot(*points[unlabelled].T, **_UNLABELLED)
    for name, rows in rows_of_class.items():
        style = styles[name]
        axis.plot(
            *points[rows].T, linestyle="", marker=style["marker"], markersize=4.5, color=style["color"], mfc="none"
        )
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_title(title, loc="left")
