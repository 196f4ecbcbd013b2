"""Whether two methods have the same AUC on the same repertoires: DeLong's test by fold, permutations, Holm's method.

Letters: B repertoires of a fold, F folds, M methods, P permutations, m positives, n negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

__all__ = ["PairedTest", "delong_covariance", "holm", "midrank_aucs", "paired_auc_test"]

_PERMUTATIONS = 2000
_CHUNK = 4_000_000  # scores that are permuted at a time


class PairedTest(NamedTuple):
    """The mean AUC of one method less that of another, two-sided p-value, and the test: "DeLong" or "permutation"."""

    difference: float
    p_value: float
    test: str


def delong_covariance(
    label: NDArray[np.int64], scores: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the AUCs of several scores of the same repertoires, and their covariance.

    DeLong, DeLong and Clarke-Pearson, Biometrics 1988, 44:837-845, computed from midranks as Sun and Xu, IEEE Signal
    Processing Letters 2014, 21:1389-1393.

    Parameters
    ----------
    label
        0 or 1, of both at least one, (B,).
    scores
        Of M methods, (M, B).

    Returns
    -------
    The AUCs, (M,), and the covariance, (M, M), which is NaN if a class has one repertoire only.
    """
    positive = label == 1
    m, n = int(positive.sum()), int((~positive).sum())
    ranks = rankdata(scores, axis=1)
    # the share of the other class on the right side of each positive, (M, m), and of each negative, (M, n)
    above = (ranks[:, positive] - rankdata(scores[:, positive], axis=1)) / n
    below = 1 - (ranks[:, ~positive] - rankdata(scores[:, ~positive], axis=1)) / m
    if min(m, n) < 2:
        return above.mean(axis=1), np.full((len(scores), len(scores)), np.nan)
    covariance = np.atleast_2d(np.cov(above)) / m + np.atleast_2d(np.cov(below)) / n
    return above.mean(axis=1), covariance


def paired_auc_test(
    labels: Sequence[NDArray[np.int64]],
    first: Sequence[NDArray[np.float64]],
    second: Sequence[NDArray[np.float64]],
    *,
    seed: int = 0,
) -> PairedTest:
    """Test whether two methods have the same mean AUC over folds, on the same repertoires.

    DeLong's z test with the folds as strata: the difference is the mean of the folds' differences, and as folds share
    no repertoire its variance is the sum of theirs over F squared. Where that variance is 0 though the AUCs differ
    (both methods separate every fold, or are constant) or undefined (a class has one repertoire in a fold), a
    permutation test takes its place: the two methods' ranks within the fold are exchanged for random repertoires
    (Bandos, Rockette and Gur, Statistics in Medicine 2005, 24:2873-2893), 2,000 times.

    Both tests take the trained models as given: they tell whether the difference would show on other repertoires, not
    whether it would after training on others. Both take repertoires as independent, which several of one donor are not.

    Parameters
    ----------
    labels
        0 or 1, of both at least one, per fold, each (B,).
    first, second
        The scores of each method, as `labels`.
    seed
        Of the permutations.
    """
    parts = [delong_covariance(label, np.stack([a, b])) for label, a, b in zip(labels, first, second, strict=True)]
    difference = float(np.mean([auc[0] - auc[1] for auc, _ in parts]))
    if abs(difference) < 1e-12:
        return PairedTest(0.0, 1.0, "DeLong")
    variance = sum(float(c[0, 0] + c[1, 1] - 2 * c[0, 1]) for _, c in parts) / len(parts) ** 2
    if variance > 1e-14:  # NaN is not
        return PairedTest(difference, float(2 * norm.sf(abs(difference) / variance**0.5)), "DeLong")
    return PairedTest(difference, _permutation_p(labels, first, second, difference, seed), "permutation")


def _permutation_p(
    labels: Sequence[NDArray[np.int64]],
    first: Sequence[NDArray[np.float64]],
    second: Sequence[NDArray[np.float64]],
    difference: float,
    seed: int,
) -> float:
    rng = np.random.default_rng(seed)
    total = np.zeros(_PERMUTATIONS)
    for label, a, b in zip(labels, first, second, strict=True):
        a_ranks, b_ranks = rankdata(a), rankdata(b)
        step = max(1, _CHUNK // len(label))
        for start in range(0, _PERMUTATIONS, step):
            rows = slice(start, min(start + step, _PERMUTATIONS))
            swap = rng.random((rows.stop - rows.start, len(label))) < 0.5
            total[rows] += midrank_aucs(label, np.where(swap, b_ranks, a_ranks))
            total[rows] -= midrank_aucs(label, np.where(swap, a_ranks, b_ranks))
    as_far = np.abs(total / len(labels)) >= abs(difference) - 1e-12
    return float((1 + as_far.sum()) / (1 + _PERMUTATIONS))


def midrank_aucs(label: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the AUC of each row of scores, (P, B), given labels of 0 and 1, of both at least one, (B,)."""
    positive = label == 1
    m, n = int(positive.sum()), int((~positive).sum())
    aucs: NDArray[np.float64] = (rankdata(scores, axis=1)[:, positive].sum(axis=1) - m * (m + 1) / 2) / (m * n)
    return aucs


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values corrected for their number by Holm's step-down method, in the same order, (M,).

    Holm, Scandinavian Journal of Statistics 1979, 6:65-70.
    """
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected
