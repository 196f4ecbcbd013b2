"""Rows that are one sequence, found exactly, in memory that hardly grows with the repertoire.

Letters: N rows of a file, n of them that are grouped, R residues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import take
from deeprc.datasets.readers.columns import factorize, factorize_texts, first_of_each

__all__ = ["group_rows"]

_ROWS_AT_ONCE = 1 << 19
"""Rows that are compared at a time; a hash table of them takes some 50 MB."""

_MOST_PARTS = 256
_LETTER_HASHES = np.random.default_rng(0).integers(1 << 32, size=256, dtype=np.uint32)


def group_rows(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    rows: NDArray[np.int64],
    by: Sequence[NDArray[Any]],
    counts: NDArray[Any],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group rows with the same residues and codes.

    Many rows are first dealt out by a hash of their residues: rows that are equal are in one part, and the parts are
    compared one after the other.

    Parameters
    ----------
    residues, offsets
        Of all rows of the file, (R,) and (N + 1,).
    rows
        The rows to group, (n,), none of them empty.
    by
        Codes that must be the same too, each (n,).
    counts
        The count of each of the n rows.

    Returns
    -------
    first
        The place of each group's first row among `rows`, in order.
    total
        Each group's sum of counts.
    """
    if len(rows) <= _ROWS_AT_ONCE:
        return _group(*take(residues, offsets, rows), by, counts)
    firsts, totals = [], []
    for part in _parts(residues, offsets, rows):
        some = take(residues, offsets, rows[part])
        first, total = _group(*some, [codes[part] for codes in by], counts[part])
        firsts.append(part[first])
        totals.append(total)
    first = np.concatenate(firsts)
    order = np.argsort(first)
    return first[order], np.concatenate(totals)[order]


def _group(
    residues: NDArray[np.uint8], offsets: NDArray[np.int64], by: Sequence[NDArray[Any]], counts: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what `group_rows` does of rows that lie end to end."""
    group = factorize_texts(residues, offsets)
    for codes in by:
        group = factorize(group * (int(codes.max(initial=0)) + 1) + codes)
    first = first_of_each(group)
    total = np.zeros(len(first), np.int64)
    np.add.at(total, group, counts)
    return first, total


def _parts(
    residues: NDArray[np.uint8], offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    """Yield places among `rows`, in order, such that rows with the same residues are in one part."""
    n_parts = min(-(-len(rows) // _ROWS_AT_ONCE), _MOST_PARTS)
    part_of = np.empty(len(rows), np.uint8)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some, bounds = take(residues, offsets, rows[start : start + _ROWS_AT_ONCE])
        hashes = np.add.reduceat(_LETTER_HASHES[some], bounds[:-1], dtype=np.uint32)  # (R,) -> (n,), modulo 2^32
        part_of[start : start + _ROWS_AT_ONCE] = (hashes.astype(np.uint64) * np.uint64(n_parts)) >> np.uint64(32)
    for part in range(n_parts):
        yield np.flatnonzero(part_of == part)
