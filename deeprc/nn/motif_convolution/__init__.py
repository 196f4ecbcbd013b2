"""h1's core: how strongly each motif kernel matches each sequence at its best window (paper lines 8602-8640).

Letters: N sequences, K kernel width, D kernels, R residues.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from deeprc.nn.motif_convolution import reference

__all__ = ["Implementation", "motif_convolution"]

Implementation = Literal["auto", "reference", "compiled"]


def motif_convolution(
    residues: Tensor,
    starts: Tensor,
    lengths: Tensor,
    residue_scale: Tensor,
    position_scale: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    implementation: Implementation = "auto",
) -> Tensor:
    """Convolve every sequence with the kernels and take the maximum over its windows.

    A window starts at every residue; beyond the end of the sequence the features are zero. Among equal maxima the
    first window counts.

    Parameters
    ----------
    residues
        Amino-acid indices, (R,) uint8, in which the sequences lie anywhere.
    starts, lengths
        Where each sequence begins in `residues`, and its number of residues (at least 1), (N,) int64.
    residue_scale, position_scale
        Factors of each sequence's one-hot and positional features, (N,).
    weight, bias
        The kernels over 20 one-hot and 3 positional features, (D, 23, K), and their biases, (D,).
    implementation
        `reference` is the dense convolution, the specification; `compiled` is the table-row form for the CPU;
        `auto` takes `compiled` for 32- and 64-bit floats on the CPU, else `reference`.

    Returns
    -------
    (N, D) maximal pre-activations; gradients flow to the scales, the weight and the bias.

    Raises
    ------
    ValueError
        If `compiled` is asked for on another device.
    """
    arguments = (residues, starts, lengths, residue_scale, position_scale, weight, bias)
    on_cpu = residues.device.type == "cpu"
    if implementation == "compiled" and not on_cpu:
        raise ValueError(f"implementation 'compiled' runs on the CPU, the residues are on {residues.device}")
    if implementation == "reference" or not on_cpu:
        return reference.forward(*arguments)
    from deeprc.nn.motif_convolution.cpu import MotifConvolution  # imports numba, only where it is used

    result: Tensor = MotifConvolution.apply(*arguments)  # type: ignore[no-untyped-call]  # torch types no `apply`
    return result
