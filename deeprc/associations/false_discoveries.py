"""The false discovery rate by permutations of the labels between donors.

Letters: n tests with a low p-value, P permutations, Z bins of p-values, from the largest p-values to the smallest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["compute_permutation_q_values"]

_ROUNDING = 1e-9


def compute_permutation_q_values(
    bins: NDArray[np.int64], counts: NDArray[np.signedinteger[Any]]
) -> NDArray[np.float64]:
    """Return the q-value of each test, (n,).

    At each limit of the p-value, the mean number of tests that reach it over all labellings, permuted and not, is
    divided by the number that reach it with the true labels. A q-value is the minimum over all limits that the test
    reaches. As clones that the same donors carry reach a limit together, such a ratio is sometimes low by chance. So
    no q-value is below the share of labellings whose own minimum is as low as that of the true labels: without any
    association, the probability of any q-value below a level is at most this level.

    Parameters
    ----------
    bins
        The bin of the p-value of each test, (n,).
    counts
        Number of tests in each bin with the true labels, and with each permutation, (1 + P, Z).
    """
    reached = counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    ratios = np.divide(reached.mean(axis=0), reached, out=np.full(reached.shape, np.inf), where=reached > 0)
    lowest = ratios.min(axis=1)
    share = float((lowest <= lowest[0] * (1 + _ROUNDING)).mean())
    q_values = np.minimum.accumulate(ratios[0])[bins]
    return np.asarray(np.minimum(np.maximum(q_values, share), 1.0))
