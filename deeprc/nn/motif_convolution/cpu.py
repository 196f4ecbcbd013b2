"""The motif convolution as a sum of table rows, compiled for the CPU.

pre-activation(p, d) = bias[d] + position_scale * P[L, p, d] + residue_scale * sum_j W[j, residue[p + j], d]

No one-hot tensor is built. The gradient flows through the arg-max window only: one row per sequence and kernel.
Results do not depend on the number of threads: sums run over a fixed number of blocks in a fixed order.
Letters: N sequences, L positions, K kernel width, D kernels, R residues, C blocks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.nn.features import N_AMINO_ACIDS, N_POSITIONAL, positional_features

__all__ = ["MotifConvolution"]

_BLOCKS = 16
_Array = NDArray[Any]


class MotifConvolution(torch.autograd.Function):
    """Forward and backward of the motif convolution on the CPU; see `motif_convolution` for the parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        residues: Tensor,
        starts: Tensor,
        lengths: Tensor,
        residue_scale: Tensor,
        position_scale: Tensor,
        weight: Tensor,
        bias: Tensor,
    ) -> Tensor:
        """Return the maximal pre-activations, (N, D), and keep the arg-max positions, (N, D) int32."""
        residue_table = weight[:, :N_AMINO_ACIDS].permute(2, 1, 0).contiguous()  # (D, 20, K) -> (K, 20, D)
        positions, row = _position_table(int(lengths.max()) if len(lengths) else 0, weight.shape[2])
        positional_weight = weight[:, N_AMINO_ACIDS:].permute(2, 1, 0).reshape(-1, weight.shape[0])
        position_table = positions.to(weight) @ positional_weight  # (rows, K * 3) @ (K * 3, D) -> (rows, D)
        maximum = weight.new_empty((len(starts), weight.shape[0]))
        window = torch.empty(maximum.shape, dtype=torch.int32)
        tensors = (residues, starts, lengths, residue_scale, position_scale, residue_table, position_table)
        _forward(*(_numpy(t) for t in tensors), row, _numpy(bias), maximum.numpy(), window.numpy())
        ctx.save_for_backward(*tensors, window)
        ctx.mark_non_differentiable(window)
        return maximum

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the two scales, the weight and the bias."""
        *tensors, window = ctx.saved_tensors
        _, starts, lengths, _, _, residue_table, position_table = tensors
        K, _, D = residue_table.shape
        positions, row = _position_table(int(lengths.max()) if len(lengths) else 0, K)
        residue_gradient = residue_table.new_zeros((_BLOCKS, *residue_table.shape))
        position_gradient = residue_table.new_zeros((_BLOCKS, *position_table.shape))
        scale_gradient = residue_table.new_zeros((2, len(starts)))
        need_scales = ctx.needs_input_grad[3] or ctx.needs_input_grad[4]
        _backward(
            *(_numpy(t) for t in tensors),
            row,
            _numpy(window),
            _numpy(gradient),
            residue_gradient.numpy(),
            position_gradient.numpy(),
            scale_gradient.numpy(),
            need_scales,
        )
        positional = positions.to(residue_table).T @ position_gradient.sum(0)  # (K * 3, rows) @ (rows, D)
        weight_gradient = torch.cat([residue_gradient.sum(0), positional.view(K, N_POSITIONAL, D)], dim=1).permute(
            2, 1, 0
        )  # (K, 23, D) -> (D, 23, K)
        return (
            None,
            None,
            None,
            scale_gradient[0] if ctx.needs_input_grad[3] else None,
            scale_gradient[1] if ctx.needs_input_grad[4] else None,
            weight_gradient,
            gradient.sum(0),
        )


def _numpy(tensor: Tensor) -> _Array:
    return tensor.detach().contiguous().numpy()


@lru_cache(maxsize=64)
def _position_table(max_length: int, kernel_size: int) -> tuple[Tensor, _Array]:
    """Return the positional features of every window of every length, and where a length's windows begin.

    The table is (rows, K * 3); the windows of length L are its rows row[L] to row[L] + L.
    """
    features = np.zeros((max_length + 1, max_length + kernel_size, N_POSITIONAL))
    features[:, :max_length] = positional_features(max_length)
    windows = [features[length, p : p + kernel_size].ravel() for length in range(max_length + 1) for p in range(length)]
    row = np.concatenate([[0], np.cumsum(np.arange(max_length + 1))]).astype(np.int64)
    table = np.asarray(windows).reshape(len(windows), kernel_size * N_POSITIONAL)
    return torch.from_numpy(table), row


@numba.njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def _forward(
    residues: _Array,
    starts: _Array,
    lengths: _Array,
    residue_scale: _Array,
    position_scale: _Array,
    residue_table: _Array,
    position_table: _Array,
    row: _Array,
    bias: _Array,
    maximum: _Array,
    window: _Array,
) -> None:
    N = len(starts)
    K, _, D = residue_table.shape
    for block in numba.prange(_BLOCKS):
        total = np.empty(D, residue_table.dtype)
        for n in range(block * N // _BLOCKS, (block + 1) * N // _BLOCKS):
            start, length = starts[n], lengths[n]
            for p in range(length):
                total[:] = 0
                for j in range(min(K, length - p)):
                    weights = residue_table[j, residues[start + p + j]]
                    for d in range(D):
                        total[d] += weights[d]
                positional = position_table[row[length] + p]
                for d in range(D):
                    value = bias[d] + position_scale[n] * positional[d] + residue_scale[n] * total[d]
                    if p == 0 or value > maximum[n, d]:
                        maximum[n, d] = value
                        window[n, d] = p


@numba.njit(parallel=True, cache=True, nogil=True)
def _backward(
    residues: _Array,
    starts: _Array,
    lengths: _Array,
    residue_scale: _Array,
    position_scale: _Array,
    residue_table: _Array,
    position_table: _Array,
    row: _Array,
    window: _Array,
    gradient: _Array,
    residue_gradient: _Array,
    position_gradient: _Array,
    scale_gradient: _Array,
    need_scales: bool,
) -> None:
    N, D = gradient.shape
    K = residue_table.shape[0]
    for block in numba.prange(_BLOCKS):
        for n in range(block * N // _BLOCKS, (block + 1) * N // _BLOCKS):
            start, length = starts[n], lengths[n]
            for d in range(D):
                p = window[n, d]
                g = gradient[n, d]
                at = row[length] + p
                position_gradient[block, at, d] += g * position_scale[n]
                scaled = g * residue_scale[n]
                for j in range(min(K, length - p)):
                    residue_gradient[block, j, residues[start + p + j], d] += scaled
                if need_scales:
                    scale_gradient[1, n] += g * position_table[at, d]
                    for j in range(min(K, length - p)):
                        scale_gradient[0, n] += g * residue_table[j, residues[start + p + j], d]
