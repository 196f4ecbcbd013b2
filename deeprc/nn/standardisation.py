"""The layer that standardises the pooled values of repertoires before the output network.

Letters: B repertoires.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deeprc.ranks import average_rows

__all__ = ["RunningStandardisation"]

_SMALLEST_VARIANCE = 1e-8
_AVERAGED_UPDATES = 100  # number of updates over which moments are averaged; then each new one has the weight 1 / 100


class RunningStandardisation(nn.Module):
    """A layer that scales the pooled values of repertoires to mean 0 and variance 1 over training repertoires.

    Unlike in batch normalisation, training and inference use the same running moments, which have no gradient. So the
    result for one repertoire does not depend on the others of its batch.

    Parameters
    ----------
    n_features
        Number of pooled values of a repertoire, H * S.
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.variance: Tensor
        self.updates: Tensor
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("variance", torch.ones(n_features))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def set_moments(self, pooled: Tensor) -> None:
        """Set the moments to those of pooled values, (B, n_features), as if 100 updates had been made."""
        self.mean.copy_(pooled.mean(dim=0))
        self.variance.copy_(pooled.var(dim=0, correction=0))
        self.updates.fill_(_AVERAGED_UPDATES)

    def forward(self, pooled: Tensor) -> Tensor:
        """Standardise pooled values, (B, n_features); in training mode, the batch first updates the moments.

        If several processes share a batch, the moments are those of the whole batch.
        """
        if self.training:
            self._update_moments(pooled.detach())
        return (pooled - self.mean) * self.scale

    @property
    def scale(self) -> Tensor:
        """Factor by which each feature is multiplied, (n_features,)."""
        return (self.variance + _SMALLEST_VARIANCE).rsqrt()

    def _update_moments(self, pooled: Tensor) -> None:
        """Move the running mean and variance of each feature towards those of a batch, (B, n_features).

        The product of the deviations from the old and from the new mean is that of Welford's running variance.
        """
        self.updates.add_(1)
        batch_weight = 1.0 / self.updates.clamp(max=_AVERAGED_UPDATES)
        old_mean = self.mean.clone()
        self.mean.lerp_(average_rows(pooled), batch_weight)
        batch_variance = average_rows((pooled - old_mean) * (pooled - self.mean))
        self.variance.lerp_(batch_variance, batch_weight)
        self.variance.clamp_(min=0)  # rounding may make it negative if a feature is constant
