"""Expansion scores: how high the counts of sequences rank in their repertoire.

The expansion score of a sequence is the Savage score (Savage 1956), the expected value of the rank in a sample of the
exponential distribution with mean 1, minus 1. So the most abundant of N sequences has about log(N) - 0.4, the median
sequence -0.3, and the mean is 0. Sequences with equal counts have the mean of their scores. Nothing changes if a rising
function is applied to all counts of a repertoire, such as a common factor. If all counts are equal, nothing is known of
the expansion.

Letters: N sequences of one repertoire.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers

__all__ = [
    "MIN_EXPANSION_SCORE",
    "compute_expansion_scores",
    "find_smallest_expanded_count",
    "has_known_expansion",
]

MIN_EXPANSION_SCORE = 1.3
"""Smallest score of a sequence that is called expanded: about the most abundant tenth have it, with ties up to 27%."""

_NOTHING_EXPANDED = 1 << 32  # above all counts


def has_known_expansion(counts: NDArray[np.uint32]) -> bool:
    """Return whether the counts of a repertoire, (N,), are not all equal."""
    return len(counts) > 0 and bool(counts.max() > counts.min())


def compute_expansion_scores(counts: NDArray[np.uint32]) -> Floats:
    """Return the expansion score of each sequence of a repertoire from the counts, (N,); all are 0 if all are equal."""
    _, index, n_equal = np.unique(counts, return_inverse=True, return_counts=True)
    return np.asarray(_score_values(n_equal)[index.reshape(len(counts))])


def _score_values(n_equal: Integers) -> Floats:
    """Return the score of each different count, in ascending order, from the numbers of sequences that have it."""
    n = int(n_equal.sum())
    sums = np.concatenate([[0.0], np.cumsum(np.cumsum(1 / np.arange(n, 0, -1)))])  # sums of the scores of the ranks
    stop = np.cumsum(n_equal)
    return (sums[stop] - sums[stop - n_equal]) / n_equal - 1 if len(n_equal) > 1 else np.zeros(len(n_equal))


def find_smallest_expanded_count(counts: NDArray[np.uint32]) -> int:
    """Return the smallest count of an expanded sequence of a repertoire from all counts, (N,).

    If no sequence is expanded, it is above the largest possible count.
    """
    values, n_equal = np.unique(counts, return_counts=True)
    is_expanded = _score_values(n_equal) >= MIN_EXPANSION_SCORE  # scores rise with the counts
    return int(values[is_expanded.argmax()]) if is_expanded.any() else _NOTHING_EXPANDED
