"""Ranks of the sequences of a repertoire by their attention.

Letters: N sequences of one repertoire, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from deeprc.datasets.alphabet import invert_order
from deeprc.nn.contributions import HeadAttention
from deeprc.nn.sequence_scores import average_head_weights, average_max_head_logits

__all__ = ["RankedRows", "find_best_rows", "rank_repertoire", "rank_weights"]

_PIECE = 1 << 17  # number of sequences that are compared at a time


class RankedRows(NamedTuple):
    """The n sequences of the table of a repertoire, and their ranks.

    Attributes
    ----------
    rows
        Rows of the sequences in the repertoire, in the order of the table, (n,).
    rank, head_ranks
        Rank of each by its mean weight, (n,), and by the weight of each head, (n, H), from 1.
    """

    rows: NDArray[np.int64]
    rank: NDArray[np.int64]
    head_ranks: NDArray[np.int64]


def rank_repertoire(attention: Sequence[HeadAttention], top: int | None) -> RankedRows:
    """Return the `top` sequences with the highest weights, from the attention of each member; None: all, unsorted."""
    n_heads = [len(member.pooled) for member in attention]
    weights = _join_heads([member.weights for member in attention])
    logits = _join_heads([member.logits for member in attention])
    weight, logit = average_head_weights(weights, n_heads), average_max_head_logits(logits, n_heads)
    if top is None:
        rows, rank = np.arange(len(weight)), rank_weights(weight, logit)
    else:
        rows = find_best_rows(weight, logit, top)
        rank = np.arange(1, len(rows) + 1)
    head_ranks = rank[:, None]
    if weights.shape[1] > 1:
        heads = zip(weights.T, logits.T, strict=True)
        head_ranks = np.stack([rank_weights(weight, logit)[rows] for weight, logit in heads], axis=1)
    return RankedRows(rows, rank, head_ranks)


def _join_heads(parts: Sequence[torch.Tensor]) -> NDArray[Any]:
    """Return what each member has for its heads, (N, H of the member), for the heads of all members, (N, H)."""
    joined: NDArray[Any] = (torch.cat(list(parts), dim=1) if len(parts) > 1 else parts[0]).numpy()
    return joined


def find_best_rows(weight: NDArray[np.float64], logit: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """Return the n rows with the first ranks of `rank_weights`, in their order, without sorting all: (min(n, N),)."""
    best = np.zeros(0, np.int64)
    for start in range(0, len(weight), max(_PIECE, n)):
        piece = np.arange(start, min(start + max(_PIECE, n), len(weight)))
        if len(best) == n:
            piece = piece[weight[piece] >= weight[best[-1]]]
        candidates = np.concatenate([best, piece])  # among equal ones the first is kept
        best = candidates[np.lexsort((-logit[candidates], -weight[candidates]))[:n]]
    return best


def rank_weights(weight: NDArray[np.float64], logit: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the rank of each sequence, from 1; if weights underflow to equal values, logits decide."""
    order = np.lexsort((-logit, -weight))  # a stable sort: among equal ones the first is first
    return 1 + invert_order(order)
