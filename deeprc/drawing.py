"""Style of all figures (colours, lines, font sizes), and a function that saves them as PNG, SVG or PDF.

Figures are matplotlib figures that are made without pyplot, so drawing does not change global state.
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
from deeprc.files import check_output_path, write_atomically

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
    "require_matplotlib",
    "save_figure",
    "save_for_screen",
    "shorten_name",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Blue, vermilion, green and purple of Okabe and Ito, which colour-blind people can distinguish.

These four have a contrast of at least 3 to 1 against a white and a dark page; the other four of their palette do not.
"""

CLASS_COLOURS = (*COLOURS, "#7A68D8", "#8F7000")
"""Colours of the classes of a run's targets, in their order. A class has one colour in all figures and tables.

Everything else (parts of the split, attended genes) is drawn with `INK` and distinguished by its line and marker.
"""

DASHES = ((), (6, 2), (1.5, 1.5), (6, 2, 1.5, 2), (10, 3, 3, 3), (3, 1.5))
MARKERS = ("", "o", "^", "s", "x", "D")

INK = "#000001"
"""Colour that looks black. matplotlib does not write true black into an SVG, so dark mode could not replace it."""

MUTED = "#767676"
"""Colour of secondary parts: the level of chance, controls, notes."""

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
    "text.parse_math": False,  # names may contain a dollar sign
    "legend.frameon": False,
    "legend.fontsize": 8,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",  # text is saved as text, not as curves
    "svg.hashsalt": "deeprc",
    "pdf.fonttype": 42,
}
"""Settings of matplotlib while a figure is drawn and while it is saved."""

_DPI = 300
SCREEN_DPI = 150
"""Dots per inch of figures for the screen."""
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_MAGIC_BYTES = {"png": (b"\x89PNG",), "svg": (b"<?xml", b"<svg"), "pdf": (b"%PDF",)}
_P = ParamSpec("_P")
_R = TypeVar("_R")


def shorten_name(name: str, max_letters: int) -> str:
    """Return a name of one line and at most `max_letters`, with an ellipsis in the middle of a longer one.

    Long names, such as those of classes, often differ at their end.
    """
    line = " ".join(name.split()) if "\n" in name else name
    if len(line) <= max_letters:
        return line
    n_last = (max_letters - 1) // 2
    return f"{line[: max_letters - 1 - n_last]}…{line[len(line) - n_last :]}"


def require_matplotlib(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function draw with `SETTINGS`; without matplotlib, it raises an InputError that says what to install."""

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
    """Check the path of a figure before anything is computed; return its format: `png`, `svg` or `pdf`.

    Raises
    ------
    InputError
        If the ending is none of .png, .svg and .pdf, if the folder does not exist or cannot be written, or if `path` is
        an existing file that is not a picture of this format.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InputError(f"{path}: expected a name that ends in .png, .svg or .pdf")
    check_output_path(path)
    if path.exists():
        with path.open("rb") as file:
            first_bytes = file.read(8)
        if first_bytes and not first_bytes.startswith(_MAGIC_BYTES[kind]):
            raise InputError(f"{path}: exists and is not a {kind.upper()} file; choose another `output`")
    return kind


@contextlib.contextmanager
def _log_warnings_only(name: str) -> Iterator[None]:
    """Let a logger show warnings only within this context; fontTools logs every glyph of a PDF."""
    other_logger = logging.getLogger(name)
    level = other_logger.level
    other_logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        other_logger.setLevel(level)


@require_matplotlib
def save_figure(figure: Figure, path: Path | str, *, dpi: int = _DPI) -> None:
    """Write a figure as PNG, SVG or PDF, according to the ending of the path.

    The background is white, and the same figure gives the same bytes. The file is written under a temporary name and
    then renamed.

    Parameters
    ----------
    figure
        The figure. Everything around its axes is visible, too.
    path
        Path of the file. An existing picture of the same format is replaced.
    dpi
        Pixels per inch of a PNG.

    Raises
    ------
    InputError
        As in `check_figure_path`; or if matplotlib is not installed.
    """
    kind = check_figure_path(path)
    picture = io.BytesIO()  # Pillow does not say why it cannot write to a file
    with _log_warnings_only("fontTools"):
        figure.savefig(picture, format=kind, dpi=dpi, metadata=_METADATA[kind], bbox_inches="tight", facecolor="white")
    with write_atomically(Path(path)) as temporary_path:
        temporary_path.write_bytes(picture.getvalue())


def save_for_screen(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as `STEM.png` and `STEM.svg` (`save_figure`), and return both paths; the stem may have dots."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        save_figure(figure, path, dpi=SCREEN_DPI)
    return paths
