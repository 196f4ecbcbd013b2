"""How often V genes and J genes are used together: features of the branch `composition`.

The feature of a V gene and a J gene is the share of the sequences that have both, minus the product of the shares of
the two genes. If a repertoire uses V and J genes independently of each other, all features are 0, however often it uses
each gene. Gene usage itself differs more between donors, and has its own features.

Letters: N sequences of one repertoire, B repertoires, G V genes and H J genes, each with one more for all sequences
whose gene is another one or unknown; T outputs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats

__all__ = ["compute_gene_pairs", "share_pair_scores"]

_DECIMALS = 10  # a feature that is 0 but for rounding is exactly 0


def compute_gene_pairs(counts: Floats) -> Floats:
    """Return the features of B repertoires, (B, G * H), from the numbers of sequences with each pair, (B, G, H)."""
    shares = counts / np.maximum(counts.sum(axis=(1, 2), keepdims=True), 1e-9)
    independent = shares.sum(axis=2, keepdims=True) * shares.sum(axis=1, keepdims=True)
    return np.asarray(np.round(shares - independent, _DECIMALS).reshape(len(counts), -1))


def share_pair_scores(
    weights: Floats, v_indices: NDArray[np.int64], j_indices: NDArray[np.int64], factors: Floats
) -> Floats:
    """Divide the sum of weights times features among the sequences of a repertoire.

    A sequence has the weight of its pair, minus half of the weight that is expected of its V gene, and half of the
    weight that is expected of its J gene, where the other gene is any one of the repertoire's sequences.

    Parameters
    ----------
    weights
        Weights of the pairs, (T, G, H).
    v_indices, j_indices
        Index of the genes of each sequence among the G and the H genes, (N,) each.
    factors
        How much each sequence counts, (N,).

    Returns
    -------
    The shares of the sequences, (T, N). Their mean, weighted by the factors, is the sum of weights times features.
    """
    n_genes = weights.shape[1:]
    of_v, of_j = (
        np.bincount(indices, factors, minlength=n) / factors.sum()
        for indices, n in zip((v_indices, j_indices), n_genes, strict=True)
    )
    expected_of_v, expected_of_j = weights @ of_j, of_v @ weights  # (T, G), (T, H)
    shares = weights - 0.5 * (expected_of_v[:, :, None] + expected_of_j[:, None, :])
    return np.asarray(shares[:, v_indices, j_indices])
