"""Softmax and association over ragged sets: every set is a segment of one flat array, nothing is padded.

Letters: N patterns of all sets end to end, B sets, H heads, d_k and d_v dimensions of keys and values.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["segment_ids", "segment_softmax", "segment_sum"]


def segment_ids(offsets: Tensor) -> Tensor:
    """Return the number of the set that each pattern belongs to, (N,) int64, from offsets (B + 1,) int64."""
    return torch.repeat_interleave(torch.arange(len(offsets) - 1, device=offsets.device), offsets.diff())


def segment_sum(values: Tensor, offsets: Tensor) -> Tensor:
    """Sum each set's rows: (N, ...) and offsets (B + 1,) give (B, ...); an empty set gives 0."""
    total = values.new_zeros((len(offsets) - 1, *values.shape[1:]))
    return total.index_add(0, segment_ids(offsets), values)


def segment_softmax(logits: Tensor, offsets: Tensor) -> Tensor:
    """Softmax over each set: logits (N, H) and offsets (B + 1,) give weights (N, H) that sum to 1 in each set."""
    segments = segment_ids(offsets)
    index = segments[:, None].expand_as(logits)  # (N, H)
    lowest = logits.new_full((len(offsets) - 1, logits.shape[1]), -torch.inf)
    maximum = lowest.scatter_reduce(0, index, logits.detach(), "amax")  # (B, H)
    exponential = torch.exp(logits - maximum.index_select(0, segments))
    # index_select, not [segments]: the backward of the latter adds in an order that differs from run to run
    return exponential / segment_sum(exponential, offsets).index_select(0, segments)
