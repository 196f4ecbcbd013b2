"""The compiled loops of the branch `composition`: what each sequence of a repertoire adds to the scores.

Letters: N sequences of one repertoire, T outputs, M 4-mers, E 3-mers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.branches.expansion import EXPANSION_K
from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.sequences import SequenceArrays

__all__ = ["N_KMERS", "ExpansionTerms", "FrequencyTerms", "K", "add_expansion_terms", "write_frequency_terms"]

K = 4
"""Number of residues of a k-mer."""

_N_LETTERS = len(AMINO_ACIDS)

N_KMERS = _N_LETTERS**K
"""Number of k-mers, M."""

_PLACE_VALUE = _N_LETTERS ** (K - 1)  # of the first residue in the code of a k-mer, a number with the base 20
_EXPANSION_PLACE_VALUE = _N_LETTERS ** (EXPANSION_K - 1)


class FrequencyTerms(NamedTuple):
    """The amounts that the k-mers and genes of a sequence add to the scores by their frequencies in the repertoire.

    A sequence adds factor * (constants + scale * (sum of the weights of its k-mers) + shares of its V gene and J gene).

    Attributes
    ----------
    factors
        Factor of each sequence, (N,): its share of its clonal family, or 1.
    kmer_weights, scale
        Weights of the 4-mers, (T, M), and their common factor.
    constants
        Amount that every sequence adds to each score, (T,).
    v_shares, j_shares
        Amount that a sequence adds by the code of its gene, (T, vocabulary); (T, 0) if genes have no weights.
    """

    factors: Floats
    kmer_weights: NDArray[np.float32]
    scale: float
    constants: Floats
    v_shares: Floats
    j_shares: Floats


class ExpansionTerms(NamedTuple):
    """The amounts that the k-mers and genes of a sequence add to the scores because its clone has expanded.

    A sequence adds constants + its factor * (sum of the weights of its k-mers, its V gene and its J gene).

    Attributes
    ----------
    kmer_weights, factors
        Weights of the 3-mers, (T, E), and the factor of each sequence, (N,).
    constants
        Amount that every sequence adds to each score, (T,).
    v_weights, j_weights
        Weights of the genes by the code of the gene, (T, vocabulary); (T, 0) if genes have none.
    """

    kmer_weights: NDArray[np.float32]
    factors: Floats
    constants: Floats
    v_weights: Floats
    j_weights: Floats


@njit(nogil=True, inline="always")
def _sum_kmer_weights(
    residues: NDArray[np.uint8], start: int, stop: int, weights: NDArray[np.float32], k: int, place_value: int
) -> float:
    """Return the sum of the weights of the k-mers of the sequence `residues[start:stop]`.

    The code of a k-mer is a number with k digits of base 20. The next k-mer has one more digit at its end, and lacks
    the first one, whose `place_value` is 20 ** (k - 1). Indices are unsigned, so negative ones need no test.
    """
    begin, end = uint64(start), uint64(stop)
    n_letters, first_place, n_before = uint64(_N_LETTERS), uint64(place_value), uint64(k - 1)
    total, code = 0.0, uint64(0)
    for at in range(begin, min(begin + n_before, end)):
        code = code * n_letters + uint64(residues[at])
    for at in range(begin + n_before, end):
        code = code * n_letters + uint64(residues[at])
        total += weights[code]
        code -= first_place * uint64(residues[at - n_before])
    return total


@njit(nogil=True)
def write_frequency_terms(
    start: int, stop: int, sequences: SequenceArrays, terms: FrequencyTerms, contributions: Floats
) -> None:
    """Write what each sequence from `start` to `stop` adds to each score, (T, N)."""
    residues, offsets, v, j = sequences.residues, sequences.offsets, sequences.v, sequences.j
    has_v, has_j = terms.v_shares.shape[1] > 0, terms.j_shares.shape[1] > 0
    for output in range(len(contributions)):
        weights = terms.kmer_weights[output]
        for row in range(start, stop):
            weight_sum = _sum_kmer_weights(residues, offsets[row], offsets[row + 1], weights, K, _PLACE_VALUE)
            total = terms.constants[output] + terms.scale * weight_sum
            if has_v:
                total += terms.v_shares[output, v[row]]
            if has_j:
                total += terms.j_shares[output, j[row]]
            contributions[output, row] = terms.factors[row] * total


@njit(nogil=True)
def add_expansion_terms(
    start: int, stop: int, sequences: SequenceArrays, terms: ExpansionTerms, contributions: Floats
) -> None:
    """Add to the contributions, (T, N), what each sequence from `start` to `stop` adds because of its expansion."""
    residues, offsets, v, j = sequences.residues, sequences.offsets, sequences.v, sequences.j
    has_v, has_j = terms.v_weights.shape[1] > 0, terms.j_weights.shape[1] > 0
    for output in range(len(contributions)):
        weights = terms.kmer_weights[output]
        for row in range(start, stop):
            begin, end = offsets[row], offsets[row + 1]
            weight_sum = _sum_kmer_weights(residues, begin, end, weights, EXPANSION_K, _EXPANSION_PLACE_VALUE)
            if has_v:
                weight_sum += terms.v_weights[output, v[row]]
            if has_j:
                weight_sum += terms.j_weights[output, j[row]]
            contributions[output, row] += terms.constants[output] + terms.factors[row] * weight_sum
