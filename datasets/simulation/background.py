"""Backgrounds, which are the sources of the sequences of a simulated repertoire before anything is implanted.

Letters: n sequences, R residues.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numba import uint64
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.random_numbers import draw_uniforms, draw_word
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError

__all__ = ["RESIDUE_WEIGHTS", "Background", "IndependentBackground", "draw_standard_normals", "replace_rows"]

RESIDUE_WEIGHTS: Mapping[str, int] = {
    # of 65,536 residues
    "A": 6653,
    "C": 4536,
    "D": 1903,
    "E": 3682,
    "F": 6639,
    "G": 6401,
    "H": 797,
    "I": 875,
    "K": 614,
    "L": 2631,
    "M": 225,
    "N": 1900,
    "P": 2009,
    "Q": 4298,
    "R": 2732,
    "S": 9506,
    "T": 4357,
    "V": 1416,
    "W": 428,
    "Y": 3934,
}
"""Frequency of each amino acid in human TRB junctions: 62,015,656 residues of 4,248,766 distinct sequences, pooled from
the 57 studies of TCR-BERT (https://github.com/wukevin/tcr-bert, data/tcrdb, commit 63aa483, Apache-2.0)."""

_BITS = 16
_LONGEST = 64
_BLOCK = 1 << 13  # number of sequences that a thread draws at a time


def draw_standard_normals(key: int, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a standard normal number for each counter of a key, by the inverse of the distribution function."""
    normal: NDArray[np.float64] = ndtri(draw_uniforms(key, counters) + 2.0**-54)  # above 0
    return normal


def replace_rows(sequences: Sequences, rows: NDArray[np.int64], others: Sequences) -> Sequences:
    """Return sequences in which some rows, (m,), are replaced by others, (m,); with genes if both have genes."""
    index = np.arange(len(sequences))
    index[rows] = len(sequences) + np.arange(len(rows))
    return Sequences.concatenate([sequences, others]).take(index)


class Background(Protocol):
    """A source of sequences: any sequence of any repertoire can be drawn alone and is always the same."""

    def draw(self, key: int, rows: NDArray[np.int64]) -> Sequences:
        """Return the sequences at these rows, (n,), of the endless repertoire of a key of 64 bits.

        Their counts are 1.
        """

    def draw_lengths(self, key: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return only the lengths of these sequences, (n,), at less cost if this is possible."""
        return self.draw(key, rows).lengths


@dataclass(frozen=True)
class IndependentBackground:
    """A background of independently drawn residues; the lengths are from a normal distribution, rounded.

    Attributes
    ----------
    mean_length, sd_length
        Mean and standard deviation of the lengths before they are rounded. Lengths below 1 become 1, those above 64
        become 64.
    weights
        Frequency of each amino acid, in parts of 65,536.
    """

    mean_length: float = 14.5
    sd_length: float = 1.8
    weights: Mapping[str, int] = field(default_factory=lambda: RESIDUE_WEIGHTS)

    def __post_init__(self) -> None:
        if not 1 <= self.mean_length <= _LONGEST or not 0 <= self.sd_length <= _LONGEST:
            raise InputError(
                f"background: expected a mean_length of 1 to {_LONGEST} and an sd_length of 0 to {_LONGEST}, found "
                f"{self.mean_length} and {self.sd_length}"
            )
        valid = set(self.weights) <= set(AMINO_ACIDS) and min(self.weights.values(), default=0) >= 0
        if not valid or sum(self.weights.values()) != 1 << _BITS:
            raise InputError(f"background: expected weights of amino acids that sum to {1 << _BITS}")

    @cached_property
    def _residue_table(self) -> NDArray[np.uint8]:
        """The amino acid of each number of 16 bits."""
        return np.repeat(np.arange(20, dtype=np.uint8), [self.weights.get(letter, 0) for letter in AMINO_ACIDS])

    @cached_property
    def length_probabilities(self) -> NDArray[np.float64]:
        """The probability of each length from 0 to 64."""
        if self.sd_length == 0:
            return np.asarray(np.arange(_LONGEST + 1) == math.floor(self.mean_length + 0.5), np.float64)
        below: NDArray[np.float64] = ndtr((np.arange(_LONGEST) + 0.5 - self.mean_length) / self.sd_length)
        below[0] = 0.0  # no sequence is empty
        probabilities: NDArray[np.float64] = np.diff(below, prepend=0.0, append=1.0)
        return probabilities

    @cached_property
    def _length_bounds(self) -> NDArray[np.uint64]:
        """For each length, the smallest number of 32 bits that gives a longer sequence."""
        return np.rint(np.cumsum(self.length_probabilities) * 2.0**32).astype(np.uint64)

    def draw(self, key: int, rows: NDArray[np.int64]) -> Sequences:
        """Return the sequences at these rows, see `Background.draw`."""
        lengths = self.draw_lengths(key, rows)
        offsets = compute_offsets(lengths)
        residues = np.empty(offsets[-1], np.uint8)
        run_in_blocks(_draw_residues, len(rows), _BLOCK, np.uint64(key), rows, offsets, self._residue_table, residues)
        return Sequences.counted_once(residues, offsets)

    def draw_lengths(self, key: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return only the lengths of these sequences."""
        lengths = np.empty(len(rows), np.int64)
        run_in_blocks(_draw_lengths, len(rows), _BLOCK, np.uint64(key), rows, self._length_bounds, lengths)
        return lengths


@njit(nogil=True)
def _draw_lengths(
    first: int, stop: int, key: int, rows: NDArray[np.int64], bounds: NDArray[np.uint64], lengths: NDArray[np.int64]
) -> None:
    """Draw the lengths of some sequences from the last 32 bits of the first random number of each."""
    middle = 0
    while middle < len(bounds) - 1 and bounds[middle] < np.uint64(1 << 31):
        middle += 1
    for n in range(first, stop):
        bits = draw_word(draw_word(key, rows[n]), 0) & uint64(0xFFFFFFFF)
        length = middle
        while bits >= bounds[length]:
            length += 1
        while length > 0 and bits < bounds[length - 1]:
            length -= 1
        lengths[n] = length


@njit(nogil=True)
def _draw_residues(
    first: int,
    stop: int,
    key: int,
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    table: NDArray[np.uint8],
    residues: NDArray[np.uint8],
) -> None:
    """Draw the residues of some sequences: each random number except the first gives four, by 16 bits each."""
    for n in range(first, stop):
        sequence_key = draw_word(key, rows[n])
        at, sequence_stop, counter = offsets[n], offsets[n + 1], 1
        while at < sequence_stop:
            bits = draw_word(sequence_key, counter)
            counter += 1
            next_stop = min(at + 4, sequence_stop)
            while at < next_stop:
                residues[at] = table[bits & uint64(0xFFFF)]
                bits >>= uint64(16)
                at += 1
