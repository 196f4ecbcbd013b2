"""Convert tables in memory to Arrow tables, and their columns to the types that the readers of files return.

Letters: N rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.missing import MISSING_IN_SHEETS, is_missing
from deeprc.datasets.raw_texts import RawTexts
from deeprc.errors import InputError

__all__ = ["extract_categorical", "extract_texts", "find_constant_columns", "to_arrow"]


_ERRORS = (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError)
"""The errors that pandas and pyarrow raise if values cannot be converted."""

_OTHER = pa.list_(pa.null())
"""The type, without values, of a column that Arrow cannot hold and that is neither text nor numbers."""


def to_arrow(table: Any) -> pa.Table:
    """Return a table of pandas, polars or pyarrow as an Arrow table.

    Other tables can be converted if they support Arrow's or the dataframe interchange protocol.

    The index of a pandas table becomes a column if it has a name that no column has.

    Raises
    ------
    InputError
        If it is not a table.
    """
    kind = type(table).__name__
    try:
        converted = _convert_to_arrow(table)
    except _ERRORS as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{kind}: cannot be read as a table: {reason}") from error
    if not isinstance(converted, pa.Table):
        raise InputError(f"expected a table of pandas, polars or pyarrow, found {kind}")
    return converted


def _convert_to_arrow(table: Any) -> Any:
    """Return an Arrow table; or another object if the table cannot be converted, which the caller checks."""
    if isinstance(table, pa.Table | pd.Series):
        return table
    if isinstance(table, Mapping):
        table = pd.DataFrame(dict(table))
    if isinstance(table, pd.DataFrame):
        return _convert_pandas(table)
    if hasattr(table, "to_arrow"):  # polars
        return table.to_arrow()
    if hasattr(table, "__arrow_c_stream__"):
        return pa.table(table)
    if hasattr(table, "__dataframe__"):
        import pyarrow.interchange

        return pyarrow.interchange.from_dataframe(table)
    return None


def _convert_pandas(table: pd.DataFrame) -> pa.Table:
    levels = [name for name in table.index.names if name is not None and name not in table.columns]
    with_index_columns = table.reset_index(level=levels) if levels else table
    columns = [_make_array(with_index_columns.iloc[:, position]) for position in range(with_index_columns.shape[1])]
    return pa.Table.from_arrays(columns, names=[str(name) for name in with_index_columns.columns])


def _make_array(values: pd.Series) -> pa.Array | pa.ChunkedArray:
    for convert in (_convert_values, _convert_to_texts):  # the second for values of several types
        with suppress(*_ERRORS):
            return convert(values)
    return pa.nulls(len(values), _OTHER)


def _convert_values(values: pd.Series) -> pa.Array | pa.ChunkedArray:
    return pa.array(values, from_pandas=True)


def _convert_to_texts(values: pd.Series) -> pa.Array:
    if any(pd.api.types.is_list_like(value) or isinstance(value, complex) for value in values):
        raise TypeError("expected single values")
    return pa.array([None if pd.isna(value) else str(value) for value in values], pa.string())


def extract_texts(table: pa.Table, name: str) -> RawTexts:
    """Return a column as texts; missing values are empty."""
    column = _cast_to_texts(table.column(name), name)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    letters = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return RawTexts(letters[bounds[0] : bounds[-1]], bounds - bounds[0])


def extract_categorical(table: pa.Table, name: str) -> Categorical:
    """Return a column as codes; missing values are ""."""
    coded = _cast_to_texts(table.column(name), name).dictionary_encode()
    return Categorical(coded.indices.to_numpy().astype(np.int32), tuple(coded.dictionary.to_pylist()))


def _cast_to_texts(column: pa.ChunkedArray, name: str) -> pa.LargeStringArray:
    """Return a column of Arrow as texts; missing values are empty, and days lose their time."""
    import pyarrow.compute

    try:
        kind = _get_value_type(column.type)
        if isinstance(kind, pa.BaseExtensionType) and kind.extension_name.startswith("pandas."):
            raise pa.ArrowNotImplementedError(f"{kind} as texts")  # Arrow would take a month for its number
        if kind != column.type and (pa.types.is_boolean(kind) or pa.types.is_timestamp(kind)):  # categories
            column = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], kind)
        if pa.types.is_boolean(column.type):
            column = pyarrow.compute.if_else(column, "True", "False")
        if pa.types.is_timestamp(column.type) and _are_days(column):
            column = pyarrow.compute.cast(column, pa.date32())  # 2020-01-05, as in a sheet
        texts = pyarrow.compute.cast(column, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        found = "other values" if column.type == _OTHER else column.type
        raise InputError(f"column {name!r}: expected texts or numbers, found {found}") from error
    filled = pyarrow.compute.fill_null(texts, "")
    return pa.concat_arrays([pa.array([], pa.large_string()), *filled.chunks])


def _get_value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column, which may be categories."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _are_days(column: pa.ChunkedArray) -> bool:
    """Return whether all times of a column are whole days, without a time of day."""
    import pyarrow.compute

    is_day = pyarrow.compute.equal(column, pyarrow.compute.floor_temporal(column, unit="day"))
    return bool(pyarrow.compute.all(is_day).as_py())


def find_constant_columns(table: pa.Table, names: Iterable[str], groups: Categorical) -> dict[str, list[str]]:
    """Return the columns that have one value in each group, and not only missing ones.

    Parameters
    ----------
    table
        Table with the columns.
    names
        Names of the columns to check. Left out are columns that are neither text nor numbers, and names of several
        columns.
    groups
        Group of each row, (N,).

    Returns
    -------
    For each column that fits, the value in each group, in the order of the groups' vocabulary; all groups occur.
    """
    first = np.unique(groups.codes, return_index=True)[1]
    columns = {}
    for name in names:
        positions = table.schema.get_all_field_indices(name)
        if len(positions) > 1 or _is_unsupported(table.schema.types[positions[0]]):
            continue
        values = extract_categorical(table, name)
        code_of_group = values.codes[first]
        if np.array_equal(code_of_group[groups.codes], values.codes) and not all(
            is_missing(value, MISSING_IN_SHEETS) for value in values.vocabulary
        ):
            columns[name] = [values.vocabulary[code] for code in code_of_group]
    return columns


def _is_unsupported(kind: pa.DataType) -> bool:
    """Return whether values of this type are neither texts nor numbers, dates or truth values."""
    kind = _get_value_type(kind)
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return is_binary or pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)
