"""How much of the difference between repertoires comes through the attention, and how much through each reading.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.nn.contributions import OutputParts
from deeprc.outputs import output_names
from deeprc.tasks import Task

__all__ = ["Variation", "share_variation"]


@dataclass(frozen=True)
class Variation:
    """What an output varies by between repertoires.

    Attributes
    ----------
    target, output
        The names of the target and of its output.
    shares
        The share of the output's variance that comes through the attention and through each reading, by name. The
        shares sum to 1; one is below 0 if the part works against the others.
    """

    target: str
    output: str
    shares: Mapping[str, float]


def share_variation(parts: OutputParts, rows: NDArray[np.bool_], tasks: Sequence[Task]) -> list[Variation]:
    """Return what each output varies by between some repertoires.

    The share of a part is its covariance with the output, divided by the output's variance. Both are over repertoires.

    Parameters
    ----------
    parts
        The outputs of B repertoires by what they come through.
    rows
        The repertoires to look at, (B,).
    tasks
        The tasks that the T outputs belong to.

    Returns
    -------
    A `Variation` for each output that differs between these repertoires; none if there are no readings.
    """
    if not parts.through_readings:
        return []
    targets = [task.name for task in tasks for _ in range(task.n_outputs)]
    outputs = np.asarray(parts.outputs, np.float64)[rows]
    found = []
    for t, (target, name) in enumerate(zip(targets, output_names(tasks), strict=True)):
        centred = outputs[:, t] - outputs[:, t].mean() if len(outputs) else outputs[:, t]
        variance = float(centred @ centred)
        if variance > 0:
            shares = {source: float(centred @ part[rows, t]) / variance for source, part in parts.through.items()}
            found.append(Variation(target, name, shares))
    return found
