"""Search for overdispersed k-mers: their frequencies vary more between repertoires than counting explains.

For example, ten of 100 donors have a motif in 1% of their sequences, and the others have it in 0.1%. If all 100 had the
same frequency, counting would explain much smaller differences. Labels are not used. So these few k-mers can be tested
with labels later, without a correction for all other k-mers.

Letters: B repertoires, D donors, M k-mers of one spacing (one tuple of offsets), n k-mers of any spacing.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from deeprc.arrays import Flags, Floats, Integers
from deeprc.branches.frequency_precision import FrequencyPrecision
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.kmer_occurrences import Occurrences, find_occurrences
from deeprc.training.kmer_sets import KmerSet, Spacing

__all__ = ["Dispersion", "OverdispersedKmers"]

_N_LETTERS = len(AMINO_ACIDS)
_MIN_Z_SCORE = 6.0  # smallest z-score of a k-mer's variance, see `compute_z_scores`; chosen in docs/experiments.md
_MAX_MEAN = 0.01  # largest mean frequency; more common k-mers are germline residues
_MIN_RESIDUES = 3  # pairs of residues are common, and few enough to be tested with all k-mers
_MIN_SHARE_OF_LONGER = 0.5  # with this share of a k-mer's excess variance, a longer k-mer is kept in its place
_MAX_LISTED = 2000  # k-mers whose occurrences in sequences are searched
_MIN_CARRIERS = 4  # smallest effective number of donors that share the variance; fewer agree with any label by chance
_MAX_KEPT = 500  # k-mers that are tested
_MAX_OCCURRENCES = 2_000_000


@dataclass(frozen=True)
class OverdispersedKmers:
    """n k-mers that vary more than counting explains, where each sequence counts for one k-mer only.

    Attributes
    ----------
    kmers
        The k-mers.
    frequencies
        Share of each repertoire's sequences that count for each k-mer, (B, n).
    occurrences
        All occurrences of the k-mers, also in sequences that count for another k-mer.
    """

    kmers: KmerSet
    frequencies: Floats
    occurrences: Occurrences

    def __len__(self) -> int:
        return len(self.kmers)


class _ListedKmers(NamedTuple):
    """k-mers of any spacing, with the relative excess that they inherit from their parts, (n,)."""

    kmers: KmerSet
    inherited: Floats


class Dispersion:
    """The variation of k-mer frequencies between repertoires.

    Parameters
    ----------
    spacings
        Spacings of the k-mers.
    weights, sizes, donors
        Weight, number of sequences and donor index of each repertoire, (B,) each; no repertoire may be empty.
    """

    def __init__(self, spacings: Sequence[Spacing], weights: Floats, sizes: Integers, donors: Integers) -> None:
        self._spacings, self._weights, self._sizes, self._donors = spacings, weights, sizes, donors
        self._precision = FrequencyPrecision.from_repertoires(weights, sizes, donors)
        self._moments: dict[Spacing, tuple[Floats, Floats]] = {}

    def add_moments(self, spacing_index: int, mean: Floats, variance: Floats) -> None:
        """Store mean and variance of the frequencies of the k-mers of one spacing, (M,) each."""
        self._moments[self._spacings[spacing_index]] = mean, variance

    def find_overdispersed(self, dataset: RepertoireDataset) -> OverdispersedKmers:
        """Return the k-mers of all spacings that vary more than counting and their parts explain.

        A part of a k-mer is the k-mer without one of its residues: a part of `SLG` is `SL`. Either may vary because of
        the other:

        - If `SL` varies, for example as a piece of a gene, every k-mer with this part varies, too. So `SLG` is returned
          only if it varies more than that.
        - If `SLG` has at least half of the excess variance of `SL`, then `SL` varies because of `SLG`, and only `SLG`
          is returned.

        Two more rules leave out k-mers:

        - The pieces and variants of one motif are in the same sequences. So each sequence counts only for the k-mer
          with the highest z-score, and a k-mer is left out if its remaining sequences do not vary.
        - A k-mer is left out if it varies because of fewer than four donors, because it would be correlated with many
          labels by chance.
        """
        listed = self._list_kmers()
        occurrences = find_occurrences(dataset, listed.kmers, max_occurrences=_MAX_OCCURRENCES)
        frequencies = _count_each_sequence_once(occurrences, len(self._sizes)) / self._sizes[:, None]
        z_scores = self._compute_z_scores(frequencies, listed.inherited)
        strongest = np.argsort(-z_scores, kind="stable")[:_MAX_KEPT]
        kept = strongest[z_scores[strongest] >= _MIN_Z_SCORE]
        return OverdispersedKmers(listed.kmers.take(kept), frequencies[:, kept], occurrences.take(kept))

    def _compute_z_scores(self, frequencies: Floats, inherited: Floats) -> Floats:
        """Return the z-score of each k-mer's variance, (n,); 0 if too few donors share the variance.

        `frequencies`, (B, n), and `inherited`, (n,), are those of `OverdispersedKmers` and `_ListedKmers`.
        """
        mean = self._weights @ frequencies / self._weights.sum()
        squares = self._weights[:, None] * (frequencies - mean) ** 2
        variance = squares.sum(axis=0) / self._weights.sum()
        n_carriers = _compute_effective_number(_sum_by_donor(squares, self._donors))
        return np.where(n_carriers < _MIN_CARRIERS, 0.0, self._precision.compute_z_scores(mean, variance, inherited))

    def _list_kmers(self) -> _ListedKmers:
        """Return the k-mers that vary more than their parts explain, most variable first."""
        relative_excess: dict[Spacing, Floats] = {}
        excess_variances: dict[Spacing, Floats] = {}
        for spacing, (mean, variance) in self._moments.items():
            relative_excess[spacing] = self._precision.compute_relative_excess(mean, variance)
            excess_variances[spacing] = relative_excess[spacing] * mean**2
        explained_by_longer = _find_explained_by_longer(excess_variances)
        kmers, inherited, z_scores = [], [], []
        for index, spacing in enumerate(self._spacings):
            mean, variance = self._moments[spacing]
            inherited_excess = _compute_inherited_excess(spacing, relative_excess, excess_variances)
            is_overdispersed = self._precision.compute_z_scores(mean, variance, inherited_excess) >= _MIN_Z_SCORE
            may_be_motif = (mean <= _MAX_MEAN) & (len(spacing) >= _MIN_RESIDUES)
            code = np.flatnonzero(is_overdispersed & may_be_motif & ~explained_by_longer[spacing])
            kmers.append(KmerSet(self._spacings, np.full(len(code), index), code))
            inherited.append(inherited_excess[code])
            z_scores.append(self._precision.compute_z_scores(mean[code], variance[code], np.zeros(len(code))))
        order = np.argsort(-np.concatenate(z_scores), kind="stable")[:_MAX_LISTED]
        return _ListedKmers(KmerSet.concatenate(kmers).take(order), np.concatenate(inherited)[order])


def _iterate_parts(spacing: Spacing, searched: Container[Spacing]) -> Iterator[tuple[int, Spacing]]:
    """Yield the parts of a spacing that are searched: the index of the residue that is left out, and the spacing."""
    for dropped in range(len(spacing)):
        remaining = spacing[:dropped] + spacing[dropped + 1 :]
        part = tuple(offset - remaining[0] for offset in remaining)
        if part in searched:
            yield dropped, part


def _compute_inherited_excess(
    spacing: Spacing, relative_excess: Mapping[Spacing, Floats], excess_variances: Mapping[Spacing, Floats]
) -> Floats:
    """Return the relative excess that each k-mer of a spacing inherits from its parts, (M,), the largest of them.

    A k-mer inherits nothing from a part of whose excess variance it has at least half. Arrays of k-mers have one
    dimension for each residue here; in those of a part, the dimension of the dropped residue has size 1.

    Parameters
    ----------
    spacing
        Spacing of the k-mers.
    relative_excess, excess_variances
        Relative excess, and excess variance, of the k-mers of each spacing.
    """
    shape = (_N_LETTERS,) * len(spacing)
    kmer_variance = excess_variances[spacing].reshape(shape)
    inherited = np.zeros(shape)
    for dropped, part in _iterate_parts(spacing, relative_excess):
        part_excess = np.expand_dims(relative_excess[part].reshape(shape[1:]), dropped)
        part_variance = np.expand_dims(excess_variances[part].reshape(shape[1:]), dropped)
        inherits = kmer_variance < _MIN_SHARE_OF_LONGER * part_variance
        inherited = np.maximum(inherited, np.where(inherits, part_excess, 0))
    return inherited.ravel()


def _find_explained_by_longer(excess_variances: Mapping[Spacing, Floats]) -> dict[Spacing, Flags]:
    """Return whether a longer k-mer has at least half of the excess variance of each k-mer, (M,), by spacing."""
    largest_of_longer = {spacing: np.zeros(len(variance)) for spacing, variance in excess_variances.items()}
    for spacing, variance in excess_variances.items():
        for dropped, part in _iterate_parts(spacing, excess_variances):
            largest = variance.reshape((_N_LETTERS,) * len(spacing)).max(axis=dropped).ravel()
            largest_of_longer[part] = np.maximum(largest_of_longer[part], largest)
    return {
        spacing: largest_of_longer[spacing] >= _MIN_SHARE_OF_LONGER * variance
        for spacing, variance in excess_variances.items()
    }


def _sum_by_donor(parts: Floats, donors: Integers) -> Floats:
    """Return the sum of `parts`, (B, n), over the repertoires of each donor, (D, n)."""
    sums = np.zeros((int(donors.max(initial=-1)) + 1, parts.shape[1]))
    np.add.at(sums, donors, parts)
    return sums


def _compute_effective_number(parts: Floats) -> Floats:
    """Return the effective number of parts of each column, (n,): (sum of parts)^2 / (sum of their squares)."""
    squares = (parts**2).sum(axis=0)
    return np.asarray(parts.sum(axis=0) ** 2 / np.where(squares > 0, squares, 1))


def _count_each_sequence_once(occurrences: Occurrences, n_repertoires: int) -> Integers:
    """Return the number of sequences that count for each k-mer, (B, n); each sequence counts for its first k-mer."""
    order = np.lexsort((occurrences.kmer, occurrences.sequence))
    sequence = occurrences.sequence[order]
    return occurrences.tabulate(n_repertoires, order[np.diff(sequence, prepend=-1) > 0])
