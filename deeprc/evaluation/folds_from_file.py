"""Read a file of folds that the user has defined."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.documents import shorten_message
from deeprc.errors import InputError, describe_names, quote
from deeprc.files import read_limited
from deeprc.tables import check_width

__all__ = ["read_folds"]

_MAX_BYTES = 64 << 20
_COLUMNS = ("repertoire_id", "fold")
_MAX_DIGITS = 9  # of the number of a fold, with zeros before it

_logger = logging.getLogger(__name__)


def read_folds(path: Path, repertoire_ids: NDArray[np.object_]) -> NDArray[np.int64]:
    """Return the index of the fold of each repertoire, (B,), from a TSV file with `repertoire_id` and `fold`.

    A repertoire that the file does not list has -1.

    Raises
    ------
    InputError
        If the file cannot be read, lists an id twice or one that the cohort lacks, or its folds are not 0, 1, 2, ...
    """
    try:
        content = read_limited(path, limit=_MAX_BYTES, expected="a table of folds, a number, or leave-one-out:COLUMN")
        check_width(path, content)
        table = pd.read_csv(io.BytesIO(content), sep="\t", dtype=str, keep_default_na=False)
        header = pd.read_csv(io.BytesIO(content), sep="\t", dtype=str, keep_default_na=False, header=None, nrows=1)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: cannot be read as a table: {shorten_message(error)}") from error
    _check_columns(header.iloc[0].tolist(), path)
    fold_of = _parse_folds(table, path, [str(repertoire_id) for repertoire_id in repertoire_ids])
    folds = np.unique(fold_of[fold_of >= 0])
    if len(folds) < 3 or folds[-1] != len(folds) - 1:
        raise InputError(
            f"{path}: expected at least 3 folds, numbered from 0 without gaps, found {folds.tolist()[:10]}"
        )
    if (fold_of < 0).any():
        without = [str(repertoire_id) for repertoire_id in np.asarray(repertoire_ids)[fold_of < 0]]
        _logger.warning("%s: no fold for %s: not used", path, describe_names(without, "repertoire", "repertoires"))
    return fold_of


def _check_columns(names: Sequence[str], path: Path) -> None:
    """Raise InputError unless each of the columns that are needed is there once."""
    for name in _COLUMNS:
        if name not in names:
            raise InputError(f"{path}: no column {name!r}; expected repertoire_id and fold, tab-separated")
        if (n := names.count(name)) > 1:
            raise InputError(f"{path}: expected one column {name!r}, found {n}")


def _parse_folds(table: pd.DataFrame, path: Path, repertoire_ids: Sequence[str]) -> NDArray[np.int64]:
    """Return the index of the fold of each repertoire, (B,), from a table of texts; -1 if the table lacks it."""
    index_of = {name: index for index, name in enumerate(repertoire_ids)}
    fold_of = np.full(len(index_of), -1)
    for row_number, (name, fold) in enumerate(zip(table["repertoire_id"], table["fold"], strict=True), start=2):
        if name not in index_of:
            raise InputError(f"{path}: row {row_number}: the cohort has no repertoire {quote(name)}")
        if fold_of[index_of[name]] >= 0:
            raise InputError(f"{path}: row {row_number}: repertoire {quote(name)} is listed twice")
        if not (fold.isascii() and fold.isdigit() and len(fold) <= _MAX_DIGITS):
            expected = f"a whole number from 0 to {10**_MAX_DIGITS - 1:,}"
            raise InputError(f"{path}: row {row_number}, column 'fold': expected {expected}, found {quote(fold)}")
        fold_of[index_of[name]] = int(fold)
    return fold_of
