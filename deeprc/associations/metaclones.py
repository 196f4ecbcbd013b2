"""Metaclonotypes: a clone with its neighbours, sequences with one substitution and a V gene of the same family.

The clones of the table were chosen by the donors that carry them exactly. So a test of all carriers of a metaclonotype
would find again what was chosen. The test of neighbours therefore uses the donors that do not carry the clone itself:
do donors of the class carry a neighbour more often? Given the exact carriers, the labels of the other donors are as
random as before.

Letters: J clones, U donors.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.clone_neighbours import Neighbours, find_neighbours
from deeprc.datasets.clone_set import CloneSet
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequences import GENE_FIELDS

__all__ = ["EXACT", "NEIGHBOUR", "find_clone_carriers"]

NEIGHBOUR, EXACT = 1, 2
_AFTER_FAMILY = re.compile("[-*/,].*")


def find_clone_carriers(
    dataset: RepertoireDataset, donor_of: NDArray[np.int32], n_donors: int, clones: CloneSet
) -> NDArray[np.uint8]:
    """Return a code for each donor and clone, (U, J): 2 carries the clone, 1 only a neighbour of it, 0 neither.

    Parameters
    ----------
    dataset
        The cohort.
    donor_of
        Index of the donor of each repertoire of the container, or -1.
    n_donors
        Number of donors, U.
    clones
        The J clones.
    """
    kinds = np.zeros((n_donors, len(clones)), np.uint8)
    of_donors = dataset[np.flatnonzero(donor_of[dataset.rows] >= 0)]
    junctions = CloneSet(clones.sequences.with_genes({}))
    families = _get_v_families(clones)
    pairs = zip(of_donors, donor_of[of_donors.rows].tolist(), find_neighbours(junctions, of_donors), strict=True)
    for repertoire, donor, neighbours in pairs:
        _mark(kinds[donor], repertoire, neighbours, clones, families)
    return kinds


def _get_v_families(clones: CloneSet) -> NDArray[np.object_] | None:
    calls = clones.sequences.genes.get("v_call")
    return None if calls is None else _extract_family_names(calls.vocabulary)[calls.codes]


def _extract_family_names(vocabulary: tuple[str, ...]) -> NDArray[np.object_]:
    """Return the family of each V gene: that of TRBV7-9 is TRBV7."""
    return np.array([_AFTER_FAMILY.sub("", name) for name in vocabulary], dtype=object)


def _mark(
    kinds: NDArray[np.uint8],
    repertoire: Repertoire,
    neighbours: Neighbours,
    clones: CloneSet,
    families: NDArray[np.object_] | None,
) -> None:
    """Raise the codes `kinds` of the clones, (J,), that a repertoire carries exactly or as a neighbour."""
    rows, near = neighbours.rows + repertoire.start, neighbours.clones
    is_exact, is_near = neighbours.mismatches == 0, np.ones(len(rows), bool)
    for field in GENE_FIELDS:
        own = clones.sequences.genes.get(field)
        if own is None:
            continue
        calls = repertoire.container.sequences.genes[field]
        codes = np.asarray(calls.codes[rows], np.int64)
        is_exact &= codes == own.encode_with(calls.vocabulary)[near]
        if field == "v_call" and families is not None:
            is_near &= _extract_family_names(calls.vocabulary)[codes] == families[near]
    np.maximum.at(kinds, near[is_near], np.uint8(NEIGHBOUR))
    kinds[near[is_exact]] = EXACT
