"""Fit of the branch `clones` to training repertoires: the choice of clones, of their match, and of their evidence.

Each search is one direction of one output, see `clones_searches`. An alternative for it is a threshold of the p-value,
with exact matches of all shared clones, also with one substitution, with exact matches of overshared clones alone, or
with wildcard clones. The alternative with the smallest loss on held-out repertoires is chosen, see
`find_best_alternative`; clones and their evidence are then determined without the held-out fold. For the scores of each
fold, and the decrease of its loss by them, the alternative is chosen by the losses of the other folds. But these losses
depend on the labels of this fold, too, and so does the permutation test that can make the choice of overshared clones
easier. So cross-fitted scores of small cohorts are a little too good.

Letters: B repertoires, n of them with a label; A alternatives, T outputs, F folds, J clones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from deeprc.arrays import Floats, Integers
from deeprc.baselines.association_tests import adjust_by_benjamini_hochberg
from deeprc.baselines.carrier_counts import AssociatedClones, find_associated_clones
from deeprc.baselines.cross_fitted_clone_counts import count_clones_out_of_fold
from deeprc.branches.clone_permutations import exceeds_permutations
from deeprc.branches.clones import CloneBranch, Memory
from deeprc.branches.clones_alternatives import (
    ALTERNATIVES,
    LENIENT_THRESHOLDS,
    THRESHOLDS_BY_KIND,
    Alternative,
    HeldOutLosses,
    find_best_alternative,
)
from deeprc.branches.clones_candidates import CloneCandidates, compute_content_order, find_candidates
from deeprc.branches.clones_evidence import compute_held_out_evidence, compute_loss, fit_evidence
from deeprc.branches.clones_matches import (
    ChosenMatches,
    SearchCandidates,
    choose_final_matches,
    count_held_out_matches,
)
from deeprc.branches.clones_searches import CloneSearch, list_searches
from deeprc.branches.cohort import FittedBranch, TrainingCohort
from deeprc.branches.donors import compute_association_z, renumber_donors
from deeprc.branches.overshared_clones import OversharedClones, compute_clone_probabilities, find_overshared_clones
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.grouping import CloneCarriers, SharedClones
from deeprc.datasets.clones.neighbours import EXACT, WILDCARD
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.clones.wildcards import MAX_SEQUENCES, WildcardClones, find_wildcard_clones

__all__ = ["fit_clones"]

_logger = logging.getLogger(__name__)

_MIN_Z = 3.0
"""Smallest z-score of the association of scores with labels.

Without a signal, one cohort in ten exceeds it, not one in a thousand as for a normal distribution, because held-out
folds share clones."""

_SCALES = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Scales of scores that are tried to compute the decrease of a loss.

Scores of small cohorts are overconfident, and the network learns their scale."""


@dataclass(frozen=True)
class _CohortClones:
    """The clones of the training repertoires.

    Attributes
    ----------
    shared
        Clones that repertoires of the container share.
    probabilities
        Probability of the junction of each of them.
    candidates
        Clones for which sequences with one substitution may count.
    fields
        Gene fields that are part of a clone.
    """

    shared: SharedClones
    probabilities: Floats
    candidates: CloneCandidates
    fields: Sequence[str]


@dataclass(frozen=True)
class _SearchResult:
    """The result of a search: the alternative that is chosen on all folds, and scores of held-out repertoires.

    Attributes
    ----------
    search
        The search.
    alternative
        Alternative that is chosen on all folds.
    parameters
        Parameters of its evidence, from all folds, (4,).
    final_matches
        Matches of the candidates that are chosen on all folds.
    tested
        Clones that this alternative tests.
    scores
        Evidence for each repertoire by the alternative that is chosen on the other folds, (n,).
    baseline_outputs
        Prediction for each repertoire without evidence, (n,), see `HeldOutEvidence`.
    """

    search: CloneSearch
    alternative: Alternative
    parameters: Floats
    final_matches: ChosenMatches
    tested: CloneCarriers
    scores: Floats
    baseline_outputs: Floats

    def is_useful(self) -> bool:
        """Return whether the associated clones are evidence for the label of repertoires that they were not chosen on.

        Either cross-fitted scores are associated with the labels, by the z-score of Spearman's correlation, or there
        are more associated clones than with permuted labels. Repertoires of one donor are not independent, see
        `compute_association_z`.
        """
        if _compute_loss_decrease([self]) <= 0 or not self.parameters.any():
            return False
        scores, values = rankdata(self.scores), rankdata(self.search.values)
        z = compute_association_z(scores, values, self.search.groups)
        thresholds = THRESHOLDS_BY_KIND[self.alternative.clones]
        return z > _MIN_Z or exceeds_permutations(self.tested, self.search, thresholds)


def fit_clones(cohort: TrainingCohort) -> FittedBranch | None:
    """Fit the branch `clones`; return None if it does not predict held-out repertoires."""
    searches = list_searches(cohort)
    if not searches:
        return None
    fields = cohort.dataset.gene_fields
    shared = find_shared_clones(cohort.dataset, fields)
    n_clones = shared.count_by_repertoire()[cohort.dataset.repertoire_indices]
    candidates = find_candidates(cohort.dataset, shared, searches, fields)
    clones = _CohortClones(shared, compute_clone_probabilities(shared, cohort.dataset), candidates, fields)
    each_search = zip(searches, candidates.levels, _find_special_clones(searches, clones), strict=True)
    results = [
        _run_search(SearchCandidates.of(candidates, search, levels), clones, special, n_clones[search.rows])
        for search, levels, special in each_search
    ]
    kept = _select_results(results)
    memories = [_make_memory(result, clones) for result in kept]
    kept_pairs = [(memory, result) for memory, result in zip(memories, kept, strict=True) if memory is not None]
    if not kept_pairs:
        return None
    branch = CloneBranch.of([memory for memory, _ in kept_pairs], sum(task.n_outputs for task in cohort.tasks))
    return FittedBranch(branch, *_score_cohort(cohort, branch, [result for _, result in kept_pairs]))


class _SpecialClones(NamedTuple):
    """The overshared clones of a search, and its wildcard clones; None if there are too many sequences for these."""

    overshared: OversharedClones
    wildcards: WildcardClones | None


def _find_special_clones(searches: Sequence[CloneSearch], clones: _CohortClones) -> Iterator[_SpecialClones]:
    """Yield the special clones of each search.

    Searches with the same repertoires have the same ones. Only those of one search are in memory at a time.
    """
    special, rows = None, np.zeros(0, np.int64)
    for search in searches:
        if special is None or not np.array_equal(search.rows, rows):
            overshared = find_overshared_clones(clones.shared, clones.probabilities, search.dataset, search.groups)
            special, rows = _SpecialClones(overshared, find_wildcard_clones(search.dataset, clones.fields)), search.rows
            if special.wildcards is None:
                _logger.info(
                    "Clones with a wildcard are not looked for: the training repertoires have more than %s sequences.",
                    f"{MAX_SEQUENCES:,}",
                )
        yield special


def _run_search(
    candidates: SearchCandidates, clones: _CohortClones, special: _SpecialClones, n_clones: Integers
) -> _SearchResult:
    """Choose the alternative of a search, and score each repertoire by the one that is chosen without its fold.

    `n_clones` is the number of different clones in each repertoire, (n,).
    """
    search = candidates.search
    overshared, wildcards = special
    counts = _count_by_alternative(candidates, clones.shared, overshared.without_any_carrier, wildcards)
    held_out = compute_held_out_evidence(search.kind, search.direction, counts, n_clones, search.values, search.folds)
    losses = HeldOutLosses(
        compute_loss(search.kind, held_out.baseline_outputs + held_out.scores, search.values),
        compute_loss(search.kind, held_out.baseline_outputs, search.values),
        renumber_donors(search.groups, len(n_clones)),
    )
    choose = partial(
        find_best_alternative,
        overshared_are_associated=exceeds_permutations(overshared.all, search, LENIENT_THRESHOLDS),
    )
    scores = np.zeros(len(n_clones))
    for fold in range(search.n_folds):
        is_held_out = search.folds == fold
        scores[is_held_out] = held_out.scores[choose(losses.take(~is_held_out)), is_held_out]
    best = choose(losses)
    alternative = ALTERNATIVES[best]
    tested: CloneCarriers = overshared.all if alternative.clones == "overshared" else clones.shared
    if alternative.clones == "wildcard" and wildcards is not None:
        tested = wildcards
    return _SearchResult(
        search=search,
        alternative=alternative,
        parameters=fit_evidence(search.kind, search.direction, counts[best, :, -1], n_clones, search.values),
        final_matches=choose_final_matches(candidates),
        tested=tested,
        scores=scores,
        baseline_outputs=held_out.baseline_outputs,
    )


def _count_by_alternative(
    candidates: SearchCandidates, shared: SharedClones, overshared: CloneCarriers, wildcards: WildcardClones | None
) -> Integers:
    """Return the number of associated clones in each repertoire, (A, n, F + 1).

    The alternatives are those of `ALTERNATIVES`; those with wildcard clones are missing if there are none. The last
    axis is the fold that is held out, as in `count_clones_out_of_fold`.
    """
    search = candidates.search
    by_kind = [
        _count_out_of_fold(shared, search, THRESHOLDS_BY_KIND["exact"]),
        count_held_out_matches(candidates, THRESHOLDS_BY_KIND["one substitution"]),
        _count_out_of_fold(overshared, search, THRESHOLDS_BY_KIND["overshared"]),
    ]
    if wildcards is not None:
        by_kind.append(_count_out_of_fold(wildcards, search, THRESHOLDS_BY_KIND["wildcard"], wildcards.residues))
    return np.concatenate([by_threshold[::-1] for by_threshold in by_kind])


def _count_out_of_fold(
    clones: CloneCarriers, search: CloneSearch, thresholds: Sequence[float], forms: NDArray[np.uint32] | None = None
) -> Integers:
    """Return the result of `count_clones_out_of_fold` for the data and the test of a search."""
    data = search.dataset, search.units, search.folds
    return count_clones_out_of_fold(clones, *data, np.array(thresholds), test=search.test, forms=forms)


def _select_results(results: Sequence[_SearchResult]) -> list[_SearchResult]:
    """Return the results that predict held-out repertoires.

    Both directions of an output are kept only if they are better together than either alone.
    """
    kept: list[_SearchResult] = []
    for _, group in groupby(results, key=lambda result: result.search.output):
        useful = [result for result in group if result.is_useful()]
        if len(useful) > 1:
            useful = max(([useful[0]], [useful[1]], useful), key=_compute_loss_decrease)
        kept += useful
    return kept


def _compute_loss_decrease(results: Sequence[_SearchResult]) -> float:
    """Return the decrease of the mean loss by the summed scores of one output's directions, at their best scale."""
    search, baseline_outputs = results[0].search, results[0].baseline_outputs
    total = _sum_scores(results) * search.sign
    outputs = baseline_outputs + np.array([0.0, *_SCALES])[:, None] * total
    losses = compute_loss(search.kind, outputs, search.values).mean(axis=1)
    return float(losses[0] - losses.min())


def _sum_scores(results: Sequence[_SearchResult]) -> Floats:
    """Return the scores of one output, summed over its directions, (n,)."""
    return np.asarray(sum(result.search.sign * result.scores for result in results))


class _ChosenClones(NamedTuple):
    """The J clones of a memory, with the match, the p-value, and the label sum and number of carriers of each, (J,)."""

    clones: CloneSet
    matches: Integers
    p_values: Floats
    label_sums: Integers
    n_carriers: Integers

    def take(self, rows: Integers) -> _ChosenClones:
        """Return some of the clones, by their rows."""
        columns = self.matches[rows], self.p_values[rows], self.label_sums[rows], self.n_carriers[rows]
        return _ChosenClones(self.clones.take(rows), *columns)


def _make_memory(result: _SearchResult, clones: _CohortClones) -> Memory | None:
    """Return the memory of the alternative that is best on all folds; None if it has no clones."""
    search, threshold = result.search, result.alternative.threshold
    associated = find_associated_clones(result.tested, search.units, threshold, search.test)
    if result.alternative.clones == "one substitution":
        chosen = _choose_candidates(result.final_matches, clones.candidates, threshold)
    else:
        chosen = _choose_associated(result, clones, associated)
    if len(chosen.clones) == 0:
        return None
    chosen = chosen.take(compute_content_order(chosen.clones, chosen.matches))
    chosen = chosen.take(np.argsort(chosen.p_values, kind="stable"))
    q_values = adjust_by_benjamini_hochberg(chosen.p_values, associated.n_tested)
    return Memory(
        output=search.output,
        direction=search.direction,
        kind=search.kind,
        parameters=result.parameters,
        clones=chosen.clones,
        matches=chosen.matches,
        carriers=_count_carriers_by_class(search, chosen.label_sums, chosen.n_carriers),
        tests=np.stack([chosen.p_values, q_values], axis=1),
    )


def _choose_associated(result: _SearchResult, clones: _CohortClones, associated: AssociatedClones) -> _ChosenClones:
    """Return the associated clones, which are matched exactly or, if they have a wildcard, at all other positions."""
    rows = result.tested.representative[associated.indices]
    chosen = CloneSet(result.search.dataset.take_clones(rows, clones.fields))
    matches = np.full(len(chosen), EXACT)
    if isinstance(result.tested, WildcardClones):
        matches = WILDCARD + result.tested.positions[associated.indices]
    return _ChosenClones(chosen, matches, associated.p_values, associated.label_sums, associated.n_carriers)


def _choose_candidates(final: ChosenMatches, candidates: CloneCandidates, threshold: float) -> _ChosenClones:
    """Return the candidates that are associated with their match, which is exact or with one substitution."""
    return _ChosenClones(candidates.clones, *final).take(np.flatnonzero(final.p_values < threshold))


def _count_carriers_by_class(search: CloneSearch, label_sums: Integers, n_carriers: Integers) -> Integers:
    """Return the numbers of positive and negative carriers; for numbers, all carriers and 0, (J, 2)."""
    if search.kind == "rate":
        return np.stack([n_carriers, np.zeros_like(n_carriers)], axis=1)
    positive = label_sums if search.direction == "up" else n_carriers - label_sums
    return np.stack([positive, n_carriers - positive], axis=1)


def _score_cohort(
    cohort: TrainingCohort, branch: CloneBranch, results: Sequence[_SearchResult]
) -> tuple[Floats, Floats]:
    """Return the cross-fitted scores, (B, T), and the decrease of the loss of each output by them, (T,).

    The branch has not learned from repertoires without a label, so these get the scores of the branch itself.
    """
    shape = len(cohort.dataset), branch.n_outputs
    scores, is_known, loss_decreases = np.zeros(shape), np.ones(shape, bool), np.zeros(shape[1])
    for output, group in groupby(results, key=lambda result: result.search.output):
        directions = list(group)
        rows = directions[0].search.rows
        is_known[:, output] = False
        is_known[rows, output] = True
        scores[rows, output] = _sum_scores(directions)
        loss_decreases[output] = _compute_loss_decrease(directions)
    for position in np.flatnonzero(~is_known.all(axis=1)).tolist():
        final_score = branch.score(cohort.dataset[position])
        scores[position] = np.where(is_known[position], scores[position], final_score)
    return scores, loss_decreases
