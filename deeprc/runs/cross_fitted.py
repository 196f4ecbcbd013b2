"""Outputs of the repertoires that a model's readings have learned from, as if they had not.

Letters: B repertoires, Q readings, T outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.contributions import OutputParts
from deeprc.training.model import TrainedModel

__all__ = ["use_cross_fitted"]


def use_cross_fitted(
    parts: OutputParts, model: TrainedModel, dataset: RepertoireDataset, scores: Mapping[str, NDArray[np.floating]]
) -> OutputParts:
    """Return outputs in which cross-fitted scores replace those of readings that have learned from the repertoire.

    This is exact, because a reading adds its score times its gain to the outputs.

    Parameters
    ----------
    parts
        The outputs of the dataset, (B, T).
    model
        The model whose outputs they are.
    dataset
        The B repertoires.
    scores
        Cross-fitted scores by the id of the repertoire, (Q, T) each, of those that the readings have learned from.
    """
    readings = model.network.readings
    rows = [row for row, name in enumerate(dataset.repertoire_ids) if name in scores]
    if readings is None or not rows:
        return parts
    gains = readings.gains.detach().cpu().numpy()
    added = np.stack([scores[name] for name in dataset.repertoire_ids[rows]]) * gains  # (rows, Q, T)
    outputs = parts.outputs.copy()
    through = {name: part.copy() for name, part in parts.through_readings.items()}
    for q, name in enumerate(readings.names):
        outputs[rows] += added[:, q] - through[name][rows]
        through[name][rows] = added[:, q]
    return OutputParts(outputs, through)
