"""How the pictures of docs/ look."""

from __future__ import annotations

import importlib.util
from typing import Any

import click

# Okabe and Ito's colours, which colour-blind people tell apart; lines differ in their dashes and markers too
BLACK, BLUE, GREEN, RED, PURPLE = "#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7"
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
