"""h1's core: how strongly each motif kernel matches each sequence at its best window (paper lines 8602-8640).

One function, `motif_convolution`, and three ways to compute it: `reference` is the dense convolution and the
specification, `cpu` and `cuda` sum table rows instead.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from deeprc.device import has_triton
from deeprc.nn.motif_convolution import reference
from deeprc.nn.sequences import SequenceBatch

__all__ = ["Implementation", "Precision", "has_compiled_form", "motif_convolution", "rounded"]

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

    A window starts at every residue; beyond the end of the sequence the features are zero. Among equal maxima the
    first window counts. Letters: N sequences, K kernel width, D kernels.

    Parameters
    ----------
    sequences
        The N sequences.
    weight, bias
        The kernels over 20 one-hot and 3 positional features, (D, 23, K), and their biases, (D,).
    implementation
        `reference` is the dense convolution; `compiled` is the table-row form, in numba on the CPU and in Triton on
        CUDA; `auto` takes `compiled` where it exists.
    precision
        `bfloat16` rounds the weight to 16 bits; sums are 32-bit (64-bit for a 64-bit weight) in either case.

    Returns
    -------
    (N, D) maximal pre-activations; gradients flow to the scales, the weight and the bias.

    Raises
    ------
    ValueError
        If `compiled` is asked for on a device that has no such form.
    """
    weight = rounded(weight, precision)
    device = sequences.device.type
    if implementation == "reference" or (implementation == "auto" and not has_compiled_form(device)):
        return reference.forward(sequences, weight, bias)
    if not has_compiled_form(device):
        raise ValueError(f"implementation 'compiled' runs on the CPU, and on CUDA with triton; not here, on {device!r}")
    from deeprc.nn.motif_convolution.autograd import MotifConvolution  # imports compilers, only where they are used

    scales = (
        sequences.residue_scale,
        sequences.position_scale,
    )  # torch finds what to differentiate among arguments only
    result: Tensor = MotifConvolution.apply(sequences, *scales, weight, bias, precision)  # type: ignore[no-untyped-call]  # torch types no `apply`
    return result


def rounded(weight: Tensor, precision: Precision) -> Tensor:
    """Return the weight with the bits of the precision, in its own type; gradients pass as if it were not rounded."""
    return weight.bfloat16().to(weight.dtype) if precision == "bfloat16" else weight


def has_compiled_form(device: str) -> bool:
    """Say whether the convolution is compiled for devices of this type."""
    return device == "cpu" or (device == "cuda" and has_triton())
