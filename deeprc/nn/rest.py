"""What attention-based subsampling leaves out of an update, as a constant part of the softmax.

Letters: N sequences of all repertoires, n kept ones, B repertoires, H heads, S numbers that represent a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deeprc.hopfield.segments import segment_attention, segment_logsumexp

__all__ = ["Rest", "rest_of"]

_NOWHERE = -1e9  # logit of a sequence that takes no part; its exponential is 0, and sums of nothing else are finite


@dataclass(frozen=True)
class Rest:
    """The sequences that were not kept, taken together.

    Attributes
    ----------
    mass
        Logarithm of the sum of the exponentials of their logits, (B, H).
    value
        Their values' average by attention, (B, H, S).
    """

    mass: Tensor
    value: Tensor

    def joined(self, pooled: Tensor, logits: Tensor, offsets: Tensor) -> Tensor:
        """Return the average over all sequences, (B, H, S).

        Parameters
        ----------
        pooled
            The average over the kept sequences, (B, H, S).
        logits, offsets
            Of the kept sequences, (n, H) and (B + 1,).
        """
        masses = (mass.clamp(min=2 * _NOWHERE) for mass in (segment_logsumexp(logits, offsets), self.mass))
        kept, others = masses  # finite for an empty repertoire, too
        share = torch.sigmoid(kept - others)  # (B, H)
        return torch.lerp(self.value, pooled, share[:, :, None])


@torch.no_grad()
def rest_of(values: Tensor, logits: Tensor, offsets: Tensor, rows: Tensor, bounds: Tensor) -> Rest:
    """Return what is left of all sequences without the kept ones.

    Parameters
    ----------
    values, logits, offsets
        Of all sequences, (N, S), (N, H) and (B + 1,).
    rows, bounds
        The kept ones and their offsets, (n,) and (B + 1,), from `deeprc.nn.sampling.top_rows`.
    """
    belongs = torch.arange(len(rows), device=rows.device) < bounds[-1]  # later rows only fill up
    kept = torch.zeros(len(logits), dtype=torch.int32, device=rows.device).index_add(0, rows, belongs.int()) > 0
    others = logits.masked_fill(kept[:, None], _NOWHERE)
    return Rest(segment_logsumexp(others, offsets), segment_attention(others, values, offsets))
