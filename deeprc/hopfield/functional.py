"""Modern Hopfield networks with continuous states: energy, update rule, retrieval, association (paper lines 402-670).

Patterns are rows here and columns in the paper: the paper's X = (x_1, ..., x_N) is `stored`, (..., N, d), and its ξ is
`state`, (..., S, d). Letters: N stored patterns, S state patterns, H heads, B sets, d_k dimension of the associative
space, d_v dimension of the values, β inverse temperature, M largest norm of a stored pattern. All dimensions before
the last two are called leading. The last leading dimension is that of the heads.
Masks are those of `torch.nn.MultiheadAttention`: a boolean mask leaves a pattern out where it is True, and a mask of
numbers is added to β xᵀ ξ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from deeprc.hopfield.segments import check_offsets, segment_attention

__all__ = ["PerHead", "Retrieval", "associate", "association_weights", "check_mask", "energy", "retrieve", "update"]

PerHead = int | Sequence[int]
"""One number for all heads, or one number per head."""


class Retrieval(NamedTuple):
    """The result of `retrieve`.

    Attributes
    ----------
    state
        States after the last update, (..., S, d).
    n_updates
        Number of updates that each head made, int64, in the shape of the leading dimensions.
    converged
        Whether the last update of a head moved no state by more than the tolerance, bool, in the same shape.
    """

    state: Tensor
    n_updates: Tensor
    converged: Tensor


def energy(state: Tensor, stored: Tensor, beta: float | Tensor) -> Tensor:
    """Return E = -lse(β, Xᵀξ) + ξᵀξ/2 + β⁻¹ ln N + M²/2 (paper line 451).

    The energy is never negative. If the norm of a state is at most M, its energy is at most 2 M² (lemma `th:energy`,
    line 1392).

    Parameters
    ----------
    state
        State patterns, (..., S, d), or (d,) for one state.
    stored
        Stored patterns, (..., N, d).
    beta
        Inverse temperature: a number, or one per head, (H,).

    Returns
    -------
    The energies, (..., S). For one state, the shape is that of the leading dimensions of `stored`.
    """
    if state.ndim == 1:
        return energy(state[None], stored, beta)[..., 0]
    logits = _compute_logits(state, stored, beta, None)  # (..., S, N)
    inverse = _expand_over_states(1 / beta).to(logits.dtype) if isinstance(beta, Tensor) else 1 / beta
    largest_norm_squared = stored.square().sum(-1).amax(-1)[..., None]  # M² of each head -> of each of its states
    lse = inverse * torch.logsumexp(logits, dim=-1)
    return -lse + state.square().sum(-1) / 2 + inverse * math.log(stored.shape[-2]) + largest_norm_squared / 2


def update(state: Tensor, stored: Tensor, beta: float | Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Update the states once: ξ_new = X softmax(β Xᵀ ξ) (paper line 462).

    Parameters
    ----------
    state
        State patterns, (..., S, d), or (d,) for one state.
    stored
        Stored patterns, (..., N, d).
    beta
        Inverse temperature: a number, or one per head, (H,).
    mask
        Mask that can be broadcast to (..., S, N); see the docstring of the module.

    Returns
    -------
    The new states, in the shape of `state`. A state becomes 0 if the mask leaves out all patterns.
    """
    if state.ndim == 1:
        return update(state[None], stored, beta, mask=mask)[0]
    return _attend(state, stored, stored, beta, mask, dropout=0.0)


def retrieve(
    state: Tensor,
    stored: Tensor,
    beta: float | Tensor,
    *,
    mask: Tensor | None = None,
    max_updates: PerHead = 100,
    tolerance: float = 1e-4,
) -> Retrieval:
    """Update the states until they converge (paper lines 7268-7281).

    A head has converged if the maximum of ‖ξ_new - ξ‖₂ over its states is at most the tolerance. Heads, and sets of a
    batch, converge independently of each other. To let each state converge by itself, give each as its own set,
    (S, 1, d).

    Parameters
    ----------
    state
        State patterns, (..., S, d), or (d,) for one state.
    stored
        Stored patterns, (..., N, d).
    beta
        Inverse temperature: a number, or one per head, (H,).
    mask
        Mask that can be broadcast to (..., S, N); see the docstring of the module.
    max_updates
        Maximum number of updates, for all heads or per head.
    tolerance
        Largest distance that counts as no movement, in the units of the patterns.
    """
    if state.ndim == 1:
        result = retrieve(state[None], stored, beta, mask=mask, max_updates=max_updates, tolerance=tolerance)
        return Retrieval(result.state[0], result.n_updates, result.converged)
    leading = torch.broadcast_shapes(state.shape[:-2], stored.shape[:-2])
    state = state.expand(*leading, *state.shape[-2:])
    limit = torch.tensor(max_updates, device=state.device).expand(leading)
    n_updates = torch.zeros(leading, dtype=torch.int64, device=state.device)
    converged = torch.zeros(leading, dtype=torch.bool, device=state.device)
    for _ in range(max_updates if isinstance(max_updates, int) else max(max_updates, default=0)):
        active = ~converged & (n_updates < limit)
        if not torch.compiler.is_compiling() and not active.any():  # a compiled graph has all updates
            break
        new = update(state, stored, beta, mask=mask)
        change = (new - state).detach().norm(dim=-1)  # (..., S)
        moved = (~(change <= tolerance)).any(dim=-1)  # a state with NaN has not converged
        state = torch.where(active[..., None, None], new, state)
        n_updates = n_updates + active
        converged = converged | (active & ~moved)
    return Retrieval(state, n_updates, converged)


def association_weights(
    state: Tensor,
    stored: Tensor,
    beta: float | Tensor,
    *,
    mask: Tensor | None = None,
    max_updates: PerHead = 1,
    tolerance: float = 1e-4,
) -> Tensor:
    """Return p = softmax(β Xᵀ ξ), (..., S, N): the weights of the stored patterns in the last update.

    The parameters are those of `associate`. The weights of a state sum to 1. They are 0 if all patterns are left out.
    """
    state = _update_all_but_last(state, stored, beta, mask, max_updates, tolerance)
    weights = torch.softmax(_compute_logits(state, stored, beta, mask), dim=-1)
    return weights if mask is None else weights.nan_to_num(0.0)


def associate(
    state: Tensor,
    stored: Tensor,
    values: Tensor | None = None,
    *,
    beta: float | Tensor,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    state_offsets: Tensor | None = None,
    dropout: float = 0.0,
    max_updates: PerHead = 1,
    tolerance: float = 1e-4,
) -> Tensor:
    """Associate state patterns with stored patterns: Z = softmax(β Q Kᵀ) V (paper lines 643 and 7262).

    All updates but the last replace Q by softmax(β Q Kᵀ) K. The last update averages the values. One update is one call
    of `torch.nn.functional.scaled_dot_product_attention`.

    Sets of different sizes are given end to end, without padding; offsets say where each set begins. If all sets share
    the states and there is one update, one pass over the patterns handles all sets. Otherwise the sets are handled one
    after the other.

    Parameters
    ----------
    state
        State patterns Q, (..., H, S, d_k).
    stored
        Stored patterns K, (..., H, N, d_k). With H = 1, all heads share the patterns.
    values
        Values V, (..., H, N, d_v), which heads may share as well. None: the stored patterns.
    beta
        Inverse temperature: a number, or one per head, (H,).
    mask
        Mask that can be broadcast to (..., H, S, N); see the docstring of the module.
    offsets
        Offsets of the sets, (B + 1,) int64: set b is stored[:, offsets[b]:offsets[b + 1]]. The patterns must then be
        (H, N, d). Patterns beyond the last offset belong to no set.
    state_offsets
        Offsets of the states of each set, (B + 1,) int64. None: all sets share the same states.
    dropout
        Share of weights that are set to 0 at random. The other weights are scaled up in proportion.
    max_updates
        Maximum number of updates, at least 1, for all heads or per head.
    tolerance
        Largest distance that counts as no movement; a head stops earlier if no state moves by more, see `retrieve`.

    Returns
    -------
    The averages, (..., H, S, d_v); with offsets and shared states (B, H, S, d_v). The average over no pattern is 0.

    Raises
    ------
    ValueError
        If offsets do not fit, if a mask is given beside offsets, or if β or `max_updates` is out of range.
    """
    values = stored if values is None else values
    if offsets is not None:
        if mask is not None:
            raise ValueError("mask: expected None with offsets; leave the patterns themselves out of the sets")
        return _associate_sets(
            state,
            stored,
            values,
            beta=beta,
            offsets=offsets,
            state_offsets=state_offsets,
            dropout=dropout,
            max_updates=max_updates,
            tolerance=tolerance,
        )
    if state_offsets is not None:
        raise ValueError("state_offsets: expected only with offsets, which say where the stored sets begin")
    state = _update_all_but_last(state, stored, beta, mask, max_updates, tolerance)
    return _attend(state, stored, values, beta, mask, dropout)


def _associate_sets(
    state: Tensor,
    stored: Tensor,
    values: Tensor,
    *,
    beta: float | Tensor,
    offsets: Tensor,
    state_offsets: Tensor | None,
    dropout: float,
    max_updates: PerHead,
    tolerance: float,
) -> Tensor:
    """Associate each set of patterns with its states, or with the states that all sets share; see `associate`."""
    _check_max_updates(max_updates)
    check_offsets(offsets, stored.shape[-2])
    if not state.ndim == stored.ndim == values.ndim == 3:
        dimensions = [tuple(patterns.shape) for patterns in (state, stored, values)]
        raise ValueError(f"offsets: expected patterns end to end, (H, N, d), found {dimensions}")
    if state_offsets is None and _is_single_update(max_updates) and not dropout:
        return _associate_shared_states(state, stored, values, beta, offsets)
    sets = list(pairwise(offsets.tolist()))
    states = [state] * len(sets) if state_offsets is None else _split_states(state, state_offsets, len(sets))
    if not sets:
        H, d_v = max(len(state), len(stored), len(values)), values.shape[-1]
        return values.new_zeros((0, H, state.shape[1], d_v) if state_offsets is None else (H, 0, d_v))
    results = [
        associate(
            head_states,
            stored[:, first:stop],
            values[:, first:stop],
            beta=beta,
            dropout=dropout,
            max_updates=max_updates,
            tolerance=tolerance,
        )
        for head_states, (first, stop) in zip(states, sets, strict=True)
    ]
    return torch.stack(results) if state_offsets is None else torch.cat(results, dim=-2)


def _associate_shared_states(
    state: Tensor, stored: Tensor, values: Tensor, beta: float | Tensor, offsets: Tensor
) -> Tensor:
    """Associate the same states (H, S, d_k) with every set, in one pass over the patterns; return (B, H, S, d_v)."""
    H, S, d_k = state.shape
    B = len(offsets) - 1
    scaled = _scale_states(state, beta)
    if len(stored) == 1:
        logits = stored[0] @ scaled.reshape(H * S, d_k).T  # (N, d_k) @ (d_k, H * S)
    else:
        logits = (stored @ scaled.mT).permute(1, 0, 2).flatten(1)  # (H, N, S) -> (N, H * S)
    if len(values) == 1:
        return segment_attention(logits, values[0], offsets).view(B, H, S, values.shape[-1])  # (B, H * S, d_v)
    head_logits = logits.unflatten(1, (H, S)).unbind(1)  # H times (N, S)
    heads = [segment_attention(logits, value, offsets) for logits, value in zip(head_logits, values, strict=True)]
    return torch.stack(heads, dim=1) if heads else values.new_zeros((B, H, S, values.shape[-1]))


def _update_all_but_last(
    state: Tensor, stored: Tensor, beta: float | Tensor, mask: Tensor | None, max_updates: PerHead, tolerance: float
) -> Tensor:
    """Return the states before the last update, which averages the values; ValueError as in `_check_max_updates`."""
    _check_max_updates(max_updates)
    if _is_single_update(max_updates):
        return state
    earlier = max_updates - 1 if isinstance(max_updates, int) else [n - 1 for n in max_updates]
    return retrieve(state, stored, beta, mask=mask, max_updates=earlier, tolerance=tolerance).state


def _attend(
    state: Tensor, stored: Tensor, values: Tensor, beta: float | Tensor, mask: Tensor | None, dropout: float
) -> Tensor:
    """Return softmax(β Q Kᵀ) V of dense patterns, by fused kernels if the device has them."""
    leading = torch.broadcast_shapes(state.shape[:-2], stored.shape[:-2], values.shape[:-2])
    if isinstance(beta, Tensor):
        state, scale = _scale_states(state, beta), 1.0
    else:
        _check_beta(beta)
        scale = beta
    # the fused kernels take four dimensions
    query, key, value = (_to_four_dimensions(t.expand(*leading, *t.shape[-2:])) for t in (state, stored, values))
    if mask is not None:
        check_mask(mask)
        mask = ~mask if mask.dtype == torch.bool else mask.to(query.dtype)  # before the expansion: less memory
        mask = _to_four_dimensions(mask.expand(*leading, *query.shape[-2:-1], *key.shape[-2:-1]))
    result = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scale)
    return result.reshape(*leading, *result.shape[-2:])


def _to_four_dimensions(patterns: Tensor) -> Tensor:
    if patterns.ndim < 4:
        return patterns[(None,) * (4 - patterns.ndim)]
    return patterns.flatten(0, -4)


def _compute_logits(state: Tensor, stored: Tensor, beta: float | Tensor, mask: Tensor | None) -> Tensor:
    """Return the logits β Xᵀ ξ, (..., S, N); they are minus infinity where a pattern is left out."""
    logits = _scale_states(state, beta) @ stored.mT
    if mask is None:
        return logits
    check_mask(mask)
    return logits.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else logits + mask


def check_mask(mask: Tensor) -> None:
    """Raise ValueError for a mask of integers: 1 might mean True, or a number to add."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"mask: expected bool or floating-point numbers, found {mask.dtype}")


def _scale_states(state: Tensor, beta: float | Tensor) -> Tensor:
    """Return β ξ; a β per head, (H,), is expanded to (H, 1, 1)."""
    if not isinstance(beta, Tensor):
        _check_beta(beta)
        return state * beta
    return state * (beta[..., None, None] if beta.ndim else beta).to(state.dtype)


def _check_beta(beta: float) -> None:
    if not 0 < beta < math.inf:
        raise ValueError(f"beta: expected a positive number, found {beta}")


def _split_states(state: Tensor, offsets: Tensor, n_sets: int) -> list[Tensor]:
    """Return the states of each set, (H, n, d_k), from those of all sets end to end."""
    check_offsets(offsets, state.shape[-2], "state_offsets")
    if len(offsets) - 1 != n_sets:
        raise ValueError(f"state_offsets: expected those of {n_sets} sets, as offsets have, found {len(offsets) - 1}")
    return [state[:, first:stop] for first, stop in pairwise(offsets.tolist())]


def _expand_over_states(beta: Tensor) -> Tensor:
    """Return a β per head, (H,), as (H, 1), which broadcasts to the states of each head."""
    return beta[..., None] if beta.ndim else beta


def _check_max_updates(max_updates: PerHead) -> None:
    """Raise ValueError if a number of updates is below 1."""
    numbers = [max_updates] if isinstance(max_updates, int) else max_updates
    if any(n < 1 for n in numbers):
        raise ValueError(f"max_updates: expected a whole number of at least 1, found {max_updates}")


def _is_single_update(max_updates: PerHead) -> bool:
    """Return whether every head makes one update only."""
    return max_updates == 1 if isinstance(max_updates, int) else all(n == 1 for n in max_updates)
