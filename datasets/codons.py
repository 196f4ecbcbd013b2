"""The standard genetic code: nucleotides of junctions as amino acids."""

from __future__ import annotations

import numpy as np

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.raw_texts import RawTexts

__all__ = ["translate"]

_BASES = b"TCAG"
_AMINO_ACIDS = b"FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
"""The amino acids of the codons TTT, TTC, TTA, TTG, TCT, ..., GGG: NCBI's translation table 1."""

_AMBIGUOUS, _PARTIAL = ord("X"), ord("_")
_CODE = np.full(256, 64, np.int64)  # 64 and more: no base
for _code, _base in enumerate(_BASES):
    _CODE[_base] = _CODE[_base + 32] = _code  # upper and lower case
_CODE[ord("U")] = _CODE[ord("u")] = 0
_TABLE = np.frombuffer(_AMINO_ACIDS, np.uint8)


def translate(nucleotides: RawTexts) -> RawTexts:
    """Translate N sequences of nucleotides into amino acids.

    A stop codon becomes `*`, a codon with anything but a base becomes `X`. If the length is not a multiple of 3, the
    sequence is out of frame, and `_` follows the whole codons.
    """
    lengths = nucleotides.lengths
    n_codons, partial = lengths // 3, lengths % 3 > 0
    ends = compute_offsets(n_codons + partial)
    result = np.full(ends[-1], _PARTIAL, np.uint8)
    first_codons = np.cumsum(n_codons) - n_codons
    index = np.arange(n_codons.sum()) - np.repeat(first_codons, n_codons)  # index of each codon in its sequence
    starts = np.repeat(nucleotides.offsets[:-1], n_codons) + 3 * index
    first, second, third = (_CODE[nucleotides.letters[starts + base]] for base in range(3))
    codon = 16 * first + 4 * second + third
    is_codon = np.maximum(np.maximum(first, second), third) < 4
    amino_acids = np.where(is_codon, _TABLE[np.where(is_codon, codon, 0)], _AMBIGUOUS)
    result[np.repeat(ends[:-1], n_codons) + index] = amino_acids
    return RawTexts(result, ends)
