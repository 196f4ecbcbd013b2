"""Softmax and association over ragged sets: each set is a segment of one flat array, without padding.

Offsets, (B + 1,) int64, say where the sets begin: set b is the rows offsets[b] to offsets[b + 1] - 1.
Letters: N patterns of all sets end to end, B sets, H heads, d_k and d_v dimensions of keys and values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deeprc.device import has_triton

__all__ = [
    "check_offsets",
    "index_segments",
    "segment_attention",
    "segment_logsumexp",
    "segment_softmax",
    "segment_sum",
]


def check_offsets(offsets: Tensor, n: int, name: str = "offsets") -> None:
    """Check that offsets divide n patterns into sets.

    Values are checked on the CPU only: on other devices, reading them would stop the program until the device is done.

    Raises
    ------
    ValueError
        If the offsets are not (B + 1,) int64, do not begin with 0, fall somewhere, or exceed n. The message calls them
        `name`.
    """
    if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype != torch.int64:
        raise ValueError(f"{name}: expected (B + 1,) int64, found {tuple(offsets.shape)} {offsets.dtype}")
    if offsets.device.type != "cpu" or torch.compiler.is_compiling():
        return
    values = offsets.numpy()
    is_falling = bool((values[1:] < values[:-1]).any())
    if values[0] != 0 or values[-1] > n or is_falling:
        found = f"from {values[0]} to {values[-1]}" + (", falling" if is_falling else "")
        raise ValueError(f"{name}: expected to rise from 0 to {n} at most, found {found}")


def index_segments(offsets: Tensor, n: int) -> Tensor:
    """Return the index of the set of each of n patterns, (n,) int64, from offsets (B + 1,) int64.

    Patterns beyond the last offset belong to no set and get the index B.
    """
    return torch.searchsorted(offsets[1:], torch.arange(n, device=offsets.device), right=True)


def segment_sum(values: Tensor, offsets: Tensor) -> Tensor:
    """Sum the rows of each set: (N, ...) and offsets (B + 1,) give (B, ...). The sum of an empty set is 0."""
    total = values.new_zeros((len(offsets), *values.shape[1:]))
    return total.index_add(0, index_segments(offsets, len(values)), values)[:-1]


def segment_logsumexp(logits: Tensor, offsets: Tensor) -> Tensor:
    """Return log(sum(exp(logits))) of each set: (N, H) and offsets (B + 1,) give (B, H); -inf for an empty set.

    Sums have 64 bits: one after another in 32 bits, millions of small terms would hardly change a sum.
    """
    segments = index_segments(offsets, len(logits))
    maximum = _segment_maximum(logits, segments, len(offsets))
    exponential = torch.exp(logits - maximum.index_select(0, segments))
    total = torch.zeros_like(maximum, dtype=torch.float64).index_add(0, segments, exponential.double())
    return (maximum + total.log().to(maximum))[:-1]


def _segment_maximum(logits: Tensor, segments: Tensor, n: int) -> Tensor:
    """Return the maximum logits of each of n sets, (n, H), without gradients; -inf for an empty set."""
    index = segments[:, None].expand_as(logits)  # (N, H)
    return logits.new_full((n, logits.shape[1]), -torch.inf).scatter_reduce(0, index, logits.detach(), "amax")


def segment_softmax(logits: Tensor, offsets: Tensor) -> Tensor:
    """Return the softmax over each set: logits (N, H) and offsets (B + 1,) give weights (N, H), sum 1 in each set."""
    segments = index_segments(offsets, len(logits))
    maximum = _segment_maximum(logits, segments, len(offsets))  # (B + 1, H)
    exponential = torch.exp(logits - maximum.index_select(0, segments))
    # index_select, not [segments]: the backward of the latter adds in an order that varies between runs
    total = torch.zeros_like(maximum).index_add(0, segments, exponential)
    return exponential / total.index_select(0, segments)


def segment_attention(logits: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    """Average the values of each set, weighted by the softmax of its logits.

    Parameters
    ----------
    logits
        Logits, (N, H).
    values
        Values, (N, d_v).
    offsets
        Offsets of the sets, (B + 1,) int64.

    Returns
    -------
    The averages, (B, H, d_v); 0 for an empty set.

    Raises
    ------
    ValueError
        As in `check_offsets`.
    """
    check_offsets(offsets, len(logits))
    if not logits.dtype == values.dtype in (torch.float32, torch.float64):  # exponentials need at least 32 bits
        common = torch.promote_types(torch.promote_types(logits.dtype, values.dtype), torch.float32)
        return segment_attention(logits.to(common), values.to(common), offsets).to(values.dtype)
    if torch.compiler.is_compiling():
        return _attention_in_torch(logits, values, offsets)  # tensor operations become part of the compiled graph
    if logits.device.type == "cpu":
        from deeprc.hopfield.attention_cpu import SegmentAttention  # imports a compiler, so only if it is needed

        on_cpu: Tensor = SegmentAttention.apply(logits, values, offsets)  # type: ignore[no-untyped-call]  # torch types no `apply`
        return on_cpu
    if logits.device.type == "cuda" and has_triton():
        from deeprc.hopfield.attention_cuda import SegmentAttention as SegmentAttentionOnCuda

        on_cuda: Tensor = SegmentAttentionOnCuda.apply(logits, values, offsets)  # type: ignore[no-untyped-call]  # as above
        return on_cuda
    return _attention_in_torch(logits, values, offsets)


def _attention_in_torch(logits: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    """Compute `segment_attention` on any device, by operations whose sizes depend on shapes only."""
    weights = segment_softmax(logits, offsets)  # (N, H)
    heads = [segment_sum(weights[:, h, None] * values, offsets) for h in range(weights.shape[1])]
    return torch.stack(heads, dim=1)  # H times (B, d_v) -> (B, H, d_v)
