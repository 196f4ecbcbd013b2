"""The table-row form of the motif convolution as one differentiable function, whatever the device.

The gradient flows through the arg-max window only: one window per sequence and kernel is kept for the backward pass.
Letters: N sequences, K kernel width, D kernels.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

__all__ = ["MotifConvolution"]


class MotifConvolution(torch.autograd.Function):
    """Forward and backward of the motif convolution; see `motif_convolution` for the parameters."""

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
        max_length: int,
        precision: str,
    ) -> Tensor:
        """Return the maximal pre-activations, (N, D), and keep the arg-max windows, (N, D)."""
        sequences = (residues, starts, lengths, residue_scale, position_scale)
        weight, bias = weight.detach(), bias.detach()
        maximum: Tensor
        maximum, window = _backend(residues).forward(*sequences, weight, bias, max_length, precision)
        ctx.save_for_backward(*sequences, weight, window)
        ctx.max_length = max_length
        return maximum

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the two scales, the weight and the bias."""
        *sequences, weight, window = ctx.saved_tensors
        gradient = gradient.contiguous()
        backend = _backend(weight)
        scale_gradients: tuple[Tensor | None, Tensor | None] = (None, None)
        if ctx.needs_input_grad[3] or ctx.needs_input_grad[4]:
            scale_gradients = backend.scale_gradients(*sequences, weight, window, gradient, ctx.max_length)
        weight_gradient = backend.weight_gradient(*sequences, weight, window, gradient, ctx.max_length)
        return None, None, None, *scale_gradients, weight_gradient, gradient.sum(0), None, None


def _backend(tensor: Tensor) -> ModuleType:
    if tensor.device.type == "cpu":
        from deeprc.nn.motif_convolution import cpu

        return cpu
    from deeprc.nn.motif_convolution import cuda

    return cuda
