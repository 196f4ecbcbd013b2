"""Metaclonotypes: a clone with its neighbours, sequences with one substitution and a V gene of the same family.

The clones of the table were chosen by the donors that carry them exactly. So a test of all carriers of a metaclonotype
would find again what was chosen. The test of neighbours therefore uses the donors that do not carry the clone itself:
do donors of the class carry a neighbour more often? Given the exact carriers, the labels of the other donors are as
random as before.

Letters: J clones, U units (see `deeprc.associations.donors_by_class`).
"""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from deeprc.associations.donors_by_class import DonorsByClass
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.neighbours import Neighbours, find_neighbours
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequences import GENE_FIELDS

__all__ = ["CarrierKind", "find_carrier_kinds"]


class CarrierKind(IntEnum):
    """What a donor carries of a metaclonotype."""

    NONE = 0
    NEIGHBOUR_ONLY = 1
    CLONE = 2


_AFTER_FAMILY = re.compile("[-*/,].*")


def find_carrier_kinds(dataset: RepertoireDataset, donors: DonorsByClass, clones: CloneSet) -> NDArray[np.uint8]:
    """Return what each unit of a cohort carries of each of J clones: its `CarrierKind`, (U, J)."""
    kinds = np.zeros((len(donors), len(clones)), np.uint8)
    counted = dataset[np.flatnonzero(donors.unit_of[dataset.repertoire_indices] >= 0)]
    junctions = CloneSet(clones.sequences.with_genes({}))
    families = _get_v_families(clones)
    units = donors.unit_of[counted.repertoire_indices].tolist()
    for repertoire, unit, neighbours in zip(counted, units, find_neighbours(junctions, counted), strict=True):
        _raise_kinds(kinds[unit], repertoire, neighbours, clones, families)
    return kinds


def _get_v_families(clones: CloneSet) -> NDArray[np.object_] | None:
    calls = clones.sequences.genes.get("v_call")
    return None if calls is None else _extract_family_names(calls.vocabulary)[calls.codes]


def _extract_family_names(vocabulary: tuple[str, ...]) -> NDArray[np.object_]:
    """Return the family of each V gene: that of TRBV7-9 is TRBV7."""
    return np.array([_AFTER_FAMILY.sub("", name) for name in vocabulary], dtype=object)


def _raise_kinds(
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
        clone_genes = clones.sequences.genes.get(field)
        if clone_genes is None:
            continue
        calls = repertoire.container.sequences.genes[field]
        codes = np.asarray(calls.codes[rows], np.int64)
        is_exact &= codes == clone_genes.encode_with(calls.vocabulary)[near]
        if field == "v_call" and families is not None:
            is_near &= _extract_family_names(calls.vocabulary)[codes] == families[near]
    np.maximum.at(kinds, near[is_near], np.uint8(CarrierKind.NEIGHBOUR_ONLY))
    kinds[near[is_exact]] = CarrierKind.CLONE
