"""Predictors: one run, several runs together, or a model that was fitted in Python.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.metrics import compute_task_metrics
from deeprc.evaluation.splits import HELD_OUT, NEW, PARTS
from deeprc.runs.metrics import Metrics
from deeprc.runs.model_cautions import find_packed_cautions
from deeprc.runs.results import make_predictions_table
from deeprc.runs.shift import add_shift_columns, measure_shift
from deeprc.runs.shift_cautions import find_shift_cautions
from deeprc.shift.summary import TrainingSummary
from deeprc.tasks import Task
from deeprc.training.model import Model

if TYPE_CHECKING:
    from deeprc.runs.run import Run

__all__ = ["Predictor", "compute_metrics_by_part", "evaluate", "predict"]

_logger = logging.getLogger(__name__)


class Predictor(Protocol):
    """A model with the history and a summary of its training."""

    @property
    def model(self) -> Model:
        """Trained model, or ensemble."""

    @property
    def group_by(self) -> str | None:
        """Metadata column whose values the split kept together."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs of the model; empty for a model that was fitted in Python."""

    def histories(self) -> dict[str, pd.DataFrame]:
        """Return the history of each model's training, by name, with one row per evaluation on the validation fold."""

    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the part of the split in which each repertoire was in training, or "new", (B,)."""

    def summaries(self) -> Sequence[TrainingSummary]:
        """Return the summary of the training repertoires of each model."""


def predict(
    predictor: Predictor,
    dataset: RepertoireDataset | str | os.PathLike[str],
    *,
    abstain: bool = False,
    outputs: Tensor | None = None,
) -> pd.DataFrame:
    """Return the predictions as a table, and log how the repertoires differ from the training repertoires.

    Parameters
    ----------
    predictor
        A run, several runs together, or a model that was fitted in Python.
    dataset
        The repertoires, or the path of their container.
    abstain
        Whether predictions are left empty for repertoires whose distance exceeds the level that 5% of training
        repertoires exceed.
    outputs
        Outputs of the model, (B, T), if they are known, as from `deeprc.runs.shares.DividedCohort.compute_outputs`.

    Returns
    -------
    The columns of `make_predictions_table`, and for each repertoire that is test or new: `shift`, its distance from the
    training repertoires (above 1 it exceeds the level); `shift_reason`, which says what is unusual then; and
    `resembles`, the training repertoire with which it shares far more junctions than by chance, with their share.
    """
    dataset = _open(dataset)
    model, parts = predictor.model, predictor.split_of(dataset)
    shift = measure_shift(predictor.summaries(), dataset, parts)
    for caution in (*find_packed_cautions(predictor.runs, parts), *find_shift_cautions(shift)):
        _logger.log(logging.WARNING if caution.level == "warning" else logging.INFO, "%s", caution.text)
    outputs, labels = model.compute_outputs(dataset) if outputs is None else outputs, model.encode_labels(dataset)
    table = make_predictions_table(dataset.repertoire_ids, parts, outputs, labels, model.tasks)
    return add_shift_columns(table, shift, abstain=abstain)


def _open(dataset: RepertoireDataset | str | os.PathLike[str]) -> RepertoireDataset:
    return open_dataset(dataset) if isinstance(dataset, str | os.PathLike) else dataset


def evaluate(predictor: Predictor, dataset: RepertoireDataset | str | os.PathLike[str]) -> Metrics:
    """Return metrics by part of the split ("train", "validation", "test", "new") and target.

    For the metrics of a target, see `compute_task_metrics`.

    Parameters are those of `predict`.

    Raises
    ------
    InputError
        If no repertoire of the dataset has a label.
    """
    dataset, model = _open(dataset), predictor.model
    labels = model.encode_labels(dataset)
    if np.isnan(labels).all():
        raise InputError(
            f"{dataset.container.path}: no repertoire has a label for {', '.join(task.name for task in model.tasks)}"
        )
    donors = DonorColumn.choose(dataset.metadata, predictor.group_by).index_if_known()
    return Metrics(
        compute_metrics_by_part(
            model.compute_outputs(dataset), labels, predictor.split_of(dataset), model.tasks, donors
        )
    )


def compute_metrics_by_part(
    outputs: Tensor,
    target: NDArray[np.float64],
    parts: list[str],
    tasks: Sequence[Task],
    donors: NDArray[np.int64] | None = None,
) -> dict[str, Any]:
    """Return the metrics of each part of the split that occurs, by target.

    Metrics on training and validation repertoires have no intervals, because the model has learned from them or was
    chosen by them.
    """
    metrics = {}
    for part in (*PARTS, NEW):
        rows = np.flatnonzero([name == part for name in parts])
        if len(rows):
            part_donors = None if donors is None else donors[rows]
            by_target = compute_task_metrics(outputs[rows], torch.from_numpy(target[rows]), tasks, part_donors)
            if part not in HELD_OUT:
                by_target = {name: _drop_intervals(values) for name, values in by_target.items()}
            metrics[part] = by_target
    return metrics


def _drop_intervals(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if not name.endswith("_ci")}
