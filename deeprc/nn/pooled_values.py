"""Pooled values of repertoires, which are averages of sequence values: their computation, and a cache of them.

Letters: n sequences, S values of a sequence, H heads.
"""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping
from typing import NamedTuple

import torch
from torch import Tensor

from deeprc.nn.network import DeepRC

__all__ = ["PooledAccumulator", "PooledValueCache"]

_MAX_NETWORKS = 4  # number of latest weights whose pooled values are kept


class _Sums(NamedTuple):
    """Sums over the sequences that were added to a `PooledAccumulator`.

    Attributes
    ----------
    highest_logit
        Highest attention logit of each head, (H,); a weight is the exponential of a logit minus this one.
    weights
        Sum of the weights, (H,) float64.
    weighted_values
        Sum of the weighted values, (H, S) float64.
    """

    highest_logit: Tensor
    weights: Tensor
    weighted_values: Tensor


class PooledAccumulator:
    """Accumulator of the pooled values of one repertoire, to which its sequences are added some at a time.

    Parameters
    ----------
    network
        The network that attends to the sequences.
    """

    def __init__(self, network: DeepRC) -> None:
        self._shape = (network.pooling.queries.shape[0], network.n_values)  # H, S
        self._device = network.pooling.queries.device
        self._sums: _Sums | None = None

    def add(self, values: Tensor, logits: Tensor) -> None:
        """Add n sequences, at least one: their values, (n, S), and attention logits, (n, H).

        They are added in float64. Within this call they are summed in their own type.
        """
        before, highest = self._sums, logits.amax(dim=0)
        if before is not None:
            highest = torch.maximum(before.highest_logit, highest)
        weights = torch.exp(logits - highest)  # (n, H)
        weight_sum, value_sum = weights.sum(0).double(), (weights.T @ values).double()  # (H, n) @ (n, S) -> (H, S)
        if before is not None:
            factor = torch.exp(before.highest_logit - highest).double()
            weight_sum += before.weights * factor
            value_sum += before.weighted_values * factor[:, None]
        self._sums = _Sums(highest, weight_sum, value_sum)

    def compute_pooled(self) -> Tensor:
        """Return the pooled values, (H, S) float64; 0 without any sequence."""
        if self._sums is None:
            return torch.zeros(self._shape, dtype=torch.float64, device=self._device)
        weights = self._sums.weights.clamp_min(torch.finfo(torch.float64).tiny)
        return self._sums.weighted_values / weights[:, None]

    def compute_logsumexp(self) -> Tensor:
        """Return the logarithm of the summed exponentials of the logits, (H,) float64; -inf without any sequence."""
        if self._sums is None:
            return torch.full(self._shape[:1], -torch.inf, dtype=torch.float64, device=self._device)
        return self._sums.highest_logit.double() + self._sums.weights.log()


class PooledValueCache:
    """A cache of the pooled values of whole repertoires, for the latest weights of one training.

    A training reads whole repertoires for several purposes: the regression of the output, losses, calibration and
    predictions. Often the weights of kernels and attention do not change from one purpose to the next, and then the
    pooled values need not be computed again. All networks of one cache must be of one training: they may differ in
    their weights only.
    """

    def __init__(self) -> None:
        self._by_digest: dict[str, dict[Hashable, Tensor]] = {}  # by the digest of the weights

    def find(self, network: DeepRC) -> MutableMapping[Hashable, Tensor]:
        """Return the pooled values that are known for the present weights of a network, to read them and to add others.

        They are (H, S) float64 on the CPU. Their key says which repertoire it is and how its batches are made. Those
        of all but the latest weights are forgotten.
        """
        digest = network.digest_pooling_weights()
        pooled = self._by_digest.pop(digest, {})
        self._by_digest[digest] = pooled  # the latest
        for old in list(self._by_digest)[:-_MAX_NETWORKS]:
            del self._by_digest[old]
        return pooled
