"""The update rule for the states of all heads in the associative space, which all three layers use."""

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
        """Options of `Association` that the attention of a transformer does not have."""

        beta: float | Sequence[float] | None
        learn_beta: bool
        max_updates: PerHead
        tolerance: float

    class Dynamics(Updates, total=False):
        """Options that every layer passes to its `Association`."""

        dropout: float


__all__ = ["Association"]


class Association(nn.Module):
    """The update rule in the associative space, with its β, number of updates and dropout.

    Parameters
    ----------
    n_heads
        Number of heads, H.
    key_dim
        Dimension of the associative space of each head, d_k.
    beta
        Inverse temperature, one for all heads or one per head. None: 1 / sqrt(d_k).
    learn_beta
        Whether one β per head is learned. Its logarithm is learned, so β stays positive.
    max_updates
        Maximum number of updates, one for all heads or one per head.
    tolerance
        Largest distance that counts as no movement; a head stops earlier if no state moves by more.
    dropout
        Share of association weights that are set to 0 in training.

    Raises
    ------
    ValueError
        If an argument is out of its range, or if its length is not the number of heads.
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
        betas = _expand_over_heads("beta", key_dim**-0.5 if beta is None else beta, n_heads)
        if not all(0 < beta < math.inf for beta in betas):
            raise ValueError(f"beta: expected a positive number, found {beta}")
        updates = _expand_over_heads("max_updates", max_updates, n_heads)
        if not all(count >= 1 and count == count // 1 for count in updates):
            raise ValueError(f"max_updates: expected a whole number of at least 1, found {max_updates}")
        updates = [int(count) for count in updates]
        if not tolerance >= 0:
            raise ValueError(f"tolerance: expected a number of at least 0, found {tolerance}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a number of at least 0 and less than 1, found {dropout}")
        self.fixed_beta: Tensor | None
        self.log_beta: nn.Parameter | None
        self.register_parameter("log_beta", nn.Parameter(torch.tensor(betas).log()) if learn_beta else None)
        self.register_buffer("fixed_beta", None if learn_beta else torch.tensor([float(beta) for beta in betas]))
        self.max_updates: PerHead = updates[0] if len(set(updates)) == 1 else updates
        self.tolerance = tolerance
        self.dropout = dropout

    @property
    def beta(self) -> Tensor:
        """Inverse temperature of each head, (H,)."""
        if self.fixed_beta is not None:
            return self.fixed_beta
        assert self.log_beta is not None
        return self.log_beta.exp()

    @property
    def takes_one_update(self) -> bool:
        """Whether every head makes exactly one update."""
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
        """Return the averaged values; see `deeprc.hopfield.functional.associate` for the parameters."""
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

    def compute_weights(self, state: Tensor, stored: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the association weights of the last update, (..., H, S, N), without dropout."""
        return association_weights(
            state, stored, self.beta, mask=mask, max_updates=self.max_updates, tolerance=self.tolerance
        )

    def extra_repr(self) -> str:
        """Return the settings that are shown in the `repr` of the module."""
        return f"max_updates={self.max_updates}, tolerance={self.tolerance}, dropout={self.dropout}"


def _expand_over_heads(name: str, given: Any, n_heads: int) -> list[Any]:
    """Return one number per head from one number or a sequence; ValueError if its length does not fit."""
    given = given.tolist() if isinstance(given, Tensor) else given
    numbers = [given] * n_heads if isinstance(given, Number) else list(given)
    if len(numbers) != n_heads:
        raise ValueError(f"{name}: expected one number, or one for each of {n_heads} heads, found {len(numbers)}")
    return numbers
