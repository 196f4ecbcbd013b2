"""How diverse the counts of a repertoire are: features of the branch `composition`.

If some clones have expanded, a few sequences have most of the counts, and fewer different clones are among a given
number of counts. All features are logarithms of shares:

- the share of all counts that the most abundant sequences have: a point of the Lorenz curve (Lorenz 1905), as the index
  D50 is. If every count is multiplied by the same number, it does not change. But deeper sequencing also finds more
  rare clones, and then the most abundant hundredth are other sequences;
- the number of different clones that are expected among D counts (`estimate_richness`), divided by D. D is the same for
  all repertoires, so it does not depend on how deeply a repertoire was sequenced, if one count is one cell or molecule.

Letters: B repertoires, N sequences of one repertoire, Q features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.abundance_histogram import AbundanceHistogram, estimate_richness, load_histograms
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.progress import track

__all__ = ["choose_richness_depth", "compute_abundance_features", "compute_abundance_table", "name_abundance_features"]

_TOP_FRACTIONS = {"half": 0.5, "tenth": 0.1, "hundredth": 0.01}  # of the sequences, by what tables call them
_DEPTH_QUANTILE = 0.1  # share of the training repertoires that have fewer counts than the depth


def choose_richness_depth(dataset: RepertoireDataset) -> int:
    """Return the number of counts, D, at which numbers of clones are compared: few of the repertoires have fewer.

    Repertoires without any clone that has several counts are left out. If there are no others, it is 1.
    """
    totals = [histogram.total for histogram in load_histograms(dataset) if histogram.abundances.max(initial=0) > 1]
    return int(np.quantile(totals, _DEPTH_QUANTILE)) if totals else 1


def name_abundance_features(richness_depth: int) -> list[str]:
    """Return what tables call the Q features of `compute_abundance_features`."""
    names = [f"share of the counts of the most abundant {name}" for name in _TOP_FRACTIONS]
    return [*names, f"clones per count, among {richness_depth:,} counts"] if richness_depth else names


def compute_abundance_features(repertoire: Repertoire, richness_depth: int) -> Floats:
    """Return the features of a repertoire, (Q,).

    The most abundant sequences are fractions of all, so their number need not be whole: the last one then counts in
    part. All features are NaN if no count is above 1, as counts are unknown then, or sequencing was not deep.

    Parameters
    ----------
    repertoire
        The repertoire, of N sequences.
    richness_depth
        Number of counts, D, at which numbers of clones are compared; if it is 0, this feature is left out.
    """
    top_shares = _compute_log_top_shares(repertoire.counts)
    if not richness_depth:
        return top_shares
    return _append_richness(top_shares, AbundanceHistogram.from_repertoire(repertoire), richness_depth)


def compute_abundance_table(dataset: RepertoireDataset, richness_depth: int) -> Floats:
    """Return the features of each repertoire, (B, Q), see `compute_abundance_features`; what takes long is cached."""

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        rows = track(all_repertoires.map_repertoires(_compute_row), "reading counts", len(all_repertoires))
        return {"log_top_shares": np.array(list(rows)).reshape(len(all_repertoires), len(_TOP_FRACTIONS))}

    arrays = load_or_compute(dataset, "log-top-shares", {"fractions": tuple(_TOP_FRACTIONS.values())}, compute)
    top_shares = np.asarray(arrays["log_top_shares"][dataset.repertoire_indices])
    if not richness_depth:
        return top_shares
    histograms = load_histograms(dataset)
    rows = [_append_richness(*each, richness_depth) for each in zip(top_shares, histograms, strict=True)]
    return np.array(rows).reshape(len(dataset), len(_TOP_FRACTIONS) + 1)


def _compute_row(repertoire: Repertoire) -> Floats:
    return _compute_log_top_shares(repertoire.counts)


def _compute_log_top_shares(counts: NDArray[np.uint32]) -> Floats:
    """Return the logarithms of the shares of all counts that the most abundant sequences have, (3,)."""
    if counts.max(initial=0) <= 1:
        return np.full(len(_TOP_FRACTIONS), np.nan)
    cumulative = np.concatenate([[0.0], np.cumsum(np.sort(counts)[::-1], dtype=np.int64)])
    n_top = len(counts) * np.array([*_TOP_FRACTIONS.values()])
    return np.asarray(np.log(np.interp(n_top, np.arange(len(cumulative)), cumulative) / cumulative[-1]))


def _append_richness(top_shares: Floats, histogram: AbundanceHistogram, depth: int) -> Floats:
    """Return the features, (4,), from the first three of them, (3,), which are NaN if the counts are unknown."""
    is_known = not np.isnan(top_shares[0])
    return np.append(top_shares, np.log(estimate_richness(histogram, depth) / depth) if is_known else np.nan)
