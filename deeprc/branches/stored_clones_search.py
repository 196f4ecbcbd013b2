"""The search for stored clones in a repertoire, each with its match.

Letters: J clones, N sequences of one repertoire.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Integers
from deeprc.branches.clones_memory import CLUSTER, EXPANDED
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.neighbours import EXACT, ONE_SUBSTITUTION, Neighbours, NeighbourSearch
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.expansion import find_smallest_expanded_count

__all__ = ["StoredClonesSearch"]


class StoredClonesSearch:
    """A search for clones in repertoires; it makes the tables that it needs once.

    Parameters
    ----------
    clones
        The J clones.
    matches
        Match of each, see `Memory`, (J,). The members of clusters match as with one substitution.
    """

    def __init__(self, clones: CloneSet, matches: Integers) -> None:
        self._must_be_expanded = matches == EXPANDED
        searched = np.where(matches >= CLUSTER, ONE_SUBSTITUTION, matches)
        self._search = NeighbourSearch(clones, np.where(self._must_be_expanded, EXACT, searched))

    def find_in(self, repertoire: Repertoire, hashes: NDArray[np.uint64] | None = None) -> tuple[Neighbours, int]:
        """Return the pairs of a sequence and a clone that it matches, and the number of expanded sequences.

        The number is 0 if no clone must be expanded. See `NeighbourSearch.find_in`, also for errors.
        """
        pairs = self._search.find_in(repertoire, hashes)
        if not self._must_be_expanded.any():
            return pairs, 0
        is_expanded = repertoire.counts >= find_smallest_expanded_count(repertoire.counts)
        is_match = is_expanded[pairs.rows] | ~self._must_be_expanded[pairs.clones]
        return Neighbours(*(column[is_match] for column in pairs)), int(is_expanded.sum())
