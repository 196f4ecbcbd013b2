"""Columns of the table of clones: odds ratios with intervals, and tests over strata.

Letters: n rows, K strata, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats.contingency import odds_ratio

from deeprc.arrays import Floats, Integers
from deeprc.associations.donors_by_class import DonorsByClass
from deeprc.associations.stratified_tests import compute_stratified_p_values
from deeprc.baselines.association_tests import adjust_by_benjamini_hochberg
from deeprc.baselines.carrier_counts import MIN_CARRIERS

__all__ = [
    "CarrierCounts",
    "compute_odds_ratios",
    "compute_p_values",
    "compute_stratified_odds_ratios",
    "make_carrier_columns",
    "run_neighbour_tests",
]


class CarrierCounts:
    """Number of carriers of the clone of each row, and of donors, by stratum: of the row's class, and of all classes.

    Parameters
    ----------
    donors
        Donors that are counted, in each of their classes.
    carriers
        Number of carriers of the clone of each row, by stratum and class, (n, K, C).
    codes
        The index of the class of each row, (n,).
    excluded
        Number of donors that are not counted, (n, K, C); None: all are counted.
    """

    def __init__(
        self, donors: DonorsByClass, carriers: Integers, codes: Integers, excluded: Integers | None = None
    ) -> None:
        totals = donors.count_by_stratum() - (0 if excluded is None else excluded)
        totals = np.broadcast_to(totals, carriers.shape)
        rows = np.arange(len(codes))
        self.class_carriers, self.all_carriers = carriers[rows, :, codes], carriers.sum(axis=2)  # (n, K) each
        self.class_sizes, self.sizes = totals[rows, :, codes], totals.sum(axis=2)  # (n, K) each


def make_carrier_columns(names: Sequence[str], carriers: Integers, prefix: str) -> dict[str, Integers]:
    """Return one column for each class from the numbers of carriers, (n, K, C)."""
    return {f"{prefix}:{name}": carriers[:, :, code].sum(axis=1) for code, name in enumerate(names)}


def compute_odds_ratios(counts: CarrierCounts) -> Floats:
    """Return the odds ratio and its 95% interval, (n, 3), without strata.

    It is the conditional maximum likelihood estimate. The interval is exact: it holds the ratios that neither one-sided
    Fisher's test rejects at 2.5%.
    """
    a, n = counts.class_carriers.sum(axis=1), counts.all_carriers.sum(axis=1)
    n_class, n_all = counts.class_sizes.sum(axis=1), counts.sizes.sum(axis=1)
    tables, inverse = np.unique(np.stack([a, n - a, n_class - a, n_all - n_class - n + a], axis=1), axis=0,
                                return_inverse=True)  # fmt: skip
    values = np.empty((len(tables), 3))
    for row, table in enumerate(tables):
        estimate = odds_ratio(table.reshape(2, 2), kind="conditional")
        values[row] = estimate.statistic, *estimate.confidence_interval(0.95)
    return values[inverse.ravel()]


def compute_stratified_odds_ratios(counts: CarrierCounts) -> Floats:
    """Return the odds ratio of Mantel and Haenszel over strata, (n,); NaN if no stratum has both classes."""
    a, n, n_class, n_all = counts.class_carriers, counts.all_carriers, counts.class_sizes, counts.sizes
    weights = 1.0 / np.maximum(n_all, 1)
    upper = (a * (n_all - n_class - n + a) * weights).sum(axis=1)
    lower = ((n - a) * (n_class - a) * weights).sum(axis=1)
    ratios = np.full(len(a), np.nan)
    np.divide(upper, lower, out=ratios, where=lower > 0)
    ratios[(lower == 0) & (upper > 0)] = np.inf
    return ratios


def compute_p_values(counts: CarrierCounts) -> Floats:
    """Return the one-sided exact p-values over strata, (n,)."""
    columns = counts.class_carriers.sum(axis=1), counts.all_carriers, counts.class_sizes, counts.sizes
    return compute_stratified_p_values(*(np.ascontiguousarray(column, np.int64) for column in columns))


def run_neighbour_tests(counts: CarrierCounts) -> tuple[Floats, Floats]:
    """Return p-values and q-values of neighbours, (n,) each; NaN if fewer than two donors carry a neighbour."""
    p_values, q_values = np.full((2, len(counts.all_carriers)), np.nan)
    is_tested = counts.all_carriers.sum(axis=1) >= MIN_CARRIERS
    p_values[is_tested] = compute_p_values(counts)[is_tested]
    q_values[is_tested] = adjust_by_benjamini_hochberg(p_values[is_tested], int(is_tested.sum()))
    return p_values, q_values
