"""Calibration of a trained model on the validation repertoires, with the cutoff of the positive class.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean, harmonic_mean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeprc.calibration import IDENTITY, Calibration, choose_cutoff, fit_calibration, fit_temperature
from deeprc.documents import validate
from deeprc.errors import InputError
from deeprc.outputs import get_output_slices
from deeprc.tasks import Task

if TYPE_CHECKING:
    from deeprc.training.labelled_repertoires import LabelledRepertoires
    from deeprc.training.model import TrainedModel

__all__ = [
    "average_calibrations",
    "calibrate_model",
    "calibrate_tasks",
    "describe_calibration",
    "fit_task_calibration",
    "restore_calibration",
]

_logger = logging.getLogger(__name__)


def calibrate_model(model: TrainedModel, validation: LabelledRepertoires) -> TrainedModel:
    """Return the model with probabilities calibrated on validation repertoires, if its configuration has `calibrate`.

    The scores of branches for the validation repertoires are cross-fitted. Outputs, attention and contributions do not
    change.
    """
    if not model.config.training.calibrate or all(task.kind == "regression" for task in model.tasks):
        return model
    outputs = model.compute_outputs(validation.dataset).double().numpy()
    return replace(model, tasks=calibrate_tasks(model.tasks, outputs, validation.labels))


def calibrate_tasks(
    tasks: Sequence[Task], outputs: NDArray[np.float64], labels: NDArray[np.float64]
) -> tuple[Task, ...]:
    """Return the tasks with the calibration that fits outputs, (B, T), to labels, (B, number of tasks).

    A binary task also gets its cutoff, see `choose_cutoff`.
    """
    calibrated = []
    for i, (task, part) in enumerate(zip(tasks, get_output_slices(tasks), strict=True)):
        known = ~np.isnan(labels[:, i])
        task = replace(task, calibration=fit_task_calibration(task, outputs[known, part], labels[known, i]))
        fitted = task.calibration
        if task.kind == "binary":
            _logger.info(
                "target %r: calibrated on %d validation repertoires: slope %.3g, intercept %.3g; "
                "a repertoire is predicted as %r if its probability is at least %.3g",
                task.name,
                known.sum(),
                fitted.slope,
                fitted.intercept,
                task.positive,
                fitted.min_probability,
            )
        elif task.kind == "multiclass":
            _logger.info(
                "target %r: calibrated on %d validation repertoires: temperature %.3g",
                task.name,
                known.sum(),
                1 / fitted.slope,
            )
        calibrated.append(task)
    return tuple(calibrated)


def fit_task_calibration(task: Task, outputs: NDArray[np.float64], label: NDArray[np.float64]) -> Calibration:
    """Return the calibration that fits the outputs of one task, (B, its outputs), to known labels, (B,)."""
    if task.kind == "regression":
        return IDENTITY
    if task.kind == "multiclass":
        return fit_temperature(outputs, label.astype(np.int64))
    fitted = fit_calibration(outputs[:, 0], label == 1)
    return replace(fitted, cutoff=choose_cutoff(fitted.slope * outputs[:, 0] + fitted.intercept))


def average_calibrations(tasks: Sequence[Task]) -> Calibration:
    """Return the calibration of the mean output of several models, from their tasks.

    The slope is the harmonic mean. So if all models have the same calibrated log-odds, the mean output has them, too,
    even if the scales of the outputs differ. For the cutoff, the outputs from which each model calls the positive class
    are averaged. So a repertoire at the cutoff of every model is at the cutoff of the ensemble.
    """
    calibrations = [task.calibration for task in tasks]
    slope = harmonic_mean([calibration.slope for calibration in calibrations])
    intercept = slope * fmean(calibration.intercept / calibration.slope for calibration in calibrations)
    cutoff = slope * fmean(calibration.cutoff / calibration.slope for calibration in calibrations)
    return Calibration(slope, intercept, cutoff)


def describe_calibration(tasks: Sequence[Task]) -> list[dict[str, float]]:
    """Return the calibration of each task, as values for JSON."""
    return [asdict(task.calibration) for task in tasks]


def restore_calibration(tasks: Sequence[Task], state: Mapping[str, Any], where: str) -> tuple[Task, ...]:
    """Return the tasks with the calibration in the state of a file; files of earlier versions have none.

    Raises
    ------
    InputError
        If the description does not fit the tasks, or a number is out of range.
    """
    if "calibration" not in state:
        return tuple(replace(task, calibration=IDENTITY) for task in tasks)
    calibrations: list[Calibration] = validate(state["calibration"], list[Calibration], f"{where}: calibration")
    if len(calibrations) != len(tasks):
        raise InputError(f"{where}: calibration: expected {len(tasks)}, one for each target, found {len(calibrations)}")
    for task, calibration in zip(tasks, calibrations, strict=True):
        moves = calibration.intercept != 0 or calibration.cutoff != 0
        if (task.kind == "regression" and calibration.slope != 1) or (task.kind != "binary" and moves):
            numbers = (
                f"slope {calibration.slope:g}, intercept {calibration.intercept:g} and cutoff {calibration.cutoff:g}"
            )
            raise InputError(f"{where}: calibration: {numbers} do not fit a {task.kind} target")
    return tuple(replace(task, calibration=calibration) for task, calibration in zip(tasks, calibrations, strict=True))
