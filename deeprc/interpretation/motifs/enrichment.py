"""Tests of enrichment: Fisher's exact test, in logarithms, and odds ratios."""

from __future__ import annotations

from math import expm1, lgamma, log

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit

__all__ = ["compute_fisher_log_p", "compute_odds_ratio"]

_NEGLIGIBLE = 1e-17


def compute_fisher_log_p(
    n_with: NDArray[np.int64], n: int, others_with: NDArray[np.int64], others: int
) -> NDArray[np.float64]:
    """Return the natural logarithms of the one-sided p-values of E tables, which do not underflow.

    Parameters
    ----------
    n_with, n
        Number of sequences with the property, (E,), and number of all sequences.
    others_with, others
        The same two numbers for the sequences to compare with.

    Returns
    -------
    Logarithms, (E,), of the probability that n sequences, drawn without replacement from all, have at least as many
    with the property.
    """
    log_p = np.empty(len(n_with))
    _compute_log_p(
        np.ascontiguousarray(n_with, np.int64), n, np.ascontiguousarray(others_with, np.int64), others, log_p
    )
    return log_p


@njit(nogil=True)
def _compute_log_p(
    n_with: NDArray[np.int64], n: int, others_with: NDArray[np.int64], others: int, log_p: NDArray[np.float64]
) -> None:
    """Write the logarithm of the one-sided p-value of each table; see `compute_fisher_log_p`."""
    for i in range(len(n_with)):
        a, carriers = n_with[i], n_with[i] + others_with[i]
        if a <= max(0, carriers - others):
            log_p[i] = 0.0
        elif a * (n + others) > n * carriers:  # more than expected
            log_p[i] = min(0.0, _log_tail(a, carriers, n, others, upwards=True))
        else:  # the larger tail is 1 minus the smaller one
            log_p[i] = log(-expm1(min(-1e-300, _log_tail(a - 1, carriers, n, others, upwards=False))))


@njit(nogil=True)
def _log_tail(a: int, carriers: int, n: int, others: int, upwards: bool) -> float:
    """Return log P(X >= a), or log P(X <= a), of a hypergeometric X, if a lies on this side of its mean."""
    first: float = (
        _log_binomial(carriers, a) + _log_binomial(n + others - carriers, n - a) - _log_binomial(n + others, n)
    )
    term, total, x = 1.0, 1.0, a  # relative to the first term
    while term > total * _NEGLIGIBLE:
        if upwards:
            term *= (carriers - x) / (x + 1.0) * ((n - x) / (others - carriers + x + 1.0))
            x += 1
        else:
            term *= x / (carriers - x + 1.0) * ((others - carriers + x) / (n - x + 1.0))
            x -= 1
        total += term
    return first + log(total)


@njit(nogil=True)
def _log_binomial(n: int, k: int) -> float:
    """Return the logarithm of the binomial coefficient of n and k."""
    value: float = lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0)
    return value


def compute_odds_ratio(n_with: int, n: int, others_with: int, others: int) -> float:
    """Return the odds ratio of a property: `n_with` of n sequences have it, and `others_with` of the others.

    If one of the four cells is 0, 0.5 is added to each.
    """
    cells = [n_with, n - n_with, others_with, others - others_with]
    a, b, c, d = (cell + 0.5 * (0 in cells) for cell in cells)
    return a * d / (b * c)
