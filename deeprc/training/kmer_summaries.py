"""What the search for motifs keeps of each pass over the repertoires: moments, strongest k-mers, largest correlations.

Several ranks divide the patterns among them, not the repertoires. Sums of frequencies are rounded, so they depend on
the order of the repertoires, and each pattern's sums must stay on one rank to have the digits of one process. Counts of
repertoires could be merged exactly, but there are 160,000 per repertoire and pattern; what is kept of a pattern is
smaller than the counts of two repertoires.

Letters: B repertoires, M k-mers of one pattern (one tuple of offsets), T' outputs, P permutations, n k-mers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.rank_calls import PackedFlags, compute_parts, count_parts
from deeprc.training.kmer_correlations import correlate
from deeprc.training.kmer_frequencies import Codes

__all__ = ["PatternSummary", "StrongestKmers", "summarise_patterns"]

Floats = NDArray[np.float64]

_MAX_NOTED = 2000  # k-mers of each pattern that are kept as candidates, those with the strongest correlations


class StrongestKmers(NamedTuple):
    """The k-mers of one pattern with the strongest correlations with the true label of one output.

    Attributes
    ----------
    code
        Index of each k-mer among those of its pattern, (n,).
    correlation
        Correlation of each k-mer, (n,).
    largest
        Largest absolute correlation of all k-mers of the pattern with each permuted label, (P,).
    """

    code: Codes
    correlation: Floats
    largest: NDArray[np.float32]


class PatternSummary(NamedTuple):
    """What is kept of the k-mers of one pattern.

    Attributes
    ----------
    pattern
        Index of the pattern.
    mean, variance
        Mean and variance of the frequencies, (M,); empty if they were not asked for.
    by_output
        The strongest k-mers for each of the T' outputs.
    """

    pattern: int
    mean: Floats
    variance: Floats
    by_output: list[StrongestKmers]


@dataclass(frozen=True)
class _Pass:
    """What all ranks need to know of a pass; the attributes are the parameters of `summarise_patterns`."""

    dataset: RepertoireDataset
    patterns: Sequence[Sequence[int]]
    labels: Floats
    weights: Floats
    left_out: PackedFlags | None
    with_moments: bool


def summarise_patterns(
    dataset: RepertoireDataset,
    patterns: Sequence[Sequence[int]],
    labels: Floats,
    weights: Floats,
    *,
    left_out: NDArray[np.bool_] | None = None,
    with_moments: bool = False,
) -> list[PatternSummary]:
    """Return what is kept of the k-mers of each pattern after a pass over the repertoires; the order has no meaning.

    Parameters
    ----------
    dataset, patterns, left_out
        Repertoires, offsets of k-mers and flags of sequences to ignore, see `correlate`.
    labels
        True labels and permutations of them, (B, T', 1 + P).
    weights
        Weights of the repertoires, (B,).
    with_moments
        Whether means and variances are kept.
    """
    flags = None if left_out is None else PackedFlags(left_out)
    work = partial(_summarise, _Pass(dataset, patterns, labels, weights, flags, with_moments))
    n_parts = count_parts()
    found = compute_parts(work, [range(first, len(patterns), n_parts) for first in range(n_parts)])
    return [summary for part in found for summary in part]


def _summarise(given: _Pass, chosen: Sequence[int]) -> list[PatternSummary]:
    """Return what is kept of the chosen patterns."""
    patterns = [given.patterns[index] for index in chosen]
    columns = given.labels.reshape(len(given.labels), -1)
    left_out = None if given.left_out is None else given.left_out.flags
    summaries = []
    for statistics in correlate(given.dataset, patterns, columns, given.weights, left_out):
        by_output = statistics.r.reshape(*given.labels.shape[1:], -1)  # (T', 1 + P, M)
        strongest = [_take_strongest(r) for r in by_output]
        moments = (statistics.mean, statistics.variance) if given.with_moments else (np.empty(0), np.empty(0))
        summaries.append(PatternSummary(chosen[statistics.pattern], *moments, strongest))
    return summaries


def _take_strongest(r: NDArray[np.float32]) -> StrongestKmers:
    """Return the strongest k-mers of one output from all correlations, (1 + P, M)."""
    size = np.abs(r[0])
    kept = min(_MAX_NOTED, len(size))
    code = np.argpartition(size, len(size) - kept)[len(size) - kept :]
    largest = np.array([max(permuted.max(), -permuted.min()) for permuted in r[1:]], np.float32)
    return StrongestKmers(code, r[0, code].astype(np.float64), largest)
