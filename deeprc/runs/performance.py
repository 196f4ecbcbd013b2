"""Performance of a model on a cohort: metrics, and each class against the others.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.auc_intervals import compute_fold_aucs_interval
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.intervals import compute_r2, compute_r2_interval
from deeprc.evaluation.significance import are_few_donors
from deeprc.evaluation.splits import HELD_OUT, NEW
from deeprc.outputs import activate, compute_log_odds, get_output_slices
from deeprc.runs.predictor import Predictor, compute_metrics_by_part
from deeprc.runs.results import make_predictions_table
from deeprc.tasks import Task, TaskKind

__all__ = [
    "PART_NAMES",
    "R2",
    "Auc",
    "Contrast",
    "NumericTarget",
    "Performance",
    "PredictedQuantity",
    "choose_held_out_part",
    "measure_performance",
]

PART_NAMES = {"train": "training", "validation": "validation", "test": "test", NEW: "new"}
"""Names of the parts of the split in texts."""


@dataclass(frozen=True)
class Auc:
    """An AUC with its 95% interval and the sizes of both classes."""

    value: float
    low: float
    high: float
    n_positive: int
    n_negative: int


@dataclass(frozen=True)
class PredictedQuantity:
    """What is predicted: one class against all others, all classes of a target together, or a number.

    Attributes
    ----------
    target
        Name of the target.
    kind
        `binary` for one class against all others, `multiclass` for all classes together, or `regression`.
    about
        Text that says what is predicted, if a run predicts several quantities; "" if this is the only one.
    classes
        Names of the class and of all others together, if `kind` is `binary`.
    """

    target: str
    kind: TaskKind
    about: str = ""
    classes: tuple[str, ...] = ()

    @property
    def for_target(self) -> str:
        """Text to put after a noun, such as " for grade: high against not high"; "" if nothing else is predicted."""
        return f" for {self.about}" if self.about else ""


@dataclass(frozen=True)
class Contrast:
    """One class against all others.

    Attributes
    ----------
    target, key
        Name of the target, and name of this class in the table of predictions, see `make_predictions_table`.
    positive, negative
        Name of the class, and name of all others together.
    output
        Index of the output that separates them.
    label
        Label of each repertoire, (B,): 1, 0, or NaN if not known.
    score
        Calibrated log-odds of the positive class, (B,).
    probability
        Probability of the positive class, (B,).
    donors
        Index of each repertoire's donor, (B,); None if every repertoire is from a different donor.
    about
        Text that says what is separated, see `PredictedQuantity`.
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
    def quantity(self) -> PredictedQuantity:
        """What is predicted, without labels and predictions."""
        return PredictedQuantity(self.target, "binary", self.about, (self.positive, self.negative))

    @property
    def for_target(self) -> str:
        """Text to put after a noun, see `PredictedQuantity.for_target`."""
        return self.quantity.for_target

    def measure_auc(self, selected: NDArray[np.bool_]) -> Auc | None:
        """Return the AUC among the selected repertoires, (B,); None if they have only one class."""
        selected = selected & ~np.isnan(self.label)
        label = self.label[selected].astype(np.int64)
        n_positive, n_negative = int(label.sum()), int((1 - label).sum())
        if not (n_positive and n_negative):
            return None
        donors = None if self.donors is None else [self.donors[selected]]
        auc = compute_fold_aucs_interval([label], [self.score[selected]], donors)
        return Auc(auc.aucs.item(), auc.low, auc.high, n_positive, n_negative)


@dataclass(frozen=True)
class R2:
    """An r2 with its 95% interval (None if there are too few repertoires) and the number of repertoires."""

    value: float
    interval: tuple[float, float] | None
    n: int


@dataclass(frozen=True)
class NumericTarget:
    """A numeric target: its labels, (B,), NaN if not known, and its predictions, (B,); for the rest see `Contrast`."""

    target: str
    label: NDArray[np.float64]
    predicted: NDArray[np.float64]
    donors: NDArray[np.int64] | None = None
    about: str = ""

    @property
    def quantity(self) -> PredictedQuantity:
        """What is predicted, without labels and predictions."""
        return PredictedQuantity(self.target, "regression", self.about)

    @property
    def for_target(self) -> str:
        """Text to put after a noun, see `PredictedQuantity.for_target`."""
        return self.quantity.for_target

    def measure_r2(self, selected: NDArray[np.bool_]) -> R2 | None:
        """Return r2 among the selected repertoires, (B,); None if they have fewer than two different values."""
        selected = selected & ~np.isnan(self.label)
        label, predicted = self.label[selected], self.predicted[selected]
        donors = None if self.donors is None else self.donors[selected]
        value = compute_r2(label, predicted)
        return None if np.isnan(value) else R2(value, compute_r2_interval(label, predicted, donors), len(label))


@dataclass(frozen=True)
class Performance:
    """The predictions of a model for a cohort, compared with the labels.

    Attributes
    ----------
    ids
        Ids of the repertoires, (B,).
    parts
        Part of the split of each repertoire, (B,): train, validation, test or new.
    labels
        Labels, (B, number of tasks); NaN if not known.
    metrics
        Metrics by part of the split and target, see `deeprc.evaluation.metrics.compute_task_metrics`.
    predictions
        Table of predictions, see `deeprc.runs.results.make_predictions_table`.
    contrasts, numeric_targets
        Contrasts between classes, and numeric targets.
    held_out
        Part of the split that says how good the model is: "test"; "new" if the cohort has no labelled test repertoire;
        None if it has neither.
    donor_column, donors
        Metadata column that names the donor of a repertoire, and index of each repertoire's donor, (B,); None if
        there is no such column.
    is_packed
        Whether all runs of the model are packed: then it cannot recognise its training repertoires.
    """

    ids: NDArray[np.object_]
    parts: NDArray[np.object_]
    labels: NDArray[np.float64]
    metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]
    predictions: pd.DataFrame
    contrasts: Sequence[Contrast]
    numeric_targets: Sequence[NumericTarget]
    held_out: str | None
    donor_column: str | None = None
    donors: NDArray[np.int64] | None = None
    is_packed: bool = False

    @property
    def donors_by_id(self) -> dict[str, int] | None:
        """Index of each repertoire's donor, by the id of the repertoire; None if no column names the donor."""
        return None if self.donors is None else dict(zip(self.ids.tolist(), self.donors.tolist(), strict=True))

    @property
    def predictions_with_donors(self) -> pd.DataFrame:
        """Predictions with the column `donor`, if known: figures that are drawn without the cohort need it."""
        donors, table = self.donors_by_id, self.predictions
        return table if donors is None else table.assign(donor=table["repertoire_id"].map(donors))

    def iterate_targets(self) -> Iterator[tuple[str, list[Contrast]]]:
        """Yield each target with its contrasts: one for two classes, one per class for several."""
        for target in dict.fromkeys(contrast.target for contrast in self.contrasts):
            yield target, [contrast for contrast in self.contrasts if contrast.target == target]

    def is_in(self, part: str | None) -> NDArray[np.bool_]:
        """Return whether each repertoire is in a part of the split, (B,)."""
        return np.asarray(self.parts == part)

    @property
    def is_held_out(self) -> NDArray[np.bool_]:
        """Whether each repertoire is in the part `held_out`, (B,)."""
        return self.is_in(self.held_out)

    def select_classes(self, target: str) -> dict[str, NDArray[np.bool_]]:
        """Return, by class, which held-out repertoires are of it, (B,); a numeric target has one class, ""."""
        for numeric in self.numeric_targets:
            if numeric.target == target:
                return {"": ~np.isnan(numeric.label) & self.is_held_out}
        contrasts = [contrast for contrast in self.contrasts if contrast.target == target]
        by_class = {contrast.positive: (contrast.label == 1) & self.is_held_out for contrast in contrasts}
        if len(contrasts) == 1:  # with several classes, each one is the positive class of a contrast
            by_class[contrasts[0].negative] = (contrasts[0].label == 0) & self.is_held_out
        return by_class

    def has_few_donors(self, target: str) -> bool:
        """Return whether the held-out repertoires of any class of a target are from few donors."""
        if self.donors is None:
            return False
        kind = "regression" if any(numeric.target == target for numeric in self.numeric_targets) else "binary"
        sizes = [
            (int(is_of_class.sum()), len(np.unique(self.donors[is_of_class])))
            for is_of_class in self.select_classes(target).values()
        ]
        return any(are_few_donors(kind, *size) for size in sizes)


def measure_performance(
    predictor: Predictor, dataset: RepertoireDataset, outputs: NDArray[np.floating[Any]]
) -> Performance:
    """Compare a model's outputs for a cohort, (B, T), with the labels."""
    tasks = predictor.model.tasks
    parts = np.array(predictor.split_of(dataset), dtype=object)
    labels = predictor.model.encode_labels(dataset)
    tensor = torch.from_numpy(np.ascontiguousarray(outputs))
    donor_column = DonorColumn.choose(dataset.metadata, predictor.group_by)
    donors = donor_column.index_if_known()
    has_labels = not np.isnan(labels).all()
    return Performance(
        ids=dataset.repertoire_ids,
        parts=parts,
        labels=labels,
        metrics=compute_metrics_by_part(tensor, labels, parts.tolist(), tasks, donors) if has_labels else {},
        predictions=make_predictions_table(dataset.repertoire_ids, parts.tolist(), tensor, labels, tasks),
        contrasts=_make_contrasts(tasks, outputs, labels, donors),
        numeric_targets=_make_numeric_targets(tasks, outputs, labels, donors),
        held_out=choose_held_out_part(parts, labels),
        donor_column=donor_column.name,
        donors=donors,
        is_packed=bool(predictor.runs) and all(run.bundle is not None for run in predictor.runs),
    )


def choose_held_out_part(parts: NDArray[np.object_], labels: NDArray[np.float64]) -> str | None:
    """Return the part of the split that says how good a model is, see `Performance`, from parts, (B,), and labels."""
    is_known = ~np.isnan(labels).all(axis=1)
    return next((name for name in HELD_OUT if (is_known & (parts == name)).any()), None)


def _make_numeric_targets(
    tasks: Sequence[Task],
    outputs: NDArray[np.floating[Any]],
    labels: NDArray[np.float64],
    donors: NDArray[np.int64] | None,
) -> list[NumericTarget]:
    """Return the numeric targets of all tasks, from outputs, (B, T), and labels, (B, number of tasks)."""
    predictions = activate(torch.from_numpy(np.ascontiguousarray(outputs)), tasks)
    return [
        NumericTarget(task.name, label, predicted, donors, about=task.name if len(tasks) > 1 else "")
        for task, predicted, label in zip(tasks, predictions, labels.T, strict=True)
        if task.kind == "regression"
    ]


def _make_contrasts(
    tasks: Sequence[Task],
    outputs: NDArray[np.floating[Any]],
    labels: NDArray[np.float64],
    donors: NDArray[np.int64] | None,
) -> list[Contrast]:
    """Return the contrasts of all tasks, from outputs, (B, T), and labels, (B, number of tasks)."""
    contrasts: list[Contrast] = []
    predictions = activate(torch.from_numpy(np.ascontiguousarray(outputs)), tasks)
    log_odds = compute_log_odds(outputs, tasks)
    for task, columns, predicted, label in zip(tasks, get_output_slices(tasks), predictions, labels.T, strict=True):
        if task.kind != "regression":
            contrasts += _make_contrasts_of_task(task, columns.start, log_odds[:, columns], predicted, label)
    if len(contrasts) > 1 or len(tasks) > 1:
        prefixes = _make_prefixes(tasks)
        contrasts = [
            replace(contrast, about=f"{prefixes[contrast.target]}{contrast.positive} against {contrast.negative}")
            for contrast in contrasts
        ]
    return [replace(contrast, donors=donors) for contrast in contrasts]


def _make_prefixes(tasks: Sequence[Task]) -> dict[str, str]:
    """Return the text to put before the classes of each target, by its name; "" if there is only one target."""
    columns = [task.column for task in tasks]
    names = {task.name: task.column if columns.count(task.column) == 1 else task.name for task in tasks}
    return {name: f"{short}: " if len(tasks) > 1 else "" for name, short in names.items()}


def _make_contrasts_of_task(
    task: Task,
    first_output: int,
    log_odds: NDArray[np.float64],
    probability: NDArray[np.float64],
    label: NDArray[np.float64],
) -> list[Contrast]:
    """Return the contrasts of a task with classes: one for two classes, one per class for several.

    Parameters
    ----------
    task
        The task.
    first_output
        Index of its first output among those of all tasks.
    log_odds, probability
        Predictions for its outputs, (B, 1) and (B,) for two classes, and (B, C) each for C classes.
    label
        Labels, (B,).
    """
    if task.kind == "binary":
        return [
            Contrast(
                task.name, task.name, task.positive, task.negative, first_output, label, log_odds[:, 0], probability
            )
        ]
    contrasts = []
    for c, (name, key) in enumerate(zip(task.classes, task.predicted_names, strict=True)):
        is_of_class, others = np.where(np.isnan(label), np.nan, label == c), f"not {name}"
        contrasts.append(
            Contrast(task.name, key, name, others, first_output + c, is_of_class, log_odds[:, c], probability[:, c])
        )
    return contrasts
