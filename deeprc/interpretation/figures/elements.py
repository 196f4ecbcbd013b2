"""Elements that several figures use: panels, legends, ticks, and styles of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.drawing import CLASS_COLOURS, DASHES, GRID, INK, MARKERS, MUTED, shorten_name
from deeprc.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "choose_class_styles",
    "draw_diagonal",
    "draw_grid",
    "draw_legend_below",
    "escape_legend_text",
    "fix_ticks",
    "get_class_colour",
    "group_by_class",
    "make_panel",
    "set_count_ticks",
    "set_percent_ticks",
    "spread_points",
]

_SMALL = 8
_MAX_LEGEND_LETTERS = 84  # in a line of a legend
_OUT = 0.4  # inches
_DOWN = 0.48  # inches from a panel to its legend
_LEAST_RATIO = 1.3  # between two counts whose texts do not overlap


def make_panel(width: float, height: float, *, left: float = 0.6, bottom: float = 0.5) -> tuple[Figure, Axes]:
    """Return a figure with one panel of this size in inches; texts around it make the saved picture larger."""
    from matplotlib.figure import Figure

    across, up = width + left + 0.15, height + bottom + 0.15
    figure = Figure(figsize=(across, up))
    axis = figure.add_axes((left / across, bottom / up, width / across, height / up))
    fix_ticks(axis)
    return figure, axis


def fix_ticks(axis: Axes) -> None:
    """Make the ticks now, because matplotlib makes them late, with the settings at that time."""
    axis.tick_params(axis="both", which="both", colors=INK, labelsize=_SMALL, width=0.8)
    axis.tick_params(axis="both", which="major", length=3.5)
    axis.tick_params(axis="both", which="minor", length=2, width=0.5)


def draw_legend_below(axis: Axes, entries: Mapping[str, Any], *, columns: int = 1) -> None:
    """Put a legend below the panel, under its lower edge; `entries` has the drawn object of each text.

    It begins left of the panel, under the ticks, so that long texts rarely widen the picture. Very long ones are
    shortened.
    """
    inches = axis.bbox.transformed(axis.figure.dpi_scale_trans.inverted())
    axis.legend(
        entries.values(),
        [shorten_name(text, _MAX_LEGEND_LETTERS // columns) for text in entries],
        loc="upper left",
        bbox_to_anchor=(-_OUT / inches.width, -_DOWN / inches.height),
        borderaxespad=0,
        borderpad=0,
        handlelength=2.6,
        ncols=columns,
    )


def escape_legend_text(name: str) -> str:
    """Return a name for a legend, changed so that matplotlib does not omit it if it begins with an underscore."""
    return f" {name}" if name.startswith("_") else name


def set_percent_ticks(axis: Axes, dimension: str, ticks: Sequence[float]) -> None:
    """Set ticks of shares from 0 to 1 that are shown in per cent: 0.001 is 0.1%."""
    _set_ticks(axis, dimension, ticks, [f"{100 * tick:g}%" for tick in ticks])


def set_count_ticks(axis: Axes, dimension: str, low: float, high: float) -> None:
    """Set ticks of a logarithmic axis of counts: 1, 10, 100, 1,000; also 3, 30, 300 if there are few.

    If fewer than two of them are in the range, the ticks are its ends, or the upper end if their texts would overlap.
    """
    tens = [10**power for power in range(int(np.log10(low)), int(np.log10(high)) + 1)]
    ticks = [m * ten for ten in tens for m in ((1, 3) if len(tens) < 4 else (1,)) if low <= m * ten <= high]
    if len(ticks) < 2:
        ticks = [low, high] if high > _LEAST_RATIO * low else [high]
    _set_ticks(axis, dimension, ticks, [f"{int(tick) if tick >= 1 else tick:,}" for tick in ticks])


def _set_ticks(axis: Axes, dimension: str, ticks: Sequence[float], texts: Sequence[str]) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    side = axis.xaxis if dimension == "x" else axis.yaxis
    side.set_major_locator(FixedLocator(ticks))
    side.set_major_formatter(FixedFormatter(texts))
    side.set_minor_locator(NullLocator())


def group_by_class(table: pd.DataFrame, classes: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """Return the rows of the repertoires of each class, in the order in which `classes` names the classes.

    Parameters
    ----------
    table
        Table with a column repertoire_id.
    classes
        Class of each repertoire, by its id, a dictionary or a Series; repertoires that it lacks are left out.

    Raises
    ------
    InputError
        If no row is left.
    """
    class_of = {str(key): str(value) for key, value in dict(classes).items() if not pd.isna(value)}
    class_of_row = table["repertoire_id"].astype(str).map(class_of)
    parts = {name: table[class_of_row == name] for name in dict.fromkeys(class_of.values())}
    parts = {name: part for name, part in parts.items() if len(part)}
    if not parts:
        raise InputError("no repertoire with sequences has a class")
    return parts


def get_class_colour(colour_index: int) -> str:
    """Return the colour of a class from its index, see `index_classes`."""
    return CLASS_COLOURS[colour_index % len(CLASS_COLOURS)]


def choose_class_styles(
    names: Sequence[str], colour_of_class: Mapping[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """Return colour, dashes and marker of each class, which can be distinguished without colour, too.

    `colour_of_class` has the index of each class among all classes of the run, see `index_classes`. A name that it
    lacks is not a class and is drawn with `INK`. Without `colour_of_class`, the index is the position in `names`.
    """
    markers = [marker for marker in MARKERS if marker]
    known = dict(zip(names, range(len(names)), strict=True)) if colour_of_class is None else colour_of_class
    return {
        name: {
            "color": get_class_colour(known[name]) if name in known else INK,
            "dashes": DASHES[i % len(DASHES)],
            "marker": markers[i % len(markers)],
        }
        for i, name in enumerate(names)
    }


def spread_points(n: int) -> NDArray[np.float64]:
    """Return n separate positions from -0.5 to 0.5, (n,), always the same: multiples of the golden ratio."""
    return np.asarray((np.arange(1, n + 1) * 0.6180339887498949) % 1 - 0.5)


def draw_grid(axis: Axes, dimension: Literal["both", "x", "y"]) -> None:
    """Draw grid lines for one or both axes, behind everything else."""
    axis.grid(visible=True, axis=dimension, color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)


def draw_diagonal(axis: Axes, low: float = 0.0, high: float = 1.0) -> Any:
    """Draw the line of y = x and return it."""
    (line,) = axis.plot([low, high], [low, high], color=MUTED, linewidth=0.8, dashes=(4, 3), zorder=0)
    return line
