"""The metadata sheet: one row per repertoire, from TSV, CSV or XLSX; which file belongs to which row."""

from __future__ import annotations

import csv
import io
import logging
import os
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from deeprc.datasets.id_column import SHOWN_COLUMNS, find_column, find_id_column, is_title
from deeprc.datasets.matching import list_stems
from deeprc.datasets.missing import MISSING_IN_SHEETS, is_missing
from deeprc.datasets.overview import add_tag_columns, is_sample_overview
from deeprc.datasets.readers.layout import Header
from deeprc.datasets.readers.text import MAX_COLUMNS, open_text, read_text
from deeprc.datasets.sheet_remarks import check_unnamed_columns, warn_of_cells_without_value, warn_of_commas
from deeprc.datasets.sheet_values import has_decimal_commas, parse_column, replace_decimal_comma
from deeprc.datasets.workbook import MAX_CELLS, MAX_ROWS, MAX_SHEET_BYTES, CellsWithoutValue, is_workbook, open_sheet
from deeprc.documents import CONTROL_CHARACTERS
from deeprc.errors import InputError, join_names, quote
from deeprc.files import check_regular_file

__all__ = ["Metadata", "find_file_column", "make_metadata", "read_metadata"]

_FILE_COLUMNS = ("filename", "file_name", "file", "filepath", "file_path", "path", "repertoire_file")
_ZEROS = re.compile("0{1,255}")
_LINES = re.compile(r"\s*[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]\s*")
"""Characters that divide the text of a cell into lines or columns; a blank replaces them."""

_MAX_LETTERS = 32_767
"""Letters of the longest cell, as in a spreadsheet: in a container, all cells of a column take as many bytes as the
longest."""

_Row = tuple[int, list[str]]
"""The number of a row, as a spreadsheet counts it, and its cells."""

_logger = logging.getLogger(__name__)


class _RawSheet(NamedTuple):
    """A sheet before its header is looked at.

    Attributes
    ----------
    rows
        The rows that are not blank, the header first; blanks around the cells are removed.
    has_semicolons
        Whether semicolons divide the columns.
    without_value
        Cells that only look as if they had a value.
    """

    rows: list[_Row]
    has_semicolons: bool = False
    without_value: CellsWithoutValue = CellsWithoutValue()


@dataclass(frozen=True)
class Metadata:
    """A metadata sheet, with the id of the repertoire in each row.

    Attributes
    ----------
    path
        Path of the sheet.
    id_column
        Column from which the ids are.
    repertoire_ids
        Id of each row, as the sheet has it: text, without blanks around it.
    table
        All named columns, one row per repertoire: int64, float64 or text (object; missing is None).
    files
        Text of the sheet's file column in each row; "" if it is empty, or if there is no such column.
    file_column
        Name of that column; None if there is none.
    """

    path: Path
    id_column: str
    repertoire_ids: tuple[str, ...]
    table: pd.DataFrame
    files: tuple[str, ...]
    file_column: str | None = None


def read_metadata(
    path: str | os.PathLike[str],
    *,
    id_column: str | None = None,
    sheet: str | None = None,
    files: Iterable[Path] = (),
    ids: Iterable[str] = (),
) -> Metadata:
    """Read a metadata sheet; its content, not its name, says whether it is TSV, CSV or XLSX.

    An immunoSEQ sample overview gets the columns that its `sample_tags` hold: `cmv`, `age`, `sex`, `hla` ... In a sheet
    whose columns are divided by semicolons, numbers may have decimal commas. In other sheets they are text, with a
    warning, because `1,2` may be a list. Warnings also name columns without a name, merged cells, and formulas without
    a value.

    Parameters
    ----------
    path
        Path of the sheet.
    id_column
        Column of the repertoire ids. None: it is found by the usual names. If there are several, it is the one whose
        values match most of `files` or `ids`, then the first in the list. A column of another name is taken if none of
        its values repeats, if most of them match, and if more of them match than those of any usual column. It is not
        taken if there is a file column whose names match in most rows. A column of plain numbers is taken only if no
        value of a usual column matches, and there is no file column.
    sheet
        Sheet of an XLSX file; None: the first one.
    files
        Repertoire files, which help to choose the id column.
    ids
        Known repertoire ids, which also help to choose it.

    Raises
    ------
    InputError
        If the file cannot be read, is too large (see `deeprc.datasets.workbook`), has no id column or two rows of one
        id; rows are numbered as in a spreadsheet.
    """
    path = Path(path)
    check_regular_file(path, expected="a metadata sheet")
    possible_ids = {*ids, *(stem for file in files for stem in list_stems(file.name))}
    of_workbook = is_workbook(path)
    raw = _read_workbook(path, sheet) if of_workbook else _read_text_sheet(path)
    metadata = _parse_sheet(path, raw.rows, id_column, possible_ids, decimal_commas=raw.has_semicolons)
    texts = metadata.table.select_dtypes(object).drop(
        columns=[metadata.id_column, metadata.file_column], errors="ignore"
    )
    warn_of_commas(
        path, {str(name): column.fillna("").tolist() for name, column in texts.items()}, of_workbook=of_workbook
    )
    warn_of_cells_without_value(path, raw.without_value)
    return metadata


def make_metadata(
    columns: Mapping[str, Sequence[Any]], *, id_column: str | None = None, ids: Iterable[str] = ()
) -> Metadata:
    """Return the sheet that `read_metadata` would read from the values of a table in memory.

    Parameters
    ----------
    columns
        Values of each column; None and NaN are missing.
    id_column, ids
        As in `read_metadata`.

    Raises
    ------
    InputError
        As in `read_metadata`; rows are numbered as in a spreadsheet, the header being row 1.
    """
    cells = [["" if pd.isna(value) else _format_value(value) for value in column] for column in columns.values()]
    header = (1, [_LINES.sub(" ", str(name).strip()) for name in columns])
    rows = [header, *enumerate((list(row) for row in zip(*cells, strict=True)), 2)]
    return _parse_sheet(Path("metadata"), rows, id_column, set(ids))


def _parse_sheet(
    path: Path,
    rows: Sequence[_Row],
    id_column: str | None,
    possible_ids: Set[str],
    *,
    decimal_commas: bool = False,
) -> Metadata:
    """Return a sheet from its rows, the header first."""
    names, cells, numbers = _separate_header(path, rows)
    check_unnamed_columns(path, names, dict(zip(numbers, cells, strict=True)))
    columns = {name: [row[index] for row in cells] for index, name in enumerate(names) if name}
    _check_names(path, [name for name in names if name])
    file_column = find_column(columns, _FILE_COLUMNS)
    chosen = find_id_column(path, columns, id_column, file_column, possible_ids)
    ids = columns[chosen]
    if id_column is None and chosen == file_column:
        ids = [list_stems(value)[-1] for value in ids]
    advice = " (another column is chosen with `id_column`)" if id_column is None else ""
    _check_ids(path, chosen, ids, numbers, advice=advice)
    if is_sample_overview(columns):
        columns = add_tag_columns(path, columns, numbers)
    if decimal_commas:
        columns = _replace_decimal_commas(path, columns, (chosen, file_column))
    table = pd.DataFrame(
        {
            name: pd.Series(values, dtype=object) if name == chosen else parse_column(values)
            for name, values in columns.items()
        },
        index=pd.RangeIndex(len(ids)),
    )
    paths = [""] * len(ids) if file_column is None else columns[file_column]
    file_names = tuple("" if is_missing(value, MISSING_IN_SHEETS) else value for value in paths)
    return Metadata(path, chosen, tuple(ids), table, file_names, file_column)


def find_file_column(columns: Iterable[str]) -> str | None:
    """Return the column that by its name holds the repertoires' files; None if there is none."""
    return find_column(columns, _FILE_COLUMNS)


def _read_workbook(path: Path, name: str | None) -> _RawSheet:
    """Return a sheet of an XLSX file, without the comments before the header."""
    with open_sheet(path, name) as sheet:
        rows = _drop_comments((number, [_format_cell(cell) for cell in row]) for number, row in sheet.iterate_rows())
        return _RawSheet(rows, without_value=sheet.find_cells_without_value())


def _read_text_sheet(path: Path) -> _RawSheet:
    """Return a sheet that is a text table, without the comments before the header."""
    with open_text(path) as stream:
        if stream.read(4) == b"\xd0\xcf\x11\xe0":
            raise InputError(f"{path}: the old binary Excel format; save the sheet as XLSX, CSV or TSV")
    header, text = read_text(path, MAX_SHEET_BYTES)
    rows: list[_Row] = []
    n_cells = 0
    try:
        for row_number, line in enumerate(_parse_rows(path, text, header), header.n_comments + 1):
            n_cells += len(line)
            if len(rows) > MAX_ROWS or n_cells > MAX_CELLS or len(line) > MAX_COLUMNS:
                limits = f"{MAX_ROWS:,} rows of {MAX_COLUMNS:,} columns and {MAX_CELLS:,} cells"
                raise InputError(f"{path}: row {row_number}: too large; expected at most {limits} in a sheet")
            cells = [_LINES.sub(" ", cell.strip()) for cell in line]
            if any(cells):
                rows.append((row_number, cells))
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as a table: {error}") from error
    return _RawSheet(rows, has_semicolons=header.delimiter == ";")


def _replace_decimal_commas(
    path: Path, columns: Mapping[str, list[str]], kept: Collection[str | None]
) -> dict[str, list[str]]:
    """Return the columns of a sheet with decimal points in numbers with decimal commas; `kept` ones do not change."""
    with_commas = [name for name, values in columns.items() if name not in kept and has_decimal_commas(values)]
    if with_commas:
        _logger.warning("%s: commas are read as decimal commas in: %s", path, join_names(with_commas, SHOWN_COLUMNS))
    return {
        name: [replace_decimal_comma(value) for value in values] if name in with_commas else values
        for name, values in columns.items()
    }


def _parse_rows(path: Path, text: str, header: Header) -> Iterator[list[str]]:
    """Yield the cells of each row of a text, so that the caller can refuse a sheet that is too large before its end.

    A stray quote mark would join lines to one cell. So if each line has as many cells as the header, and quotes would
    make fewer rows of them, quotes are ordinary characters, except around a whole cell. But if quotes make the header
    longer than its first line, a name in it has several lines.

    Raises
    ------
    InputError
        If a quoted cell does not end.
    """

    def parse(*, strict: bool = False) -> Iterator[list[str]]:
        return csv.reader(io.StringIO(text, newline=""), delimiter=header.delimiter, strict=strict)

    if '"' not in text:
        return parse()
    n = text.partition("\n")[0].count(header.delimiter)
    n_lines = sum(1 for line in io.StringIO(text) if line.strip())
    if n and all(line.count(header.delimiter) == n for line in io.StringIO(text) if line.strip()):
        header_goes_on = text.count('"') % 2 == 0 and len(next(parse())) > n + 1
        if header_goes_on or sum(map(any, parse())) == n_lines:
            return parse()
        lines = (line.split(header.delimiter) for line in io.StringIO(text))
        return ([_unquote(cell.strip()) for cell in cells] for cells in lines)
    try:
        deque(parse(strict=True), maxlen=0)
    except csv.Error as error:
        if "unexpected end" in str(error):
            row = header.n_comments + sum(1 for _ in parse())
            raise InputError(f"{path}: row {row}: a cell in quotes never ends; is there a stray quote?") from error
    return parse()


def _unquote(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _drop_comments(rows: Iterable[_Row]) -> list[_Row]:
    """Leave out the first rows of a workbook that are comments: one cell that begins with `#` above longer rows."""
    kept = [(number, row) for number, row in rows if any(row)]
    start = 0
    while start + 1 < len(kept):
        first, *others = kept[start][1]
        alone = not any(others) and len(kept[start + 1][1]) > 1
        if not (first.startswith("##") or (first.startswith("#") and alone)):
            break
        start += 1
    return kept[start:]


def _format_cell(cell: Any) -> str:
    """Return a workbook's cell as text, as Excel shows it if zeros stand before a number."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool):
        return str(value).upper()  # as Excel shows it, and writes it to CSV
    if isinstance(value, int) and _ZEROS.fullmatch(cell.number_format):
        return str(value).zfill(len(cell.number_format))  # 7 that Excel shows as 007
    return _format_value(value)


def _format_value(value: Any) -> str:
    """Return a value as text; a time at midnight becomes a date without a time, such as 2020-01-05."""
    if isinstance(value, datetime) and value.time() == time():
        value = value.date()
    return _LINES.sub(" ", str(value).strip())


def _separate_header(path: Path, rows: Sequence[_Row]) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the header, the other rows, as long as the header, and their numbers as a spreadsheet counts them."""
    if not rows:
        raise InputError(f"{path}: the file is empty")
    (_, names), *body = rows
    if not body:
        raise InputError(f"{path}: a header and no rows")
    for row_number, row in rows:
        _check_cells(path, names, row_number, row)
    for row_number, row in body:
        if len(row) > len(names) and any(row[len(names) :]):
            remark = "; is there a title above the header?" if is_title(names) else ""
            found = f"{len(row)} fields where the header has {len(names)}"
            raise InputError(f"{path}: row {row_number} has {found}{remark}")
    names[0] = names[0].removeprefix("#").strip()
    cells = [row[: len(names)] + [""] * (len(names) - len(row)) for _, row in body]
    return names, cells, [row_number for row_number, _ in body]


def _check_cells(path: Path, names: Sequence[str], row_number: int, row: Sequence[str]) -> None:
    """Refuse cells that are too long, or would steer a terminal."""
    row_text = " ".join(row)
    if len(row_text) <= _MAX_LETTERS and not CONTROL_CHARACTERS.search(row_text):
        return
    for name, cell in zip(names, row, strict=False):
        where = f"{path}: row {row_number}, column {quote(name)}"
        if len(cell) > _MAX_LETTERS:
            raise InputError(f"{where}: expected at most {_MAX_LETTERS:,} letters, found {len(cell):,}")
        if CONTROL_CHARACTERS.search(cell):
            raise InputError(f"{where}: expected no control characters, found {quote(cell)}")


def _check_names(path: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path}: two columns are called {quote(name)}")
        seen.add(name)


def _check_ids(path: Path, column: str, ids: Sequence[str], numbers: Sequence[int], *, advice: str) -> None:
    """Raise InputError if a row has no id, or two rows have the same one; `advice` ends the message."""
    first: dict[str, int] = {}
    for repertoire_id, row_number in zip(ids, numbers, strict=True):
        if not repertoire_id:
            raise InputError(f"{path}: row {row_number}, column {column!r}: the repertoire has no id")
        if repertoire_id in first:
            raise InputError(
                f"{path}: rows {first[repertoire_id]} and {row_number} have the same {column} {quote(repertoire_id)}; "
                f"ids must be unique{advice}"
            )
        first[repertoire_id] = row_number
