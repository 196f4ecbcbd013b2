"""Association of two categories: Cramer's V, and a permutation test.

Letters: U units, K (k) levels of a category, C (c) classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["compute_cramers_v", "compute_permutation_p"]

_MIN_PERMUTATIONS = 1000
_CHUNK = 1000  # number of permutations that are computed at once
_MAX_REACHED = 20  # number of permutations with as strong an association that make the p-value precise enough
_SEED = 0


def _compute_chi_square(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the chi-square statistic of contingency tables, (..., K, C), without empty rows or columns."""
    rows, columns = counts.sum(axis=-1, keepdims=True), counts.sum(axis=-2, keepdims=True)
    n = counts.sum(axis=(-2, -1))
    statistic: NDArray[np.float64] = n * ((counts**2 / (rows * columns)).sum(axis=(-2, -1)) - 1)
    return statistic


def compute_cramers_v(counts: NDArray[np.int64]) -> float:
    """Return Cramer's V with Bergsma's correction (Journal of the Korean Statistical Society 2013, 42:323-328)."""
    n, (k, c) = int(counts.sum()), counts.shape
    phi_squared = max(0.0, float(_compute_chi_square(counts)) / n - (k - 1) * (c - 1) / (n - 1))
    largest = min(k - (k - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1  # of phi squared
    return min(1.0, float(np.sqrt(phi_squared / largest))) if largest > 0 else 0.0


def compute_permutation_p(
    levels: NDArray[np.int64], classes: NDArray[np.int64], counts: NDArray[np.int64], alpha: float
) -> float:
    """Return the p-value of a permutation test of chi-square.

    The test stops early where the p-value is large: as soon as `_MAX_REACHED` permutations have a statistic that is at
    least as large as the observed one.

    Parameters
    ----------
    levels, classes
        Level and class of each unit, from 0, (U,) each; the classes are permuted.
    counts
        Number of units by level and class, (K, C).
    alpha
        Level of significance, which decides how many permutations are needed.
    """
    observed = float(_compute_chi_square(counts)) - 1e-9  # a permutation that differs by rounding reaches it
    rng = np.random.default_rng(_SEED)
    k, c = counts.shape
    max_permutations = max(_MIN_PERMUTATIONS, int(np.ceil(_MAX_REACHED / alpha)))
    n_permutations = n_reached = 0
    while n_permutations < max_permutations and n_reached < _MAX_REACHED:
        permuted = rng.permuted(np.tile(classes, (_CHUNK, 1)), axis=1)  # (_CHUNK, U)
        cells = (np.arange(_CHUNK)[:, None] * k + levels) * c + permuted  # in the tables, end to end
        tables = np.bincount(cells.ravel(), minlength=_CHUNK * k * c).reshape(_CHUNK, k, c)
        n_reached += int((_compute_chi_square(tables) >= observed).sum())
        n_permutations += _CHUNK
    return (n_reached + 1) / (n_permutations + 1)
