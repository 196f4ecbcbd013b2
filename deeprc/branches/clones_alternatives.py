"""Alternatives for a search of the branch `clones`: which clones are used, and how strong their evidence must be.

All alternatives that predict well are used, with weights. The best one decides whether the evidence is clear.

Letters: A alternatives, n repertoires with a label.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats, Integers
from deeprc.baselines.public_clones import THRESHOLDS
from deeprc.branches.donors import renumber_donors
from deeprc.branches.loss_weights import weigh_by_losses

__all__ = [
    "ALTERNATIVES",
    "LENIENT_THRESHOLDS",
    "THRESHOLDS_BY_KIND",
    "Alternative",
    "HeldOutLosses",
    "find_best_alternative",
    "weigh_alternatives",
]

_LOSS_PER_WEIGHT = 6.0  # see `weigh_by_losses`; chosen in docs/experiments.md, 2026-11-30

LENIENT_THRESHOLDS = (0.6, 0.3)
"""Thresholds for overshared and frequent clones only: few of them are shared by chance, so labels need to say little.

If the classes are equally large, and 2 of 3 carriers (or 3 of 5) have the label, p is exactly 0.5. So a threshold of
0.5 would depend on how p-values are rounded."""

THRESHOLDS_BY_KIND = {
    "exact": THRESHOLDS,
    "one substitution": THRESHOLDS,
    "overshared": (*LENIENT_THRESHOLDS, *THRESHOLDS),
    "frequent": LENIENT_THRESHOLDS,
    "most frequent": LENIENT_THRESHOLDS,
    "wildcard": THRESHOLDS,
    "cluster": THRESHOLDS,
    "similar": THRESHOLDS,
    "less similar": THRESHOLDS,
    "expanded": THRESHOLDS,
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


class HeldOutLosses(NamedTuple):
    """The losses of held-out repertoires.

    Attributes
    ----------
    by_alternative
        Loss of each repertoire by each alternative, (A, n).
    baseline
        Loss of each repertoire without evidence, (n,).
    donors
        Donor of each repertoire, (n,). Those of one donor are not independent.
    """

    by_alternative: Floats
    baseline: Floats
    donors: Integers


def weigh_alternatives(by_alternative: Floats, n_units: int) -> Floats:
    """Return the weights of the alternatives, (A,), by their losses, (A, n); the sum of the weights is 1.

    In small cohorts, the best alternative is in part the best by chance, see `weigh_by_losses`. Of alternatives with
    equal losses, which use the same clones, only the first has a weight.

    Several repertoires of one donor say little more than one, so the mean loss counts `n_units` times, once for each
    unit (see `deeprc.branches.donors.count_units`).
    """
    _, different = np.unique(by_alternative, axis=0, return_index=True)
    weights = np.zeros(len(by_alternative))
    losses = by_alternative[different].sum(axis=1) * (n_units / by_alternative.shape[1])
    weights[different] = weigh_by_losses(losses, loss_per_weight=_LOSS_PER_WEIGHT)
    return np.asarray(weights / weights.sum())


def find_best_alternative(losses: HeldOutLosses, *, overshared_are_associated: bool) -> int:
    """Return the index of the alternative with the smallest mean loss, if it is clearly better than simpler ones.

    Of equally good alternatives, the first is returned. One with clones of a later kind than `one substitution` must be
    better than the best of those before by more than the standard error of the difference. Otherwise chance would often
    choose it in small cohorts: overshared and frequent clones may have large p-values, and there are many more wildcard
    clones than clones. It must also be better than no evidence, which clones that were not looked for are not.

    For overshared clones it is enough to be better, if a permutation test shows that they are associated with the label
    and if the best alternative before them is not itself better than no evidence by more than the standard error.

    Parameters
    ----------
    losses
        Losses of held-out repertoires.
    overshared_are_associated
        Whether more overshared clones have a p-value below the `LENIENT_THRESHOLDS` than with permuted labels.
    """
    by_alternative = losses.by_alternative
    means = by_alternative.mean(axis=1)

    def find_best_of(first: str, end: str | None = None) -> int:
        """Return the best alternative of the kinds of clones from `first` to the one before `end`."""
        start = _FIRST_OF_KIND[first]
        return start + int(np.argmin(means[start : _FIRST_OF_KIND[end] if end else None]))

    best, overshared = find_best_of("exact", "overshared"), find_best_of("overshared", "frequent")
    others_are_convincing = _exceeds_standard_error(losses.baseline - by_alternative[best], losses.donors)
    if overshared_are_associated and not others_are_convincing and means[overshared] < means[best]:
        best = overshared
    first_of_ways = ["frequent", "wildcard", "cluster", "similar"]  # each way ends before the next one
    later = [find_best_of(first, end) for first, end in pairwise([*first_of_ways, "expanded"])]
    for alternative in [overshared, *later, find_best_of("expanded")]:
        is_evidence = means[alternative] < losses.baseline.mean()
        if is_evidence and _exceeds_standard_error(by_alternative[best] - by_alternative[alternative], losses.donors):
            best = alternative
    return best


def _exceeds_standard_error(gains: Floats, donors: Integers) -> bool:
    """Return whether the mean of the gains, (n,), exceeds its standard error, with the donor of each, (n,)."""
    deviations = np.bincount(renumber_donors(donors, len(gains)), gains - gains.mean())  # of each donor, summed
    return bool(gains.mean() > deviations.std(ddof=1) * np.sqrt(len(deviations)) / len(gains))
