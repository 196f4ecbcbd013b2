"""Exact attributions of residues through the branch `composition`.

The branch is linear in k-mers, so each k-mer of a sequence adds its weight times a factor to an output. Its residues
share this amount equally. The k-mers of expanded clones have a second factor, the expansion score of the sequence. The
weight of a residue at an IMGT position belongs to this residue. As in integrated gradients
(`deeprc.interpretation.attributions`), a sequence is compared with average residues: the mean weight of a k-mer of such
residues, or of such a residue at the position, is subtracted.

Letters: n sequences, L positions of the longest, T outputs, G V genes with one more for other genes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.branches.composition import K
from deeprc.branches.composition_description import NOISE_SEQUENCES
from deeprc.branches.expansion import EXPANSION_K
from deeprc.branches.linear_function import Kind
from deeprc.branches.residues import N_PLACED_RESIDUES, find_placed_residues, index_sequences
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.expansion import compute_expansion_scores
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.runs.feature_effects import WeightedBranch, list_weighted_branches
from deeprc.training.model import Model

__all__ = ["attribute_composition"]


def attribute_composition(
    model: Model, dataset: RepertoireDataset, index: SequenceIndex, *, background: Floats, output: int = 0
) -> Floats:
    """Return what each residue adds to an output through the branch `composition`, (n, L); NaN beyond the end.

    The residues of a sequence sum to the amount of its k-mers and of its residues at positions, minus the expected
    amount in a sequence of average residues with the same count, length and genes. Genes do not change, as in
    `attribute`.

    Parameters
    ----------
    model
        A trained model, or an ensemble; a model without this branch adds 0.
    dataset, index
        Dataset, and index of the n sequences in it.
    background
        Frequencies of the amino acids in the average residue, (20,).
    output
        Index of the output.
    """
    branches = list_weighted_branches(model)
    of_families = [branch for branch in branches if branch.branch.counts_families]
    of_sequences = [branch for branch in branches if not branch.branch.counts_families]
    attributions = _attribute_branches(of_sequences, dataset, index, background, output)
    if of_families:
        attributions += _attribute_branches(of_families, dataset, index, background, output)
    return attributions


def _attribute_branches(
    branches: Sequence[WeightedBranch],
    dataset: RepertoireDataset,
    index: SequenceIndex,
    background: Floats,
    output: int,
) -> Floats:
    """Return what `attribute_composition` returns, for branches that all count each family once, or none does."""

    def sum_weights(kind: Kind, k: int) -> Floats:
        """Return the weights of k-mers, (20 ** k,), relative to the expected weight of a k-mer of average residues."""
        total = sum((branch.weigh(kind)[output] for branch in branches), np.zeros(len(AMINO_ACIDS) ** k))
        return total - _compute_mean_weight(total, k, background)

    kmers, expansion = sum_weights("kmers", K), sum_weights("expansion", EXPANSION_K)
    placed = [(branch.branch.genes["v_call"], _subtract_mean(branch, background, output)) for branch in branches]
    placed = [(names, weights) for names, weights in placed if weights.any()]
    sequence_attributions: list[Floats] = [np.zeros(0)] * len(index)
    for position, items in index.group_by_repertoire():
        repertoire = dataset[position]
        scores = compute_expansion_scores(repertoire.counts) if expansion.any() else np.zeros(len(repertoire))
        factors = branches[0].branch.weigh_sequences(repertoire) if branches else np.ones(len(repertoire))
        size = round(factors.sum())
        scores *= size / len(repertoire)
        v_indices = [index_sequences(repertoire, "v_call", names) for names, _ in placed]
        for item, row in zip(items.tolist(), index.rows[items].tolist(), strict=True):
            added = _distribute_weights(repertoire, row, kmers, K)
            for (_, weights), indices in zip(placed, v_indices, strict=True):
                at, codes = find_placed_residues(_get_residues(repertoire, row))
                added[at] += weights[indices[row], codes]
            added *= factors[row]
            if scores[row] != 0:
                added += scores[row] * _distribute_weights(repertoire, row, expansion, EXPANSION_K)
            sequence_attributions[item] = added / (size + NOISE_SEQUENCES)
    attributions = np.full((len(index), max(map(len, sequence_attributions), default=0)), np.nan)
    for item, sequence_values in enumerate(sequence_attributions):
        attributions[item, : len(sequence_values)] = sequence_values
    return attributions


def _subtract_mean(branch: WeightedBranch, background: Floats, output: int) -> Floats:
    """Return the weights of the residues at positions by V gene, (G, F), minus that of an average residue there."""
    weights = branch.weigh("residues")[output].reshape(-1, N_PLACED_RESIDUES)
    by_position = weights.reshape(len(weights), -1, len(AMINO_ACIDS))
    return np.asarray((by_position - (by_position @ background)[:, :, None]).reshape(weights.shape))


def _compute_mean_weight(weights: Floats, k: int, background: Floats) -> float:
    """Return the expected weight of a k-mer of independent residues with these frequencies, (20,)."""
    mean = weights.reshape([len(AMINO_ACIDS)] * k)  # (20 ** k,) -> (20, 20, ...)
    for _ in range(k):
        mean = mean @ background
    return float(mean)


def _distribute_weights(repertoire: Repertoire, row: int, weights: Floats, k: int) -> Floats:
    """Return the weights of a sequence's k-mers, divided among their residues, (length,)."""
    residues = _get_residues(repertoire, row)
    added = np.zeros(len(residues))
    n_kmers = len(residues) - k + 1
    if n_kmers > 0:
        codes = np.zeros(n_kmers, np.int64)
        for offset in range(k):
            codes = codes * len(AMINO_ACIDS) + residues[offset : offset + n_kmers]
        for offset in range(k):
            added[offset : offset + n_kmers] += weights[codes] / k
    return added


def _get_residues(repertoire: Repertoire, row: int) -> NDArray[np.int64]:
    """Return the residues of a sequence as indices of `AMINO_ACIDS`, (length,)."""
    start, stop = repertoire.offsets[row : row + 2].tolist()
    return np.asarray(repertoire.residues[start:stop], np.int64)
