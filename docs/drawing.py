"""Style of the pictures in docs/, and a function that writes them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deeprc.drawing import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, RED, GREEN, PURPLE = COLOURS
BLACK = "#000000"
SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "figure.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.markersize": 4,
    "svg.hashsalt": "deeprc",
}


def need_matplotlib() -> None:
    """End the script with one line if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        click.echo("Error: the pictures need matplotlib: pip install 'deeprc[plots]'", err=True)
        raise SystemExit(2)


def write_picture(draw: Callable[[], Figure], path: Path, **options: Any) -> None:
    """Draw a figure and write it, always as the same bytes; the options are those of `Figure.savefig`."""
    import matplotlib as mpl

    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with mpl.rc_context(SETTINGS):
        draw().savefig(path, metadata=metadata, **options)
