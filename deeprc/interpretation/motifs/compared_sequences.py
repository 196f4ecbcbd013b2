"""Attended sequences and sequences of the background, between which patterns are compared.

Residues are indices, and sequences are end to end. Letters: R residues, n attended sequences, L positions of the
longest sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS, encode_many
from deeprc.interpretation.motifs.enrichment import compute_fisher_log_p
from deeprc.interpretation.motifs.matching import count_pattern_carriers
from deeprc.interpretation.motifs.patterns import Masks

__all__ = ["BackgroundFrequencies", "ComparedSequences"]

_N = len(AMINO_ACIDS)
_PRIOR = 20.0  # number of sequences with the overall frequencies that are added to the counts of each position


class BackgroundFrequencies(NamedTuple):
    """Frequencies of residues in the background: overall, (20,), and by length and position, (L + 1, L, 20)."""

    overall: NDArray[np.float64]
    by_position: NDArray[np.float64]


class ComparedSequences(NamedTuple):
    """Attended and background sequences.

    Attributes
    ----------
    residues, offsets
        Residues of the sequences, (R,), and their offsets; the attended sequences come first.
    n_attended
        Number of attended sequences, n.
    frequencies
        Frequencies of residues in the background. They stay the same if residues of `residues` are erased.
    """

    residues: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    n_attended: int
    frequencies: BackgroundFrequencies

    @classmethod
    def of(cls, attended: Sequence[str], background: Sequence[str]) -> ComparedSequences:
        """Return attended and background sequences, with the frequencies of the background."""
        residues, offsets = encode_many([*attended, *background])
        return cls(residues, offsets, len(attended), _measure_background(residues, offsets, len(attended)))

    @property
    def n_background(self) -> int:
        """Number of background sequences."""
        return len(self.offsets) - 1 - self.n_attended

    def count_carriers(self, patterns: list[Masks]) -> NDArray[np.int64]:
        """Return the numbers of attended and of background sequences that carry each of M patterns, (2, M)."""
        attended = count_pattern_carriers(self.residues, self.offsets[: self.n_attended + 1], patterns)
        return np.stack([attended, count_pattern_carriers(self.residues, self.offsets[self.n_attended :], patterns)])

    def log_p(self, patterns: list[Masks]) -> NDArray[np.float64]:
        """Return the natural logarithms of the p-values of the enrichment of M patterns, (M,)."""
        attended_with, background_with = self.count_carriers(patterns)
        return np.asarray(compute_fisher_log_p(attended_with, self.n_attended, background_with, self.n_background))


def _measure_background(
    residues: NDArray[np.uint8], offsets: NDArray[np.int64], n_attended: int
) -> BackgroundFrequencies:
    """Return the frequencies of residues in the background; those at a position are smoothed by the overall ones."""
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0))
    offsets, lengths = offsets[n_attended:], lengths[n_attended:]
    residues = residues[offsets[0] :]
    position = np.arange(len(residues)) - np.repeat(offsets[:-1] - offsets[0], lengths)
    overall = (np.bincount(residues, minlength=_N) + 1.0) / (len(residues) + _N)
    by_position = np.zeros((longest + 1, longest, _N))
    np.add.at(by_position, (np.repeat(lengths, lengths), position, residues), 1.0)
    by_position += _PRIOR * overall
    return BackgroundFrequencies(overall, by_position / by_position.sum(axis=2, keepdims=True))
