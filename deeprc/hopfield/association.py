"""`Association`: the dynamics of all heads in the associative space, which the three layers share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from deeprc.hopfield.functional import PerHead, associate, association_weights

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    class Updates(TypedDict, total=False):
        """Options of `Association` that the attention of a transformer has not."""

        beta: float | Sequence[float] | None
        learn_beta: bool
        max_updates: PerHead
        tolerance: float

    class Dynamics(Updates, total=False):
        """Options that every layer hands on to its `Association`."""

        dropout: float


__all__ = ["Association"]


class Association(nn.Module):
    """The dynamics in the associative space: β, the number of updates, dropout.

    Parameters
    ----------
    n_heads, key_dim
        H and d_k.
    beta
        The inverse temperature, of all heads or one per head; None is 1 / sqrt(d_k).
    learn_beta
        Learn one β per head, kept positive by learning its logarithm.
    max_updates
        The most updates, of all heads or one per head.
    tolerance
        A head stops before when no state moves by more than this.
    dropout
        The share of association weights that become 0 in training.
    """

    def __init__(
        self,
        n_heads: int,
        key_dim: int,
        *,
        beta: float | Sequence[float] | None = None,
        learn_beta: bool = False,
        max_updates: PerHead = 1,
        tolerance: float = 1e-4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        each = _one_per_head("beta", key_dim**-0.5 if beta is None else beta, n_heads)
        if not all(0 < number < math.inf for number in each):
            raise ValueError(f"beta: expected a positive number, found {beta}")
        updates = [int(number) for number in _one_per_head("max_updates", max_updates, n_heads)]
        if not all(number >= 1 for number in updates):
            raise ValueError(f"max_updates: expected a whole number from 1, found {max_updates}")
        if not tolerance >= 0:
            raise ValueError(f"tolerance: expected a number from 0, found {tolerance}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a number from 0, less than 1, found {dropout}")
        self.fixed_beta: Tensor | None
        self.log_beta: nn.Parameter | None
        self.register_parameter("log_beta", nn.Parameter(torch.tensor(each).log()) if learn_beta else None)
        self.register_buffer("fixed_beta", None if learn_beta else torch.tensor([float(number) for number in each]))
        self.max_updates: PerHead = updates[0] if len(set(updates)) == 1 else updates
        self.tolerance = tolerance
        self.dropout = dropout

    @property
    def beta(self) -> Tensor:
        """The inverse temperature of each head, (H,)."""
        if self.fixed_beta is not None:
            return self.fixed_beta
        assert self.log_beta is not None
        return self.log_beta.exp()

    @property
    def takes_one_update(self) -> bool:
        """Whether no head makes a second update."""
        return self.max_updates == 1

    def forward(
        self,
        state: Tensor,
        stored: Tensor,
        values: Tensor,
        *,
        mask: Tensor | None = None,
        offsets: Tensor | None = None,
        state_offsets: Tensor | None = None,
    ) -> Tensor:
        """Associate; see `deeprc.hopfield.functional.associate`."""
        return associate(
            state,
            stored,
            values,
            beta=self.beta,
            mask=mask,
            offsets=offsets,
            state_offsets=state_offsets,
            dropout=self.dropout if self.training else 0.0,
            max_updates=self.max_updates,
            tolerance=self.tolerance,
        )

    def weights(self, state: Tensor, stored: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the weights of the last update, (..., H, S, N), without dropout."""
        return association_weights(
            state, stored, self.beta, mask=mask, max_updates=self.max_updates, tolerance=self.tolerance
        )

    def extra_repr(self) -> str:
        """Say what is not a parameter."""
        return f"max_updates={self.max_updates}, tolerance={self.tolerance}, dropout={self.dropout}"


def _one_per_head(name: str, given: Any, n_heads: int) -> list[Any]:
    given = given.tolist() if isinstance(given, Tensor) else given
    each = [given] * n_heads if isinstance(given, Number) else list(given)
    if len(each) != n_heads:
        raise ValueError(f"{name}: expected one number, or one for each of {n_heads} heads, found {len(each)}")
    return each
