"""Out-of-fold predictions: an ensemble predicts each repertoire that it has not seen in training.

Letters: B repertoires of a fold, n of them with a label, T outputs, t outputs of one task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.calibration import IDENTITY
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.outputs import activate, calibrate, compute_log_odds, get_output_slices
from deeprc.runs.ensemble import load_ensemble
from deeprc.runs.results import make_predictions_table
from deeprc.runs.run import Run
from deeprc.runs.training_data import check_training_data
from deeprc.tasks import Task
from deeprc.training.calibration import fit_task_calibration

__all__ = [
    "FoldPrediction",
    "FoldRuns",
    "LabelledPrediction",
    "cross_calibrate",
    "make_out_of_fold_table",
    "predict_fold",
]


@dataclass(frozen=True)
class FoldRuns:
    """The runs that predict a test fold together.

    Attributes
    ----------
    repeat, fold
        Index of the repeat and of the fold.
    runs
        Directories of the runs.
    cohort
        Path of the container.
    device
        Name of the device that computes the predictions.
    """

    repeat: int
    fold: int
    runs: tuple[Path, ...]
    cohort: Path
    device: str


@dataclass(frozen=True)
class LabelledPrediction:
    """The prediction of one task for those repertoires of a test fold that have a label.

    Attributes
    ----------
    repeat, fold, task
        Index of the repeat and of the fold, and the task, with the calibration and the cutoff for this fold.
    rows
        Row of each repertoire in the cohort, (n,).
    label
        Label of each repertoire, (n,).
    outputs, log_odds
        Outputs of the task, and their calibrated log-odds, (n, t) each; see `FoldPrediction`.
    probability
        Calibrated probabilities, see `FoldPrediction.probabilities`.
    """

    repeat: int
    fold: int
    task: Task
    rows: NDArray[np.int64]
    label: Floats
    outputs: Floats
    log_odds: Floats
    probability: Floats

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class FoldPrediction:
    """The prediction of an ensemble for its test fold.

    Attributes
    ----------
    repeat, fold
        Index of the repeat and of the fold.
    rows
        Row of each test repertoire in the cohort, (B,).
    outputs
        Outputs before the calibration of `tasks`, (B, T): log-odds, logits, and numbers in the units of the target.
    labels
        Labels, (B, number of tasks); NaN if not known.
    tasks
        Tasks that are predicted, with the calibration and the cutoff for this fold.
    training_sets
        Rows in the cohort of the repertoires on which a run of the ensemble was trained or validated, one array for
        each different set of repertoires.
    """

    repeat: int
    fold: int
    rows: NDArray[np.int64]
    outputs: Floats
    labels: Floats
    tasks: tuple[Task, ...]
    training_sets: tuple[NDArray[np.int64], ...] = ()

    def select_labelled(self, index: int) -> LabelledPrediction:
        """Return the prediction of a task, by its index, for the repertoires that have a label."""
        is_labelled, columns = ~np.isnan(self.labels[:, index]), get_output_slices(self.tasks)[index]
        return LabelledPrediction(
            self.repeat,
            self.fold,
            self.tasks[index],
            self.rows[is_labelled],
            self.labels[is_labelled, index],
            self.outputs[is_labelled, columns],
            self.log_odds()[is_labelled, columns],
            self.probabilities(index)[is_labelled],
        )

    def log_odds(self) -> Floats:
        """Return the calibrated log-odds of the outputs, (B, T); see `deeprc.outputs.compute_log_odds`."""
        return compute_log_odds(self.outputs, self.tasks)

    def probabilities(self, index: int) -> Floats:
        """Return the calibrated probabilities of a task, by its index: (B,), or (B, C) for several classes."""
        return activate(torch.from_numpy(self.outputs), self.tasks)[index]


def predict_fold(fold_runs: FoldRuns) -> FoldPrediction:
    """Return the joint prediction of the runs of a test fold, calibrated on their validation repertoires.

    Raises
    ------
    InputError
        If the runs have different test repertoires, so one run may have learned from test repertoires of another. Also
        if the container has other repertoires or labels than when the runs were started.
    """
    ensemble, dataset = load_ensemble(fold_runs.runs, device=fold_runs.device), open_dataset(fold_runs.cohort)
    _check_runs(ensemble.runs, dataset)
    row_of = {str(repertoire_id): row for row, repertoire_id in enumerate(dataset.repertoire_ids)}
    rows = np.sort(np.array([row_of[repertoire_id] for repertoire_id in ensemble.runs[0].splits["test"]], np.int64))
    tested = dataset[rows]
    outputs = calibrate(ensemble.model.compute_outputs(tested), ensemble.tasks).numpy()
    return FoldPrediction(
        fold_runs.repeat,
        fold_runs.fold,
        rows,
        _convert_to_target_units(outputs, ensemble.tasks),
        ensemble.model.encode_labels(tested),
        tuple(_mark_as_converted(task) for task in ensemble.tasks),
        _list_training_sets(ensemble.runs, row_of),
    )


def _check_runs(runs: Sequence[Run], dataset: RepertoireDataset) -> None:
    """Raise InputError if the container has changed, or if the runs have different test repertoires."""
    first, *others = runs
    check_training_data(dataset, first.settings, first.path)
    for run in others:
        if set(run.splits["test"]) != set(first.splits["test"]):
            raise InputError(f"{run.path}: expected the test repertoires of {first.path}, found others")


def _convert_to_target_units(outputs: Floats, tasks: Sequence[Task]) -> Floats:
    """Return the outputs, (B, T), with the standardised numbers of numeric targets in the units of the target."""
    converted = outputs.copy()
    for task, columns in zip(tasks, get_output_slices(tasks), strict=True):
        if task.kind == "regression":
            converted[:, columns] = outputs[:, columns] * task.scale + task.mean
    return converted


def _mark_as_converted(task: Task) -> Task:
    """Return a task whose outputs are calibrated and in the units of the target; its cutoff stays the same."""
    return replace(task, mean=0.0, scale=1.0, calibration=replace(IDENTITY, cutoff=task.calibration.cutoff))


def _list_training_sets(runs: Sequence[Run], row_of: Mapping[str, int]) -> tuple[NDArray[np.int64], ...]:
    """Return the rows from which each run learned (`FoldPrediction.training_sets`); equal sets are listed once."""
    sets = [[row_of[name] for part in ("train", "validation") for name in run.splits[part]] for run in runs]
    return tuple(np.array(rows, np.int64) for rows in dict.fromkeys(tuple(sorted(rows)) for rows in sets))


def cross_calibrate(folds: Sequence[FoldPrediction]) -> list[FoldPrediction]:
    """Return the folds, each calibrated on the predictions for the other test folds of its repeat.

    Each run of an ensemble is calibrated alone, on its validation repertoires. But the mean of the outputs of several
    runs has less noise than each output, so its log-odds are too near 0. The ensemble itself cannot be calibrated on
    repertoires that are new to it, because these are only those of its test fold.

    So slope, intercept and cutoff for a test fold are fitted to the other test folds, which similar ensembles have
    predicted. Labels of the fold itself are not used. With few labels, the calibration changes little, see
    `deeprc.calibration.fit_calibration`.
    """
    calibrated = []
    for fold in folds:
        others = [other for other in folds if other.repeat == fold.repeat and other.fold != fold.fold]
        outputs, labels = (np.concatenate([getattr(other, name) for other in others]) for name in ("outputs", "labels"))
        tasks = []
        for i, (task, columns) in enumerate(zip(fold.tasks, get_output_slices(fold.tasks), strict=True)):
            is_known = ~np.isnan(labels[:, i])
            calibration = fit_task_calibration(task, outputs[is_known, columns], labels[is_known, i])
            tasks.append(replace(task, calibration=calibration))
        calibrated.append(replace(fold, tasks=tuple(tasks)))
    return calibrated


def make_out_of_fold_table(folds: Sequence[FoldPrediction], dataset: RepertoireDataset) -> pd.DataFrame:
    """Return a table of the predictions of all folds, by repeat and in the order of the cohort.

    The columns are repertoire_id, repeat, fold, target, label, log_odds (calibrated; one row per class for several
    classes), and the other columns of `make_predictions_table`.
    """
    tables = []
    for fold in folds:
        ids, no_part = dataset.repertoire_ids[fold.rows], [""] * len(fold.rows)
        outputs = torch.from_numpy(fold.outputs)
        table = make_predictions_table(ids, no_part, outputs, fold.labels, fold.tasks).drop(columns="split")
        row = np.repeat(fold.rows, fold.outputs.shape[1])
        tables.append(table.assign(repeat=fold.repeat, fold=fold.fold, log_odds=fold.log_odds().ravel(), row=row))
    table = pd.concat(tables, ignore_index=True).sort_values(["repeat", "row"], kind="stable", ignore_index=True)
    first = ["repertoire_id", "repeat", "fold", "target", "label", "log_odds"]
    return table[[*first, *(name for name in table.columns if name not in (*first, "row"))]]
