"""Paired tests of the difference between two methods on the same repertoires; Holm's correction.

Letters: B repertoires of a fold, F folds, M methods, P permutations, m positives, n negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, t

from deeprc.evaluation.auc_intervals import compute_auc_influences, compute_clustered_variance, count_degrees_of_freedom

__all__ = [
    "PairedTest",
    "adjust_by_holm",
    "compute_delong_covariance",
    "compute_midrank_aucs",
    "run_paired_auc_test",
    "run_paired_error_test",
    "run_paired_macro_auc_test",
]

_PERMUTATIONS = 2000
_SIGNS = 10_000  # draws of random signs
_CHUNK = 4_000_000  # scores that are permuted at a time


class PairedTest(NamedTuple):
    """The result of a paired test.

    Attributes
    ----------
    difference
        The measure of the first method minus that of the second.
    p_value
        The two-sided p-value.
    test
        The name of the test: "DeLong", "permutation" or "signs"; "none" if nothing can be tested.
    """

    difference: float
    p_value: float
    test: str


def compute_delong_covariance(
    label: NDArray[np.int64], scores: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the AUCs of several scores of the same repertoires, and their covariance.

    DeLong, DeLong and Clarke-Pearson, Biometrics 1988, 44:837-845, computed from midranks as Sun and Xu, IEEE Signal
    Processing Letters 2014, 21:1389-1393.

    Parameters
    ----------
    label
        Class of each repertoire, 0 or 1, (B,); both classes must occur.
    scores
        The scores of M methods, (M, B).

    Returns
    -------
    The AUCs, (M,), and the covariance, (M, M), which is NaN if a class has one repertoire only.
    """
    positive = label == 1
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    ranks = rankdata(scores, axis=1)
    # share of the other class on the right side of each positive, (M, n_positive), and negative, (M, n_negative)
    above = (ranks[:, positive] - rankdata(scores[:, positive], axis=1)) / n_negative
    below = 1 - (ranks[:, ~positive] - rankdata(scores[:, ~positive], axis=1)) / n_positive
    if min(n_positive, n_negative) < 2:
        return above.mean(axis=1), np.full((len(scores), len(scores)), np.nan)
    covariance = np.atleast_2d(np.cov(above)) / n_positive + np.atleast_2d(np.cov(below)) / n_negative
    return above.mean(axis=1), covariance


def run_paired_auc_test(
    labels: Sequence[NDArray[np.int64]],
    first: Sequence[NDArray[np.float64]],
    second: Sequence[NDArray[np.float64]],
    *,
    donors: Sequence[NDArray[np.int64]] | None = None,
    seed: int = 0,
) -> PairedTest:
    """Test whether two methods have the same mean AUC over folds, on the same repertoires.

    The test depends on the donors:

    - **Each donor has one repertoire.** DeLong's z test with the folds as strata. The difference is the mean of the
      differences of the folds. Folds share no repertoire, so its variance is the sum of their variances divided by F
      squared.
    - **Donors have several repertoires.** The variance is Obuchowski's (Biometrics 1997, 53:567-578), in which donors
      are independent. Student's t has n - 1 degrees of freedom, where n is the number of donors of the class that has
      fewer.
    - **The variance cannot be used.** It may be 0 although the AUCs differ: both methods separate every fold, or are
      constant. It is undefined if a class has one repertoire in a fold. Then a permutation test takes its place: for
      random donors, the ranks of the two methods within the fold are exchanged, 2,000 times (Bandos, Rockette and Gur,
      Statistics in Medicine 2005, 24:2873-2893).
    - **A class has one donor.** Nothing can be tested, and the p-value is 1.

    All tests take the trained models as given. They say whether the difference would be seen on other test repertoires,
    not whether it would be seen after another training.

    Parameters
    ----------
    labels
        Class of each repertoire, 0 or 1, one array (B,) for each fold; both classes must occur.
    first, second
        Scores of the first and of the second method, one array (B,) for each fold.
    donors
        Index of the donor of each repertoire, one array (B,) for each fold, with the same indices in all folds; None:
        each repertoire has its own donor.
    seed
        Seed of the random permutations.
    """
    scores_of_folds = [np.stack(pair) for pair in zip(first, second, strict=True)]
    folds = [compute_delong_covariance(label, scores) for label, scores in zip(labels, scores_of_folds, strict=True)]
    difference = float(np.mean([auc[0] - auc[1] for auc, _ in folds]))
    if abs(difference) < 1e-12:
        return PairedTest(0.0, 1.0, "DeLong")
    n_degrees = np.inf
    if donors is None:
        variances = [float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]) for _, covariance in folds]
        variance = sum(variances) / len(folds) ** 2
    else:
        influence = compute_auc_influences(labels, first)[1] - compute_auc_influences(labels, second)[1]
        donor = np.unique(np.concatenate(donors), return_inverse=True)[1]
        positive = np.concatenate(labels) == 1
        variance = compute_clustered_variance(influence, positive, donor) / len(folds) ** 2
        n_degrees = count_degrees_of_freedom(positive, donor)
        if n_degrees == 0:
            return PairedTest(difference, 1.0, "none")
    if variance > 1e-14:  # false if the variance is NaN
        return PairedTest(difference, float(2 * t.sf(abs(difference) / variance**0.5, n_degrees)), "DeLong")
    return PairedTest(
        difference, _compute_permutation_p(labels, first, second, donors, difference, seed), "permutation"
    )


def _compute_permutation_p(
    labels: Sequence[NDArray[np.int64]],
    first: Sequence[NDArray[np.float64]],
    second: Sequence[NDArray[np.float64]],
    donors: Sequence[NDArray[np.int64]] | None,
    difference: float,
    seed: int,
) -> float:
    """Return the p-value of a difference of mean AUCs if the ranks of both methods are exchanged for random donors."""
    swaps = _draw_swaps(labels, donors, seed)
    total = np.zeros(_PERMUTATIONS)  # differences of the AUCs, summed over folds
    for label, first_score, second_score, is_swapped in zip(labels, first, second, swaps, strict=True):
        first_ranks, second_ranks = rankdata(first_score), rankdata(second_score)
        step = max(1, _CHUNK // len(label))
        for start in range(0, _PERMUTATIONS, step):
            rows = slice(start, min(start + step, _PERMUTATIONS))
            total[rows] += compute_midrank_aucs(label, np.where(is_swapped[rows], second_ranks, first_ranks))
            total[rows] -= compute_midrank_aucs(label, np.where(is_swapped[rows], first_ranks, second_ranks))
    as_far = np.abs(total / len(labels)) >= abs(difference) - 1e-12
    return float((1 + as_far.sum()) / (1 + _PERMUTATIONS))


def _draw_swaps(
    labels: Sequence[NDArray[Any]], donors: Sequence[NDArray[np.int64]] | None, seed: int
) -> list[NDArray[np.bool_]]:
    """Return for each fold whether a permutation exchanges the methods for a repertoire, (P, B), alike in a donor."""
    rng = np.random.default_rng(seed)
    if donors is None:
        return [rng.random((_PERMUTATIONS, len(label))) < 0.5 for label in labels]
    different, donor = np.unique(np.concatenate(donors), return_inverse=True)
    swap = rng.random((_PERMUTATIONS, len(different))) < 0.5
    ends = np.cumsum([len(label) for label in labels])[:-1]
    return [swap[:, columns] for columns in np.split(donor, ends)]


def run_paired_macro_auc_test(
    indices: Sequence[NDArray[np.int64]],
    first: Sequence[NDArray[np.float64]],
    second: Sequence[NDArray[np.float64]],
    *,
    donors: Sequence[NDArray[np.int64]] | None = None,
    seed: int = 0,
) -> PairedTest:
    """Test whether two methods have the same mean macro AUC over folds, on the same repertoires.

    This is the permutation test of `run_paired_auc_test`: for random donors, the ranks that the two methods give their
    repertoires are exchanged. They are exchanged for all classes at once, since the AUCs of the classes are not
    independent.

    Parameters
    ----------
    indices
        Index of the class of each repertoire, one array (B,) for each fold; every class must occur.
    first, second
        Ranks of the repertoires by the method's scores for each class, one array (B, C) for each fold.
    donors, seed
        Donors and seed, as in `run_paired_auc_test`.
    """
    difference, total = 0.0, np.zeros(_PERMUTATIONS)
    swaps = _draw_swaps(indices, donors, seed)
    for index, first_ranks, second_ranks, is_swapped in zip(indices, first, second, swaps, strict=True):
        n_aucs = first_ranks.shape[1] * len(indices)  # of all classes and folds
        for code, (own, other) in enumerate(zip(first_ranks.T, second_ranks.T, strict=True)):
            member = (index == code).astype(np.int64)
            difference += float(np.subtract(*compute_midrank_aucs(member, np.stack([own, other])))) / n_aucs
            total += compute_midrank_aucs(member, np.where(is_swapped, other, own)) / n_aucs
            total -= compute_midrank_aucs(member, np.where(is_swapped, own, other)) / n_aucs
    if abs(difference) < 1e-12:
        return PairedTest(0.0, 1.0, "permutation")
    as_far = np.abs(total) >= abs(difference) - 1e-12
    return PairedTest(difference, float((1 + as_far.sum()) / (1 + _PERMUTATIONS)), "permutation")


def run_paired_error_test(
    label: NDArray[np.float64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    donors: NDArray[np.int64] | None = None,
    *,
    seed: int = 0,
) -> PairedTest:
    """Test whether two methods predict numbers equally well, on the same repertoires.

    The difference is that of r2. If the methods are equally good, the two squared errors of a repertoire can be
    exchanged. So their difference is as likely to have the other sign. The p-value is the share of random signs whose
    mean difference is at least as far from 0 as the observed one (Fisher's randomisation test of paired differences,
    1935; 10,000 draws and the observed signs). All repertoires of one donor get the same sign.

    Parameters
    ----------
    label, first, second
        True values, and the values that the first and the second method predict, (B,).
    donors
        Index of the donor of each repertoire, (B,); None: each repertoire has its own donor.
    seed
        Seed of the random signs.
    """
    errors = (label - second) ** 2 - (label - first) ** 2
    total_squares = float(((label - label.mean()) ** 2).sum())
    total = float(errors.sum())
    difference = total / total_squares if total_squares > 0 else float("nan")
    if abs(total) <= 1e-12 * float(np.abs(errors).sum()):
        return PairedTest(0.0, 1.0, "signs")
    if donors is not None:
        errors = np.asarray(np.bincount(np.unique(donors, return_inverse=True)[1], errors), np.float64)
    rng = np.random.default_rng(seed)
    n_as_far, step = 1, max(1, _CHUNK // len(errors))
    for start in range(0, _SIGNS, step):
        signs = rng.integers(0, 2, (min(step, _SIGNS - start), len(errors))) * 2 - 1
        n_as_far += int((np.abs(signs @ errors) >= abs(total) * (1 - 1e-12)).sum())
    return PairedTest(difference, n_as_far / (1 + _SIGNS), "signs")


def compute_midrank_aucs(label: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the AUC of each row of scores, (P,).

    Parameters
    ----------
    label
        Class of each repertoire, 0 or 1, (B,); both classes must occur.
    scores
        P rows of scores, (P, B).
    """
    positive = label == 1
    m, n = int(positive.sum()), int((~positive).sum())
    aucs: NDArray[np.float64] = (rankdata(scores, axis=1)[:, positive].sum(axis=1) - m * (m + 1) / 2) / (m * n)
    return aucs


def adjust_by_holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values corrected for their number by Holm's step-down method, in the same order, (M,).

    Holm, Scandinavian Journal of Statistics 1979, 6:65-70.
    """
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected
