"""What each scoring of predictions can do, whatever the kind of target, and what all of them share.

A fold is here a data frame with one method's predictions for the repertoires of one test fold, in the order of their
ids. Letters: B repertoires of a fold, F folds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.errors import InputError
from deeprc.evaluation.auc_comparison import PairedTest
from deeprc.tasks import TaskKind

__all__ = [
    "DONOR",
    "KEY_COLUMNS",
    "Estimate",
    "Scoring",
    "compute_sd",
    "convert_to_numbers",
    "list_fold_donors",
    "refuse",
]

DONOR = "donor"
"""The column of a fold with the index of each repertoire's donor; without it, each repertoire has its own donor."""

KEY_COLUMNS = ("method", "fold", "repertoire_id")
"""The columns that name a prediction, in every table of predictions."""


class Estimate(NamedTuple):
    """A measure over all folds, its standard deviation over them (F - 1 in the denominator), and a 95% interval."""

    value: float
    sd: float
    low: float
    high: float


class Scoring(ABC):
    """Scoring of the predictions of one kind of target.

    Attributes
    ----------
    kind
        The kind of the target.
    measure_name, heading
        The measure by which methods are ranked (higher is better): its name in data frames and its heading in tables.
    estimate_column, sd_column
        Names of the columns of a comparison with the measure and with its standard deviation.
    chance_level
        Measure of predictions that know nothing.
    headings
        The names of all measures in tables, and their headings; `measure_name` is the first.
    optional
        Columns that a table may lack, and the values that they then have.
    lower_is_better
        The measures that are better when they are lower.
    interval_note, test_note, means_note
        Sentences that describe the interval, the test and the columns.
    """

    kind: ClassVar[TaskKind]
    measure_name: ClassVar[str]
    heading: ClassVar[str]
    estimate_column: ClassVar[str]
    sd_column: ClassVar[str]
    chance_level: ClassVar[float]
    headings: ClassVar[Mapping[str, str]]
    optional: ClassVar[Mapping[str, float]] = {}
    lower_is_better: ClassVar[frozenset[str]] = frozenset()
    interval_note: ClassVar[str]
    test_note: ClassVar[str]
    means_note: ClassVar[str]

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of a table of predictions."""

    @abstractmethod
    def validate(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with the types of its columns set; raise InputError at the first value that is wrong."""

    @abstractmethod
    def is_measured(self, fold: pd.DataFrame) -> bool:
        """Return whether the measure of a fold is defined; an AUC, for example, needs both classes."""

    @abstractmethod
    def measure_fold(self, fold: pd.DataFrame) -> dict[str, float]:
        """Return every metric of one fold; an undefined metric is NaN."""

    @abstractmethod
    def estimate_over_folds(self, folds: Sequence[pd.DataFrame]) -> Estimate:
        """Return the measure over folds; there is at least one, and all are measured."""

    @abstractmethod
    def count_repertoires(self, folds: Sequence[pd.DataFrame]) -> dict[str, int]:
        """Return `n_repertoires`, `n_smallest` (size of the smallest class; for numbers, of all) and other numbers."""

    @abstractmethod
    def test(self, first: Sequence[pd.DataFrame], second: Sequence[pd.DataFrame], *, seed: int = 0) -> PairedTest:
        """Test whether two methods are equally good on the same repertoires."""


def refuse(table: pd.DataFrame, wrong: pd.Series[bool], problem: str) -> None:
    """Raise InputError at the first row that is wrong."""
    if wrong.any():
        method, repertoire = table.loc[wrong, ["method", "repertoire_id"]].iloc[0]
        raise InputError(f"predictions: method {method!r}, repertoire {repertoire!r}: {problem}")


def list_fold_donors(folds: Sequence[pd.DataFrame]) -> list[NDArray[np.int64]] | None:
    """Return the donor of each repertoire in each fold, (B,); None if unknown, or if each has one repertoire."""
    if any(DONOR not in fold for fold in folds) or pd.concat(folds)[DONOR].is_unique:
        return None
    return [fold[DONOR].to_numpy(np.int64) for fold in folds]


def convert_to_numbers(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a table with some columns as numbers, or raise InputError."""
    try:
        return table.astype(dict.fromkeys(columns, np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"predictions: expected numbers as {', '.join(columns)}: {error}") from error


def compute_sd(values: NDArray[np.float64]) -> float:
    """Return the standard deviation (n - 1 in the denominator) of the values that are known; NaN for less than two."""
    defined = values[~np.isnan(values)]
    return float(defined.std(ddof=1)) if len(defined) > 1 else float("nan")
