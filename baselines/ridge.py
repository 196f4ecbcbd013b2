"""Ridge regression for few rows and many columns; many penalties cost little more than one.

Letters: B rows (repertoires), M columns (features), V values of C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from deeprc.arrays import Floats
from deeprc.baselines.dual import fit_dual_ridge_path
from deeprc.baselines.elastic_net import Solution
from deeprc.baselines.parameters import check_positive
from deeprc.baselines.standardised_columns import ColumnScaling, StandardisedColumns
from deeprc.threads import limit_blas_threads

__all__ = ["fit_ridge_path"]


def fit_ridge_path(
    matrix: Any, values: Floats, Cs: Sequence[float], *, scale: ColumnScaling = "standard"
) -> Iterator[Solution]:
    """Yield the solution for each C.

    A solution minimises C * sum of squared errors + |w|^2. The coefficients w are those of columns that are centred,
    scaled and divided by the square root of their number. So one C means about the same for nine columns and for
    160,000. The intercept has no penalty. See `fit_dual_ridge_path`.

    Parameters
    ----------
    matrix
        Features, (B, M), dense or sparse.
    values
        Values of the numeric target, (B,).
    Cs
        Weights of the squared errors, (V,), above 0.
    scale
        Scaling of the columns; see `deeprc.baselines.standardised_columns.StandardisedColumns`.

    Raises
    ------
    InputError
        If a C is not above 0.
    """
    Cs = [check_positive("C", C) for C in Cs]
    return _fit_solutions(StandardisedColumns(matrix, scale=scale), values, Cs)


def _fit_solutions(columns: StandardisedColumns, values: Floats, Cs: Sequence[float]) -> Iterator[Solution]:
    """Yield the ridge regression on standardised columns for each C."""
    n_columns = max(int((columns.factor > 0).sum()), 1)
    with limit_blas_threads():  # so that the number of threads changes nothing
        for dual in fit_dual_ridge_path(columns.compute_gram() / n_columns, values, Cs):
            coefficients = columns.factor * columns.compute_products(dual.weights) / n_columns
            used = np.flatnonzero(coefficients)
            intercept = dual.intercept - coefficients[used] @ columns.centre[used]
            yield Solution(used, coefficients[used], float(intercept))
