"""The output network as a linear function at the pooled values of one repertoire; see `deeprc.nn.contributions`.

Letters: H heads, S values of a sequence, T outputs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from deeprc.nn.network import DeepRC

__all__ = ["LinearisedOutputs", "linearise_outputs"]


class LinearisedOutputs(NamedTuple):
    """The outputs at the pooled values of a repertoire, as a linear function of these; float64 on the CPU.

    Attributes
    ----------
    gradient, offset
        g, (T, H, S), and c, (T,), of the responses r_h(z) = g_h · z + c.
    outputs
        Outputs of the repertoire before their activation, without those of branches, (T,).
    """

    gradient: Tensor
    offset: Tensor
    outputs: Tensor


def linearise_outputs(network: DeepRC, pooled: Tensor) -> LinearisedOutputs:
    """Return the outputs as a linear function at a repertoire's pooled values, (H, S)."""
    device = network.pooling.queries.device
    with torch.enable_grad():
        point = pooled.to(device).float().requires_grad_()
        outputs: Tensor = network.output_network(point.flatten()[None])[0]  # (1, H * S) -> (T,)
        gradients = [torch.autograd.grad(output, point, retain_graph=True)[0] for output in outputs]
    gradient, outputs = torch.stack(gradients).double().cpu(), outputs.detach().double().cpu()
    offset = (outputs - torch.einsum("thd,hd->t", gradient, pooled.double().cpu())) / len(pooled)
    return LinearisedOutputs(gradient, offset, outputs)
