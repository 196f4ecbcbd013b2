"""Find clonal families: the sequences of one repertoire that probably descend from one B cell.

Somatic hypermutation changes the receptors of a B cell's descendants. So sequences with the same V gene, J gene and
length are linked if at most a fifth of their residues differ. A family is a set of sequences that links connect (single
linkage; Gupta 2017, J Immunol 198:2489, links nucleotide sequences in the same way). Chance also links some unrelated
sequences, most of all in repertoires of hundreds of thousands of sequences.

Letters: N sequences of one repertoire.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.sequences import GENE_FIELDS, SequenceArrays, Sequences
from deeprc.errors import InputError

__all__ = ["compute_family_weights", "find_families"]

_RESIDUES_PER_DIFFERENCE = 5  # linked sequences differ in at most one of so many residues
_N_COMPARED_LAST = 3  # number of residues at the beginning of a junction, mostly CAR, that are compared last
_MIN_SIZE_FOR_THREADS = 20_000  # number of sequences below which starting threads takes as long as finding families
_GROUPS_AT_ONCE = 8  # number of groups of sequences with the same genes and length in which a thread finds families


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
    bounds = np.append(np.flatnonzero(is_first), len(order))
    n_groups = len(bounds) - 1
    size = _GROUPS_AT_ONCE if len(sequences) >= _MIN_SIZE_FOR_THREADS else n_groups
    run_in_blocks(_link_families, n_groups, max(size, 1), arrays, order, bounds, families)
    return families


@njit(nogil=True)
def _link_families(
    first_group: int,
    stop: int,
    sequences: SequenceArrays,
    order: NDArray[np.int64],
    bounds: NDArray[np.int64],
    families: NDArray[np.int64],
) -> None:
    """Write the family of each sequence of some groups, (N,), which is its own index before the call.

    Sequences order[bounds[g]:bounds[g + 1]] have the same genes and length, and their indices rise.
    """
    for group in range(first_group, stop):
        for at in range(bounds[group], bounds[group + 1]):
            row = order[at]
            for at_other in range(bounds[group], at):
                other = order[at_other]
                if families[other] != families[row] and _are_linked(sequences, row, other):
                    root, other_root = _find_root(families, row), _find_root(families, other)
                    families[max(root, other_root)] = min(root, other_root)
                    families[row] = families[root]  # so that the next members of the family are not compared
        for at in range(bounds[group], bounds[group + 1]):
            row = order[at]
            families[row] = families[families[row]]  # earlier rows have their root already


@njit(nogil=True, inline="always")
def _are_linked(sequences: SequenceArrays, row: int, other: int) -> bool:
    """Return whether two sequences of the same length differ in at most a fifth of their residues.

    The first residues are compared last, because they hardly differ between junctions.
    """
    start, other_start = sequences.offsets[row], sequences.offsets[other]
    length = sequences.offsets[row + 1] - start
    n_allowed, first = length // _RESIDUES_PER_DIFFERENCE, min(_N_COMPARED_LAST, length // 2)
    n_different = 0
    for i in range(first, length):
        n_different += sequences.residues[start + i] != sequences.residues[other_start + i]
        if n_different > n_allowed:
            return False
    for i in range(first):
        n_different += sequences.residues[start + i] != sequences.residues[other_start + i]
    return bool(n_different <= n_allowed)


@njit(nogil=True)
def _find_root(families: NDArray[np.int64], row: int) -> int:
    """Return the first sequence of a family, to which a sequence is linked by way of others; shorten the way."""
    while families[row] != row:
        families[row] = families[families[row]]
        row = families[row]
    return row
