"""Which weights a training kept, from its history."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from deeprc.errors import InputError

__all__ = ["WHOLE_VALIDATION_PREFIXES", "KeptWeights", "find_kept_weights"]

WHOLE_VALIDATION_PREFIXES = ("whole_validation", "fitted_validation")
"""Prefixes of the columns with losses and AUCs of whole validation repertoires; the latter are of a fitted output."""


class KeptWeights(NamedTuple):
    """Number of updates of the weights that were kept, and their validation loss and AUC (NaN if there is none)."""

    update: int
    loss: float
    auc: float


def find_kept_weights(history: pd.DataFrame) -> KeptWeights:
    """Return the weights that a training kept.

    Parameters
    ----------
    history
        Table `history.tsv` of a run, or the history of a `TrainingState` as a table. If whole validation repertoires
        decided, loss and AUC are theirs.

    Raises
    ------
    InputError
        If the history has no row.
    """
    if history.empty:
        raise InputError("the history of the training is empty")
    last = history.iloc[-1]
    if "best_update" in history:
        update = int(last["best_update"])
    else:  # runs of earlier versions kept the lowest loss
        update = int(history["update"].iloc[int(history["validation_loss"].to_numpy(np.float64).argmin())])
    row = history[history["update"] == update].iloc[0]
    prefix = "fitted_validation" if last.get("fitted") == 1 else "whole_validation"
    if not np.isfinite(row.get(f"{prefix}_loss", np.nan)):
        prefix = "validation"
    return KeptWeights(update, float(row[f"{prefix}_loss"]), float(row.get(f"{prefix}_auc", np.nan)))
