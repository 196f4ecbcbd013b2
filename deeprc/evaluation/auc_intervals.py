"""Confidence intervals of an AUC, or of the mean AUC of cross-validation, also with several repertoires per donor.

The interval begins with the variance that class sizes alone give. This variance is multiplied by two factors, where
they apply. The **design effect** of donors is measured from the predictions: repertoires of one donor are alike, so
they have less information than repertoires of different donors. The **overlap** of training sets is a constant: in
cross-validation, each repertoire is tested in one fold and used for training in all others, so the AUCs of folds are
correlated. If a cross-validation is repeated with other divisions and seeds, the predictions show how much of the
variance is common to all repeats. Only this part grows by the overlap, and the rest is divided by the number of
repeats.

So the functions call each other in this way:

    compute_fold_aucs_interval            AUC of each fold, and the interval of their mean
        compute_auc_influences            what each repertoire adds to the AUCs; all variances below are of these
        measure_variance_factor           the two factors together
            measure_overlap
            measure_design_effect
        compute_auc_interval              the interval, with this factor

Letters: B repertoires of a fold, N of all folds together, F folds (arrays of labels), R repeats of a cross-validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.stats import norm, rankdata, t

from deeprc.arrays import Floats, Integers

__all__ = [
    "FoldAucs",
    "check_donors_of_repeats",
    "compute_auc_influences",
    "compute_auc_interval",
    "compute_clustered_variance",
    "compute_fold_aucs_interval",
    "compute_overlap_factor",
    "count_degrees_of_freedom",
    "measure_design_effect",
    "measure_overlap",
    "measure_variance_factor",
]

_ROUNDING = 1e-12  # a smaller variance is 0: the classes are separated perfectly
_QUANTILE = 0.975  # probability up to the quantile that a 95% interval uses


def compute_auc_interval(
    auc: float,
    n_positive: ArrayLike,
    n_negative: ArrayLike,
    *,
    level: float = 0.95,
    variance_factor: float = 1.0,
    weights: ArrayLike | None = None,
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
        Factor of the variance, at least 1: the design effect of donors times the overlap of training sets.
    weights
        The weight of each fold in the mean, (F,), with the sum 1; None: all are equal.

    Returns
    -------
    The lower and upper limit.
    """
    z = float(norm.ppf(0.5 + level / 2)) * variance_factor**0.5

    def distance(theta: float) -> float:
        return float(abs(auc - theta) - z * _compute_variance(theta, n_positive, n_negative, weights) ** 0.5)

    low, high = 1e-12, 1 - 1e-12  # the variance vanishes at 0 and 1, so an observed 0 or 1 would be a root itself
    observed = min(max(auc, low), high)
    lower = 0.0 if auc <= low else float(brentq(distance, low, observed))
    upper = 1.0 if auc >= high else float(brentq(distance, observed, high))
    return lower, upper


def _compute_variance(
    auc: float, n_positive: ArrayLike, n_negative: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Return Hanley and McNeil's variance of an AUC, or of the mean over folds.

    The parameters are those of `compute_auc_interval`.
    """
    positives, negatives = (np.atleast_1d(np.asarray(size, np.float64)) for size in (n_positive, n_negative))  # (F,)
    n_star = (positives + negatives) / 2 - 1  # Newcombe's N*, in place of both class sizes minus 1
    # pairs of a positive and a negative repertoire that have one of them in common are not independent
    dependence = 1 + n_star * (1 - auc) / (2 - auc) + n_star * auc / (1 + auc)
    variances = auc * (1 - auc) * dependence / (positives * negatives)
    shares = 1 / len(variances) if weights is None else np.asarray(weights)  # of the folds in the mean
    return float((variances * shares**2).sum())


class FoldAucs(NamedTuple):
    """The AUC of each fold, (F,), and the 95% interval of their mean."""

    aucs: Floats
    low: float
    high: float


def compute_fold_aucs_interval(
    labels: Sequence[Integers],
    scores: Sequence[Floats],
    donors: Sequence[Integers] | None = None,
    *,
    repeats: Sequence[int] | None = None,
) -> FoldAucs:
    """Return the AUCs of the test folds of a cross-validation, and the 95% interval of their mean.

    The interval is `compute_auc_interval` with the variance times `measure_design_effect` and `measure_overlap`. It is
    an interval for the method: for the mean AUC that the method has if it learns from, and is tested on, other
    repertoires of the same kind. With one fold there is no overlap, and the interval is for this one trained model.
    `docs/experiments.md` has its coverage in simulations of the whole protocol.

    Parameters
    ----------
    labels
        Class of each repertoire, 0 or 1, one array (B,) for each fold; both classes must occur.
    scores
        Score of each repertoire, one array (B,) for each fold.
    donors
        Index of the donor of each repertoire, one array (B,) for each fold, with the same indices in all folds; None:
        each repertoire has its own donor.
    repeats
        Index of the repeat of each fold, if each repertoire is tested once in each of several repeats; then `donors`
        are needed. None: there is one repeat.

    Raises
    ------
    ValueError
        If there are repeats without donors.
    """
    check_donors_of_repeats(donors, repeats)
    aucs, _ = compute_auc_influences(labels, scores)
    mean = float(aucs.mean())
    n_positive = [int(label.sum()) for label in labels]
    n_negative = [int((1 - label).sum()) for label in labels]
    factor = measure_variance_factor(labels, scores, donors, repeats)
    if repeats is not None:
        variance = _compute_variance(mean, n_positive, n_negative)
        if variance > _ROUNDING:
            factor += _estimate_variance_of_failures(aucs, repeats, variance) / variance
    low, high = compute_auc_interval(mean, n_positive, n_negative, variance_factor=factor)
    return FoldAucs(aucs, low, high)


def check_donors_of_repeats(donors: object, repeats: object) -> None:
    """Raise ValueError if there are repeats without donors."""
    if repeats is not None and donors is None:
        raise ValueError("expected the donors, by which the repertoires of repeats are known; found None")


def measure_variance_factor(
    labels: Sequence[Integers],
    scores: Sequence[Floats],
    donors: Sequence[Integers] | None,
    repeats: Sequence[int] | None,
    *,
    n_folds: float | None = None,
    weights: Floats | None = None,
) -> float:
    """Return the factor by which donors and the overlap of training sets increase the variance of a mean AUC.

    Parameters are those of `measure_overlap`; without donors, each repertoire has its own; without repeats, there is
    one.
    """
    if donors is None:
        return compute_overlap_factor(len(labels) if n_folds is None else n_folds)
    repeats = [0] * len(labels) if repeats is None else repeats
    overlap = measure_overlap(labels, scores, donors, repeats, n_folds=n_folds, weights=weights)
    return overlap * measure_design_effect(labels, scores, donors, weights)


def measure_overlap(
    labels: Sequence[Integers],
    scores: Sequence[Floats],
    donors: Sequence[Integers],
    repeats: Sequence[int],
    *,
    n_folds: float | None = None,
    weights: Floats | None = None,
) -> float:
    """Return the factor by which the overlap of training sets increases the variance of a mean AUC.

    The variance of the mean over R repeats has two parts: V = C + D / R. C is common to all repeats, because they test
    the same donors; D differs between repeats, because of seeds and divisions. The mean variance of a single repeat is
    W = C + D. V and W are measured, where only donors are independent; so C = (R V - W) / (R - 1). The overlap of
    training sets makes C larger by the factor f of `compute_overlap_factor`, but not D, because noise is not correlated
    over folds. So the result is (f C + D / R) / V; with one repeat, it is f.

    Parameters
    ----------
    labels, scores, donors, repeats
        The same as in `compute_fold_aucs_interval`. A fold may also be a part of a test fold, such as one of its
        batches.
    n_folds
        Number of test folds in each repeat; None: `labels` has one array for each.
    weights
        The weight of each array in the mean, see `compute_auc_influences`.
    """
    n_repeats = len(set(repeats))
    factor = compute_overlap_factor(len(labels) / n_repeats if n_folds is None else n_folds)
    if n_repeats == 1:
        return factor
    aucs, influences = compute_auc_influences(labels, scores, weights)
    is_positive = np.concatenate(labels) == 1
    donor, repeat = _index_donors(donors), np.repeat(repeats, [len(label) for label in labels])  # (N,) each
    variance_of_mean = compute_clustered_variance(influences, is_positive, donor) / len(aucs) ** 2  # V
    variances = []
    for index in set(repeats):
        rows = repeat == index
        variances.append(compute_clustered_variance(influences[rows], is_positive[rows], donor[rows]))
    variance_of_repeat = float(np.mean(variances) / (len(aucs) / n_repeats) ** 2)  # W
    if not (np.isfinite(variance_of_repeat) and variance_of_mean >= _ROUNDING):  # NaN if a class has one donor
        return factor
    common = (n_repeats * variance_of_mean - variance_of_repeat) / (n_repeats - 1)
    common = float(np.clip(common, 0, variance_of_mean))  # C
    return (common * factor + (variance_of_repeat - common) / n_repeats) / variance_of_mean


def _index_donors(donors: Sequence[Integers]) -> Integers:
    """Return the donor of each repertoire of all folds as an index from 0, (N,)."""
    return np.unique(np.concatenate(donors), return_inverse=True)[1]


def _estimate_variance_of_failures(aucs: Floats, repeats: Sequence[int], variance: float) -> float:
    """Return the variance that failed trainings add to the mean AUC over several repeats.

    If whole trainings fail by chance, the AUCs of the folds of one repeat differ by more than class sizes explain. This
    excess is independent between trainings. With one repeat there are too few folds to measure it, so the result is 0.

    Parameters
    ----------
    aucs, repeats
        AUC of each fold, and index of its repeat, (F,) each.
    variance
        Variance of the mean AUC by class sizes, if all folds were independent.
    """
    n_repeats = len(set(repeats))
    if n_repeats == 1:
        return 0.0
    mean_of = {repeat: aucs[np.asarray(repeats) == repeat].mean() for repeat in set(repeats)}
    deviations = aucs - np.array([mean_of[repeat] for repeat in repeats])  # from the mean of the repeat
    variance_of_fold = float(deviations @ deviations) / max(len(aucs) - n_repeats, 1)
    return max(variance_of_fold / len(aucs) - variance, 0.0)


def compute_overlap_factor(n_folds: float) -> float:
    """Return the factor by which common training repertoires increase the variance of a mean over folds.

    Nadeau and Bengio (Machine Learning 2003, 52:239-281) estimate the correlation of the folds by the share of the
    repertoires that is tested. Then the variance of the mean is (1 / F + n_test / n_train) times that of a fold, and
    not 1 / F; n_test / n_train is 1 / (F - 1). So the factor is 1 + F / (F - 1): 2.25 for five folds. It is 1 for one.
    """
    return 1.0 if n_folds < 2 else 1 + n_folds / (n_folds - 1)


def measure_design_effect(
    labels: Sequence[Integers], scores: Sequence[Floats], donors: Sequence[Integers], weights: Floats | None = None
) -> float:
    """Return the factor, at least 1, by which donors with several repertoires increase the variance of an AUC.

    This is Obuchowski's variance for clustered data (Biometrics 1997, 53:567-578) divided by DeLong's, both from the
    repertoires of all folds together. A repertoire that is tested in several repeats counts as several repertoires. The
    result is at most the largest number of repertoires that one donor has in one class. It is this number if a variance
    cannot be measured because the classes are separated perfectly, or because a class has one donor only. With few
    donors, Obuchowski's variance is uncertain itself. So it is multiplied by the square of Student's quantile over the
    normal one. The degrees of freedom are the donors of the smaller class minus 1.

    Parameters
    ----------
    labels, scores, donors
        The same as in `compute_fold_aucs_interval`.
    weights
        The weight of each array in the mean, see `compute_auc_influences`.
    """
    _, influences = compute_auc_influences(labels, scores, weights)
    is_positive, donor = np.concatenate(labels) == 1, _index_donors(donors)
    max_repertoires = int(np.bincount(2 * donor + is_positive).max())  # of one donor in one class
    unclustered = compute_clustered_variance(influences, is_positive, np.arange(len(donor)))  # DeLong's
    clustered = compute_clustered_variance(influences, is_positive, donor)  # Obuchowski's
    if max_repertoires == 1 or unclustered < _ROUNDING or np.isnan(clustered):
        return float(max_repertoires)
    widening = (t.ppf(_QUANTILE, count_degrees_of_freedom(is_positive, donor)) / norm.ppf(_QUANTILE)) ** 2
    return float(np.clip(clustered / unclustered * widening, 1, max_repertoires))


def count_degrees_of_freedom(positive: NDArray[np.bool_], donor: Integers) -> int:
    """Return the number of donors in the class that has fewer, minus 1; both arrays are (N,)."""
    return min(len(np.unique(donor[in_class])) for in_class in (positive, ~positive)) - 1


def compute_auc_influences(
    labels: Sequence[Integers], scores: Sequence[Floats], weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the AUC of each fold, (F,), and the influence of each repertoire of all folds on their sum, (N,).

    The influence is (share - mean AUC) / size. The share is that of `_compute_ordered_shares`, and the size that of the
    repertoire's class in its fold. The variance of the sum of the AUCs is that of the sum of the influences
    (`compute_clustered_variance`). If folds have weights, (F,) with the sum 1, it is that of F times the weighted mean.

    For example, let one fold have the positive scores 3 and 1, and the negative score 2. The shares are 1, 0 and 0.5,
    the AUC is 0.5, and the influences are 0.25, -0.25 and 0.
    """
    shares, class_sizes = [], []
    for label, score in zip(labels, scores, strict=True):
        positive = label == 1
        shares.append(_compute_ordered_shares(positive, score))
        class_sizes.append(np.where(positive, positive.sum(), (~positive).sum()))
    aucs = np.array([share[label == 1].mean() for label, share in zip(labels, shares, strict=True)])
    mean = aucs.mean() if weights is None else weights @ aucs
    influences = (np.concatenate(shares) - mean) / np.concatenate(class_sizes)
    if weights is not None:
        influences *= len(aucs) * np.repeat(weights, [len(label) for label in labels])
    return aucs, influences


def _compute_ordered_shares(positive: NDArray[np.bool_], score: Floats) -> Floats:
    """Return the share of the other class that is on the right side of each repertoire of a fold, (B,).

    For a positive repertoire, these are the negative ones with lower scores; for a negative repertoire, the positive
    ones with higher scores. Equal scores count half.
    """
    n_below = rankdata(score) - 1  # among all repertoires of the fold; ties count half
    n_below_in_class = np.empty(len(score))
    for in_class in (positive, ~positive):
        n_below_in_class[in_class] = rankdata(score[in_class]) - 1
    n_below_in_other = n_below - n_below_in_class
    return np.asarray(np.where(positive, n_below_in_other / (~positive).sum(), 1 - n_below_in_other / positive.sum()))


def compute_clustered_variance(influence: Floats, positive: NDArray[np.bool_], donor: Integers) -> float:
    """Return the variance of the sum of influences if donors are independent (Obuchowski 1997).

    It is NaN if a class has one donor only.

    Parameters
    ----------
    influence
        Influence of each repertoire, see `compute_auc_influences`, or its difference between two methods, (N,).
    positive
        Whether each repertoire is positive, (N,).
    donor
        Index of each repertoire's donor, (N,).
    """
    n_donors = 1 + int(donor.max())
    classes = (positive, ~positive)
    totals = [np.bincount(donor[in_class], influence[in_class], minlength=n_donors) for in_class in classes]
    has_class = [np.bincount(donor[in_class], minlength=n_donors) > 0 for in_class in classes]
    variance = 0.0
    for totals_of_class, in_class in zip(totals, has_class, strict=True):
        n = int(in_class.sum())  # donors of the class
        if n < 2:
            return float("nan")
        variance += float((totals_of_class**2).sum()) * n / (n - 1)
    if (has_class[0] & has_class[1]).any():  # donors with repertoires of both classes: their covariance
        variance += 2 * float(totals[0] @ totals[1]) * n_donors / (n_donors - 1)
    return variance
