"""What the branch `clones` stores of one kind of clones: the clones, their matches, and their evidence.

Letters: J clones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.branches.clones_evidence import EvidenceDirection, EvidenceKind, EvidenceLevel
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.neighbours import EXACT, ONE_SUBSTITUTION, SUBSTITUTIONS, WILDCARD

__all__ = [
    "CLUSTER",
    "EXPANDED",
    "MAX_SIMILAR",
    "RESIDUES_PER_MISMATCH",
    "Memory",
    "find_first_of_cluster",
    "name_match",
]

EXPANDED = 1 << 19
"""Match of a clone that only expanded sequences match, exactly; see `deeprc.datasets.clones.expanded`."""

CLUSTER = 1 << 20
"""`CLUSTER` + c is the match of the members of cluster c; all other matches are smaller."""

MAX_SIMILAR = 10_000
"""Largest number of similar clones of a memory: a sequence is compared with each of its length and genes."""

RESIDUES_PER_MISMATCH = 6, 4
"""Of so many residues at most one may differ from a similar clone, and from a less similar one."""


class Memory(NamedTuple):
    """The stored clones of one kind that are associated with one output in one direction.

    Attributes
    ----------
    output
        Index of the output.
    direction
        `up` if repertoires with a higher label carry the clones more often, `down` if those with a lower label do.
    kind, levels
        Kind and levels of the evidence; `odds` are the log-odds of the direction.
    clones
        The J clones, best first.
    matches
        Match of each clone, (J,): `EXACT`, `ONE_SUBSTITUTION`, `WILDCARD` + position, `SUBSTITUTIONS` + number,
        `EXPANDED`, or `CLUSTER` + cluster, from 0.
    carriers
        Numbers of carriers of each clone or of its cluster, (J, 2): the positive and the negative ones for classes; all
        carriers and 0 for numbers. A carrier is a donor if donors are known, else a training repertoire.
    tests
        P-value and q-value of each clone or of its cluster, (J, 2).
    """

    output: int
    direction: EvidenceDirection
    kind: EvidenceKind
    levels: Sequence[EvidenceLevel]
    clones: CloneSet
    matches: NDArray[np.int64]
    carriers: NDArray[np.int64]
    tests: Floats


def find_first_of_cluster(matches: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the first clone in the cluster of each clone, (J,), or its own index if it has no cluster.

    `matches` has the match of each clone of one memory, (J,).
    """
    first = np.arange(len(matches))
    members = np.flatnonzero(matches >= CLUSTER)
    _, first_members, cluster = np.unique(matches[members], return_index=True, return_inverse=True)
    first[members] = members[first_members][cluster.ravel()]
    return first


def name_match(match: int) -> str:
    """Return the match of a clone in words."""
    names = {EXACT: "exact", ONE_SUBSTITUTION: "one substitution", EXPANDED: "expanded"}
    if match in names:
        return names[match]
    if match >= CLUSTER:
        return f"cluster {match - CLUSTER + 1}"
    if match >= SUBSTITUTIONS:
        n = match - SUBSTITUTIONS
        return f"up to {n} substitution{'' if n == 1 else 's'}"
    return f"any residue at position {match - WILDCARD + 1}"
