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
A sequence counts by its highest excess. A stack merges the lists of its members by rank, share and excess.
The list of the composition leaves the weights of genes out: what is ranked is a junction, and one gene is in thousands
of them.

Letters: B repertoires, N sequences of one, n some of a container, P patterns of places, M k-mers of a pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.airr_ml.best_sequences import BestSequences
from deeprc.baselines.association import fisher_p_values
from deeprc.baselines.carriers import Carriers, carrier_counts, in_parts
from deeprc.baselines.gapped import GappedKmerLogisticRegression, gapped_offsets
from deeprc.baselines.logistic import LogisticRegression
from deeprc.baselines.public_clones import PublicClones
from deeprc.datasets.clone_set import CloneSet
from deeprc.datasets.clones import gene_fields, shared_clones, take_sequences
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import RepertoireClassifier
from deeprc.evaluation.excess import clone_null, excess_shares
from deeprc.nn.contributions import ATTENTION
from deeprc.nn.readings import as_array
from deeprc.progress import track
from deeprc.readings.clones import CloneReading
from deeprc.readings.composition import CompositionReading, K
from deeprc.stacking import Stack
from deeprc.training.estimator import DeepRCClassifier

__all__ = ["can_rank", "ranked_sequences", "sequence_scores"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_RANKERS = (DeepRCClassifier, LogisticRegression, GappedKmerLogisticRegression, PublicClones)
_COEFFICIENTS = "coefficients"
_ASSOCIATION = "association"
_RANK_CONSTANT = 60  # of reciprocal ranks
_LEAST_EXCESS = 1e-6  # so that sequences without any stay in the order of their ranks
_SEQUENCE = ("indices", "hashes")
_WHY = ("excess", "evidence")
_PIECE = 1 << 17  # sequences whose k-mers are looked up at a time


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
        (member.name, _rank(model, cohort, only_evident=True), share / len(member.models))
        for member, share in rankers
        for model in (member.models if share else ())
    ]
    merged, methods = _add_votes(rankings, cohort)
    if not merged.best.is_full:  # only public clones count: the rest as another member ranks it, if there is one
        other = max(rankers, key=lambda ranker: not isinstance(ranker[0].models[0], PublicClones))[0]
        merged = _append(merged, _rank(other.models[0], cohort))
        methods = np.append(methods, np.full(len(merged.best) - len(methods), other.name))
    return merged, methods


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


def _rank(estimator: RepertoireClassifier, cohort: _Cohort, *, only_evident: bool = False) -> _Ranking:
    """Return the best sequences; `only_evident` leaves out those about which public clones know nothing."""
    X, y = cohort.X, cohort.y
    if isinstance(estimator, PublicClones):
        clones: _Ranking | None = cohort.clones if estimator.genes else cohort.clones_without_genes
    else:
        has_memory = isinstance(estimator, DeepRCClassifier) and _memory_of(estimator) is not None
        clones = cohort.clones if has_memory else None
    if clones is not None and only_evident and isinstance(estimator, PublicClones):
        return clones
    positive = _best_by_scores(estimator, cohort, np.flatnonzero(y))
    has_one_list = len(positive) == 1 and (clones is None or isinstance(estimator, PublicClones))
    negative = {}
    if not has_one_list or not all(each.is_full for each in positive.values()):
        negative = _best_by_scores(estimator, cohort, np.flatnonzero(~y))
    if has_one_list:
        rankings = [clones or _ranking(name, best, np.ones(len(best))) for name, best in positive.items()]
    else:
        n_sequences = X.n_sequences
        weight = float(n_sequences[y].sum() / n_sequences[~y].sum())
        rankings = [_ranking(name, best, _excess_of(best, negative[name], weight)) for name, best in positive.items()]
        rankings += [clones] if clones is not None else []
    merged = _merge(rankings, cohort)
    for name, each in (*positive.items(), *negative.items()):
        merged = _append(merged, _ranking(name, each, np.zeros(len(each))))
    return merged


def _ranking(name: str, best: BestSequences, excess: Floats) -> _Ranking:
    """Return the ranking of one list."""
    return _Ranking(best, excess, np.full(len(best), name))


def _excess_of(best: BestSequences, null: BestSequences, weight: float) -> Floats:
    """Return the excess of sequences of positive repertoires, (n,), beside those of negative ones."""
    return excess_shares(best.scores, null.scores, np.full(len(null), weight), null_is_cut=null.is_full)


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
    estimator: RepertoireClassifier, cohort: _Cohort, positions: NDArray[np.int64]
) -> dict[str, BestSequences]:
    """Return the best sequences of some repertoires by each of the `sequence_scores`."""
    X, best = cohort.X, dict[str, BestSequences]()
    for at in track(positions.tolist(), "ranking sequences", len(positions)):
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
    return _ranking(_ASSOCIATION, best, excess_shares(best.scores, score(positive, carriers), expected))


def sequence_scores(estimator: RepertoireClassifier, X: RepertoireDataset, position: int) -> dict[str, Floats]:
    """Return what each sequence of X[position] says for the positive class, (N,); see `ranked_sequences`.

    DeepRC says it in units which cannot be added: `attention`, the output, up to a constant, if the attention saw this
    sequence only; `composition`, if it reads that, the weights of the 4-mers; and `clones`, if it has a memory of them,
    what those add that it retrieves, -inf for others. Logistic regressions have
    one, `coefficients`.
    """
    if isinstance(estimator, DeepRCClassifier):
        scores = {ATTENTION: estimator.model_.score_sequences(X, position).responses[:, 0]}
        composition = _composition_of(estimator)
        if composition is not None:
            sums = _kmer_sums(X[position], [tuple(range(K))], as_array(composition.kmer_weights[:1]))
            scores[CompositionReading.name] = np.concatenate([np.zeros(0), *sums])
        memory = _memory_of(estimator)
        if memory is not None:
            scores[CloneReading.name] = _retrieved_evidence(*memory, X[position])
        return scores
    if isinstance(estimator, LogisticRegression | GappedKmerLogisticRegression):
        return {_COEFFICIENTS: _coefficient_sums(estimator, X[position])}
    return {_ASSOCIATION: np.zeros(len(X[position]))}  # public clones: a sequence that no other repertoire has


def _composition_of(estimator: DeepRCClassifier) -> CompositionReading | None:
    """Return the reading of the composition, if the network has one that speaks for the first output."""
    readings = estimator.model_.network.readings
    for gain, reading in () if readings is None else zip(readings.gains[:, 0].tolist(), readings, strict=True):
        if isinstance(reading, CompositionReading) and gain > 0:
            return reading
    return None


def _memory_of(estimator: DeepRCClassifier) -> tuple[CloneReading, float] | None:
    """Return the memory of clones and its gain, if the network has one that speaks for the first output."""
    readings = estimator.model_.network.readings
    if readings is None or CloneReading.name not in readings.names:
        return None
    gain = readings.gains[readings.names.index(CloneReading.name), 0].item()
    return (cast("CloneReading", readings.members[CloneReading.name]), gain) if gain > 0 else None


def _retrieved_evidence(memory: CloneReading, gain: float, repertoire: Repertoire) -> Floats:
    """Return what each sequence adds that a memory retrieves for the positive class, (N,); -inf for all others."""
    hits = memory.find_clones_in(repertoire)
    added = np.zeros(len(repertoire))
    np.add.at(added, hits.rows, np.where(hits.outputs == 0, gain * hits.evidence, 0.0))
    return np.where(added > 0, added, -np.inf)


def _coefficient_sums(estimator: LogisticRegression | GappedKmerLogisticRegression, repertoire: Repertoire) -> Floats:
    """Return the sum of the coefficients of each sequence's k-mers and genes, (N,)."""
    gapped = isinstance(estimator, GappedKmerLogisticRegression)
    patterns = gapped_offsets(estimator.k, estimator.max_gap) if gapped else [(0, 1, 2, 3)]
    genes = {"v_call": estimator.v_names_, "j_call": estimator.j_names_} if gapped else {}
    M = 20 ** len(patterns[0])
    every = np.zeros(M * len(patterns) + sum(map(len, genes.values())))
    every[estimator.features_] = estimator.coef_
    tables = every[: M * len(patterns)].reshape(len(patterns), M)  # (P * M,) -> (P, M)
    scores = np.concatenate([np.zeros(0), *_kmer_sums(repertoire, patterns, tables)])
    rest = every[M * len(patterns) :]
    for field, names in genes.items():
        calls = repertoire.genes.get(field)
        if calls is not None and len(names):
            of_name = dict(zip(names.tolist(), rest.tolist(), strict=False))
            scores += np.array([of_name.get(name, 0.0) for name in calls.vocabulary])[calls.codes]
        rest = rest[len(names) :]
    return scores


def _kmer_sums(repertoire: Repertoire, patterns: Sequence[tuple[int, ...]], tables: Floats) -> Iterator[Floats]:
    """Yield the sums of the coefficients, tables (P, M), of the k-mers of each sequence, piece by piece."""
    offsets = repertoire.offsets
    for first in range(0, len(repertoire), _PIECE):
        bounds = offsets[first : min(first + _PIECE, len(repertoire)) + 1]
        residues = np.asarray(repertoire.residues[bounds[0] : bounds[-1]])
        bounds = bounds - bounds[0]
        left = np.repeat(bounds[1:], np.diff(bounds)) - np.arange(len(residues))  # residues up to the sequence's end
        sums = np.zeros(len(bounds) - 1)
        for places, table in zip(patterns, tables, strict=True):
            if not table.any():
                continue
            starts = np.flatnonzero(left > places[-1])
            codes = np.zeros(len(starts), np.int64)
            for place in places:
                codes = codes * 20 + residues[starts + place]
            values = np.zeros(len(residues))
            values[starts] = table[codes]
            sums += np.add.reduceat(values, bounds[:-1])
        yield sums
