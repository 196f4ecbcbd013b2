"""Softmax and association over ragged sets: every set is a segment of one flat array, nothing is padded.

Letters: N patterns of all sets end to end, B sets, H heads, d_k and d_v dimensions of keys and values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deeprc.device import has_triton

__all__ = ["check_offsets", "segment_attention", "segment_ids", "segment_logsumexp", "segment_softmax", "segment_sum"]


def check_offsets(offsets: Tensor, n: int, name: str = "offsets") -> None:
    """Refuse offsets that do not cut n patterns into sets.

    Their values are looked at on the CPU only: other devices would have to be waited for.

    Raises
    ------
    ValueError
        Unless they are (B + 1,) int64, begin with 0, never fall, and end with n at most.
    """
    if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype != torch.int64:
        raise ValueError(f"{name}: expected (B + 1,) int64, found {tuple(offsets.shape)} {offsets.dtype}")
    if offsets.device.type != "cpu" or torch.compiler.is_compiling():
        return
    values = offsets.numpy()
    if values[0] != 0 or values[-1] > n or (values[1:] < values[:-1]).any():
        found = f"from {values[0]} to {values[-1]}" + (", falling" if (values[1:] < values[:-1]).any() else "")
        raise ValueError(f"{name}: expected to rise from 0 to {n} at most, found {found}")


def segment_ids(offsets: Tensor, n: int) -> Tensor:
    """Return the number of the set that each of n patterns belongs to, (n,) int64, from offsets (B + 1,) int64.

    Patterns beyond the last offset belong to no set; their number is B.
    """
    return torch.searchsorted(offsets[1:], torch.arange(n, device=offsets.device), right=True)


def segment_sum(values: Tensor, offsets: Tensor) -> Tensor:
    """Sum each set's rows: (N, ...) and offsets (B + 1,) give (B, ...); an empty set gives 0."""
    total = values.new_zeros((len(offsets), *values.shape[1:]))
    return total.index_add(0, segment_ids(offsets, len(values)), values)[:-1]


def segment_logsumexp(logits: Tensor, offsets: Tensor) -> Tensor:
    """Return each set's logarithm of the sum of exponentials: (N, H) and (B + 1,) give (B, H); an empty set -inf."""
    segments = segment_ids(offsets, len(logits))
    maximum = _segment_maximum(logits, segments, len(offsets))
    total = torch.zeros_like(maximum).index_add(0, segments, torch.exp(logits - maximum.index_select(0, segments)))
    return (maximum + total.log())[:-1]


def _segment_maximum(logits: Tensor, segments: Tensor, n: int) -> Tensor:
    """Return each of n sets' highest logits, (n, H), without gradients; -inf of an empty one."""
    index = segments[:, None].expand_as(logits)  # (N, H)
    return logits.new_full((n, logits.shape[1]), -torch.inf).scatter_reduce(0, index, logits.detach(), "amax")


def segment_softmax(logits: Tensor, offsets: Tensor) -> Tensor:
    """Softmax over each set: logits (N, H) and offsets (B + 1,) give weights (N, H) that sum to 1 in each set."""
    segments = segment_ids(offsets, len(logits))
    maximum = _segment_maximum(logits, segments, len(offsets))  # (B + 1, H)
    exponential = torch.exp(logits - maximum.index_select(0, segments))
    # index_select, not [segments]: the backward of the latter adds in an order that differs from run to run
    total = torch.zeros_like(maximum).index_add(0, segments, exponential)
    return exponential / total.index_select(0, segments)


def segment_attention(logits: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    """Average each set's values with the softmax of its logits; an empty set gives 0.

    Parameters
    ----------
    logits
        (N, H).
    values
        (N, d_v).
    offsets
        (B + 1,) int64.

    Returns
    -------
    (B, H, d_v).

    Raises
    ------
    ValueError
        As `check_offsets`.
    """
    check_offsets(offsets, len(logits))
    if not logits.dtype == values.dtype in (torch.float32, torch.float64):  # the exponentials need the digits
        common = torch.promote_types(torch.promote_types(logits.dtype, values.dtype), torch.float32)
        return segment_attention(logits.to(common), values.to(common), offsets).to(values.dtype)
    apply = _attention_by_tensors
    if torch.compiler.is_compiling():
        pass  # into the graph around it, as tensors
    elif logits.device.type == "cpu":
        from deeprc.hopfield.attention_cpu import SegmentAttention  # imports a compiler, only where it is used

        apply = SegmentAttention.apply
    elif logits.device.type == "cuda" and has_triton():
        from deeprc.hopfield.attention_cuda import SegmentAttention as SegmentAttentionOnCuda

        apply = SegmentAttentionOnCuda.apply
    return apply(logits, values, offsets)


def _attention_by_tensors(logits: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    """Compute `segment_attention` on any device, with sizes that follow from the shapes alone."""
    weights = segment_softmax(logits, offsets)  # (N, H)
    heads = [segment_sum(weights[:, h, None] * values, offsets) for h in range(weights.shape[1])]
    return torch.stack(heads, dim=1)  # H times (B, d_v) -> (B, H, d_v)
