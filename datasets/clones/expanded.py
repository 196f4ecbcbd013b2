"""Find expanded clones: clones that several repertoires share, and that have expanded in these.

Many healthy people carry the same public clones. An infection then does not change who carries them, but how abundant
they are. So the carriers of an expanded clone are only those repertoires in which its count is among the highest.

A sequence is expanded if its expansion score is at least `MIN_EXPANSION_SCORE`, see `deeprc.datasets.expansion`. If all
counts of a repertoire are equal, none is.

Letters: N sequences, n expanded sequences, B repertoires of a container, M clones, E pairs of a clone and a repertoire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Integers
from deeprc.compilation import open_threads
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.categorical import Categorical, extend_vocabulary
from deeprc.datasets.clones.grouping import CloneCarriers, take_segments
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.expansion import MIN_EXPANSION_SCORE, find_smallest_expanded_count
from deeprc.datasets.sequence_hash import hash_rows
from deeprc.datasets.sequences import Sequences
from deeprc.progress import open_step, track

__all__ = ["ExpandedClones", "find_expanded_clones"]

_HASHES_AT_ONCE = 1 << 23  # number of expanded sequences that are compared at a time
_MIN_CARRIERS = 2


class _HashedRows(NamedTuple):
    """Rows in the container of n expanded sequences, their hashes, and their repertoires, (n,) each."""

    rows: Integers
    hashes: NDArray[np.uint64]
    repertoires: NDArray[np.int32]


class _SharedRows(NamedTuple):
    """Row of the first sequence of M shared clones, number of carriers of each, (M,) each, and the carriers, (E,)."""

    rows: Integers
    n_carriers: Integers
    carriers: NDArray[np.int32]


_NO_ROWS = _HashedRows(np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.int32))


@dataclass(frozen=True)
class ExpandedClones(CloneCarriers):
    """The M clones that are expanded in at least two repertoires, in the order of their first expanded sequences.

    The representative is this sequence. The carriers are the repertoires in which the clone is expanded.

    Attributes
    ----------
    n_expanded
        Number of expanded sequences of each repertoire of the container, (B,).
    """

    n_expanded: Integers


def find_expanded_clones(dataset: RepertoireDataset, gene_fields: Sequence[str] = ()) -> ExpandedClones:
    """Return the clones that are expanded in several repertoires of a dataset; none if no count is known.

    Sequences are compared by their hashes. Two different ones of the largest cohort have the same hash with a
    probability below 0.001.

    Parameters
    ----------
    dataset
        Repertoires. Only these are searched, not all of their container.
    gene_fields
        Genes of the clone definition; see `deeprc.datasets.clones.shared.find_shared_clones`.

    Raises
    ------
    InputError
        If the container lacks one of these genes.
    """
    checked, all_repertoires = dataset.check_gene_fields(gene_fields), dataset.whole()
    expansion = load_or_compute(dataset, "expanded-sequences", {"score": MIN_EXPANSION_SCORE}, _find_expanded_counts)
    indices = np.unique(dataset.repertoire_indices)
    n_bits = (int(expansion["n_expanded"][indices].sum()) // _HASHES_AT_ONCE).bit_length()
    offsets = np.asarray(dataset.container.repertoire_offsets)
    hash_clones = _CloneHash(checked)

    def hash_expanded(index: int, first_bits: int) -> _HashedRows:
        """Return the expanded sequences of a repertoire whose hashes begin with some bits."""
        repertoire = all_repertoires[index]
        is_expanded = repertoire.counts >= expansion["smallest_count"][index]
        rows = np.flatnonzero(is_expanded)
        hashes = hash_clones(repertoire.sequences.take(rows))
        is_in_pass = hashes >> np.uint64(64 - n_bits) == first_bits if n_bits else np.ones(len(rows), np.bool_)
        rows = offsets[index] + rows[is_in_pass]
        return _HashedRows(rows, hashes[is_in_pass], np.full(len(rows), index, np.int32))

    clones = []
    with open_threads() as threads, open_step("looking for expanded clones", len(indices) << n_bits) as step:
        for first_bits in range(1 << n_bits):
            hashed = step.follow(threads.map(partial(hash_expanded, first_bits=first_bits), indices.tolist()))
            clones.append(_find_shared(*map(np.concatenate, zip(_NO_ROWS, *hashed, strict=True))))
    rows, n_carriers, carriers = map(np.concatenate, zip(*clones, strict=True))
    order = np.argsort(rows)
    selected, clone_offsets = take_segments(carriers, compute_offsets(n_carriers), order)
    return ExpandedClones(rows[order], clone_offsets, selected, np.asarray(expansion["n_expanded"]))


class _CloneHash:
    """A function that hashes sequences with their genes, which have the same codes in all calls.

    The vocabularies of the repertoires may differ, if a linked container has them in its parts, or if they are made on
    demand. Threads may call it at the same time.
    """

    def __init__(self, gene_fields: Sequence[str]) -> None:
        self._code_of: dict[str, dict[str, int]] = {field: {} for field in gene_fields}
        self._lock = Lock()

    def __call__(self, sequences: Sequences) -> NDArray[np.uint64]:
        """Return the hashes of N sequences, (N,)."""
        genes = {}
        for field, code_of in self._code_of.items():
            calls = sequences.genes[field]
            with self._lock:
                codes = extend_vocabulary(code_of, calls.vocabulary).astype(np.uint16)
            genes[field] = Categorical(codes[calls.codes], ())  # only the codes are read
        arrays = sequences.with_genes(genes).arrays(list(genes))
        return np.asarray(hash_rows(arrays, np.arange(len(sequences))))


def _find_expanded_counts(all_repertoires: RepertoireDataset) -> Arrays:
    """Return the smallest expanded count, and the number of expanded sequences, of each repertoire, (B,) each."""

    def find(repertoire: Repertoire) -> tuple[int, int]:
        smallest = find_smallest_expanded_count(repertoire.counts)
        return smallest, int((repertoire.counts >= smallest).sum())

    found = track(all_repertoires.map_repertoires(find), "reading counts", len(all_repertoires))
    smallest_count, n_expanded = np.array(list(found), np.int64).reshape(len(all_repertoires), 2).T
    return {"smallest_count": smallest_count, "n_expanded": n_expanded}


def _find_shared(rows: Integers, hashes: NDArray[np.uint64], repertoires: NDArray[np.int32]) -> _SharedRows:
    """Return the clones that at least two repertoires have; the sequences, (n,), are in the order of their rows."""
    order = np.argsort(hashes, kind="stable")
    rows, hashes, repertoires = rows[order], hashes[order], repertoires[order]
    is_first = np.append(True, hashes[1:] != hashes[:-1])[: len(rows)]  # of its clone
    is_carrier = is_first | np.append(True, repertoires[1:] != repertoires[:-1])[: len(rows)]  # each repertoire once
    clone_of = np.cumsum(is_first) - 1
    n_carriers = np.bincount(clone_of[is_carrier], minlength=int(is_first.sum()))
    is_shared = n_carriers >= _MIN_CARRIERS
    return _SharedRows(rows[is_first][is_shared], n_carriers[is_shared], repertoires[is_carrier & is_shared[clone_of]])
