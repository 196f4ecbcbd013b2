"""Counts of units (independent observations) among repertoires, and an association test, if donors have several.

Letters: n repertoires, D donors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats

__all__ = ["compute_association_z", "count_standard_errors", "count_units", "renumber_donors"]

_ROUNDING = 1e-12


def renumber_donors(groups: NDArray[np.int64] | None, n: int) -> NDArray[np.int64]:
    """Return the index of the donor of each repertoire, from 0, (n,); all differ if `groups` is None."""
    return np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1].ravel()


def count_units(groups: NDArray[np.int64] | None, classes: NDArray[Any] | None, *, n: int) -> int:
    """Return the number of units, which are independent observations: donors, or pairs of donor and class.

    A donor with repertoires of both classes counts twice, because D differences within donors are as exact as the
    difference between D donors of one class and D of the other.

    Parameters
    ----------
    groups
        Donor of each repertoire as an index, (n,); None if every repertoire is from a different donor.
    classes
        Class of each repertoire, 0 or 1, (n,); None if a number is predicted.
    n
        Number of repertoires.
    """
    donors = renumber_donors(groups, n)
    return len(np.unique(donors if classes is None else 2 * donors + (classes == 1)))


def compute_association_z(scores: Floats, values: Floats, groups: NDArray[np.int64] | None) -> float:
    """Return a z-score of the association between scores and values: the sum of their products, standardised.

    Mean and standard deviation are those of the permutation distribution: donors exchange the means of their values,
    and the values of a donor are shuffled among the repertoires of the donor. If every repertoire is from a different
    donor, the result is Pearson's correlation times the square root of n - 1. It is 0 if scores or values do not vary.

    Parameters
    ----------
    scores, values
        Score and value of each repertoire, (n,) each.
    groups
        Donor of each repertoire as an index, (n,); None if every repertoire is from a different donor.
    """
    if np.ptp(scores) == 0 or np.ptp(values) == 0:
        return 0.0
    donors = renumber_donors(groups, len(scores))
    n_of = np.bincount(donors)
    scores, values = scores - scores.mean(), values - values.mean()
    score, value = (np.bincount(donors, array) / n_of for array in (scores, values))  # means of the donors, (D,)
    score_residuals, value_residuals = scores - score[donors], values - value[donors]
    sums = n_of * score
    between = float((sums**2).sum() * ((value - value.mean()) ** 2).sum()) / max(len(n_of) - 1, 1)
    squares = (
        np.bincount(donors, score_residuals**2) * np.bincount(donors, value_residuals**2) / np.maximum(n_of - 1, 1)
    )
    variance = between + float(squares.sum())
    product = float(sums @ value + score_residuals @ value_residuals)
    return product / variance**0.5 if variance > _ROUNDING * float((scores**2).sum() * (values**2).sum()) else 0.0


def count_standard_errors(loss_decreases: Floats, groups: NDArray[np.int64] | None) -> float:
    """Return how many standard errors the mean decrease of the loss is above 0; a donor is one observation.

    It is 0 if there is one donor, because a single observation has no standard error.

    Parameters
    ----------
    loss_decreases
        Decrease of each repertoire's loss, (n,).
    groups
        Donor of each repertoire as an index, (n,); None if every repertoire is from a different donor.
    """
    mean = float(loss_decreases.mean())
    donors = renumber_donors(groups, len(loss_decreases))
    sums = np.bincount(donors, loss_decreases)
    if len(sums) < 2:
        return 0.0
    residuals = sums - mean * np.bincount(donors)
    variance = float(residuals @ residuals) * len(sums) / max(len(sums) - 1, 1)
    standard_error = math.sqrt(variance) / len(loss_decreases)
    if standard_error == 0:
        return math.inf if mean > 0 else 0.0
    return mean / standard_error
