"""What every page is made of: tables, figures, cautions, and the template that puts them into one HTML file."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from deeprc.drawing import CLASS_COLOURS
from deeprc.errors import InputError, show_parameters
from deeprc.files import check_output_path, write_text
from deeprc.versions import package_version

__all__ = [
    "DASH",
    "Cell",
    "Column",
    "Figure",
    "Table",
    "check_report_output",
    "download",
    "number",
    "percent",
    "render",
    "swatch",
    "text",
    "today",
    "write_page",
]

DASH = "\N{EN DASH}"
"""Shown where there is nothing."""

_GENERATOR = '<meta name="generator" content="deeprc'
_HEAD = 2000  # characters of a file in which its generator is looked for


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes
    ----------
    text
        What is shown; text is escaped, `Markup` is not.
    value
        By which the column is sorted; None where nothing is known.
    """

    text: str
    value: float | str | None = None


@dataclass(frozen=True)
class Column:
    """A column: its heading, whether it holds numbers (set to the right), and what the heading means in full."""

    label: str
    is_number: bool = True
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    name
        Its id in the page.
    caption
        What it shows; also the name by which screen readers announce it.
    columns, rows
        The first cell of a row is its heading.
    sortable, searchable
        Whether headings become buttons, and what the search box is called; "" for none.
    sorted_by
        The column by which the rows come sorted, highest first.
    download
        A link to the whole table, see `download`, and what it is called.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    sortable: bool = False
    searchable: str = ""
    sorted_by: int | None = None
    download: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Figure:
    """A picture: an `<svg>` element with its description inside, and what stands below it."""

    svg: str
    caption: str


def swatch(place: int) -> Markup:
    """Return a small square in the colour of a class, see `class_places`, to put before its name."""
    return Markup('<span class="swatch class-{}" aria-hidden="true"></span>').format(place % len(CLASS_COLOURS))


def text(value: object) -> Cell:
    """Return a cell of text, sorted by it; an empty one for None."""
    return Cell("", None) if value is None else Cell(str(value), str(value))


def number(value: Any, form: str = ",.3f") -> Cell:
    """Return a cell of a number in this format; a dash where there is none or it is NaN."""
    if value is None or math.isnan(value):
        return Cell(DASH, None)
    return Cell(f"{value:{form}}".replace("-", "\N{MINUS SIGN}"), float(value))


def percent(value: Any, digits: int = 1) -> Cell:
    """Return a cell of a share as a percentage; a dash where there is none or it is NaN."""
    return number(value, f".{digits}%")


def today() -> str:
    """Return the date as it is written in a sentence, in UTC."""
    now = datetime.now(timezone.utc)
    return f"{now.day} {now:%B %Y}"


def download(table: str, name: str, label: str) -> tuple[str, str, str]:
    """Return a link to tab-separated text that is part of the page: its address, the file's name, what it says."""
    encoded = base64.b64encode(table.encode("utf-8")).decode("ascii")
    return f"data:text/tab-separated-values;charset=utf-8;base64,{encoded}", name, label


def check_report_output(path: Path) -> None:
    """Refuse a path at which a report cannot be written, before anything is computed.

    An existing file is replaced only if it is a report.

    Raises
    ------
    InputError
        If no file can be written at `path`, or there is anything but a report.
    """
    check_output_path(path)
    if path.exists():
        try:
            with path.open(encoding="utf-8") as file:
                is_report = _GENERATOR in file.read(_HEAD)
        except (OSError, UnicodeDecodeError):
            is_report = False
        if not is_report:
            raise InputError(f"{path}: exists and is no report of deeprc; choose another `output`")


def render(template: str, **content: Any) -> str:
    """Return a page: one of the templates here, with the style sheet and the script inside.

    Only this page's own script may run, by its hash, and nothing may be loaded: a `Content-Security-Policy` says so.
    """
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show_parameters"] = show_parameters
    script = _source("table.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    return environment.get_template(template).render(
        generator=f"deeprc {package_version('deeprc')}",
        policy=policy,
        style=Markup(_source("style.css") + _class_styles()),
        script=Markup(script),
        **content,
    )


def _class_styles() -> str:
    """Return the style of each class: its colour, which swatches and shaded residues take."""
    return "".join(f".class-{place} {{ --class: {colour}; }}\n" for place, colour in enumerate(CLASS_COLOURS))


def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def write_page(path: Path, template: str, **content: Any) -> None:
    """Write a page aside and rename it; parameters as `render`."""
    check_report_output(path)
    write_text(path, render(template, **content))
