"""Scores of each sequence of a repertoire for the positive label, by a trained method.

DeepRC has several scores, see `compute_sequence_scores`; `deeprc.airr_ml.ranking` makes a list of each.

Letters: N sequences of a repertoire, P patterns (the positions of a k-mer's residues), M k-mers of a pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from deeprc.arrays import Floats
from deeprc.baselines.gapped import GappedKmerLogisticRegression, list_gapped_offsets
from deeprc.baselines.logistic import LogisticRegression
from deeprc.branches.clones import CloneBranch
from deeprc.branches.composition import CompositionBranch, K
from deeprc.branches.expansion import EXPANSION_K
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.expansion import compute_expansion_scores
from deeprc.estimators import RepertoireClassifier
from deeprc.nn.branches import iterate_branches
from deeprc.nn.sequence_scores import ATTENTION
from deeprc.training.estimator import DeepRCClassifier

__all__ = ["ASSOCIATION", "compute_sequence_scores", "stores_clones"]

ASSOCIATION = "association"
"""The name of the list of clones by their p-values."""

_COEFFICIENTS = "coefficients"
_PIECE = 1 << 17  # sequences whose k-mers are looked up at a time


def compute_sequence_scores(estimator: RepertoireClassifier, X: RepertoireDataset, position: int) -> dict[str, Floats]:
    """Return the scores of each sequence of X[position] for the positive class, (N,), by the name of the list.

    DeepRC has up to three scores, in units that cannot be added: `attention`, the output, up to a constant, if the
    attention branch had this sequence alone; `composition`, if the network reads the composition, the sum of the
    weights of the k-mers; and `clones`, if it stores clones, the evidence of those that the sequence matches, -inf for
    other sequences. Logistic regressions have one score, `coefficients`. `deeprc.airr_ml.ranking` makes lists of them.
    """
    if isinstance(estimator, DeepRCClassifier):
        scores = {ATTENTION: estimator.model_.score_sequences(X, position).responses[:, 0]}
        composition = _find_composition(estimator)
        if composition is not None:
            scores[CompositionBranch.name] = _sum_composition(composition, X[position])
        clone_branch = _find_clone_branch(estimator)
        if clone_branch is not None:
            scores[CloneBranch.name] = _compute_evidence(*clone_branch, X[position])
        return scores
    if isinstance(estimator, LogisticRegression | GappedKmerLogisticRegression):
        return {_COEFFICIENTS: _sum_coefficients(estimator, X[position])}
    return {ASSOCIATION: np.zeros(len(X[position]))}  # public clones: only for sequences that no other repertoire has


def _sum_composition(branch: CompositionBranch, repertoire: Repertoire) -> Floats:
    """Return the sum of the weights of the k-mers of each sequence for the first output, (N,)."""
    weights = branch.get_linear_function(0)
    total = _sum_kmer_coefficients(repertoire, [tuple(range(K))], weights.kmers[None])
    if branch.reads_expansion:
        expanded = _sum_kmer_coefficients(repertoire, [tuple(range(EXPANSION_K))], weights.expansion[None])
        total += compute_expansion_scores(repertoire.counts) * expanded
    return total


def stores_clones(estimator: RepertoireClassifier) -> bool:
    """Return whether an estimator is DeepRC with stored clones that contribute to the positive class."""
    return isinstance(estimator, DeepRCClassifier) and _find_clone_branch(estimator) is not None


def _find_composition(estimator: DeepRCClassifier) -> CompositionBranch | None:
    """Return the branch of the composition, if the network has one whose k-mers contribute to the first output."""
    for branch, gains in iterate_branches(estimator.model_.network.branches):
        if isinstance(branch, CompositionBranch) and gains[0] > 0:
            weights = branch.get_linear_function(0)
            return branch if weights.kmers.any() or weights.expansion.any() else None
    return None


def _find_clone_branch(estimator: DeepRCClassifier) -> tuple[CloneBranch, float] | None:
    """Return the branch of stored clones and its gain, if the network has one that contributes to the first output."""
    for branch, gains in iterate_branches(estimator.model_.network.branches):
        if branch.name == CloneBranch.name and gains[0] > 0:
            return cast("CloneBranch", branch), gains[0]
    return None


def _compute_evidence(branch: CloneBranch, gain: float, repertoire: Repertoire) -> Floats:
    """Return the evidence for the positive class of each sequence that matches a clone, (N,); -inf for others."""
    hits = branch.find_clones_in(repertoire)
    added = np.zeros(len(repertoire))
    np.add.at(added, hits.rows, np.where(hits.outputs == 0, gain * hits.evidence, 0.0))
    return np.where(added > 0, added, -np.inf)


def _sum_coefficients(estimator: LogisticRegression | GappedKmerLogisticRegression, repertoire: Repertoire) -> Floats:
    """Return the sum of the coefficients of each sequence's k-mers and genes, (N,)."""
    gapped = isinstance(estimator, GappedKmerLogisticRegression)
    patterns = list_gapped_offsets(estimator.k, estimator.max_gap) if gapped else [(0, 1, 2, 3)]
    genes = {"v_call": estimator.v_names_, "j_call": estimator.j_names_} if gapped else {}
    M = 20 ** len(patterns[0])
    coefficients = np.zeros(M * len(patterns) + sum(map(len, genes.values())))
    coefficients[estimator.features_] = estimator.coef_
    tables = coefficients[: M * len(patterns)].reshape(len(patterns), M)  # (P * M,) -> (P, M)
    scores = _sum_kmer_coefficients(repertoire, patterns, tables)
    gene_coefficients = coefficients[M * len(patterns) :]
    for field, names in genes.items():
        calls = repertoire.genes.get(field)
        if calls is not None and len(names):
            coefficient_of_gene = dict(zip(names.tolist(), gene_coefficients.tolist(), strict=False))
            scores += np.array([coefficient_of_gene.get(name, 0.0) for name in calls.vocabulary])[calls.codes]
        gene_coefficients = gene_coefficients[len(names) :]
    return scores


def _sum_kmer_coefficients(repertoire: Repertoire, patterns: Sequence[tuple[int, ...]], tables: Floats) -> Floats:
    """Return the sum of the coefficients, `tables` (P, M), of each sequence's k-mers, (N,)."""
    offsets, scores = repertoire.offsets, np.zeros(len(repertoire))
    for first in range(0, len(repertoire), _PIECE):
        bounds = offsets[first : min(first + _PIECE, len(repertoire)) + 1]
        residues = np.asarray(repertoire.residues[bounds[0] : bounds[-1]])
        bounds = bounds - bounds[0]
        n_left = np.repeat(bounds[1:], np.diff(bounds)) - np.arange(len(residues))  # residues up to the sequence's end
        sums = scores[first : first + len(bounds) - 1]  # a view
        for kmer_offsets, table in zip(patterns, tables, strict=True):
            if not table.any():
                continue
            starts = np.flatnonzero(n_left > kmer_offsets[-1])
            codes = np.zeros(len(starts), np.int64)
            for offset in kmer_offsets:
                codes = codes * 20 + residues[starts + offset]
            values = np.zeros(len(residues))
            values[starts] = table[codes]
            sums += np.add.reduceat(values, bounds[:-1])
    return scores
