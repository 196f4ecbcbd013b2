"""Group the sequences of a cohort by clone: exact, for hundreds of millions of sequences, in little memory.

The sequences are hashed. All possible hashes are divided into equal hash ranges, and the hashes of one range after the
other are sorted. Sequences with equal hashes are then compared letter by letter, so that the result does not depend on
the hash. Threads hash one sequence block each, a range of consecutive sequences; later, they sort and compare one hash
range each. What is sorted are keys: a key holds bits of the hash of a sequence and, below them, the row of the sequence
(`KeyLayout`). If the keys of all sequences do not fit into memory, there are several passes over the sequences, each
for the keys of some hash ranges.

Letters: B repertoires, N sequences, M clones, E pairs of a clone and a repertoire that carries it, K hash ranges, n
keys of one hash range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import open_threads
from deeprc.datasets.alphabet import compute_offsets, invert_order
from deeprc.datasets.clones.grouping_loops import (
    KeyedSequences,
    KeyLayout,
    RangeClones,
    copy_carriers,
    count_keys,
    group_keys,
    write_keys,
)
from deeprc.datasets.parts import SequencesInParts
from deeprc.datasets.sequences import SequenceArrays
from deeprc.progress import Step, open_step

__all__ = ["DEFAULT_MAX_HASHES", "CloneCarriers", "SharedClones", "find_repeated", "group_clones", "take_segments"]

DEFAULT_MAX_HASHES = 1 << 25
"""Number of hashes in memory at once, if nothing else is said."""

_BLOCK = 1 << 20  # number of sequences of a block, and of hashes of a range: these fit a processor's cache when sorted
_ALL_BITS = np.uint64(2**64 - 1)
_AnySequences = SequenceArrays | SequencesInParts
_Number = TypeVar("_Number", bound=np.generic)


def take_segments(
    values: NDArray[_Number], offsets: NDArray[np.int64], indices: NDArray[np.int64]
) -> tuple[NDArray[_Number], NDArray[np.int64]]:
    """Return the values of some segments end to end, (n,), and their offsets; segment m begins at offsets[m]."""
    starts, lengths = offsets[indices], np.diff(offsets)[indices]
    taken = compute_offsets(lengths)
    return values[np.repeat(starts - taken[:-1], lengths) + np.arange(taken[-1])], taken


@dataclass(frozen=True)
class CloneCarriers:
    """Clones of a container, and the repertoires that carry them.

    Attributes
    ----------
    representative
        Row of a sequence of each clone in the container, (M,) int64.
    offsets, carriers
        Carriers of clone m: carriers[offsets[m]:offsets[m + 1]] are the rows of their repertoires in the container,
        rising, each once. (M + 1,) int64 and (E,) int32.
    """

    representative: NDArray[np.int64]
    offsets: NDArray[np.int64]
    carriers: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.representative)

    def select(self, indices: NDArray[np.int64]) -> CloneCarriers:
        """Return some of the clones, by their indices."""
        carriers, offsets = take_segments(self.carriers, self.offsets, indices)
        return CloneCarriers(self.representative[indices], offsets, carriers)


@dataclass(frozen=True)
class SharedClones(CloneCarriers):
    """The clones that at least two repertoires of a container carry, in the order of their first sequences.

    The representative of a clone is its first sequence.

    Attributes
    ----------
    n_private
        Number of clones that only this repertoire carries, (B,) int64. They are only counted, because they are most of
        all clones, and a single repertoire cannot show an association.
    """

    n_private: NDArray[np.int64]

    def count_by_repertoire(self) -> NDArray[np.int64]:
        """Return the number of different clones of each repertoire of the container, (B,), shared or not."""
        return self.n_private + np.bincount(self.carriers, minlength=len(self.n_private))


def group_clones(
    sequences: _AnySequences,
    repertoire_offsets: NDArray[np.int64],
    *,
    max_hashes: int = DEFAULT_MAX_HASHES,
    mask: int = int(_ALL_BITS),
) -> SharedClones:
    """Find the clones that at least two repertoires carry; see `deeprc.datasets.clones.shared.find_shared_clones`.

    Parameters
    ----------
    sequences
        All sequences, with the genes of the clone definition, in one array or in parts.
    repertoire_offsets
        Offsets of the repertoires, (B + 1,): repertoire b has the sequences from repertoire_offsets[b] to
        repertoire_offsets[b + 1].
    max_hashes
        Number of hashes in memory at once; the result does not depend on it.
    mask
        Bits of the hash that are used; the result does not depend on it. Tests give few, so that many hashes are equal.
    """
    plan = _plan_passes(sequences, max_hashes, mask)
    n_ranges = plan.layout.n_ranges
    with (
        open_threads() as threads,
        open_step("finding clones that repertoires share", plan.count_steps()) as step,
    ):
        counted = threads.map(partial(_count_keys_of_block, sequences, plan.layout), plan.blocks)
        counts = np.array([*step.follow(counted)], np.int64).reshape(len(plan.blocks), n_ranges)
        clones: list[RangeClones] = []
        for first_range in range(0, n_ranges, plan.ranges_per_pass):
            counts_of_pass = counts[:, first_range : first_range + plan.ranges_per_pass]
            keys_of_ranges = _write_sorted_keys(sequences, plan, first_range, counts_of_pass, threads, step)
            row_bits = plan.layout.row_bits
            arrays, first_positions = _take_repeated_sequences(sequences, keys_of_ranges, row_bits, threads)
            group = partial(_group_range, arrays, repertoire_offsets, row_bits)
            clones += list(step.follow(threads.map(group, keys_of_ranges, first_positions)))
    return _join_ranges(clones, len(repertoire_offsets) - 1)


@dataclass(frozen=True)
class _Plan:
    """How the work is divided into passes over the sequences, sequence blocks and hash ranges.

    Attributes
    ----------
    layout
        Layout of the keys, which also divides the hashes into K ranges.
    ranges_per_pass
        Number of hash ranges whose keys fit into memory together.
    blocks
        First and last row, exclusive, of each sequence block; each block lies in one part.
    """

    layout: KeyLayout
    ranges_per_pass: int
    blocks: list[tuple[int, int]]

    def count_steps(self) -> int:
        """Return how often a block or a hash range is done: blocks are counted, then written once in each pass."""
        n_passes = math.ceil(self.layout.n_ranges / self.ranges_per_pass)
        return len(self.blocks) * (1 + n_passes) + self.layout.n_ranges


def _plan_passes(sequences: _AnySequences, max_hashes: int, mask: int) -> _Plan:
    """Divide the work; the parameters are those of `group_clones`."""
    part_bounds = [0, len(sequences.offsets) - 1] if isinstance(sequences, SequenceArrays) else sequences.bounds
    n = part_bounds[-1]
    n_ranges = max(1, math.ceil(n / min(_BLOCK, max_hashes)))
    return _Plan(
        layout=KeyLayout(uint64(n.bit_length()), np.uint64(mask), n_ranges),
        ranges_per_pass=n_ranges if max_hashes >= n else max(1, max_hashes // _BLOCK),
        blocks=list(pairwise(sorted({*range(0, n, _BLOCK), *part_bounds}))) or [(0, 0)],
    )


def _write_sorted_keys(
    sequences: _AnySequences,
    plan: _Plan,
    first_range: int,
    counts: NDArray[np.int64],
    threads: ThreadPoolExecutor,
    step: Step,
) -> list[NDArray[np.uint64]]:
    """Return the sorted keys of each hash range of a pass, which begins at `first_range`.

    `counts` is the number of sequences of each block in each of these ranges, (blocks, ranges).
    """
    offsets = compute_offsets(counts.sum(axis=0))
    # where each block writes its first key of each range, so that no thread waits for another
    targets = offsets[:-1] + np.cumsum(counts, axis=0) - counts
    keys = np.empty(int(offsets[-1]), np.uint64)
    write = partial(_write_keys_of_block, sequences, plan.layout, first_range, keys)
    list(step.follow(threads.map(write, plan.blocks, targets)))
    keys_of_ranges = [keys[start:stop] for start, stop in pairwise(offsets.tolist())]
    list(threads.map(np.ndarray.sort, keys_of_ranges))
    return keys_of_ranges


def _view_block(sequences: _AnySequences, block: tuple[int, int]) -> tuple[SequenceArrays, int]:
    """Return arrays that hold the sequences of a block, and the row of the first sequence of the arrays."""
    return (sequences, 0) if isinstance(sequences, SequenceArrays) else (sequences.view(*block), block[0])


def _count_keys_of_block(sequences: _AnySequences, layout: KeyLayout, block: tuple[int, int]) -> NDArray[np.int64]:
    """Return the number of sequences of a block in each hash range, (K,)."""
    arrays, first_row = _view_block(sequences, block)
    return np.asarray(count_keys(arrays, block[0] - first_row, block[1] - first_row, layout))


def _write_keys_of_block(
    sequences: _AnySequences,
    layout: KeyLayout,
    first_range: int,
    keys: NDArray[np.uint64],
    block: tuple[int, int],
    targets: NDArray[np.int64],
) -> None:
    """Write the keys of a block whose hashes are in the ranges of a pass; see `write_keys`."""
    arrays, first_row = _view_block(sequences, block)
    start, stop = block[0] - first_row, block[1] - first_row
    write_keys(arrays, start, stop, first_row, layout, first_range, targets.copy(), keys)


def _take_repeated_sequences(
    sequences: _AnySequences,
    keys_of_ranges: Sequence[NDArray[np.uint64]],
    row_bits: Any,
    threads: ThreadPoolExecutor,
) -> tuple[SequenceArrays, Sequence[int | None]]:
    """Return the sequences to compare, and the position among them of the first one of each hash range.

    Sequences in one array stay as they are, and the positions are None. Of sequences in parts, those whose hashes are
    repeated are copied in the order of their keys: all at once, so that each part is read once.
    """
    if isinstance(sequences, SequenceArrays):
        return sequences, [None] * len(keys_of_ranges)
    row_mask = (np.uint64(1) << row_bits) - np.uint64(1)

    def find_repeated_rows(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        repeated = keys[find_repeated(keys >> row_bits)]
        return np.asarray(repeated & row_mask, np.int64)

    rows = list(threads.map(find_repeated_rows, keys_of_ranges))
    n_repeated = np.array([len(rows_of_range) for rows_of_range in rows], np.int64)
    return sequences.take(np.concatenate(rows)), compute_offsets(n_repeated)[:-1].tolist()


def find_repeated(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return whether each of some sorted values equals the one before or after it, (n,)."""
    same = values[1:] == values[:-1]
    is_repeated = np.zeros(len(values), np.bool_)
    is_repeated[1:] |= same
    is_repeated[:-1] |= same
    return is_repeated


def _group_range(
    arrays: SequenceArrays,
    repertoire_offsets: NDArray[np.int64],
    row_bits: Any,
    keys: NDArray[np.uint64],
    first_position: int | None,
) -> RangeClones:
    """Return the clones of the sorted keys of a hash range.

    `arrays` and `first_position` are those of `_take_repeated_sequences`.
    """
    n, positions = len(keys), np.zeros(0, np.int64)
    if first_position is not None:
        positions = first_position + np.cumsum(find_repeated(keys >> row_bits)) - 1
    buffers = RangeClones(
        np.empty(n // 2, np.int64),
        np.empty(n // 2, np.int32),
        np.empty(n, np.int32),
        np.zeros(len(repertoire_offsets) - 1, np.int64),
    )
    n_clones, n_carriers = group_keys(KeyedSequences(arrays, positions), repertoire_offsets, keys, row_bits, buffers)
    return RangeClones(
        buffers.representative[:n_clones].copy(),
        buffers.n_carriers[:n_clones].copy(),
        buffers.carriers[:n_carriers].copy(),
        buffers.n_private,
    )


def _join_ranges(clones: list[RangeClones], n_repertoires: int) -> SharedClones:
    """Return the clones of all hash ranges together, ordered by their first sequences; this empties the list."""
    representative = np.concatenate([np.zeros(0, np.int64), *(range_clones.representative for range_clones in clones)])
    order = np.argsort(representative)
    position = invert_order(order)
    n_carriers = np.concatenate([np.zeros(0, np.int64), *(range_clones.n_carriers for range_clones in clones)])
    offsets = compute_offsets(n_carriers[order])
    carriers = np.empty(int(offsets[-1]), np.int32)
    n_private = np.zeros(n_repertoires, np.int64)
    stop = len(order)
    while clones:
        range_clones = clones.pop()
        start = stop - len(range_clones.representative)
        n_private += range_clones.n_private
        copy_carriers(position[start:stop], offsets, range_clones.n_carriers, range_clones.carriers, carriers)
        stop = start
    return SharedClones(representative[order], offsets, carriers, n_private)
