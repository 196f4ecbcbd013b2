"""Which weights a training kept, from its history."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from deeprc.errors import InputError

__all__ = ["WHOLE_VALIDATION_PREFIXES", "KeptWeights", "find_kept_update", "find_kept_weights"]

WHOLE_VALIDATION_PREFIXES = ("whole_validation", "fitted_validation")
"""Prefixes of the columns with losses and AUCs of whole validation repertoires; the latter are of a fitted output."""


class KeptWeights(NamedTuple):
    """Number of updates of the weights that were kept, and their validation loss and AUC (NaN if there is none)."""

    update: int
    loss: float
    auc: float


def find_kept_update(history: pd.DataFrame) -> int:
    """Return the number of updates of the weights that a training kept, 0 for the start.

    It is `best_update` of the last row. In each earlier row, `best_update` is the update with the best validation loss
    until then. At the end, losses on whole validation repertoires may decide for other weights.

    Parameters
    ----------
    history
        Table `history.tsv` of a run that has ended, with at least one row.
    """
    if "best_update" in history:
        return int(history["best_update"].iloc[-1])
    # Runs of earlier versions kept the lowest loss.
    return int(history["update"].iloc[int(history["validation_loss"].to_numpy(np.float64).argmin())])


def find_kept_weights(history: pd.DataFrame) -> KeptWeights:
    """Return which weights a training kept, with their loss and AUC on validation repertoires.

    Parameters
    ----------
    history
        Table `history.tsv` of a run, or the history of a `TrainingState` as a table. If the losses of whole validation
        repertoires decided which weights were kept, the loss and the AUC are those of whole repertoires.

    Raises
    ------
    InputError
        If the history has no row.
    """
    if history.empty:
        raise InputError("the history of the training is empty")
    last, update = history.iloc[-1], find_kept_update(history)
    row = history[history["update"] == update].iloc[0]
    prefix = "fitted_validation" if last.get("fitted") == 1 else "whole_validation"
    if not np.isfinite(row.get(f"{prefix}_loss", np.nan)):
        prefix = "validation"
    return KeptWeights(update, float(row[f"{prefix}_loss"]), float(row.get(f"{prefix}_auc", np.nan)))
