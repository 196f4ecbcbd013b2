"""Find overdispersed k-mers, which vary more between repertoires than counting explains, such as motifs of a subgroup.

Labels are not used. So a later test of these few k-mers with labels needs no correction for all other k-mers.

Letters: B repertoires, D donors, M k-mers of one pattern (one tuple of offsets), n k-mers of any pattern.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.kmer_correlations import KmerStatistics
from deeprc.training.kmer_frequencies import Codes, Flags
from deeprc.training.kmer_occurrences import Occurrences, find_occurrences

__all__ = ["Dispersion", "OverdispersedKmers", "Sampling"]

Floats = NDArray[np.float64]

_N_LETTERS = len(AMINO_ACIDS)
_MIN_EXCESS = 6.0  # standard deviations by which the variance exceeds that of counting; see docs/experiments.md
_MAX_MEAN = 0.01  # frequency of a k-mer; more common ones are germline residues
_MIN_RESIDUES = 3  # pairs of residues are common, and so few that they can be tested all together
_PASSED_ON = 0.5  # share of the excess variance of a part that belongs to a longer k-mer
_MAX_LISTED = 2000  # k-mers that are looked for in sequences
_MIN_CARRIERS = 4  # donors that share the variance, in effect; fewer cannot tell a label from chance
_MAX_KEPT = 500  # k-mers that are tested
_MAX_OCCURRENCES = 2_000_000


class Sampling(NamedTuple):
    """How precisely frequencies are known.

    Attributes
    ----------
    size
        Number of sequences from which a frequency has, by counting alone, the mean of its sampling variances.
    n_donors
        Number of donors of equal weight that tell as much as these. Frequencies in repertoires of one donor may vary
        together, so those repertoires count once.
    """

    size: float
    n_donors: float

    @classmethod
    def of(cls, weights: Floats, sizes: Codes, donors: Codes) -> Sampling:
        """Return the sampling of repertoires with these weights, numbers of sequences and donors, (B,); none is empty.

        The donors are numbered from 0.
        """
        total = float(weights.sum())
        return cls(total / float((weights / sizes).sum()), total**2 / float((np.bincount(donors, weights) ** 2).sum()))

    def relative_excess(self, mean: Floats, variance: Floats) -> Floats:
        """Return the squared coefficient of variation of frequencies, less what counting adds, (M,); at least 0."""
        seen = mean > 0
        safe = np.where(seen, mean, 1)
        return np.where(seen, np.maximum(variance - mean / self.size, 0) / safe**2, 0)

    def excess(self, mean: Floats, variance: Floats, inherited: Floats) -> Floats:
        """Return by how many standard deviations the variance of frequencies exceeds what is expected, (M,).

        A count with mean m and a relative excess c has the variance m e, with e = 1 + c m. The ratio of the observed
        variance and m has the mean e and, from D donors, at most the variance (2 e^2 + 1 / m) / D. It has this
        variance if m is known and not estimated; rare k-mers, whose ratio is skewed, are so kept out.

        Parameters
        ----------
        mean, variance
            Mean and variance of the frequencies, (M,).
        inherited
            The relative excess that is expected, (M,).
        """
        count = np.where(mean > 0, mean, 1) * self.size
        expected = 1 + inherited * count
        deviation = np.sqrt((2 * expected**2 + 1 / count) / self.n_donors)
        return np.where(mean > 0, (variance * self.size**2 / count - expected) / deviation, 0)


@dataclass(frozen=True)
class OverdispersedKmers:
    """k-mers that vary more than counting explains, each in sequences of its own.

    Attributes
    ----------
    pattern
        Index of each k-mer's pattern, (n,).
    code
        Index of each k-mer among those of its pattern, (n,).
    frequencies
        Share of each repertoire's sequences that count for each k-mer, (B, n).
    occurrences
        Where the k-mers occur, also in sequences that count for another one.
    """

    pattern: Codes
    code: Codes
    frequencies: Floats
    occurrences: Occurrences

    def __len__(self) -> int:
        return len(self.code)


class _Listed(NamedTuple):
    """k-mers of any pattern, with their relative excess that is expected and the priority by excess, (n,) each."""

    pattern: Codes
    code: Codes
    inherited: Floats
    priority: Floats

    def take(self, rows: Codes) -> _Listed:
        return _Listed(self.pattern[rows], self.code[rows], self.inherited[rows], self.priority[rows])


class Dispersion:
    """How much the frequencies of k-mers vary between repertoires.

    Parameters
    ----------
    patterns
        Offsets of the k-mers' residues.
    weights, sizes, donors
        Weights of the repertoires, their numbers of sequences and the indices of their donors, (B,); none may be empty.
    """

    def __init__(self, patterns: Sequence[Sequence[int]], weights: Floats, sizes: Codes, donors: Codes) -> None:
        self._patterns, self._weights, self._sizes, self._donors = patterns, weights, sizes, donors
        self._sampling = Sampling.of(weights, sizes, donors)
        self._moments: dict[tuple[int, ...], tuple[Floats, Floats]] = {}

    def note(self, statistics: KmerStatistics) -> None:
        """Remember how the k-mers of one pattern vary."""
        self._moments[tuple(self._patterns[statistics.pattern])] = statistics.mean, statistics.variance

    def find_overdispersed(self, dataset: RepertoireDataset) -> OverdispersedKmers:
        """Return the k-mers of all patterns that vary more than counting and their parts explain.

        A part of a k-mer lacks one of its residues. If a part varies, because it is a piece of a gene, so does every
        k-mer that it is in; only what varies more than that is returned. But if one k-mer has at least half of the
        excess variance of its part, the part varies because of this k-mer, and the part is not returned.

        The forms of one motif are in the same sequences. So each sequence counts for one k-mer, that with the largest
        excess, and a k-mer whose remaining sequences do not vary is left out. So is one that varies because of fewer
        than four donors: such a k-mer goes with any label by chance.
        """
        listed = self._list_kmers()
        found = find_occurrences(dataset, self._patterns, listed.pattern, listed.code, max_occurrences=_MAX_OCCURRENCES)
        frequencies = _count_once(found, len(self._sizes), len(listed.code)) / self._sizes[:, None]
        mean = self._weights @ frequencies / self._weights.sum()
        squares = self._weights[:, None] * (frequencies - mean) ** 2
        variance = squares.sum(axis=0) / self._weights.sum()
        excess = self._sampling.excess(mean, variance, listed.inherited)
        excess[_count_effective(_sum_by_donor(squares, self._donors)) < _MIN_CARRIERS] = 0
        strongest = np.argsort(-excess, kind="stable")[:_MAX_KEPT]
        kept = strongest[excess[strongest] >= _MIN_EXCESS]
        return OverdispersedKmers(listed.pattern[kept], listed.code[kept], frequencies[:, kept], found.take(kept))

    def _list_kmers(self) -> _Listed:
        """Return the k-mers that vary more than their parts explain, those that vary most first."""
        relative = {key: self._sampling.relative_excess(*moments) for key, moments in self._moments.items()}
        variances = {key: value * self._moments[key][0] ** 2 for key, value in relative.items()}
        passed_on = _find_passed_on(variances)
        parts = []
        for index, kmer_offsets in enumerate(self._patterns):
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


def _known_parts(
    kmer_offsets: tuple[int, ...], known: Container[tuple[int, ...]]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the index of each residue that may be left out, and the offsets of the others, if they are known."""
    for left_out in range(len(kmer_offsets)):
        rest = kmer_offsets[:left_out] + kmer_offsets[left_out + 1 :]
        part = tuple(offset - rest[0] for offset in rest)
        if part in known:
            yield left_out, part


def _inherit(
    kmer_offsets: tuple[int, ...],
    relative: Mapping[tuple[int, ...], Floats],
    variances: Mapping[tuple[int, ...], Floats],
) -> Floats:
    """Return the largest relative excess of the parts of each k-mer of a pattern that do not pass it on to it, (M,).

    Parameters
    ----------
    kmer_offsets
        The pattern.
    relative, variances
        Relative excess and excess variance of the k-mers of each pattern.
    """
    shape = (_N_LETTERS,) * len(kmer_offsets)
    own = variances[kmer_offsets].reshape(shape)
    inherited = np.zeros(shape)
    for left_out, part in _known_parts(kmer_offsets, relative):
        of_part, variance = (np.expand_dims(each[part].reshape(shape[1:]), left_out) for each in (relative, variances))
        inherited = np.maximum(inherited, np.where(own < _PASSED_ON * variance, of_part, 0))
    return inherited.ravel()


def _find_passed_on(variances: Mapping[tuple[int, ...], Floats]) -> dict[tuple[int, ...], Flags]:
    """Return for the k-mers of each pattern whether a longer one has at least half of their excess variance, (M,)."""
    largest = {key: np.zeros(len(values)) for key, values in variances.items()}
    for kmer_offsets, values in variances.items():
        for left_out, part in _known_parts(kmer_offsets, variances):
            of_longer = values.reshape((_N_LETTERS,) * len(kmer_offsets)).max(axis=left_out).ravel()
            largest[part] = np.maximum(largest[part], of_longer)
    return {key: largest[key] >= _PASSED_ON * values for key, values in variances.items()}


def _sum_by_donor(parts: Floats, donors: Codes) -> Floats:
    """Return the sums over the repertoires of each donor, (D, n), of parts, (B, n)."""
    sums = np.zeros((int(donors.max(initial=-1)) + 1, parts.shape[1]))
    np.add.at(sums, donors, parts)
    return sums


def _count_effective(parts: Floats) -> Floats:
    """Return in how many equal parts, at least, each column is divided, (n,): (sum of parts)^2 / sum of squares."""
    squares = (parts**2).sum(axis=0)
    return np.asarray(parts.sum(axis=0) ** 2 / np.where(squares > 0, squares, 1))


def _count_once(found: Occurrences, n_repertoires: int, n: int) -> Codes:
    """Return how many sequences of each repertoire count for each k-mer, (B, n): each for its first k-mer."""
    order = np.lexsort((found.which, found.sequence))
    sequence = found.sequence[order]
    first = order[np.diff(sequence, prepend=-1) > 0]
    cell = found.repertoire[first].astype(np.int64) * n + found.which[first]
    return np.bincount(cell, minlength=n_repertoires * n).reshape(n_repertoires, n)
