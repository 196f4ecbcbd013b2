"""One repertoire file as a table with AIRR field names: the part of reading that all formats share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.readers.layout import Header, InvalidValueError, Layout, Status, is_missing
from deeprc.datasets.readers.text import read_columns
from deeprc.errors import InputError

__all__ = ["COUNT_ONE", "read_table"]

COUNT_ONE = "one"
"""The `count_source` of a row whose count was missing everywhere and became 1."""

_MAX_COUNT = int(np.iinfo(np.uint32).max)
_MISSING, _INVALID = -1.0, -2.0
_LONGEST_MISSING = 10


def read_table(header: Header, layout: Layout) -> pd.DataFrame:
    """Read the rows of one file, all of them, in the file's order.

    Returns
    -------
    pandas.DataFrame
        `junction_aa` (text; "" where missing), `duplicate_count` (uint32), `count_source` (category: the
        column that the count is from, or `COUNT_ONE`), `count_rounded` (bool), `status` (uint8, a `Status`),
        and where the file has them `v_call` and `j_call` (category; "" where missing).

    Raises
    ------
    InputError
        If a value cannot be used; the message names the file, the row (the header is row 1) and the column.
    """
    genes = {"v_call": layout.v_call, "j_call": layout.j_call}
    optional = (*genes.values(), layout.repertoire)
    others = (*layout.counts, *layout.status, *(column for column in optional if column is not None))
    raw = read_columns(header, layout.junction_aa, others)
    if layout.repertoire is not None:
        _check_one_repertoire(raw[layout.repertoire], layout.repertoire, header.path)
    counts = _counts(raw, layout.counts, header.path)
    columns: dict[str, Any] = {
        "junction_aa": pd.Series(_sequences(raw[layout.junction_aa]), dtype=object),
        "duplicate_count": counts.numbers,
        "count_source": pd.Categorical.from_codes(counts.source, pd.Index([*layout.counts, COUNT_ONE])),
        "count_rounded": counts.rounded,
        "status": _status(raw, layout, header.path),
    }
    for name, column in genes.items():
        if column is not None:
            columns[name] = _genes(raw[column])
    return pd.DataFrame(columns)


def _check_one_repertoire(column: pd.Series, name: str, path: Path) -> None:
    found = [str(value) for value in column.cat.categories if not is_missing(str(value))]
    if len(found) > 1:
        listed = ", ".join(found[:3]) + ", ..." * (len(found) > 3)
        raise InputError(f"{path}: column {name!r} names {len(found)} repertoires ({listed}); expected one per file")


def _sequences(column: pd.Series) -> list[str]:
    stripped = (value.strip() for value in column)
    return ["" if len(value) < _LONGEST_MISSING and is_missing(value) else value for value in stripped]


def _genes(column: pd.Series) -> pd.Categorical:
    names = [str(name).strip() for name in column.cat.categories]
    clean = ["" if is_missing(name) else name for name in names]
    vocabulary = sorted(set(clean))
    position = {name: code for code, name in enumerate(vocabulary)}
    codes = np.array([position[name] for name in clean], np.int32)[column.cat.codes]
    return pd.Categorical.from_codes(codes, pd.Index(vocabulary, dtype=object))


@dataclass(frozen=True)
class _Counts:
    numbers: NDArray[np.uint32]
    source: NDArray[np.int8]
    rounded: NDArray[np.bool_]


def _counts(raw: pd.DataFrame, columns: tuple[str, ...], path: Path) -> _Counts:
    """Return each row's count: the first of the columns that is not missing there, else 1."""
    exact = np.full(len(raw), _MISSING)
    source = np.full(len(raw), len(columns), np.int8)
    for index, column in enumerate(columns):
        values, codes = raw[column].cat.categories, raw[column].cat.codes.to_numpy()
        if not len(values):
            continue
        parsed = np.array([_parse_count(str(value)) for value in values])[codes]
        here = (exact == _MISSING) & (parsed != _MISSING)
        wrong = np.flatnonzero(here & (parsed == _INVALID))
        if len(wrong):
            expected = f"a number from 0 to {_MAX_COUNT}, or nothing"
            raise _error(path, int(wrong[0]), InvalidValueError(column, values[codes[wrong[0]]], expected))
        exact[here], source[here] = parsed[here], index
    exact[exact == _MISSING] = 1
    whole = np.maximum(np.rint(exact), 1)
    return _Counts(whole.astype(np.uint32), source, whole != exact)


def _parse_count(value: str) -> float:
    if is_missing(value):
        return _MISSING
    try:
        count = float(value)
    except ValueError:
        return _INVALID
    return count if 0 <= count <= _MAX_COUNT and "_" not in value else _INVALID


def _status(raw: pd.DataFrame, layout: Layout, path: Path) -> NDArray[np.uint8]:
    """Ask the layout once for each combination of values that occurs."""
    if not layout.status or raw.empty:
        return np.full(len(raw), Status.UNKNOWN, np.uint8)
    sizes = [len(raw[column].cat.categories) for column in layout.status]
    codes = [raw[column].cat.codes.to_numpy(np.int64) for column in layout.status]
    combined = np.ravel_multi_index(codes, sizes)
    _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
    verdicts = np.zeros(len(first), np.uint8)
    for index in np.argsort(first):
        row = int(first[index])
        values = {name: str(raw[name].iloc[row]) for name in layout.status}
        try:
            verdicts[index] = layout.judge(values)
        except InvalidValueError as error:
            raise _error(path, row, error) from None
    return verdicts[inverse]


def _error(path: Path, row: int, invalid: InvalidValueError) -> InputError:
    """Name the row as a spreadsheet does: the header is row 1."""
    return InputError(f"{path}: row {row + 2}, {invalid}")
