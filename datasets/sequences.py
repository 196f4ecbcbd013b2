"""The sequences of one repertoire as arrays: what a reader's rows become after cleaning, ready to be stored.

Letters: R residues, N sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.categorical import Categorical

__all__ = ["SequenceTable"]


@dataclass(frozen=True)
class SequenceTable:
    """The N sequences of one repertoire, ready to be stored: what a reader's table becomes after cleaning.

    `residues` (R,) uint8 holds them end to end, `lengths` (N,) int64 their lengths, `counts` (N,) uint32
    their abundances; genes and `witness` (N,) uint8, the ground truth of a simulation, are optional.
    """

    residues: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    counts: NDArray[np.uint32]
    v_call: Categorical | None = None
    j_call: Categorical | None = None
    witness: NDArray[np.uint8] | None = None
