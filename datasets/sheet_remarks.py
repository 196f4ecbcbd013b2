"""Warnings about values of a metadata sheet that deeprc does not read as a user may expect."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from deeprc.datasets.id_column import SHOWN_COLUMNS, is_title
from deeprc.datasets.missing import MISSING_IN_SHEETS, is_missing
from deeprc.datasets.sheet_values import has_commas_in_numbers
from deeprc.datasets.workbook import CellsWithoutValue
from deeprc.errors import InputError, join_names

__all__ = ["check_unnamed_columns", "warn_of_cells_without_value", "warn_of_commas"]

_SHOWN_CELLS = 5

_logger = logging.getLogger(__name__)


def check_unnamed_columns(path: Path, names: Sequence[str], rows: Mapping[int, Sequence[str]]) -> None:
    """Log a warning about columns that have values and no name, and are therefore left out.

    The first column may have no name without a warning if it has numbers of rows, as pandas and R write them.

    Parameters
    ----------
    path
        Path of the sheet.
    names
        The header.
    rows
        Cells of each row by its number.

    Raises
    ------
    InputError
        If the header has so few names that it is probably a title.
    """
    unnamed = [
        index
        for index, name in enumerate(names)
        if not name and _has_values(rows, index) and not (index == 0 and _has_row_numbers(rows))
    ]
    if not unnamed:
        return
    n_named = sum(map(bool, names))
    if (is_title(names) and unnamed[-1] > 0) or len(unnamed) > n_named:
        number, row = next((number, row) for number, row in rows.items() if row[unnamed[-1]])
        found = f"{sum(map(bool, row))} fields where the header has {n_named}"
        raise InputError(f"{path}: row {number} has {found}; is there a title above the header?")
    columns = join_names([str(index + 1) for index in unnamed], SHOWN_COLUMNS)
    _logger.warning(
        "%s: columns without a name are left out, though they have values: column %s; give each a name; if the names "
        "are in several rows, write all into one row and delete the rows above it",
        path,
        columns,
    )


def _has_values(rows: Mapping[int, Sequence[str]], index: int) -> bool:
    """Return whether a column, by its index, has cells with values, not empty ones or words for missing values."""
    return any(not is_missing(row[index], MISSING_IN_SHEETS) for row in rows.values())


def _has_row_numbers(rows: Mapping[int, Sequence[str]]) -> bool:
    """Return whether the first cells of all rows are growing whole numbers."""
    first = [row[0] for row in rows.values()]
    return all(map(str.isdecimal, first)) and all(int(a) < int(b) for a, b in pairwise(first))


def warn_of_commas(path: Path, texts: Mapping[str, Sequence[str]], *, of_workbook: bool) -> None:
    """Log a warning about columns of text that may be numbers with decimal commas, or with commas for thousands."""
    with_commas = [name for name, values in texts.items() if has_commas_in_numbers(values)]
    if with_commas:
        _logger.warning(
            "%s: these columns are text, because their numbers have commas: %s; if they are numbers, write decimal "
            "points and no commas%s",
            path,
            join_names(with_commas, SHOWN_COLUMNS),
            ", or in a spreadsheet program turn these cells from text into numbers" if of_workbook else "",
        )


def warn_of_cells_without_value(path: Path, empty: CellsWithoutValue) -> None:
    """Log a warning about cells of a workbook that look full in a spreadsheet program, and are empty in the file."""
    if empty.merged:
        _logger.warning(
            "%s: merged cells have their value in the first row only, the other rows are empty: %s; if the value is "
            "that of all rows, write it into each of them",
            path,
            join_names(empty.merged, _SHOWN_CELLS),
        )
    if empty.formulas:
        _logger.warning(
            "%s: formulas without a computed value are read as empty: %s; open the file in a spreadsheet program and "
            "save it",
            path,
            join_names(empty.formulas, _SHOWN_CELLS),
        )
