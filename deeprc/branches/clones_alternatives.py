"""Alternatives for a search of the branch `clones`: which clones are used, and how strong their evidence must be.

Letters: A alternatives, n repertoires with a label.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats, Integers
from deeprc.baselines.public_clones import THRESHOLDS
from deeprc.branches.donors import renumber_donors

__all__ = ["ALTERNATIVES", "OVERSHARED_THRESHOLDS", "WEAK_THRESHOLDS", "Alternative", "find_best_alternative"]

WEAK_THRESHOLDS = (0.5, 0.3)
"""Thresholds for overshared clones only: few are overshared by chance, so they need little evidence from the labels."""

OVERSHARED_THRESHOLDS = (*WEAK_THRESHOLDS, *THRESHOLDS)
"""Thresholds for overshared clones."""

THRESHOLDS_BY_KIND = {
    "exact": THRESHOLDS,
    "one substitution": THRESHOLDS,
    "overshared": OVERSHARED_THRESHOLDS,
    "wildcard": THRESHOLDS,
}
"""Thresholds of the p-value for each kind of clones, in falling order."""


class Alternative(NamedTuple):
    """Which clones are used, a key of `THRESHOLDS_BY_KIND`, and the p-value below which a clone is associated."""

    clones: str
    threshold: float


ALTERNATIVES = [
    Alternative(clones, threshold) for clones in THRESHOLDS_BY_KIND for threshold in THRESHOLDS_BY_KIND[clones][::-1]
]
_FIRST_OF_KIND = {
    clones: next(index for index, each in enumerate(ALTERNATIVES) if each.clones == clones)
    for clones in THRESHOLDS_BY_KIND
}


def find_best_alternative(losses: Floats, donors: Integers, *, weak_are_associated: bool = False) -> int:
    """Return the index of the first alternative with the smallest mean loss.

    One with overshared or wildcard clones must be better than the best of those before by more than the standard error
    of the difference. Otherwise chance would often choose it in small cohorts: overshared clones may have large
    p-values, and there are many more wildcard clones than clones. For overshared clones it is enough to be better if
    another test shows that weak associations are evidence.

    Parameters
    ----------
    losses
        Loss of each repertoire, (A, n).
    donors
        Donor of each repertoire, (n,). Those of one donor are not independent.
    weak_are_associated
        Whether more overshared clones have a p-value below the `WEAK_THRESHOLDS` than with permuted labels.
    """
    means = losses.mean(axis=1)
    overshared, wildcard = _FIRST_OF_KIND["overshared"], _FIRST_OF_KIND["wildcard"]
    best = int(np.argmin(means[:overshared]))
    for start, stop in ((overshared, wildcard), (wildcard, len(losses))):
        if start < stop:
            other = start + int(np.argmin(means[start:stop]))
            gains = losses[best] - losses[other]
            is_evident = weak_are_associated and start == overshared and gains.mean() > 0
            if is_evident or _exceeds_standard_error(gains, donors):
                best = other
    return best


def _exceeds_standard_error(gains: Floats, donors: Integers) -> bool:
    """Return whether the mean of the gains, (n,), exceeds its standard error, with the donor of each, (n,)."""
    deviations = np.bincount(renumber_donors(donors, len(gains)), gains - gains.mean())  # of each donor, summed
    return bool(gains.mean() > deviations.std(ddof=1) * np.sqrt(len(deviations)) / len(gains))
