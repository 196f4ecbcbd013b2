"""Explain why rows of a sheet have no repertoire: changed names, other files than tables, names of folders."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from deeprc.errors import join_names, quote

__all__ = [
    "EXCEL_ENDINGS",
    "describe_excel_files",
    "describe_unsearched_files",
    "explain_different_names",
    "explain_folder_names",
    "explain_longer_names",
]

EXCEL_ENDINGS = frozenset({".xlsx", ".xls", ".xlsm", ".xlsb"})
"""Endings of the names of Excel files."""

_SHOWN = 3
_MONTH = (
    r"(jan(uary|uar)?|feb(ruary|ruar)?|mar(ch)?|m\u00e4r(z)?|mrz|apr(il)?|may|mai|june?|juni|july?|juli|aug(ust)?"
    r"|sept?(ember)?|o[ck]t(ober)?|nov(ember)?|de[cz](ember)?)"
)
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d|\d{1,2}([./])\d{1,2}\1(\d{2}|\d{4})"
    rf"|\d{{1,2}}[-. ]+{_MONTH}\.?|{_MONTH}[-. ]+\d{{1,2}}",
    re.IGNORECASE,
)


def describe_excel_files(files: Iterable[Path]) -> str:
    """Return a remark that the Excel files among some files are not read; "" without any."""
    names = [file.name for file in files if file.suffix.lower() in EXCEL_ENDINGS]
    if not names:
        return ""
    if len(names) == 1:
        return f"found {names[0]}, an Excel file, which is not read; save it as tab-separated text"
    listing = join_names(names, _SHOWN)
    return f"found {len(names):,} Excel files, which are not read: {listing}; save them as tab-separated text"


def describe_unsearched_files(files: Iterable[Path], file_column: str | None = None) -> str:
    """Return a remark about files in a folder that the search leaves out because of their endings; "" without any.

    `file_column` is the column of the sheet that names files, if it has one.
    """
    names = [file.name for file in files]
    if not names:
        return ""
    if len(names) == 1:
        return f"found {names[0]}, which is left out because of its ending: give its path, or name it in the sheet"
    listing = join_names(names, _SHOWN)
    return (
        f"found {len(names):,} files, which are left out because of their endings: {listing}; give their paths, or "
        f"name them in the sheet in {_name_file_column(file_column)}"
    )


def explain_folder_names(rows: Sequence[Collection[str]], files: Iterable[Path], file_column: str | None) -> str:
    """Return a remark about files whose folders have the names of rows, as Cell Ranger writes them; "" without any.

    Parameters
    ----------
    rows
        Possible names of each row, such as its id and its file.
    files
        Files that belong to no row.
    file_column
        Column of the sheet that names files; None if it has none.
    """
    folder_of = {part: file for file in files for part in file.parts[-4:-1]}  # the deepest folders
    matches = (next((name for name in names if name in folder_of), None) for names in rows)
    found = [name for name in matches if name is not None]
    if not found or 2 * len(found) < len(rows):
        return ""
    file, folder = folder_of[found[0]], found[0]
    depth = file.parts[::-1].index(folder) + 1
    path = Path(*file.parts[-depth:]).as_posix()
    return (
        f"folders have these names, but files do not: name each file in {_name_file_column(file_column)} of the sheet, "
        f"such as {path}"
    )


def explain_different_names(rows: Sequence[Collection[str]], file_names: Iterable[str]) -> str:
    """Return a remark about names that a spreadsheet program may have changed; "" if no name looks changed.

    Parameters
    ----------
    rows
        Possible names of each row, such as its id and its file.
    file_names
        Names of files that belong to no row.
    """
    file_names = list(file_names)
    plain = {_simplify_name(name) for name in file_names}
    n = sum(any(_simplify_name(name) in plain for name in names) for names in rows)
    if n and 2 * n >= len(rows):
        subject = "they" if n == len(rows) else f"{n:,} of {len(rows):,}"
        return (
            f"{subject} would match if case, leading zeros and the difference of '-', '_' and blanks were ignored; "
            "a spreadsheet program may have changed them"
        )
    dates = [next((name for name in names if _DATE.fullmatch(name)), None) for names in rows]
    example = next(filter(None, dates), None)
    if file_names and example and 2 * sum(map(bool, dates)) >= len(dates) and not any(map(_DATE.fullmatch, file_names)):
        return f"{example!r} looks like a date; a spreadsheet program may have changed the ids"
    return ""


def explain_longer_names(rows: Sequence[Collection[str]], stem_of: Mapping[Path, str], file_column: str | None) -> str:
    """Return a remark about files whose names hold those of rows, and more, such as `P1_TCRB.tsv` for P1; or "".

    Case, leading zeros and separators are ignored. Each row must be a whole part of the name of one file only.

    Parameters
    ----------
    rows
        Possible names of each row, such as its id and its file.
    stem_of
        Names without endings of the files that belong to no row.
    file_column
        Column of the sheet that names files; None if it has none.
    """
    holders: dict[str, Path | None] = {}  # by a part of the name; None for a part that several files have
    for file, stem in stem_of.items():
        words = _simplify_name(stem).split("-")
        parts = {"-".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
        for part in parts:
            holders[part] = None if part in holders else file
    found = [
        next(((name, holder) for name in names if (holder := holders.get(_simplify_name(name)))), None)
        for names in rows
    ]
    matches = [match for match in found if match is not None]
    if not matches or 2 * len(matches) < len(rows) or len({file for _, file in matches}) < len(matches):
        return ""
    name, file = matches[0]
    remark = f"names of files have more letters, such as {file.name} for {name!r}: name each file in "
    case = ", with the same case of letters" if name not in file.name else ""
    return f"{remark}{_name_file_column(file_column)} of the sheet{case}"


def _name_file_column(file_column: str | None) -> str:
    return "a column 'file'" if file_column is None else f"the column {quote(file_column)}"


def _simplify_name(name: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"[\W_]+", "-", name.casefold()))
