"""Rank the sequences of a training cohort by how much a trained method associates them with the positive label.

The score of a sequence says how much it speaks for the positive class. For DeepRC it is the response, see
`deeprc.nn.contributions`, which, unlike the contribution, does not depend on the other sequences of the repertoire. For
a logistic regression it is the sum of the coefficients of the k-mers and genes. For public clones it is minus the
logarithm of the p-value. If several repertoires have a sequence, its highest score counts. Sequences that no positive
repertoire has come last: implanted or selected sequences are in positive repertoires only, and half of those that
resemble them by chance are not.

If DeepRC reads the composition, too, a second list has the sequences by the weights of their k-mers. If it stores
clones, a third list has the sequences that match them, and a fourth one all clones by their p-values, also those that
are not associated enough to be stored. Scores of different lists cannot be compared, but their **excess**
can: the share of the sequences with such a score that chance does not explain, see `deeprc.evaluation.excess`. The
attention list holds sequences of several motifs. So its excess is measured among the sequences with the same strongest
kernel, see `deeprc.airr_ml.feature_groups`.

A network is partly overfitted to its training repertoires, so its excess there is too high. Therefore the excess of a
list of DeepRC is multiplied by the share that other repertoires confirm. If the network stores clones, public
clones do not take part in this: they are in the list of clones, and say nothing about other sequences with their
motif. The excess of a logistic regression is 1. A sequence counts by its highest excess. A stack merges the lists of
its members by rank, share and excess. The list of the composition ignores how diverse the counts are, and the weights
of genes, because thousands of junctions have the same gene.

Letters: B repertoires, n sequences of a container.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.airr_ml.best_sequences import BestSequences
from deeprc.airr_ml.feature_groups import compute_excess_in_groups, find_strongest_features
from deeprc.airr_ml.ranked_cohort import RankedCohort, RankedSequences, make_ranking
from deeprc.airr_ml.sequence_scores import compute_sequence_scores, stores_clones
from deeprc.arrays import Floats, Integers, find_first_occurrences
from deeprc.baselines.gapped import GappedKmerLogisticRegression
from deeprc.baselines.logistic import LogisticRegression
from deeprc.baselines.public_clones import PublicClones
from deeprc.branches.clones import CloneBranch
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import RepertoireClassifier
from deeprc.evaluation.excess import compute_excess_shares, estimate_confirmed_share, interpolate_excess
from deeprc.nn.sequence_scores import ATTENTION
from deeprc.progress import track
from deeprc.stacking import Stack
from deeprc.stacking.members import Member
from deeprc.training.estimator import DeepRCClassifier

__all__ = ["can_rank", "rank_sequences"]

_RANKERS = (DeepRCClassifier, LogisticRegression, GappedKmerLogisticRegression, PublicClones)
_RANK_CONSTANT = 60  # constant of reciprocal ranks (Cormack et al. 2009)
_LEAST_EXCESS = 1e-6  # smallest excess of a vote, so that sequences without excess keep the order of their ranks


class _RankedEntries(NamedTuple):
    """The sequences of several rankings, one ranking after the other; a sequence may be in several.

    Attributes
    ----------
    indices, hashes
        See `BestSequences`.
    excess, evidence
        See `RankedSequences`.
    """

    indices: Integers
    hashes: NDArray[np.uint64]
    excess: Floats
    evidence: NDArray[np.str_]

    @classmethod
    def concatenate(cls, rankings: Sequence[RankedSequences]) -> _RankedEntries:
        """Return the sequences of these rankings, at least one."""
        return cls(
            np.concatenate([ranking.best.indices for ranking in rankings]),
            np.concatenate([ranking.best.hashes for ranking in rankings]),
            np.concatenate([ranking.excess for ranking in rankings]),
            np.concatenate([ranking.evidence for ranking in rankings]),
        )


class _WeightedRanking(NamedTuple):
    """The ranking by one model, the name of its member in a stack, and its share of the votes."""

    name: str
    ranking: RankedSequences
    share: float


def rank_sequences(
    estimator: RepertoireClassifier | Sequence[RepertoireClassifier],
    X: RepertoireDataset,
    y: NDArray[np.bool_],
    max_sequences: int,
    *,
    groups: Integers | None = None,
) -> pd.DataFrame:
    """Return the sequences most associated with the positive label, the best first; each with its genes occurs once.

    A stack adds up the reciprocal ranks of a sequence in the lists of its members, 1 / (60 + rank) (Cormack et al.
    2009), each times the member's share of the stack and the sequence's excess in the list. Several estimators that
    predict together, such as the networks of different folds, do the same with equal shares. Memory grows with
    `max_sequences`, with the largest repertoire and with the number of clones of several donors.

    Parameters
    ----------
    estimator
        Fitted to X and y: a `DeepRCClassifier`, `LogisticRegression` of 4-mers, `GappedKmerLogisticRegression`,
        `PublicClones`, or a `Stack` with one of them; or several of one kind, but no stacks.
    X, y
        Repertoires of a container, (B,), and whether each is positive, (B,).
    max_sequences
        Largest number of sequences.
    groups
        Index of the donor of each repertoire, (B,); clones are tested on donors. None: each repertoire has its own
        donor.

    Returns
    -------
    A table with `junction_aa`, and `v_call` and `j_call` if the container has them; it has fewer rows if X has fewer
    sequences. Then `method`, the member of a stack that counts most for the sequence (empty without a stack);
    `evidence`, the list of this member that has the sequence: a name of `compute_sequence_scores`, or `association`,
    the p-value of a clone; and `excess`, that of the sequence in this list.

    Raises
    ------
    InputError
        If no member of a stack ranks sequences.
    """
    cohort = RankedCohort(X, y, max_sequences, groups)
    if isinstance(estimator, Stack):
        ranking, methods = _rank_by_members(_list_rankers(estimator), cohort)
    elif isinstance(estimator, Sequence):
        ranking, methods = _rank_by_members([(Member("", estimator), 1.0)], cohort)
    else:
        ranking = _rank_by_estimator(estimator, cohort)
        methods = np.full(len(ranking.best), "")
    table = CloneSet(X.take_clones(ranking.best.indices, X.gene_fields)).to_frame()
    return table.assign(method=methods, evidence=ranking.evidence, excess=ranking.excess)


def can_rank(estimator: object) -> bool:
    """Return whether `rank_sequences` can rank by what an estimator has learned."""
    return isinstance(estimator, (Stack, *_RANKERS))


def _list_rankers(stack: Stack) -> list[tuple[Member, float]]:
    """Return the members of a stack that rank sequences, with their shares."""
    rankers = [(member, max(share, 0.0)) for member, share in stack.shares() if isinstance(member.models[0], _RANKERS)]
    if not rankers:
        raise InputError(f"members: expected one that ranks sequences, found {', '.join(stack.member_names_)}")
    if not any(share for _, share in rankers):  # the members with a share rank nothing: all rankers count the same
        rankers = [(member, 1.0) for member, _ in rankers]
    return rankers


def _rank_by_members(
    rankers: Sequence[tuple[Member, float]], cohort: RankedCohort
) -> tuple[RankedSequences, NDArray[np.str_]]:
    """Return the ranking of several members with their shares, and the name of the one that counts most, (n,)."""
    weighted = [
        _WeightedRanking(member.name, _rank_by_clones_or_estimator(model, cohort), share / len(member.models))
        for member, share in rankers
        if share
        for model in member.models
    ]
    merged, methods = _add_votes(weighted, cohort)
    if not merged.best.is_full:  # if only public clones have votes, another member ranks the rest
        members = [member for member, _ in rankers]
        other = next((member for member in members if not isinstance(member.models[0], PublicClones)), members[0])
        merged = _append_missing(merged, _rank_by_estimator(other.models[0], cohort))
        methods = np.append(methods, np.full(len(merged.best) - len(methods), other.name))
    return merged, methods


def _rank_by_clones_or_estimator(estimator: RepertoireClassifier, cohort: RankedCohort) -> RankedSequences:
    """Return the ranking by an estimator; that by public clones has only the clones that they compare."""
    if isinstance(estimator, PublicClones):
        return _rank_public_clones(estimator, cohort)
    return _rank_by_estimator(estimator, cohort)


def _add_votes(weighted: Sequence[_WeightedRanking], cohort: RankedCohort) -> tuple[RankedSequences, NDArray[np.str_]]:
    """Return the sequences of several rankings by the sum of their votes.

    Return also the name of the ranking with the highest vote for each sequence, (n,), whose excess and evidence are
    used.
    """
    votes = np.concatenate([_compute_votes(ranking, share) for _, ranking, share in weighted])
    entries = _RankedEntries.concatenate([each.ranking for each in weighted])
    names = np.concatenate([np.full(len(each.ranking.best), each.name) for each in weighted])
    _, first, sequence_of = np.unique(entries.hashes, return_index=True, return_inverse=True)
    totals: Floats = np.bincount(sequence_of, votes, minlength=len(first)).astype(np.float64)
    by_vote = np.lexsort([-votes, sequence_of])  # for each sequence, its highest vote first
    highest = by_vote[np.searchsorted(sequence_of[by_vote], np.arange(len(first)))]
    in_lists = np.argsort(first)  # equal totals stay in the order of the lists
    order = in_lists[np.argsort(-totals[in_lists], kind="stable")][: cohort.max_sequences]
    best = cohort.make_empty_list()
    best.add_candidates(entries.indices[first[order]], totals[order])
    highest = highest[order]
    return RankedSequences(best, entries.excess[highest], entries.evidence[highest]), names[highest]


def _compute_votes(ranking: RankedSequences, share: float) -> Floats:
    """Return the vote of a ranking for each of its sequences, (n,): share times excess times reciprocal rank."""
    ranks = 1 + np.arange(len(ranking.best))
    return np.asarray(share * np.maximum(ranking.excess, _LEAST_EXCESS) / (_RANK_CONSTANT + ranks))


def _append_missing(ranking: RankedSequences, other: RankedSequences) -> RankedSequences:
    """Return a ranking with the sequences that it lacks of another ranking at its end; their excess is 0."""
    n = len(ranking.best)
    evidence_of = dict(zip(other.best.hashes.tolist(), other.evidence.tolist(), strict=True))
    ranking.best.append(other.best)
    added = np.array([evidence_of[sequence_hash] for sequence_hash in ranking.best.hashes[n:].tolist()], np.str_)
    return RankedSequences(
        ranking.best, np.append(ranking.excess, np.zeros(len(added))), np.append(ranking.evidence, added)
    )


def _rank_by_estimator(estimator: RepertoireClassifier, cohort: RankedCohort) -> RankedSequences:
    """Return the best sequences by the lists of an estimator, followed by sequences that are in no list."""
    positive, negative = _find_best_by_scores(estimator, cohort, cohort.y), dict[str, BestSequences]()
    if isinstance(estimator, PublicClones):
        rankings = [_rank_public_clones(estimator, cohort)]
    elif not isinstance(estimator, DeepRCClassifier):
        rankings = [make_ranking(name, best, np.ones(len(best))) for name, best in positive.items()]
    else:
        negative = _find_best_by_scores(estimator, cohort, ~cohort.y)
        rankings = _make_comparable_rankings(estimator, cohort, positive, negative)
    if not negative and not all(best.is_full for best in positive.values()):
        negative = _find_best_by_scores(estimator, cohort, ~cohort.y)
    merged = _merge_rankings(rankings, cohort)
    for name, best in (*positive.items(), *negative.items()):
        merged = _append_missing(merged, make_ranking(name, best, np.zeros(len(best))))
    return merged


def _rank_public_clones(estimator: PublicClones, cohort: RankedCohort) -> RankedSequences:
    """Return the ranking of the clones that an estimator compares."""
    return cohort.clones if estimator.genes else cohort.clones_without_genes


def _make_comparable_rankings(
    estimator: DeepRCClassifier,
    cohort: RankedCohort,
    positive: Mapping[str, BestSequences],
    negative: Mapping[str, BestSequences],
) -> list[RankedSequences]:
    """Return the lists of an estimator with their excess, from the best sequences of both classes by each score."""
    n_sequences = cohort.X.n_sequences
    weight = float(n_sequences[cohort.y].sum() / n_sequences[~cohort.y].sum())
    excess = {name: _compute_excess(best, negative[name], weight) for name, best in positive.items()}
    confirmed = _estimate_confirmed_shares(estimator, cohort, positive, excess)
    attended, null = positive[ATTENTION], negative[ATTENTION]
    excess[ATTENTION] = compute_excess_in_groups(
        attended, null, weight, *find_strongest_features(estimator, cohort.X, attended, null)
    )
    rankings = [make_ranking(name, best, confirmed[name] * excess[name]) for name, best in positive.items()]
    return [*rankings, cohort.clones] if stores_clones(estimator) else rankings


def _compute_excess(best: BestSequences, null: BestSequences, weight: float) -> Floats:
    """Return the excess of sequences of positive repertoires, compared with those of negative ones, (n,)."""
    return compute_excess_shares(best.scores, null.scores, np.full(len(null), weight), lowest_null=null.lowest)


def _estimate_confirmed_shares(
    estimator: DeepRCClassifier, cohort: RankedCohort, lists: Mapping[str, BestSequences], excess: Mapping[str, Floats]
) -> dict[str, float]:
    """Return the share of each list's excess that repertoires confirm from which the estimator has not learned.

    Public clones do not count if the clones of the cohort have a list of their own. Repertoires of one donor with the
    same label count once, by their mean.
    """
    rows, X = cohort.find_held_out(estimator), cohort.X
    if len(rows) == 0:
        return dict.fromkeys(lists, 1.0)
    evidence: dict[str, list[float]] = {name: [] for name in lists}
    clones_have_list = stores_clones(estimator)
    for position in track(rows.tolist(), "confirming lists of sequences", len(rows)):
        first = int(X.container.repertoire_offsets[X.repertoire_indices[position]])
        for name, scores in compute_sequence_scores(estimator, X, position).items():
            sequence_excess = interpolate_excess(scores, lists[name].scores, excess[name])
            candidates = np.flatnonzero(sequence_excess)
            if clones_have_list and name != CloneBranch.name:
                candidates = candidates[~cohort.are_public(first + candidates)]
            evidence[name].append(float(sequence_excess[candidates].sum()) / max(len(scores), 1))
    donors = np.arange(len(cohort.y)) if cohort.groups is None else cohort.groups
    (_, positive), case = np.unique(np.stack([donors[rows], cohort.y[rows]]), axis=1, return_inverse=True)
    sizes = np.bincount(case.ravel())
    return {
        name: estimate_confirmed_share(np.bincount(case.ravel(), values) / sizes, positive > 0)
        for name, values in evidence.items()
    }


def _merge_rankings(rankings: Sequence[RankedSequences], cohort: RankedCohort) -> RankedSequences:
    """Return the sequences of several lists by their highest excess, equal ones by their best rank."""
    entries = _RankedEntries.concatenate(rankings)
    rank = np.concatenate([np.arange(len(ranking.best)) for ranking in rankings])
    order = np.lexsort([rank, -entries.excess])
    kept = order[find_first_occurrences(entries.hashes[order])[: cohort.max_sequences]]
    merged = cohort.make_empty_list()
    merged.add_candidates(entries.indices[kept], -np.arange(len(kept), dtype=np.float64))
    return RankedSequences(merged, entries.excess[kept], entries.evidence[kept])


def _find_best_by_scores(
    estimator: RepertoireClassifier, cohort: RankedCohort, chosen: NDArray[np.bool_]
) -> dict[str, BestSequences]:
    """Return the best sequences of the chosen repertoires, (B,), by the name of a list of `compute_sequence_scores`."""
    X, best = cohort.X, dict[str, BestSequences]()
    for position in track(np.flatnonzero(chosen).tolist(), "ranking sequences", int(chosen.sum())):
        indices = np.arange(len(X[position])) + X.container.repertoire_offsets[X.repertoire_indices[position]]
        for name, scores in compute_sequence_scores(estimator, X, position).items():
            known = np.flatnonzero(scores > -np.inf)
            best_sequences = best.setdefault(name, cohort.make_empty_list())
            best_sequences.add_candidates(indices[known], scores[known])
    return best
