"""Search for candidates: clones for which sequences with one substitution may count as the clone itself.

A clone is a candidate if its exact carriers are weakly associated with the label. To cross-fit, candidates are selected
several times, each time on some of the folds only, see `Selections`. In each selection:

- a candidate is retrieved only if its exact carriers in these folds are weakly associated with the label. Otherwise the
  folds that are left out would have an influence on its selection;
- it is matched exactly or with one substitution, whichever has the smaller p-value;
- if it is matched with one substitution, its neighbours are not retrieved, because their sequences would count twice.
  Neighbours are candidates within one substitution of each other.

Letters: J candidates, D different training repertoires, F folds, S selections that leave out some folds (one more
leaves out none), T thresholds, B training repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.baselines.carrier_counts import MIN_CARRIERS
from deeprc.baselines.cross_fitted_clone_counts import Selections, count_by_threshold, find_passing_clones
from deeprc.baselines.cross_fitted_clone_loops import FoldedRepertoires, PassingRule
from deeprc.branches.clones_searches import CloneSearch
from deeprc.compilation import njit
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.grouping import CloneCarriers
from deeprc.datasets.clones.neighbours import EXACT, ONE_SUBSTITUTION, NeighbourSearch, find_neighbours
from deeprc.datasets.dataset import RepertoireDataset

__all__ = [
    "NO_MATCH",
    "ChosenMatches",
    "CloneCandidates",
    "SearchCandidates",
    "choose_final_matches",
    "compute_content_order",
    "count_held_out_matches",
    "find_candidates",
]

NO_MATCH = -1
"""Match of a candidate that is not retrieved. No enum, because `njit` functions use it."""

_LEVELS = (0.02, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)  # largest p-values of candidates, see `_find_weakly_associated`
_MAX_CANDIDATES = 20_000  # largest number of candidates of all searches together, in each selection
_SUBSTITUTION_FACTOR = 3.0  # factor of p-values with one substitution, because the candidate is tested once more


class CarriedCandidates(NamedTuple):
    """The candidates that each of some repertoires carries, each candidate once.

    Attributes
    ----------
    starts, stops
        Repertoire d carries the candidates `clones[starts[d]:stops[d]]`, (D,) each.
    clones
        Indices of the candidates, one repertoire after the other.
    is_exact
        Whether the repertoire carries the candidate itself, not only sequences with one substitution.
    """

    starts: Integers
    stops: Integers
    clones: NDArray[np.int32]
    is_exact: NDArray[np.bool_]

    def of_repertoires(self, indices: Integers) -> CarriedCandidates:
        """Return the candidates that the repertoires with these indices carry."""
        return self._replace(starts=self.starts[indices], stops=self.stops[indices])


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
    rows
        Rows of the different repertoires in the container, ascending, (D,).
    carried
        Candidates that each of these repertoires carries.
    neighbour_offsets, neighbours
        Neighbours of candidate j: neighbours[neighbour_offsets[j]:neighbour_offsets[j + 1]].
    """

    clones: CloneSet
    levels: Sequence[Floats]
    rows: Integers
    carried: CarriedCandidates
    neighbour_offsets: Integers
    neighbours: Integers


class CarrierSums(NamedTuple):
    """Sums over the carriers of each candidate, by match and fold, (2, J, F) each.

    Attributes
    ----------
    label_sums
        Sum of the labels of the carriers.
    n_carriers, n_different
        Number of carriers: as often as each counts (`CountedUnits.weight`), and each once.
    """

    label_sums: Integers
    n_carriers: Integers
    n_different: Integers

    def sum_folds(self, is_summed: NDArray[np.bool_]) -> CarrierSums:
        """Return the sums over some of the folds, (2, J) each."""
        return CarrierSums(*(by_fold[..., is_summed].sum(axis=2) for by_fold in self))


@dataclass(frozen=True)
class SearchCandidates:
    """The candidates with the data of one search.

    Attributes
    ----------
    all_searches, search
        Candidates of all searches, and one of these.
    levels
        Levels of the search, see `CloneCandidates.levels`, (S + 1,).
    left_out
        Whether each selection leaves out each fold, (S + 1, F); the last one leaves out none.
    repertoires
        The D different repertoires of the search.
    carried
        Candidates that each of these repertoires carries.
    sums
        Sums over the carriers of each candidate, by match and fold.
    """

    all_searches: CloneCandidates
    search: CloneSearch
    levels: Floats
    left_out: NDArray[np.bool_]
    repertoires: FoldedRepertoires
    carried: CarriedCandidates
    sums: CarrierSums

    @classmethod
    def of(cls, candidates: CloneCandidates, search: CloneSearch, levels: Floats) -> SearchCandidates:
        """Return the candidates with the data of one of their searches."""
        repertoires = FoldedRepertoires.of(search.dataset, search.units, search.folds)
        rows = np.unique(search.dataset.repertoire_indices)  # of the D different repertoires
        carried = candidates.carried.of_repertoires(np.searchsorted(candidates.rows, rows))
        sums = CarrierSums(*np.zeros((3, 2, len(candidates.clones), search.n_folds), np.int64))
        _sum_by_fold(carried, np.argsort(repertoires.unit, kind="stable"), repertoires, sums)
        return cls(candidates, search, levels, _mark_left_out(search), repertoires, carried, sums)


class ChosenMatches(NamedTuple):
    """The match of each candidate in one selection.

    Attributes
    ----------
    matches
        `NO_MATCH` if the candidate is not retrieved, else `EXACT` or `ONE_SUBSTITUTION`, (J,).
    p_values
        P-value of each candidate with its match, 1 if it is not retrieved, (J,).
    label_sums, n_carriers
        Sum of the labels of the carriers of each candidate with its match, and number of the carriers, (J,) each.
    """

    matches: Integers
    p_values: Floats
    label_sums: Integers
    n_carriers: Integers


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
    by_search = [_find_weakly_associated(clones, search, limit) for search in searches]
    indices = np.unique(np.concatenate([np.zeros(0, np.int64), *(candidates for candidates, _ in by_search)]))
    candidates = CloneSet(dataset.take_clones(clones.representative[indices], fields))
    candidates = candidates.take(compute_content_order(candidates))
    rows, first = np.unique(dataset.repertoire_indices, return_index=True)
    carried = _find_carried(candidates, dataset[first])
    return CloneCandidates(
        candidates, [levels for _, levels in by_search], rows, carried, *_list_neighbours(candidates)
    )


def _find_weakly_associated(clones: CloneCarriers, search: CloneSearch, limit: int) -> tuple[Integers, Floats]:
    """Return the indices of the candidates among all clones, and the level of each selection, (S + 1,).

    It is the loosest level that at most `limit` clones pass, or else the strictest one. A clone that passes it in any
    selection is a candidate.
    """
    repertoires = FoldedRepertoires.of(search.dataset, search.units, search.folds)
    rule = PassingRule.of(_mark_left_out(search), repertoires, _LEVELS, search.test)
    indices, n_passed = find_passing_clones(clones, repertoires, rule)  # n_passed: number of levels, (n, S + 1)
    n_clones = np.stack([(n_passed > level).sum(axis=0) for level in range(len(_LEVELS))])  # (levels, S + 1)
    chosen = np.minimum((n_clones > limit).sum(axis=0), len(_LEVELS) - 1)
    return indices[(n_passed > chosen).any(axis=1)], np.array(_LEVELS)[chosen]


def _mark_left_out(search: CloneSearch) -> NDArray[np.bool_]:
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


def _list_neighbours(clones: CloneSet) -> tuple[Integers, Integers]:
    """Return the clones within one substitution of each clone, as offsets, (J + 1,), and indices."""
    search = NeighbourSearch(clones)
    vocabularies = {field: calls.vocabulary for field, calls in clones.sequences.genes.items()}
    arrays, is_known = clones.encode_genes(vocabularies)
    pairs = search.find(arrays, search.make_table(arrays, is_known), 0, len(clones))
    differ = pairs.mismatches == 1
    return compute_offsets(np.bincount(pairs.rows[differ], minlength=len(clones))), pairs.clones[differ]


def count_held_out_matches(candidates: SearchCandidates, thresholds: Sequence[float]) -> Integers:
    """Return the number of retrieved candidates in each repertoire, (T, B, F + 1).

    The last axis is the fold that is held out, as in `count_clones_out_of_fold`.

    Parameters
    ----------
    candidates
        Candidates with the data of one search.
    thresholds
        Largest p-values of a candidate, descending, (T,).
    """
    repertoires, selections = candidates.repertoires, Selections.of(candidates.search.n_folds)
    counts = np.zeros((len(repertoires.fold), candidates.search.n_folds + 1, len(thresholds)), np.int64)
    for selection in range(len(selections.left_out)):
        chosen = _choose_matches(candidates, selection)
        n_passed = (chosen.p_values[:, None] < np.asarray(thresholds)).sum(axis=1)  # thresholds that each passes, (J,)
        for held_out, own_fold in np.argwhere(selections.selection_of == selection).tolist():
            rows = np.flatnonzero(repertoires.fold == own_fold)
            _count_candidates(candidates.carried, rows, chosen.matches, n_passed, counts[:, held_out])
    return count_by_threshold(counts, repertoires, candidates.search.dataset)


def choose_final_matches(candidates: SearchCandidates) -> ChosenMatches:
    """Return the matches that are chosen on all folds."""
    return _choose_matches(candidates, len(candidates.left_out) - 1)


def _choose_matches(candidates: SearchCandidates, selection: int) -> ChosenMatches:
    """Return the matches that are chosen in the selection with this index."""
    sums = candidates.sums.sum_folds(~candidates.left_out[selection])
    p_values = _compute_p_values(candidates, selection, sums)
    best_first = np.argsort(p_values, axis=None, kind="stable")  # among equal p-values, exact matches are first
    best_first = best_first[p_values.ravel()[best_first] < 1]
    matches = np.full(p_values.shape[1], NO_MATCH, np.int64)
    _assign_matches(best_first, candidates.all_searches.neighbour_offsets, candidates.all_searches.neighbours, matches)
    cells = matches.clip(EXACT), np.arange(len(matches))  # of the match of each candidate in arrays (2, J)
    chosen_p_values = np.where(matches == NO_MATCH, 1.0, p_values[cells])
    return ChosenMatches(matches, chosen_p_values, sums.label_sums[cells], sums.n_carriers[cells])


def _compute_p_values(candidates: SearchCandidates, selection: int, sums: CarrierSums) -> Floats:
    """Return the p-value of each candidate with each match in a selection, (2, J); 1 if it must not be retrieved."""
    repertoires, test = candidates.repertoires, candidates.search.test
    labels = repertoires.labels[~candidates.left_out[selection][repertoires.label_folds]]
    exact, substituted = (
        test.compute_p_values(sums.label_sums[match], sums.n_carriers[match], labels)
        for match in (EXACT, ONE_SUBSTITUTION)
    )
    may_be_retrieved = (exact < candidates.levels[selection]) & (sums.n_different[EXACT] >= MIN_CARRIERS)
    return np.where(may_be_retrieved, [exact, np.minimum(_SUBSTITUTION_FACTOR * substituted, 1.0)], 1.0)


@njit(nogil=True)
def _assign_matches(best_first: Integers, neighbour_offsets: Integers, neighbours: Integers, matches: Integers) -> None:
    """Write the match of each candidate, (J,), so that no candidate counts twice.

    `best_first` has the indices of exact matches, j, and of matches with one substitution, J + j. A candidate is
    not matched with one substitution if a neighbour is retrieved, and it is not retrieved if a neighbour is matched
    with one substitution. A sequence may still match two candidates that differ by two substitutions.
    """
    n = len(matches)
    for item in best_first:
        candidate, match = item % n, item // n
        if matches[candidate] != NO_MATCH:
            continue
        overlaps = False
        for i in range(neighbour_offsets[candidate], neighbour_offsets[candidate + 1]):
            other = matches[neighbours[i]]
            if other == ONE_SUBSTITUTION or (match == ONE_SUBSTITUTION and other == EXACT):
                overlaps = True
        if not overlaps:
            matches[candidate] = match


@njit(nogil=True)
def _sum_by_fold(
    carried: CarriedCandidates, order: Integers, repertoires: FoldedRepertoires, sums: CarrierSums
) -> None:
    """Add each candidate that a repertoire carries to the sums.

    `order` lists the D repertoires carrier by carrier, because each carrier counts once for a candidate.
    """
    last_seen = np.full(sums.label_sums.shape[:2], -1, np.int64)  # last carrier, by match and candidate
    for d in order:
        fold, carrier = repertoires.fold[d], repertoires.unit[d]
        for i in range(carried.starts[d], carried.stops[d]):
            candidate = carried.clones[i]
            # who carries the candidate itself is also a carrier with one substitution
            for match in range(EXACT if carried.is_exact[i] else ONE_SUBSTITUTION, ONE_SUBSTITUTION + 1):
                if last_seen[match, candidate] != carrier:
                    last_seen[match, candidate] = carrier
                    sums.label_sums[match, candidate, fold] += repertoires.label_sum[carrier]
                    sums.n_carriers[match, candidate, fold] += repertoires.weight[carrier]
                    sums.n_different[match, candidate, fold] += 1


@njit(nogil=True)
def _count_candidates(
    carried: CarriedCandidates, repertoires: Integers, matches: Integers, n_passed: Integers, counts: Integers
) -> None:
    """Count the retrieved candidates of some repertoires, by the strictest threshold that each passes, (D, T)."""
    for d in repertoires:
        for i in range(carried.starts[d], carried.stops[d]):
            candidate = carried.clones[i]
            if n_passed[candidate] > 0 and (carried.is_exact[i] or matches[candidate] == ONE_SUBSTITUTION):
                counts[d, n_passed[candidate] - 1] += 1
