"""How the pictures of docs/ look."""

from __future__ import annotations

import importlib.util
from typing import Any

import click

from deeprc.drawing import COLOURS

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
    """End with one line where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        click.echo("Error: the pictures need matplotlib: pip install 'deeprc[plots]'", err=True)
        raise SystemExit(2)
