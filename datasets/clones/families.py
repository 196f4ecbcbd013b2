"""Find clonal families: the sequences of one repertoire that probably descend from one B cell.

Somatic hypermutation changes the receptors of a B cell's descendants. So sequences with the same V gene, J gene and
length are linked if at most a fifth of their residues differ, and a family is a set of sequences that links connect
(single linkage; Gupta 2017, J Immunol 198:2489, links nucleotide sequences in the same way). Chance also links some
unrelated sequences, most of all in repertoires of hundreds of thousands of sequences.

Letters: N sequences of one repertoire.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.compilation import njit
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.sequences import GENE_FIELDS, SequenceArrays, Sequences
from deeprc.errors import InputError

__all__ = ["compute_family_weights", "find_families"]

_RESIDUES_PER_DIFFERENCE = 5  # linked sequences differ in at most one of so many residues


def compute_family_weights(repertoire: Repertoire) -> Floats:
    """Return the reciprocal of the size of each sequence's family, (N,), so that the weights of a family sum to 1.

    Raises
    ------
    InputError
        If the repertoire's container lacks the V or the J genes, or knows none of them.
    """
    for field in GENE_FIELDS:
        if field not in repertoire.genes or (len(repertoire) and not any(repertoire.genes[field].vocabulary)):
            raise InputError(f"{repertoire.container.path}: has no {field}, which is needed to find clonal families")
    families = find_families(repertoire.sequences)
    return np.asarray(1 / np.bincount(families)[families]) if len(families) else np.zeros(0)


def find_families(sequences: Sequences) -> NDArray[np.int64]:
    """Return the family of each sequence of a repertoire, (N,): the index of the first sequence of the family.

    Sequences whose gene is not known are not told apart by this gene.
    """
    arrays = sequences.arrays(GENE_FIELDS)
    keys = np.stack([sequences.lengths, *(codes for codes in (arrays.v, arrays.j) if len(codes))]).astype(np.int64)
    order = np.lexsort(keys)  # stable: a group of sequences with equal keys is in the order of the sequences
    is_first = np.append(True, (np.diff(keys[:, order], axis=1) != 0).any(axis=0))
    families = np.arange(len(sequences))
    _link_families(arrays, order, np.append(np.flatnonzero(is_first), len(order)), families)
    return families


@njit(nogil=True)
def _link_families(
    sequences: SequenceArrays, order: NDArray[np.int64], bounds: NDArray[np.int64], families: NDArray[np.int64]
) -> None:
    """Write the family of each sequence, (N,), which is its own index before the call.

    Sequences order[bounds[g]:bounds[g + 1]] have the same genes and length, and their indices rise.
    """
    residues, offsets = sequences.residues, sequences.offsets
    for group in range(len(bounds) - 1):
        for at in range(bounds[group], bounds[group + 1]):
            row = order[at]
            start, length = offsets[row], offsets[row + 1] - offsets[row]
            n_allowed = length // _RESIDUES_PER_DIFFERENCE
            for at_other in range(bounds[group], at):
                other_start = offsets[order[at_other]]
                n_different, i = 0, 0
                while i < length and n_different <= n_allowed:
                    n_different += residues[start + i] != residues[other_start + i]
                    i += 1
                if n_different <= n_allowed:
                    root, other_root = _find_root(families, row), _find_root(families, order[at_other])
                    families[max(root, other_root)] = min(root, other_root)
    for row in range(len(families)):
        families[row] = families[families[row]]  # earlier rows have their root already


@njit(nogil=True)
def _find_root(families: NDArray[np.int64], row: int) -> int:
    """Return the first sequence of a family, to which a sequence is linked by way of others; shorten the way."""
    while families[row] != row:
        families[row] = families[families[row]]
        row = families[row]
    return row
