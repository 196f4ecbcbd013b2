"""Number of patterns that a head averages, and the operating class of the head (paper lines 935-955).

The size k of a metastable state is the smallest number of patterns that together have 90% of the softmax weight.
Letters: N patterns of all sets end to end, B sets, H heads, k size of a metastable state.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["HeadSummary", "metastable_sizes", "operating_class", "segment_metastable_sizes", "summarise_heads"]

_ROUNDING = 1e-6  # relative; in float64 the sum of nine weights of 0.1 is below 0.9
_MAX_SUM_ERROR = 0.01  # largest error of a sum of weights, which should be 1: bfloat16 stays below it, dropout does not


class HeadSummary(NamedTuple):
    """Summary of one head over many sets, from `summarise_heads`.

    Attributes
    ----------
    head
        Index of the head, from 1.
    median_size, lower_quartile, upper_quartile
        Median and quartiles over the sets of the size k, in patterns.
    median_fraction
        Median over the sets of k / N, where N is the number of patterns of the set.
    operating_class
        "I", "II", "III" or "IV", from `median_fraction`; see the function `operating_class`.
    """

    head: int
    median_size: float
    lower_quartile: float
    upper_quartile: float
    median_fraction: float
    operating_class: str


def metastable_sizes(weights: Tensor, *, mass: float = 0.90, dim: int = -1, overwrite: bool = False) -> Tensor:
    """Return the smallest k such that the k largest softmax values sum to at least `mass` (paper lines 941-944).

    Sums are computed in float64, relative to the sum of all weights, which is 1 up to rounding. `mass` counts as
    reached if at most 1e-6 of it is missing. So ten weights of 0.1 give 9 for a mass of 0.9.

    Parameters
    ----------
    weights
        Softmax values along `dim`, (..., N, ...).
    mass
        Share of the weight, in (0, 1].
    dim
        Index of the dimension of the patterns.
    overwrite
        Whether the function may overwrite the weights to save memory.

    Returns
    -------
    k, int64, in the shape of `weights` without `dim`; 0 if N = 0 or if all weights are 0.

    Raises
    ------
    ValueError
        If `mass` is out of its range, or weights are negative or do not sum to 1 along `dim`.
    """
    if not 0 < mass <= 1:
        raise ValueError(f"mass: expected a number in (0, 1], found {mass}")
    weights = weights.detach()
    minimum = float(weights.min()) if weights.numel() else 0.0
    cumulative = _sort_descending(weights, dim, overwrite).double().cumsum_(dim)
    if weights.numel() == 0:
        return cumulative.sum(dim).long()
    total = cumulative.select(dim, -1)
    error = float(((total - 1).abs() * (total != 0)).max())  # all weights are 0 if all patterns are left out
    if not error <= _MAX_SUM_ERROR or minimum < 0:  # `not` also finds NaN
        found = f"sums from {float(total.min())} to {float(total.max())} and a minimum of {minimum}"
        raise ValueError(f"weights: expected none below 0 and sums of 1 along dimension {dim}, found {found}")
    threshold = mass * (1 - _ROUNDING) * total.unsqueeze(-1)
    below = torch.searchsorted(cumulative.movedim(dim, -1).contiguous(), threshold.contiguous()).squeeze(-1)
    return (below + 1) * (total != 0)


def _sort_descending(values: Tensor, dim: int, overwrite: bool) -> Tensor:
    """Sort the values in descending order; on the CPU without their indices, which would double the memory."""
    if values.device.type != "cpu" or values.dtype != torch.float64:
        return values.sort(dim=dim, descending=True).values
    negative = values.neg_() if overwrite else values.neg()
    negative.numpy().sort(axis=dim)
    return negative.neg_()


def segment_metastable_sizes(weights: Tensor, offsets: Tensor, *, mass: float = 0.90) -> Tensor:
    """Return `metastable_sizes` of ragged sets, (B, H) int64, from weights (N, H) and offsets (B + 1,) int64.

    The size of an empty set is 0. Patterns beyond the last offset belong to no set.

    Raises
    ------
    ValueError
        As in `metastable_sizes`; or if `weights` is not (N, H), or `offsets` does not rise from 0 to at most N.
    """
    if weights.ndim != 2:
        raise ValueError(f"weights: expected (N, H), found {tuple(weights.shape)}")
    bounds = offsets.tolist()
    rising = all(start <= stop for start, stop in pairwise(bounds))
    if not bounds or bounds[0] != 0 or not rising or bounds[-1] > len(weights):
        found = ", ".join(str(bound) for bound in (*bounds[:1], *bounds[-1:])) + ("" if rising else ", with a fall")
        raise ValueError(f"offsets: expected to rise from 0 to {len(weights)} at most, found {found or 'none'}")
    sizes = [metastable_sizes(weights[start:stop], mass=mass, dim=0) for start, stop in pairwise(bounds)]
    if not sizes:
        return torch.zeros(0, weights.shape[1], dtype=torch.int64, device=weights.device)
    return torch.stack(sizes)  # B times (H,) -> (B, H)


def operating_class(size: float, n: float) -> str:
    """Return the operating class of a head from the median size k of its metastable states (paper lines 945-951).

    | class | median size | the head averages |
    |---|---|---|
    | "I" | n / 2 < k | a very large number of patterns |
    | "II" | n / 8 < k ≤ n / 2 | a large number |
    | "III" | n / 32 < k ≤ n / 8 | a medium number |
    | "IV" | k ≤ n / 32 | a small number, or a single pattern |

    Parameters
    ----------
    size
        Median size k.
    n
        Number of patterns.

    Raises
    ------
    ValueError
        Unless 0 ≤ k ≤ n and n is positive.
    """
    if not (n > 0 and 0 <= size <= n):
        raise ValueError(f"size: expected 0 to n, with n above 0, found {size} of n = {n}")
    for name, share in (("I", 2), ("II", 8), ("III", 32)):
        if share * size > n:
            return name
    return "IV"


def summarise_heads(sizes: Tensor, n_patterns: Tensor) -> list[HeadSummary]:
    """Summarise the sizes of the metastable states of each head over many sets.

    Sets may differ in size, so the operating class is that of the median of k / N. If all sets have the same size, this
    is the rule of the paper, which uses the median of k. Sets without patterns are left out.

    Parameters
    ----------
    sizes
        Size k for each set and head, (B, H), from `segment_metastable_sizes`.
    n_patterns
        Number of patterns N of each set, (B,).

    Returns
    -------
    One summary for each of the H heads.

    Raises
    ------
    ValueError
        If the shapes do not fit, if all sets are empty, or if a size is not in 1 to N.
    """
    if sizes.ndim != 2 or n_patterns.shape != sizes.shape[:1]:
        found = f"{tuple(sizes.shape)} and {tuple(n_patterns.shape)}"
        raise ValueError(f"sizes, n_patterns: expected (B, H) and (B,), found {found}")
    occupied = n_patterns > 0
    if not occupied.any():
        raise ValueError(f"n_patterns: expected a set that is not empty, found none among {len(n_patterns)}")
    sizes, n_patterns = sizes[occupied].cpu(), n_patterns[occupied].cpu()
    if (sizes < 1).any() or (sizes > n_patterns[:, None]).any():
        found = f"{int(sizes.min())} to {int(sizes.max())}"
        raise ValueError(f"sizes: expected 1 to the number of patterns of the set, found {found}")
    return [_summarise_head(head, column, n_patterns) for head, column in enumerate(sizes.T, start=1)]


def _summarise_head(head: int, sizes: Tensor, n_patterns: Tensor) -> HeadSummary:
    quartiles = torch.quantile(sizes.double(), torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
    # the limits 1 / 2, 1 / 8 and 1 / 32 are powers of 2, so rounding cannot move a median across them
    median_fraction = statistics.median((sizes.double() / n_patterns).tolist())
    return HeadSummary(
        head=head,
        median_size=quartiles[1],
        lower_quartile=quartiles[0],
        upper_quartile=quartiles[2],
        median_fraction=median_fraction,
        operating_class=operating_class(median_fraction, 1),
    )
