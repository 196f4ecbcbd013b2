"""Figures of motifs and attributions: sequence logos, kernels, residues.

Letters: W positions of a motif, n sequences, L positions of the longest of them, D kernels.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.drawing import COLOURS, INK, MUTED, require_matplotlib, shorten_name
from deeprc.errors import InputError
from deeprc.interpretation.figures.elements import draw_grid, fix_ticks, get_class_colour, make_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from deeprc.interpretation.motifs import AttendedMotif

__all__ = [
    "compute_logo_top",
    "draw_kernels_figure",
    "draw_logo_figure",
    "draw_logos_figure",
    "draw_sequence_figure",
]

_CHEMISTRY = {
    "acidic": ("DE", COLOURS[1]),
    "basic": ("HKR", COLOURS[0]),
    "polar": ("CGNQSTY", COLOURS[2]),
    "hydrophobic": ("AFILMPVW", INK),
}
"""Chemical kinds of residues, with their letters and their colour in a logo."""

_MAX_KERNELS = 20
_MAX_COLUMNS = 3  # largest number of logos side by side
_THINNEST = 0.006  # height of the smallest drawn letter of a logo, as a share of the height of its panel
_LETTER = 0.17  # width of a letter in `draw_sequence_figure`, in inches
_STRONGEST = 0.75  # opacity of the strongest colour behind a letter


@require_matplotlib
def draw_logo_figure(motif: AttendedMotif, *, top: float | None = None) -> Figure:
    """Draw a motif as a sequence logo.

    Parameters
    ----------
    motif
        Motif; the heights of the letters in bits are its `information`, (W, 20) in the order of `AMINO_ACIDS`.
    top
        Upper end of the axis in bits, see `compute_logo_top`, so that several logos have one scale; None fits this one.

    Raises
    ------
    InputError
        If logomaker is not installed.
    """
    heights = _validate_heights(motif)
    figure, axis = make_panel(0.42 * len(heights) + 0.2, 1.3)
    _draw_logo(axis, heights)
    axis.set_ylim(0, _compute_top([heights]) if top is None else top)
    axis.set_xlabel("position in the motif")
    return figure


@require_matplotlib
def draw_logos_figure(motifs: Sequence[AttendedMotif]) -> Figure:
    """Draw several motifs as sequence logos on one scale, with their patterns and a legend of the colours.

    Parameters
    ----------
    motifs
        Motifs, see `draw_logo_figure`; they are numbered in this order.

    Raises
    ------
    InputError
        If there is no motif, or logomaker is not installed.
    """
    from matplotlib.figure import Figure

    if not motifs:
        raise InputError("no motif was found, so there is no logo to draw")
    all_heights = [_validate_heights(motif) for motif in motifs]
    columns = min(_MAX_COLUMNS, len(motifs))
    rows = -(-len(motifs) // columns)
    width, height, gap, above, left = 0.21 * max(map(len, all_heights)) + 0.2, 1.0, 0.5, 0.62, 0.6
    across, up = left + columns * (width + gap), rows * (height + above) + 0.5
    figure = Figure(figsize=(across, up))
    for i, (motif, heights) in enumerate(zip(motifs, all_heights, strict=True)):
        row, column = divmod(i, columns)
        x, y = left + column * (width + gap), up - (row + 1) * (height + above) + 0.2
        axis = figure.add_axes(
            (x / across, y / up, width * len(heights) / max(map(len, all_heights)) / across, height / up)
        )
        fix_ticks(axis)
        _draw_logo(axis, heights)
        axis.set_ylim(0, _compute_top(all_heights))
        axis.set_title(f"{i + 1}  {motif.pattern}", loc="left", fontsize=9, pad=4)
        if column:
            axis.set_ylabel("")
    _draw_chemistry_legend(figure, left / across, 0.25 / up)
    return figure


def _draw_chemistry_legend(figure: Figure, x: float, y: float) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour) for _, colour in _CHEMISTRY.values()]
    figure.legend(
        handles,
        [f"{name} ({letters})" for name, (letters, _) in _CHEMISTRY.items()],
        loc="upper left",
        bbox_to_anchor=(x, y),
        ncols=2,
        borderaxespad=0,
        borderpad=0,
        handlelength=1,
        handleheight=1,
    )


def _validate_heights(motif: AttendedMotif) -> NDArray[np.float64]:
    heights = np.asarray(motif.information, np.float64)
    if heights.ndim != 2 or heights.shape[1] != len(AMINO_ACIDS) or len(heights) == 0:
        raise InputError(f"motif {motif.pattern!r}: expected information of (W, 20), found {heights.shape}")
    return heights


def compute_logo_top(motifs: Sequence[AttendedMotif]) -> float:
    """Return the upper end of an axis in bits for all these motifs (at least one motif)."""
    return _compute_top([_validate_heights(motif) for motif in motifs])


def _compute_top(all_heights: Sequence[NDArray[np.float64]]) -> float:
    return 1.05 * max(0.1, *(float(np.maximum(heights, 0).sum(axis=1).max()) for heights in all_heights))


def _draw_logo(axis: Axes, heights: NDArray[np.float64]) -> None:
    """Draw the letters of a logo; `heights` are bits, (W, 20)."""
    if importlib.util.find_spec("logomaker") is None:
        raise InputError("the logos need logomaker: pip install 'deeprc[interpret]'")
    from logomaker import Logo

    table = pd.DataFrame(heights, index=np.arange(1, len(heights) + 1), columns=list(AMINO_ACIDS))
    colours = {letter: colour for letters, colour in _CHEMISTRY.values() for letter in letters}
    logo = Logo(table, ax=axis, color_scheme=colours, font_name="DejaVu Sans", font_weight="bold", show_spines=False)
    logo.style_spines(spines=["left"], visible=True, color=INK, linewidth=0.8)
    for letter in [patch for patch in axis.patches if patch.get_extents().height < _THINNEST * axis.bbox.height]:
        letter.remove()  # too thin to be seen, like most letters of a logo
    step = 1 if len(heights) <= 12 else 2
    axis.set_xticks(range(1, len(heights) + 1, step))
    axis.tick_params(axis="x", length=0)
    axis.set_ylabel("bits")


@require_matplotlib
def draw_kernels_figure(kernels: ArrayLike, *, output: str = "the output", colour_index: int | None = None) -> Figure:
    """Draw the mean contribution of each kernel to an output over sequences, as bars, highest first.

    Parameters
    ----------
    kernels
        Contributions of the kernels, (n, D); kernels are numbered from 1. If there are more than 20, the 20 strongest
        are drawn.
    output
        Name of the output, for the axis.
    colour_index
        Index of the class to which they contribute, see `index_classes`, for its colour; None is black or grey.

    Raises
    ------
    InputError
        If there is no sequence or no kernel.
    """
    values = np.asarray(kernels, np.float64)
    if values.ndim != 2 or values.size == 0:
        raise InputError(f"expected contributions of kernels to sequences of shape (n, D), found {values.shape}")
    mean = values.mean(axis=0)
    kept = np.argsort(-np.abs(mean), kind="stable")[:_MAX_KERNELS]
    kept = kept[np.argsort(-mean[kept], kind="stable")]
    figure, axis = make_panel(max(2.4, 0.16 * len(kept)), 2.0)
    above = mean[kept] >= 0
    colours = (INK if colour_index is None else get_class_colour(colour_index), MUTED)
    for selected, colour, hatch in ((above, colours[0], None), (~above, colours[1], "////")):
        fill: dict[str, Any] = {"facecolor": "none", "hatch": hatch} if hatch else {"facecolor": colour}
        axis.bar(np.flatnonzero(selected), mean[kept][selected], 0.72, edgecolor=colour, linewidth=0.8, **fill)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xticks(range(len(kept)), [str(kernel + 1) for kernel in kept], rotation=90 if len(kept) > 12 else 0)
    axis.tick_params(axis="x", length=0, labelsize=7)
    axis.set(xlim=(-0.7, len(kept) - 0.3), ylabel=f"mean contribution to {shorten_name(output, 20)}")
    left_out = len(mean) - len(kept)
    axis.set_xlabel("kernel" + (f" (the strongest {len(kept)} of {len(mean)})" if left_out else ""))
    draw_grid(axis, "y")
    return figure


@require_matplotlib
def draw_sequence_figure(junction_aa: Sequence[str], values: ArrayLike, *, output: str = "the output") -> Figure:
    """Draw sequences as letters; the colour behind a letter shows the contribution of the residue to an output.

    A bar at the upper edge of a letter marks a positive contribution, and one at the lower edge a negative one, so that
    signs can be seen without colour.

    Parameters
    ----------
    junction_aa
        The n sequences, drawn from the top.
    values
        Contributions of their residues, (n, L); values beyond the end of a sequence are ignored.
    output
        Name of the output, for the scale.

    Raises
    ------
    InputError
        If there is no sequence, or if there are fewer values than residues.
    """
    numbers = np.asarray(values, np.float64)
    sequences = [str(sequence) for sequence in junction_aa]
    longest = max(map(len, sequences), default=0)
    if longest == 0 or numbers.ndim != 2 or len(numbers) != len(sequences) or numbers.shape[1] < longest:
        raise InputError(
            f"values: expected shape ({len(sequences)}, L) with L of at least {longest}, found {numbers.shape}"
        )
    known = np.concatenate([numbers[i, : len(sequence)] for i, sequence in enumerate(sequences)])
    strongest = float(np.nanmax(np.abs(known))) or 1.0
    figure, axis = make_panel(_LETTER * max(longest, 20), 0.24 * len(sequences), left=0.1, bottom=0.6)
    for row, sequence in enumerate(sequences):
        for position, letter in enumerate(sequence):
            _draw_tile(axis, position, row, numbers[row, position] / strongest)
            axis.text(position + 0.5, row + 0.52, letter, ha="center", va="center", fontsize=9, family="monospace")
    axis.set(xlim=(0, max(longest, 20)), ylim=(len(sequences), -0.1))
    axis.set_axis_off()
    _draw_colour_scale(figure, axis, strongest, output)
    return figure


def _draw_tile(axis: Axes, x: float, y: float, strength: float) -> None:
    """Colour the background of a letter by a strength from -1 to 1."""
    from matplotlib.patches import Rectangle

    if np.isnan(strength) or strength == 0:
        return
    colour = COLOURS[1] if strength > 0 else COLOURS[0]
    size = abs(strength)
    look: dict[str, Any] = {"facecolor": colour, "edgecolor": "none"}
    axis.add_patch(Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, alpha=round(_STRONGEST * size, 3), **look))
    if size >= 0.1:
        thick = 0.04 + 0.1 * size
        axis.add_patch(Rectangle((x + 0.03, y + 0.06 if strength > 0 else y + 0.94 - thick), 0.94, thick, **look))


def _draw_colour_scale(figure: Figure, above: Axes, strongest: float, output: str) -> None:
    """Draw the scale of the colours below the sequences."""
    box, (across, up) = above.get_position(), figure.get_size_inches()
    axis = figure.add_axes((box.x0 + 2 * _LETTER / across, box.y0 - 0.36 / up, 9 * _LETTER / across, 0.24 / up))
    for i, strength in enumerate(np.linspace(-1, 1, 9)):
        _draw_tile(axis, i, 0, strength)
    axis.set(xlim=(0, 9), ylim=(1, -0.1))
    axis.set_axis_off()
    highest_text = f"+{strongest:.2g}: what a residue adds to {output}"
    for x, text, side in ((-0.2, f"\u2212{strongest:.2g}", "right"), (4.5, "0", "center"), (9.2, highest_text, "left")):
        axis.text(x, 0.52, text, ha=side, va="center", fontsize=8)
