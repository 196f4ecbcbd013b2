"""The sequences of one repertoire as arrays: what a reader's rows become after cleaning, ready to be stored.

Letters: R residues, N sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["GeneCalls", "SequenceTable"]


@dataclass(frozen=True)
class GeneCalls:
    """Gene names of N sequences: `codes` (N,) uint16 index `vocabulary`, where "" is an unknown gene."""

    codes: NDArray[np.uint16]
    vocabulary: tuple[str, ...]

    def names(self) -> NDArray[np.object_]:
        """Return the N names as text, (N,) object."""
        return np.asarray(self.vocabulary, dtype=object)[self.codes]


@dataclass(frozen=True)
class SequenceTable:
    """The N sequences of one repertoire, ready to be stored: what a reader's table becomes after cleaning.

    `residues` (R,) uint8 holds them end to end, `lengths` (N,) int64 their lengths, `counts` (N,) uint32
    their abundances; genes and `witness` (N,) uint8, the ground truth of a simulation, are optional.
    """

    residues: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    counts: NDArray[np.uint32]
    v_call: GeneCalls | None = None
    j_call: GeneCalls | None = None
    witness: NDArray[np.uint8] | None = None
