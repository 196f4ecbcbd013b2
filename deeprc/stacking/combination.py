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
from deeprc.calibration import compute_mean_and_sd

__all__ = ["STRENGTHS", "Combination", "FittedCombination", "fit_combination"]


STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Strengths of the penalty that are tried. A strength multiplies half the sum of the squared distances from the
expected weights."""

_MAX_P_VALUE = 0.05  # a member with a larger p-value of its AUC is not shown to be better than guessing
_MAX_DEVIATION = 4.0  # standardised scores are cut off here, in standard deviations from the mean


@dataclass(frozen=True)
class Combination:
    """The weights of members' scores.

    Attributes
    ----------
    centres, scales
        Mean and standard deviation of each member's cross-fitted scores, (M,). If all scores of a member are equal up
        to rounding, its scale is infinite, so that the member contributes 0.
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
        return self.weights * _standardise_scores(scores, self.centres, self.scales) + 0.0  # no -0.0

    def log_odds(self, scores: Floats) -> Floats:
        """Return the log-odds of the positive class, (B,): the intercept and the sum of the contributions."""
        return np.asarray(self.intercept + self.contributions(scores).sum(axis=1))

    def compute_variance_shares(self, scores: Floats) -> Floats:
        """Return the share of each member's contributions in the variance of the log-odds, (M,); their sum is 1.

        It is the covariance of the contributions with the log-odds, divided by the variance of the log-odds.
        """
        added = self.contributions(scores)
        added -= added.mean(axis=0)
        total = added.sum(axis=1)
        variance = float(total @ total)
        return np.asarray(total @ added / variance) if variance > 0 else np.zeros(added.shape[1])


def _standardise_scores(scores: Floats, centres: Floats, scales: Floats) -> Floats:
    return np.asarray(np.clip((scores - centres) / scales, -_MAX_DEVIATION, _MAX_DEVIATION))


@dataclass(frozen=True)
class FittedCombination:
    """A fitted combination, and its cross-fitted log-odds.

    Attributes
    ----------
    combination
        Combination that was fitted to all repertoires.
    strength
        Strength of its penalty, see `fit_combination`.
    log_odds
        Log-odds of each repertoire, (B,), by a combination that was fitted without the fold of this repertoire.
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
) -> FittedCombination:
    """Fit the weights with which the cross-fitted scores of the members predict the labels.

    The model is a logistic regression on the standardised scores, with weights that are not negative and an l2 penalty
    on their distance from the expected weights. With a stronger penalty, the log-odds are nearer to the sum of the
    scores multiplied by their `slopes`. The chosen penalty is the strongest one whose cross-entropy over the same folds
    is at most one standard error above the lowest. A member without a slope gets the weight 0 if its AUC is not
    significantly above 0.5 (one-sided Mann-Whitney test, p > 0.05). If this is so for all members, only the one with
    the highest AUC has a weight. Scores are cut off at 4 standard deviations from the mean.

    Parameters
    ----------
    scores
        Score of each repertoire by each member, fitted without the repertoire's fold, (B, M).
    positive
        Whether each repertoire is positive, (B,).
    fold_of
        Index of the fold of each repertoire, (B,).
    slopes
        Expected change of the log-odds per unit of each member's score, (M,): 1 for scores that are log-odds, 0 if
        nothing is expected. By default 0 for all.
    donors
        Index of the donor of each repertoire, (B,), for the test and for the standard error; None: each repertoire has
        its own donor.
    """
    donors = np.arange(len(positive)) if donors is None else np.unique(donors, return_inverse=True)[1]
    slopes = np.zeros(scores.shape[1]) if slopes is None else slopes
    log_odds = np.zeros((len(STRENGTHS), len(positive)))  # cross-fitted, (S, B)
    for fold in range(1 + int(fold_of.max())):
        held_out = fold_of == fold
        training = ~held_out
        for row, strength in enumerate(STRENGTHS):
            combination = _fit_weights(scores[training], positive[training], slopes, strength, donors[training])
            log_odds[row, held_out] = combination.log_odds(scores[held_out])
    best = _choose_strength(np.logaddexp(0, log_odds) - positive * log_odds, donors)
    combination = _fit_weights(scores, positive, slopes, STRENGTHS[best], donors)
    return FittedCombination(combination, STRENGTHS[best], log_odds[best])


def _choose_strength(entropies: Floats, donors: NDArray[np.int64]) -> int:
    """Return the row of the strongest penalty that is not clearly worse than the best one, from cross-entropies (S, B).

    This is the rule of one standard error (Breiman et al. 1984), with the error of the mean of the paired differences.
    Repertoires of one donor are not independent, so their differences are summed. `donors` are indices, (B,).
    """
    best = int(np.argmin(entropies.mean(axis=1)))
    excess = entropies - entropies[best]
    centred = excess - excess.mean(axis=1, keepdims=True)
    donor_sums = np.array([np.bincount(donors, row) for row in centred])  # (S, number of donors)
    n_donors = donor_sums.shape[1]
    error = np.sqrt((donor_sums**2).sum(axis=1) * n_donors / max(n_donors - 1, 1)) / excess.shape[1]
    return int(np.flatnonzero(excess.mean(axis=1) <= error)[-1])


def _fit_weights(
    scores: Floats, positive: NDArray[np.bool_], slopes: Floats, strength: float, donors: NDArray[np.int64]
) -> Combination:
    """Fit the weights of the informative members with one strength of the penalty; all other weights are 0."""
    centres, scales = (moments[:, 0] for moments in compute_mean_and_sd(scores.T))
    features = _standardise_scores(scores, centres, scales)
    informative = np.flatnonzero(_select_informative_members(features, positive, slopes, donors))
    features = features[:, informative]
    expected = (slopes * np.where(np.isinf(scales), 0.0, scales))[informative]

    def loss(parameters: Floats) -> tuple[float, Floats]:
        deviation, log_odds = parameters[1:] - expected, parameters[0] + features @ parameters[1:]
        residual = expit(log_odds) - positive
        value = float(np.sum(np.logaddexp(0, log_odds) - positive * log_odds) + strength / 2 * deviation @ deviation)
        return value, np.concatenate([[residual.sum()], features.T @ residual + strength * deviation])

    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    start = np.concatenate([[np.log((n_positive + 1) / (n_negative + 1))], expected])
    bounds = [(None, None), *[(0, None)] * len(informative)]
    optimum = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    weights = np.zeros(scores.shape[1])
    weights[informative] = optimum[1:]
    return Combination(centres, scales, weights, float(optimum[0]))


def _select_informative_members(
    scores: Floats, positive: NDArray[np.bool_], slopes: Floats, donors: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether each member is informative, (M,): it has a slope, or its AUC is significantly above 0.5.

    Members with a slope need no test: if their log-odds are wrong, a weaker penalty has a lower cross-entropy on the
    fold that is left out, and their weights fall. The test counts each donor once per class. If no member is
    informative, the one with the highest AUC is returned as informative.
    """
    # a unit is a donor within a class
    units, unit_of, sizes = np.unique(2 * donors + positive, return_inverse=True, return_counts=True)
    scores = np.stack([np.bincount(unit_of, column) / sizes for column in scores.T], axis=1)  # means of donors
    positive = units % 2 == 1
    test = mannwhitneyu(scores[positive], scores[~positive], alternative="greater", method="asymptotic")
    informative = np.asarray((slopes > 0) | (test.pvalue <= _MAX_P_VALUE))
    return informative if informative.any() else np.arange(len(slopes)) == np.argmax(test.statistic)
