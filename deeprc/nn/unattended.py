"""The sequences that attention-based subsampling does not choose, as a constant part of the softmax of an update.

Letters: N sequences of all repertoires, n attended (chosen) ones, B repertoires, H heads, S values of a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deeprc.hopfield.segments import segment_attention, segment_logsumexp

__all__ = ["UnattendedSequences", "summarise_unattended"]

_EXCLUDED = -1e9  # logit of an excluded sequence: its exponential is 0, and unlike -inf it leads to no NaN


@dataclass(frozen=True)
class UnattendedSequences:
    """Summary of the unattended sequences of each repertoire: their constant part of the pooled values.

    Attributes
    ----------
    logsumexp
        Logarithm of the sum of the exponentials of their logits, (B, H).
    pooled
        Their pooled values, (B, H, S).
    """

    logsumexp: Tensor
    pooled: Tensor

    def add_to(self, pooled: Tensor, logits: Tensor, offsets: Tensor) -> Tensor:
        """Return the values pooled over all sequences, (B, H, S).

        Parameters
        ----------
        pooled
            Values pooled over the attended sequences, (B, H, S).
        logits
            Logits of the attended sequences, (n, H).
        offsets
            Offsets of the repertoires in the attended sequences, (B + 1,).
        """
        lowest = 2 * _EXCLUDED  # finite, also for an empty repertoire
        attended = segment_logsumexp(logits, offsets).clamp(min=lowest)
        unattended = self.logsumexp.clamp(min=lowest)
        share = torch.sigmoid(attended - unattended)  # (B, H)
        return torch.lerp(self.pooled, pooled, share[:, :, None])


@torch.no_grad()
def summarise_unattended(
    values: Tensor, logits: Tensor, offsets: Tensor, rows: Tensor, kept_offsets: Tensor
) -> UnattendedSequences:
    """Return the summary of all sequences except the attended ones.

    Parameters
    ----------
    values, logits, offsets
        Values (N, S) and logits (N, H) of all sequences, and the offsets of the repertoires in them, (B + 1,).
    rows, kept_offsets
        Rows of the attended sequences, (n,), and offsets of the repertoires in them, (B + 1,), from
        `deeprc.nn.sampling.select_top_rows`.
    """
    is_attended = torch.arange(len(rows), device=rows.device) < kept_offsets[-1]  # later rows only fill the tensor
    attended = torch.zeros(len(logits), dtype=torch.int32, device=rows.device).index_add(0, rows, is_attended.int()) > 0
    others = logits.masked_fill(attended[:, None], _EXCLUDED)
    return UnattendedSequences(segment_logsumexp(others, offsets), segment_attention(others, values, offsets))
