"""Parts of every page: tables, figures, and the template that puts them into one HTML file."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from deeprc.drawing import CLASS_COLOURS
from deeprc.errors import InputError, show_parameters
from deeprc.evaluation.significance import format_p_value
from deeprc.files import check_output_path, write_text
from deeprc.versions import package_version

__all__ = [
    "DASH",
    "Cell",
    "Column",
    "Download",
    "Figure",
    "Table",
    "check_report_output",
    "format_today",
    "make_download",
    "make_interval_cell",
    "make_number_cell",
    "make_p_cell",
    "make_percent_cell",
    "make_sortable_table",
    "make_swatch",
    "make_text_cell",
    "render",
    "write_page",
]

DASH = "\N{EN DASH}"
"""Text of an empty cell."""

_GENERATOR = '<meta name="generator" content="deeprc'
_HEAD = 2000  # number of characters of a file in which its generator is searched


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes
    ----------
    text
        Shown text; it is escaped unless it is `Markup`.
    value
        Value by which the column is sorted; None if nothing is known.
    """

    text: str
    value: float | str | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, whether it has numbers (aligned to the right), and a note on the heading."""

    label: str
    is_number: bool = field(default=True, kw_only=True)
    note: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    name
        Id of the table in the page.
    caption
        Caption of the table, also for screen readers.
    columns, rows
        Columns, and cells of each row; the first cell of a row is its heading.
    sortable, searchable
        Whether headings are buttons that sort, and label of the search box; "" for no box.
    sorted_by
        Index of the column by which the rows are already sorted, highest first.
    download
        Link to the whole table.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    sortable: bool = False
    searchable: str = ""
    sorted_by: int | None = None
    download: Download | None = None


@dataclass(frozen=True)
class Download:
    """A link to a file that is part of the page.

    Attributes
    ----------
    address
        Address, which contains the file.
    file_name
        Name under which the browser saves it.
    label
        Text of the link.
    """

    address: str
    file_name: str
    label: str


@dataclass(frozen=True)
class Figure:
    """A figure: an `<svg>` element, which contains its description, and its caption."""

    svg: str
    caption: str


def make_swatch(colour_index: int) -> Markup:
    """Return a small square in the colour of a class, for its index see `index_classes`, to put before its name."""
    return Markup('<span class="swatch class-{}" aria-hidden="true"></span>').format(colour_index % len(CLASS_COLOURS))


def make_text_cell(value: object) -> Cell:
    """Return a cell of text, which is sorted by this text; None gives an empty cell."""
    return Cell("", None) if value is None else Cell(str(value), str(value))


def make_number_cell(value: Any, form: str = ",.3f") -> Cell:
    """Return a cell of a number in this format; None and NaN give a dash."""
    if value is None or math.isnan(value):
        return Cell(DASH, None)
    return Cell(f"{value:{form}}".replace("-", "\N{MINUS SIGN}"), float(value))


def make_interval_cell(limits: Sequence[float] | None, form: str = ",.3f") -> Cell:
    """Return a cell of an interval, "0.6 to 0.8", that is sorted by the lower limit; None and NaN give a dash."""
    if limits is None or math.isnan(limits[0]):
        return make_number_cell(None)
    low, high = (make_number_cell(limit, form) for limit in limits)
    return Cell(f"{low.text} to {high.text}", low.value)


def make_p_cell(p_value: float) -> Cell:
    """Return a cell of a p-value; small ones show the power of ten, because they differ by many. NaN gives a dash."""
    if math.isnan(p_value):
        return make_number_cell(None)
    text = f"{p_value:.0e}".replace("-", "\N{MINUS SIGN}") if 0 < p_value < 0.001 else format_p_value(p_value)
    return Cell(text, p_value)


def make_percent_cell(value: Any, digits: int = 1) -> Cell:
    """Return a cell of a share as a percentage; None and NaN give a dash."""
    return make_number_cell(value, f".{digits}%")


def format_today() -> str:
    """Return the date in UTC, in the form for a sentence."""
    now = datetime.now(timezone.utc)
    return f"{now.day} {now:%B %Y}"


def make_download(table: str, file_name: str, label: str) -> Download:
    """Return a link to a table of tab-separated text, which becomes part of the page."""
    encoded = base64.b64encode(table.encode("utf-8")).decode("ascii")
    return Download(f"data:text/tab-separated-values;charset=utf-8;base64,{encoded}", file_name, label)


def make_sortable_table(
    name: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], full_table: pd.DataFrame
) -> Table:
    """Return a table whose headings sort it, with a link to a table of all rows, as `name` and ".tsv"."""
    text = full_table.to_csv(sep="\t", index=False)
    download = make_download(text, f"{name}.tsv", f"Save all {len(full_table):,} (TSV)")
    return Table(name, f"{caption}; press a heading to sort by it", columns, rows, sortable=True, download=download)


def check_report_output(path: Path) -> None:
    """Raise InputError if a report cannot be written to a path, before anything is computed.

    An existing file is replaced only if it is a report.

    Raises
    ------
    InputError
        If no file can be written at `path`, if it is an existing file but no report, or if its name ends in `.gz`.
    """
    check_output_path(path)
    if path.suffix == ".gz":
        raise InputError(f"{path}: a report is a web page, and browsers do not open packed files; leave out .gz")
    if path.exists():
        try:
            with path.open(encoding="utf-8") as file:
                is_report = _GENERATOR in file.read(_HEAD)
        except (OSError, UnicodeDecodeError):
            is_report = False
        if not is_report:
            raise InputError(f"{path}: exists and is not a report of deeprc; choose another `output`")


def render(template: str, **content: Any) -> str:
    """Return a page from a template of this package, with the style sheet and the script inside.

    A `Content-Security-Policy` allows only the script of this page, by its hash, and no loading from elsewhere.
    """
    environment = Environment(
        loader=FunctionLoader(_read_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show_parameters"] = show_parameters
    script = _read_source("table.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    return environment.get_template(template).render(
        generator=f"deeprc {package_version('deeprc')}",
        policy=policy,
        style=Markup(_read_source("style.css") + _class_styles()),
        script=Markup(script),
        **content,
    )


def _class_styles() -> str:
    """Return the style sheet with the colour of each class, for swatches and shaded residues."""
    return "".join(
        f".class-{colour_index} {{ --class: {colour}; }}\n" for colour_index, colour in enumerate(CLASS_COLOURS)
    )


def _read_source(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def write_page(path: Path, template: str, **content: Any) -> None:
    """Write a page under a temporary name, and rename it; for the parameters, see `render`."""
    check_report_output(path)
    write_text(path, render(template, **content))
