"""Search for candidates: clones for which sequences with one substitution may count as the clone itself.

A clone is a candidate if its exact carriers are weakly associated with the label. To cross-fit, candidates are selected
several times, each time on some of the folds only, see `Selections`. `clones_matches` chooses the match of each
candidate in each selection.

Letters: J candidates, D different training repertoires, F folds, S selections that leave out some folds (one more
leaves out none).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.baselines.cross_fitted_clone_counts import Selections, find_passing_clones
from deeprc.baselines.cross_fitted_clone_loops import FoldedRepertoires, PassingRule
from deeprc.branches.clones_searches import CloneSearch
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.grouping import CloneCarriers
from deeprc.datasets.clones.neighbours import EXACT, ONE_SUBSTITUTION, NeighbourSearch, find_neighbours
from deeprc.datasets.dataset import RepertoireDataset

__all__ = [
    "NO_MATCH",
    "CandidateNeighbours",
    "CarriedCandidates",
    "CloneCandidates",
    "compute_content_order",
    "find_candidates",
    "mark_left_out",
]

NO_MATCH = -1
"""Match of a candidate that is not retrieved. No enum, because `njit` functions use it."""

_LEVELS = (0.02, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)  # largest p-values of candidates, see `_find_weakly_associated`
_MAX_CANDIDATES = 20_000  # largest number of candidates of all searches together, in each selection


class CarriedCandidates(NamedTuple):
    """The candidates that each of some repertoires carries, each candidate once.

    Attributes
    ----------
    starts, stops
        Repertoire d carries the candidates `candidates[starts[d]:stops[d]]`, (D,) each.
    candidates
        Indices of the candidates, from 0 to J - 1, one repertoire after the other.
    is_exact
        Whether the repertoire carries the candidate itself, not only sequences with one substitution; as `candidates`.
    """

    starts: Integers
    stops: Integers
    candidates: NDArray[np.int32]
    is_exact: NDArray[np.bool_]

    def take(self, repertoires: Integers) -> CarriedCandidates:
        """Return the candidates that some of the D repertoires carry, by their indices among the D."""
        return self._replace(starts=self.starts[repertoires], stops=self.stops[repertoires])


class CandidateNeighbours(NamedTuple):
    """The neighbours of each candidate: those of candidate j are `candidates[offsets[j]:offsets[j + 1]]`."""

    offsets: Integers
    candidates: Integers


@dataclass(frozen=True)
class CloneCandidates:
    """The candidates of all searches, ordered by content, and their carriers.

    Attributes
    ----------
    clones
        The J candidates.
    levels
        For each search, the level of each selection, (S + 1,): the p-value of a candidate's exact carriers must be
        below it. The last selection leaves no fold out.
    repertoire_indices
        Indices of the different training repertoires in the container, ascending, (D,).
    carried
        Candidates that each of these repertoires carries.
    neighbours
        Neighbours of each candidate.
    """

    clones: CloneSet
    levels: Sequence[Floats]
    repertoire_indices: Integers
    carried: CarriedCandidates
    neighbours: CandidateNeighbours


def find_candidates(
    dataset: RepertoireDataset, clones: CloneCarriers, searches: Sequence[CloneSearch], fields: Sequence[str]
) -> CloneCandidates:
    """Return the candidates of all searches, after one pass over the repertoires.

    Parameters
    ----------
    dataset
        Training repertoires.
    clones
        Clones that repertoires of the container share.
    searches
        Searches of which candidates are found.
    fields
        Gene fields that are part of a clone.
    """
    limit = max(1, _MAX_CANDIDATES // max(1, len(searches)))
    found, levels = [np.zeros(0, np.int64)], []
    for search in searches:
        indices, levels_of_search = _find_weakly_associated(clones, search, limit)
        found.append(indices)
        levels.append(levels_of_search)
    clone_indices = np.unique(np.concatenate(found))  # among all clones
    candidates = CloneSet(dataset.take_clones(clones.representative[clone_indices], fields))
    candidates = candidates.take(compute_content_order(candidates))
    repertoire_indices, positions = np.unique(dataset.repertoire_indices, return_index=True)
    carried = _find_carried(candidates, dataset[positions])
    return CloneCandidates(candidates, levels, repertoire_indices, carried, _find_candidate_neighbours(candidates))


def _find_weakly_associated(clones: CloneCarriers, search: CloneSearch, limit: int) -> tuple[Integers, Floats]:
    """Return the indices of the candidates among all clones, and the level of each selection, (S + 1,).

    The level is the loosest one of `_LEVELS` that at most `limit` clones pass, or else the strictest one. A clone that
    passes it in any selection is a candidate.
    """
    repertoires = FoldedRepertoires.of(search.dataset, search.units, search.folds)
    rule = PassingRule.of(mark_left_out(search), repertoires, _LEVELS, search.test)
    indices, n_passed = find_passing_clones(clones, repertoires, rule)  # n_passed: number of levels, (n, S + 1)
    # levels fall, so a clone that passes n of them passes those with the indices 0 to n - 1
    n_clones = np.stack([(n_passed > level_index).sum(axis=0) for level_index in range(len(_LEVELS))])
    n_too_loose = (n_clones > limit).sum(axis=0)  # number of levels that too many clones pass, (S + 1,)
    level_index = np.minimum(n_too_loose, len(_LEVELS) - 1)
    is_candidate = (n_passed > level_index).any(axis=1)
    return indices[is_candidate], np.array(_LEVELS)[level_index]


def mark_left_out(search: CloneSearch) -> NDArray[np.bool_]:
    """Return whether each selection leaves out each fold, (S + 1, F); the last one leaves out none."""
    return np.concatenate([Selections.of(search.n_folds).left_out, np.zeros((1, search.n_folds), bool)])


def compute_content_order(clones: CloneSet, matches: Integers | None = None) -> Integers:
    """Return the order of clones, (J,), by sequences, genes and matches, which does not depend on their present order.

    `matches` has the match of each clone, (J,). Without it, the clones must be different.
    """
    columns = [clones.sequences.decode(), *(calls.names().tolist() for calls in clones.sequences.genes.values())]
    columns += [] if matches is None else [matches.tolist()]
    keys = list(zip(*columns, strict=True))
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def _find_carried(candidates: CloneSet, repertoires: RepertoireDataset) -> CarriedCandidates:
    """Return the candidates that each repertoire carries."""
    carried, is_exact, sizes = [np.zeros(0, np.int32)], [np.zeros(0, bool)], np.zeros(len(repertoires), np.int64)
    for d, pairs in enumerate(find_neighbours(candidates, repertoires)):
        matches = np.full(len(candidates), NO_MATCH, np.int8)
        matches[pairs.clones] = ONE_SUBSTITUTION
        matches[pairs.clones[pairs.mismatches == 0]] = EXACT
        matched = np.flatnonzero(matches != NO_MATCH)
        sizes[d] = len(matched)
        carried.append(matched.astype(np.int32))
        is_exact.append(matches[matched] == EXACT)
    offsets = compute_offsets(sizes)
    return CarriedCandidates(offsets[:-1], offsets[1:], np.concatenate(carried), np.concatenate(is_exact))


def _find_candidate_neighbours(candidates: CloneSet) -> CandidateNeighbours:
    """Return the candidates within one substitution of each candidate, which are those that differ at one position."""
    search = NeighbourSearch(candidates)
    vocabularies = {field: calls.vocabulary for field, calls in candidates.sequences.genes.items()}
    arrays, is_known = candidates.encode_genes(vocabularies)
    pairs = search.find(arrays, search.make_table(arrays, is_known), 0, len(candidates))
    differ = pairs.mismatches == 1
    n_neighbours = np.bincount(pairs.rows[differ], minlength=len(candidates))
    return CandidateNeighbours(compute_offsets(n_neighbours), pairs.clones[differ])
