"""How the score of a gene is divided among the sequences of a repertoire that have it.

Letters: N sequences, T outputs, G genes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deeprc.arrays import Floats
from deeprc.baselines.gene_usage import compute_centred_log_ratios
from deeprc.datasets.categorical import Categorical

__all__ = ["share_gene_scores"]


def share_gene_scores(
    names: Sequence[str], weights: Floats, centre: Floats, calls: Categorical, factors: Floats
) -> tuple[Floats, Floats]:
    """Divide the score of each gene among the sequences that have it.

    Parameters
    ----------
    names
        Names of the G genes of a field.
    weights, centre
        Weights of their centred log-ratios, (T, G), and the means of these, (G,).
    calls
        Gene of each sequence of the repertoire.
    factors
        How much each sequence counts, (N,).

    Returns
    -------
    tuple
        Share of a sequence by the code of its gene in the repertoire's vocabulary, (T, vocabulary), and the summed
        scores of the genes that no sequence has, (T,).
    """
    code_of = {name: code for code, name in enumerate(calls.vocabulary)}
    codes = np.array([code_of.get(name, -1) for name in names], np.int64)  # -1: not in the vocabulary
    of_vocabulary = np.rint(calls.sum_weights(factors))
    counts = np.where(codes >= 0, of_vocabulary[codes], 0)  # sequences, or families, with each gene, (G,)
    gene_scores = weights * (compute_centred_log_ratios(counts[None])[0] - centre)  # (T, G)
    is_present = counts > 0
    shares = np.zeros((len(gene_scores), len(calls.vocabulary)))
    shares[:, codes[is_present]] = gene_scores[:, is_present] / counts[is_present]
    return shares, gene_scores[:, ~is_present].sum(axis=1)
