"""Out-of-fold predictions: each repertoire is predicted by an ensemble that has not seen it.

Letters: B repertoires of a fold, T outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from deeprc.calibration import IDENTITY
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.outputs import activate, calibrate, output_slices
from deeprc.runs.ensemble import load_ensemble
from deeprc.runs.results import predictions_table
from deeprc.tasks import Task
from deeprc.training.calibration import fit_task

__all__ = ["FoldPrediction", "FoldRuns", "cross_calibrate", "out_of_fold_table", "predict_fold"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FoldRuns:
    """The runs that predict a test fold together: their directories, and the index of the repeat and of the fold."""

    repeat: int
    fold: int
    runs: tuple[Path, ...]
    cohort: Path
    device: str


@dataclass(frozen=True)
class FoldPrediction:
    """What an ensemble predicts for its test fold.

    Attributes
    ----------
    repeat, fold
        The index of the repeat and of the fold.
    rows
        The index in the cohort of each test repertoire, (B,).
    outputs
        The outputs before the calibration of `tasks`, (B, T): log-odds, logits, and numbers in the units of the target.
    labels
        The labels, (B, number of tasks); NaN where one is not known.
    tasks
        What is predicted, with the calibration and the cutoff for this fold.
    learned
        The index in the cohort of each repertoire that a run of the ensemble has trained or validated on; equal ones of
        several runs once.
    """

    repeat: int
    fold: int
    rows: NDArray[np.int64]
    outputs: Floats
    labels: Floats
    tasks: tuple[Task, ...]
    learned: tuple[NDArray[np.int64], ...] = ()

    def log_odds(self) -> Floats:
        """Return the calibrated log-odds of the positive class, or of each of several classes; NaN of numbers, (B, T).

        Probabilities near 1 are rounded to 1, log-odds are not.
        """
        calibrated = calibrate(torch.from_numpy(self.outputs), self.tasks).numpy()
        found = np.full_like(calibrated, np.nan)
        for task, part in zip(self.tasks, output_slices(self.tasks), strict=True):
            own = calibrated[:, part]
            if task.kind == "binary":
                found[:, part] = own
            elif task.kind == "multiclass":
                others = [logsumexp(np.delete(own, c, axis=1), axis=1) for c in range(own.shape[1])]
                found[:, part] = own - np.stack(others, axis=1)
        return found

    def probabilities(self, index: int) -> Floats:
        """Return the calibrated probabilities of a task by its index: (B,), or of each of several classes (B, C)."""
        return activate(torch.from_numpy(self.outputs), self.tasks)[index]


def predict_fold(of: FoldRuns) -> FoldPrediction:
    """Return what the runs of a test fold predict together for it, calibrated by their validation repertoires.

    Raises
    ------
    InputError
        If the runs have different repertoires for testing: one may have learned from what another tests.
    """
    ensemble, dataset = load_ensemble(of.runs, device=of.device), open_dataset(of.cohort)
    first = ensemble.runs[0]
    for run in ensemble.runs[1:]:
        if set(run.splits["test"]) != set(first.splits["test"]):
            raise InputError(f"{run.path}: expected the test repertoires of {first.path}, found others")
    position = {str(repertoire_id): row for row, repertoire_id in enumerate(dataset.repertoire_ids)}
    rows = np.sort(np.array([position[each] for each in first.splits["test"]], np.int64))
    sides = {
        tuple(sorted(position[each] for side in ("train", "validation") for each in run.splits[side])): None
        for run in ensemble.runs
    }
    learned = tuple(np.array(rows, np.int64) for rows in sides)
    tested = dataset[rows]
    outputs = calibrate(ensemble.model.outputs(tested), ensemble.tasks).numpy()
    for task, part in zip(ensemble.tasks, output_slices(ensemble.tasks), strict=True):
        if task.kind == "regression":
            outputs[:, part] = outputs[:, part] * task.scale + task.mean
    tasks = tuple(
        replace(task, mean=0.0, scale=1.0, calibration=replace(IDENTITY, cutoff=task.calibration.cutoff))
        for task in ensemble.tasks
    )
    return FoldPrediction(of.repeat, of.fold, rows, outputs, ensemble.model.labels(tested), tasks, learned)


def cross_calibrate(folds: Sequence[FoldPrediction]) -> list[FoldPrediction]:
    """Return the folds, each calibrated by the predictions for the other test folds of its repeat.

    The runs of an ensemble are calibrated by their validation repertoires, each alone. The mean of their outputs has
    less noise than each, so its log-odds are too near 0. No repertoire that is labelled is new to all runs of an
    ensemble but those of its test fold. So slope, intercept and cutoff for a test fold come from the other test folds,
    whose repertoires were predicted by ensembles of the same kind. No label of the fold itself is read. With few
    labels, little is changed, see `deeprc.calibration.fit_calibration`.
    """
    found = []
    for each in folds:
        others = [other for other in folds if other.repeat == each.repeat and other.fold != each.fold]
        outputs, labels = (np.concatenate([getattr(other, name) for other in others]) for name in ("outputs", "labels"))
        tasks = []
        for i, (task, part) in enumerate(zip(each.tasks, output_slices(each.tasks), strict=True)):
            known = ~np.isnan(labels[:, i])
            tasks.append(replace(task, calibration=fit_task(task, outputs[known, part], labels[known, i])))
        found.append(replace(each, tasks=tuple(tasks)))
    return found


def out_of_fold_table(folds: Sequence[FoldPrediction], dataset: RepertoireDataset) -> pd.DataFrame:
    """Return the predictions of all folds, by repeat and in the order of the cohort.

    The columns are repertoire_id, repeat, fold, target, label, log_odds (calibrated; those of each class for several
    classes), and the others of `predictions_table`.
    """
    parts = []
    for each in folds:
        ids, none = dataset.repertoire_ids[each.rows], [""] * len(each.rows)
        own = torch.from_numpy(each.outputs)
        table = predictions_table(ids, none, own, each.labels, each.tasks).drop(columns="split")
        row = np.repeat(each.rows, each.outputs.shape[1])
        parts.append(table.assign(repeat=each.repeat, fold=each.fold, log_odds=each.log_odds().ravel(), row=row))
    table = pd.concat(parts, ignore_index=True).sort_values(["repeat", "row"], kind="stable", ignore_index=True)
    first = ["repertoire_id", "repeat", "fold", "target", "label", "log_odds"]
    return table[[*first, *(name for name in table.columns if name not in (*first, "row"))]]
