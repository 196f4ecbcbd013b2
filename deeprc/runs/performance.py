"""How well a model predicts a cohort: metrics, and every class against the others.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.auc_intervals import fold_aucs_interval
from deeprc.evaluation.intervals import r2_interval, r2_of
from deeprc.evaluation.splits import HELD_OUT, NEW, known_people, subject_column
from deeprc.evaluation.trust import few_people
from deeprc.outputs import activate, output_slices
from deeprc.runs.predictor import Predictor, metrics_by_split
from deeprc.runs.results import predictions_table
from deeprc.tasks import Task

__all__ = [
    "R2",
    "SPLIT_NAMES",
    "AllClasses",
    "Auc",
    "Contrast",
    "Numbers",
    "Performance",
    "held_out_split",
    "measure_performance",
]

SPLIT_NAMES = {"train": "training", "validation": "validation", "test": "test", NEW: "new"}
"""How the parts of the split are called in texts."""


@dataclass(frozen=True)
class Auc:
    """An AUC with its 95% interval and the sizes of both classes."""

    value: float
    low: float
    high: float
    n_positive: int
    n_negative: int


@dataclass(frozen=True)
class Contrast:
    """One class against all others.

    Attributes
    ----------
    target, key
        The target's name, and that of this class among its predictions, see `predictions_table`.
    positive, negative
        The names of the class and of all others.
    output
        The output that tells them apart.
    label
        1, 0, or NaN where it is not known, (B,).
    score
        Log-odds of the positive class, (B,).
    probability
        Probability of the positive class, (B,).
    donors
        The number of each repertoire's donor, (B,); None: each is of another donor.
    about
        What is told apart, in words, where a run has several contrasts; "" where there is but this one.
    """

    target: str
    key: str
    positive: str
    negative: str
    output: int
    label: NDArray[np.float64]
    score: NDArray[np.float64]
    probability: NDArray[np.float64]
    donors: NDArray[np.int64] | None = None
    about: str = ""

    @property
    def named(self) -> str:
        """What to put behind a noun: " for grade: high against not high", "" where there is but one contrast."""
        return f" for {self.about}" if self.about else ""

    def auc(self, rows: NDArray[np.bool_]) -> Auc | None:
        """Return the AUC among some repertoires, (B,); None unless both classes occur there."""
        rows = rows & ~np.isnan(self.label)
        label = self.label[rows].astype(np.int64)
        n_positive, n_negative = int(label.sum()), int((1 - label).sum())
        if not (n_positive and n_negative):
            return None
        found = fold_aucs_interval([label], [self.score[rows]], None if self.donors is None else [self.donors[rows]])
        return Auc(found.aucs.item(), found.low, found.high, n_positive, n_negative)


@dataclass(frozen=True)
class AllClasses:
    """All classes of a target that has several, told apart together; `about` as of `Contrast`."""

    target: str
    about: str = ""

    @property
    def named(self) -> str:
        """What to put behind a noun: " for grade", "" where there is but one target."""
        return f" for {self.about}" if self.about else ""


@dataclass(frozen=True)
class R2:
    """An r2 with its 95% interval (None of too few repertoires) and the number of repertoires."""

    value: float
    interval: tuple[float, float] | None
    n: int


@dataclass(frozen=True)
class Numbers:
    """A regression target: known and predicted values, (B,), NaN where nothing is known; `donors` as of `Contrast`."""

    target: str
    label: NDArray[np.float64]
    predicted: NDArray[np.float64]
    donors: NDArray[np.int64] | None = None
    about: str = ""

    @property
    def named(self) -> str:
        """What to put behind a noun: " for age", "" where there is but one target."""
        return f" for {self.about}" if self.about else ""

    def r2(self, rows: NDArray[np.bool_]) -> R2 | None:
        """Return r2 among some repertoires, (B,); None unless two different values occur there."""
        rows = rows & ~np.isnan(self.label)
        label, predicted = self.label[rows], self.predicted[rows]
        donors = None if self.donors is None else self.donors[rows]
        value = r2_of(label, predicted)
        return None if np.isnan(value) else R2(value, r2_interval(label, predicted, donors), len(label))


@dataclass(frozen=True)
class Performance:
    """How well a model predicts a cohort.

    Attributes
    ----------
    ids
        The ids of the repertoires, (B,).
    splits
        The part of the split that each repertoire is in, (B,): train, validation, test or new.
    labels
        The labels, (B, number of tasks); NaN where one is not known.
    metrics
        The metrics by split and target, see `deeprc.evaluation.metrics.task_metrics`.
    predictions
        The table of predictions, see `deeprc.runs.results.predictions_table`.
    contrasts, numbers
        Classes to tell apart, and regression targets.
    held_out
        The part of the split that says how good the model is: "test"; "new" where the cohort has no labelled test
        repertoire; None where it has neither.
    subject_column, person
        The column that says whose a repertoire is, and the index of each repertoire's person, (B,); None where no
        column does.
    """

    ids: NDArray[np.object_]
    splits: NDArray[np.object_]
    labels: NDArray[np.float64]
    metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]
    predictions: pd.DataFrame
    contrasts: Sequence[Contrast]
    numbers: Sequence[Numbers]
    held_out: str | None
    subject_column: str | None = None
    person: NDArray[np.int64] | None = None

    @property
    def donors(self) -> dict[str, int] | None:
        """The number of each repertoire's person by the repertoire's id; None if no column says whose it is."""
        return None if self.person is None else dict(zip(self.ids.tolist(), self.person.tolist(), strict=True))

    def rows(self, split: str | None) -> NDArray[np.bool_]:
        """Return which repertoires are in a part of the split, (B,)."""
        return np.asarray(self.splits == split)

    def classes(self, target: str) -> dict[str, NDArray[np.bool_]]:
        """Return the held-out repertoires of each class of a target, (B,), by its name; all, by "", of a number."""
        rows = self.rows(self.held_out)
        for numbers in self.numbers:
            if numbers.target == target:
                return {"": ~np.isnan(numbers.label) & rows}
        contrasts = [each for each in self.contrasts if each.target == target]
        found = {each.positive: (each.label == 1) & rows for each in contrasts}
        if len(contrasts) == 1:  # of several classes, each is the positive one of a contrast
            found[contrasts[0].negative] = (contrasts[0].label == 0) & rows
        return found

    def has_few_people(self, target: str) -> bool:
        """Return whether the held-out repertoires of any class of a target are of few people."""
        if self.person is None:
            return False
        kind = "regression" if any(each.target == target for each in self.numbers) else "binary"
        sizes = ((int(rows.sum()), len(np.unique(self.person[rows]))) for rows in self.classes(target).values())
        return any(few_people(kind, *size) for size in sizes)


def measure_performance(
    predictor: Predictor, dataset: RepertoireDataset, outputs: NDArray[np.floating[Any]]
) -> Performance:
    """Compare a model's outputs for a cohort, (B, T), with the labels."""
    tasks = predictor.model.tasks
    splits = np.array(predictor.split_of(dataset), dtype=object)
    labels = predictor.model.labels(dataset)
    tensor = torch.from_numpy(np.ascontiguousarray(outputs))
    person = known_people(dataset.metadata, predictor.group_by)
    contrasts, numbers = _contrasts_and_numbers(tasks, outputs, labels, person)
    return Performance(
        ids=dataset.repertoire_ids,
        splits=splits,
        labels=labels,
        metrics=metrics_by_split(tensor, labels, splits.tolist(), tasks, person) if not np.isnan(labels).all() else {},
        predictions=predictions_table(dataset.repertoire_ids, splits.tolist(), tensor, labels, tasks),
        contrasts=contrasts,
        numbers=numbers,
        held_out=held_out_split(splits, labels),
        subject_column=subject_column(dataset.metadata, predictor.group_by),
        person=person,
    )


def held_out_split(splits: NDArray[np.object_], labels: NDArray[np.float64]) -> str | None:
    """Return the part of the split that says how good a model is, see `Performance`, from splits (B,) and labels."""
    known = ~np.isnan(labels).all(axis=1)
    return next((name for name in HELD_OUT if (known & (splits == name)).any()), None)


def _contrasts_and_numbers(
    tasks: Sequence[Task],
    outputs: NDArray[np.floating[Any]],
    labels: NDArray[np.float64],
    donors: NDArray[np.int64] | None,
) -> tuple[list[Contrast], list[Numbers]]:
    """Return what is told apart, and the numbers that are predicted, from outputs (B, T) and labels of all tasks."""
    contrasts: list[Contrast] = []
    numbers: list[Numbers] = []
    predictions = activate(torch.from_numpy(np.ascontiguousarray(outputs)), tasks)
    for task, part, predicted, label in zip(tasks, output_slices(tasks), predictions, labels.T, strict=True):
        if task.kind == "regression":
            numbers.append(Numbers(task.name, label, predicted, donors, task.name if len(tasks) > 1 else ""))
        else:
            contrasts += _contrasts(task, part.start, outputs[:, part], predicted, label)
    if len(contrasts) > 1 or len(tasks) > 1:
        of = _prefixes(tasks)
        contrasts = [
            replace(each, about=f"{of[each.target]}{each.positive} against {each.negative}") for each in contrasts
        ]
    return [replace(each, donors=donors) for each in contrasts], numbers


def _prefixes(tasks: Sequence[Task]) -> dict[str, str]:
    """Return what to put before the classes of each target, by its name; nothing where there is but one target."""
    columns = [task.column for task in tasks]
    names = {task.name: task.column if columns.count(task.column) == 1 else task.name for task in tasks}
    return {name: f"{short}: " if len(tasks) > 1 else "" for name, short in names.items()}


def _contrasts(
    task: Task, first: int, outputs: NDArray[Any], probability: NDArray[np.float64], label: NDArray[np.float64]
) -> list[Contrast]:
    if task.kind == "binary":
        return [Contrast(task.name, task.name, task.positive, task.negative, first, label, outputs[:, 0], probability)]
    found = []
    for c, name in enumerate(task.classes):
        member = np.where(np.isnan(label), np.nan, label == c)
        odds = outputs[:, c] - logsumexp(np.delete(outputs, c, axis=1), axis=1)
        found.append(
            Contrast(task.name, f"{task.name}={name}", name, f"not {name}", first + c, member, odds, probability[:, c])
        )
    return found
