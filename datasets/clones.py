"""Which repertoires carry each clone: over hundreds of millions of sequences, in little memory, and exact.

A clone is a sequence, or a sequence with its genes; wherever it occurs, it is the same clone. The sequences are hashed,
and those of one range of hashes after the other are sorted; sequences with equal hashes are then compared letter by
letter, so that the result does not rest on the hash.

Letters: B repertoires, N sequences, R residues, M clones, E pairs of a clone and a repertoire that carries it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.alphabet import offsets_of
from deeprc.datasets.cache import Arrays, cached
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequence_hash import Rows, hash_of, hashes_of, same
from deeprc.errors import InputError

__all__ = [
    "Clones",
    "content_hashes",
    "distinct_clones",
    "gene_fields",
    "group_clones",
    "rows_of",
    "shared_clones",
]

_FIELDS = ("v_call", "j_call")
_PIECE = 1 << 20  # sequences that are sorted at once; they fit a processor's cache
_AT_ONCE = 1 << 25  # sequences whose hashes are in memory at once
_DONE = np.uint64(2**64 - 1)
_ALL_BITS = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Clones:
    """The clones that at least two repertoires of a container carry, in the order of their first sequences.

    Attributes
    ----------
    representative
        The number of a clone's first sequence in the container, (M,) int64.
    offsets, repertoires
        Clone m is carried by repertoires[offsets[m]:offsets[m + 1]]: their numbers in the container, rising, each once.
        (M + 1,) int64 and (E,) int32.
    private
        How many clones each repertoire carries that no other does, (B,) int64. They are only counted: they are most of
        all clones, and none can be associated with anything on the strength of one repertoire.
    """

    representative: NDArray[np.int64]
    offsets: NDArray[np.int64]
    repertoires: NDArray[np.int32]
    private: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.representative)


def gene_fields(dataset: RepertoireDataset) -> list[str]:
    """Return which of `v_call` and `j_call` the dataset's sequences have."""
    store: object = dataset.container
    if not hasattr(store, "v_call") and len(dataset):  # a simulated cohort, whose repertoires are stores of their own
        store = dataset[0].container
    return [name for name in _FIELDS if getattr(store, name, None) is not None]


def shared_clones(dataset: RepertoireDataset, fields: Sequence[str] = ()) -> Clones:
    """Find the clones that at least two repertoires of the container carry.

    All repertoires of the container are looked at, whichever of them `dataset` shows; the result is cached. It takes
    about 0.4 GB, and 40 bytes per shared clone and 8 per carrier, besides the container's pages, which the system may
    drop at any time. A simulated cohort that is on no disk is made whole in memory for it.

    Parameters
    ----------
    dataset
        A view of the container.
    fields
        The genes that belong to a clone, besides its sequence: `v_call`, `j_call`; see `gene_fields`. An unknown gene,
        "", is a gene of its own.

    Raises
    ------
    InputError
        If the container lacks one of the fields.
    """
    found = _checked(dataset, fields)
    return Clones(**cached(dataset, "clones", {"fields": found}, partial(_shared, fields=found)))


def distinct_clones(dataset: RepertoireDataset, fields: Sequence[str] = ()) -> NDArray[np.int64]:
    """Return how many different clones each repertoire has, (B,), shared with others or not; see `shared_clones`."""
    found = _checked(dataset, fields)
    arrays = cached(dataset, "distinct-clones", {"fields": found}, partial(_distinct, fields=found))
    return np.asarray(arrays["counts"][dataset.rows])


def _checked(dataset: RepertoireDataset, fields: Sequence[str]) -> list[str]:
    known = gene_fields(dataset)
    for name in fields if len(dataset) else ():
        if name not in known:
            raise InputError(f"{dataset.container.path}: has no {name}")
    return [name for name in _FIELDS if name in fields]


def content_hashes(dataset: RepertoireDataset, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return 64 bits of the residues, (n,), of some of a container's sequences, (n,): an arbitrary, lasting order."""
    if hasattr(dataset.container, "residues") and len(dataset):
        return np.asarray(hashes_of(rows_of(dataset[0], []), numbers))
    bounds = dataset.container.repertoire_offsets
    hashes = np.zeros(len(numbers), np.uint64)
    owner = np.searchsorted(bounds, numbers, side="right") - 1
    for row in np.unique(owner).tolist():
        chosen = owner == row
        repertoire = dataset.whole()[row]
        hashes[chosen] = hashes_of(rows_of(repertoire, []), numbers[chosen] - bounds[row] + repertoire.start)
    return hashes


def rows_of(repertoire: Repertoire, fields: list[str]) -> Rows:
    """Return all sequences of the store that a repertoire is a part of, for compiled code, with these genes."""
    store = repertoire.container
    return _rows(store.residues, store.sequence_offsets, {name: getattr(store, name).codes for name in fields})


def _gathered(repertoires: list[Repertoire], fields: list[str]) -> Rows:
    """Return the sequences of repertoires end to end."""
    residues = _joined([repertoire.residues for repertoire in repertoires], np.uint8)
    offsets = offsets_of(_joined([repertoire.lengths for repertoire in repertoires], np.int64))
    calls = {name: [getattr(each.container, name) for each in repertoires] for name in fields}
    return _rows(residues, offsets, {name: Categorical.concatenate(each).codes for name, each in calls.items()})


def _rows(residues: NDArray[np.uint8], offsets: NDArray[np.int64], codes: dict[str, NDArray[np.integer[Any]]]) -> Rows:
    v, j = (np.asarray(codes.get(name, np.zeros(0, np.uint16))) for name in _FIELDS)
    return Rows(np.asarray(residues), np.asarray(offsets), v, j)


def _joined(parts: list[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts], dtype=dtype)


def _shared(every: RepertoireDataset, fields: list[str]) -> Arrays:
    on_disk = hasattr(every.container, "residues") and len(every) > 0
    rows = rows_of(every[0], fields) if on_disk else _gathered(list(every), fields)
    return vars(group_clones(rows, np.asarray(every.container.repertoire_offsets)))


def _distinct(every: RepertoireDataset, fields: list[str]) -> Arrays:
    with ThreadPoolExecutor(numba.get_num_threads()) as threads:
        return {"counts": np.array(list(threads.map(partial(_n_distinct, fields=fields), every)), np.int64)}


def _n_distinct(repertoire: Repertoire, fields: list[str]) -> int:
    rows = rows_of(repertoire, fields)
    bits = uint64(repertoire.stop.bit_length())
    keys = np.empty(len(repertoire), np.uint64)
    _fill(rows, repertoire.start, repertoire.stop, bits, _ALL_BITS, 1, 0, np.zeros(1, np.int64), keys)
    keys.sort()
    return int(_group(rows, np.array([repertoire.start, repertoire.stop]), keys, bits)[3].sum())


def group_clones(
    rows: Rows, repertoire_offsets: NDArray[np.int64], *, at_once: int = _AT_ONCE, mask: int = int(_ALL_BITS)
) -> Clones:
    """Find the clones that at least two repertoires carry; see `shared_clones`.

    Parameters
    ----------
    rows
        All sequences.
    repertoire_offsets
        Repertoire b has the sequences from repertoire_offsets[b] to repertoire_offsets[b + 1], (B + 1,).
    at_once
        How many sequences' hashes are in memory at once; the result does not depend on it.
    mask
        The bits of the hash that are used; the result does not depend on it.
    """
    n = len(rows.offsets) - 1
    pieces = max(1, -(-n // min(_PIECE, at_once)))
    together = max(1, at_once // _PIECE)  # pieces of a pass
    chunks = list(pairwise([*range(0, n, _PIECE), n]))
    bits, bound = uint64(n.bit_length()), np.uint64(mask)
    with ThreadPoolExecutor(numba.get_num_threads()) as threads:
        # Each chunk of sequences knows by its counts where in a piece its hashes belong: no thread waits for another.
        counts = np.array([*threads.map(lambda chunk: _count(rows, *chunk, bound, pieces), chunks)], np.int64)
        parts = []
        for first in range(0, pieces, together):
            block = counts.reshape(len(chunks), pieces)[:, first : first + together]
            offsets = offsets_of(block.sum(axis=0))
            places = offsets[:-1] + np.cumsum(block, axis=0) - block
            keys = np.empty(int(offsets[-1]), np.uint64)
            fill = partial(_fill_chunk, rows=rows, bits=bits, mask=bound, pieces=pieces, first=first, keys=keys)
            list(threads.map(fill, chunks, places))
            bounds = list(pairwise(offsets.tolist()))
            work = partial(_sort_and_group, rows=rows, repertoire_offsets=repertoire_offsets, keys=keys, bits=bits)
            parts += list(threads.map(work, bounds))
    return _joined_clones(parts, len(repertoire_offsets) - 1)


_Part = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]


def _fill_chunk(
    chunk: tuple[int, int],
    places: NDArray[np.int64],
    *,
    rows: Rows,
    bits: Any,
    mask: Any,
    pieces: int,
    first: int,
    keys: NDArray[np.uint64],
) -> None:
    _fill(rows, *chunk, bits, mask, pieces, first, places.copy(), keys)


def _sort_and_group(
    bounds: tuple[int, int], *, rows: Rows, repertoire_offsets: NDArray[np.int64], keys: NDArray[np.uint64], bits: Any
) -> _Part:
    piece = keys[bounds[0] : bounds[1]]
    piece.sort()
    representative, sizes, repertoires, private = _group(rows, repertoire_offsets, piece, bits)
    return representative, sizes, repertoires, private


def _joined_clones(parts: list[_Part], n_repertoires: int) -> Clones:
    """Order the clones of all pieces by their first sequences; the pieces are freed one by one."""
    representative = _joined([part[0] for part in parts], np.int64)
    order = np.argsort(representative)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    offsets = offsets_of(_joined([part[1] for part in parts], np.int64)[order])
    repertoires = np.empty(int(offsets[-1]), np.int32)
    private = np.zeros(n_repertoires, np.int64)
    last = len(order)
    while parts:
        _, sizes, carriers, alone = parts.pop()
        private += alone
        _place(place[last - len(sizes) : last], offsets, sizes, carriers, repertoires)
        last -= len(sizes)
    return Clones(representative[order], offsets, repertoires, private)


@njit(nogil=True)
def _piece_of(value: Any, pieces: int) -> Any:
    """Return which of the equal ranges of hashes one is in."""
    return np.int64(((value >> uint64(32)) * uint64(pieces)) >> uint64(32))


@njit(nogil=True)
def _count(rows: Rows, start: int, stop: int, mask: Any, pieces: int) -> NDArray[np.int64]:
    counts = np.zeros(pieces, np.int64)
    for row in range(start, stop):
        counts[_piece_of(hash_of(rows, row) & mask, pieces)] += 1
    return counts


@njit(nogil=True)
def _fill(
    rows: Rows,
    start: int,
    stop: int,
    bits: Any,
    mask: Any,
    pieces: int,
    first: int,
    places: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> None:
    """Write a key of each sequence whose hash is in one of the pieces from `first`: hash above, number below.

    Of the hash there is room for 64 - bits bits, the lower ones.
    """
    for row in range(start, stop):
        value = hash_of(rows, row) & mask
        piece = _piece_of(value, pieces) - first
        if 0 <= piece < len(places):
            keys[places[piece]] = (value << bits) | uint64(row)
            places[piece] += 1


@njit(nogil=True)
def _group(
    rows: Rows, repertoire_offsets: NDArray[np.int64], keys: NDArray[np.uint64], bits: Any
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Return the shared clones of sorted keys: first sequences, numbers of carriers, carriers; and private clones.

    Keys with equal hashes lie together, in the order of their sequences. The keys are spent.
    """
    n = len(keys)
    representative, sizes = np.empty(n // 2, np.int64), np.empty(n // 2, np.int32)
    carriers, private = np.empty(n, np.int32), np.zeros(len(repertoire_offsets) - 1, np.int64)
    below = (uint64(1) << bits) - uint64(1)
    n_clones = n_carriers = 0
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and keys[stop] >> bits == keys[start] >> bits:
            stop += 1
        for one in range(start, stop):
            if keys[one] == _DONE:
                continue
            row = np.int64(keys[one] & below)
            last = np.searchsorted(repertoire_offsets, row, side="right") - 1
            end = n_carriers + 1
            carriers[n_carriers] = last
            for other in range(one + 1, stop):
                if keys[other] != _DONE:
                    again = np.int64(keys[other] & below)
                    if same(rows, row, rows, again):
                        keys[other] = _DONE
                        if again >= repertoire_offsets[last + 1]:
                            last = np.searchsorted(repertoire_offsets, again, side="right") - 1
                            carriers[end] = last
                            end += 1
            if end - n_carriers > 1:
                representative[n_clones], sizes[n_clones] = row, end - n_carriers
                n_clones += 1
                n_carriers = end
            else:
                private[last] += 1
        start = stop
    return representative[:n_clones].copy(), sizes[:n_clones].copy(), carriers[:n_carriers].copy(), private


@njit(nogil=True)
def _place(
    place: NDArray[np.int64],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int32],
    carriers: NDArray[np.int32],
    repertoires: NDArray[np.int32],
) -> None:
    """Copy the carriers of clones to where each clone's belong."""
    start = 0
    for clone in range(len(sizes)):
        to = offsets[place[clone]]
        for i in range(sizes[clone]):
            repertoires[to + i] = carriers[start + i]
        start += sizes[clone]
