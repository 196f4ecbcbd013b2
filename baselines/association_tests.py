"""Measure how the presence of features is associated with the label: phi coefficients, exact tests and rank sums.

They depend on two numbers only: how many repertoires carry a feature, and how many of these are positive (or the sum of
their ranks). Millions of features share a few thousand such pairs, so many features are tested at once.

Letters: B repertoires, P of them positive; M features, each with n carriers, a of them positive; T thresholds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtr, ndtri
from scipy.stats import rankdata

from deeprc.compilation import njit

__all__ = [
    "FISHER",
    "RANK_SUM",
    "AssociationTest",
    "adjust_by_benjamini_hochberg",
    "compute_double_ranks",
    "compute_fisher_p_values",
    "compute_phi_coefficients",
    "find_critical_carriers",
    "log_factorials",
    "log_pmf",
]


class AssociationTest(NamedTuple):
    """A one-sided test of whether the repertoires that carry a feature have higher labels than the others.

    Labels are whole numbers, so that the sum over the carriers of a feature does not depend on their order.

    Attributes
    ----------
    find_critical_sums
        Function of the thresholds, (T,), and the labels of all repertoires, (B,). It returns the smallest sum of labels
        for which the p-value is below each threshold, by the number of carriers of a feature, (T, B + 1).
    compute_p_values
        Function of the sums of the carriers' labels, (M,), the numbers of carriers, (M,), and the labels of all
        repertoires, (B,). It returns the p-values, (M,).
    """

    find_critical_sums: Callable[[ArrayLike, NDArray[np.int64]], NDArray[np.int64]]
    compute_p_values: Callable[[ArrayLike, ArrayLike, NDArray[np.int64]], NDArray[np.float64]]


def compute_phi_coefficients(
    positive_carriers: ArrayLike, carriers: ArrayLike, n_positive: int, n_repertoires: int
) -> NDArray[np.float64]:
    """Return the phi coefficient of presence and label, (M,): Pearson's correlation of two binary variables.

    For a feature that all or no repertoires carry, where it is not defined, the result is 0.

    Parameters
    ----------
    positive_carriers, carriers
        Numbers of positive repertoires and of all repertoires that carry each feature, (M,) each.
    n_positive, n_repertoires
        Numbers of positive and of all repertoires, P and B.
    """
    a, n = np.asarray(positive_carriers, np.float64), np.asarray(carriers, np.float64)
    product_of_margins = n * (n_repertoires - n) * n_positive * (n_repertoires - n_positive)
    phi = np.zeros(np.broadcast(a, n).shape)
    np.divide(a * n_repertoires - n * n_positive, np.sqrt(product_of_margins), out=phi, where=product_of_margins > 0)
    return phi


def compute_fisher_p_values(
    positive_carriers: ArrayLike, carriers: ArrayLike, n_positive: int, n_repertoires: int
) -> NDArray[np.float64]:
    """Return the one-sided p-values of Fisher's exact test, (M,), with the alternative that positives carry more often.

    The p-value is the probability that at least as many of n carriers, drawn at random from the B repertoires, are
    among the P positives. This upper tail of the hypergeometric distribution is summed from its end, so that small
    values are precise. Each pair of numbers that occurs is computed once. The parameters are those of
    `compute_phi_coefficients`.
    """
    a, n = np.broadcast_arrays(np.asarray(positive_carriers, np.int64), np.asarray(carriers, np.int64))
    pairs, inverse = np.unique(n * (n_positive + 1) + a, return_inverse=True)
    values = _compute_tails(*np.divmod(pairs, n_positive + 1), n_positive, n_repertoires, log_factorials(n_repertoires))
    return np.asarray(values[inverse].reshape(n.shape))


def find_critical_carriers(thresholds: ArrayLike, n_positive: int, n_repertoires: int) -> NDArray[np.int64]:
    """Return the number of positive carriers that a feature needs for a p-value below each threshold, (T, B + 1).

    The second axis is the number of carriers of the feature. The result is P + 1 if even P positive carriers are too
    few.
    """
    logs = log_factorials(n_repertoires)
    return np.asarray(_find_critical(np.asarray(thresholds, np.float64), n_positive, n_repertoires, logs))


def compute_double_ranks(values: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return twice the rank of each value, (B,); equal values have their mean rank, so that this is a whole number."""
    return np.asarray(np.rint(2 * rankdata(values)), np.int64)


def adjust_by_benjamini_hochberg(p_values: NDArray[np.float64], n_tests: int) -> NDArray[np.float64]:
    """Return the q-values, (M,), of the M smallest of `n_tests` p-values, (M,), in any order."""
    order = np.argsort(p_values, kind="stable")
    ratios = p_values[order] * n_tests / np.arange(1, len(order) + 1)
    q_values = np.empty(len(order))
    q_values[order] = np.minimum(np.minimum.accumulate(ratios[::-1])[::-1], 1.0)
    return q_values


def _find_critical_fisher_sums(thresholds: ArrayLike, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of labels that Fisher's test needs; see `AssociationTest`."""
    return find_critical_carriers(thresholds, int(labels.sum()), len(labels))


def _compute_p_values_by_fisher(
    label_sums: ArrayLike, carriers: ArrayLike, labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the p-values of Fisher's exact test, (M,); parameters as of `AssociationTest.compute_p_values`."""
    return compute_fisher_p_values(label_sums, carriers, int(labels.sum()), len(labels))


def _compute_rank_sum_moments(carriers: NDArray[np.int64], ranks: NDArray[np.int64]) -> tuple[Any, Any]:
    """Return mean and standard deviation of the rank sum of n carriers that are drawn at random, (M,) each."""
    n, n_all = carriers, len(ranks)
    variance = n * (n_all - n) * (ranks.var() / max(n_all - 1, 1))
    return n * ranks.mean(), np.sqrt(np.maximum(variance, 0.0))


def _find_critical_rank_sums(thresholds: ArrayLike, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the smallest rank sum that is significant, by threshold and number of carriers, (T, B + 1)."""
    mean, deviation = _compute_rank_sum_moments(np.arange(len(labels) + 1), labels)
    z = -ndtri(np.asarray(thresholds, np.float64))
    needed = np.floor(mean + z[:, None] * deviation).astype(np.int64) + 1
    return np.where(deviation > 0, needed, int(labels.sum()) + 1)


def _compute_p_values_by_rank_sum(
    label_sums: ArrayLike, carriers: ArrayLike, labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the p-values of rank sums, (M,), by the normal approximation; parameters as of `AssociationTest`."""
    sums, n = np.broadcast_arrays(np.asarray(label_sums, np.int64), np.asarray(carriers, np.int64))
    mean, deviation = _compute_rank_sum_moments(n, labels)
    z = np.divide(sums - mean, deviation, out=np.full(sums.shape, -np.inf), where=deviation > 0)
    return np.asarray(ndtr(-z))


FISHER = AssociationTest(_find_critical_fisher_sums, _compute_p_values_by_fisher)
"""Fisher's exact test; the labels are 0 and 1."""

RANK_SUM = AssociationTest(_find_critical_rank_sums, _compute_p_values_by_rank_sum)
"""Wilcoxon's rank-sum test by its normal approximation; the labels are `compute_double_ranks`."""


@njit(nogil=True)
def _compute_tails(
    n: NDArray[np.int64], a: NDArray[np.int64], n_positive: int, n_repertoires: int, logs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the probability of at least `a` positive carriers among `n`, for each pair, (M,)."""
    values = np.ones(len(n))
    for i in range(len(n)):
        fewest, most = max(0, n[i] - (n_repertoires - n_positive)), min(n[i], n_positive)
        if a[i] > fewest:
            tail = 0.0
            for n_hits in range(most, a[i] - 1, -1):
                tail += np.exp(log_pmf(n_hits, n[i], n_positive, n_repertoires, logs))
            values[i] = min(tail, 1.0)
    return values


@njit(nogil=True)
def _find_critical(
    thresholds: NDArray[np.float64], n_positive: int, n_repertoires: int, logs: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return what `find_critical_carriers` returns.

    Tails are summed as in `_compute_tails`, so that both functions agree on a threshold.
    """
    needed = np.full((len(thresholds), n_repertoires + 1), n_positive + 1, np.int64)
    for n in range(n_repertoires + 1):
        fewest, most = max(0, n - (n_repertoires - n_positive)), min(n, n_positive)
        tail = 0.0
        for n_hits in range(most, fewest - 1, -1):
            if n_hits > fewest:
                tail = min(tail + np.exp(log_pmf(n_hits, n, n_positive, n_repertoires, logs)), 1.0)
            else:
                tail = 1.0
            passes_any = False
            for t in range(len(thresholds)):
                if tail < thresholds[t]:
                    needed[t, n] = n_hits
                    passes_any = True
            if not passes_any:
                break
    return needed


def log_factorials(n: int) -> NDArray[np.float64]:
    """Return the logarithms of the factorials of 0 to n, (n + 1,)."""
    return np.asarray(gammaln(np.arange(n + 1) + 1.0))


@njit(nogil=True)
def log_pmf(x: int, n: int, n_positive: int, n_all: int, logs: NDArray[np.float64]) -> Any:
    """Return the log-probability that x of n units are positive, which are drawn at random from `n_all` units.

    `n_positive` is the number of positive units among all. `logs` are the log-factorials of 0 to `n_all` at least.
    """
    n_negative, y = n_all - n_positive, n - x
    log_tables = logs[n_positive] - logs[x] - logs[n_positive - x] + logs[n_negative] - logs[y] - logs[n_negative - y]
    return log_tables - (logs[n_all] - logs[n] - logs[n_all - n])
