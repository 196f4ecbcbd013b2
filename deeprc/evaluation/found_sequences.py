"""Metrics of a ranked list of sequences against the true ones, which are known for simulated cohorts.

A list has each sequence once, the best first. It may be incomplete: true sequences that it lacks count as not found.
All measures are 1 if the true sequences come first, and NaN if there are none.

Letters: R sequences of the list.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["compute_average_precision", "compute_jaccard_index", "compute_precision_at_n_true"]


def compute_precision_at_n_true(is_true: NDArray[np.bool_], n_true: int) -> float:
    """Return the share of true sequences among the first `n_true` of a list.

    Parameters
    ----------
    is_true
        Whether each sequence of the list is true, (R,).
    n_true
        The number of true sequences, in the list or not.
    """
    return float(is_true[:n_true].sum()) / n_true if n_true else np.nan


def compute_average_precision(is_true: NDArray[np.bool_], n_true: int) -> float:
    """Return the area under the precision-recall curve: the mean precision at the places of the true sequences.

    The precision at a place is the share of true sequences up to it. It is 0 for a true sequence that the list lacks.
    The parameters are those of `compute_precision_at_n_true`.
    """
    places = 1 + np.flatnonzero(is_true)
    return float((np.arange(1, len(places) + 1) / places).sum()) / n_true if n_true else np.nan


def compute_jaccard_index(is_true: NDArray[np.bool_], n_true: int) -> float:
    """Return the Jaccard index of the first `n_true` sequences of a list and the true sequences.

    The parameters are those of `compute_precision_at_n_true`.
    """
    first = is_true[:n_true]
    shared = int(first.sum())
    return shared / (len(first) + n_true - shared) if n_true else np.nan
