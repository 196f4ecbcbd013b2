"""Searches of the branch `clones`: which clones are more frequent in repertoires with a higher, or lower, label.

Letters: B repertoires of a cohort, n of them with a label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.association_tests import FISHER, RANK_SUM, AssociationTest, compute_double_ranks
from deeprc.baselines.carrier_counts import CountedUnits
from deeprc.baselines.inner_folds import assign_inner_folds
from deeprc.branches.clones_evidence import EvidenceDirection, EvidenceKind, choose_evidence_sign
from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.donors import count_units, renumber_donors
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.outputs import get_output_slices
from deeprc.tasks import Task

__all__ = ["CloneSearch", "list_searches"]

_DIRECTIONS: tuple[EvidenceDirection, ...] = ("up", "down")
_FOLDS, _MIN_FOLDS = 10, 3
_MIN_UNITS = 30
"""Smallest number of units, see `count_units`, for which the branch is fitted.

With 18 to 24 units, a branch that predicts the label prevented the attention from learning more; see
docs/experiments.md."""


@dataclass(frozen=True)
class CloneSearch:
    """The search for clones in one direction of one output, with the n training repertoires that have a label.

    Attributes
    ----------
    output
        Index of the output.
    direction
        `up` to search clones that repertoires with a higher label carry more often, `down` for a lower label.
    kind
        Kind of the evidence.
    test
        Test of a clone's association with the label.
    rows
        Rows of the repertoires in the cohort, (n,).
    dataset
        The n repertoires.
    units
        Units that are counted, with labels for the test; the labels are higher if the clones are expected.
    values
        Target of each repertoire, (n,): 1 if the clones are expected in it, else 0; or the number, standardised by the
        task.
    folds
        Fold of each repertoire, from 0, (n,).
    groups
        Donor of each repertoire as an index, (n,); None if every repertoire is from a different donor.
    """

    output: int
    direction: EvidenceDirection
    kind: EvidenceKind
    test: AssociationTest
    rows: NDArray[np.int64]
    dataset: RepertoireDataset
    units: CountedUnits
    values: Floats
    folds: NDArray[np.int64]
    groups: NDArray[np.int64] | None

    @property
    def sign(self) -> float:
        """Factor of the evidence in the score of the output, 1 or -1."""
        return choose_evidence_sign(self.kind, self.direction)

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return int(self.folds.max()) + 1

    def count_units_among(self, is_used: NDArray[np.bool_]) -> int:
        """Return the number of units among some of the repertoires, see `count_units`; `is_used` marks them, (n,)."""
        groups = None if self.groups is None else self.groups[is_used]
        classes = None if self.kind == "rate" else self.values[is_used]
        return count_units(groups, classes, n=int(is_used.sum()))


def list_searches(cohort: TrainingCohort) -> list[CloneSearch]:
    """Return the searches of both directions for each output with enough repertoires to hold some out."""
    searches = []
    for index, (task, outputs) in enumerate(zip(cohort.tasks, get_output_slices(cohort.tasks), strict=True)):
        labels = cohort.labels[:, index]
        rows = np.flatnonzero(~np.isnan(labels))
        for class_index, output in enumerate(range(outputs.start, outputs.stop)):
            searches += _make_searches_of_output(cohort, task, class_index, output, rows, labels[rows])
    return searches


def _make_searches_of_output(
    cohort: TrainingCohort, task: Task, class_index: int, output: int, rows: NDArray[np.int64], labels: Floats
) -> list[CloneSearch]:
    """Return the searches of one output for clones that raise it and that lower it; none if there are too few units.

    Parameters
    ----------
    cohort
        The cohort.
    task, output
        The task, and the index of its output among those of all tasks.
    class_index
        Index of the class of the output, if the task has several classes.
    rows, labels
        Rows of the repertoires in the cohort that have a label, (n,), and their labels, (n,).
    """
    if len(rows) == 0:
        return []
    is_number, positive_class = task.kind == "regression", class_index if task.n_outputs > 1 else 1
    is_high = labels > np.median(labels) if is_number else labels == positive_class
    dataset = cohort.dataset[rows]
    groups = None if cohort.groups is None else cohort.groups[rows]
    folds = _assign_folds(dataset, is_high, groups, counts_classes=not is_number)
    if folds is None:
        return []
    searches = []
    for direction in _DIRECTIONS:
        if is_number:
            test_labels = _rank_donors(labels, groups, direction)
            values = (labels - task.mean) / task.scale
        else:
            test_labels = (is_high == (direction == "up")).astype(np.int64)
            values = test_labels.astype(np.float64)
        searches.append(
            CloneSearch(
                output=output,
                direction=direction,
                kind="rate" if is_number else "odds",
                test=RANK_SUM if is_number else FISHER,
                rows=rows,
                dataset=dataset,
                units=CountedUnits.of(dataset, test_labels, groups),
                values=values,
                folds=folds,
                groups=groups,
            )
        )
    return searches


def _assign_folds(
    dataset: RepertoireDataset, is_high: NDArray[np.bool_], groups: NDArray[np.int64] | None, *, counts_classes: bool
) -> NDArray[np.int64] | None:
    """Return the fold of each of n repertoires, (n,); None if there are too few units, or if all labels are alike.

    Parameters
    ----------
    dataset
        The n repertoires.
    is_high
        Whether each repertoire is of the positive class, or has a number above the median, (n,).
    groups
        Donor of each repertoire, (n,), or None; see `CloneSearch`.
    counts_classes
        Whether a donor with repertoires of both classes counts as two units.
    """
    if is_high.all() or not is_high.any():
        return None
    if count_units(groups, is_high if counts_classes else None, n=len(dataset)) < _MIN_UNITS:
        return None
    folds = assign_inner_folds(dataset, is_high, _FOLDS, groups)
    return folds if folds.max() + 1 >= _MIN_FOLDS else None


def _rank_donors(numbers: Floats, groups: NDArray[np.int64] | None, direction: EvidenceDirection) -> NDArray[np.int64]:
    """Return twice the rank of the mean number of each repertoire's donor, (n,), from the highest if `down`."""
    means = _average_by_donor(numbers, groups)
    return compute_double_ranks(means if direction == "up" else -means)


def _average_by_donor(values: Floats, groups: NDArray[np.int64] | None) -> Floats:
    """Return the mean value of the donor of each repertoire, (n,), because a donor counts once."""
    if groups is None:
        return values
    donors = renumber_donors(groups, len(values))
    return np.asarray((np.bincount(donors, values) / np.bincount(donors))[donors])
