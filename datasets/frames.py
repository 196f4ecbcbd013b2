"""Columns of a table in memory, as the readers of files have them; every kind of table becomes Arrow's.

Letters: N rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.missing import MISSING_IN_SHEETS, is_missing
from deeprc.datasets.raw_texts import RawTexts
from deeprc.errors import InputError

__all__ = ["categorical_of", "constant_columns", "texts_of", "to_arrow"]


def to_arrow(table: Any) -> pa.Table:
    """Return a table of pandas, polars or pyarrow, or of whatever offers Arrow's or the dataframe interchange.

    The index of a pandas table becomes a column if it has a name.

    Raises
    ------
    InputError
        If it is no table.
    """
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, Mapping):
        table = pd.DataFrame(dict(table))
    if isinstance(table, pd.DataFrame):
        return _of_pandas(table)
    if hasattr(table, "to_arrow"):  # polars
        return table.to_arrow()
    if hasattr(table, "__arrow_c_stream__"):
        return pa.table(table)
    if hasattr(table, "__dataframe__"):
        import pyarrow.interchange

        return pyarrow.interchange.from_dataframe(table)
    raise InputError(f"expected a table of pandas, polars or pyarrow, found {type(table).__name__}")


def _of_pandas(table: pd.DataFrame) -> pa.Table:
    named = table.reset_index() if any(name is not None for name in table.index.names) else table
    columns = [_array_of(named.iloc[:, place]) for place in range(named.shape[1])]
    return pa.Table.from_arrays(columns, names=[str(name) for name in named.columns])


def _array_of(values: pd.Series) -> pa.Array | pa.ChunkedArray:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several types
        return pa.array([None if pd.isna(value) else str(value) for value in values], pa.string())


def texts_of(table: pa.Table, name: str) -> RawTexts:
    """Return a column as texts; missing values are empty."""
    column = _as_text(table.column(name), name)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    letters = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return RawTexts(letters[bounds[0] : bounds[-1]], bounds - bounds[0])


def categorical_of(table: pa.Table, name: str) -> Categorical:
    """Return a column as codes; missing values are ""."""
    coded = _as_text(table.column(name), name).dictionary_encode()
    return Categorical(coded.indices.to_numpy().astype(np.int32), tuple(coded.dictionary.to_pylist()))


def _as_text(column: pa.ChunkedArray, name: str) -> pa.LargeStringArray:
    import pyarrow.compute

    try:
        if pa.types.is_boolean(column.type):
            column = pyarrow.compute.if_else(column, "True", "False")
        texts = pyarrow.compute.cast(column, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"column {name!r}: expected texts or numbers, found {column.type}") from error
    filled = pyarrow.compute.fill_null(texts, "")
    return pa.concat_arrays([pa.array([], pa.large_string()), *filled.chunks])


def constant_columns(table: pa.Table, names: Iterable[str], groups: Categorical) -> dict[str, list[str]]:
    """Return the columns that have one value in each group, and not only missing ones.

    Parameters
    ----------
    table
        The columns.
    names
        Those that are looked at; others than of texts and numbers are left out.
    groups
        The group of each row, (N,).

    Returns
    -------
    For each column that fits, the value in each of the groups, in the order of their vocabulary; all of them occur.
    """
    first = np.unique(groups.codes, return_index=True)[1]
    found = {}
    for name in names:
        if pa.types.is_nested(table.schema.field(name).type):
            continue
        values = categorical_of(table, name)
        of_group = values.codes[first]
        if np.array_equal(of_group[groups.codes], values.codes) and not all(
            is_missing(value, MISSING_IN_SHEETS) for value in values.vocabulary
        ):
            found[name] = [values.vocabulary[code] for code in of_group]
    return found
