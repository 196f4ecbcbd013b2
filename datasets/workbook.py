"""Read XLSX files: the rows of one sheet, within limits that protect against harmful files."""

from __future__ import annotations

import logging
import re
import warnings
import zipfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from xml.parsers import expat

from deeprc.errors import InputError, quote
from deeprc.files import check_regular_file

if TYPE_CHECKING:
    from openpyxl.workbook import Workbook

__all__ = [
    "MAX_CELLS",
    "MAX_ROWS",
    "MAX_SHEET_BYTES",
    "CellsWithoutValue",
    "OpenSheet",
    "SheetRow",
    "is_workbook",
    "open_sheet",
]

_logger = logging.getLogger(__name__)

MAX_SHEET_BYTES = 1 << 27
"""Largest number of bytes of a metadata sheet's text, or of all parts of an XLSX file after unpacking."""

MAX_ROWS = 1_000_000
"""Largest number of rows of a sheet that are not blank."""

MAX_CELLS = 10_000_000
"""Largest number of cells of a sheet in rows that are not blank."""

_LAST_ROW = 1 << 20
_MAX_FORMATTED_CELLS = 20_000_000
"""Largest number of cells of a sheet, blank ones included: in a formatted sheet, most cells are blank."""

_MAX_TAGS = 1_000_000
"""Largest number of XML tags of a row, or of a part without rows: openpyxl keeps a thousand bytes and more of each."""

_MAX_ROWS_AND_STRINGS = 2_500_000
"""Largest number of rows of a sheet, or of texts that its cells share, blank ones included."""

_MERGED = re.compile(rb'<(?:\w{1,20}:)?mergeCell\s[^<>]{0,500}?ref="[A-Z]{1,3}(\d{1,7}):[A-Z]{1,3}(\d{1,7})"')
_FORMULA = re.compile(
    rb'<((?:\w{1,20}:)?)c r="([A-Z]{1,3}\d{1,7})"([^<>]{0,500})>\s{0,99}<\1f(?:[^<>]{0,500}/>|[^<>]{0,500}>[^<]*</\1f>)'
    rb"\s{0,99}(?:<\1v\s?/>|<\1v></\1v>)?\s{0,99}</\1c>"
)
_ROW_OR_STRING = re.compile(rb"<(?:\w{1,20}:)?(?:row|si)\b")
_EMPTY_TEXT = b't="str"'
"""The attribute of a formula whose saved value is a text; it may be empty."""

SheetRow = tuple[int, tuple[Any, ...]]
"""The number of a row, from 1, and its cells up to the last that is not blank; each has a `value` and a
`number_format`."""


@dataclass(frozen=True)
class CellsWithoutValue:
    """The cells of a sheet that look full in a spreadsheet program, and are empty in the file.

    Attributes
    ----------
    merged
        Ranges of merged cells that span several rows, such as `B2:B5`: only the first row has the value.
    formulas
        Cells with formulas whose values the file lacks, because no spreadsheet program has computed them.
    """

    merged: tuple[str, ...] = ()
    formulas: tuple[str, ...] = ()


class _RootReachedError(Exception):
    """Raised to stop the parser at a document type, or at the root element, before which none can follow."""


def is_workbook(path: Path) -> bool:
    """Return whether a file is an XLSX file: a zip file with a list of its parts, unlike a table in a zip file."""
    with suppress(OSError):  # the next attempt to read it raises an error that says why
        try:
            with zipfile.ZipFile(path) as archive:
                return "[Content_Types].xml" in archive.namelist()
        except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError):  # the last: a name that is not UTF-8
            with path.open("rb") as file:
                return file.read(2) == b"PK"
    return False


@contextmanager
def open_sheet(path: Path, name: str | None = None) -> Generator[OpenSheet, None, None]:
    """Open a sheet of an XLSX file for reading; None: the first sheet.

    Raises
    ------
    InputError
        If the file is missing, no regular file, damaged or too large, or has no such sheet.
    """
    check_regular_file(path, expected="an XLSX file")
    with ExitStack() as stack:
        with _convert_errors(path):
            file = stack.enter_context(path.open("rb"))
            _check_parts(path, file)
            book = _open_workbook(file)
            if not book.worksheets:
                raise InputError(f"{path}: the workbook has no sheet with cells")
            if name is not None and name not in book.sheetnames:
                raise InputError(f"{path}: no sheet {name!r}; the file has {', '.join(book.sheetnames)}")
            table = book.worksheets[0] if name is None else book[name]
        if name is None and len(book.worksheets) > 1:
            _logger.info("%s: read the sheet %r, the first of %d", path, table.title, len(book.worksheets))
        yield OpenSheet(path, table)


class OpenSheet:
    """A sheet of an XLSX file that `open_sheet` has opened.

    Parameters
    ----------
    path
        Path of the file.
    table
        The sheet as openpyxl opens it.
    """

    def __init__(self, path: Path, table: Any) -> None:
        self._path, self._table = path, table

    def iterate_rows(self) -> Iterator[SheetRow]:
        """Yield the rows that are not blank; formulas have their saved values.

        Raises
        ------
        InputError
            If the sheet is damaged or too large.
        """
        self._table.reset_dimensions()  # the size that the file states may be wrong
        n_rows = n_cells = n_formatted = 0
        for row_number, row in _number_rows(self._path, self._table.iter_rows()):
            last = next((at for at in range(len(row), 0, -1) if row[at - 1].value is not None), 0)
            n_rows, n_cells, n_formatted = n_rows + (last > 0), n_cells + last, n_formatted + len(row)
            if row_number > _LAST_ROW or n_rows > MAX_ROWS or n_cells > MAX_CELLS or n_formatted > _MAX_FORMATTED_CELLS:
                raise InputError(
                    f"{self._path}: too large; expected at most {MAX_ROWS:,} rows and {MAX_CELLS:,} cells in a sheet"
                )
            if last:
                yield row_number, row[:last]

    def find_cells_without_value(self) -> CellsWithoutValue:
        """Return the cells that only look as if they had a value.

        Raises
        ------
        InputError
            If the sheet is damaged.
        """
        with (
            _convert_errors(self._path),
            self._table._get_source() as stream,
        ):  # openpyxl has no public way to this part
            content = stream.read()
        merged = [match for match in _MERGED.finditer(content) if match[1] != match[2]]
        formulas = [match[2].decode() for match in _FORMULA.finditer(content) if _EMPTY_TEXT not in match[3]]
        ranges = [match[0].rpartition(b'ref="')[2][:-1].decode() for match in merged]
        return CellsWithoutValue(tuple(ranges), tuple(formulas))


def _number_rows(path: Path, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield rows with their numbers; an error names the last row before it."""
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            yield number, row
    except Exception as error:
        raise InputError(f"{path}: cannot be read as XLSX after row {number}: {_explain_error(error)}") from error


def _open_workbook(file: IO[bytes]) -> Workbook:
    import openpyxl  # its import takes longer than reading most sheets, which are text

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl warns of styles and extensions that do not concern the values
        return openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)


@contextmanager
def _convert_errors(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # openpyxl lets whatever it meets in a damaged file through
        raise InputError(f"{path}: cannot be read as XLSX: {_explain_error(error)}") from error


def _explain_error(error: Exception) -> str:
    return " ".join(str(error).partition("; use sys.set_int_max_str_digits")[0].split())


def _check_parts(path: Path, file: IO[bytes]) -> None:
    """Refuse a file that would unpack to too much, or whose XML defines entities, which multiply when they are read."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > MAX_SHEET_BYTES:
            raise InputError(f"{path}: more than {MAX_SHEET_BYTES >> 20} MiB unpacked; is this the metadata sheet?")
        for member in members:
            with archive.open(member) as stream:
                if _has_doctype(stream):
                    raise InputError(f"{path}: part {member.filename!r} has a document type; no XLSX file needs one")
            _check_tags(path, member.filename, archive.read(member))
    file.seek(0)


def _check_tags(path: Path, name: str, content: bytes) -> None:
    """Refuse a part with so many tags that to read it would take minutes and many gigabytes: they pack very well."""
    if content.count(b"<") <= _MAX_TAGS:
        return
    starts = [match.start() for match in _ROW_OR_STRING.finditer(content)]
    if len(starts) <= _MAX_ROWS_AND_STRINGS:
        pieces = pairwise([0, *starts, len(content)])
        if all(content.count(b"<", start, end) <= _MAX_TAGS for start, end in pieces):
            return
    raise InputError(
        f"{path}: too large; part {quote(name)} has more XML tags than a metadata sheet needs; save the sheet alone, "
        "without the other sheets and pivot tables of the file, or as CSV"
    )


def _has_doctype(stream: IO[bytes]) -> bool:
    """Return whether an XML file has a document type before its first element."""
    found = []
    parser = expat.ParserCreate()

    def note_doctype(*_: object) -> None:
        found.append(True)
        raise _RootReachedError

    def stop(*_: object) -> None:
        raise _RootReachedError

    parser.StartDoctypeDeclHandler = note_doctype
    parser.StartElementHandler = stop
    try:
        while block := stream.read(1 << 16):
            parser.Parse(block)
        parser.Parse(b"", True)  # newer versions of expat put off parsing after a long comment
    except (_RootReachedError, expat.ExpatError):  # the latter: no XML, such as a picture
        pass
    return bool(found)
