"""Count the different clones of each repertoire, shared or not, and add up their abundances.

`deeprc preprocess` merges equal clones, so in most containers each sequence is a clone of its own and nothing needs to
be counted. Otherwise, sequences with equal hashes are compared letter by letter, so that the result does not depend on
the hash.

Letters: B repertoires, N sequences, M different clones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequence_hash import are_equal, hash_rows
from deeprc.datasets.sequences import SequenceArrays
from deeprc.progress import track
from deeprc.rank_calls import compute_parts, divide_repertoires

__all__ = ["count_clones_of_repertoire", "count_distinct_clones", "has_merged_clones", "sum_clone_abundances"]

_BLOCK = 1 << 16  # number of keys among which one thread looks for repeats at a time


def count_distinct_clones(dataset: RepertoireDataset, gene_fields: Sequence[str] = ()) -> NDArray[np.int64]:
    """Return the number of different clones of each repertoire, (B,), shared or not; it is cached.

    `gene_fields` are the genes of the clone definition, as in `deeprc.datasets.clones.shared.find_shared_clones`.
    """
    checked = dataset.check_gene_fields(gene_fields)
    arrays = load_or_compute(
        dataset, "distinct-clones", {"fields": checked}, partial(_count_in_container, gene_fields=checked)
    )
    return np.asarray(arrays["counts"][dataset.repertoire_indices])


def _count_in_container(dataset: RepertoireDataset, gene_fields: Collection[str]) -> Arrays:
    """Return the number of different clones in each repertoire, (B,), as `counts`; ranks divide the repertoires."""
    counts_of_ranks = compute_parts(
        partial(_count_in_repertoires, gene_fields=gene_fields), divide_repertoires(dataset)
    )
    return {"counts": np.concatenate(counts_of_ranks)}


def _count_in_repertoires(dataset: RepertoireDataset, gene_fields: Collection[str]) -> NDArray[np.int64]:
    """Return the number of different clones of some repertoires, (B,)."""
    counts = dataset.map_repertoires(partial(count_clones_of_repertoire, gene_fields=gene_fields))
    return np.array(list(track(counts, "counting different clones", len(dataset))), np.int64)


def has_merged_clones(repertoire: Repertoire, gene_fields: Collection[str]) -> bool:
    """Return whether preprocessing has merged equal clones: then no two sequences of the repertoire are the same clone.

    `gene_fields` are the genes of the clone definition, as in `deeprc.datasets.clones.shared.find_shared_clones`. The
    container says what was merged. A container without this note, such as a simulated one, may hold a clone several
    times.
    """
    merged_by = getattr(repertoire.container, "preprocessing", {}).get("merge")
    return merged_by == "junction" or (
        merged_by == "genes" and set(repertoire.container.sequences.genes) <= set(gene_fields)
    )


def count_clones_of_repertoire(
    repertoire: Repertoire, gene_fields: Collection[str], hashes: NDArray[np.uint64] | None = None
) -> int:
    """Return the number of different clones in a repertoire of N sequences; see `count_distinct_clones`.

    `hashes` are those of `hash_rows` with these genes, (N,), if they are known already; they are not needed if
    `has_merged_clones`.
    """
    if has_merged_clones(repertoire, gene_fields):
        return len(repertoire)
    sequences = repertoire.container.sequences.arrays(gene_fields)
    if hashes is None:
        hashes = hash_rows(sequences, np.arange(repertoire.start, repertoire.stop))
    keys, bits = _group_by_hash(hashes, repertoire.start)
    return len(keys) - int(sum(run_in_blocks(_count_repeats, len(keys), _BLOCK, sequences, keys, *bits)))


def sum_clone_abundances(repertoire: Repertoire, gene_fields: Collection[str]) -> NDArray[np.int64]:
    """Return the sum of the counts of each different clone of a repertoire, (M,), in no particular order.

    `gene_fields` are the genes of the clone definition, as in `deeprc.datasets.clones.shared.find_shared_clones`. If
    preprocessing has merged equal clones, nothing is compared.
    """
    if has_merged_clones(repertoire, gene_fields):
        counts = repertoire.counts.astype(np.int64)
        return np.asarray(counts[counts > 0])
    sequences = repertoire.sequences
    arrays = sequences.arrays(gene_fields)
    keys, bits = _group_by_hash(hash_rows(arrays, np.arange(len(sequences))), 0)
    rows = keys & ((np.uint64(1) << bits.row) - np.uint64(1))
    abundances = sequences.counts[rows].astype(np.int64)
    _merge_repeats(arrays, keys, *bits, abundances)
    return np.asarray(abundances[abundances > 0])


class _KeyBits(NamedTuple):
    """The parts of the key of a sequence, 64 bits: its lowest bits are the row, those above are bits of the hash.

    Attributes
    ----------
    row
        Number of bits of the row.
    below_group
        Number of bits below the group. The group of a key is its highest bits.
    """

    row: np.uint64
    below_group: np.uint64


def _group_by_hash(hashes: NDArray[np.uint64], first: int) -> tuple[NDArray[np.uint64], _KeyBits]:
    """Return the keys of N sequences, ordered by their groups; there are about as many groups as sequences.

    Parameters
    ----------
    hashes
        The hashes of the sequences, (N,).
    first
        Row of the first sequence.
    """
    row_bits = (first + len(hashes)).bit_length()
    bits = _KeyBits(np.uint64(row_bits), np.uint64(max(64 - len(hashes).bit_length(), row_bits)))
    return _sort_by_group(hashes, np.uint64(first), *bits), bits


@njit(nogil=True)
def _sort_by_group(hashes: NDArray[np.uint64], first: Any, row_bits: Any, bits_below_group: Any) -> NDArray[np.uint64]:
    """Return the keys, ordered by group, and within a group by row: a counting sort."""
    bounds = np.zeros((uint64(1) << (uint64(64) - bits_below_group)) + uint64(1), np.int64)
    for i in range(len(hashes)):
        bounds[((hashes[i] << row_bits) >> bits_below_group) + uint64(1)] += 1
    for group in range(1, len(bounds)):
        bounds[group] += bounds[group - 1]
    keys = np.empty(len(hashes), np.uint64)
    for i in range(len(hashes)):
        key = (hashes[i] << row_bits) | (first + uint64(i))
        keys[uint64(bounds[key >> bits_below_group])] = key
        bounds[key >> bits_below_group] += 1
    return keys


@njit(nogil=True)
def _find_earlier(
    sequences: SequenceArrays, keys: NDArray[np.uint64], row_bits: Any, bits_below_group: Any, at: int
) -> int:
    """Return the index of the last earlier key with the same sequence as the key at index `at`; -1 without any."""
    row_mask = (uint64(1) << row_bits) - uint64(1)
    earlier = at - 1
    while earlier >= 0 and (keys[earlier] ^ keys[at]) >> bits_below_group == uint64(0):  # in the same group
        if (keys[earlier] ^ keys[at]) >> row_bits == uint64(0) and are_equal(
            sequences, np.int64(keys[earlier] & row_mask), sequences, np.int64(keys[at] & row_mask)
        ):
            return earlier
        earlier -= 1
    return -1


@njit(nogil=True)
def _count_repeats(
    start: int, stop: int, sequences: SequenceArrays, keys: NDArray[np.uint64], row_bits: Any, bits_below_group: Any
) -> int:
    """Return the number of sequences of the keys from `start` to `stop` that equal an earlier one of any key."""
    n = 0
    for at in range(max(start, 1), stop):
        has_group_of_previous = (keys[at] ^ keys[at - 1]) >> bits_below_group == uint64(0)  # spares the call for most
        if has_group_of_previous and _find_earlier(sequences, keys, row_bits, bits_below_group, at) >= 0:
            n += 1
    return n


@njit(nogil=True)
def _merge_repeats(
    sequences: SequenceArrays,
    keys: NDArray[np.uint64],
    row_bits: Any,
    bits_below_group: Any,
    abundances: NDArray[np.int64],
) -> None:
    """Add the abundance of each sequence that equals one of an earlier key to that one, and set it to 0."""
    for at in range(len(keys) - 1, 0, -1):
        earlier = _find_earlier(sequences, keys, row_bits, bits_below_group, at)
        if earlier >= 0:
            abundances[earlier] += abundances[at]
            abundances[at] = 0
