"""The 23 input features of a residue: 20 one-hot amino acids and 3 positional features (paper lines 8570-8600).

Letters: N sequences, L length of a sequence.

One-hot features are multiplied by the abundance scale of their sequence. Then all 23 are divided by the standard
deviation of the whole repertoire, which follows from lengths and counts alone. Features are not stored: they are
computed from the residues where they are needed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "ABUNDANCE_MODES",
    "N_AMINO_ACIDS",
    "N_FEATURES",
    "N_POSITIONAL",
    "AbundanceMode",
    "compute_abundance_scale",
    "compute_inverse_std",
    "compute_positional_features",
]

N_AMINO_ACIDS = 20
N_POSITIONAL = 3
N_FEATURES = N_AMINO_ACIDS + N_POSITIONAL

AbundanceMode = Literal["none", "log1p", "log"]
ABUNDANCE_MODES: tuple[AbundanceMode, ...] = get_args(AbundanceMode)


def compute_positional_features(max_length: int) -> NDArray[np.float64]:
    """Return the positional features: how near each position is to the start, the centre and the end of its sequence.

    With x = p / (L - 1), which goes from 0 to 1 along a sequence of length L, the features are max(0, 1 - 2x), 1 - |1 -
    2x| and max(0, 2x - 1). They lie in [0, 1] and sum to 1; in a sequence of length 1 they are (1, 0, 0).

    Parameters
    ----------
    max_length
        Length of the longest sequence in residues.

    Returns
    -------
    The features, (max_length + 1, max_length, 3) float64, indexed by length and position; 0 beyond the end of the
    sequence.
    """
    length = np.arange(max_length + 1)[:, None]
    position = np.arange(max_length)[None, :]
    away_from_start = 2.0 * position / np.maximum(length - 1, 1)
    start = np.maximum(0.0, 1.0 - away_from_start)
    end = np.maximum(0.0, away_from_start - 1.0)
    features = np.stack([start, 1.0 - start - end, end], axis=-1)
    return np.where((position < length)[:, :, None], features, 0.0)


def compute_abundance_scale(counts: Tensor, mode: AbundanceMode) -> Tensor:
    """Return the factor of each sequence's one-hot features, (N,) float32.

    Parameters
    ----------
    counts
        Counts of the sequences, (N,) of any integer type; a count of 0 is taken as 1.
    mode
        `log` is the paper's log(count). It is 0 for a sequence with count 1, so its residues have no effect. `log1p` is
        log(1 + count). `none` is 1 for all sequences.
    """
    if mode == "none":
        return torch.ones(len(counts), device=counts.device)
    values = counts.double().clamp(min=1)
    return (values.log() if mode == "log" else values.log1p()).float()


def compute_inverse_std(lengths: NDArray[np.integer], counts: NDArray[np.integer], mode: AbundanceMode) -> float:
    """Return 1 / the standard deviation of all features of a repertoire over its real positions.

    Every position has one one-hot feature that is not 0 (the abundance scale of its sequence) and three positional
    features that sum to 1. So the first two moments follow from lengths and counts.

    Parameters
    ----------
    lengths, counts
        Lengths and counts of all N sequences of the repertoire, (N,) each.
    mode
        Abundance scale, see `compute_abundance_scale`.
    """
    n = N_FEATURES * float(lengths.sum())
    if n == 0:
        return 1.0
    scale: NDArray[np.float64] | float = 1.0
    if mode != "none":  # without abundance one number is enough; the array would take most of the memory of inference
        scale = compute_abundance_scale(torch.from_numpy(counts.astype(np.int64)), mode).double().numpy()
    squares_by_length = _sum_squares_by_length(int(lengths.max()))
    mean = float((lengths * (scale + 1.0)).sum()) / n
    mean_of_squares = float((lengths * scale**2).sum() + squares_by_length[lengths].sum()) / n
    return float((mean_of_squares - mean**2) ** -0.5)


@lru_cache
def _sum_squares_by_length(max_length: int) -> NDArray[np.float64]:
    """Return the sum of all squares of the positional features of a sequence of each length, (max_length + 1,)."""
    return np.asarray((compute_positional_features(max_length) ** 2).sum(axis=(1, 2)))
