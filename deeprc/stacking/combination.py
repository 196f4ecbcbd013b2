"""A regularised logistic model that combines the scores of several methods.

Letters: B repertoires, F folds, M members, S strengths of the penalty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import mannwhitneyu

from deeprc.arrays import Floats
from deeprc.calibration import measure_units

__all__ = ["STRENGTHS", "Combination", "Fitted", "fit_combination"]


STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Strengths of the penalty that are tried: factors of half the sum of the squared distances from expected weights."""

_MAX_P_VALUE = 0.05  # largest p-value of a member's AUC; with a larger one it cannot be told from guessing
_MAX_DEVIATION = 4.0  # largest standardised score that counts, in standard deviations from the mean


@dataclass(frozen=True)
class Combination:
    """The weights of members' scores.

    Attributes
    ----------
    centres, scales
        Mean and standard deviation of each member's cross-fitted scores, (M,). A scale is infinite if all scores are
        equal up to rounding, so these count 0.
    weights
        Weight of each member's standardised score, (M,), 0 or more.
    intercept
        Log-odds of a repertoire with mean scores.
    """

    centres: Floats
    scales: Floats
    weights: Floats
    intercept: float

    def contributions(self, scores: Floats) -> Floats:
        """Return the part of the log-odds of each repertoire that each member adds, (B, M), from its scores, (B, M)."""
        return self.weights * _standardise(scores, self.centres, self.scales) + 0.0  # no -0.0

    def log_odds(self, scores: Floats) -> Floats:
        """Return the log-odds of the positive class, (B,): the intercept and the sum of the contributions."""
        return np.asarray(self.intercept + self.contributions(scores).sum(axis=1))

    def variance_shares(self, scores: Floats) -> Floats:
        """Return the share of each member's contributions in the variance of the log-odds, (M,); their sum is 1.

        It is the covariance of the contributions with the log-odds, divided by the variance of the log-odds.
        """
        added = self.contributions(scores)
        added -= added.mean(axis=0)
        total = added.sum(axis=1)
        variance = float(total @ total)
        return np.asarray(total @ added / variance) if variance > 0 else np.zeros(added.shape[1])


def _standardise(scores: Floats, centres: Floats, scales: Floats) -> Floats:
    return np.asarray(np.clip((scores - centres) / scales, -_MAX_DEVIATION, _MAX_DEVIATION))


@dataclass(frozen=True)
class Fitted:
    """A fitted combination, and its cross-fitted log-odds.

    Attributes
    ----------
    combination
        Combination that was fitted to all repertoires.
    strength
        Strength of its penalty, see `fit_combination`.
    log_odds
        Log-odds of each repertoire by a combination that was fitted without its fold, (B,).
    """

    combination: Combination
    strength: float
    log_odds: Floats


def fit_combination(
    scores: Floats,
    positive: NDArray[np.bool_],
    fold_of: NDArray[np.int64],
    slopes: Floats | None = None,
    donors: NDArray[np.int64] | None = None,
) -> Fitted:
    """Return the weights with which cross-fitted scores of members predict the labels.

    The model is a logistic regression on the standardised scores, with weights that are not negative and an l2 penalty
    on their distance from the expected weights: the stronger it is, the nearer are the log-odds to the sum of the
    scores multiplied by their `slopes`. The penalty is the strongest one whose cross-entropy over the same folds is at
    most one standard error above the lowest. Members without a slope whose AUC cannot be told from 0.5 (one-sided
    Mann-Whitney test, p > 0.05) get the weight 0; if this holds for all members, the one with the highest AUC takes
    part. Scores count up to 4 standard deviations from the mean.

    Parameters
    ----------
    scores
        Score of each repertoire by each member, fitted without the repertoire's fold, (B, M).
    positive
        Whether each repertoire is positive, (B,).
    fold_of
        Index of the fold of each repertoire, (B,).
    slopes
        Expected change of the log-odds per unit of each member's score, (M,): 1 for scores that are log-odds, 0 where
        nothing is expected. By default 0 for all.
    donors
        Index of the donor of each repertoire, (B,), for the test and for the standard error; None: each repertoire has
        its own donor.
    """
    donors = np.arange(len(positive)) if donors is None else np.unique(donors, return_inverse=True)[1]
    slopes = np.zeros(scores.shape[1]) if slopes is None else slopes
    held_out = np.zeros((len(STRENGTHS), len(positive)))
    for fold in range(1 + int(fold_of.max())):
        outside = fold_of == fold
        for row, strength in enumerate(STRENGTHS):
            found = _solve(scores[~outside], positive[~outside], slopes, strength, donors[~outside])
            held_out[row, outside] = found.log_odds(scores[outside])
    best = _choose_strength(np.logaddexp(0, held_out) - positive * held_out, donors)
    return Fitted(_solve(scores, positive, slopes, STRENGTHS[best], donors), STRENGTHS[best], held_out[best])


def _choose_strength(entropies: Floats, donors: NDArray[np.int64]) -> int:
    """Return the row of the strongest penalty that cannot be told from the best one, from cross-entropies (S, B).

    This is the rule of one standard error (Breiman et al. 1984), with the error of the mean of the paired differences.
    Repertoires of one donor, (B,), are not independent, so their differences are summed.
    """
    best = int(np.argmin(entropies.mean(axis=1)))
    excess = entropies - entropies[best]
    centred = excess - excess.mean(axis=1, keepdims=True)
    of_donor = np.array([np.bincount(donors, each) for each in centred])  # (S, U)
    n_donors = of_donor.shape[1]
    error = np.sqrt((of_donor**2).sum(axis=1) * n_donors / max(n_donors - 1, 1)) / excess.shape[1]
    return int(np.flatnonzero(excess.mean(axis=1) <= error)[-1])


def _solve(
    scores: Floats, positive: NDArray[np.bool_], slopes: Floats, strength: float, donors: NDArray[np.int64]
) -> Combination:
    centres, scales = (each[:, 0] for each in measure_units(scores.T))
    features = _standardise(scores, centres, scales)
    informative = np.flatnonzero(_takes_part(features, positive, slopes, donors))
    features = features[:, informative]
    expected = (slopes * np.where(np.isinf(scales), 0.0, scales))[informative]

    def loss(parameters: Floats) -> tuple[float, Floats]:
        apart, log_odds = parameters[1:] - expected, parameters[0] + features @ parameters[1:]
        residual = expit(log_odds) - positive
        value = float(np.sum(np.logaddexp(0, log_odds) - positive * log_odds) + strength / 2 * apart @ apart)
        return value, np.concatenate([[residual.sum()], features.T @ residual + strength * apart])

    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    start = np.concatenate([[np.log((n_positive + 1) / (n_negative + 1))], expected])
    bounds = [(None, None), *[(0, None)] * len(informative)]
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    weights = np.zeros(scores.shape[1])
    weights[informative] = found[1:]
    return Combination(centres, scales, weights, float(found[0]))


def _takes_part(
    scores: Floats, positive: NDArray[np.bool_], slopes: Floats, donors: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which members take part, (M,): those with a slope, and those whose AUC is above 0.5 by more than chance.

    Members with a slope need no test: if their log-odds are wrong, a weaker penalty has a lower cross-entropy in held-
    out repertoires, and their weights fall. The test counts each donor once per class. If no member takes part
    otherwise, it is the one with the highest AUC.
    """
    units, unit_of, sizes = np.unique(2 * donors + positive, return_inverse=True, return_counts=True)
    scores = np.stack([np.bincount(unit_of, column) / sizes for column in scores.T], axis=1)  # means of donors
    positive = units % 2 == 1
    test = mannwhitneyu(scores[positive], scores[~positive], alternative="greater", method="asymptotic")
    informative = np.asarray((slopes > 0) | (test.pvalue <= _MAX_P_VALUE))
    return informative if informative.any() else np.arange(len(slopes)) == np.argmax(test.statistic)
