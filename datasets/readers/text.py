"""Read delimited text files, packed or plain, as headers and blocks of whole lines, in memory of a fixed size."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.readers.layout import Header, NoTableError
from deeprc.datasets.readers.unpacked_stream import UnpackedStream
from deeprc.errors import InputError, format_count
from deeprc.files import check_regular_file

__all__ = [
    "MAX_COLUMNS",
    "MAX_LINE_BYTES",
    "PACKED",
    "decode_name",
    "make_too_long_error",
    "open_text",
    "read_header",
    "read_line_blocks",
    "read_text",
]

PACKED = (".gz", ".bz2", ".xz", ".zip")
"""Endings of packed files; the first bytes of a file say what it is."""

MAX_LINE_BYTES = 1 << 24
"""Length in bytes of the longest line, or field in quotes: a file that never ends a line must not fill the memory."""

MAX_COLUMNS = 1 << 14
"""Largest number of columns, as in a spreadsheet."""

_HEADER_BYTES = 1 << 22
_BLOCK_BYTES = 1 << 21  # stays in the processor's cache
_START_BYTES = 1 << 16
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_UTF8_MARK = b"\xef\xbb\xbf"
_DELIMITERS = "\t,;"
_HDF5 = ("\x89HDF", "\u2030HDF")  # the first letters of an HDF5 file, as Latin-1 and as Windows-1252
_MAX_REASON = 200
_MAX_KEPT_BACK_BYTES = MAX_LINE_BYTES >> 1
csv.field_size_limit(MAX_LINE_BYTES)
_EXCEL_DELIMITER = re.compile(rb'"?sep=."?\s*$', re.IGNORECASE)  # a first line that tells Excel the delimiter
_MARKED = re.compile(rb'#|"##')
_COMMENT = re.compile(rb'"?##')
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)


@contextmanager
def open_text(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file, packed or plain by its first bytes; errors in the block become an `InputError`."""
    check_regular_file(path, expected="a table")
    kind = ""
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(path.open("rb"))
            start = raw.peek(6)
            kind = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "")
            if not kind:
                yield raw
            else:
                unpacked = stack.enter_context(_open_unpacked(raw, kind, path))
                yield cast("IO[bytes]", UnpackedStream(unpacked, path))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except _DAMAGED as error:
        reason = str(error)[:_MAX_REASON]  # zipfile names members, whose names may be long
        raise InputError(f"{path}: the {kind or 'packed'} file is damaged or cut short ({reason})") from error
    except OSError as error:
        if kind == "bzip2" and error.errno is None:  # bz2 raises this for damaged data
            raise InputError(f"{path}: the bzip2 file is damaged or cut short ({error})") from error
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _open_unpacked(raw: IO[bytes], kind: str, path: Path) -> IO[bytes]:
    """Return a stream of the unpacked bytes of a packed file; a zip file must hold one file."""
    if kind == "gzip":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if kind == "bzip2":
        return bz2.BZ2File(raw)
    if kind == "xz":
        return lzma.LZMAFile(raw)
    with _refuse_damaged_names():
        archive = zipfile.ZipFile(raw)
    if "[Content_Types].xml" in archive.namelist():
        is_excel = any(name.startswith("xl/") for name in archive.namelist())
        document = "an Excel file" if is_excel else "an Office document"
        raise InputError(f"{path}: {document}, which is not read; save it as tab-separated text")
    members = [info for info in archive.infolist() if not info.filename.endswith("/")]
    members = [info for info in members if not info.filename.startswith("__MACOSX/")]
    if len(members) != 1:
        raise InputError(f"{path}: the zip file holds {len(members)} files; expected one, unpack it first")
    if members[0].flag_bits & 1:
        raise InputError(f"{path}: the zip file is encrypted")
    with _refuse_damaged_names():
        return archive.open(members[0])


@contextmanager
def _refuse_damaged_names() -> Iterator[None]:
    """Raise the error for a damaged zip file if a name in it is called UTF-8 and is not."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise zipfile.BadZipFile(f"a name in it is not UTF-8: {error.reason}") from error


def read_header(path: Path) -> Header:
    """Read only the header of a table: the first line after the comments.

    A first line such as `sep=;`, which tells Excel the delimiter, is left out. Lines before the header that begin with
    `#` are comments. The last of them is the header if it names the columns of the rows that follow, such as VDJtools'
    `#count`.

    Raises
    ------
    InputError
        If the file is missing, no regular file, empty, damaged or no text, or the header is too long.
    """
    start, n_before = b"", None
    with open_text(path) as stream:
        for block in _normalise_newlines(stream):
            start += block
            if start.startswith(_OLD_EXCEL):
                kind = "an Excel file" if path.suffix.lower() == ".xls" else "an Excel or another Office file"
                raise NoTableError(f"{path}: {kind}, which is not read; save it as tab-separated text")
            n_before = _count_lines_before_header(start.split(b"\n")[:-1], at_end=False)
            if n_before is not None:
                break
            if len(start) > _HEADER_BYTES:
                raise NoTableError(f"{path}: not a text table (no header in its first {_HEADER_BYTES >> 20} MiB)")
    lines = start.split(b"\n")
    if n_before is None:
        n_before = _count_lines_before_header(lines, at_end=True) or 0
    return _split_header(path, decode_name(lines[n_before]), n_before, is_empty=not start.strip())


def _count_lines_before_header(lines: Sequence[bytes], *, at_end: bool) -> int | None:
    """Return the number of lines before the header; None if more lines are needed to know it."""
    n_first = 1 if lines and _EXCEL_DELIMITER.match(lines[0]) else 0
    n_marked = next((n for n in range(n_first, len(lines)) if not _MARKED.match(lines[n])), len(lines))
    if n_marked == n_first:
        return n_first if n_first < len(lines) else None
    following = next((n for n in range(n_marked, len(lines)) if lines[n].strip()), None)
    if following is None:  # no row: the last line may still be a header
        return n_marked - 1 if at_end else None
    last, row = decode_name(lines[n_marked - 1]), decode_name(lines[following])
    return n_marked - 1 if _is_commented_header(last, row) else following


def _is_commented_header(line: str, row: str) -> bool:
    """Return whether a line that begins with `#` is the header of a row, not a comment before the header."""
    if _COMMENT.match(line.encode()):
        return False
    delimiter = _find_delimiter(line)
    n_names, n_fields = (len(_split_fields(text, delimiter)) for text in (line, row))
    if n_names == 1:
        return n_fields == 1 and _find_delimiter(row) not in row and " " not in line.strip()
    is_prose = line.startswith("# ") and delimiter != "\t"  # prose has commas, too
    return n_names == n_fields and not is_prose


def _split_fields(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line; carriage returns and NUL, which the parser refuses, count as blanks."""
    return next(csv.reader([line.replace("\r", " ").replace("\0", " ")], delimiter=delimiter), [])


def _find_delimiter(line: str) -> str:
    """Return the delimiter of a line: a tab if it has one, otherwise the more frequent one of comma and semicolon."""
    line = re.sub('"[^"]*"', "", line)  # a name in quotes may hold other marks
    return "\t" if "\t" in line else max(_DELIMITERS, key=line.count)


def _split_header(path: Path, line: str, n_comments: int, *, is_empty: bool) -> Header:
    """Return the header of a table: column names, and the delimiter that separates most of them."""
    line = line.removeprefix("#")
    if not line.strip():
        raise NoTableError(f"{path}: the file is empty" if is_empty else f"{path}: the first line is empty")
    if line.startswith(_HDF5):
        raise NoTableError(f"{path}: is an HDF5 file, either damaged or not a container; expected a text table")
    if any(letter < " " for letter in line.rstrip("\r").replace("\t", "")):
        raise NoTableError(f"{path}: not a text table (the first line holds binary data)")
    delimiter = _find_delimiter(line)
    names = _split_fields(line, delimiter)
    if len(names) > MAX_COLUMNS:
        raise NoTableError(f"{path}: {len(names):,} columns; expected at most {MAX_COLUMNS:,}")
    return Header(path, tuple(name.strip() for name in names), delimiter, n_comments)


def read_text(path: Path, max_bytes: int) -> tuple[Header, str]:
    """Return the header of a table and its whole text from there on, with newlines at lines' ends.

    Raises
    ------
    InputError
        If `read_header` raises it, the file has more bytes (unpacked), or a line is too long.
    """
    header = read_header(path)
    data, line_start = bytearray(), 0
    with open_text(path) as stream:
        for block in _normalise_newlines(stream):
            data += block
            if len(data) > max_bytes:
                raise InputError(f"{path}: more than {max_bytes >> 20} MiB of text; is this the metadata sheet?")
            if b"\n" in block:
                line_start = len(data) - len(block) + block.rfind(b"\n") + 1
            if len(data) - line_start > MAX_LINE_BYTES:
                raise make_too_long_error(path)
    if b"\0" in data:
        raise InputError(f"{path}: not a text table (it holds binary data)")
    start, n_missing = _find_line(data, header.n_comments)
    return header, "" if n_missing else decode_name(data[start:])


def _find_line(data: bytes | bytearray, n_before: int) -> tuple[int, int]:
    """Return where the line after `n_before` lines begins; and if there are fewer lines, how many are missing."""
    start = 0
    while n_before and (end := data.find(b"\n", start)) >= 0:
        start, n_before = end + 1, n_before - 1
    return start, n_before


def _make_open_quote_error(header: Header, data: bytes, n_before: int) -> InputError:
    """Return an error for a field in quotes that begins in the first line of data, the file's last lines."""
    first = _find_line_number(header.path, n_before)
    message = f"{header.path}: the field in quotes that begins in line {first} never ends; is there a stray quote?"
    n_fields = [1 + line.count(header.delimiter.encode()) for line in data.splitlines()]
    ragged = next((i for i, n in enumerate(n_fields) if n != len(header.columns)), None)
    if ragged is not None:  # otherwise, quotes would be ordinary letters
        fields = format_count(n_fields[ragged], "field")
        message += f" Without quotes, line {first + ragged} has {fields}, the header has {len(header.columns)}"
    return InputError(message)


def _find_line_number(path: Path, n_before: int) -> int:
    """Return the number of the line that begins after a number of bytes, the file's first line being 1."""
    line_number = 1
    with open_text(path) as stream:
        for block in _normalise_newlines(stream):
            line_number += block[:n_before].count(b"\n")
            n_before -= len(block)
            if n_before <= 0:  # what follows may be large, and is not needed
                break
    return line_number


def make_too_long_error(path: Path, begins: str = "") -> InputError:
    """Return the error for a line that is longer than `MAX_LINE_BYTES`; `begins` says where it begins, if known."""
    return InputError(
        f"{path}: a line or a field in quotes{begins} is longer than {MAX_LINE_BYTES >> 20} MiB; is this a table?"
    )


def read_line_blocks(header: Header) -> Iterator[tuple[bytes, bool]]:
    """Yield a table's lines after the first, many at a time, and whether quotes bind fields together in them.

    Lines are UTF-8 or another 8-bit code, with newlines at their ends. Quotes are ordinary letters if every line then
    has as many fields as the header. Otherwise fields in quotes may hold delimiters and newlines, and are never cut.

    Raises
    ------
    InputError
        If the file is damaged or no text, or a quoted field never ends.
    """
    path = header.path
    with open_text(path) as stream:
        blocks = _refuse_binary_data(path, _normalise_newlines(stream))
        rest, n_before = _skip_lines(path, blocks, header.n_comments + 1)
        quotes_matter, min_size = False, 0
        for block in chain([b""], blocks):
            rest += block
            if len(rest) < min_size:
                continue
            n_complete, quotes_matter = _find_last_line_end(rest, header, quotes_matter=quotes_matter, at_end=False)
            if n_complete:
                yield rest[:n_complete], quotes_matter
                rest = rest[n_complete:]
                n_before += n_complete
            min_size = 2 * len(rest) if len(rest) > 2 * _BLOCK_BYTES else 0  # do not search the same data often
            if len(rest) > MAX_LINE_BYTES:
                line_number = _find_line_number(path, n_before)
                raise make_too_long_error(path, f" that begins in line {line_number}" if quotes_matter else "")
        if rest:
            rest = rest if rest.endswith(b"\n") else rest + b"\n"
            n_complete, quotes_matter = _find_last_line_end(rest, header, quotes_matter=quotes_matter, at_end=True)
            if n_complete != len(rest):
                raise _make_open_quote_error(header, rest[n_complete:], n_before + n_complete)
            yield rest, quotes_matter


def _refuse_binary_data(path: Path, blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        if b"\0" in block:
            raise InputError(f"{path}: not a text table (it holds binary data)")
        yield block


def _skip_lines(path: Path, blocks: Iterable[bytes], n_lines: int) -> tuple[bytes, int]:
    """Read some lines; return what follows them in the last block that was read, and how many bytes come before it."""
    rest, n_before = b"", 0
    for block in blocks:
        rest += block
        start, n_lines = _find_line(rest, n_lines)
        rest, n_before = rest[start:], n_before + start
        if n_lines == 0:
            return rest, n_before
        if len(rest) > MAX_LINE_BYTES:
            raise make_too_long_error(path)
    return b"", n_before


def _normalise_newlines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks without a byte-order mark; UTF-16 becomes UTF-8, and a lone carriage return a newline."""
    start = stream.read(_START_BYTES)
    text = start.decode("utf-16", "replace").encode() if start.startswith(_UTF16) else start
    old_macintosh = b"\r" in text and b"\n" not in text
    first = start.removeprefix(_UTF8_MARK)
    first_blocks = (first[at : at + _BLOCK_BYTES] for at in range(0, len(first), _BLOCK_BYTES))
    blocks = chain(first_blocks, iter(lambda: stream.read(_BLOCK_BYTES), b""))
    if start.startswith(_UTF16):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
        blocks = chain(decoder.decode(block).encode() for block in blocks)
    for block in blocks:
        yield block.replace(b"\r", b"\n") if old_macintosh else block


def _find_last_line_end(data: bytes, header: Header, *, quotes_matter: bool, at_end: bool) -> tuple[int, bool]:
    """Return where the last line ends that can be parsed now (0: none can), and whether quotes matter from here on.

    In a table without quoted fields, `5" fragment` is a field with an ordinary letter. In a table with quoted fields, a
    quote may begin a field that holds delimiters or newlines. To tell them apart, fields are first counted as if quotes
    were letters. Quotes matter from the first block on in which a line then has too many or too few fields.

    Before that block, a quote without a partner may begin a field that goes on in the next block. So its line, and all
    lines after it, wait for the next block, unless they are already too long.
    """
    end = data.rfind(b"\n") + 1
    if b'"' not in data and not quotes_matter:
        return end, False
    letters = np.frombuffer(data, np.uint8)[:end]
    quotes = np.flatnonzero(letters == ord('"'))
    ends = np.flatnonzero(letters == ord("\n"))
    n_quotes = np.searchsorted(quotes, ends)  # before the end of each line
    if not quotes_matter and _are_regular(letters, ends, header):
        if len(quotes) % 2 == 0 or at_end or end > _MAX_KEPT_BACK_BYTES:
            return end, False
        last_unpaired = np.flatnonzero(np.diff(n_quotes, prepend=0) % 2)[-1]  # last line with an odd number of quotes
        return (int(ends[last_unpaired - 1]) + 1 if last_unpaired else 0), False
    ends_outside = ends[n_quotes % 2 == 0]  # newlines that are in no field with quotes
    return (int(ends_outside[-1]) + 1 if len(ends_outside) else 0), True


def _are_regular(letters: NDArray[np.uint8], ends: NDArray[np.int64], header: Header) -> bool:
    """Return whether every line has the header's number of fields, quotes being letters; blank lines do not count."""
    marks = np.flatnonzero(letters == ord(header.delimiter))
    n_fields = 1 + np.diff(np.searchsorted(marks, ends), prepend=0)
    lengths = np.diff(ends, prepend=-1)  # of the lines, with their newlines
    is_blank = (lengths == 1) | ((lengths == 2) & (letters[ends - 1] == ord("\r")))
    return bool(((n_fields == len(header.columns)) | is_blank).all())


def decode_name(data: bytes | bytearray) -> str:
    """Return UTF-8 as text; if it is not UTF-8, Windows-1252, which Excel writes; if it is neither, Latin-1."""
    for encoding in ("utf-8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode(encoding)
    return data.decode("latin-1")
