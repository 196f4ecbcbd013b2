"""Fit of the branch `clones` to training repertoires: the choice of clones, of their match, and of their evidence.

Each search is one direction of one output, see `clones_searches`. An alternative for it is a threshold of the p-value,
with exact matches of all shared clones, also with one substitution, with exact matches of overshared or frequent clones
alone, with wildcard clones, clusters, similar clones, or expanded clones. The score is a mean over the alternatives,
weighted by their losses on held-out repertoires, see `weigh_alternatives`; clones and their evidence are then
determined without the held-out fold. For the scores of each fold, and the decrease of its loss by them, the weights
depend on the losses of the other folds. But these losses depend on the labels of this fold, too. So cross-fitted scores
of small cohorts are a little too good.

Letters: B repertoires, n of them with a label; A alternatives, T outputs, F folds, J clones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.baselines.association_tests import adjust_by_benjamini_hochberg
from deeprc.baselines.carrier_counts import AssociatedClones, find_associated_clones
from deeprc.baselines.cross_fitted_clone_counts import count_clones_out_of_fold
from deeprc.branches.clone_permutations import exceeds_permutations
from deeprc.branches.clones import CloneBranch
from deeprc.branches.clones_alternatives import (
    ALTERNATIVES,
    LENIENT_THRESHOLDS,
    THRESHOLDS_BY_KIND,
    HeldOutLosses,
    find_best_alternative,
    weigh_alternatives,
)
from deeprc.branches.clones_candidates import CloneCandidates, compute_content_order, find_candidates
from deeprc.branches.clones_evidence import EvidenceLevel, compute_held_out_evidence, compute_loss, fit_evidence
from deeprc.branches.clones_matches import (
    ChosenMatches,
    SearchCandidates,
    choose_final_matches,
    count_held_out_matches,
)
from deeprc.branches.clones_memory import CLUSTER, EXPANDED, MAX_SIMILAR, Memory, find_first_of_cluster
from deeprc.branches.clones_results import SearchResult, compute_loss_decrease, select_results, sum_scores
from deeprc.branches.clones_searches import CloneSearch, list_searches
from deeprc.branches.cohort import FittedBranch, TrainingCohort
from deeprc.branches.donors import renumber_donors
from deeprc.branches.overshared_clones import compute_clone_probabilities
from deeprc.branches.special_clones import SpecialClones, find_special_clones
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.clusters import CloneClusters
from deeprc.datasets.clones.expanded import ExpandedClones
from deeprc.datasets.clones.grouping import CloneCarriers, SharedClones
from deeprc.datasets.clones.neighbours import EXACT, SUBSTITUTIONS, WILDCARD
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.clones.similar import SimilarClones
from deeprc.datasets.clones.wildcards import WildcardClones
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["fit_clones"]

_MAX_STORED = 200_000  # largest number of clones of a memory


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


def fit_clones(cohort: TrainingCohort) -> FittedBranch | None:
    """Fit the branch `clones`; return None if it does not predict held-out repertoires.

    If the evidence is not clear for any output, the branch is doubtful.
    """
    searches = list_searches(cohort)
    if not searches:
        return None
    fields = cohort.dataset.gene_fields
    shared = find_shared_clones(cohort.dataset, fields)
    candidates = find_candidates(cohort.dataset, shared, searches, fields)
    clones = _CohortClones(shared, compute_clone_probabilities(shared, cohort.dataset), candidates, fields)
    each_search = zip(
        searches, candidates.levels, find_special_clones(searches, shared, clones.probabilities, fields), strict=True
    )
    results = [
        _run_search(SearchCandidates.of(candidates, search, levels), clones, special)
        for search, levels, special in each_search
    ]
    kept, is_doubtful = select_results(results)
    if not kept:
        return None
    n_outputs = sum(task.n_outputs for task in cohort.tasks)
    memories = [memory for result in kept for memory in result.memories]
    branch = CloneBranch.of(memories, n_outputs, is_doubtful=is_doubtful)
    return FittedBranch(branch, *_score_cohort(cohort, branch, kept))


def _run_search(candidates: SearchCandidates, clones: _CohortClones, special: SpecialClones) -> SearchResult:
    """Weigh the alternatives of a search, and score each repertoire by weights that depend on the other folds."""
    search = candidates.search
    n_clones = _count_clones_by_alternative(search, clones.shared, special)
    counts = _count_by_alternative(candidates, clones.shared, special)
    held_out = compute_held_out_evidence(search.kind, search.direction, counts, n_clones, search.values, search.folds)
    losses = HeldOutLosses(
        compute_loss(search.kind, held_out.baseline_outputs + held_out.scores, search.values),
        compute_loss(search.kind, held_out.baseline_outputs, search.values),
        renumber_donors(search.groups, len(search.rows)),
    )
    scores = np.zeros(len(search.rows))
    for fold in range(search.n_folds):
        is_used = search.folds != fold
        weights = weigh_alternatives(losses.by_alternative[:, is_used], search.count_units_among(is_used))
        scores[~is_used] = weights @ held_out.scores[:, ~is_used]
    weights = weigh_alternatives(losses.by_alternative, search.count_units_among(np.ones(len(scores), np.bool_)))
    memories = [
        _make_memory(candidates, clones, special, kind, levels)
        for kind, levels in _fit_levels(search, weights, counts[:, :, -1], n_clones).items()
    ]
    overshared_are_associated = exceeds_permutations(special.overshared.all, search, LENIENT_THRESHOLDS)
    best = ALTERNATIVES[find_best_alternative(losses, overshared_are_associated=overshared_are_associated)]
    tested = special.find(best.clones)
    return SearchResult(
        search=search,
        memories=[memory for memory in memories if memory is not None],
        best=best.clones,
        tested=clones.shared if tested is None else tested,
        scores=scores,
        baseline_outputs=held_out.baseline_outputs,
    )


def _fit_levels(
    search: CloneSearch, weights: Floats, counts: Integers, n_clones: Integers
) -> dict[str, list[EvidenceLevel]]:
    """Return the levels of the alternatives with a weight, by the kind of their clones, the loosest level first.

    Alternatives without evidence have no level.

    Parameters
    ----------
    search
        The search.
    weights
        Weights of the alternatives, (A,).
    counts
        Number of associated clones in each repertoire, by alternative, (A, n).
    n_clones
        Number of clones in each repertoire among which these are, by alternative, (A, n).
    """
    levels: dict[str, list[EvidenceLevel]] = {}
    for index in np.flatnonzero(weights)[::-1].tolist():
        parameters = fit_evidence(search.kind, search.direction, counts[index], n_clones[index], search.values)
        if parameters.any():
            clones, threshold = ALTERNATIVES[index]
            levels.setdefault(clones, []).append(EvidenceLevel(threshold, float(weights[index]), parameters))
    return levels


def _count_by_alternative(candidates: SearchCandidates, shared: SharedClones, special: SpecialClones) -> Integers:
    """Return the number of associated clones in each repertoire, (A, n, F + 1).

    The alternatives are those of `ALTERNATIVES`. The numbers are 0 if clones of a kind were not looked for. The last
    axis is the fold that is held out, as in `count_clones_out_of_fold`.
    """
    search = candidates.search
    by_kind = [
        _count_out_of_fold(shared, search, THRESHOLDS_BY_KIND["exact"]),
        count_held_out_matches(candidates, THRESHOLDS_BY_KIND["one substitution"]),
    ]
    for kind, clones in special.list_often_shared().items():
        by_kind.append(_count_out_of_fold(clones.without_any_carrier, search, THRESHOLDS_BY_KIND[kind]))
    for kind, others in special.list_others().items():
        forms = others.residues if isinstance(others, WildcardClones) else None
        thresholds = THRESHOLDS_BY_KIND[kind]
        if others is None:
            by_kind.append(np.zeros((len(thresholds), *by_kind[0].shape[1:]), np.int64))
        else:
            by_kind.append(_count_out_of_fold(others, search, thresholds, forms))
    return np.concatenate([by_threshold[::-1] for by_threshold in by_kind])


def _count_clones_by_alternative(search: CloneSearch, shared: SharedClones, special: SpecialClones) -> Integers:
    """Return the number of clones in each repertoire among which associated ones are counted, (A, n).

    These are its different clones or, for expanded clones, its expanded sequences.
    """
    indices = search.dataset.repertoire_indices
    n_clones, n_expanded = shared.count_by_repertoire()[indices], special.expanded.n_expanded[indices]
    return np.stack([n_expanded if each.clones == "expanded" else n_clones for each in ALTERNATIVES])


def _count_out_of_fold(
    clones: CloneCarriers, search: CloneSearch, thresholds: Sequence[float], forms: NDArray[np.uint32] | None = None
) -> Integers:
    """Return the result of `count_clones_out_of_fold` for the data and the test of a search."""
    data = search.dataset, search.units, search.folds
    return count_clones_out_of_fold(clones, *data, np.array(thresholds), test=search.test, forms=forms)


class _ChosenClones(NamedTuple):
    """The J clones of a memory.

    Attributes
    ----------
    clones
        The clones.
    matches
        Match of each, see `Memory`, (J,).
    p_values, q_values, label_sums, n_carriers
        P-value and q-value of each clone or of its cluster, and label sum and number of its carriers, (J,) each.
    """

    clones: CloneSet
    matches: Integers
    p_values: Floats
    q_values: Floats
    label_sums: Integers
    n_carriers: Integers

    def take(self, rows: Integers) -> _ChosenClones:
        """Return some of the clones, by their rows."""
        matches, label_sums, n_carriers = (column[rows] for column in (self.matches, self.label_sums, self.n_carriers))
        p_values, q_values = self.p_values[rows], self.q_values[rows]
        return _ChosenClones(self.clones.take(rows), matches, p_values, q_values, label_sums, n_carriers)

    def sort(self) -> _ChosenClones:
        """Return the clones in the order of their p-values, with the members of a cluster together.

        The result does not depend on the present order, so clusters get new numbers.
        """
        chosen = self.take(compute_content_order(self.clones, self.matches.clip(max=CLUSTER)))
        chosen = chosen.take(np.lexsort((find_first_of_cluster(chosen.matches), chosen.p_values)))
        matches, is_member = chosen.matches.copy(), chosen.matches >= CLUSTER
        _, cluster = np.unique(find_first_of_cluster(matches)[is_member], return_inverse=True)
        matches[is_member] = CLUSTER + cluster.ravel()
        return chosen._replace(matches=matches)


def _make_memory(
    candidates: SearchCandidates,
    clones: _CohortClones,
    special: SpecialClones,
    kind: str,
    levels: Sequence[EvidenceLevel],
) -> Memory | None:
    """Return the memory of one kind of clones, with those that pass the loosest level; None if there are none.

    Levels that too many clones pass are left out. If all are so, the last one stays; but not that of similar clones,
    because the search for so many would hardly end.
    """
    search, tested = candidates.search, special.find(kind)
    tested = clones.shared if tested is None else tested
    loosest = levels[0].threshold
    associated = find_associated_clones(tested, search.units, loosest, search.test)
    limit, fewest = (MAX_SIMILAR, []) if isinstance(tested, SimilarClones) else (_MAX_STORED, levels[-1:])
    n_passing = [int((associated.p_values < level.threshold).sum()) for level in levels]
    levels = [level for level, n in zip(levels, n_passing, strict=True) if n <= limit] or fewest
    if not levels:
        return None
    threshold = levels[0].threshold
    if threshold < loosest:
        associated = find_associated_clones(tested, search.units, threshold, search.test)
    if kind == "one substitution":
        matches = choose_final_matches(candidates)
        chosen = _choose_candidates(matches, clones.candidates, threshold, associated.n_tested)
    else:
        chosen = _choose_associated(search.dataset, tested, associated, clones.fields)
    if len(chosen.clones) == 0:
        return None
    chosen = chosen.sort()
    return Memory(
        output=search.output,
        direction=search.direction,
        kind=search.kind,
        levels=levels,
        clones=chosen.clones,
        matches=chosen.matches,
        carriers=_count_carriers_by_class(search, chosen.label_sums, chosen.n_carriers),
        tests=np.stack([chosen.p_values, chosen.q_values], axis=1),
    )


def _choose_associated(
    dataset: RepertoireDataset, tested: CloneCarriers, associated: AssociatedClones, fields: Sequence[str]
) -> _ChosenClones:
    """Return the associated clones, with all members of clusters.

    They are matched exactly, also if they must be expanded. With a wildcard, they are matched at all other positions.
    Similar clones are matched with several substitutions.
    """
    indices = associated.indices
    rows, matches, index_of = tested.representative[indices], np.full(len(indices), EXACT), np.arange(len(indices))
    if isinstance(tested, WildcardClones):
        matches = WILDCARD + tested.positions[indices]
    elif isinstance(tested, SimilarClones):
        matches = SUBSTITUTIONS + tested.max_mismatches[indices]
    elif isinstance(tested, ExpandedClones):
        matches = np.full(len(indices), EXPANDED)
    elif isinstance(tested, CloneClusters):
        rows, index_of = tested.list_members(indices)
        matches = CLUSTER + index_of
    q_values = adjust_by_benjamini_hochberg(associated.p_values, associated.n_tested)
    return _ChosenClones(
        clones=CloneSet(dataset.take_clones(rows, fields)),
        matches=matches,
        p_values=associated.p_values[index_of],
        q_values=q_values[index_of],
        label_sums=associated.label_sums[index_of],
        n_carriers=associated.n_carriers[index_of],
    )


def _choose_candidates(
    final: ChosenMatches, candidates: CloneCandidates, threshold: float, n_tested: int
) -> _ChosenClones:
    """Return the candidates that are associated with their match, which is exact or with one substitution."""
    rows = np.flatnonzero(final.p_values < threshold)
    return _ChosenClones(
        clones=candidates.clones.take(rows),
        matches=final.matches[rows],
        p_values=final.p_values[rows],
        q_values=adjust_by_benjamini_hochberg(final.p_values[rows], n_tested),
        label_sums=final.label_sums[rows],
        n_carriers=final.n_carriers[rows],
    )


def _count_carriers_by_class(search: CloneSearch, label_sums: Integers, n_carriers: Integers) -> Integers:
    """Return the numbers of positive and negative carriers; for numbers, all carriers and 0, (J, 2)."""
    if search.kind == "rate":
        return np.stack([n_carriers, np.zeros_like(n_carriers)], axis=1)
    positive = label_sums if search.direction == "up" else n_carriers - label_sums
    return np.stack([positive, n_carriers - positive], axis=1)


def _score_cohort(
    cohort: TrainingCohort, branch: CloneBranch, results: Sequence[SearchResult]
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
        scores[rows, output] = sum_scores(directions)
        loss_decreases[output] = compute_loss_decrease(directions)
    for position in np.flatnonzero(~is_known.all(axis=1)).tolist():
        final_score = branch.score(cohort.dataset[position])
        scores[position] = np.where(is_known[position], scores[position], final_score)
    return scores, loss_decreases
