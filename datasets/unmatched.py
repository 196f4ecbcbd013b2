"""Explain why rows of a sheet have no repertoire: names that a spreadsheet program changed, files of Excel."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from deeprc.errors import join_names

__all__ = ["EXCEL_ENDINGS", "describe_excel_files", "explain_different_names"]

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


def _simplify_name(name: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"[\W_]+", "-", name.casefold()))
