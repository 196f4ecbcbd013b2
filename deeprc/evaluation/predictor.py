"""What predicts the targets of repertoires: one run, or several together.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.metrics import task_metrics
from deeprc.evaluation.results import predictions_table
from deeprc.evaluation.splits import SPLITS
from deeprc.tasks import Task, labels

__all__ = ["NEW", "Predictor", "metrics_by_split"]

NEW = "new"
"""The split of a repertoire that was not there when training was."""


class Predictor(ABC):
    """Predicts repertoires of any dataset, and is measured on them."""

    @property
    @abstractmethod
    def tasks(self) -> list[Task]:
        """What is predicted."""

    @abstractmethod
    def output_of(self, dataset: RepertoireDataset) -> Callable[[int], Tensor]:
        """Return the function of a position that gives a repertoire's outputs before their activation, (T,)."""

    @abstractmethod
    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the side each repertoire was on in training, or "new", (B,)."""

    def outputs(self, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> Tensor:
        """Return the outputs before their activation, (B, T), in the dataset's order.

        Parameters
        ----------
        dataset
            The repertoires.
        positions
            All positions in order, wrapped in a progress bar, if one is wanted.
        """
        output = self.output_of(dataset)
        rows = [output(i) for i in (range(len(dataset)) if positions is None else positions)]
        return torch.stack(rows) if rows else torch.zeros(0, sum(task.n_outputs for task in self.tasks))

    def labels(self, dataset: RepertoireDataset) -> NDArray[np.float64]:
        """Return the labels, (B, number of tasks); all missing where the dataset lacks a target's column."""
        columns = [
            labels([task], dataset.metadata) if task.column in dataset.metadata else np.full((len(dataset), 1), np.nan)
            for task in self.tasks
        ]
        return np.concatenate(columns, axis=1)

    def predict(self, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> pd.DataFrame:
        """Return the predictions as a table, see `predictions_table`; parameters as in `outputs`."""
        outputs = self.outputs(dataset, positions)
        return predictions_table(
            dataset.repertoire_ids, self.split_of(dataset), outputs, self.labels(dataset), self.tasks
        )

    def evaluate(self, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> dict[str, Any]:
        """Return metrics by side ("train", "validation", "test", "new") and target, see `task_metrics`.

        Raises
        ------
        InputError
            If no repertoire of the dataset has a label.
        """
        target = self.labels(dataset)
        if np.isnan(target).all():
            raise InputError(
                f"{dataset.container.path}: no repertoire has a label for {', '.join(task.name for task in self.tasks)}"
            )
        return metrics_by_split(self.outputs(dataset, positions), target, self.split_of(dataset), self.tasks)


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
