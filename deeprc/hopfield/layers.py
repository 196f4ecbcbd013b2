"""`HopfieldPooling`: one result per learned query and set (paper lines 806-845, 7184-7330).

Letters: N patterns of all sets end to end, B sets, H heads (one learned query each), d_k and d_v dimensions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from deeprc.hopfield.functional import segment_attention

__all__ = ["HopfieldPooling"]


class HopfieldPooling(nn.Module):
    """Pool ragged sets of stored patterns with static, learned state patterns.

    Each head has one query ξ and computes softmax(β ξᵀ Kᵀ) V over each set.

    Parameters
    ----------
    key_dim
        d_k, the dimension of the associative space.
    n_heads
        H, the number of queries.
    beta
        The inverse temperature; None is 1 / sqrt(d_k).
    learn_beta
        Learn one β per head, kept positive by learning its logarithm.
    """

    def __init__(
        self,
        key_dim: int,
        *,
        n_heads: int = 1,
        beta: float | None = None,
        learn_beta: bool = False,
    ) -> None:
        super().__init__()
        if beta is not None and not beta > 0:
            raise ValueError(f"beta: expected a positive number, found {beta}")
        self.queries = nn.Parameter(torch.empty(n_heads, key_dim))
        log_beta = torch.full((n_heads,), math.log(beta if beta is not None else key_dim**-0.5))
        self.log_beta: Tensor
        if learn_beta:
            self.log_beta = nn.Parameter(log_beta)
        else:
            self.register_buffer("log_beta", log_beta)
        nn.init.normal_(self.queries)

    @property
    def beta(self) -> Tensor:
        """The inverse temperature of each head, (H,)."""
        return self.log_beta.exp()

    def logits(self, keys: Tensor) -> Tensor:
        """Return β ξᵀ k of every pattern and head: keys (N, d_k) give (N, H)."""
        return keys @ self.scaled_queries().T  # (N, d_k) @ (d_k, H) -> (N, H)

    def scaled_queries(self) -> Tensor:
        """Return β ξ of each head, (H, d_k)."""
        return self.queries * self.beta[:, None]

    def pool(self, logits: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Average the values with the softmax of the logits: (N, H), (N, d_v) and offsets (B + 1,) give (B, H, d_v).

        An empty set gives 0.
        """
        return segment_attention(logits, values, offsets)

    def forward(self, keys: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Pool each set: keys (N, d_k), values (N, d_v) and offsets (B + 1,) give (B, H, d_v)."""
        return self.pool(self.logits(keys), values, offsets)
