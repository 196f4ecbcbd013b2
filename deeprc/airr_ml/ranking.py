"""Which sequences of a training cohort go most with the positive label, by what a trained method learned.

A sequence's score is what it says for the positive class: by DeepRC its response, see `deeprc.nn.contributions`, which
unlike its contribution does not ask what else is in its repertoire; by a logistic regression the sum of the
coefficients of its k-mers and genes; by public clones minus the logarithm of its p-value. Of a sequence that several
repertoires have, the highest score counts. Those that no positive repertoire has come last: what is implanted, or
selected, is in positive repertoires only, and half of what looks like it by chance is not.

If DeepRC reads the composition, too, a second list has the sequences by the weights of their 4-mers; and if it has a
memory of clones, a third one has those that it retrieves, and a fourth one all clones by their p-values, also those
that are not associated enough for the memory. Scores of different lists cannot be compared. What can be compared is the
**excess**: which share of the sequences with such a score would not be there by chance, see `deeprc.evaluation.excess`.
It is measured among the sequences with the same strongest kernel in the attention list, which holds those of several
motifs, see `deeprc.airr_ml.feature_groups`.
A network is overfitted to its training repertoires in part, and its excess there is too high. So the excess of a list
of DeepRC is multiplied by the share that other repertoires confirm; that of logistic regressions is 1. A sequence
counts by its highest excess. A stack merges the lists of its members by rank, share and excess.
The list of the composition leaves the weights of genes out: what is ranked is a junction, and one gene is in thousands
of them.

Letters: B repertoires, n sequences of a container.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.airr_ml.best_sequences import BestSequences
from deeprc.airr_ml.feature_groups import excess_in_groups, strongest_features
from deeprc.airr_ml.sequence_scores import ASSOCIATION, has_memory, sequence_scores
from deeprc.baselines.association import fisher_p_values
from deeprc.baselines.carriers import Carriers, carrier_counts, in_parts
from deeprc.baselines.gapped import GappedKmerLogisticRegression
from deeprc.baselines.logistic import LogisticRegression
from deeprc.baselines.public_clones import PublicClones
from deeprc.datasets.clone_set import CloneSet
from deeprc.datasets.clones import gene_fields, shared_clones, take_sequences
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import RepertoireClassifier
from deeprc.evaluation.excess import (
    MIN_CONFIRMING,
    clone_null,
    confirmed_share,
    excess_of_scores,
    excess_shares,
)
from deeprc.nn.contributions import ATTENTION
from deeprc.progress import track
from deeprc.stacking import Stack
from deeprc.training.estimator import DeepRCClassifier

__all__ = ["can_rank", "ranked_sequences"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_RANKERS = (DeepRCClassifier, LogisticRegression, GappedKmerLogisticRegression, PublicClones)
_RANK_CONSTANT = 60  # of reciprocal ranks
_LEAST_EXCESS = 1e-6  # so that sequences without any stay in the order of their ranks
_SEQUENCE = ("indices", "hashes")
_WHY = ("excess", "evidence")


@dataclass(frozen=True)
class _Ranking:
    """Sequences, the best first, the excess of each, and the name of the list from which it comes, (n,) each."""

    best: BestSequences
    excess: Floats
    evidence: NDArray[np.str_]


@dataclass(frozen=True)
class _Cohort:
    """What is ranked: the repertoires X, (B,), which are positive, (B,), and how many sequences a list has at most.

    `groups` are the repertoires' donors, (B,), if they are known.
    """

    X: RepertoireDataset
    y: NDArray[np.bool_]
    max_sequences: int
    groups: Integers | None = None

    def new_list(self) -> BestSequences:
        """Return an empty list of its sequences."""
        return BestSequences(self.X, gene_fields(self.X), self.max_sequences)

    @cached_property
    def digests(self) -> NDArray[np.str_]:
        """The digests of its repertoires, (B,)."""
        return np.array([repertoire.digest() for repertoire in self.X])

    @cached_property
    def clones(self) -> _Ranking:
        """The ranking of its clones; see `_rank_clones`."""
        return _rank_clones(self, gene_fields(self.X))

    @cached_property
    def clones_without_genes(self) -> _Ranking:
        """The ranking of its clones, if a clone is a sequence whatever its genes."""
        return _rank_clones(self, [])


def ranked_sequences(
    estimator: RepertoireClassifier,
    X: RepertoireDataset,
    y: NDArray[np.bool_],
    max_sequences: int,
    *,
    groups: Integers | None = None,
) -> pd.DataFrame:
    """Return the sequences that go most with the positive label, the first most, each with its genes once.

    A stack adds up the reciprocal ranks of a sequence in the lists of its members, 1 / (60 + rank) (Cormack et al.
    2009), each times the member's share of the stack and the sequence's excess in the list. Memory grows with
    `max_sequences` and with the largest repertoire, not with the cohort.

    Parameters
    ----------
    estimator
        Fitted to X and y: a `DeepRCClassifier`, `LogisticRegression` of 4-mers, `GappedKmerLogisticRegression`,
        `PublicClones`, or a `Stack` with one of them.
    X, y
        Repertoires of a container, (B,), and which are positive.
    max_sequences
        How many sequences.
    groups
        Repertoires with equal numbers are of one donor, (B,); clones are tested on donors. None: each is of its own.

    Returns
    -------
    `junction_aa`, and `v_call` and `j_call` where the container has them; fewer rows where X has fewer sequences. Then
    `method`, the member of a stack that counts most for the sequence (empty without a stack); `evidence`, the list from
    which it has the sequence, a name of `sequence_scores` or `association`, the p-value of a clone; and `excess`, that
    of the sequence in this list.

    Raises
    ------
    InputError
        If no member of a stack ranks sequences.
    """
    cohort = _Cohort(X, y, max_sequences, groups)
    if isinstance(estimator, Stack):
        found, methods = _rank_by_stack(estimator, cohort)
    else:
        found = _rank(estimator, cohort)
        methods = np.full(len(found.best), "")
    table = CloneSet(take_sequences(X, found.best.indices, gene_fields(X))).to_frame()
    return table.assign(method=methods, evidence=found.evidence, excess=found.excess)


def can_rank(estimator: object) -> bool:
    """Return whether `ranked_sequences` knows what an estimator learns."""
    return isinstance(estimator, (Stack, *_RANKERS))


def _rank_by_stack(stack: Stack, cohort: _Cohort) -> tuple[_Ranking, NDArray[np.str_]]:
    """Return the ranking of a stack, and for each sequence the name of the member that counts most, (n,)."""
    rankers = [(member, max(share, 0.0)) for member, share in stack.shares() if isinstance(member.models[0], _RANKERS)]
    if not rankers:
        raise InputError(f"members: expected one that ranks sequences, found {', '.join(stack.member_names_)}")
    if not any(share for _, share in rankers):  # what predicts ranks nothing: all count the same
        rankers = [(member, 1.0) for member, _ in rankers]
    rankings = [
        (member.name, _rank_evident(model, cohort), share / len(member.models))
        for member, share in rankers
        for model in (member.models if share else ())
    ]
    merged, methods = _add_votes(rankings, cohort)
    if not merged.best.is_full:  # only public clones count: the rest as another member ranks it, if there is one
        other = max(rankers, key=lambda ranker: not isinstance(ranker[0].models[0], PublicClones))[0]
        merged = _append(merged, _rank(other.models[0], cohort))
        methods = np.append(methods, np.full(len(merged.best) - len(methods), other.name))
    return merged, methods


def _rank_evident(estimator: RepertoireClassifier, cohort: _Cohort) -> _Ranking:
    """Return the ranking of an estimator without the sequences about which public clones know nothing."""
    return _rank_public_clones(estimator, cohort) if isinstance(estimator, PublicClones) else _rank(estimator, cohort)


def _add_votes(rankings: Sequence[tuple[str, _Ranking, float]], cohort: _Cohort) -> tuple[_Ranking, NDArray[np.str_]]:
    """Return the sequences of several rankings, each with its name and share, by the sum of their votes.

    Beside it, the name of the ranking with the highest vote for each sequence, (n,); its excess and evidence count.
    """
    votes = np.concatenate(
        [
            share * np.maximum(each.excess, _LEAST_EXCESS) / (_RANK_CONSTANT + 1 + np.arange(len(each.best)))
            for _, each, share in rankings
        ]
    )
    indices, hashes = (np.concatenate([getattr(each.best, name) for _, each, _ in rankings]) for name in _SEQUENCE)
    names = np.concatenate([np.full(len(each.best), name) for name, each, _ in rankings])
    excess, evidence = (np.concatenate([getattr(each, name) for _, each, _ in rankings]) for name in _WHY)
    _, first, sequence_of = np.unique(hashes, return_index=True, return_inverse=True)
    totals: Floats = np.bincount(sequence_of, votes, minlength=len(first)).astype(np.float64)
    by_vote = np.lexsort([-votes, sequence_of])  # of each sequence, the highest vote first
    highest = by_vote[np.searchsorted(sequence_of[by_vote], np.arange(len(first)))]
    in_lists = np.argsort(first)  # equal ones in the order of the lists
    order = in_lists[np.argsort(-totals[in_lists], kind="stable")][: cohort.max_sequences]
    best = cohort.new_list()
    best.offer(indices[first[order]], totals[order])
    highest = highest[order]
    return _Ranking(best, excess[highest], evidence[highest]), names[highest]


def _append(ranking: _Ranking, more: _Ranking) -> _Ranking:
    """Return a ranking with the sequences of another one, that it lacks, behind, without excess."""
    n = len(ranking.best)
    evidence_of = dict(zip(more.best.hashes.tolist(), more.evidence.tolist(), strict=True))
    ranking.best.append(more.best)
    added = np.array([evidence_of[each] for each in ranking.best.hashes[n:].tolist()], np.str_)
    return _Ranking(ranking.best, np.append(ranking.excess, np.zeros(len(added))), np.append(ranking.evidence, added))


def _rank(estimator: RepertoireClassifier, cohort: _Cohort) -> _Ranking:
    """Return the best sequences by the lists of an estimator; behind them those that are in no list."""
    positive, negative = _best_by_scores(estimator, cohort, cohort.y), dict[str, BestSequences]()
    if isinstance(estimator, PublicClones):
        rankings = [_rank_public_clones(estimator, cohort)]
    elif not isinstance(estimator, DeepRCClassifier):
        rankings = [_ranking(name, best, np.ones(len(best))) for name, best in positive.items()]
    else:
        negative = _best_by_scores(estimator, cohort, ~cohort.y)
        rankings = _comparable_lists(estimator, cohort, positive, negative)
    if not negative and not all(each.is_full for each in positive.values()):
        negative = _best_by_scores(estimator, cohort, ~cohort.y)
    merged = _merge(rankings, cohort)
    for name, each in (*positive.items(), *negative.items()):
        merged = _append(merged, _ranking(name, each, np.zeros(len(each))))
    return merged


def _rank_public_clones(estimator: PublicClones, cohort: _Cohort) -> _Ranking:
    """Return the clones that public clones compare."""
    return cohort.clones if estimator.genes else cohort.clones_without_genes


def _comparable_lists(
    estimator: DeepRCClassifier,
    cohort: _Cohort,
    positive: Mapping[str, BestSequences],
    negative: Mapping[str, BestSequences],
) -> list[_Ranking]:
    """Return the lists of an estimator with their excess, from the best sequences of both classes by each score."""
    n_sequences = cohort.X.n_sequences
    weight = float(n_sequences[cohort.y].sum() / n_sequences[~cohort.y].sum())
    excess = {name: _excess_of(best, negative[name], weight) for name, best in positive.items()}
    confirmed = _confirmed_shares(estimator, cohort, positive, excess)
    own, null = positive[ATTENTION], negative[ATTENTION]
    excess[ATTENTION] = excess_in_groups(own, null, weight, *strongest_features(estimator, cohort.X, own, null))
    rankings = [_ranking(name, best, confirmed[name] * excess[name]) for name, best in positive.items()]
    return [*rankings, cohort.clones] if has_memory(estimator) else rankings


def _ranking(name: str, best: BestSequences, excess: Floats) -> _Ranking:
    """Return the ranking of one list."""
    return _Ranking(best, excess, np.full(len(best), name))


def _excess_of(best: BestSequences, null: BestSequences, weight: float) -> Floats:
    """Return the excess of sequences of positive repertoires, (n,), beside those of negative ones."""
    return excess_shares(best.scores, null.scores, np.full(len(null), weight), lowest_null=null.lowest)


def _confirmed_shares(
    estimator: DeepRCClassifier, cohort: _Cohort, lists: Mapping[str, BestSequences], excess: Mapping[str, Floats]
) -> dict[str, float]:
    """Return which share of each list's excess is confirmed by repertoires that the estimator has not learned from.

    A donor's repertoires with the same label count once, by their mean.
    """
    rows = _held_out(estimator, cohort)
    if len(rows) == 0:
        return dict.fromkeys(lists, 1.0)
    evidence: dict[str, list[float]] = {name: [] for name in lists}
    for at in track(rows.tolist(), "confirming lists of sequences", len(rows)):
        for name, scores in sequence_scores(estimator, cohort.X, at).items():
            of_sequences = excess_of_scores(scores, lists[name].scores, excess[name])
            evidence[name].append(float(of_sequences.sum()) / max(len(scores), 1))
    donors = np.arange(len(cohort.y)) if cohort.groups is None else cohort.groups
    (_, positive), case = np.unique(np.stack([donors[rows], cohort.y[rows]]), axis=1, return_inverse=True)
    sizes = np.bincount(case.ravel())
    return {
        name: confirmed_share(np.bincount(case.ravel(), values) / sizes, positive > 0)
        for name, values in evidence.items()
    }


def _held_out(estimator: DeepRCClassifier, cohort: _Cohort) -> Integers:
    """Return the positions of the repertoires that an estimator has not learned from; none if it does not say so.

    Those that early stopping watched are added if the others are too few, as in a training of DeepRC alone. The
    readings of such a training were fitted to these, too, so for their lists the share is too high.
    """
    if not len(getattr(estimator, "train_digests_", ())):
        return np.zeros(0, np.int64)
    unlearned = ~np.isin(cohort.digests, estimator.train_digests_)
    unseen = unlearned & ~np.isin(cohort.digests, estimator.validation_digests_)
    are_enough = min((unseen & cohort.y).sum(), (unseen & ~cohort.y).sum()) >= MIN_CONFIRMING
    return np.flatnonzero(unseen if are_enough else unlearned)


def _merge(rankings: Sequence[_Ranking], cohort: _Cohort) -> _Ranking:
    """Return the sequences of several lists by their highest excess, equal ones by their best rank."""
    indices, hashes = (np.concatenate([getattr(each.best, name) for each in rankings]) for name in _SEQUENCE)
    excess, evidence = (np.concatenate([getattr(each, name) for each in rankings]) for name in _WHY)
    rank = np.concatenate([np.arange(len(each.best)) for each in rankings])
    order = np.lexsort([rank, -excess])
    kept = order[np.sort(np.unique(hashes[order], return_index=True)[1])][: cohort.max_sequences]
    merged = cohort.new_list()
    merged.offer(indices[kept], -np.arange(len(kept), dtype=np.float64))
    return _Ranking(merged, excess[kept], evidence[kept])


def _best_by_scores(
    estimator: RepertoireClassifier, cohort: _Cohort, chosen: NDArray[np.bool_]
) -> dict[str, BestSequences]:
    """Return the best sequences of the chosen repertoires, (B,), by each of the `sequence_scores`."""
    X, best = cohort.X, dict[str, BestSequences]()
    for at in track(np.flatnonzero(chosen).tolist(), "ranking sequences", int(chosen.sum())):
        indices = np.arange(X[at].start, X[at].stop)
        for name, scores in sequence_scores(estimator, X, at).items():
            known = np.flatnonzero(scores > -np.inf)
            of_name = best.setdefault(name, cohort.new_list())
            of_name.offer(indices[known], scores[known])
    return best


def _rank_clones(cohort: _Cohort, fields: list[str]) -> _Ranking:
    """Return the clones that go with the label more than one of a single positive repertoire, the lowest p-value first.

    A clone is a sequence with these genes, and its carriers are donors. The score is by how many powers of 10 its
    p-value is below that of one single positive carrier.
    """
    X = cohort.X
    clones, known = shared_clones(X, fields), Carriers.of(X, cohort.y, cohort.groups)
    n_positive, n_all = int(known.label_sum.sum()), int(known.n_all.sum())
    single = n_positive / n_all

    def score(positive: Integers, carriers: Integers) -> Floats:
        p_values = fisher_p_values(positive, carriers, n_positive, n_all)
        return np.asarray(np.log10(single) - np.log10(np.maximum(p_values, np.finfo(np.float64).tiny)))

    best, n_clones = cohort.new_list(), Counter[int]()
    parts = in_parts(lambda start, stop: carrier_counts(clones, start, stop, known), len(clones))
    for indices, positive, carriers in parts:
        n_clones.update(dict(zip(*(each.tolist() for each in np.unique(carriers, return_counts=True)), strict=True)))
        scores = score(positive, carriers)
        found = np.flatnonzero(scores > 0)
        best.offer(clones.representative[indices[found]], scores[found])
    positive, carriers, expected = clone_null(n_clones, n_positive, n_all)
    return _ranking(ASSOCIATION, best, excess_shares(best.scores, score(positive, carriers), expected))
