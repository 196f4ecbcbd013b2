"""Labels of a target by unit, for tests of whether a property predicts them.

Letters: B repertoires, U units (donors with a label).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.checks.features import Feature
from deeprc.tasks import Task

__all__ = ["MIN_UNITS", "UnitLabels", "aggregate_by_unit", "label_units"]

MIN_UNITS = 8
"""Smallest number of units in each class."""


@dataclass(frozen=True)
class UnitLabels:
    """The labels of one target, one for each unit: repertoires of one donor with the same label are one unit.

    Attributes
    ----------
    task
        The target.
    names
        Names of the classes.
    codes
        Index of the class of each unit, (U,).
    rows
        Indices of the repertoires of each unit.
    """

    task: Task
    names: tuple[str, ...]
    codes: NDArray[np.int64]
    rows: list[NDArray[np.int64]]

    def find_testable_classes(self, known: NDArray[np.bool_] | None = None) -> list[int]:
        """Return the classes that can be compared: class and others have enough units with a known value."""
        codes = self.codes if known is None else self.codes[known]
        sizes = np.bincount(codes, minlength=len(self.names)).tolist()
        candidates = [1] if len(self.names) == 2 else range(len(self.names))
        return [code for code in candidates if min(sizes[code], len(codes) - sizes[code]) >= MIN_UNITS]


def _is_in_upper_half(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether each number is in the upper half, (B,), to which the median belongs if it is then more even."""
    halves = [values > np.nanmedian(values), values >= np.nanmedian(values)]
    return min(halves, key=lambda half: abs(half[~np.isnan(values)].mean() - 0.5))


def label_units(task: Task, values: NDArray[np.float64], donors: Sequence[str | None]) -> UnitLabels:
    """Return the labels of a target by unit: repertoires of one donor with the same label are one unit."""
    if task.kind == "regression":
        names: tuple[str, ...] = ("lower half", "upper half")
        codes = np.where(np.isnan(values), -1, _is_in_upper_half(values)).astype(np.int64)
    else:
        names = task.class_names
        codes = np.where(np.isnan(values), -1, values).astype(np.int64)
    units: dict[tuple[str | int, int], list[int]] = {}
    for row, (code, donor) in enumerate(zip(codes.tolist(), donors, strict=True)):
        if code >= 0:
            units.setdefault((row if donor is None else donor, code), []).append(row)
    return UnitLabels(
        task, names, np.array([code for _, code in units], np.int64), [np.array(rows) for rows in units.values()]
    )


def aggregate_by_unit(unit_labels: UnitLabels, feature: Feature) -> NDArray[Any]:
    """Return the feature of each unit: the mean of its numbers, the most frequent of its categories."""
    if feature.is_categorical:
        return np.array(
            [_find_most_frequent(feature.by_repertoire[rows].tolist()) for rows in unit_labels.rows], object
        )
    means = np.empty((len(unit_labels.rows), *feature.by_repertoire.shape[1:]))
    sizes = np.array([len(rows) for rows in unit_labels.rows])
    for size in np.unique(sizes):
        units = np.flatnonzero(sizes == size)
        rows = np.stack([unit_labels.rows[unit] for unit in units])
        values = feature.by_repertoire[rows].astype(float)  # (units, size, ...)
        n_known = (~np.isnan(values)).sum(axis=1)
        means[units] = np.where(n_known == 0, np.nan, np.nansum(values, axis=1) / np.maximum(n_known, 1))
    return means


def _find_most_frequent(texts: Sequence[str]) -> str:
    """Return the most frequent text; among equally frequent ones the first in sorted order."""
    counts = Counter(texts)
    return min(counts, key=lambda text: (-counts[text], text))
