"""Shares of the variance of outputs between repertoires that come through the attention and through each branch.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.nn.sequence_scores import OutputParts
from deeprc.outputs import list_output_names
from deeprc.tasks import Task

__all__ = ["VarianceShares", "compute_variance_shares"]


@dataclass(frozen=True)
class VarianceShares:
    """Shares of the variance of one output between repertoires.

    Attributes
    ----------
    target, output
        Names of the target and of its output.
    shares
        Share of the variance of the output that comes through the attention and through each branch, by name. The
        shares sum to 1; a share is below 0 if its part counteracts the others.
    """

    target: str
    output: str
    shares: Mapping[str, float]


def compute_variance_shares(
    parts: OutputParts, selected: NDArray[np.bool_], tasks: Sequence[Task]
) -> list[VarianceShares]:
    """Return the shares of the variance of each output between some repertoires.

    The share of a part is its covariance with the output over repertoires, divided by the variance of the output.

    Parameters
    ----------
    parts
        Outputs of B repertoires, and their parts through each branch.
    selected
        Whether each repertoire is used, (B,).
    tasks
        Tasks of the T outputs.

    Returns
    -------
    A `VarianceShares` for each output that varies between these repertoires; empty if there are no branches.
    """
    if not parts.beside_attention:
        return []
    targets = [task.name for task in tasks for _ in range(task.n_outputs)]
    outputs = np.asarray(parts.outputs, np.float64)[selected]
    variations = []
    for t, (target, name) in enumerate(zip(targets, list_output_names(tasks), strict=True)):
        centred = outputs[:, t] - outputs[:, t].mean() if len(outputs) else outputs[:, t]
        variance = float(centred @ centred)
        if variance > 0:
            shares = {source: float(centred @ part[selected, t]) / variance for source, part in parts.by_source.items()}
            variations.append(VarianceShares(target, name, shares))
    return variations
