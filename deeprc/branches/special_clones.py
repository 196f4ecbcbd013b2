"""The clones that a search of the branch `clones` looks at beside the shared ones.

They are overshared clones, frequent clones, wildcard clones, clusters of clones, similar clones and expanded clones.

Letters: M clones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats
from deeprc.branches.clones_memory import RESIDUES_PER_MISMATCH
from deeprc.branches.clones_searches import CloneSearch
from deeprc.branches.genes import has_heavy_chains
from deeprc.branches.overshared_clones import OversharedClones, find_frequent_clones, find_overshared_clones
from deeprc.datasets.clones.clusters import CloneClusters, find_clone_clusters
from deeprc.datasets.clones.expanded import ExpandedClones, find_expanded_clones
from deeprc.datasets.clones.grouping import CloneCarriers, SharedClones
from deeprc.datasets.clones.hashed_sequences import MAX_SEQUENCES
from deeprc.datasets.clones.similar import SimilarClones, find_similar_clones
from deeprc.datasets.clones.wildcards import WildcardClones, find_wildcard_clones
from deeprc.datasets.dataset import RepertoireDataset

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
    similar, less_similar
        Similar clones with at most one mismatch in six residues, and in four; None if the sequences are not heavy
        chains of B cells with known genes, or if there are too many.
    expanded
        Clones that are expanded in at least two repertoires.
    """

    overshared: OversharedClones
    frequent: OversharedClones
    most_frequent: OversharedClones
    wildcards: WildcardClones | None
    clusters: CloneClusters | None
    similar: SimilarClones | None
    less_similar: SimilarClones | None
    expanded: ExpandedClones

    def find(self, kind: str) -> CloneCarriers | None:
        """Return the special clones of a kind of `ALTERNATIVES`; None if there are none of this kind."""
        often_shared = {name: clones.all for name, clones in self.list_often_shared().items()}
        return {**often_shared, **self.list_others()}.get(kind)

    def list_often_shared(self) -> dict[str, OversharedClones]:
        """Return the sets of clones that many donors share, by the kind of their alternatives."""
        return {"overshared": self.overshared, "frequent": self.frequent, "most frequent": self.most_frequent}

    def list_others(self) -> dict[str, CloneCarriers | None]:
        """Return the other special clones, by the kind of their alternatives; None if they were not looked for."""
        return {
            "wildcard": self.wildcards,
            "cluster": self.clusters,
            "similar": self.similar,
            "less similar": self.less_similar,
            "expanded": self.expanded,
        }


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
            special, rows = _find_in(search, shared, probabilities, fields), search.rows
            if special.wildcards is None:
                _logger.info(
                    "Clones with a wildcard and clusters of clones are not looked for: the training repertoires have"
                    " more than %s sequences.",
                    f"{MAX_SEQUENCES:,}",
                )
        yield special


def _find_in(search: CloneSearch, shared: SharedClones, probabilities: Floats, fields: Sequence[str]) -> SpecialClones:
    """Return the special clones of one search."""
    frequent, most_frequent = find_frequent_clones(shared, search.dataset, search.groups)
    similar, less_similar = _find_similar(search.dataset, fields)
    return SpecialClones(
        overshared=find_overshared_clones(shared, probabilities, search.dataset, search.groups),
        frequent=frequent,
        most_frequent=most_frequent,
        wildcards=find_wildcard_clones(search.dataset, fields),
        clusters=find_clone_clusters(search.dataset, fields),
        similar=similar,
        less_similar=less_similar,
        expanded=find_expanded_clones(search.dataset, fields),
    )


def _find_similar(
    dataset: RepertoireDataset, fields: Sequence[str]
) -> tuple[SimilarClones, SimilarClones] | tuple[None, None]:
    """Return the similar clones and the less similar ones; None for both if they are not looked for."""
    if not has_heavy_chains(dataset):
        return None, None
    found = find_similar_clones(dataset, fields, RESIDUES_PER_MISMATCH)
    if found is None:
        _logger.info(
            "Similar clones are not looked for: too many sequences, or too many with the same length and genes."
        )
        return None, None
    similar, less_similar = found
    return similar, less_similar
