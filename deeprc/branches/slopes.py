"""The best linear function of scores, and the loss of each repertoire by it.

Letters: n repertoires, K scores of each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats
from deeprc.baselines.elastic_net import fit_elastic_net_path

__all__ = ["FittedSlopes", "compute_baseline_losses", "fit_slopes"]

_PENALTY = 1e-2  # factor of the squared slopes for standardised scores


class FittedSlopes(NamedTuple):
    """The slopes of the scores, (K,), and the loss of each repertoire by the function, (n,)."""

    slopes: Floats
    losses: Floats


def fit_slopes(scores: Floats, target: Floats, *, is_number: bool) -> FittedSlopes:
    """Fit a regression of the target on scores.

    It is a logistic regression for classes, with the cross entropy in nats, and a linear one for numbers, with half of
    the squared error. The slope of a score that does not vary is 0.

    Parameters
    ----------
    scores
        Scores, (n, K).
    target
        Class, 0 or 1, or number of each repertoire, (n,).
    is_number
        Whether the target is a number.
    """
    spread = scores.std(axis=0)
    varies = spread > 0
    slopes = np.zeros(scores.shape[1])
    if not varies.any():
        return FittedSlopes(slopes, compute_baseline_losses(target, is_number=is_number))
    standard = (scores - scores.mean(axis=0))[:, varies] / spread[varies]
    fit = _fit_numbers if is_number else _fit_classes
    fitted = fit(standard, target)
    slopes[varies] = fitted.slopes / spread[varies]
    return FittedSlopes(slopes, fitted.losses)


def compute_baseline_losses(target: Floats, *, is_number: bool) -> Floats:
    """Return the loss of each repertoire by the mean number, or by the shares of the classes, (n,)."""
    if is_number:
        return np.asarray(0.5 * (target - target.mean()) ** 2)
    share = float(target.mean())
    return -np.log(np.where(target == 1, share, 1 - share))


def _fit_numbers(standard: Floats, target: Floats) -> FittedSlopes:
    centred = target - target.mean()
    gram = standard.T @ standard + _PENALTY * np.eye(standard.shape[1])
    slopes = np.linalg.solve(gram, standard.T @ centred)
    return FittedSlopes(slopes, 0.5 * (centred - standard @ slopes) ** 2)


def _fit_classes(standard: Floats, target: Floats) -> FittedSlopes:
    (solution,) = fit_elastic_net_path(standard, target == 1, [1 / _PENALTY], l1_ratio=0.0, scale="common")
    slopes = np.zeros(standard.shape[1])
    slopes[solution.columns] = solution.coefficients
    log_odds = standard @ slopes + solution.intercept
    return FittedSlopes(slopes, np.logaddexp(0, log_odds) - target * log_odds)
