"""How unequal the counts of a repertoire's sequences are: features of the branch `composition`.

If some clones have expanded, a few sequences have most of the counts. Each feature is the logarithm of the share of all
counts that the most abundant sequences have: a point of the Lorenz curve (Lorenz 1905), as the index D50 is. If every
count is multiplied by the same number, such as by deeper sequencing of the same library, no feature changes.

Letters: B repertoires, N sequences of one repertoire, Q features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.progress import track

__all__ = ["TOP_FRACTIONS", "compute_log_top_shares", "compute_log_top_shares_table", "divide_top_shares"]

TOP_FRACTIONS = (0.5, 0.1, 0.01)
"""Which sequences a feature is about, the most abundant half, tenth and hundredth of them: Q numbers."""


def compute_log_top_shares(counts: NDArray[np.uint32]) -> Floats:
    """Return the logarithms of the shares of all counts that the most abundant sequences have, (Q,).

    The sequences are `TOP_FRACTIONS` of all, so their number need not be whole: the last one then counts in part.
    All are NaN if no count is above 1, as counts are unknown then, or the repertoire has not been sequenced deeply.
    """
    if counts.max(initial=0) <= 1:
        return np.full(len(TOP_FRACTIONS), np.nan)
    return np.asarray(np.log(_sum_top_counts(np.sort(counts)[::-1]) / counts.sum(dtype=np.int64)))


def divide_top_shares(counts: NDArray[np.uint32]) -> Floats:
    """Return the part of each sequence in each feature, (Q, N), whose sums are 1.

    The sequences at the top have parts in proportion to their counts, the others none. If only some sequences of one
    count are at the top, all sequences with this count have equal parts. So the order of the sequences does not matter.
    """
    descending = np.sort(counts)[::-1]
    parts = np.zeros((len(TOP_FRACTIONS), len(counts)))
    for part, fraction, total in zip(parts, TOP_FRACTIONS, _sum_top_counts(descending), strict=True):
        n_top = len(counts) * fraction
        least = descending[int(np.ceil(n_top)) - 1]
        above, equal = counts > least, counts == least
        part[above] = counts[above]
        part[equal] = least * ((n_top - above.sum()) / equal.sum())
        part /= total
    return parts


def _sum_top_counts(descending: NDArray[np.uint32]) -> Floats:
    """Return the sums of the largest counts, (Q,), of N counts in descending order."""
    cumulative = np.concatenate([[0.0], np.cumsum(descending, dtype=np.int64)])
    n_top = len(descending) * np.array(TOP_FRACTIONS)
    return np.asarray(np.interp(n_top, np.arange(len(cumulative)), cumulative))


def compute_log_top_shares_table(dataset: RepertoireDataset) -> Floats:
    """Return the features of each repertoire, (B, Q); it is cached. NaN: see `compute_log_top_shares`."""

    def compute(whole: RepertoireDataset) -> Arrays:
        rows = track(whole.map_repertoires(_compute_row), "reading counts", len(whole))
        return {"log_top_shares": np.array(list(rows)).reshape(len(whole), len(TOP_FRACTIONS))}

    arrays = load_or_compute(dataset, "log-top-shares", {"fractions": TOP_FRACTIONS}, compute)
    return np.asarray(arrays["log_top_shares"][dataset.repertoire_indices])


def _compute_row(repertoire: Repertoire) -> Floats:
    return compute_log_top_shares(repertoire.counts)
