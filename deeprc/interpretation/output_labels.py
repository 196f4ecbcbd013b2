"""The labels of the target to which an output of a model belongs.

Letters: B repertoires.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Flags
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.outputs import get_output_slices
from deeprc.tasks import Task
from deeprc.training.model import Model

__all__ = ["OutputLabels"]


class OutputLabels(NamedTuple):
    """The labels of a cohort for the target of an output.

    Attributes
    ----------
    task
        Task of the target.
    labels
        Label of each repertoire, (B,); NaN if missing.
    class_label
        Label of the class that raises the output; of no use for a number.
    """

    task: Task
    labels: NDArray[np.float64]
    class_label: int

    @classmethod
    def of(cls, model: Model, dataset: RepertoireDataset, output: int) -> OutputLabels:
        """Return the labels for an output of a model, by the index of the output."""
        slices = get_output_slices(model.tasks)
        index = next(index for index, outputs in enumerate(slices) if output < outputs.stop)
        task = model.tasks[index]
        class_label = output - slices[index].start if task.n_outputs > 1 else 1
        return cls(task, model.encode_labels(dataset)[:, index], class_label)

    @property
    def is_known(self) -> Flags:
        """Whether each repertoire has a label, (B,)."""
        return ~np.isnan(self.labels)

    @property
    def is_number(self) -> bool:
        """Whether the target is a number, so there are no classes."""
        return self.task.kind == "regression"

    def find_direction_members(self, sign: int) -> Flags:
        """Return whether each repertoire is of the class that raises (1) or lowers (-1) the output, (B,)."""
        is_of_class = self.labels == self.class_label
        return np.asarray(is_of_class if sign > 0 else self.is_known & ~is_of_class)

    def find_class_members(self) -> dict[str, Flags]:
        """Return whether each repertoire is of a class, (B,), by class; the class of all numbers is "all"."""
        if self.is_number:
            return {"all": self.is_known}
        return {name: self.labels == label for label, name in enumerate(self.task.class_names)}
