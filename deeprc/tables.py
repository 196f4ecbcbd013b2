"""Reading of tab-separated tables that a command has written, with checks of the type and limits of each column."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from deeprc.documents import NOT_ALLOWED_IN_TEXT, abbreviate
from deeprc.errors import InputError
from deeprc.files import read_limited

__all__ = ["ColumnSchema", "check_width", "read_table"]

_MAX_BYTES = 256 << 20
_MAX_COLUMNS = 1000
_MAX_HEADER_BYTES = 4 << 20
_MAX_INTEGER = 2.0**53  # float64 cannot represent all larger whole numbers
_MAX_NUMBER = 1e30  # means and figures of larger numbers may overflow


@dataclass(frozen=True)
class ColumnSchema:
    """Expected values of a column of a table.

    Attributes
    ----------
    kind
        `text`, `number` (finite), `integer` (a whole number), or `boolean` (True or False).
    low, high
        Smallest and largest number.
    optional
        Whether the column may be missing.
    may_be_empty
        Whether values may be missing (NaN in the result).
    choices
        Allowed values of a text column; if empty, any text.
    """

    kind: Literal["text", "number", "integer", "boolean"] = "text"
    low: float = -_MAX_NUMBER
    high: float = _MAX_NUMBER
    optional: bool = False
    may_be_empty: bool = False
    choices: tuple[str, ...] = ()


def read_table(path: Path, columns: Mapping[str, ColumnSchema]) -> pd.DataFrame:
    """Return the described columns of a table, without its other columns.

    Text has the type object. Numbers are float64, or int64 if they are whole and none is missing.

    Raises
    ------
    InputError
        If the file is missing, is not a table, lacks a required column, or has a value that its column does not allow.
    """
    cells = _read_cells(path)
    header = ["" if pd.isna(name) else str(name) for name in cells.iloc[0]]
    for name, column in columns.items():
        if header.count(name) > 1:
            raise InputError(f"{path}: expected one column {name!r}, found {header.count(name)}")
        if name not in header and not column.optional:
            raise InputError(f"{path}: expected a column {name!r}, found {', '.join(map(abbreviate, header[:20]))}")
    rows = cells.iloc[1:].reset_index(drop=True)
    columns_by_name = {name: _convert_column(rows[header.index(name)], column, f"{path}: column {name!r}")
             for name, column in columns.items() if name in header}  # fmt: skip
    return pd.DataFrame(columns_by_name, columns=list(columns_by_name))


def _read_cells(path: Path) -> pd.DataFrame:
    """Return all cells as text, including the header; an empty cell is missing."""
    content = read_limited(path, limit=_MAX_BYTES, expected="a table")
    check_width(path, content)
    try:
        return pd.read_csv(
            io.BytesIO(content), sep="\t", header=None, dtype=object, keep_default_na=False, na_values=[""]
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise InputError(f"{path}: is not a table: {' '.join(str(error).split())[:200]}") from error


def check_width(path: Path, content: bytes) -> None:
    """Check that a table has at most a thousand columns, before pandas reads it: it needs minutes for a million.

    Raises
    ------
    InputError
        If the first row, which may have line breaks in quotes, has more fields or is too long.
    """
    start = io.TextIOWrapper(io.BytesIO(content[:_MAX_HEADER_BYTES]), encoding="utf-8", errors="replace", newline="")
    rows = filter(None, csv.reader(start, delimiter="\t"))
    try:
        n_columns, has_ended = len(next(rows, [])), len(content) <= _MAX_HEADER_BYTES or next(rows, None) is not None
    except csv.Error as error:
        raise InputError(f"{path}: is not a table: {error}") from error
    if n_columns > _MAX_COLUMNS:
        raise InputError(f"{path}: has too many columns; expected at most {_MAX_COLUMNS}")
    if not has_ended:
        raise InputError(f"{path}: is not a table: its first row has over {_MAX_HEADER_BYTES >> 20} MiB")


def _convert_column(cells: pd.Series, column: ColumnSchema, where: str) -> pd.Series:
    """Convert the cells of a column to its type; InputError names the first row that does not fit."""
    missing = cells.isna()
    if column.kind == "text":
        is_text = ~missing & ~cells.str.contains(NOT_ALLOWED_IN_TEXT, na=False).astype(bool)
        fits = cells.isin(column.choices) if column.choices else is_text
        wrong, values = ~(fits | (missing & column.may_be_empty)), cells
        expected = f"one of {', '.join(column.choices)}" if column.choices else "text without control characters"
    elif column.kind == "boolean":
        wrong, values, expected = ~cells.isin(["True", "False"]), cells == "True", "True or False"
    else:
        values = pd.to_numeric(cells, errors="coerce").astype(np.float64)
        is_integer = column.kind == "integer"
        low, high = column.low, column.high
        if is_integer:
            low, high = max(low, -_MAX_INTEGER), min(high, _MAX_INTEGER)
        fits = values.between(low, high) & ((values % 1 == 0) if is_integer else True)
        wrong = ~(fits | (missing & column.may_be_empty))
        expected = f"{'a whole number' if is_integer else 'a number'} from {low:g} to {high:g}"
        if is_integer and not missing.any() and not wrong.any():
            values = values.astype(np.int64)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        found = "nothing" if missing.iloc[row] else abbreviate(cells.iloc[row])
        raise InputError(f"{where}, row {row + 2}: expected {expected}, found {found}")
    return values
