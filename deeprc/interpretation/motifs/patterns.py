"""Patterns: the residues that each position of a motif accepts, as text and as bits, and their correction of p-values.

Letters: W positions of a pattern, bit r of a position's mask says that residue r is accepted.
"""

from __future__ import annotations

from math import comb, log

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS

__all__ = ["ANY", "LONGEST", "Masks", "compute_pattern_cost", "format_pattern", "trim_pattern"]

Masks = NDArray[np.uint32]
"""A pattern: bits of the residues that each position accepts, (W,) uint32."""

ANY = (1 << len(AMINO_ACIDS)) - 1
"""Mask of a position that accepts any residue."""

LONGEST = 12
"""Number of positions of the longest pattern that is searched."""

_N = len(AMINO_ACIDS)


def format_pattern(masks: Masks) -> str:
    """Return a pattern as a regular expression: LDR[WY], `.` for any residue, [^CP] for any but C and P."""
    return "".join(_format_position(int(mask)) for mask in masks)


def _format_position(mask: int) -> str:
    letters = "".join(letter for r, letter in enumerate(AMINO_ACIDS) if mask >> r & 1)
    if len(letters) == _N:
        return "."
    if len(letters) == 1:
        return letters
    if len(letters) > _N // 2:
        return f"[^{''.join(letter for letter in AMINO_ACIDS if letter not in letters)}]"
    return f"[{letters}]"


def trim_pattern(masks: Masks) -> Masks:
    """Return a pattern without positions at its ends that accept any residue."""
    choosy = np.flatnonzero(masks != ANY)
    return masks[choosy[0] : choosy[-1] + 1] if len(choosy) else masks[:0]


def compute_pattern_cost(masks: Masks) -> float:
    """Return the natural logarithm of the factor by which the p-value of a pattern is corrected (weighted Bonferroni).

    The inverse of the factor is the share of the pattern in the allowed error. Each width has 1/12 of it. Patterns with
    s positions that accept any residue have 2^-(s + 1) of this, divided by the number of ways to choose these
    positions. The shares sum to at most 1. So the correction holds for any pattern, in whatever way it was found.
    """
    sizes = [int(mask).bit_count() for mask in masks]
    return log(LONGEST) + sum(log(2) if s == _N else (s + 1) * log(2) + log(comb(_N, s)) for s in sizes)
