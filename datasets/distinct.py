"""The different clones of one repertoire: how many there are, and how abundant each is.

Sequences with equal hashes are compared letter by letter, so that the result does not depend on the hash.

Letters: N sequences, M different clones.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.sequence_hash import are_equal, hash_rows
from deeprc.datasets.sequences import SequenceArrays

__all__ = ["clone_abundances", "count_distinct"]


def count_distinct(repertoire: Repertoire, fields: Collection[str], hashes: NDArray[np.uint64] | None = None) -> int:
    """Return how many different clones a repertoire of N sequences has; see `deeprc.datasets.clones.distinct_clones`.

    `hashes` are those that `hash_rows` computes with these genes, (N,), if they are known.
    """
    sequences = repertoire.container.sequences.arrays(fields)
    rows, row_bits = np.arange(repertoire.start, repertoire.stop), np.uint64(repertoire.stop.bit_length())
    keys = _sort_by_hash(hash_rows(sequences, rows) if hashes is None else hashes, rows, row_bits)
    return len(keys) - int(_count_repeats(sequences, keys, row_bits))


def clone_abundances(repertoire: Repertoire, fields: Collection[str]) -> NDArray[np.int64]:
    """Return the sum of the counts of each different clone of a repertoire, (M,), in no particular order.

    `fields` are the genes that belong to a clone, as in `deeprc.datasets.clones.shared_clones`. The sequences of a
    container from `deeprc preprocess` are clones already, unless it was told not to merge rows.
    """
    part = repertoire.sequences
    sequences = part.arrays(fields)
    rows, row_bits = np.arange(len(part)), np.uint64(len(part).bit_length())
    keys = _sort_by_hash(hash_rows(sequences, rows), rows, row_bits)
    abundances = part.counts[keys & ((np.uint64(1) << row_bits) - np.uint64(1))].astype(np.int64)
    _merge_repeats(sequences, keys, row_bits, abundances)
    return np.asarray(abundances[abundances > 0])


def _sort_by_hash(hashes: NDArray[np.uint64], rows: NDArray[np.int64], row_bits: np.uint64) -> NDArray[np.uint64]:
    """Return keys of sequences in rising order: the lower bits of the hash above, `row_bits` bits of the row below."""
    keys: NDArray[np.uint64] = hashes << row_bits
    keys |= rows.view(np.uint64)
    keys.sort()
    return keys


@njit(nogil=True)
def _find_earlier(sequences: SequenceArrays, keys: NDArray[np.uint64], row_bits: Any, at: int) -> int:
    """Return the index of the last of the sorted keys before `at` whose sequence equals that at `at`; -1: none."""
    row_mask = (uint64(1) << row_bits) - uint64(1)
    earlier = at - 1
    while earlier >= 0 and keys[earlier] >> row_bits == keys[at] >> row_bits:
        if are_equal(sequences, np.int64(keys[earlier] & row_mask), sequences, np.int64(keys[at] & row_mask)):
            return earlier
        earlier -= 1
    return -1


@njit(nogil=True)
def _count_repeats(sequences: SequenceArrays, keys: NDArray[np.uint64], row_bits: Any) -> int:
    """Return how many sequences of sorted keys equal an earlier one."""
    n = 0
    for at in range(uint64(1), uint64(len(keys))):
        has_hash_of_previous = (keys[at] ^ keys[at - uint64(1)]) >> row_bits == uint64(0)  # spares the call for most
        if has_hash_of_previous and _find_earlier(sequences, keys, row_bits, np.int64(at)) >= 0:
            n += 1
    return n


@njit(nogil=True)
def _merge_repeats(
    sequences: SequenceArrays, keys: NDArray[np.uint64], row_bits: Any, abundances: NDArray[np.int64]
) -> None:
    """Add the abundance of each sequence of sorted keys that equals an earlier one to that one, and make it 0."""
    for at in range(len(keys) - 1, 0, -1):
        earlier = _find_earlier(sequences, keys, row_bits, at)
        if earlier >= 0:
            abundances[earlier] += abundances[at]
            abundances[at] = 0
