"""The AUC within the values of a column of the sheet, such as batches: only repertoires of one value are compared.

Suppose that a batch predicts the label, and that a model has learned only the batch. Then it has a high AUC over all
repertoires, and one of 0.5 within batches.

Letters: B repertoires, S strata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.evaluation.auc_intervals import (
    check_donors_of_repeats,
    compute_auc_influences,
    compute_auc_interval,
    measure_variance_factor,
)
from deeprc.evaluation.sheet_control import find_categories, select_control_columns
from deeprc.tasks import Task

__all__ = ["StratifiedAuc", "compute_stratified_auc", "find_strata_columns"]

_MAX_VALUES = 20  # largest number of strata in a column
_NOTABLE = 0.1  # difference of the AUC over all repertoires to that within strata


@dataclass(frozen=True)
class StratifiedAuc:
    """The AUC within the values of a column.

    Attributes
    ----------
    column
        Name of the column.
    auc, low, high
        AUC over all pairs of a positive and a negative repertoire with the same value, and its 95% interval.
    n, n_strata
        Number of repertoires whose value has both classes (in their fold), and number of such values.
    """

    column: str
    auc: float
    low: float
    high: float
    n: int
    n_strata: int

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as `metrics.json` has them."""
        numbers = asdict(self)
        limits = [numbers.pop("low"), numbers.pop("high")]
        return {**numbers, "auc_ci": limits}

    def explains(self, auc: float, low: float) -> bool:
        """Return whether the column may explain an AUC over all repertoires, given this AUC and its lower limit.

        It may if the AUC is above chance, but not within the values, where it is lower by at least 0.1.
        """
        return self.low <= 0.5 < low and auc - self.auc >= _NOTABLE


def find_strata_columns(metadata: pd.DataFrame, task: Task) -> list[str]:
    """Return the columns of the sheet whose values are strata: categories that are neither ids nor the target."""
    columns = find_categories(metadata, select_control_columns(metadata, [task]).read)
    return [name for name in columns if 2 <= metadata[name].nunique() <= _MAX_VALUES]


def compute_stratified_auc(
    column: str,
    values: Sequence[object],
    label: NDArray[np.float64],
    score: NDArray[np.float64],
    donors: NDArray[np.int64] | None = None,
    *,
    folds: Sequence[object] | None = None,
    repertoires: NDArray[np.int64] | None = None,
    repeats: Sequence[int] | None = None,
) -> StratifiedAuc | None:
    """Return the AUC over all pairs of repertoires with the same value; None if no value has both classes.

    The AUC of a value counts by its number of pairs. The interval is `compute_auc_interval` with the design effect of
    donors and the overlap of training sets, like that over all repertoires (`compute_fold_aucs_interval`).

    Parameters
    ----------
    column, values
        Name of the column, and its value for each repertoire, (B,); a missing value is not a stratum.
    label, score
        Label of each repertoire (1, 0 or NaN), and its score, (B,) each.
    donors
        Index of the donor of each repertoire, (B,); None: each repertoire has its own donor.
    folds
        Test fold of each score, (B,): only scores of one fold are compared. None: all are compared.
    repertoires
        Index of the repertoire of each score, (B,), if one has several scores; each counts once in `n`.
    repeats
        Repeat of the cross-validation to which the fold of each score belongs, (B,); then `donors` are needed. None:
        there is one repeat.

    Raises
    ------
    ValueError
        If there are repeats without donors.
    """
    check_donors_of_repeats(donors, repeats)
    value_of = pd.factorize(np.asarray(values, object))[0]
    fold_of = np.zeros_like(value_of) if folds is None else pd.factorize(np.asarray(folds, object))[0]
    repeat_of = np.zeros_like(value_of) if repeats is None else np.asarray(repeats)
    strata = _list_strata(value_of, fold_of, label)
    if not strata:
        return None
    labels, scores = [label[rows].astype(np.int64) for rows in strata], [score[rows] for rows in strata]
    sizes = np.array([(int(classes.sum()), int((1 - classes).sum())) for classes in labels])  # (S, 2)
    n_pairs = sizes.prod(axis=1)
    weights = n_pairs / n_pairs.sum()
    auc = float(weights @ compute_auc_influences(labels, scores)[0])
    factor = measure_variance_factor(
        labels,
        scores,
        None if donors is None else [donors[rows] for rows in strata],
        [int(repeat_of[rows[0]]) for rows in strata],
        n_folds=len(np.unique(fold_of)) / len(np.unique(repeat_of)),
        weights=weights,
    )
    low, high = compute_auc_interval(auc, sizes[:, 0], sizes[:, 1], variance_factor=factor, weights=weights)
    compared = np.concatenate(strata)
    n = len(compared if repertoires is None else np.unique(repertoires[compared]))
    return StratifiedAuc(column, auc, low, high, n, len(np.unique(value_of[compared])))


def _list_strata(
    value_of: NDArray[np.int64], fold_of: NDArray[np.int64], label: NDArray[np.float64]
) -> list[NDArray[np.int64]]:
    """Return the rows with a label of each value in each fold, if both classes are among them.

    Parameters
    ----------
    value_of, fold_of
        Index of the value and of the fold of each score, (B,) each; -1 if the value is missing.
    label
        Label of each repertoire, (B,).
    """
    codes = pd.factorize(fold_of * (value_of.max(initial=0) + 1) + value_of)[0]
    codes = np.where(np.isnan(label) | (value_of < 0), -1, codes)
    strata = [np.flatnonzero(codes == code) for code in range(int(codes.max(initial=-1)) + 1)]
    return [rows for rows in strata if len(np.unique(label[rows])) == 2]
