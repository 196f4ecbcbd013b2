"""Find wildcard clones: sequences that several repertoires carry if any residue may stand at one given position.

CASSLRGNQPQHF and CASSLKGNQPQHF have the wildcard clone CASSL-GNQPQHF in common. Receptors of one specificity often
share such a clone although each donor has a sequence of its own; GLIPH2 (Huang et al. 2020) calls these receptors
globally similar. The first three and the last three residues are never the wildcard, because the germline genes
determine them.

Sequences are compared by their hashes without the residue at the wildcard, one position after the other. Two different
wildcard clones of the largest cohort have the same hash with a probability below 0.001.

Letters: B repertoires, N sequences, M wildcard clones, E pairs of a wildcard clone and a repertoire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import open_threads
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.clones.grouping import CloneCarriers, find_repeated
from deeprc.datasets.clones.hashed_sequences import HashedSequences, hash_cohort
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequence_hash import leave_out_of_each
from deeprc.progress import open_step

__all__ = ["WildcardClones", "find_wildcard_clones"]

_SEQUENCES_AT_ONCE = 1 << 24  # of all positions that are searched at the same time; each takes 35 bytes
_ENDS = 3  # number of residues at each end of a sequence that are never the wildcard


@dataclass(frozen=True)
class WildcardClones(CloneCarriers):
    """The M wildcard clones that at least two repertoires carry, with at least two different residues.

    The representative is, of the sequences with the wildcard clone, the first one with the alphabetically first residue
    at the wildcard.

    Attributes
    ----------
    positions
        Position of the wildcard, from 0, (M,).
    residues
        Residues that each carrier has at the wildcard, as bits: bit r stands for residue r, (E,).
    """

    positions: NDArray[np.int64]
    residues: NDArray[np.uint32]


class _FoundClones(NamedTuple):
    """Wildcard clones that at least two repertoires carry, with at least two different residues.

    Attributes
    ----------
    representatives
        Index of the representative of each clone among the searched sequences, (M,).
    n_carriers, positions
        Number of carriers of each clone, and position of its wildcard, (M,) each.
    carriers, residues
        As in `WildcardClones`, (E,) each.
    """

    representatives: NDArray[np.int64]
    n_carriers: NDArray[np.int64]
    positions: NDArray[np.int64]
    carriers: NDArray[np.int32]
    residues: NDArray[np.uint32]

    @classmethod
    def empty(cls) -> _FoundClones:
        """Return no clones."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, np.zeros(0, np.int32), np.zeros(0, np.uint32))


def find_wildcard_clones(dataset: RepertoireDataset, gene_fields: Sequence[str] = ()) -> WildcardClones | None:
    """Return the wildcard clones that repertoires of a dataset share; None if it has over `MAX_SEQUENCES` sequences.

    Only the repertoires of the dataset are searched, not all of its container. With 8 million sequences, the search
    takes 17 s on two threads and 1.4 GB of memory.

    Parameters
    ----------
    dataset
        Repertoires, each of which is searched once.
    gene_fields
        Genes of the clone definition; see `deeprc.datasets.clones.shared.find_shared_clones`.

    Raises
    ------
    InputError
        If the container lacks one of these genes.
    """
    sequences = hash_cohort(dataset, gene_fields)
    if sequences is None:
        return None
    positions = range(_ENDS, max(_ENDS, int(sequences.lengths.max(initial=0)) - _ENDS))
    n_at_once = max(1, _SEQUENCES_AT_ONCE // max(1, len(sequences.rows)))
    found = [_FoundClones.empty()]
    with (
        open_threads() as threads,
        open_step("looking for clones with a wildcard that repertoires share", len(positions)) as step,
    ):
        for first in range(0, len(positions), n_at_once):
            block = positions[first : first + n_at_once]
            found += step.follow(threads.map(partial(_find_at_position, sequences), block))
    clones = _FoundClones(*map(np.concatenate, zip(*found, strict=True)))
    return WildcardClones(
        representative=sequences.rows[clones.representatives],
        offsets=compute_offsets(clones.n_carriers),
        carriers=clones.carriers,
        positions=clones.positions,
        residues=clones.residues,
    )


def _find_at_position(sequences: HashedSequences, position: int) -> _FoundClones:
    """Return the clones with a wildcard at a position.

    The sequences are sorted by their hash without the residue at the wildcard. So those with the same wildcard clone
    lie together, and within a clone those of the same repertoire.
    """
    rows = np.flatnonzero(sequences.lengths > position + _ENDS)
    residues = sequences.residues[sequences.first_residues[rows] + position]
    keys = leave_out_of_each(sequences.hashes[rows], position, residues)
    order = np.argsort(keys, kind="stable")
    order = order[find_repeated(keys[order])]
    if len(order) == 0:
        return _FoundClones.empty()
    keys, rows, residues = keys[order], rows[order], residues[order]
    repertoires = sequences.repertoires[rows]
    begins_clone = _differ_from_previous(keys)  # whether a sequence is the first one with its clone
    begins_carrier = begins_clone | _differ_from_previous(repertoires)  # the first one of its repertoire with its clone
    clone_starts = np.flatnonzero(begins_clone)
    clone_of_carrier = (np.cumsum(begins_clone) - 1)[begins_carrier]
    n_carriers = np.bincount(clone_of_carrier, minlength=len(clone_starts))
    lowest_residue, first_row = _find_lowest_residues(residues, rows, clone_starts)
    is_kept = (n_carriers >= 2) & (lowest_residue != np.maximum.reduceat(residues, clone_starts))
    bits = np.uint32(1) << residues.astype(np.uint32)
    carrier_residues = np.bitwise_or.reduceat(bits, np.flatnonzero(begins_carrier))
    is_of_kept = is_kept[clone_of_carrier]
    return _FoundClones(
        first_row[is_kept],
        n_carriers[is_kept],
        np.full(int(is_kept.sum()), position, np.int64),
        repertoires[begins_carrier][is_of_kept],
        carrier_residues[is_of_kept],
    )


def _differ_from_previous(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each value differs from the one before it, (n,); the first one does."""
    differ = np.ones(len(values), np.bool_)
    differ[1:] = values[1:] != values[:-1]
    return differ


def _find_lowest_residues(
    residues: NDArray[np.uint8], rows: NDArray[np.int64], clone_starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the lowest residue of each clone at its wildcard, and the lowest row that has it, (M,) each."""
    n_rows = int(rows.max()) + 1
    lowest = np.minimum.reduceat(residues.astype(np.int64) * n_rows + rows, clone_starts)  # of both as one number
    return np.divmod(lowest, n_rows)
