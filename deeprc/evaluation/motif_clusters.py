"""Clusters of similar motifs, so that shifted and partial versions of one motif count once.

Letters: M motifs, W positions of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

__all__ = ["cluster_motifs", "compute_similarity"]

_ALIKE = 0.6  # smallest similarity in a cluster; three of four common positions give 0.87, two of four 0.5


def compute_similarity(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the cosine similarity of two motifs' letter heights, (W, 20) each, at their best offset: 1 if equal.

    At positions that only one of them has, the heights of the other are 0.
    """
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norm == 0:
        return 0.0
    products = a @ b.T  # (W_a, W_b): products of position i and position j
    return max(float(np.trace(products, offset)) for offset in range(1 - len(a), len(b))) / norm


def cluster_motifs(heights: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
    """Return the cluster of each motif, (M,), from 1: average linkage of 1 - similarity, cut at 0.4."""
    n_motifs = len(heights)
    if n_motifs < 2:
        return np.ones(n_motifs, np.int64)
    distance = np.zeros((n_motifs, n_motifs))
    for i in range(n_motifs):
        for j in range(i):
            distance[i, j] = distance[j, i] = max(0.0, 1.0 - compute_similarity(heights[i], heights[j]))
    return np.asarray(fcluster(linkage(squareform(distance), "average"), 1.0 - _ALIKE, "distance"), np.int64)
