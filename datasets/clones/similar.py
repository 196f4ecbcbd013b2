"""Find similar clones: a clone, its centre, and all sequences that differ from it in several residues at most.

Donors with one immune response often have receptors that are similar, but hardly ever the same. This holds most of all
for heavy chains of B cells, because somatic hypermutation changes them; such clones are called convergent. A sequence
belongs to a centre if it has the same length and genes, and if at most one residue in so many differs.

Centres are chosen without labels. Of the sequences with the same length and genes, the one whose similar sequences are
in the most repertoires is the first centre. Sequences similar to it cannot be centres. Of the others, the one with the
most repertoires is the next centre, and so on. Of equal numbers, a hash of the residues decides, so that the order of
the repertoires does not matter. A sequence may belong to several centres.

Letters: B repertoires, N sequences, K different sequences, M centres, E pairs of a centre and a repertoire, G groups of
different sequences with the same length and genes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.arrays import Integers
from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.clones.grouping import CloneCarriers
from deeprc.datasets.clones.hashed_sequences import HashedSequences, hash_cohort
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.progress import open_step

__all__ = ["MAX_COMPARISONS", "SimilarClones", "find_similar_clones"]

MAX_COMPARISONS = 20_000_000_000
"""Largest number of pairs of sequences with the same length and genes that are compared: about a minute."""

_MIN_CARRIERS = 2
_ALL_1, _ALL_127 = 0x0101010101010101, 0x7F7F7F7F7F7F7F7F  # each byte of a word is 1, or 127
_GROUPS_AT_ONCE = 8  # number of groups that a thread compares at a time


@dataclass(frozen=True)
class SimilarClones(CloneCarriers):
    """The M centres whose similar sequences at least two repertoires have, in the order of their rows.

    `representative` is the centre, and `carriers` are the repertoires that have a sequence that is similar to it.

    Attributes
    ----------
    max_mismatches
        Largest number of residues in which a similar sequence differs from each centre, (M,).
    """

    max_mismatches: NDArray[np.int64]


class _GroupedClones(NamedTuple):
    """The K different sequences of a cohort by their length and genes; compiled code reads this.

    Attributes
    ----------
    residues, first_residues
        Amino acids of some sequences, among them these, and the index of the first one of each, (K,).
    bounds, lengths
        Group g has the different sequences from bounds[g] to bounds[g + 1], (G + 1,), of this length, (G,).
    offsets, repertoires
        Different sequence k is in the repertoires from repertoires[offsets[k]] to repertoires[offsets[k + 1]],
        (K + 1,).
    residue_hashes
        Hash of the residues of each different sequence, without its genes, (K,).
    n_repertoires
        Number of repertoires of the container, B.
    """

    residues: NDArray[np.uint8]
    first_residues: Integers
    bounds: Integers
    lengths: Integers
    offsets: Integers
    repertoires: NDArray[np.int32]
    residue_hashes: NDArray[np.uint64]
    n_repertoires: int


def find_similar_clones(
    dataset: RepertoireDataset, gene_fields: Sequence[str], residues_per_mismatch: Sequence[int]
) -> list[SimilarClones] | None:
    """Return similar clones for each number of residues per mismatch; None if there are too many sequences.

    Only the repertoires of the dataset are compared, not all of its container.

    Parameters
    ----------
    dataset, gene_fields
        See `hash_cohort`.
    residues_per_mismatch
        For each result, of so many residues at most one may differ.

    Raises
    ------
    InputError
        If the container lacks one of these genes.
    """
    sequences = hash_cohort(dataset, gene_fields)
    if sequences is None:
        return None
    clones, rows = _group_clones(sequences)
    sizes = np.diff(clones.bounds).astype(np.float64)
    if (sizes**2).sum() > MAX_COMPARISONS:
        return None
    with open_step("looking for similar clones", len(residues_per_mismatch)) as step:
        return list(step.follow(_find_centres(clones, rows, number) for number in residues_per_mismatch))


def _group_clones(sequences: HashedSequences) -> tuple[_GroupedClones, Integers]:
    """Return the K different sequences by group, and the row of the first sequence of each in the container, (K,)."""
    _, first, clone_of = np.unique(sequences.hashes, return_index=True, return_inverse=True)
    order = np.lexsort((first, sequences.length_gene_hashes[first]))  # of the different sequences
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    first = first[order]
    n_repertoires = int(sequences.repertoires.max(initial=0)) + 1
    pairs = np.unique(rank[clone_of.ravel()] * n_repertoires + sequences.repertoires)
    clone_of_pair, repertoires = np.divmod(pairs, n_repertoires)
    keys = sequences.length_gene_hashes[first]
    bounds = np.append(np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)]), len(keys))
    grouped = _GroupedClones(
        residues=sequences.residues,
        first_residues=sequences.first_residues[first],
        bounds=bounds,
        lengths=sequences.lengths[first[bounds[:-1]]],
        offsets=compute_offsets(np.bincount(clone_of_pair, minlength=len(first))),
        repertoires=repertoires.astype(np.int32),
        residue_hashes=sequences.hashes[first] ^ keys,
        n_repertoires=n_repertoires,
    )
    return grouped, sequences.rows[first]


def _find_centres(clones: _GroupedClones, rows: Integers, residues_per_mismatch: int) -> SimilarClones:
    """Return the similar clones for one number of residues per mismatch; `rows` are those of `_group_clones`."""
    n_clones, n_groups = len(rows), len(clones.lengths)
    limits = clones.lengths // residues_per_mismatch
    n_carriers, is_centre = np.zeros(n_clones, np.int64), np.zeros(n_clones, np.bool_)
    run_in_blocks(_count_carriers, n_groups, _GROUPS_AT_ONCE, clones, limits, n_carriers)
    group_of = np.repeat(np.arange(n_groups), np.diff(clones.bounds))
    order = np.lexsort((clones.residue_hashes, -n_carriers, group_of))
    run_in_blocks(_choose_centres, n_groups, _GROUPS_AT_ONCE, clones, limits, order, n_carriers, is_centre)
    centres = np.flatnonzero(is_centre)
    offsets = compute_offsets(np.where(is_centre, n_carriers, 0))
    carriers = np.empty(int(offsets[-1]), np.int32)
    run_in_blocks(_list_carriers, n_groups, _GROUPS_AT_ONCE, clones, limits, is_centre, offsets, carriers)
    # sort the carriers of each centre, and the centres by their rows
    rank = np.empty(len(centres), np.int64)
    rank[np.argsort(rows[centres])] = np.arange(len(centres))
    carrier_order = np.lexsort((carriers, np.repeat(rank, n_carriers[centres])))
    centres = centres[np.argsort(rank)]
    return SimilarClones(
        representative=rows[centres],
        offsets=compute_offsets(n_carriers[centres]),
        carriers=carriers[carrier_order],
        max_mismatches=limits[group_of[centres]],
    )


@njit(nogil=True)
def _pack_group(clones: _GroupedClones, group: int) -> NDArray[np.uint64]:
    """Return the residues of the n different sequences of a group, eight in a word, (words, n)."""
    start, length = clones.bounds[group], clones.lengths[group]
    words = np.zeros(((length + 7) // 8, clones.bounds[group + 1] - start), np.uint64)
    for row in range(words.shape[1]):
        first = clones.first_residues[start + row]
        for i in range(length):
            words[i // 8, row] |= uint64(clones.residues[first + i]) << uint64(8 * (i % 8))
    return words


@njit(nogil=True)
def _count_mismatches(words: NDArray[np.uint64], row: int, n_mismatches: NDArray[np.uint64]) -> None:
    """Write in how many residues each sequence of a group differs from one of them, (n,); both have the same length.

    A residue is below 128. So the highest bit of a byte is set by adding 127 if two residues differ.
    """
    n_mismatches[:] = uint64(0)
    for i in range(len(words)):
        own = words[i, row]
        for other in range(words.shape[1]):
            differ = (words[i, other] ^ own) + uint64(_ALL_127)
            n_mismatches[other] += (differ >> uint64(7)) & uint64(_ALL_1)  # in each byte
    for other in range(words.shape[1]):
        n_mismatches[other] = (n_mismatches[other] * uint64(_ALL_1)) >> uint64(56)  # the sum of the bytes


@njit(nogil=True)
def _count_carriers(
    first_group: int, stop: int, clones: _GroupedClones, limits: Integers, n_carriers: Integers
) -> None:
    """Write the number of repertoires with a sequence similar to each different sequence of some groups, (K,)."""
    last_seen = np.full(clones.n_repertoires, -1, np.int64)  # the last different sequence of each repertoire
    for group in range(first_group, stop):
        words, start = _pack_group(clones, group), clones.bounds[group]
        n_mismatches = np.empty(words.shape[1], np.uint64)
        for row in range(words.shape[1]):
            _count_mismatches(words, row, n_mismatches)
            for other in range(words.shape[1]):
                if np.int64(n_mismatches[other]) <= limits[group]:
                    for i in range(clones.offsets[start + other], clones.offsets[start + other + 1]):
                        repertoire = clones.repertoires[i]
                        if last_seen[repertoire] != start + row:
                            last_seen[repertoire] = start + row
                            n_carriers[start + row] += 1


@njit(nogil=True)
def _choose_centres(
    first_group: int,
    stop: int,
    clones: _GroupedClones,
    limits: Integers,
    order: Integers,
    n_carriers: Integers,
    is_centre: NDArray[np.bool_],
) -> None:
    """Mark the centres of some groups, (K,); `order` has the different sequences of each group, most carriers first."""
    for group in range(first_group, stop):
        words, start = _pack_group(clones, group), clones.bounds[group]
        n_mismatches, is_similar = np.empty(words.shape[1], np.uint64), np.zeros(words.shape[1], np.bool_)
        for at in range(start, clones.bounds[group + 1]):
            centre = order[at] - start
            if n_carriers[start + centre] < _MIN_CARRIERS:
                break
            if not is_similar[centre]:
                is_centre[start + centre] = True
                _count_mismatches(words, centre, n_mismatches)
                for other in range(words.shape[1]):
                    is_similar[other] |= np.int64(n_mismatches[other]) <= limits[group]  # to a centre


@njit(nogil=True)
def _list_carriers(
    first_group: int,
    stop: int,
    clones: _GroupedClones,
    limits: Integers,
    is_centre: NDArray[np.bool_],
    offsets: Integers,
    carriers: NDArray[np.int32],
) -> None:
    """Write the carriers of the centres of some groups, (E,): those of different sequence k from offsets[k] on."""
    last_seen = np.full(clones.n_repertoires, -1, np.int64)
    for group in range(first_group, stop):
        words, start = _pack_group(clones, group), clones.bounds[group]
        n_mismatches = np.empty(words.shape[1], np.uint64)
        for row in np.flatnonzero(is_centre[start : clones.bounds[group + 1]]):
            n = offsets[start + row]
            _count_mismatches(words, row, n_mismatches)
            for other in range(words.shape[1]):
                if np.int64(n_mismatches[other]) <= limits[group]:
                    for i in range(clones.offsets[start + other], clones.offsets[start + other + 1]):
                        repertoire = clones.repertoires[i]
                        if last_seen[repertoire] != start + row:
                            last_seen[repertoire] = start + row
                            carriers[n] = repertoire
                            n += 1
