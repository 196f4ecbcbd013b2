"""Small tables and pictures in HTML for notebooks, in light and dark mode, without scripts and matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["render_details", "render_histogram", "render_interval", "render_table"]

_COLOUR = "#0072B2"
_WIDTH, _HEIGHT = 160, 34
_CELL = 'style="text-align:left;vertical-align:top"'


def render_details(title: str, rows: Iterable[tuple[str, str]], *below: str) -> str:
    """Return a title, a table of labels and texts, and elements below the table, as HTML; all texts are escaped."""
    lines = "".join(f"<tr><th {_CELL}>{escape(label)}</th><td {_CELL}>{escape(text)}</td></tr>" for label, text in rows)
    return f"<div><strong>{escape(title)}</strong><table>{lines}</table>{''.join(below)}</div>"


def render_table(columns: Sequence[str], rows: Iterable[Sequence[str]], pictures: Sequence[str] = ()) -> str:
    """Return a table of texts as HTML, with a picture at the end of each row; the texts are escaped."""
    heads = "".join(f"<th {_CELL}>{escape(name)}</th>" for name in columns) + ("<th></th>" if pictures else "")
    body = []
    for index, row in enumerate(rows):
        cells = "".join(f"<td {_CELL}>{escape(cell)}</td>" for cell in row)
        body.append(f"<tr>{cells}{f'<td>{pictures[index]}</td>' if pictures else ''}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def render_interval(low: float, value: float, high: float, *, chance: float | None = None) -> str:
    """Return a picture of a number from 0 to 1 with its interval and the level of chance; "" if a number is NaN."""
    if not all(map(math.isfinite, (low, value, high))):
        return ""
    x_values = [round(min(max(number, 0.0), 1.0) * (_WIDTH - 8) + 4, 1) for number in (low, value, high)]
    dashed = ""
    if chance is not None:
        x = round(chance * (_WIDTH - 8) + 4, 1)
        dashed = f'<line x1="{x}" x2="{x}" y1="1" y2="13" stroke="currentColor" stroke-dasharray="2 2"/>'
    return (
        f'<svg role="img" aria-label="{value:.3f}, {low:.3f} to {high:.3f}" width="{_WIDTH}" height="14">{dashed}'
        f'<line x1="{x_values[0]}" x2="{x_values[2]}" y1="7" y2="7" stroke="{_COLOUR}" stroke-width="2"/>'
        f'<circle cx="{x_values[1]}" cy="7" r="4" fill="{_COLOUR}"/></svg>'
    )


def render_histogram(values: Sequence[float], label: str, *, n_bars: int = 20) -> str:
    """Return a histogram of values as HTML, with the smallest and largest value below it; "" without values."""
    if not len(values):
        return ""
    low, high = float(min(values)), float(max(values))
    counts = [0] * n_bars
    for value in values:
        counts[min(int((value - low) / (high - low or 1.0) * n_bars), n_bars - 1)] += 1
    width = _WIDTH / n_bars
    bars = "".join(
        f'<rect x="{index * width:.1f}" y="{_HEIGHT * (1 - n / max(counts)):.1f}" width="{width - 1:.1f}" '
        f'height="{_HEIGHT * n / max(counts):.1f}" fill="{_COLOUR}"/>'
        for index, n in enumerate(counts)
        if n
    )
    text = f"{label}: {low:,.0f} to {high:,.0f}"
    return (
        f'<figure style="margin:4px 0"><svg role="img" aria-label="{escape(text)}" width="{_WIDTH}" height="{_HEIGHT}">'
        f"{bars}</svg><figcaption><small>{escape(text)}</small></figcaption></figure>"
    )
