"""Exact attributions of residues through the branch `composition`.

The branch is linear in 4-mers, so each 4-mer of a sequence adds its weight times a factor to an output. Its four
residues share this amount equally. As in integrated gradients (`deeprc.interpretation.attributions`), a sequence is
compared with average residues: the mean weight of a 4-mer of such residues is subtracted.

Letters: n sequences, L positions of the longest, T outputs, M 4-mers.
"""

from __future__ import annotations

import numpy as np

from deeprc.arrays import Floats
from deeprc.branches.composition import NOISE_SEQUENCES, CompositionBranch, K
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.training.model import Model, TrainedModel

__all__ = ["attribute_composition"]


def attribute_composition(
    model: Model, dataset: RepertoireDataset, index: SequenceIndex, *, background: Floats, output: int = 0
) -> Floats:
    """Return what each residue adds to an output through the branch `composition`, (n, L); NaN beyond the end.

    The residues of a sequence sum to the amount of its 4-mers, minus the expected amount in a sequence of average
    residues. Genes do not change, as in `attribute`.

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
    scales, _ = model.units
    members = zip(model.members, scales[:, output].tolist(), strict=True)
    weights = sum(scale * _compute_kmer_weights(member, output) for member, scale in members) / len(model.members)
    weights = weights - _compute_mean_weight(np.asarray(weights), background)
    found: list[Floats] = [np.zeros(0)] * len(index)
    for position, at in index.group_by_repertoire():
        repertoire = dataset[position]
        for place, row in zip(at.tolist(), index.rows[at].tolist(), strict=True):
            found[place] = _distribute_weights(repertoire, row, weights) / (len(repertoire) + NOISE_SEQUENCES)
    whole = np.full((len(index), max(map(len, found), default=0)), np.nan)
    for place, own in enumerate(found):
        whole[place, : len(own)] = own
    return whole


def _compute_kmer_weights(member: TrainedModel, output: int) -> Floats:
    """Return the weights of the 4-mers in a network times the gain of the branch, (M,); 0 without this branch."""
    weights = np.zeros(len(AMINO_ACIDS) ** K)
    branches = member.network.branches
    if branches is not None:
        for branch, gain in zip(branches, branches.gains[:, output].tolist(), strict=True):
            if isinstance(branch, CompositionBranch):
                weights += gain * branch.kmer_weights[output].double().cpu().numpy()
    return weights


def _compute_mean_weight(weights: Floats, background: Floats) -> float:
    """Return the expected weight of a 4-mer of independent residues with these frequencies, (20,)."""
    mean = weights.reshape([len(AMINO_ACIDS)] * K)  # (M,) -> (20, 20, 20, 20)
    for _ in range(K):
        mean = mean @ background
    return float(mean)


def _distribute_weights(repertoire: Repertoire, row: int, weights: Floats) -> Floats:
    """Return the weights of a sequence's 4-mers, divided among their residues, (length,)."""
    start, stop = repertoire.offsets[row : row + 2].tolist()
    residues = np.asarray(repertoire.residues[start:stop], np.int64)
    added = np.zeros(len(residues))
    n_kmers = len(residues) - K + 1
    if n_kmers > 0:
        codes = np.zeros(n_kmers, np.int64)
        for place in range(K):
            codes = codes * len(AMINO_ACIDS) + residues[place : place + n_kmers]
        for place in range(K):
            added[place : place + n_kmers] += weights[codes] / K
    return added
