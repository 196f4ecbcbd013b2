"""The tables of the compiled forms, and the gradients of the kernels from those of the tables.

pre-activation(p, d) = bias[d] + position_scale * positions[L, p, d]
                       + residue_scale * sum_j residues[j, residue[p + j], d]

The residue table has the weights of the residues. The term of the positional features depends only on the length L of
a sequence and the start p of a window. So it is read from a table, too, the position table. It has one row for each
window of each length: those of length L begin at row L (L - 1) / 2.

Letters: L length of a sequence, K kernel width, D kernels.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from deeprc.nn.features import N_AMINO_ACIDS, N_POSITIONAL, compute_positional_features
from deeprc.nn.sequences import SequenceBatch

__all__ = [
    "choose_window_dtype",
    "compute_kernel_gradient",
    "find_rows_in_use",
    "make_position_table",
    "make_positional_features",
]

_SHORT_LENGTH = 40  # a position table for sequences up to this length is used whole


def find_rows_in_use(lengths: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
    """Return the rows of the position table that these lengths need, and where those of each length begin.

    One long sequence makes the table long, although most of its rows are never read. A short table is used whole.

    Returns
    -------
    rows
        Indices of the rows in use in the whole position table, (n,) int64.
    starts
        Index among these n rows at which the rows of each length begin, (max_length + 1,) int64.
    """
    present = torch.ones(max_length + 1, dtype=torch.bool)
    if max_length > _SHORT_LENGTH:
        present = torch.bincount(lengths, minlength=max_length + 1) > 0
    windows = torch.arange(max_length + 1)
    rows = present[1:].repeat_interleave(windows[1:]).nonzero().flatten()
    n_rows_of_length = windows * present
    return rows, n_rows_of_length.cumsum(0) - n_rows_of_length


def make_position_table(weight: Tensor, max_length: int, rows: Tensor | None = None) -> Tensor:
    """Return the position table, (rows, D), of kernels (D, 23, K) up to `max_length` residues, or some of its rows."""
    D, _, K = weight.shape
    features = _make_window_features(max_length, K, weight.dtype, weight.device)
    features = features if rows is None else features[rows]
    kernels = weight[:, N_AMINO_ACIDS:].reshape(D, N_POSITIONAL * K)
    return features @ kernels.T  # (rows, 3 * K) @ (3 * K, D) -> (rows, D)


def compute_kernel_gradient(
    residue_gradient: Tensor, position_gradient: Tensor, max_length: int, rows: Tensor | None = None
) -> Tensor:
    """Return the gradient of the kernels, (D, 23, K), from those of both tables, (D, 20, K) and (rows, D)."""
    D, _, K = residue_gradient.shape
    features = _make_window_features(max_length, K, residue_gradient.dtype, residue_gradient.device)
    features = features if rows is None else features[rows]
    positional = position_gradient.T @ features  # (D, rows) @ (rows, 3 * K) -> (D, 3 * K)
    return torch.cat([residue_gradient, positional.view(D, N_POSITIONAL, K)], dim=1)


def choose_window_dtype(sequences: SequenceBatch) -> torch.dtype:
    """Return the smallest type that can represent the position of every window of these sequences."""
    return torch.uint8 if sequences.max_length <= 256 else torch.int32


@cache  # never deleted, because a CUDA graph may read them
def make_positional_features(max_length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the features of `compute_positional_features` as a tensor, (max_length + 1, max_length, 3)."""
    return torch.from_numpy(compute_positional_features(max_length)).to(device, dtype)


@cache  # never deleted, because a CUDA graph may read them
def _make_window_features(max_length: int, kernel_size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the positional features of every window of every length, (rows, 3 * K)."""
    length, start = np.tril_indices(max_length)  # one row for each (L - 1, p) with p < L
    features = np.zeros((max_length + 1, max_length + kernel_size, N_POSITIONAL))
    features[:, :max_length] = compute_positional_features(max_length)
    positions = start[:, None] + np.arange(kernel_size)  # (rows, K)
    windows = features[length[:, None] + 1, positions].transpose(0, 2, 1)  # (rows, K, 3) -> (rows, 3, K)
    flat = windows.reshape(len(length), N_POSITIONAL * kernel_size)
    return torch.from_numpy(flat).to(device, dtype)
