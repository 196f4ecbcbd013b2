"""The repertoires to which readings are fitted, and the result of a fit.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.readings import Reading
from deeprc.tasks import Task

__all__ = ["FittedReading", "TrainingCohort"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingCohort:
    """The training repertoires, in an order that their content decides.

    Attributes
    ----------
    dataset
        The B repertoires.
    labels
        Their labels, (B, number of tasks); NaN where missing.
    tasks
        The tasks.
    groups
        Repertoires with equal numbers are of one donor, (B,) int64: no inner fold separates them. None: each is alone.
    """

    dataset: RepertoireDataset
    labels: Floats
    tasks: Sequence[Task]
    groups: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class FittedReading:
    """A reading, and its cross-fitted scores of the repertoires to which it was fitted.

    Attributes
    ----------
    reading
        The reading, fitted to all training repertoires.
    scores
        Cross-fitted scores of the training repertoires, (B, T): each is the score by a reading that was fitted without
        the repertoire's fold. 0 for an output that the reading does not predict.
    gains
        The decrease of the mean loss of each output on held-out repertoires by the scores, (T,), in nats or,
        for a number, in half squared standard deviations; 0 for an output that the reading does not predict.
    """

    reading: Reading
    scores: Floats
    gains: Floats
