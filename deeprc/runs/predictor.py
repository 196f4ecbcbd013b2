"""What predicts the targets of repertoires: one run, or several together.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.metrics import task_metrics
from deeprc.evaluation.splits import NEW, SPLITS
from deeprc.runs.results import predictions_table
from deeprc.tasks import Task, labels

__all__ = ["Predictor", "evaluate", "labels_of", "metrics_by_split", "outputs", "predict"]


class Predictor(Protocol):
    """Knows what it predicts, which repertoires it was trained with, and the outputs of any."""

    @property
    def tasks(self) -> list[Task]:
        """What is predicted."""

    @property
    def group_by(self) -> str | None:
        """The metadata column by which the split was made."""

    def output_of(self, dataset: RepertoireDataset) -> Callable[[int], Tensor]:
        """Return the function of a position that gives a repertoire's outputs before their activation, (T,)."""

    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the side each repertoire was on in training, or "new", (B,)."""


def outputs(predictor: Predictor, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> Tensor:
    """Return the outputs before their activation, (B, T), in the dataset's order.

    Parameters
    ----------
    predictor, dataset
        Whose outputs, of which repertoires.
    positions
        All positions in order, wrapped in a progress bar, if one is wanted.
    """
    output = predictor.output_of(dataset)
    rows = [output(i) for i in (range(len(dataset)) if positions is None else positions)]
    return torch.stack(rows) if rows else torch.zeros(0, sum(task.n_outputs for task in predictor.tasks))


def predict(predictor: Predictor, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> pd.DataFrame:
    """Return the predictions as a table, see `predictions_table`; parameters as in `outputs`."""
    found = outputs(predictor, dataset, positions)
    known = labels_of(predictor.tasks, dataset)
    return predictions_table(dataset.repertoire_ids, predictor.split_of(dataset), found, known, predictor.tasks)


def evaluate(
    predictor: Predictor, dataset: RepertoireDataset, positions: Iterable[int] | None = None
) -> dict[str, Any]:
    """Return metrics by side ("train", "validation", "test", "new") and target, see `task_metrics`.

    Parameters as in `outputs`.

    Raises
    ------
    InputError
        If no repertoire of the dataset has a label.
    """
    tasks = predictor.tasks
    known = labels_of(tasks, dataset)
    if np.isnan(known).all():
        raise InputError(
            f"{dataset.container.path}: no repertoire has a label for {', '.join(task.name for task in tasks)}"
        )
    return metrics_by_split(outputs(predictor, dataset, positions), known, predictor.split_of(dataset), tasks)


def labels_of(tasks: Sequence[Task], dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Return the labels, (B, number of tasks); all missing where the dataset lacks a target's column."""
    columns = [
        labels([task], dataset.metadata) if task.column in dataset.metadata else np.full((len(dataset), 1), np.nan)
        for task in tasks
    ]
    return np.concatenate(columns, axis=1)


def metrics_by_split(
    outputs: Tensor, target: NDArray[np.float64], splits: list[str], tasks: list[Task]
) -> dict[str, Any]:
    """Return the metrics of each side that occurs, by target."""
    metrics = {}
    for side in (*SPLITS, NEW):
        rows = torch.tensor([i for i, name in enumerate(splits) if name == side], dtype=torch.int64)
        if len(rows):
            metrics[side] = task_metrics(outputs[rows], torch.from_numpy(target)[rows], tasks)
    return metrics
