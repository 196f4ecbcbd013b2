"""Delimited text files as bytes, headers and columns: gzip or plain, tab, comma or semicolon."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.datasets.readers.layout import Header
from deeprc.errors import InputError

__all__ = ["decode", "open_text", "read_columns", "read_header", "split_header"]

_BLOCK = 1 << 22
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_DELIMITERS = "\t,;"


@contextmanager
def open_text(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file, gzip or plain by its first bytes; what goes wrong in the block becomes an `InputError`."""
    try:
        with path.open("rb") as raw:
            zipped = raw.peek(2)[:2] == b"\x1f\x8b"
            with gzip.GzipFile(fileobj=raw) if zipped else raw as stream:
                yield stream
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: the gzip file is damaged or cut short ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_header(path: Path) -> Header:
    """Read only the first line of a table.

    Raises
    ------
    InputError
        If the file is missing, empty, damaged or no text.
    """
    with open_text(path) as stream:
        start = stream.read(_BLOCK)
    return split_header(path, decode(start[: start.find(b"\n", 1 << 16) + 1] or start))


def split_header(path: Path, text: str) -> Header:
    """Return the header of a table's text: column names, and the delimiter that separates most of them."""
    line = text.partition("\n")[0].removeprefix("#")
    if not line.strip():
        raise InputError(f"{path}: the file is empty" if not text.strip() else f"{path}: the first line is empty")
    if any(letter < " " for letter in line.rstrip("\r").replace("\t", "")):
        raise InputError(f"{path}: not a text table (the first line holds binary data)")
    delimiter = max(_DELIMITERS, key=lambda mark: (mark == "\t" and mark in line, line.count(mark)))
    names = next(csv.reader([line], delimiter=delimiter))
    return Header(path, tuple(name.strip() for name in names), delimiter)


def read_columns(header: Header, text_column: str, other_columns: Sequence[str]) -> pd.DataFrame:
    """Parse the needed columns of a table, nothing else.

    Returns
    -------
    pandas.DataFrame
        `text_column` as text; the others, which repeat themselves, as categories of text. Nothing is missing:
        an empty field is "".

    Raises
    ------
    InputError
        If the file is damaged, or a row has more or fewer fields than the header; rows are numbered as in a
        spreadsheet, the header being row 1.
    """
    with open_text(header.path) as stream:
        data = _unix(stream.read())
    if b"\0" in data:
        raise InputError(f"{header.path}: not a text table (it holds binary data)")
    _check_fields(data, header)
    positions = sorted(header.columns.index(name) for name in {text_column, *other_columns})
    try:
        table = pd.read_csv(
            io.BytesIO(data),
            sep=header.delimiter,
            header=None,
            skiprows=1,
            names=list(range(len(header.columns))),
            usecols=positions,
            dtype=object,
            index_col=False,
            keep_default_na=False,
            na_filter=False,
            encoding=_encoding(data),
        )
    except pd.errors.EmptyDataError:
        table = pd.DataFrame(columns=positions, dtype=object)
    except pd.errors.ParserError as error:
        raise InputError(f"{header.path}: cannot be read as a table: {error}") from error
    table.columns = pd.Index([header.columns[position] for position in positions])
    return table.astype(dict.fromkeys(set(other_columns), "category"))


def _unix(data: bytes) -> bytes:
    """Return UTF-8 or another 8-bit code, without byte-order mark, with a newline at each line's end."""
    if data.startswith(_UTF16):
        data = data.decode("utf-16", "ignore").encode()
    data = data.removeprefix(b"\xef\xbb\xbf")
    return data.replace(b"\r", b"\n") if b"\r" in data and b"\n" not in data else data


def _encoding(data: bytes) -> str:
    try:
        if not data.isascii():
            data.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def decode(data: bytes) -> str:
    """Return a file's bytes as text: UTF-8, UTF-16 with a byte-order mark, else Latin-1."""
    data = _unix(data)
    return data.decode(_encoding(data))


def _check_fields(data: bytes, header: Header) -> None:
    """Check that every row has as many fields as the header; the C parser would drop or invent some."""
    expected = len(header.columns)
    rows = _quoted_rows(data, header) if b'"' in data else _plain_rows(data, header.delimiter, expected)
    for row, found in rows:
        if found != expected:
            raise InputError(
                f"{header.path}: row {row} has {found} field{'s' * (found != 1)}, the header has {expected}; "
                "is the file cut short or damaged?"
            )


def _quoted_rows(data: bytes, header: Header) -> Iterator[tuple[int, int]]:
    lines = io.TextIOWrapper(io.BytesIO(data), _encoding(data), newline="")
    rows = csv.reader(lines, delimiter=header.delimiter)
    try:
        yield from ((rows.line_num, len(row)) for row in rows if row)
    except csv.Error as error:
        raise InputError(f"{header.path}: row {rows.line_num}: {error}") from error


def _plain_rows(data: bytes, delimiter: str, expected: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each block that has another number of fields than expected."""
    mark, newline = ord(delimiter), ord("\n")
    view, start, row = np.frombuffer(data, np.uint8), 0, 1
    while start < len(data):
        stop = data.find(b"\n", start + _BLOCK) + 1 or len(data)
        block = view[start:stop]
        ends = np.flatnonzero(block == newline)
        if not len(ends) or ends[-1] != len(block) - 1:
            ends = np.append(ends, len(block))
        fields = 1 + np.diff(np.searchsorted(np.flatnonzero(block == mark), ends), prepend=0)
        room = np.diff(ends, prepend=-1)
        blank = (room == 1) | ((room == 2) & (block[ends - 1] == ord("\r")))  # pandas skips these lines
        wrong = np.flatnonzero((fields != expected) & ~blank)
        if len(wrong):
            yield row + int(wrong[0]), int(fields[wrong[0]])
        start, row = stop, row + len(ends)
