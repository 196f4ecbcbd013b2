"""Moving average of the weights over the updates. The averaged weights are the ones that are validated and saved."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from deeprc.nn.network import DeepRC

__all__ = ["CONSTANT", "AveragedNetwork"]

CONSTANT = ("branches.members.", "branches.known_")
"""Prefixes of the names of tensors that no update changes."""


class AveragedNetwork:
    """A network whose weights are the exponential moving average of another network's weights.

    At update t the decay is min(decay, (1 + t) / (10 + t)), so early weights are soon forgotten.

    Parameters
    ----------
    network
        Network that is trained.
    decay
        Largest share of itself that the average keeps in an update. With 0 the average is the network itself.
    """

    def __init__(self, network: DeepRC, decay: float) -> None:
        self.decay = decay
        self.network = network if decay == 0 else copy.deepcopy(network).eval().requires_grad_(False)
        self._learning = network
        self._updates = torch.zeros((), device=network.pooling.queries.device)  # a CUDA graph records it

    @torch.no_grad()
    def restart(self) -> None:
        """Set the average to the present weights."""
        if self.decay:
            self.network.load_state_dict(self._learning.state_dict())
            self._updates.zero_()

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the weights after an update."""
        if not self.decay:
            return
        share = 1 - ((1 + self._updates) / (10 + self._updates)).clamp(max=self.decay)
        self._updates += 1
        learning = self._learning.state_dict()
        for name, average in self.network.state_dict().items():
            if name.startswith(CONSTANT):
                continue
            if average.is_floating_point():
                average.lerp_(learning[name], share.to(average))
            else:
                average.copy_(learning[name])

    def collect_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the average for a checkpoint; none if the average is the network itself."""
        return {"updates": self._updates, **self.network.state_dict()} if self.decay else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the average to tensors that `collect_tensors` returned."""
        if self.decay:
            self._updates.copy_(tensors["updates"])
            self.network.load_state_dict({name: tensor for name, tensor in tensors.items() if name != "updates"})
