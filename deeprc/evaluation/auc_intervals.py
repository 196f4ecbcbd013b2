"""Confidence intervals of an AUC, or of the mean AUC of cross-validation, also with several repertoires per donor.

The interval begins with the variance that class sizes alone give. This variance is multiplied by two factors, where
they apply. The **design effect** of donors is measured from the predictions: repertoires of one donor are alike, so
they say less than repertoires of as many donors. The **overlap** of training sets is a constant: in cross-validation,
each repertoire is tested in one fold and used for training in all others, so the AUCs of folds are correlated.

Letters: B repertoires of a fold, F folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.stats import norm, rankdata, t

__all__ = [
    "FoldAucs",
    "auc_influences",
    "auc_interval",
    "count_freedom",
    "donors_variance",
    "fold_aucs_interval",
    "measure_design_effect",
    "overlap_factor",
]

_ROUNDING = 1e-12
_QUANTILE = 0.975  # of 95% intervals

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def auc_interval(
    auc: float, n_positive: ArrayLike, n_negative: ArrayLike, *, level: float = 0.95, variance_factor: float = 1.0
) -> tuple[float, float]:
    """Return a confidence interval of an AUC, or of the mean of the AUCs of separate folds, from class sizes alone.

    Newcombe's score-like interval (Statistics in Medicine 2006, 25:559-573, method 5): all AUCs θ whose distance to the
    observed one is at most z standard errors *at θ*, with Hanley and McNeil's variance. Unlike a bootstrap or
    DeLong's, it does not shrink to a point where a small test fold is separated perfectly. F folds share no repertoire,
    so the variance of the mean of their AUCs is the sum of their variances divided by F squared.

    Parameters
    ----------
    auc
        The observed AUC, in [0, 1].
    n_positive, n_negative
        Number of repertoires in each class, at least 1: one number, or one per fold, (F,).
    level
        The level of confidence.
    variance_factor
        What the variance is multiplied by, at least 1: the design effect of donors, the overlap of training sets.

    Returns
    -------
    The lower and upper limit.
    """
    z = float(norm.ppf(0.5 + level / 2)) * variance_factor**0.5
    positives, negatives = (np.atleast_1d(np.asarray(size, np.float64)) for size in (n_positive, n_negative))
    n_star = (positives + negatives) / 2 - 1

    def variance(theta: float) -> float:
        pairs = 1 + n_star * (1 - theta) / (2 - theta) + n_star * theta / (1 + theta)
        return float((theta * (1 - theta) * pairs / (positives * negatives)).sum()) / len(n_star) ** 2

    def distance(theta: float) -> float:
        return float(abs(auc - theta) - z * variance(theta) ** 0.5)

    low, high = 1e-12, 1 - 1e-12  # the variance vanishes at 0 and 1, so an observed 0 or 1 would be a root itself
    observed = min(max(auc, low), high)
    lower = 0.0 if auc <= low else float(brentq(distance, low, observed))
    upper = 1.0 if auc >= high else float(brentq(distance, observed, high))
    return lower, upper


class FoldAucs(NamedTuple):
    """The AUC of each fold, (F,), and the 95% interval of their mean."""

    aucs: Floats
    low: float
    high: float


def fold_aucs_interval(
    labels: Sequence[Integers], scores: Sequence[Floats], donors: Sequence[Integers] | None = None
) -> FoldAucs:
    """Return the AUCs of the test folds of one cross-validation, and the 95% interval of their mean.

    The interval is `auc_interval` with the variance times `measure_design_effect` and `overlap_factor`. It is one of
    the method: which mean AUC the method has if it learns from, and is tested on, other repertoires of the same kind.
    With one fold there is no overlap, and the interval is one of this one trained model. `docs/experiments.md` has its
    coverage in simulations of the whole protocol.

    Parameters
    ----------
    labels
        For each fold, the class of each repertoire, 0 or 1, each at least once, (B,).
    scores
        For each fold, the score of each repertoire, (B,).
    donors
        For each fold, the number of each repertoire's donor, (B,), the same in all folds; by default each is its own.
    """
    aucs, _ = auc_influences(labels, scores)
    sizes = [int(label.sum()) for label in labels], [int((1 - label).sum()) for label in labels]
    factor = overlap_factor(len(labels)) * (1.0 if donors is None else measure_design_effect(labels, scores, donors))
    return FoldAucs(aucs, *auc_interval(float(aucs.mean()), *sizes, variance_factor=factor))


def overlap_factor(n_folds: int) -> float:
    """Return by how much the variance of a mean over folds exceeds that of folds that learn from separate repertoires.

    Nadeau and Bengio (Machine Learning 2003, 52:239-281) estimate the correlation of the folds by the share of the
    repertoires that is tested. Then the variance of the mean is (1 / F + n_test / n_train) times that of a fold, and
    not 1 / F; n_test / n_train is 1 / (F - 1). So the factor is 1 + F / (F - 1): 2.25 for five folds. It is 1 for one.
    """
    return 1.0 if n_folds < 2 else 1 + n_folds / (n_folds - 1)


def measure_design_effect(labels: Sequence[Integers], scores: Sequence[Floats], donors: Sequence[Integers]) -> float:
    """Return by how much donors with several repertoires increase the variance of an AUC, at least 1.

    This is Obuchowski's variance for clustered data (Biometrics 1997, 53:567-578) divided by DeLong's, both from the
    repertoires of all folds together. It is at most the largest number of repertoires that one donor has in one class;
    it is this number if a variance cannot be measured because the classes are separated perfectly, or because a class
    has one donor only. With few donors, Obuchowski's variance is uncertain itself. Therefore it is multiplied by the
    square of Student's quantile over the normal one, with the donors of the smaller class minus 1 as degrees of
    freedom.

    Parameters
    ----------
    labels, scores, donors
        As of `fold_aucs_interval`.
    """
    _, influence = auc_influences(labels, scores)
    positive, (_, donor) = np.concatenate(labels) == 1, np.unique(np.concatenate(donors), return_inverse=True)
    largest = int(np.bincount(2 * donor + positive).max())
    alone = donors_variance(influence, positive, np.arange(len(donor)))
    together = donors_variance(influence, positive, donor)
    if largest == 1 or alone < _ROUNDING or np.isnan(together):
        return float(largest)
    widening = (t.ppf(_QUANTILE, count_freedom(positive, donor)) / norm.ppf(_QUANTILE)) ** 2
    return float(np.clip(together / alone * widening, 1, largest))


def count_freedom(positive: NDArray[np.bool_], donor: Integers) -> int:
    """Return the number of donors in the class that has fewer, minus 1; both arrays are (B,)."""
    return min(len(np.unique(donor[own])) for own in (positive, ~positive)) - 1


def auc_influences(labels: Sequence[Integers], scores: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the AUC of each fold, (F,), and how much each repertoire of all folds adds to their sum, (all B,).

    A repertoire adds the share of the other class of its fold that is on its right side, minus the mean AUC, divided by
    the size of its class in the fold.
    """
    shares, sizes = [], []
    for label, score in zip(labels, scores, strict=True):
        positive = label == 1
        ranks, share = rankdata(score), np.empty(len(label))
        share[positive] = (ranks[positive] - rankdata(score[positive])) / (~positive).sum()
        share[~positive] = 1 - (ranks[~positive] - rankdata(score[~positive])) / positive.sum()
        shares.append(share)
        sizes.append(np.where(positive, positive.sum(), (~positive).sum()))
    aucs = np.array([share[label == 1].mean() for label, share in zip(labels, shares, strict=True)])
    return aucs, (np.concatenate(shares) - aucs.mean()) / np.concatenate(sizes)


def donors_variance(influence: Floats, positive: NDArray[np.bool_], donor: Integers) -> float:
    """Return the variance of a sum of `auc_influences` if donors are independent (Obuchowski 1997).

    It is NaN if a class has one donor only.

    Parameters
    ----------
    influence
        How much each repertoire adds, or the difference of what it adds for two methods, (B,).
    positive
        Whether each repertoire is positive, (B,).
    donor
        The index of each repertoire's donor, (B,).
    """
    n_donors = 1 + int(donor.max())
    totals = [np.bincount(donor[own], influence[own], minlength=n_donors) for own in (positive, ~positive)]
    has = [np.bincount(donor[own], minlength=n_donors) > 0 for own in (positive, ~positive)]
    variance = 0.0
    for total, known in zip(totals, has, strict=True):
        n = int(known.sum())
        if n < 2:
            return float("nan")
        variance += float((total**2).sum()) * n / (n - 1)
    if (has[0] & has[1]).any():
        variance += 2 * float(totals[0] @ totals[1]) * n_donors / (n_donors - 1)
    return variance
