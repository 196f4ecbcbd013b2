"""How unequal the counts of a repertoire's sequences are: features of the branch `composition`.

If some clones have expanded, a few sequences have most of the counts. Each feature is the logarithm of the share of all
counts that the most abundant sequences have: a point of the Lorenz curve (Lorenz 1905), as the index D50 is. If every
count is multiplied by the same number, no feature changes. But deeper sequencing also finds more rare clones, and then
the most abundant hundredth are other sequences: so cohorts that were sequenced to different depths are not comparable.

Letters: B repertoires, N sequences of one repertoire, Q features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.progress import track

__all__ = ["TOP_FRACTIONS", "compute_log_top_shares", "compute_log_top_shares_table"]

TOP_FRACTIONS = {"half": 0.5, "tenth": 0.1, "hundredth": 0.01}
"""Which fractions of the sequences, the most abundant ones, the Q features are about, by what tables call them."""


def compute_log_top_shares(counts: NDArray[np.uint32]) -> Floats:
    """Return the logarithms of the shares of all counts that the most abundant sequences have, (Q,).

    The sequences are `TOP_FRACTIONS` of all, so their number need not be whole: the last one then counts in part.
    All are NaN if no count is above 1, as counts are unknown then, or the repertoire has not been sequenced deeply.
    """
    if counts.max(initial=0) <= 1:
        return np.full(len(TOP_FRACTIONS), np.nan)
    cumulative = np.concatenate([[0.0], np.cumsum(np.sort(counts)[::-1], dtype=np.int64)])
    n_top = len(counts) * np.array([*TOP_FRACTIONS.values()])
    return np.asarray(np.log(np.interp(n_top, np.arange(len(cumulative)), cumulative) / cumulative[-1]))


def compute_log_top_shares_table(dataset: RepertoireDataset) -> Floats:
    """Return the features of each repertoire, (B, Q); it is cached. NaN: see `compute_log_top_shares`."""

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        rows = track(all_repertoires.map_repertoires(_compute_row), "reading counts", len(all_repertoires))
        return {"log_top_shares": np.array(list(rows)).reshape(len(all_repertoires), len(TOP_FRACTIONS))}

    arrays = load_or_compute(dataset, "log-top-shares", {"fractions": tuple(TOP_FRACTIONS.values())}, compute)
    return np.asarray(arrays["log_top_shares"][dataset.repertoire_indices])


def _compute_row(repertoire: Repertoire) -> Floats:
    return compute_log_top_shares(repertoire.counts)
