"""The motif convolution as in the paper: dense features, `conv1d`, maximum. All other forms must give the same.

Letters: N sequences, L positions of the longest, K kernel width, D kernels, R residues.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from deeprc.nn.features import N_AMINO_ACIDS, compute_positional_features
from deeprc.nn.sequences import SequenceBatch

__all__ = ["forward", "make_dense_features"]

CHUNK = 8192
"""Number of sequences that are convolved at a time, which limits the memory of the dense features."""


def forward(sequences: SequenceBatch, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the maximal pre-activation of each kernel over the windows of each sequence, (N, D).

    A window starts at every residue; beyond the end of the sequence the features are 0. The parameters are those of
    `deeprc.nn.motif_convolution.motif_convolution`.
    """
    if sequences.n_sequences == 0:
        return bias + bias.new_zeros((0, len(bias)))
    parts = []
    for first in range(0, sequences.n_sequences, CHUNK):
        chunk = sequences.take(slice(first, first + CHUNK))
        parts.append(_forward_chunk(make_dense_features(chunk), chunk.lengths, weight, bias))
    return torch.cat(parts)


def _forward_chunk(features: Tensor, lengths: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the maximum of each kernel over the positions of each sequence, (N, D)."""
    padded = functional.pad(features.transpose(1, 2), (0, weight.shape[2] - 1))  # (N, 23, L + K - 1)
    activations = functional.conv1d(padded, weight, bias)  # (N, D, L)
    beyond_end = torch.arange(features.shape[1], device=lengths.device) >= lengths[:, None]  # (N, L)
    masked = activations.masked_fill(beyond_end[:, None, :], -torch.inf)
    return masked.max(dim=2).values  # the first of equal maxima


def make_dense_features(sequences: SequenceBatch) -> Tensor:
    """Return the 23 scaled features of every position, (N, L, 23); they are 0 beyond the end of a sequence."""
    residues, starts, lengths, residue_scale, position_scale, _ = sequences
    longest = int(lengths.max())
    position = torch.arange(longest, device=lengths.device)
    is_residue = position < lengths[:, None]  # (N, L)
    residue_rows = torch.where(is_residue, starts[:, None] + position, 0)
    one_hot = functional.one_hot(residues[residue_rows].long(), N_AMINO_ACIDS) * is_residue[:, :, None]  # (N, L, 20)
    positional = _load_positional_features(longest).to(residue_scale)[lengths]  # (N, L, 3)
    return torch.cat([one_hot * residue_scale[:, None, None], positional * position_scale[:, None, None]], dim=2)


@lru_cache(maxsize=64)
def _load_positional_features(max_length: int) -> Tensor:
    return torch.from_numpy(compute_positional_features(max_length))
