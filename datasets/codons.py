"""The standard genetic code: nucleotides of junctions as amino acids.

Letters: N sequences, R letters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["translate"]

_BASES = b"TCAG"
_AMINO_ACIDS = b"FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
"""Of the codons TTT, TTC, TTA, TTG, TCT, ..., GGG: NCBI's translation table 1."""

_AMBIGUOUS, _PARTIAL = ord("X"), ord("_")
_CODE = np.full(256, 64, np.int64)  # 64 and more: no base
for _code, _base in enumerate(_BASES):
    _CODE[_base] = _CODE[_base + 32] = _code  # upper and lower case
_CODE[ord("U")] = _CODE[ord("u")] = 0
_TABLE = np.frombuffer(_AMINO_ACIDS, np.uint8)


def translate(letters: NDArray[np.uint8], offsets: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Translate N sequences that lie end to end.

    A stop codon is `*`, a codon with anything but a base `X`; where the length is no multiple of 3, which is out of
    frame, the whole codons are followed by `_`.

    Parameters
    ----------
    letters, offsets
        Nucleotides as ASCII, (R,) uint8, and the offsets of each sequence, (N + 1,) int64.

    Returns
    -------
    Amino acids as ASCII, and their offsets.
    """
    lengths = np.diff(offsets)
    whole, partial = lengths // 3, lengths % 3 > 0
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(whole + partial)])
    result = np.full(ends[-1], _PARTIAL, np.uint8)
    number = np.arange(whole.sum()) - np.repeat(np.cumsum(whole) - whole, whole)  # of each codon in its sequence
    starts = np.repeat(offsets[:-1], whole) + 3 * number
    first, second, third = (_CODE[letters[starts + place]] for place in range(3))
    codon = 16 * first + 4 * second + third
    is_codon = np.maximum(np.maximum(first, second), third) < 4
    amino_acids = np.where(is_codon, _TABLE[np.where(is_codon, codon, 0)], _AMBIGUOUS)
    result[np.repeat(ends[:-1], whole) + number] = amino_acids
    return result, ends
