"""Read the needed columns of a table, block by block, by Arrow's parser; values that repeat become codes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deeprc.available_memory import count_available_bytes
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.categorical import Categorical, extend_vocabulary
from deeprc.datasets.raw_texts import RawTexts
from deeprc.datasets.readers.layout import Header
from deeprc.datasets.readers.row_search import find_ragged_row
from deeprc.datasets.readers.text import decode_name, read_line_blocks
from deeprc.errors import InputError, format_count

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv

__all__ = [
    "check_column_names",
    "factorize",
    "factorize_texts",
    "find_first_rows",
    "read_columns",
]

_QUOTE = ord('"')
_SMALL_BYTES = 1 << 14  # largest block that is parsed without Arrow's parser
_BYTES_PER_ROW, _BYTES_PER_NAME = 100, 200  # memory of a row besides its texts, and of a name of a vocabulary
_UNCHECKED_BYTES = 1 << 28  # rows that need less memory are read without a look at the available memory


def factorize(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a code for each of N values, (N,): the different values are numbered from 0 as they first occur."""
    import pyarrow as pa

    return _factorize_arrow(pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)]))


def factorize_texts(letters: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a code for each of N texts that lie end to end, (N,), as `factorize` does."""
    import pyarrow as pa

    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return _factorize_arrow(pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers))


def find_first_rows(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the first row with each of the codes of `factorize`, in order."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))


def check_column_names(header: Header, names: Iterable[str]) -> None:
    """Refuse a file in which two columns have a needed name, because either may be meant.

    Raises
    ------
    InputError
        If there are two such columns.
    """
    for name in names:
        n = header.columns.count(name)
        if n > 1:
            raise InputError(f"{header.path}: {n} columns are named {name!r}; expected one, remove the others")


def read_columns(
    header: Header, texts: Sequence[str], coded: Sequence[str]
) -> tuple[dict[str, RawTexts], dict[str, Categorical]]:
    """Return the needed columns of a table, and parse nothing else; an empty field is "".

    Raises
    ------
    InputError
        If the file is damaged, if two columns have a needed name, or if a row has more or fewer fields than the header.
        Rows are numbered as in a spreadsheet: the header is row 1. Also if the rows need more memory than is available,
        because a small packed file may hold very many rows.
    """
    check_column_names(header, {*texts, *coded})
    position = {name: header.columns.index(name) for name in {*texts, *coded}}
    blocks_of: dict[str, list[RawTexts]] = {name: [] for name in texts}
    codes: dict[str, list[NDArray[np.int32]]] = {name: [] for name in coded}
    code_of: dict[str, dict[bytes, int]] = {name: {} for name in coded}
    memory = _Memory(header)
    for table, quoted in _parse_tables(header, {position[name] for name in texts}, {position[name] for name in coded}):
        n_letters = 0
        for name in texts:
            for chunk in table.column(str(position[name])).chunks:
                read_texts = _convert_to_raw_texts(chunk)
                if not quoted:
                    read_texts = _strip_quotes(read_texts)
                blocks_of[name].append(read_texts)
                n_letters += len(read_texts.letters)
        for name in coded:
            for chunk in table.column(str(position[name])).chunks:
                codes[name].append(_encode_chunk(chunk, code_of[name], quoted))
        memory.add_rows(table.num_rows, n_letters, sum(map(len, code_of.values())))
    categories = {}
    for name, blocks in codes.items():
        vocabulary = tuple(map(decode_name, code_of[name]))
        categories[name] = Categorical(np.concatenate([np.empty(0, np.int32), *blocks]), vocabulary)
    return {name: RawTexts.concatenate(blocks) for name, blocks in blocks_of.items()}, categories


class _Memory:
    """An estimate of the memory that the rows of a file need until they are cleaned, and the memory that is available.

    Each worker process measures the available memory by itself, so several of them may count the same memory.
    """

    def __init__(self, header: Header) -> None:
        self._path = header.path
        self._n_rows = self._n_letters = 0
        self._available: float = math.inf
        self._next_look = _UNCHECKED_BYTES

    def add_rows(self, n_more_rows: int, n_more_letters: int, n_names: int) -> None:
        """Count more rows and the letters of their texts; raise InputError if all rows do not fit into the memory.

        `n_names` is the number of different values in all columns of codes.
        """
        self._n_rows, self._n_letters = self._n_rows + n_more_rows, self._n_letters + n_more_letters
        needed = _BYTES_PER_ROW * self._n_rows + 2 * self._n_letters + _BYTES_PER_NAME * n_names
        if needed > self._next_look:  # other processes take memory, too, so look again from time to time
            self._next_look = 2 * needed
            available = count_available_bytes()
            if available is not None:
                self._available = min(self._available, available + needed // 4)  # what was read holds a quarter
        if needed > self._available:
            raise InputError(
                f"{self._path}: {self._n_rows:,} rows or more, which need {needed / 2**30:,.1f} GiB of memory; "
                f"{self._available / 2**30:,.1f} GiB are available"
            )


def _parse_tables(header: Header, texts: set[int], coded: set[int]) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the needed columns of a table, block by block, and whether Arrow has removed quotes from it.

    `texts` and `coded` are the indices of the needed columns.
    """
    import pyarrow as pa
    import pyarrow.csv

    positions = sorted(texts | coded)
    repeated = pa.dictionary(pa.int32(), pa.binary())
    convert = pyarrow.csv.ConvertOptions(
        include_columns=[str(position) for position in positions],
        column_types={str(position): pa.binary() if position in texts else repeated for position in positions},
        null_values=[],
        strings_can_be_null=False,
        check_utf8=False,
    )
    for block, quoted in read_line_blocks(header):
        if block.isspace() and header.delimiter.encode() not in block:
            continue  # Arrow cannot read an empty block
        table = None if quoted or len(block) > _SMALL_BYTES else _parse_small_table(block, header, positions, texts)
        yield _parse_block(block, header, convert, quoted=quoted) if table is None else table, quoted


def _parse_block(block: bytes, header: Header, convert: pyarrow.csv.ConvertOptions, *, quoted: bool) -> pa.Table:
    """Return the table of a block of lines by Arrow's parser; raise InputError that names the row if it cannot."""
    import pyarrow as pa
    import pyarrow.csv

    read = pyarrow.csv.ReadOptions(
        column_names=[str(position) for position in range(len(header.columns))],
        use_threads=False,
        block_size=len(block) + 1,
    )
    parse = pyarrow.csv.ParseOptions(
        delimiter=header.delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted
    )
    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(block), read_options=read, parse_options=parse, convert_options=convert
        )
    except pa.ArrowInvalid as error:
        ragged = find_ragged_row(header)
        if ragged is None:
            raise InputError(f"{header.path}: cannot be read as a table: {error}") from error
        row, n_fields = ragged
        raise InputError(
            f"{header.path}: row {row} has {format_count(n_fields, 'field')}, the header has {len(header.columns)}; "
            "is the file cut short or damaged?"
        ) from error


def _parse_small_table(block: bytes, header: Header, positions: Sequence[int], texts: set[int]) -> pa.Table | None:
    """Return the table that Arrow's parser would make of a plain block; None if it is not plain.

    A call of the parser takes a thousand times as long as ten rows, and a cohort may have many such files.
    """
    import pyarrow as pa

    if b"\r" in block:
        return None
    rows = [line.split(header.delimiter.encode()) for line in block.split(b"\n") if line]
    if any(len(row) != len(header.columns) for row in rows):
        return None
    columns = []
    for position in positions:
        values = _make_binary_array([row[position] for row in rows])
        columns.append(values if position in texts else values.dictionary_encode())
    return pa.Table.from_arrays(columns, names=[str(position) for position in positions])


def _make_binary_array(values: Sequence[bytes]) -> pa.BinaryArray:
    """Return values as an array of Arrow; `pa.array` and `pa.table` would import pandas."""
    import pyarrow as pa

    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _convert_to_raw_texts(chunk: pa.BinaryArray) -> RawTexts:
    """Return a column of Arrow as texts, copied out of the memory of its table."""
    _, offsets, data = chunk.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(chunk) + 1, 4 * chunk.offset).astype(np.int64)
    letters = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return RawTexts(letters[bounds[0] : bounds[-1]].copy(), bounds - bounds[0])


def _strip_quotes(texts: RawTexts) -> RawTexts:
    """Return texts without the quotes around them."""
    letters, offsets, lengths = texts.letters, texts.offsets, texts.lengths
    if _QUOTE not in letters:
        return texts
    first, last = offsets[:-1], offsets[1:] - 1  # letter of each text
    has_two = lengths > 1
    is_quoted = np.zeros(len(lengths), bool)
    is_quoted[has_two] = (letters[first[has_two]] == _QUOTE) & (letters[last[has_two]] == _QUOTE)
    is_kept = np.ones(len(letters), bool)
    is_kept[first[is_quoted]] = is_kept[last[is_quoted]] = False
    return RawTexts(letters[is_kept], compute_offsets(lengths - 2 * is_quoted))


def _strip_value_quotes(value: bytes) -> bytes:
    """Return a value without quotes around it; in it, two quotes stand for one."""
    if len(value) > 1 and value[:1] == value[-1:] == b'"':
        return value[1:-1].replace(b'""', b'"')
    return value


def _encode_chunk(chunk: pa.DictionaryArray, code_of: dict[bytes, int], quoted: bool) -> NDArray[np.int32]:
    """Return the code of each value of a chunk, (n,); new values are added to `code_of`."""
    names = chunk.dictionary.to_pylist()
    own_codes = extend_vocabulary(code_of, names if quoted else map(_strip_value_quotes, names)).astype(np.int32)
    return own_codes[_get_indices(chunk)] if len(own_codes) else own_codes


def _factorize_arrow(values: pa.Array) -> NDArray[np.int64]:
    return _get_indices(values.dictionary_encode()).astype(np.int64)


def _get_indices(array: pa.DictionaryArray) -> NDArray[np.int32]:
    """Return the indices without Arrow's own conversion, which imports pandas: that takes longer than a small file."""
    indices = array.indices
    return np.frombuffer(indices.buffers()[1] or b"", np.int32, len(indices), 4 * indices.offset)
