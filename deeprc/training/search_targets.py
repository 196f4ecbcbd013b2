"""With which numbers a search for motifs correlates frequencies: one column for each output of the network.

Letters: B repertoires, n of them with a label, T' outputs of one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.outputs import output_slices
from deeprc.tasks import Task

__all__ = ["SearchTarget", "iterate_targets", "output_columns"]

Floats = NDArray[np.float64]

_MIN_MEMBERS = 10  # of a class, and of the other classes together
_MAX_OUTPUTS = 4  # whose correlations are computed together


@dataclass(frozen=True)
class SearchTarget:
    """Some outputs of one task, with which frequencies are correlated.

    Attributes
    ----------
    dataset
        The n repertoires whose label is known.
    values
        One column per output, (n, T').
    outputs
        Indices of the outputs among those of all tasks, (T',).
    """

    dataset: RepertoireDataset
    values: Floats
    outputs: list[int]

    @property
    def n(self) -> int:
        """Number of repertoires."""
        return len(self.values)


def iterate_targets(
    dataset: RepertoireDataset, labels: Floats, tasks: Sequence[Task], min_labels: int
) -> Iterator[SearchTarget]:
    """Yield all outputs that vary, a few of a task at a time.

    Parameters
    ----------
    dataset
        The repertoires; empty ones are left out.
    labels, tasks
        Labels, (B, number of tasks), NaN where missing, and the tasks.
    min_labels
        A task with fewer labels is left out. So is a class with fewer than 10 members or fewer than 10 others.
    """
    for task, part, column in zip(tasks, output_slices(tasks), labels.T, strict=True):
        known = np.flatnonzero(~np.isnan(column) & (dataset.n_sequences > 0))
        if len(known) >= min_labels:
            values = output_columns(task, column[known])
            varies = np.ptp(values, axis=0) > 0
            if task.kind != "regression":
                varies &= np.minimum(values.sum(axis=0), (1 - values).sum(axis=0)) >= _MIN_MEMBERS
            varying = np.flatnonzero(varies)
            for at in (varying[first : first + _MAX_OUTPUTS] for first in range(0, len(varying), _MAX_OUTPUTS)):
                yield SearchTarget(dataset[known], values[:, at], (part.start + at).tolist())


def output_columns(task: Task, labels: Floats) -> Floats:
    """Return one column for each output of a task, (n, T'): 1 for members of its class and 0 for others, or ranks.

    Ranks keep a single extreme number from ruling a correlation.
    """
    if task.kind == "multiclass":
        return np.asarray(labels[:, None] == np.arange(len(task.classes)), np.float64)
    return np.asarray(rankdata(labels) if task.kind == "regression" else labels)[:, None]
