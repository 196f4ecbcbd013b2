"""AUCs of cross-validations with their bootstrap samples and intervals, and the p-value of permuted labels.

Letters: B repertoires, F folds, R draws, S numbers of repertoires, D bootstrap samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from deeprc.arrays import Floats
from deeprc.evaluation.auc_intervals import compute_fold_aucs_interval, compute_overlap_factor
from deeprc.power.subsampling import SubsampledPlan

__all__ = [
    "MIN_VARIANCE",
    "QUANTILES",
    "FoldScores",
    "average_aucs",
    "compute_p_value",
    "measure_interval",
    "resample_aucs",
]

MIN_VARIANCE = 1e-6
"""Smallest variance of an AUC that counts."""

QUANTILES = (0.025, 0.975)
"""Quantiles that are the limits of a 95% interval."""

_N_BOOTSTRAPS = 400


class FoldScores(NamedTuple):
    """Scores of one whole cross-validation: for each fold the indices of its test repertoires, and their scores."""

    rows: list[NDArray[np.int64]]
    scores: list[Floats]


def measure_interval(runs: Sequence[FoldScores], plan: SubsampledPlan) -> tuple[float, float]:
    """Return the 95% interval of the mean AUC of the draws of one share, by `compute_fold_aucs_interval`.

    `runs` has the scores of each draw, in the test folds of `plan`.
    """
    rows_of_folds = [rows for run in runs for rows in run.rows]
    aucs = compute_fold_aucs_interval(
        [plan.folds.labels[rows] for rows in rows_of_folds],
        [scores for run in runs for scores in run.scores],
        [plan.donors[rows] for rows in rows_of_folds],
        repeats=[draw for draw, run in enumerate(runs) for _ in run.rows],
    )
    return aucs.low, aucs.high


def resample_aucs(
    by_share: Sequence[Sequence[FoldScores]], auc: Floats, shares: Floats, plan: SubsampledPlan, intervals: Floats
) -> Floats:
    """Return the AUCs of bootstrap samples of donors, (D, S), with the spread of `_compute_spread_factor`.

    If classes are separated perfectly, all bootstrap samples have the same AUC. So normal noise adds the variance that
    the samples lack, compared with `intervals`, (S, 2), the 95% intervals of `measure_interval`. A sample has the same
    noise for all shares, because the same donors are tested.
    """
    rng = np.random.default_rng([plan.seed, _N_BOOTSTRAPS])
    n_drawn = np.array([_draw_donors(plan.donors, rng) for _ in range(_N_BOOTSTRAPS)])
    samples = average_aucs(by_share, plan.folds.labels, n_drawn)
    by_draw = [np.array([_compute_auc(run, plan.folds.labels) for run in runs]) for runs in by_share]
    variance = np.nanvar(samples, axis=0)
    spread = _compute_spread_factor(variance, by_draw, shares, plan.n_folds)
    noise = rng.normal(size=(_N_BOOTSTRAPS, 1))
    deviation = np.where(noise < 0, auc - intervals[:, 0], intervals[:, 1] - auc) / norm.ppf(QUANTILES[1])  # (D, S)
    added = noise * np.sqrt(np.maximum(deviation**2 - spread**2 * variance, 0.0))
    return np.asarray(np.clip(auc + spread * (samples - auc) + added, 0.0, 1.0))


def _compute_spread_factor(variance: Floats, by_draw: Sequence[Floats], shares: Floats, n_folds: int) -> Floats:
    """Return the factor by which the choice of the training repertoires increases the deviation of each AUC, (S,).

    It is the larger of two estimates. The first is `compute_overlap_factor`, which uses the numbers of repertoires
    only. The second is from the differences between the AUCs of the draws of a share, which are large if a method
    selects features. Let V be the variance that draws of new donors would have; it is assumed to be the same for all
    shares. Then draws of the share s of the same donors have the variance (1 - s) V, and the mean over R draws has
    (s + (1 - s) / R) V.

    Parameters
    ----------
    variance
        Variance of each AUC in bootstrap samples of the tested donors, (S,).
    by_draw
        AUC of each draw, (R,), for each share.
    shares
        Shares of the donors, (S,).
    """
    resampled = [(share, aucs) for share, aucs in zip(shares, by_draw, strict=True) if share < 1]
    resampled = [(share, aucs) for share, aucs in resampled if np.isfinite(aucs).sum() > 1]
    training_variance = 0.0  # V
    if resampled:
        variance_between_draws = sum(float(np.nanvar(aucs, ddof=1)) for _, aucs in resampled)
        training_variance = variance_between_draws / sum(float(1 - share) for share, _ in resampled)
    mean_variance = training_variance * (shares + (1 - shares) / np.array([len(aucs) for aucs in by_draw]))
    ratio = 1 + mean_variance / np.maximum(variance, MIN_VARIANCE)
    return np.asarray(np.sqrt(np.maximum(ratio, compute_overlap_factor(n_folds))))


def compute_p_value(auc: float, permuted: Sequence[tuple[SubsampledPlan, FoldScores]], n_permutations: int) -> float:
    """Return the share of labellings whose AUC is not lower than `auc`.

    The true labels are one of the labellings. Permutations that were not run count as not lower.
    """
    if not n_permutations:
        return float("nan")
    permuted_aucs = [_compute_auc(run, plan.folds.labels) for plan, run in permuted]
    # NaN, of folds with one class only, is not lower
    n_lower = sum(permuted_auc < auc - 1e-12 for permuted_auc in permuted_aucs)
    return float(1 + n_permutations - n_lower) / (1 + n_permutations)


def _draw_donors(donors: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return how often each repertoire is in a bootstrap sample of the donors, (B,)."""
    different, index = np.unique(donors, return_inverse=True)
    n_drawn = np.bincount(rng.integers(0, len(different), len(different)), minlength=len(different))
    return np.asarray(n_drawn[index])


def average_aucs(
    by_share: Sequence[Sequence[FoldScores]], labels: NDArray[np.int64], n_drawn: NDArray[np.int64] | None = None
) -> Floats:
    """Return the AUC of each bootstrap sample for each number of repertoires, (D, S).

    It is the mean over all folds of all runs; folds with one class are left out. `n_drawn`, (D, B), says how often each
    repertoire is in a sample; None: there is one sample, with each repertoire once.
    """
    n_drawn = np.ones((1, len(labels)), np.int64) if n_drawn is None else n_drawn
    means = np.full((len(n_drawn), len(by_share)), np.nan)
    for index, runs in enumerate(by_share):
        tests = [test for run in runs for test in zip(run.rows, run.scores, strict=True)]
        aucs = np.array([_compute_sample_aucs(labels[rows], scores, n_drawn[:, rows]) for rows, scores in tests])
        is_defined = np.isfinite(aucs)  # (runs x F, D)
        count = is_defined.sum(axis=0)
        means[count > 0, index] = (np.where(is_defined, aucs, 0.0).sum(axis=0) / np.maximum(count, 1))[count > 0]
    return means


def _compute_auc(run: FoldScores, labels: NDArray[np.int64]) -> float:
    """Return the mean AUC of the folds of one cross-validation; folds with one class are left out."""
    return float(average_aucs([[run]], labels)[0, 0])


def _compute_sample_aucs(labels: NDArray[np.int64], scores: Floats, n_drawn: NDArray[np.int64]) -> Floats:
    """Return the AUC of each bootstrap sample, (D,); NaN if a class is missing.

    `labels` and `scores`, (B,), are those of the repertoires, and `n_drawn` is that of `average_aucs`.
    """
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, scores[order][1:] != scores[order][:-1]])  # of runs of equal scores
    ordered, positive = n_drawn[:, order].astype(np.float64), labels[order] == 1
    n_positive, n_negative = (
        np.add.reduceat(np.where(rows, ordered, 0.0), starts, axis=1) for rows in (positive, ~positive)
    )
    n_pairs = n_positive.sum(axis=1) * n_negative.sum(axis=1)
    n_ordered_pairs = (n_positive * (n_negative.cumsum(axis=1) - n_negative / 2)).sum(axis=1)
    return np.asarray(np.where(n_pairs > 0, n_ordered_pairs / np.maximum(n_pairs, 1), np.nan))
