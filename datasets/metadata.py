"""The metadata sheet: one row per repertoire, from TSV, CSV or XLSX; which file belongs to which row."""

from __future__ import annotations

import csv
import io
import os
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.datasets.matching import stems
from deeprc.datasets.overview import add_tag_columns, is_sample_overview
from deeprc.datasets.readers.text import decode, open_text, split_header
from deeprc.datasets.workbook import open_workbook
from deeprc.errors import InputError

__all__ = ["Metadata", "read_metadata"]

_ID_COLUMNS = (
    "repertoire_id",
    "repertoire_identifier",
    "sample_id",
    "sample_name",
    "sample",
    "sample_identifier",
    "ID",
    "identifier",
    "name",
    "run_id",
    "subject_id",
    "subject",
    "patient_id",
    "patient",
    "donor_id",
    "donor",
)
_FILE_COLUMNS = ("filename", "file_name", "file", "filepath", "file_path", "path", "repertoire_file")
_MISSING = frozenset(
    {"", "na", "n/a", "nan", "null", "<na>", "#n/a", "no data", "unknown", "missing", "not available", "?"}
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_INT64 = range(-(2**63), 2**63)
_EXACT_IN_FLOAT = 2**53


@dataclass(frozen=True)
class Metadata:
    """A metadata sheet whose repertoires are known by id.

    Attributes
    ----------
    path
        The sheet.
    id_column
        The column that the ids are from.
    repertoire_ids
        One id per row, as the sheet has them: text, without blanks around it.
    table
        All named columns, one row per repertoire: int64, float64 or text (object; missing is None).
    files
        What the sheet's file column says, one text per row, "" where it says nothing; all "" without such a
        column.
    """

    path: Path
    id_column: str
    repertoire_ids: tuple[str, ...]
    table: pd.DataFrame
    files: tuple[str, ...]


def read_metadata(
    path: str | os.PathLike[str],
    *,
    id_column: str | None = None,
    sheet: str | None = None,
    files: Iterable[Path] = (),
) -> Metadata:
    """Read a metadata sheet; TSV, CSV or XLSX is found out from what is in it, not from its name.

    An immunoSEQ sample overview gets the columns that its `sample_tags` hold: `cmv`, `age`, `sex`, `hla` ...

    Parameters
    ----------
    path
        The file.
    id_column
        The column of the repertoire ids. None looks for the names that the field uses; where several are
        there, the one whose values match most of `files`, then the one that comes first in the list.
    sheet
        The sheet of an XLSX file; the first one when None.
    files
        Repertoire files, which help to choose the id column.

    Raises
    ------
    InputError
        If the file cannot be read, has no id column or two rows of one id; rows are numbered as in a
        spreadsheet.
    """
    path = Path(path)
    rows = _read_rows(path, sheet)
    names, cells, numbers = _split(path, rows)
    text = {name: [row[index] for row in cells] for index, name in enumerate(names) if name}
    _check_names(path, [name for name in names if name])
    file_column = _find(text, _FILE_COLUMNS)
    chosen = _id_column(path, text, id_column, file_column, files)
    ids = text[chosen]
    if id_column is None and chosen == file_column:
        ids = [stems(value)[-1] for value in ids]
    _check_ids(path, chosen, ids, numbers)
    if is_sample_overview(text):
        text = add_tag_columns(path, text, numbers)
    table = pd.DataFrame(
        {name: pd.Series(values, dtype=object) if name == chosen else _typed(values) for name, values in text.items()},
        index=pd.RangeIndex(len(ids)),
    )
    paths = [""] * len(ids) if file_column is None else text[file_column]
    return Metadata(path, chosen, tuple(ids), table, tuple("" if is_missing(value) else value for value in paths))


def is_missing(value: str) -> bool:
    """Tell whether a cell of the sheet is empty or one of the words that stand for a missing value."""
    return value.lower() in _MISSING


def _read_rows(path: Path, sheet: str | None) -> list[list[str]]:
    """Return all rows as text without blanks around the cells, the header first."""
    if _is_workbook(path):
        return _read_xlsx(path, sheet)
    with open_text(path) as stream:
        data = stream.read()
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise InputError(f"{path}: the old binary Excel format; save the sheet as XLSX, CSV or TSV")
    text = decode(data)
    delimiter = split_header(path, text).delimiter
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as a table: {error}") from error
    return [[cell.replace("\x00", "").strip() for cell in row] for row in rows]


def _is_workbook(path: Path) -> bool:
    """Tell an XLSX file, which is a zip file with a list of its parts, from a table in a zip file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "[Content_Types].xml" in archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError):
        return path.read_bytes()[:2] == b"PK"
    except OSError:
        return False  # whoever reads it next says why


def _read_xlsx(path: Path, sheet: str | None) -> list[list[str]]:
    book = open_workbook(path)
    if sheet is not None and sheet not in book.sheetnames:
        raise InputError(f"{path}: no sheet {sheet!r}; the file has {', '.join(book.sheetnames)}")
    cells = (book[sheet] if sheet is not None else book.worksheets[0]).iter_rows()
    return [[_cell(cell.value, cell.number_format) for cell in row] for row in cells]


def _cell(value: object, number_format: str) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and re.fullmatch("0+", number_format):
        return str(value).zfill(len(number_format))  # 7 that Excel shows as 007
    return str(value).strip()


def _split(path: Path, rows: Sequence[list[str]]) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the header, the rows that are not blank, and their numbers as a spreadsheet counts them."""
    numbered = [(number, row) for number, row in enumerate(rows, 1) if any(row)]
    if not numbered:
        raise InputError(f"{path}: the file is empty")
    (_, names), *body = numbered
    if not body:
        raise InputError(f"{path}: a header and no rows")
    for number, row in body:
        if len(row) > len(names) and any(row[len(names) :]):
            raise InputError(f"{path}: row {number} has {len(row)} fields where the header has {len(names)}")
    names[0] = names[0].removeprefix("#").strip()
    return names, [row + [""] * (len(names) - len(row)) for _, row in body], [number for number, _ in body]


def _check_names(path: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path}: two columns are called {name!r}")
        seen.add(name)


def _id_column(
    path: Path,
    text: dict[str, list[str]],
    wanted: str | None,
    file_column: str | None,
    files: Iterable[Path],
) -> str:
    if wanted is not None:
        found = wanted if wanted in text else _find(text, [wanted])
        if found is None:
            close = get_close_matches(wanted, text, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InputError(f"{path}: no column {wanted!r}{hint}; the columns are {', '.join(text)}")
        return found
    candidates = [name for name in (_find(text, [each]) for each in _ID_COLUMNS) if name is not None]
    if candidates:
        known = {stem for file in files for stem in stems(file.name)}
        unique = {name: len(set(text[name])) == len(text[name]) for name in candidates}
        return max(candidates, key=lambda name: (len(known.intersection(text[name])), unique[name]))
    if file_column is not None:
        return file_column
    raise InputError(
        f"{path}: no column of repertoire ids among {', '.join(text)}; looked for {', '.join(_ID_COLUMNS)}. "
        "Name it with --id-column"
    )


def _find(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """Return the column of the first wanted name that is there; case, blanks and separators do not count."""
    plain = {_plain(name): name for name in reversed(list(names))}
    return next((plain[_plain(name)] for name in wanted if _plain(name) in plain), None)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _check_ids(path: Path, column: str, ids: Sequence[str], numbers: Sequence[int]) -> None:
    first: dict[str, int] = {}
    for repertoire_id, number in zip(ids, numbers, strict=True):
        if not repertoire_id:
            raise InputError(f"{path}: row {number}, column {column!r}: the repertoire has no id")
        if repertoire_id in first:
            raise InputError(
                f"{path}: rows {first[repertoire_id]} and {number} have the same {column} {repertoire_id!r}; "
                "ids must be unique (another column is chosen with --id-column)"
            )
        first[repertoire_id] = number


def _text(values: Sequence[str]) -> pd.Series:
    return pd.Series([None if is_missing(value) else value for value in values], dtype=object)


def _typed(values: Sequence[str]) -> pd.Series:
    """Return numbers where every value is one, else text; `007` and numbers too long to be exact are text."""
    given = [value for value in values if not is_missing(value)]
    numeric = all(_NUMBER.fullmatch(value) and not _LEADING_ZERO.match(value) for value in given)
    if not given or not numeric:
        return _text(values)
    if all(_INTEGER.fullmatch(value) for value in given):
        limit = _INT64 if len(given) == len(values) else range(-_EXACT_IN_FLOAT, _EXACT_IN_FLOAT + 1)
        if not all(int(value) in limit for value in given):
            return _text(values)
        if len(given) == len(values):
            return pd.Series([int(value) for value in values], dtype=np.int64)
    return pd.Series([np.nan if is_missing(value) else float(value) for value in values], dtype=np.float64)
