"""Choice of the column of a metadata sheet that names the repertoires: by its name, and by its values."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence, Set
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
    text: dict[str, list[str]],
    requested: str | None,
    file_column: str | None,
    possible_ids: Set[str],
) -> str:
    """Return the column that names the repertoires of a sheet.

    Parameters
    ----------
    path
        Path of the sheet, for messages.
    text
        Cells of each column.
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
        column = requested if requested in text else find_column(text, [requested])
        if column is None:
            raise InputError(f"{path}: {describe_missing_column(requested, text, 'for `id_column`')}")
        return column
    candidates = [name for name in (find_column(text, [usual_name]) for usual_name in _ID_COLUMNS) if name is not None]
    unique = {name: len(set(values)) == len(values) for name, values in text.items()}
    matches = {name: len(set(values).intersection(possible_ids)) for name, values in text.items()}
    best = max(candidates, key=lambda name: (matches[name], unique[name]), default=file_column)
    others = [name for name, values in text.items() if unique[name] and 2 * matches[name] > len(values)]
    other = max(others, key=matches.__getitem__, default=None)
    if _names_most_files(text, file_column, possible_ids):
        other = None
    if best is not None and best == file_column:
        matches[best] = len({list_stems(value)[-1] for value in text[best]}.intersection(possible_ids))
    if other is not None and _are_plain_numbers(text[other]) and best is not None:
        other = None if matches[best] or file_column is not None else other
    if other is not None and (best is None or matches[other] > matches[best]) and not _are_file_names(text[other]):
        if other in possible_ids:
            raise InputError(f"{path}: expected the names of the columns in row 1, found {other!r}, an id")
        _logger.info("%s: the ids are those of column %r, because most of its values match", path, other)
        return other
    if best is not None:
        return best
    remark = ". Is there a title above the header?" if is_title([*text]) else ""
    raise InputError(
        f"{path}: no column of repertoire ids among {_list_columns(text)}; looked for {', '.join(_ID_COLUMNS)}. "
        f"Name it with `id_column`{remark}"
    )


def _names_most_files(text: dict[str, list[str]], file_column: str | None, possible_ids: Set[str]) -> bool:
    """Return whether the column of file names has the names of known files in most rows."""
    if file_column is None:
        return False
    known = [not possible_ids.isdisjoint(list_stems(value)) for value in text[file_column]]
    return 2 * sum(known) > len(known)


def _are_plain_numbers(values: Iterable[str]) -> bool:
    """Return whether all values are numbers in digits, such as 7 or 1.5, which may be the numbers of rows."""
    return all(map(_NUMBER.fullmatch, values))


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
