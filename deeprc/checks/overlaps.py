"""Estimate from fingerprints how many sequences pairs of repertoires share, block by block.

Letters: B repertoires, H hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deeprc.checks.profile import SKETCH_SIZE, RepertoireProfile

__all__ = [
    "MIN_SHARED",
    "Overlaps",
    "Pair",
    "compute_median_overlap",
    "find_overlaps",
    "iterate_overlap_blocks",
    "shorten_sketches",
]

MIN_SHARED = 10
"""Smallest number of common sequences that means anything, however small the repertoires are."""

_LAST = np.uint64(2**64 - 1)
_PAIRS_AT_ONCE = 1 << 23  # number of pairs in memory
_MAX_HASHES = 1 << 22  # number of hashes in all sketches together, in a large cohort
_MIN_HASHES = 256  # smallest number of hashes in a sketch


@dataclass(frozen=True)
class Pair:
    """Two repertoires by their positions, the sizes of their samples, and the number of sequences in both samples."""

    first: int
    second: int
    shared: int
    sizes: tuple[int, int]

    @property
    def overlap(self) -> float:
        """The estimated fraction of the smaller repertoire's sequences that the other one also has."""
        return self.shared / min(self.sizes) if min(self.sizes) else 0.0


@dataclass(frozen=True)
class Overlaps:
    """E pairs of repertoires that share at least one sequence; all fields have the shape (E,), see `Pair`."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    shared: NDArray[np.int64]
    first_size: NDArray[np.int64]
    second_size: NDArray[np.int64]

    @property
    def overlap(self) -> NDArray[np.float64]:
        """The overlap of each pair, (E,), see `Pair.overlap`."""
        return np.asarray(self.shared / np.minimum(self.first_size, self.second_size))

    def list_pairs(self, which: NDArray[np.bool_] | slice = slice(None)) -> list[Pair]:
        """Return the pairs that `which` selects, each as an object."""
        columns = (self.first, self.second, self.shared, self.first_size, self.second_size)
        rows = zip(*(column[which].tolist() for column in columns), strict=True)
        return [Pair(a, b, shared, (n, m)) for a, b, shared, n, m in rows]


def shorten_sketches(profiles: Sequence[RepertoireProfile]) -> tuple[list[NDArray[np.uint64]], list[bool]]:
    """Return the sketches, shortened in a large cohort, and whether each is a sample of its repertoire."""
    size = min(SKETCH_SIZE, max(_MIN_HASHES, _MAX_HASHES // max(len(profiles), 1)))
    sketches = [profile.fingerprints.sketch for profile in profiles]
    is_sampled = [profile.fingerprints.is_sampled or len(profile.fingerprints.sketch) > size for profile in profiles]
    return [sketch[:size] for sketch in sketches], is_sampled


def find_overlaps(
    sketches: Sequence[NDArray[np.uint64]], sampled: Sequence[bool], *, with_disjoint: bool = False
) -> list[Pair]:
    """Return the pairs of sketches that share at least one hash, and `with_disjoint` also those that share none.

    See `iterate_overlap_blocks`.
    """
    pairs = [pair for block in iterate_overlap_blocks(sketches, sampled) for pair in block.list_pairs()]
    if not with_disjoint:
        return pairs
    known = {(pair.first, pair.second): pair for pair in pairs}
    end = _find_sketch_ends(sketches, sampled)
    missing = [pair for pair in combinations(range(len(sketches)), 2) if pair not in known]
    for a, b in missing:
        sizes = [int(np.searchsorted(sketches[row], min(end[a], end[b]), side="right")) for row in (a, b)]
        known[a, b] = Pair(a, b, 0, (sizes[0], sizes[1]))
    return [known[pair] for pair in sorted(known)]


def iterate_overlap_blocks(sketches: Sequence[NDArray[np.uint64]], sampled: Sequence[bool]) -> Iterator[Overlaps]:
    """Yield the pairs of sketches that share at least one hash, in blocks by their first repertoire.

    A sketch that is `sampled` holds all hashes of its repertoire up to its last one; any other sketch holds all hashes.
    Two sketches are compared up to the hash where both are complete. This is a fair sample of the hashes of both.
    """
    n = len(sketches)
    if n < 2 or not any(map(len, sketches)):
        return
    end = _find_sketch_ends(sketches, sampled)
    row = np.repeat(np.arange(n), [len(sketch) for sketch in sketches])
    _, column = np.unique(np.concatenate(sketches), return_inverse=True)
    held = csr_array((np.ones(len(row), np.int32), (row, column)), shape=(n, int(column.max()) + 1))
    transposed = held.T.tocsr()
    step = max(1, _PAIRS_AT_ONCE // n)
    for start in range(0, n, step):
        common = (held[start : start + step] @ transposed).tocoo()  # (step, H) @ (H, B)
        first, second = common.row.astype(np.int64) + start, common.col.astype(np.int64)
        above = second > first
        first, second, shared = first[above], second[above], common.data[above].astype(np.int64)
        limit = np.minimum(end[first], end[second])
        sizes = [_count_hashes_of_pairs(sketches, positions, limit) for positions in (first, second)]
        yield Overlaps(first, second, shared, sizes[0], sizes[1])


def compute_median_overlap(blocks: Iterable[Overlaps], n: int) -> float:
    """Return the median overlap of all pairs of n repertoires; pairs that are in no block share nothing."""
    overlaps = np.concatenate([*(block.overlap for block in blocks), np.empty(0)])
    values = np.zeros(max(n * (n - 1) // 2, 1))
    values[: len(overlaps)] = overlaps
    return float(np.median(values))


def _find_sketch_ends(sketches: Sequence[NDArray[np.uint64]], sampled: Sequence[bool]) -> NDArray[np.uint64]:
    """Return the hash up to which each sketch is complete, (B,)."""
    ends = [sketch[-1] if cut else _LAST for sketch, cut in zip(sketches, sampled, strict=True)]
    return np.array(ends, np.uint64)


def _count_hashes_of_pairs(
    sketches: Sequence[NDArray[np.uint64]], positions: NDArray[np.int64], limit: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return for each pair the number of hashes, up to its limit, of the sketch at the given position, (E,)."""
    sizes = np.zeros(len(positions), np.int64)
    order = np.argsort(positions, kind="stable")
    bounds = np.flatnonzero(np.diff(positions[order], prepend=-1, append=-1))
    for begin, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        own_pairs = order[begin:stop]
        sizes[own_pairs] = np.searchsorted(sketches[positions[own_pairs[0]]], limit[own_pairs], side="right")
    return sizes
