"""Tables of tab-separated values that a command has written, read back with the types and limits of their columns."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from deeprc.documents import shown
from deeprc.errors import InputError
from deeprc.files import read_limited

__all__ = ["Column", "read_table"]

_MOST_BYTES = 256 << 20
_MOST_COLUMNS = 1000
_WHOLE = 2.0**53  # larger ones are not exact in 64 bits of a float
_LARGEST = 1e30  # which figures and means can still be made of


@dataclass(frozen=True)
class Column:
    """What a column of a table holds.

    Attributes
    ----------
    kind
        `text`, `number` (finite), `whole` (a whole number), or `truth` (True or False).
    low, high
        Limits of numbers.
    optional
        Whether the column may be missing.
    may_be_empty
        Whether values may be missing: NaN.
    choices
        Of text, the only values that it may have; any if empty.
    """

    kind: Literal["text", "number", "whole", "truth"] = "text"
    low: float = -_LARGEST
    high: float = _LARGEST
    optional: bool = False
    may_be_empty: bool = False
    choices: tuple[str, ...] = ()


def read_table(path: Path, columns: Mapping[str, Column]) -> pd.DataFrame:
    """Return the columns of a table that are described, as far as the table has them; others are left out.

    Text is of type object, numbers are float64, or int64 where they are whole and none is missing.

    Raises
    ------
    InputError
        If the file is missing, is no table, lacks a column, or holds a value that its column may not hold.
    """
    cells = _cells(path)
    header = ["" if pd.isna(name) else str(name) for name in cells.iloc[0]]
    for name, column in columns.items():
        if header.count(name) > 1:
            raise InputError(f"{path}: expected one column {name!r}, found {header.count(name)}")
        if name not in header and not column.optional:
            raise InputError(f"{path}: expected a column {name!r}, found {', '.join(map(shown, header[:20]))}")
    rows = cells.iloc[1:].reset_index(drop=True)
    found = {name: _values(rows[header.index(name)], column, f"{path}: column {name!r}")
             for name, column in columns.items() if name in header}  # fmt: skip
    return pd.DataFrame(found, columns=list(found))


def _cells(path: Path) -> pd.DataFrame:
    """Return all cells as text, the header among them; an empty one is missing."""
    content = read_limited(path, limit=_MOST_BYTES, expected="a table")
    if content.split(b"\n", 1)[0].count(b"\t") >= _MOST_COLUMNS:
        raise InputError(f"{path}: has too many columns; expected at most {_MOST_COLUMNS}")
    try:
        return pd.read_csv(
            io.BytesIO(content), sep="\t", header=None, dtype=object, keep_default_na=False, na_values=[""]
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise InputError(f"{path}: is no table: {' '.join(str(error).split())[:200]}") from error


def _values(cells: pd.Series, column: Column, where: str) -> pd.Series:
    missing = cells.isna()
    if column.kind == "text":
        fits = cells.isin(column.choices) if column.choices else ~missing
        wrong, values = ~(fits | (missing & column.may_be_empty)), cells
        expected = f"one of {', '.join(column.choices)}" if column.choices else "text"
    elif column.kind == "truth":
        wrong, values, expected = ~cells.isin(["True", "False"]), cells == "True", "True or False"
    else:
        values = pd.to_numeric(cells, errors="coerce").astype(np.float64)
        whole = column.kind == "whole"
        low, high = (max(column.low, -_WHOLE), min(column.high, _WHOLE)) if whole else (column.low, column.high)
        fits = values.between(low, high) & ((values % 1 == 0) if whole else True)
        wrong = ~(fits | (missing & column.may_be_empty))
        expected = f"{'a whole number' if whole else 'a number'} from {low:g} to {high:g}"
        if whole and not missing.any() and not wrong.any():
            values = values.astype(np.int64)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        found = "nothing" if missing.iloc[row] else shown(cells.iloc[row])
        raise InputError(f"{where}, row {row + 2}: expected {expected}, found {found}")
    return values
