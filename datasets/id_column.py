"""Choice of the column of a metadata sheet that names the repertoires: by its name, and by its values."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

from deeprc.datasets.matching import list_stems
from deeprc.datasets.overview import normalise_column_name
from deeprc.errors import InputError, describe_missing_column, join_names

__all__ = ["SHOWN_COLUMNS", "find_column", "find_id_column", "is_title"]

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
SHOWN_COLUMNS = 20
"""Number of columns that a message names."""

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)

_logger = logging.getLogger(__name__)


def find_id_column(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    requested: str | None,
    file_column: str | None,
    possible_ids: Set[str],
) -> str:
    """Return the column that names the repertoires of a sheet.

    Parameters
    ----------
    path
        Path of the sheet, for messages.
    columns
        Cells of each column, by its name.
    requested
        Column that the user chose; None chooses by names and values, see `read_metadata`.
    file_column
        Column of file names; None if there is none.
    possible_ids
        Ids that the files may have.

    Raises
    ------
    InputError
        If there is no such column, or its name is an id, too, as in a sheet without a header.
    """
    if requested is not None:
        column = requested if requested in columns else find_column(columns, [requested])
        if column is None:
            raise InputError(f"{path}: {describe_missing_column(requested, columns)}")
        return column
    n_matches = {name: len(possible_ids & set(values)) for name, values in columns.items()}
    usual = _find_usual_column(columns, n_matches)
    if usual is None and file_column is not None:
        usual = file_column
        n_matches[usual] = len(possible_ids & {list_stems(value)[-1] for value in columns[usual]})
    other = None
    if file_column is None or not _names_most_files(columns[file_column], possible_ids):
        other = _find_other_column(columns, n_matches, usual, has_files=file_column is not None)
    if other is not None:
        if other in possible_ids:
            raise InputError(f"{path}: expected the names of the columns in row 1, found {other!r}, an id")
        _logger.info("%s: the ids are those of column %r, because most of its values match", path, other)
        return other
    if usual is not None:
        return usual
    remark = ". Is there a title above the header?" if is_title([*columns]) else ""
    raise InputError(
        f"{path}: no column of repertoire ids among {_list_columns(columns)}; looked for {', '.join(_ID_COLUMNS)}. "
        f"Name it with `id_column`{remark}"
    )


def _find_usual_column(columns: Mapping[str, Sequence[str]], n_matches: Mapping[str, int]) -> str | None:
    """Return the column with a usual name whose values match best; of several, the first without repeated values."""
    usual = [name for name in (find_column(columns, [usual_name]) for usual_name in _ID_COLUMNS) if name is not None]
    return max(usual, key=lambda name: (n_matches[name], _are_unique(columns[name])), default=None)


def _find_other_column(
    columns: Mapping[str, Sequence[str]], n_matches: Mapping[str, int], usual: str | None, *, has_files: bool
) -> str | None:
    """Return a column of any name whose values match better than those of the usual column; None if there is none.

    Most of its values must match, and none may repeat. Plain numbers, which may number the rows, are taken only if no
    value of the usual column matches and the sheet names no files.
    """
    fitting = [name for name, cells in columns.items() if _are_unique(cells) and 2 * n_matches[name] > len(cells)]
    other = max(fitting, key=n_matches.__getitem__, default=None)
    if other is None or _are_file_names(columns[other]):
        return None
    if usual is None:
        return other
    if all(map(_NUMBER.fullmatch, columns[other])) and (n_matches[usual] > 0 or has_files):
        return None
    return other if n_matches[other] > n_matches[usual] else None


def _names_most_files(cells: Sequence[str], possible_ids: Set[str]) -> bool:
    """Return whether most cells of the column of file names have the name of a known file."""
    known = [not possible_ids.isdisjoint(list_stems(cell)) for cell in cells]
    return 2 * sum(known) > len(known)


def _are_unique(cells: Sequence[str]) -> bool:
    return len(set(cells)) == len(cells)


def is_title(names: Sequence[str]) -> bool:
    """Return whether a header has only one name, as a title above the true header has."""
    return sum(map(bool, names)) == 1


def _are_file_names(values: Iterable[str]) -> bool:
    """Return whether a value ends like the name of a repertoire file."""
    return any(len(list_stems(value)) > 1 for value in values)


def find_column(names: Iterable[str], candidates: Iterable[str]) -> str | None:
    """Return the column of the first wanted name that exists; case, blanks and separators do not count."""
    plain = {normalise_column_name(name): name for name in reversed(list(names))}
    return next(
        (plain[normalise_column_name(name)] for name in candidates if normalise_column_name(name) in plain), None
    )


def _list_columns(columns: Iterable[str]) -> str:
    """Return the first names of the columns, for a message."""
    return join_names([*columns], SHOWN_COLUMNS)
