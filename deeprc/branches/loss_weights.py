"""Weights of models that predict nearly as well as the best one, for a mean of their scores.

In small cohorts, the best of several models is in part the best by chance, so a mean of the good ones is better. See
docs/experiments.md, 2026-11-30.
"""

from __future__ import annotations

import numpy as np

from deeprc.arrays import Floats

__all__ = ["weigh_by_losses"]

_MIN_WEIGHT = 0.05


def weigh_by_losses(losses: Floats, *, loss_per_weight: float) -> Floats:
    """Return the weight of each of K models relative to that of the best one, (K,): 1 for the best, 0 below 5%.

    Parameters
    ----------
    losses
        Sum of the losses of all repertoires, or of all units (see `deeprc.branches.donors.count_units`), by each model,
        (K,): in nats for classes, half of the squared error in standard deviations for numbers.
    loss_per_weight
        A model whose sum is higher than the lowest by this number has a weight of exp(-1).
    """
    weights = np.exp((losses.min() - losses) / loss_per_weight)
    return np.where(weights < _MIN_WEIGHT, 0.0, weights)
