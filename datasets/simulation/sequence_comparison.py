"""Compare two sets of sequences by Jensen-Shannon divergences of their k-mers, lengths and residues by position.

Letters: N sequences, R residues, P positions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.kmers import count_kmers

__all__ = ["compare_sequences", "compute_jensen_shannon_divergence"]

_Sequences = tuple[NDArray[np.uint8], NDArray[np.int64]]
_N_LETTERS = len(AMINO_ACIDS)
_BLOCK = 1 << 20  # sequences whose residues are counted at a time, so that memory does not grow with a set


def compute_jensen_shannon_divergence(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Return the Jensen-Shannon divergence of two sets of counts, (n,) each, in bits, from 0 (alike) to 1.

    Two samples of one distribution have a divergence above zero as well. If all n outcomes are frequent, it is about (n
    - 1) (1 / N_a + 1 / N_b) / (8 ln 2). So compare a divergence with that of two real samples.

    Raises
    ------
    ValueError
        If the shapes differ, or one set counts nothing.
    """
    if a.shape != b.shape:
        raise ValueError(f"expected counts of the same outcomes, found shapes {a.shape} and {b.shape}")
    if not a.sum() or not b.sum():
        raise ValueError("expected at least one count in each set")
    p, q = a / a.sum(), b / b.sum()
    mean = (p + q) / 2
    return float((_compute_relative_entropy(p, mean) + _compute_relative_entropy(q, mean)) / 2)


def _compute_relative_entropy(p: NDArray[np.float64], mean: NDArray[np.float64]) -> float:
    present = p > 0
    return float((p[present] * np.log2(p[present] / mean[present])).sum())


def compare_sequences(a: _Sequences, b: _Sequences) -> dict[str, float]:
    """Return Jensen-Shannon divergences of two sets of sequences, in bits, by their names.

    Parameters
    ----------
    a, b
        Residues of the 20 amino acids end to end, (R,) uint8, and lengths, (N,) int64, of each set.

    Returns
    -------
    - `3-mers`, `4-mers`: divergence of all overlapping k-mers within the sequences.
    - `lengths`: divergence of the lengths.
    - `positions`: divergence of the residues at a position from the front, a mean over positions. The weight of a
      position is the number of sequences of both sets that reach it.
    - `positions of length L`: the same for sequences of one length L, the most frequent one in `a` and `b` together. It
      is left out if one set has no such sequence.

    Raises
    ------
    ValueError
        If a set has no k-mers.
    """
    result = {
        f"{k}-mers": compute_jensen_shannon_divergence(count_kmers(*a, range(k)), count_kmers(*b, range(k)))
        for k in (3, 4)
    }
    longest = int(max(a[1].max(), b[1].max()))
    length_counts = [np.bincount(lengths, minlength=longest + 1) for _, lengths in (a, b)]
    result["lengths"] = compute_jensen_shannon_divergence(*length_counts)
    result["positions"] = _compare_positions(*(_count_by_position(*sequences, longest) for sequences in (a, b)))
    typical = int((length_counts[0] / len(a[1]) + length_counts[1] / len(b[1])).argmax())
    if length_counts[0][typical] and length_counts[1][typical]:
        chosen = (_select_length(*sequences, typical) for sequences in (a, b))
        result[f"positions of length {typical}"] = _compare_positions(
            *(_count_by_position(*sequences, typical) for sequences in chosen)
        )
    return result


def _count_by_position(residues: NDArray[np.uint8], lengths: NDArray[np.int64], longest: int) -> NDArray[np.int64]:
    """Return the number of each residue at each position from the front, (P, 20)."""
    counts = np.zeros(longest * _N_LETTERS, np.int64)
    offsets = compute_offsets(lengths)
    for first in range(0, len(lengths), _BLOCK):
        bounds = offsets[first : first + _BLOCK + 1]
        block = residues[bounds[0] : bounds[-1]]
        positions = np.arange(len(block)) - np.repeat(bounds[:-1] - bounds[0], np.diff(bounds))
        counts += np.bincount(positions * _N_LETTERS + block, minlength=len(counts))
    return counts.reshape(longest, _N_LETTERS)


def _select_length(residues: NDArray[np.uint8], lengths: NDArray[np.int64], length: int) -> _Sequences:
    chosen = lengths == length
    return residues[np.repeat(chosen, lengths)], lengths[chosen]


def _compare_positions(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Return the mean divergence over positions that both sets reach, (P, 20) counts each."""
    weights = a.sum(1) / a[0].sum() + b.sum(1) / b[0].sum()
    both = (a.sum(1) > 0) & (b.sum(1) > 0)
    return float(
        np.average(
            [compute_jensen_shannon_divergence(*distributions) for distributions in zip(a[both], b[both], strict=True)],
            weights=weights[both],
        )
    )
