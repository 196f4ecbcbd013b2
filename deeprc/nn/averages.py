"""Averages of the heads over repertoires: their computation, and those that are already known.

Letters: n sequences, S dimensions of their representation, H heads.
"""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping

import torch
from torch import Tensor

from deeprc.nn.network import DeepRC

__all__ = ["Average", "KnownAverages"]

_MAX_NETWORKS = 4  # number of latest weights whose averages are kept


class Average:
    """Average of each head over the sequences of one repertoire, accumulated some sequences at a time.

    Parameters
    ----------
    network
        The network that attends to the sequences.
    """

    def __init__(self, network: DeepRC) -> None:
        self._shape = (network.pooling.queries.shape[0], network.n_values)  # H, S
        self._device = network.pooling.queries.device
        self._added: tuple[Tensor, Tensor, Tensor] | None = None  # maximum, sum of weights and of weighted values

    def add(self, values: Tensor, logits: Tensor) -> None:
        """Add n sequences, at least one: representations (n, S) and attention logits (n, H).

        They are added in float64. Within this call they are summed in their own type.
        """
        highest = logits.amax(dim=0)
        higher = highest if self._added is None else torch.maximum(self._added[0], highest)
        part = torch.exp(logits - higher)  # (n, H)
        weight, pooled = part.sum(0).double(), (part.T @ values).double()  # (H, n) @ (n, S) -> (H, S)
        if self._added is not None:
            shrink = torch.exp(self._added[0] - higher).double()
            weight += self._added[1] * shrink
            pooled += self._added[2] * shrink[:, None]
        self._added = higher, weight, pooled

    def mean(self) -> Tensor:
        """Return the averages, (H, S) float64."""
        if self._added is None:
            return torch.zeros(self._shape, dtype=torch.float64, device=self._device)
        _, weight, pooled = self._added
        return pooled / weight.clamp_min(torch.finfo(torch.float64).tiny)[:, None]

    def logsumexp(self) -> Tensor:
        """Return the logarithm of the summed exponentials of the logits, (H,) float64; -inf without any sequence."""
        if self._added is None:
            return torch.full(self._shape[:1], -torch.inf, dtype=torch.float64, device=self._device)
        highest, weight, _ = self._added
        return highest.double() + weight.log()


class KnownAverages:
    """Averages over whole repertoires that a network had computed with its latest weights.

    A training reads whole repertoires for several purposes: the regression of the output, losses, calibration and
    predictions. The weights of kernels and attention are often the same for several of these. It is meant for the
    networks of one training, which differ in their weights only.
    """

    def __init__(self) -> None:
        self._of_weights: dict[str, dict[Hashable, Tensor]] = {}

    def find(self, network: DeepRC) -> MutableMapping[Hashable, Tensor]:
        """Return the averages that are known for the weights that a network has now, to read them and to add others.

        They are (H, S) float64 on the CPU. Their key says which repertoire it is and how its batches are made. Averages
        of all but the latest weights are forgotten.
        """
        digest = network.digest_pooling_weights()
        averages = self._of_weights.pop(digest, {})
        self._of_weights[digest] = averages  # the latest
        for old in list(self._of_weights)[:-_MAX_NETWORKS]:
            del self._of_weights[old]
        return averages
