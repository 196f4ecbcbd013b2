"""Delimited text files, packed or plain, as headers and blocks of whole lines; memory does not grow with the file."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, count, islice
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.readers.layout import Header, NoTableError
from deeprc.errors import InputError

__all__ = [
    "PACKED",
    "decode",
    "decode_name",
    "lines_in_blocks",
    "number_of_row",
    "open_text",
    "ragged_row",
    "read_header",
    "split_header",
]

PACKED = (".gz", ".bz2", ".xz", ".zip")
"""Endings of packed files; what a file is, its first bytes tell."""

_HEADER_BYTES = 1 << 22
_BLOCK_BYTES = 1 << 21  # stays in the processor's cache
_START_BYTES = 1 << 16
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_UTF8_MARK = b"\xef\xbb\xbf"
_DELIMITERS = "\t,;"
_LONGEST_FIELD = 1 << 27
_LONGEST_DOUBT = 1 << 25
csv.field_size_limit(_LONGEST_FIELD)
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)


@contextmanager
def open_text(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, packed or plain by its first bytes; what goes wrong in the block becomes an `InputError`."""
    kind = ""
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(path.open("rb"))
            start = raw.peek(6)
            kind = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "")
            yield stack.enter_context(_unpacked(raw, kind, path)) if kind else raw
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except _DAMAGED as error:
        raise InputError(f"{path}: the {kind or 'packed'} file is damaged or cut short ({error})") from error
    except OSError as error:
        if kind == "bzip2" and error.errno is None:  # what bz2 raises for damaged data
            raise InputError(f"{path}: the bzip2 file is damaged or cut short ({error})") from error
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _unpacked(raw: IO[bytes], kind: str, path: Path) -> IO[bytes]:
    if kind == "gzip":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if kind == "bzip2":
        return bz2.BZ2File(raw)
    if kind == "xz":
        return lzma.LZMAFile(raw)
    archive = zipfile.ZipFile(raw)
    members = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    if len(members) != 1:
        raise InputError(f"{path}: the zip file holds {len(members)} files; expected one, unpack it first")
    if members[0].flag_bits & 1:
        raise InputError(f"{path}: the zip file is encrypted")
    return archive.open(members[0])


def read_header(path: Path) -> Header:
    """Read only the first line of a table.

    Raises
    ------
    InputError
        If the file is missing, empty, damaged or no text.
    """
    with open_text(path) as stream:
        start = stream.read(_HEADER_BYTES)
    return split_header(path, decode(start[: start.find(b"\n", 1 << 16) + 1] or start))


def split_header(path: Path, text: str) -> Header:
    """Return the header of a table's text: column names, and the delimiter that separates most of them."""
    line = text.partition("\n")[0].removeprefix("#")
    if not line.strip():
        raise NoTableError(f"{path}: the file is empty" if not text.strip() else f"{path}: the first line is empty")
    if any(letter < " " for letter in line.rstrip("\r").replace("\t", "")):
        raise NoTableError(f"{path}: not a text table (the first line holds binary data)")
    delimiter = max(_DELIMITERS, key=lambda mark: (mark == "\t" and mark in line, line.count(mark)))
    names = next(csv.reader([line], delimiter=delimiter))
    return Header(path, tuple(name.strip() for name in names), delimiter)


def lines_in_blocks(header: Header) -> Iterator[tuple[bytes, bool]]:
    """Yield a table's lines after the first, many at a time, and whether quotes bind fields together in them.

    Lines are UTF-8 or another 8-bit code, with newlines at their ends. Where every line has as many fields as the
    header when quotes are letters like others, that is what they are. Otherwise fields in quotes may hold delimiters
    and newlines, and are never cut.

    Raises
    ------
    InputError
        If the file is damaged or no text, or a quoted field never ends.
    """
    path = header.path
    with open_text(path) as stream:
        rest, at_header, minded, enough = b"", True, False, 0
        for block in _as_unix(stream):
            if b"\0" in block:
                raise InputError(f"{path}: not a text table (it holds binary data)")
            rest += block
            if at_header:
                first = rest.find(b"\n") + 1
                if not first:
                    continue
                rest, at_header = rest[first:], False
            if len(rest) < enough:
                continue
            whole, minded = _whole_lines(rest, header, minded=minded, at_end=False)
            if whole:
                yield rest[:whole], minded
                rest = rest[whole:]
            enough = 2 * len(rest) if len(rest) > 2 * _BLOCK_BYTES else 0  # what was kept back is not looked at often
            if len(rest) > _LONGEST_FIELD:
                raise InputError(f"{path}: a line or a field in quotes is longer than {_LONGEST_FIELD:,} bytes")
        if at_header:
            rest = rest.partition(b"\n")[2]
        if rest:
            rest = rest if rest.endswith(b"\n") else rest + b"\n"
            whole, minded = _whole_lines(rest, header, minded=minded, at_end=True)
            if whole != len(rest):
                raise InputError(f"{path}: a field in quotes never ends; is there a stray quote?")
            yield rest, minded


def _as_unix(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks without byte-order mark, UTF-16 made UTF-8, a lone carriage return made a newline."""
    start = stream.read(_START_BYTES)
    if start.startswith(_UTF16):
        stream = io.BytesIO((start + stream.read()).decode("utf-16", "replace").encode())
        start = stream.read(_START_BYTES)
    start = start.removeprefix(_UTF8_MARK)
    old_macintosh = b"\r" in start and b"\n" not in start
    pieces = (start[at : at + _BLOCK_BYTES] for at in range(0, len(start), _BLOCK_BYTES))
    for block in chain(pieces, iter(lambda: stream.read(_BLOCK_BYTES), b"")):
        yield block.replace(b"\r", b"\n") if old_macintosh else block


def _whole_lines(data: bytes, header: Header, *, minded: bool, at_end: bool) -> tuple[int, bool]:
    """Return where the last whole line ends, 0 if there is none, and whether quotes have to be minded.

    Once they had to be in a file, they are `minded` in all of it. Until then, lines with a quote without its partner
    are kept back until what follows tells whether a field goes on in the next line, or for long enough.
    """
    end = data.rfind(b"\n") + 1
    if b'"' not in data and not minded:
        return end, False
    letters = np.frombuffer(data, np.uint8)[:end]
    quotes = np.flatnonzero(letters == ord('"'))
    ends = np.flatnonzero(letters == ord("\n"))
    before = np.searchsorted(quotes, ends)  # quotes before the end of each line
    if not minded and _are_regular(letters, ends, header):
        odd = np.flatnonzero(np.diff(before, prepend=0) % 2)
        if at_end or end > _LONGEST_DOUBT or not len(odd) or len(quotes) % 2 == 0:
            return end, False
        return (int(ends[odd[-1] - 1]) + 1 if odd[-1] else 0), False
    outside = ends[before % 2 == 0]
    return (int(outside[-1]) + 1 if len(outside) else 0), True


def _are_regular(letters: NDArray[np.uint8], ends: NDArray[np.int64], header: Header) -> bool:
    """Tell whether every line has the header's number of fields, quotes being letters; blank lines do not count."""
    marks = np.flatnonzero(letters == ord(header.delimiter))
    fields = 1 + np.diff(np.searchsorted(marks, ends), prepend=0)
    room = np.diff(ends, prepend=-1)
    blank = (room == 1) | ((room == 2) & (letters[ends - 1] == ord("\r")))
    return bool(((fields == len(header.columns)) | blank).all())


def ragged_row(header: Header) -> tuple[int, int] | None:
    """Find the first row that has more or fewer fields than the header: its number, and how many it has."""
    rows = ((number, len(fields)) for number, fields in _numbered_rows(header))
    return next((row for row in rows if row[1] != len(header.columns)), None)


def number_of_row(header: Header, index: int) -> int:
    """Return what a spreadsheet calls a row of data, the first of which has index 0: the header is row 1."""
    return next(islice(_numbered_rows(header), index, None))[0]


def _numbered_rows(header: Header) -> Iterator[tuple[int, list[str]]]:
    """Yield all rows that are not blank, slowly, to name one in a message; blank ones are numbered too."""
    numbers = count(2)
    for block, quoted in lines_in_blocks(header):
        lines = io.TextIOWrapper(io.BytesIO(block), "latin-1", newline="")
        for fields in csv.reader(
            lines, delimiter=header.delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        ):
            number = next(numbers)
            if fields:
                yield number, fields


def decode(data: bytes) -> str:
    """Return a file's bytes as text: UTF-8, UTF-16 with a byte-order mark, else Latin-1; newlines at lines' ends."""
    return decode_name(b"".join(_as_unix(io.BytesIO(data))))


def decode_name(data: bytes) -> str:
    """Return UTF-8 as text, or Latin-1 where it is none."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
