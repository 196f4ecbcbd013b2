"""In how many patterns a head's metastable states consist, and the class it mainly operates in (paper lines 935-955).

Letters: N patterns of all sets end to end, B sets, H heads, k the size of a metastable state.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["HeadSummary", "metastable_sizes", "operating_class", "segment_metastable_sizes", "summarise_heads"]

_ROUNDING = 1e-6  # relative; the sum of ten weights of 0.1 but one is below 0.9 in float64
_LARGEST_DEFECT = 0.01  # of the sum of weights from 1: bfloat16 stays below it, weights with dropout do not


class HeadSummary(NamedTuple):
    """How one head operates over many sets, from `summarise_heads`.

    Attributes
    ----------
    head
        From 1.
    median_size, lower_quartile, upper_quartile
        Of the size k of the sets' metastable states, in patterns.
    median_fraction
        The median of k / N, N the patterns of the set.
    operating_class
        By that median: "I", "II", "III" or "IV", see the function of that name.
    """

    head: int
    median_size: float
    lower_quartile: float
    upper_quartile: float
    median_fraction: float
    operating_class: str


def metastable_sizes(weights: Tensor, *, mass: float = 0.90, dim: int = -1, overwrite: bool = False) -> Tensor:
    """Return the smallest k such that the k largest softmax values sum to at least `mass` (paper lines 941-944).

    Sums are taken in float64 and relative to the sum of all weights, which is 1 but for rounding. `mass` counts as
    reached when 1e-6 of it is missing, so ten weights of 0.1 give 9 at a mass of 0.9.

    Parameters
    ----------
    weights
        (..., N, ...), softmax values along `dim`.
    mass
        In (0, 1].
    dim
        The dimension of the patterns.
    overwrite
        The weights are not needed any more, and their memory may be used.

    Returns
    -------
    int64, of the shape of `weights` without `dim`; 0 where N = 0 or all weights are 0.

    Raises
    ------
    ValueError
        If `mass` is out of its range, or weights are negative or do not sum to 1 along `dim`.
    """
    if not 0 < mass <= 1:
        raise ValueError(f"mass: expected a number in (0, 1], found {mass}")
    weights = weights.detach()
    least = float(weights.min()) if weights.numel() else 0.0
    cumulative = _descending(weights, dim, overwrite).double().cumsum_(dim)
    if weights.numel() == 0:
        return cumulative.sum(dim).long()
    total = cumulative.select(dim, -1)
    defect = float(((total - 1).abs() * (total != 0)).max())  # a state whose patterns are all left out has weights of 0
    if not defect <= _LARGEST_DEFECT or least < 0:  # `not` also finds NaN
        found = f"sums from {float(total.min())} to {float(total.max())} and a minimum of {least}"
        raise ValueError(f"weights: expected none below 0 and sums of 1 along dimension {dim}, found {found}")
    threshold = mass * (1 - _ROUNDING) * total.unsqueeze(-1)
    below = torch.searchsorted(cumulative.movedim(dim, -1).contiguous(), threshold.contiguous()).squeeze(-1)
    return (below + 1) * (total != 0)


def _descending(values: Tensor, dim: int, overwrite: bool) -> Tensor:
    """Return sorted values; on the CPU without the places of all, which would take twice the memory."""
    if values.device.type != "cpu" or values.dtype != torch.float64:
        return values.sort(dim=dim, descending=True).values
    negative = values.neg_() if overwrite else values.neg()
    negative.numpy().sort(axis=dim)
    return negative.neg_()


def segment_metastable_sizes(weights: Tensor, offsets: Tensor, *, mass: float = 0.90) -> Tensor:
    """Return `metastable_sizes` of ragged sets: weights (N, H) and offsets (B + 1,) int64 give (B, H) int64.

    An empty set gives 0. Patterns beyond the last offset belong to no set.

    Raises
    ------
    ValueError
        As `metastable_sizes`, or if `weights` is not (N, H) or `offsets` does not rise from 0 to N at most.
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
    """Return the class that a head operates in, from the median size k of its metastable states among n patterns.

    Paper lines 945-951. "I", n / 2 < k: averages over a very large number of patterns. "II", n / 8 < k ≤ n / 2: a large
    number. "III", n / 32 < k ≤ n / 8: a medium one. "IV", k ≤ n / 32: a small one, or a single pattern.

    Raises
    ------
    ValueError
        Unless 0 ≤ k ≤ n and n is positive.
    """
    if not (n > 0 and 0 <= size <= n):
        raise ValueError(f"size: expected 0 to n, n more than 0, found {size} of n = {n}")
    for name, share in (("I", 2), ("II", 8), ("III", 32)):
        if share * size > n:
            return name
    return "IV"


def summarise_heads(sizes: Tensor, n_patterns: Tensor) -> list[HeadSummary]:
    """Summarise the metastable states of each head over sets.

    As sets differ in size, the class is that of the median of k / N. Where all sets are of one size, this is the
    paper's rule, by the median of k. Sets without patterns are left out.

    Parameters
    ----------
    sizes
        k of each set and head, (B, H), from `segment_metastable_sizes`.
    n_patterns
        N of each set, (B,).

    Returns
    -------
    A summary per head, H.

    Raises
    ------
    ValueError
        If the shapes do not fit, all sets are empty, or a size is not in 1 to N.
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
    # a median that is 1 / 2, 1 / 8 or 1 / 32 is not rounded over it, as these are powers of 2
    median_fraction = statistics.median((sizes.double() / n_patterns).tolist())
    return HeadSummary(
        head=head,
        median_size=quartiles[1],
        lower_quartile=quartiles[0],
        upper_quartile=quartiles[2],
        median_fraction=median_fraction,
        operating_class=operating_class(median_fraction, 1),
    )
