"""Which sequences of a training cohort go most with the positive label, by what a trained method learned.

A sequence's score is what it says for the positive class: by DeepRC its response, see `deeprc.nn.contributions`, which
unlike its contribution does not ask what else is in its repertoire; by a logistic regression the sum of the
coefficients of its k-mers and genes; by public clones minus the logarithm of its p-value. If DeepRC reads the
composition, too, a second list has the sequences by the weights of their 4-mers; and if it has a memory of clones, a
third one has the clones by their p-values, also those that are not associated enough for the memory. The lists are
merged by reciprocal ranks, each weighted by its share of the variance of the outputs. The sequences that the memory
retrieves for the positive class come first, by what they add: they are single receptors that were tested. Of a
sequence that several repertoires have, the highest score counts. Those that no positive repertoire has come last: what
is implanted, or selected, is in positive repertoires only, and half of what looks like it by chance is not. A stack
merges the lists of its members.

Letters: B repertoires, N sequences of one, n some of a container, P patterns of places, M k-mers of a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.association import fisher_p_values
from deeprc.baselines.carriers import carrier_counts, in_parts, training_weights
from deeprc.baselines.gapped import GappedKmerLogisticRegression, gapped_offsets
from deeprc.baselines.logistic import LogisticRegression
from deeprc.baselines.public_clones import PublicClones
from deeprc.datasets.clone_set import CloneSet
from deeprc.datasets.clones import gene_fields, shared_clones, take_sequences
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequence_hash import hash_rows
from deeprc.errors import InputError
from deeprc.estimators import RepertoireClassifier
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
_SCORE = "score"
_RANK_CONSTANT = 60  # of reciprocal ranks
_PIECE = 1 << 17  # sequences whose k-mers are looked up at a time


def ranked_sequences(
    estimator: RepertoireClassifier, X: RepertoireDataset, y: NDArray[np.bool_], max_sequences: int
) -> pd.DataFrame:
    """Return the sequences that go most with the positive label, the first most, each with its genes once.

    A stack adds up the reciprocal ranks of a sequence in the lists of its members, 1 / (60 + rank) (Cormack et al.
    2009), weighted by their shares of the stack. Memory grows with `max_sequences` and with the largest repertoire, not
    with the cohort.

    Parameters
    ----------
    estimator
        Fitted to X and y: a `DeepRCClassifier`, `LogisticRegression` of 4-mers, `GappedKmerLogisticRegression`,
        `PublicClones`, or a `Stack` with one of them.
    X, y
        Repertoires of a container, (B,), and which are positive.
    max_sequences
        How many sequences.

    Returns
    -------
    `junction_aa`, and `v_call` and `j_call` where the container has them; fewer rows where X has fewer sequences.

    Raises
    ------
    InputError
        If no member of a stack ranks sequences.
    """
    find = _rank_by_stack if isinstance(estimator, Stack) else _rank
    best = find(estimator, X, y, max_sequences)
    return CloneSet(take_sequences(X, best.indices, gene_fields(X))).to_frame()


def can_rank(estimator: object) -> bool:
    """Return whether `ranked_sequences` knows what an estimator learns."""
    return isinstance(estimator, (Stack, *_RANKERS))


def _rank_by_stack(stack: Stack, X: RepertoireDataset, y: NDArray[np.bool_], max_sequences: int) -> _Best:
    rankers = [(member, max(share, 0.0)) for member, share in stack.shares() if isinstance(member.models[0], _RANKERS)]
    if not rankers:
        raise InputError(f"members: expected one that ranks sequences, found {', '.join(stack.member_names_)}")
    if not any(share for _, share in rankers):  # what predicts ranks nothing: all count the same
        rankers = [(member, 1.0) for member, _ in rankers]
    lists = [
        (_rank(model, X, y, max_sequences, only_evident=True), share / len(member.models))
        for member, share in rankers
        for model in (member.models if share else ())
    ]
    merged = _merge(lists, X, max_sequences)
    if len(merged) < max_sequences:  # only public clones count: the rest as another member ranks it, if there is one
        other = max(rankers, key=lambda ranker: not isinstance(ranker[0].models[0], PublicClones))[0]
        merged.append(_rank(other.models[0], X, y, max_sequences))
    return merged


def _merge(lists: Sequence[tuple[_Best, float]], X: RepertoireDataset, max_sequences: int) -> _Best:
    """Return the sequences of several lists by the sum of weight / (60 + rank) over the lists."""
    weights = [weight / (_RANK_CONSTANT + 1 + np.arange(len(each))) for each, weight in lists]
    indices, hashes = (np.concatenate([getattr(each, name) for each, _ in lists]) for name in ("indices", "hashes"))
    _, first, sequence_of = np.unique(hashes, return_index=True, return_inverse=True)
    totals: Floats = np.bincount(sequence_of, np.concatenate(weights), minlength=len(first)).astype(np.float64)
    order = np.argsort(first)  # equal ones in the order of the lists
    merged = _Best(X, gene_fields(X), max_sequences)
    merged.offer(indices[first[order]], totals[order])
    return merged


def _rank(
    estimator: RepertoireClassifier,
    X: RepertoireDataset,
    y: NDArray[np.bool_],
    max_sequences: int,
    *,
    only_evident: bool = False,
) -> _Best:
    """Return the best sequences; `only_evident` leaves out those about which public clones know nothing."""
    fields = gene_fields(X)
    known = _Best(X, fields, max_sequences)
    if isinstance(estimator, PublicClones):
        for indices, scores in _shared(fields if estimator.genes else [], X, y):
            known.offer(indices, scores)
        if only_evident:
            return known
    for indices, added in _retrieved(estimator, X, y):
        known.offer(indices, added)
    known.append(_rank_by_scores(estimator, X, y, max_sequences))
    return known


def _rank_by_scores(
    estimator: RepertoireClassifier, X: RepertoireDataset, y: NDArray[np.bool_], max_sequences: int
) -> _Best:
    """Return the sequences with the highest scores, first those that a positive repertoire has."""
    weights = _list_weights(estimator, X)
    fields = gene_fields(X)
    whole = {name: _Best(X, fields, max_sequences) for name in weights if name != CloneReading.name}
    for positive in (True, False):
        part = {name: _Best(X, fields, max_sequences) for name in whole}
        is_full = all(len(each) == max_sequences for each in whole.values())
        rows = np.flatnonzero((y == positive) & (not is_full)).tolist()
        for at in track(rows, "ranking sequences", len(rows)):
            indices = np.arange(X[at].start, X[at].stop)
            scores = sequence_scores(estimator, X, at)
            for name, each in part.items():
                each.offer(indices, scores[name])
        for name, each in part.items():
            whole[name].append(each)
    if CloneReading.name in weights:
        whole[CloneReading.name] = _Best(X, fields, max_sequences)
        for indices, associations in _shared(fields, X, y):
            whole[CloneReading.name].offer(indices, associations)
    if len(whole) == 1:
        return next(iter(whole.values()))
    return _merge([(each, weights[name]) for name, each in whole.items()], X, max_sequences)


def _list_weights(estimator: RepertoireClassifier, X: RepertoireDataset) -> dict[str, float]:
    """Return how much each list of sequences counts: those of the `sequence_scores`, and that of clones.

    Those of DeepRC count by their share of the variance of the outputs.
    """
    if not isinstance(estimator, DeepRCClassifier):
        return {_SCORE: 1.0}
    names = [ATTENTION]
    names += [CompositionReading.name] if _composition_of(estimator) is not None else []
    names += [CloneReading.name] if _memory_of(estimator) is not None else []
    if len(names) == 1:
        return {ATTENTION: 1.0}
    parts = estimator.model_.output_parts(X)
    outputs = parts.outputs[:, 0] - parts.outputs[:, 0].mean()
    return {name: max(float(outputs @ parts.through[name][:, 0]), 0.0) for name in names}


class _Best:
    """The best sequences of a container, the first best; among equals the first that was offered.

    Sequences with the same genes are one, told by 64 bits of both.
    """

    def __init__(self, X: RepertoireDataset, fields: list[str], max_sequences: int) -> None:
        self._sequences, self._max_sequences = X[0].container.sequences.arrays(fields), max_sequences
        self.indices: Integers = np.zeros(0, np.int64)
        self._scores: Floats = np.zeros(0)
        self.hashes: NDArray[np.uint64] = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self.indices)

    def offer(self, indices: Integers, scores: Floats) -> None:
        """Look at further sequences: their indices in the container and their scores, (n,) each."""
        if len(self) == self._max_sequences:
            better = scores > self._scores[-1]
            indices, scores = indices[better], scores[better]
        indices = np.concatenate([self.indices, indices])
        scores = np.concatenate([self._scores, scores])
        hashes = np.concatenate([self.hashes, hash_rows(self._sequences, indices[len(self) :])])
        self._keep(np.argsort(-scores, kind="stable"), indices, scores, hashes)

    def append(self, others: _Best) -> None:
        """Put others behind, whatever their scores."""
        parts = ((a, b) for a, b in zip(self._columns(), others._columns(), strict=True))
        indices, scores, hashes = (np.concatenate(part) for part in parts)
        self._keep(np.arange(len(indices)), indices, scores, hashes)

    def _columns(self) -> tuple[Integers, Floats, NDArray[np.uint64]]:
        return self.indices, self._scores, self.hashes

    def _keep(self, order: Integers, indices: Integers, scores: Floats, hashes: NDArray[np.uint64]) -> None:
        first = np.sort(np.unique(hashes[order], return_index=True)[1])[: self._max_sequences]
        kept = order[first]
        self.indices, self._scores, self.hashes = indices[kept], scores[kept], hashes[kept]


def _retrieved(
    estimator: RepertoireClassifier, X: RepertoireDataset, y: NDArray[np.bool_]
) -> Iterator[tuple[Integers, Floats]]:
    """Yield the sequences of positive repertoires that a memory of clones retrieves for the positive class.

    Their indices, and what each adds to the output, (n,) each.
    """
    found = _memory_of(estimator) if isinstance(estimator, DeepRCClassifier) else None
    if found is None:
        return
    memory, gain = found
    positive = np.flatnonzero(y).tolist()
    for at in track(positive, "ranking sequences that clones retrieve", len(positive)):
        hits = memory.find_clones_in(X[at])
        evidence = np.where(hits.outputs == 0, gain * hits.evidence, 0.0)
        added = np.zeros(len(X[at]))
        np.add.at(added, hits.rows, evidence)
        rows = np.flatnonzero(added > 0)
        yield X[at].start + rows, added[rows]


def sequence_scores(estimator: RepertoireClassifier, X: RepertoireDataset, position: int) -> dict[str, Floats]:
    """Return what each sequence of X[position] says for the positive class, (N,); see `ranked_sequences`.

    DeepRC says it in two units, which cannot be added: `attention`, the output, up to a constant, if the attention saw
    this sequence only; and `composition`, if it reads that, the weights of the 4-mers. Other methods have one `score`.
    """
    if isinstance(estimator, DeepRCClassifier):
        scores = {ATTENTION: estimator.model_.score_sequences(X, position).responses[:, 0]}
        composition = _composition_of(estimator)
        if composition is not None:
            sums = _kmer_sums(X[position], [tuple(range(K))], as_array(composition.kmer_weights[:1]))
            scores[CompositionReading.name] = np.concatenate([np.zeros(0), *sums])
        return scores
    if isinstance(estimator, LogisticRegression | GappedKmerLogisticRegression):
        return {_SCORE: _coefficient_sums(estimator, X[position])}
    return {_SCORE: np.zeros(len(X[position]))}  # public clones: a sequence that no other repertoire has


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


def _shared(fields: list[str], X: RepertoireDataset, y: NDArray[np.bool_]) -> Iterator[tuple[Integers, Floats]]:
    """Yield the clones that several repertoires have and that go with the label more than one of a single positive.

    A clone is a sequence with these genes. The indices of their first sequences, and by how many powers of 10 their
    p-values are below that one's, (n,) each.
    """
    clones = shared_clones(X, fields)
    single = float(y.mean())
    weights = training_weights(X, y)
    parts = in_parts(lambda start, stop: carrier_counts(clones, start, stop, weights), len(clones))
    for indices, positive, carriers in parts:
        p = fisher_p_values(positive, carriers, int(y.sum()), len(y))
        found = np.flatnonzero(p < single)
        yield clones.representative[indices[found]], np.log10(single) - np.log10(p[found])
