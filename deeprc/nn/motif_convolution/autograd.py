"""The compiled motif convolution as one differentiable function, on any device.

The gradient flows through the window with the maximum only, so one window per sequence and kernel is kept for the
backward pass.
Letters: N sequences, K kernel width, D kernels.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from deeprc.nn.sequences import SequenceBatch

__all__ = ["MotifConvolution"]


class MotifConvolution(torch.autograd.Function):
    """Forward and backward of the motif convolution; see `motif_convolution` for the parameters.

    The scales are in `sequences`, too. They are arguments, so that torch sees whether they need gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        sequences: SequenceBatch,
        residue_scale: Tensor,  # noqa: ARG004  # as in `sequences`
        position_scale: Tensor,  # noqa: ARG004
        weight: Tensor,
        bias: Tensor,
        precision: str,
    ) -> Tensor:
        """Return the maximal pre-activations, (N, D), and keep their windows, (N, D)."""
        weight, bias = weight.detach(), bias.detach()
        maximum: Tensor
        maximum, window = _import_backend(weight).forward(sequences, weight, bias, precision)
        ctx.max_length = sequences.max_length
        ctx.save_for_backward(weight, window, *sequences.tensors())
        return maximum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the two scales, the weight and the bias."""
        weight, window, *tensors = ctx.saved_tensors
        sequences = SequenceBatch._make((*tensors, ctx.max_length))
        gradient = gradient.contiguous()
        backend = _import_backend(weight)
        scale_gradients: tuple[Tensor | None, Tensor | None] = (None, None)
        if any(ctx.needs_input_grad[1:3]):
            scale_gradients = backend.compute_scale_gradients(sequences, weight, window, gradient)
        weight_gradient = backend.compute_weight_gradient(sequences, weight, window, gradient)
        return None, *scale_gradients, weight_gradient, gradient.sum(0), None


def _import_backend(tensor: Tensor) -> ModuleType:
    if tensor.device.type == "cpu":
        from deeprc.nn.motif_convolution import cpu

        return cpu
    from deeprc.nn.motif_convolution import cuda

    return cuda
