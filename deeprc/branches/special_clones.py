"""The clones that a search of the branch `clones` looks at beside the shared ones.

They are overshared clones, frequent clones, wildcard clones, and clusters of clones.

Letters: M clones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats
from deeprc.branches.clones_searches import CloneSearch
from deeprc.branches.overshared_clones import OversharedClones, find_frequent_clones, find_overshared_clones
from deeprc.datasets.clones.clusters import CloneClusters, find_clone_clusters
from deeprc.datasets.clones.grouping import CloneCarriers, SharedClones
from deeprc.datasets.clones.hashed_sequences import MAX_SEQUENCES
from deeprc.datasets.clones.wildcards import WildcardClones, find_wildcard_clones

__all__ = ["SpecialClones", "find_special_clones"]

_logger = logging.getLogger(__name__)


class SpecialClones(NamedTuple):
    """The special clones of the training repertoires.

    Attributes
    ----------
    overshared, frequent, most_frequent
        Overshared clones, and two sets of frequent clones.
    wildcards, clusters
        Wildcard clones, and clusters of clones; None if there are too many sequences.
    """

    overshared: OversharedClones
    frequent: OversharedClones
    most_frequent: OversharedClones
    wildcards: WildcardClones | None
    clusters: CloneClusters | None

    def find(self, kind: str) -> CloneCarriers | None:
        """Return the special clones of a kind of `ALTERNATIVES`; None if there are none of this kind."""
        often_shared = {name: clones.all for name, clones in self.list_often_shared().items()}
        return {**often_shared, "wildcard": self.wildcards, "cluster": self.clusters}.get(kind)

    def list_often_shared(self) -> dict[str, OversharedClones]:
        """Return the sets of clones that many donors share, by the kind of their alternatives."""
        return {"overshared": self.overshared, "frequent": self.frequent, "most frequent": self.most_frequent}


def find_special_clones(
    searches: Sequence[CloneSearch], shared: SharedClones, probabilities: Floats, fields: Sequence[str]
) -> Iterator[SpecialClones]:
    """Yield the special clones of each search.

    Searches with the same repertoires have the same ones. Only those of one search are in memory at a time.

    Parameters
    ----------
    searches
        The searches.
    shared, probabilities
        Shared clones of the container, and the probability of the junction of each, (M,).
    fields
        Gene fields that are part of a clone.
    """
    special, rows = None, np.zeros(0, np.int64)
    for search in searches:
        if special is None or not np.array_equal(search.rows, rows):
            special, rows = (
                SpecialClones(
                    find_overshared_clones(shared, probabilities, search.dataset, search.groups),
                    *find_frequent_clones(shared, search.dataset, search.groups),
                    find_wildcard_clones(search.dataset, fields),
                    find_clone_clusters(search.dataset, fields),
                ),
                search.rows,
            )
            if special.wildcards is None:
                _logger.info(
                    "Clones with a wildcard and clusters of clones are not looked for: the training repertoires have"
                    " more than %s sequences.",
                    f"{MAX_SEQUENCES:,}",
                )
        yield special
