"""What the search for motifs keeps of each pass over the repertoires: moments, strongest k-mers, largest correlations.

Several ranks divide the spacings among them, not the repertoires. Sums of frequencies are rounded, so they depend on
the order of the repertoires. To have the digits of one process, each spacing's sums must stay on one rank. Counts of
repertoires could be merged exactly, but there are 160,000 per repertoire and spacing; what is kept of a spacing is
smaller than the counts of two repertoires.

Letters: B repertoires, M k-mers of one spacing (one tuple of offsets), T' outputs, P permutations, L = T' (1 + P)
labels, n k-mers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Flags, Floats, Integers
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.rank_calls import PackedFlags, compute_parts, count_parts
from deeprc.training.kmer_correlations import correlate
from deeprc.training.kmer_sets import Spacing

__all__ = ["SpacingSummary", "StrongestKmers", "summarise_spacings"]

_MAX_KEPT = 2000  # k-mers of each spacing that are kept as candidates, those with the strongest correlations


class StrongestKmers(NamedTuple):
    """The k-mers of one spacing with the strongest correlations with the true label of one output.

    Attributes
    ----------
    code
        Index of each k-mer among those of its spacing, (n,).
    correlation
        Correlation of each k-mer, (n,).
    max_permuted_correlation
        Largest absolute correlation of all k-mers of the spacing with each permuted label, (P,).
    """

    code: Integers
    correlation: Floats
    max_permuted_correlation: NDArray[np.float32]


class SpacingSummary(NamedTuple):
    """Summary of the k-mers of one spacing: moments of their frequencies, and the strongest k-mers.

    Attributes
    ----------
    spacing_index
        Index of the spacing.
    mean, variance
        Mean and variance of the frequencies, (M,); empty if they were not asked for.
    by_output
        The strongest k-mers for each of the T' outputs.
    """

    spacing_index: int
    mean: Floats
    variance: Floats
    by_output: list[StrongestKmers]


@dataclass(frozen=True)
class _Arguments:
    """The arguments of `summarise_spacings`, which all ranks get."""

    dataset: RepertoireDataset
    spacings: Sequence[Spacing]
    labels: Floats
    weights: Floats
    excluded: PackedFlags | None
    with_moments: bool


def summarise_spacings(
    dataset: RepertoireDataset,
    spacings: Sequence[Spacing],
    labels: Floats,
    weights: Floats,
    *,
    excluded: Flags | None = None,
    with_moments: bool = False,
) -> list[SpacingSummary]:
    """Return a summary of the k-mers of each spacing, in any order, after one pass over the repertoires.

    Parameters
    ----------
    dataset, spacings, excluded
        Repertoires, spacings of k-mers and flags of sequences to ignore, see `correlate`.
    labels
        True labels and permutations of them, (B, T', 1 + P).
    weights
        Weights of the repertoires, (B,).
    with_moments
        Whether means and variances are kept.
    """
    flags = None if excluded is None else PackedFlags(excluded)
    work = partial(_summarise_part, _Arguments(dataset, spacings, labels, weights, flags, with_moments))
    n_parts = count_parts()
    summaries_of_parts = compute_parts(work, [range(first, len(spacings), n_parts) for first in range(n_parts)])
    return [summary for part in summaries_of_parts for summary in part]


def _summarise_part(arguments: _Arguments, spacing_indices: Sequence[int]) -> list[SpacingSummary]:
    """Return the summaries of some of the spacings, by their indices."""
    spacings = [arguments.spacings[index] for index in spacing_indices]
    labels = arguments.labels.reshape(len(arguments.labels), -1)  # (B, T', 1 + P) -> (B, L)
    excluded = None if arguments.excluded is None else arguments.excluded.flags
    summaries = []
    for statistics in correlate(arguments.dataset, spacings, labels, arguments.weights, excluded):
        by_output = statistics.correlations.reshape(*arguments.labels.shape[1:], -1)  # (L, M) -> (T', 1 + P, M)
        strongest = [_take_strongest(correlations) for correlations in by_output]
        moments = (statistics.mean, statistics.variance) if arguments.with_moments else (np.empty(0), np.empty(0))
        summaries.append(SpacingSummary(spacing_indices[statistics.spacing_index], *moments, strongest))
    return summaries


def _take_strongest(correlations: NDArray[np.float32]) -> StrongestKmers:
    """Return the strongest k-mers of one output from all correlations, (1 + P, M): with the true label, then others."""
    with_label, with_permuted = correlations[0], correlations[1:]
    strength = np.abs(with_label)
    n_others = len(strength) - min(_MAX_KEPT, len(strength))
    code = np.argpartition(strength, n_others)[n_others:]
    max_permuted = np.array([max(permuted.max(), -permuted.min()) for permuted in with_permuted], np.float32)
    return StrongestKmers(code, with_label[code].astype(np.float64), max_permuted)
