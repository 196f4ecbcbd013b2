"""Search for overdispersed k-mers: their frequencies vary more between repertoires than counting explains.

Motifs of a subgroup of donors are such k-mers. Labels are not used, so a later test of these few k-mers with labels
needs no correction for all other k-mers.

Letters: B repertoires, D donors, M k-mers of one spacing (one tuple of offsets), n k-mers of any spacing.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.kmer_frequencies import Codes, Flags
from deeprc.training.kmer_occurrences import Occurrences, find_occurrences

__all__ = ["Dispersion", "OverdispersedKmers", "Sampling"]

Floats = NDArray[np.float64]

_N_LETTERS = len(AMINO_ACIDS)
_MIN_EXCESS = 6.0  # smallest excess of the variance over counting, in standard deviations; see docs/experiments.md
_MAX_MEAN = 0.01  # largest mean frequency; more common k-mers are germline residues
_MIN_RESIDUES = 3  # pairs of residues are common, and few enough to be tested with all k-mers
_PASSED_ON = 0.5  # from this share on, the excess variance of a part is attributed to a longer k-mer
_MAX_LISTED = 2000  # k-mers whose occurrences in sequences are searched
_MIN_CARRIERS = 4  # smallest effective number of donors that share the variance; fewer agree with any label by chance
_MAX_KEPT = 500  # k-mers that are tested
_MAX_OCCURRENCES = 2_000_000


class Sampling(NamedTuple):
    """Precision of frequencies, which depends on numbers of sequences and donors.

    Attributes
    ----------
    size
        Effective number of sequences: with it, counting alone gives the mean sampling variance of a frequency.
    n_donors
        Effective number of donors, if all had equal weight. Frequencies in repertoires of one donor may vary together,
        so these repertoires count once.
    """

    size: float
    n_donors: float

    @classmethod
    def of(cls, weights: Floats, sizes: Codes, donors: Codes) -> Sampling:
        """Return the precision from weights, numbers of sequences and donors of repertoires, (B,) each; none is empty.

        The donors are numbered from 0.
        """
        total = float(weights.sum())
        return cls(total / float((weights / sizes).sum()), total**2 / float((np.bincount(donors, weights) ** 2).sum()))

    def relative_excess(self, mean: Floats, variance: Floats) -> Floats:
        """Return the squared coefficient of variation of frequencies, minus its part by counting, (M,); at least 0."""
        seen = mean > 0
        safe = np.where(seen, mean, 1)
        return np.where(seen, np.maximum(variance - mean / self.size, 0) / safe**2, 0)

    def excess(self, mean: Floats, variance: Floats, inherited: Floats) -> Floats:
        """Return the excess of the variance of frequencies over its expectation, in standard deviations, (M,).

        A count with mean m and a relative excess c has the variance m e, with e = 1 + c m. The ratio of the observed
        variance and m has the mean e and, with D donors, at most the variance (2 e^2 + 1 / m) / D. This limit holds if
        m is known and not estimated; it excludes rare k-mers, whose ratio has a skewed distribution.

        Parameters
        ----------
        mean, variance
            Mean and variance of the frequencies, (M,).
        inherited
            Expected relative excess, (M,).
        """
        count = np.where(mean > 0, mean, 1) * self.size
        expected = 1 + inherited * count
        deviation = np.sqrt((2 * expected**2 + 1 / count) / self.n_donors)
        return np.where(mean > 0, (variance * self.size**2 / count - expected) / deviation, 0)


@dataclass(frozen=True)
class OverdispersedKmers:
    """n k-mers that vary more than counting explains, where each sequence counts for one k-mer only.

    Attributes
    ----------
    spacing
        Index of each k-mer's spacing, (n,).
    code
        Index of each k-mer among those of its spacing, (n,).
    frequencies
        Share of each repertoire's sequences that count for each k-mer, (B, n).
    occurrences
        All occurrences of the k-mers, also in sequences that count for another k-mer.
    """

    spacing: Codes
    code: Codes
    frequencies: Floats
    occurrences: Occurrences

    def __len__(self) -> int:
        return len(self.code)


class _Listed(NamedTuple):
    """k-mers of any spacing, with their expected relative excess and their priority, (n,) each."""

    spacing: Codes
    code: Codes
    inherited: Floats
    priority: Floats

    def take(self, rows: Codes) -> _Listed:
        return _Listed(self.spacing[rows], self.code[rows], self.inherited[rows], self.priority[rows])


class Dispersion:
    """The variation of k-mer frequencies between repertoires.

    Parameters
    ----------
    spacings
        Offsets of the residues of k-mers.
    weights, sizes, donors
        Weight, number of sequences and donor index of each repertoire, (B,) each; no repertoire may be empty.
    """

    def __init__(self, spacings: Sequence[Sequence[int]], weights: Floats, sizes: Codes, donors: Codes) -> None:
        self._spacings, self._weights, self._sizes, self._donors = spacings, weights, sizes, donors
        self._sampling = Sampling.of(weights, sizes, donors)
        self._moments: dict[tuple[int, ...], tuple[Floats, Floats]] = {}

    def note(self, spacing: int, mean: Floats, variance: Floats) -> None:
        """Store mean and variance of the frequencies of the k-mers of one spacing, (M,) each, by its index."""
        self._moments[tuple(self._spacings[spacing])] = mean, variance

    def find_overdispersed(self, dataset: RepertoireDataset) -> OverdispersedKmers:
        """Return the k-mers of all spacings that vary more than counting and their parts explain.

        A part of a k-mer is the k-mer without one of its residues. If a part varies, for example as a piece of a gene,
        every k-mer with this part varies, too; a k-mer is returned only if it varies more than that. But if one k-mer
        has at least half of the excess variance of its part, the part varies because of this k-mer, and the part is not
        returned.

        The forms of one motif are in the same sequences. So each sequence counts only for the k-mer with the largest
        excess, and a k-mer is left out if its remaining sequences do not vary. A k-mer is also left out if it varies
        because of fewer than four donors: it would be correlated with many labels by chance.
        """
        listed = self._list_kmers()
        found = find_occurrences(dataset, self._spacings, listed.spacing, listed.code, max_occurrences=_MAX_OCCURRENCES)
        frequencies = _count_once(found, len(self._sizes)) / self._sizes[:, None]
        mean = self._weights @ frequencies / self._weights.sum()
        squares = self._weights[:, None] * (frequencies - mean) ** 2
        variance = squares.sum(axis=0) / self._weights.sum()
        excess = self._sampling.excess(mean, variance, listed.inherited)
        excess[_count_effective(_sum_by_donor(squares, self._donors)) < _MIN_CARRIERS] = 0
        strongest = np.argsort(-excess, kind="stable")[:_MAX_KEPT]
        kept = strongest[excess[strongest] >= _MIN_EXCESS]
        return OverdispersedKmers(listed.spacing[kept], listed.code[kept], frequencies[:, kept], found.take(kept))

    def _list_kmers(self) -> _Listed:
        """Return the k-mers that vary more than their parts explain, most variable first."""
        relative = {key: self._sampling.relative_excess(*moments) for key, moments in self._moments.items()}
        variances = {key: value * self._moments[key][0] ** 2 for key, value in relative.items()}
        passed_on = _find_passed_on(variances)
        parts = []
        for index, kmer_offsets in enumerate(self._spacings):
            mean, variance = self._moments[tuple(kmer_offsets)]
            inherited = _inherit(tuple(kmer_offsets), relative, variances)
            exceeding = self._sampling.excess(mean, variance, inherited) >= _MIN_EXCESS
            exceeding &= (mean <= _MAX_MEAN) & (len(kmer_offsets) >= _MIN_RESIDUES)
            code = np.flatnonzero(exceeding & ~passed_on[tuple(kmer_offsets)])
            priority = self._sampling.excess(mean[code], variance[code], np.zeros(len(code)))
            parts.append(_Listed(np.full(len(code), index), code, inherited[code], priority))
        listed = _Listed(*map(np.concatenate, zip(*parts, strict=True)))
        order = np.argsort(-listed.priority, kind="stable")[:_MAX_LISTED]
        return listed.take(order)


def _iterate_known_parts(
    kmer_offsets: tuple[int, ...], known: Container[tuple[int, ...]]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the parts of a spacing that are known: the index of the residue that is left out, and the other offsets."""
    for dropped in range(len(kmer_offsets)):
        rest = kmer_offsets[:dropped] + kmer_offsets[dropped + 1 :]
        part = tuple(offset - rest[0] for offset in rest)
        if part in known:
            yield dropped, part


def _inherit(
    kmer_offsets: tuple[int, ...],
    relative: Mapping[tuple[int, ...], Floats],
    variances: Mapping[tuple[int, ...], Floats],
) -> Floats:
    """Return the relative excess that each k-mer of a spacing inherits from its parts, (M,), the largest of them.

    Parameters
    ----------
    kmer_offsets
        Offsets of the residues of the k-mers.
    relative, variances
        Relative excess, and excess variance, of the k-mers of each spacing.
    """
    shape = (_N_LETTERS,) * len(kmer_offsets)
    own = variances[kmer_offsets].reshape(shape)
    inherited = np.zeros(shape)
    for dropped, part in _iterate_known_parts(kmer_offsets, relative):
        of_part, variance = (np.expand_dims(each[part].reshape(shape[1:]), dropped) for each in (relative, variances))
        inherited = np.maximum(inherited, np.where(own < _PASSED_ON * variance, of_part, 0))
    return inherited.ravel()


def _find_passed_on(variances: Mapping[tuple[int, ...], Floats]) -> dict[tuple[int, ...], Flags]:
    """Return whether a longer k-mer has at least half of the excess variance of each k-mer, (M,), by spacing."""
    largest = {key: np.zeros(len(values)) for key, values in variances.items()}
    for kmer_offsets, values in variances.items():
        for dropped, part in _iterate_known_parts(kmer_offsets, variances):
            of_longer = values.reshape((_N_LETTERS,) * len(kmer_offsets)).max(axis=dropped).ravel()
            largest[part] = np.maximum(largest[part], of_longer)
    return {key: largest[key] >= _PASSED_ON * values for key, values in variances.items()}


def _sum_by_donor(parts: Floats, donors: Codes) -> Floats:
    """Return the sum of `parts`, (B, n), over the repertoires of each donor, (D, n)."""
    sums = np.zeros((int(donors.max(initial=-1)) + 1, parts.shape[1]))
    np.add.at(sums, donors, parts)
    return sums


def _count_effective(parts: Floats) -> Floats:
    """Return the effective number of equal parts of each column, (n,): (sum of parts)^2 / sum of squares."""
    squares = (parts**2).sum(axis=0)
    return np.asarray(parts.sum(axis=0) ** 2 / np.where(squares > 0, squares, 1))


def _count_once(found: Occurrences, n_repertoires: int) -> Codes:
    """Return the number of sequences that count for each k-mer, (B, n); each sequence counts for its first k-mer."""
    order = np.lexsort((found.kmer, found.sequence))
    sequence = found.sequence[order]
    return found.tabulate(n_repertoires, order[np.diff(sequence, prepend=-1) > 0])
