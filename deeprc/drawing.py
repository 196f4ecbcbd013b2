"""How the project's pictures look and are saved: colours, lines, sizes of type; PNG, SVG and PDF.

The pictures are matplotlib figures, made without pyplot, so drawing them leaves no state behind.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from deeprc.caches import prepare_caches
from deeprc.errors import InputError
from deeprc.files import check_place, write_aside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "CLASS_COLOURS",
    "COLOURS",
    "DASHES",
    "GRID",
    "INK",
    "MARKERS",
    "MUTED",
    "SETTINGS",
    "check_figure_path",
    "draws",
    "save_figure",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Blue, vermilion, green and purple of Okabe and Ito, which colour-blind people tell apart.

These four stand out from white and from a dark page by 3 to 1 or more; the others of the eight do not.
"""

CLASS_COLOURS = (*COLOURS, "#7A68D8", "#8F7000")
"""Of the classes of a run's targets, in their order: one colour for a class in all figures and tables.

What is not of a class (sides of the split, attended genes) is drawn with ink, by its line and marker.
"""

DASHES = ((), (6, 2), (1.5, 1.5), (6, 2, 1.5, 2), (10, 3, 3, 3), (3, 1.5))
MARKERS = ("", "o", "^", "s", "x", "D")

INK = "#000001"
"""Black to the eye. Of black itself the SVG writer says nothing, so it could not be found there again."""

MUTED = "#767676"
"""What is beside the point: chance, controls, notes."""

GRID = "#cccccc"

SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": INK,
    "text.parse_math": False,  # names may hold a dollar
    "legend.frameon": False,
    "legend.fontsize": 8,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "deeprc",
    "pdf.fonttype": 42,
}
"""matplotlib's, while a figure is drawn and while it is saved."""

_DPI = 300
SCREEN_DPI = 150
"""Dots per inch of figures that are looked at on a screen."""
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_BEGINNINGS = {"png": (b"\x89PNG",), "svg": (b"<?xml", b"<svg"), "pdf": (b"%PDF",)}
_P = ParamSpec("_P")
_R = TypeVar("_R")


def draws(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function draw with `SETTINGS`, and say what to install where matplotlib is missing."""

    @functools.wraps(function)
    def draw(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if importlib.util.find_spec("matplotlib") is None:
            raise InputError("the figures need matplotlib: pip install 'deeprc[plots]'")
        prepare_caches()
        from matplotlib import rc_context

        with rc_context(SETTINGS):
            return function(*args, **kwargs)

    return draw


def check_figure_path(path: Path | str) -> str:
    """Return the format that a path's ending asks for, before anything is computed.

    Raises
    ------
    InputError
        If the ending is none of .png, .svg and .pdf, the folder does not exist or cannot be written to, or there is
        something else at `path` than a picture of that format.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InputError(f"{path}: expected a name that ends in .png, .svg or .pdf")
    check_place(path)
    if path.exists():
        with path.open("rb") as file:
            begins = file.read(8)
        if begins and not begins.startswith(_BEGINNINGS[kind]):
            raise InputError(f"{path}: exists and is no {kind.upper()}; choose another `output`")
    return kind


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Let a logger only warn: fontTools tells of every glyph that a PDF takes."""
    talker = logging.getLogger(name)
    level = talker.level
    talker.setLevel(logging.WARNING)
    try:
        yield
    finally:
        talker.setLevel(level)


@draws
def save_figure(figure: Figure, path: Path | str, *, dpi: int = _DPI) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending; on white, byte for byte the same each time.

    It is written aside first, then renamed.

    Parameters
    ----------
    figure
        Whatever stands around its axes widens the picture.
    path
        A picture of the same format is replaced.
    dpi
        Pixels per inch of a PNG.

    Raises
    ------
    InputError
        As `check_figure_path`, or if matplotlib is not installed.
    """
    kind = check_figure_path(path)
    picture = io.BytesIO()  # Pillow does not say why it could not write to a file
    with _quiet("fontTools"):
        figure.savefig(picture, format=kind, dpi=dpi, metadata=_METADATA[kind], bbox_inches="tight", facecolor="white")
    with write_aside(Path(path)) as aside:
        aside.write_bytes(picture.getvalue())
