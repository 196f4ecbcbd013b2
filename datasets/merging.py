"""Group the rows of a file that become one sequence; the memory hardly grows with the repertoire.

Letters: N rows of a file, n of them that are grouped, G groups, R residues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.readers.columns import factorize, factorize_texts, find_first_rows
from deeprc.datasets.sequences import Sequences

__all__ = ["group_rows"]

_ROWS_AT_ONCE = 1 << 19
"""The number of rows that are grouped at a time; a hash table of them takes some 50 MB."""

_MAX_HASH_RANGES = 256
_LETTER_HASHES = np.random.default_rng(0).integers(1 << 32, size=256, dtype=np.uint32)


def group_rows(
    sequences: Sequences, rows: NDArray[np.int64], by: Sequence[NDArray[Any]], counts: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group rows with the same residues and codes.

    Many rows are first divided by hash ranges of their residues, so that equal rows are in one range. The rows of one
    range after the other are grouped.

    Parameters
    ----------
    sequences
        All rows of the file.
    rows
        Indices of the rows to group, (n,); none of these rows is empty.
    by
        Codes that must also be the same, (n,) each.
    counts
        Count of each of the rows to group, (n,).

    Returns
    -------
    first
        Index in `rows` of the first row of each group, rising, (G,).
    total
        Sum of the counts of each group, (G,).
    """
    if len(rows) <= _ROWS_AT_ONCE:
        return _group_at_once(sequences.take(rows), by, counts)
    firsts, totals = [], []
    for rows_of_range in _split_by_hash(sequences, rows):
        first, total = _group_at_once(
            sequences.take(rows[rows_of_range]), [codes[rows_of_range] for codes in by], counts[rows_of_range]
        )
        firsts.append(rows_of_range[first])
        totals.append(total)
    first = np.concatenate(firsts)
    order = np.argsort(first)
    return first[order], np.concatenate(totals)[order]


def _group_at_once(
    sequences: Sequences, by: Sequence[NDArray[Any]], counts: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group all of these sequences at once; see `group_rows`."""
    group = factorize_texts(sequences.residues, sequences.offsets)
    for codes in by:
        group = factorize(group * (int(codes.max(initial=0)) + 1) + codes)
    first = find_first_rows(group)
    total = np.zeros(len(first), np.int64)
    np.add.at(total, group, counts)
    return first, total


def _split_by_hash(sequences: Sequences, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield indices of `rows`, rising, for each hash range; rows with the same residues are in one range."""
    n_ranges = min(-(-len(rows) // _ROWS_AT_ONCE), _MAX_HASH_RANGES)
    range_of = np.empty(len(rows), np.uint8)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = sequences.take(rows[start : start + _ROWS_AT_ONCE])
        letter_hashes = _LETTER_HASHES[block.residues]
        hashes = np.add.reduceat(letter_hashes, block.offsets[:-1], dtype=np.uint32)  # (R,) -> (n,), modulo 2^32
        range_of[start : start + _ROWS_AT_ONCE] = (hashes.astype(np.uint64) * np.uint64(n_ranges)) >> np.uint64(32)
    for index in range(n_ranges):
        yield np.flatnonzero(range_of == index)
