"""The motif convolution, core of h1: how strongly each kernel matches each sequence at its best window.

Source: paper lines 8602-8640. There is one function, `motif_convolution`, and three ways to compute it: `reference` is
the dense convolution and the specification; `cpu` and `cuda` sum rows of tables instead.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from deeprc.device import has_triton
from deeprc.nn.motif_convolution import reference
from deeprc.nn.sequences import SequenceBatch

__all__ = ["Implementation", "Precision", "has_compiled_form", "motif_convolution", "round_weight"]

Implementation = Literal["auto", "reference", "compiled"]
Precision = Literal["float32", "bfloat16"]


def motif_convolution(
    sequences: SequenceBatch,
    weight: Tensor,
    bias: Tensor,
    *,
    implementation: Implementation = "auto",
    precision: Precision = "float32",
) -> Tensor:
    """Convolve every sequence with the kernels and take the maximum over its windows.

    A window starts at every residue; beyond the end of the sequence the features are 0. If several windows have the
    same maximum, the first one counts. Letters: N sequences, K kernel width, D kernels.

    Parameters
    ----------
    sequences
        The N sequences.
    weight, bias
        Weights of the kernels over 20 one-hot and 3 positional features, (D, 23, K), and their biases, (D,).
    implementation
        `reference` is the dense convolution; `compiled` sums table rows, with numba on the CPU and Triton on CUDA;
        `auto` is `compiled` if it exists for the device.
    precision
        `bfloat16` rounds the weight to 16 bits; in both precisions sums have 32 bits (64 bits if the weight has 64
        bits).

    Returns
    -------
    Maximal pre-activations, (N, D), with gradients for the scales, the weight and the bias.

    Raises
    ------
    ValueError
        If `compiled` is asked for on a device that has no such form.
    """
    weight = round_weight(weight, precision)
    device = sequences.device.type
    if implementation == "reference" or (implementation == "auto" and not has_compiled_form(device)):
        return reference.forward(sequences, weight, bias)
    if not has_compiled_form(device):
        raise ValueError(f"implementation 'compiled' runs on the CPU, and on CUDA with triton; not here, on {device!r}")
    from deeprc.nn.motif_convolution.autograd import MotifConvolution  # imported here, because it imports compilers

    # the scales are arguments of their own, because torch differentiates only with respect to arguments
    scales = (sequences.residue_scale, sequences.position_scale)
    result: Tensor = MotifConvolution.apply(sequences, *scales, weight, bias, precision)  # type: ignore[no-untyped-call]  # torch types no `apply`
    return result


def round_weight(weight: Tensor, precision: Precision) -> Tensor:
    """Return the weight rounded to the precision, in its own type; its gradient is that of the unrounded weight."""
    return weight.bfloat16().to(weight.dtype) if precision == "bfloat16" else weight


def has_compiled_form(device: str) -> bool:
    """Return whether the convolution has a compiled form for devices of this type."""
    return device == "cpu" or (device == "cuda" and has_triton())
