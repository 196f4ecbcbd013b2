"""Choice of a match for each candidate: exact, or with one substitution.

The choice is made in each selection, that is, on some of the folds only:

- a candidate is retrieved only if its exact carriers in these folds are weakly associated with the label. Otherwise the
  folds that are left out would have an influence on its selection;
- it is matched exactly or with one substitution, whichever has the smaller p-value;
- if it is matched with one substitution, its neighbours are not retrieved, because their sequences would count twice.
  Neighbours are candidates within one substitution of each other.

For example, CASSLGYEQYF and CASSLAYEQYF are neighbours. If the first one is matched with one substitution, a repertoire
with the second one is a carrier of the first one, so the second one is not retrieved. If the first one is matched
exactly, the second one may be retrieved, too, but only exactly.

Letters: J candidates, D different repertoires of one search, F folds, S selections that leave out some folds (one more
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
from deeprc.baselines.cross_fitted_clone_counts import Selections, count_by_threshold
from deeprc.baselines.cross_fitted_clone_loops import FoldedRepertoires
from deeprc.branches.clones_candidates import (
    NO_MATCH,
    CandidateNeighbours,
    CarriedCandidates,
    CloneCandidates,
    mark_left_out,
)
from deeprc.branches.clones_searches import CloneSearch
from deeprc.compilation import njit
from deeprc.datasets.clones.neighbours import EXACT, ONE_SUBSTITUTION

__all__ = ["ChosenMatches", "SearchCandidates", "choose_final_matches", "count_held_out_matches"]

_SUBSTITUTION_FACTOR = 3.0  # factor of p-values with one substitution, because the candidate is tested once more


class CarrierSums(NamedTuple):
    """Sums over the carriers of each candidate, by match (`EXACT`, `ONE_SUBSTITUTION`) and fold, (2, J, F) each.

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
        own_indices = np.unique(search.dataset.repertoire_indices)  # in the container, (D,)
        carried = candidates.carried.take(np.searchsorted(candidates.repertoire_indices, own_indices))
        sums = CarrierSums(*np.zeros((3, 2, len(candidates.clones), search.n_folds), np.int64))
        unit_by_unit = np.argsort(repertoires.unit, kind="stable")
        _sum_by_fold(carried, unit_by_unit, repertoires, sums)
        return cls(candidates, search, levels, mark_left_out(search), repertoires, carried, sums)


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
            in_fold = np.flatnonzero(repertoires.fold == own_fold)  # indices among the D repertoires
            _count_candidates(candidates.carried, in_fold, chosen.matches, n_passed, counts[:, held_out])
    return count_by_threshold(counts, repertoires, candidates.search.dataset)


def choose_final_matches(candidates: SearchCandidates) -> ChosenMatches:
    """Return the matches that are chosen on all folds."""
    return _choose_matches(candidates, len(candidates.left_out) - 1)


def _choose_matches(candidates: SearchCandidates, selection: int) -> ChosenMatches:
    """Return the matches that are chosen in the selection with this index."""
    sums = candidates.sums.sum_folds(~candidates.left_out[selection])
    p_values = _compute_p_values(candidates, selection, sums)
    matches = np.full(p_values.shape[1], NO_MATCH, np.int64)
    _assign_matches(_rank_matches(p_values), candidates.all_searches.neighbours, matches)
    cells = matches.clip(EXACT), np.arange(len(matches))  # where the match of each candidate is in arrays (2, J)
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


class _RankedMatches(NamedTuple):
    """Pairs of a candidate and a match that it may have, smallest p-value first, (pairs,) each."""

    candidates: Integers
    matches: Integers


def _rank_matches(p_values: Floats) -> _RankedMatches:
    """Return the pairs whose p-value is below 1, from the p-values, (2, J); among equal ones, exact matches first."""
    matches, candidates = np.divmod(np.argsort(p_values, axis=None, kind="stable"), p_values.shape[1])
    may_be_retrieved = p_values[matches, candidates] < 1
    return _RankedMatches(candidates[may_be_retrieved], matches[may_be_retrieved])


@njit(nogil=True)
def _assign_matches(ranked: _RankedMatches, neighbours: CandidateNeighbours, matches: Integers) -> None:
    """Give each candidate the first of its ranked matches with which no sequence counts for it and a neighbour.

    A sequence may still match two candidates that differ by two substitutions.

    Parameters
    ----------
    ranked
        Matches that candidates may have, best first.
    neighbours
        Neighbours of each candidate.
    matches
        Match of each candidate, (J,): `NO_MATCH` at first, changed in place.
    """
    for i in range(len(ranked.candidates)):
        candidate, match = ranked.candidates[i], ranked.matches[i]
        if matches[candidate] == NO_MATCH and not _overlaps_neighbour(candidate, match, neighbours, matches):
            matches[candidate] = match


@njit(nogil=True)
def _overlaps_neighbour(candidate: int, match: int, neighbours: CandidateNeighbours, matches: Integers) -> bool:
    """Return whether a sequence could count both for a candidate with this match, and for a retrieved neighbour."""
    for i in range(neighbours.offsets[candidate], neighbours.offsets[candidate + 1]):
        neighbour_match = matches[neighbours.candidates[i]]
        if neighbour_match == ONE_SUBSTITUTION or (match == ONE_SUBSTITUTION and neighbour_match == EXACT):
            return True
    return False


@njit(nogil=True)
def _sum_by_fold(
    carried: CarriedCandidates, unit_by_unit: Integers, repertoires: FoldedRepertoires, sums: CarrierSums
) -> None:
    """Add each candidate that a repertoire carries to the sums; each unit counts once for a candidate and match.

    `unit_by_unit` has the indices of the D repertoires, those of one unit next to each other.
    """
    last_unit = np.full(sums.label_sums.shape[:2], -1, np.int64)  # last unit that counted, by match and candidate
    for d in unit_by_unit:
        fold, unit = repertoires.fold[d], repertoires.unit[d]
        for i in range(carried.starts[d], carried.stops[d]):
            candidate = carried.candidates[i]
            for match in (EXACT, ONE_SUBSTITUTION):
                # who carries the candidate itself is also a carrier with one substitution
                is_carrier = carried.is_exact[i] or match == ONE_SUBSTITUTION
                if is_carrier and last_unit[match, candidate] != unit:
                    last_unit[match, candidate] = unit
                    sums.label_sums[match, candidate, fold] += repertoires.label_sum[unit]
                    sums.n_carriers[match, candidate, fold] += repertoires.weight[unit]
                    sums.n_different[match, candidate, fold] += 1


@njit(nogil=True)
def _count_candidates(
    carried: CarriedCandidates, repertoires: Integers, matches: Integers, n_passed: Integers, counts: Integers
) -> None:
    """Count the retrieved candidates of some repertoires by the strictest threshold that each candidate passes.

    Parameters
    ----------
    carried
        Candidates that each repertoire carries.
    repertoires
        Indices of the repertoires among the D.
    matches, n_passed
        Match of each candidate, and number of thresholds that it passes, (J,) each.
    counts
        Counts, (D, T), to which these are added.
    """
    for d in repertoires:
        for i in range(carried.starts[d], carried.stops[d]):
            candidate = carried.candidates[i]
            is_carrier = carried.is_exact[i] or matches[candidate] == ONE_SUBSTITUTION
            if is_carrier and n_passed[candidate] > 0:
                counts[d, n_passed[candidate] - 1] += 1
