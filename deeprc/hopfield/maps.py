"""Maps of patterns into the associative space and out of it, with the order of dimensions there.

Letters: N stored and S state patterns, B sets, H heads, d_k and d_v dimensions of each head's keys and values.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from deeprc.hopfield.functional import check_mask

__all__ = [
    "Normalisation",
    "PatternMap",
    "Values",
    "choose_head_dim",
    "make_key_map",
    "make_output_map",
    "make_value_map",
    "merge_heads",
    "merge_masks",
    "normalise_all",
    "swap_batch_first",
]

Normalisation = Literal["inputs", "projected", "none"]
"""Where patterns are scaled to mean 0 and variance 1 (paper lines 7393-7401): before the map into the associative space
(`inputs`), after it (`projected`), or not at all (`none`)."""

Values = Literal["projected", "raw", "associated"]
"""Values that are averaged.

`projected`: the raw patterns, mapped by W_V as in a transformer. `raw`: the raw patterns, the same for all heads.
`associated`: the stored patterns in the associative space, so that the result is the retrieved state.
"""


class PatternMap(nn.Module):
    """A map of raw patterns into the space of each head: (..., N, dim) gives (..., H, N, head_dim).

    Parameters
    ----------
    dim
        Dimension of the raw patterns.
    n_heads
        Number of heads, H.
    head_dim
        Dimension of the space of each head.
    project
        Whether to map by one matrix per head, W_Q, W_K or W_V. If not, all heads share the raw patterns: H is 1 in the
        result, and `head_dim` must be `dim`.
    bias
        Whether to add a learned vector after the matrix.
    normalise_inputs
        Whether to scale every raw pattern to mean 0 and variance 1 before the map. This has no learned parameters,
        because the matrices and β can scale.
    normalise_projected
        Whether to do the same after the map, in the space of each head.

    Raises
    ------
    ValueError
        If patterns are not projected and `head_dim` is not `dim`.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        head_dim: int,
        *,
        project: bool = True,
        bias: bool = True,
        normalise_inputs: bool = False,
        normalise_projected: bool = False,
    ) -> None:
        super().__init__()
        if not project and head_dim != dim:
            raise ValueError(f"patterns that are not projected keep their {dim} dimensions; expected {head_dim}")
        self.n_heads = n_heads if project else 1
        self.raw_dim = dim
        self.head_dim = head_dim
        self.normalise_inputs = normalise_inputs
        self.normalise_projected = normalise_projected
        self.linear = nn.Linear(dim, n_heads * head_dim, bias=bias) if project else None
        if self.linear is not None:
            nn.init.xavier_uniform_(self.linear.weight)
            if bias:
                nn.init.zeros_(self.linear.bias)

    def check(self, raw: Tensor) -> None:
        """Raise ValueError unless raw patterns are (..., N, dim)."""
        if raw.ndim < 2 or raw.shape[-1] != self.raw_dim:
            expected = f"expected patterns of {self.raw_dim} dimensions, (..., N, {self.raw_dim})"
            raise ValueError(f"{expected}, found {tuple(raw.shape)}")

    def normalise(self, raw: Tensor) -> Tensor:
        """Scale raw patterns, (..., N, dim), if `normalise_inputs` is set; ValueError if the dimension does not fit."""
        self.check(raw)
        return functional.layer_norm(raw, raw.shape[-1:]) if self.normalise_inputs else raw

    def forward(self, raw: Tensor) -> Tensor:
        """Map (..., N, dim) to (..., H, N, head_dim)."""
        return self.map_normalised(self.normalise(raw))

    def map_normalised(self, patterns: Tensor) -> Tensor:
        """Map patterns that `normalise` returned, (..., N, dim), to (..., H, N, head_dim)."""
        if self.linear is not None:
            patterns = self.linear(patterns)
        patterns = patterns.unflatten(-1, (self.n_heads, self.head_dim)).transpose(-2, -3)  # (..., H, N, head_dim)
        return functional.layer_norm(patterns, patterns.shape[-1:]) if self.normalise_projected else patterns

    def head_matrices(self) -> tuple[Tensor, Tensor | None]:
        """Return the matrix of each head, (H, head_dim, dim), and its bias, (H, 1, head_dim) or None."""
        assert self.linear is not None
        weight = self.linear.weight.unflatten(0, (self.n_heads, self.head_dim))
        bias = self.linear.bias
        return weight, None if bias is None else bias.unflatten(0, (self.n_heads, 1, self.head_dim))


def make_key_map(
    dim: int, n_heads: int, key_dim: int, *, project: bool, bias: bool, normalisation: Normalisation
) -> PatternMap:
    """Build the map into the associative space."""
    _check_choice("normalisation", normalisation, get_args(Normalisation))
    return PatternMap(
        dim,
        n_heads,
        key_dim,
        project=project,
        bias=bias,
        normalise_inputs=normalisation == "inputs",
        normalise_projected=normalisation == "projected",
    )


def make_value_map(
    stored_dim: int,
    n_heads: int,
    key_dim: int,
    *,
    raw_value_dim: int | None,
    value_dim: int | None,
    values: Values,
    bias: bool,
    normalisation: Normalisation,
) -> PatternMap | None:
    """Build the map of the values; None if the stored patterns in the associative space are averaged."""
    if values == "associated" and raw_value_dim is not None:
        raise ValueError("raw_value_dim: expected None with values='associated'")
    dim = stored_dim if raw_value_dim is None else raw_value_dim
    _check_choice("values", values, get_args(Values))
    if values != "projected" and value_dim is not None:
        raise ValueError(f"value_dim: expected None, since values={values!r} have their own dimension")
    if values == "associated":
        return None
    if values == "raw":
        return PatternMap(dim, n_heads, dim, project=False)
    head_dim = key_dim if value_dim is None else value_dim
    return PatternMap(dim, n_heads, head_dim, bias=bias, normalise_inputs=normalisation == "inputs")


def make_output_map(pooled_dim: int, output_dim: int | None, default: int, *, project: bool, bias: bool) -> nn.Module:
    """Build the map of the results of all heads, side by side, into the output."""
    if not project:
        if output_dim is not None:
            raise ValueError("output_dim: expected None with project_output=False")
        return nn.Identity()
    layer = nn.Linear(pooled_dim, default if output_dim is None else output_dim, bias=bias)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def swap_batch_first(patterns: Tensor, batch_first: bool) -> Tensor:
    """Swap the first two dimensions of a batch, unless it is `batch_first` already or no batch."""
    return patterns if batch_first or patterns.ndim < 3 else patterns.transpose(0, 1)


def merge_heads(result: Tensor) -> Tensor:
    """Put the results of all heads side by side: (..., H, S, d_v) to (..., S, H * d_v)."""
    return result.transpose(-2, -3).flatten(-2)  # (..., H, S, d_v) -> (..., S, H * d_v)


def normalise_all(*pairs: tuple[PatternMap, Tensor]) -> list[Tensor]:
    """Normalise the raw patterns of each pair by its map; equal work is done once."""
    results: list[Tensor] = []
    for i, (pattern_map, raw) in enumerate(pairs):
        pattern_map.check(raw)  # also if the result of another map, perhaps of another dimension, is used again
        result = None
        for (other_map, other), known in zip(pairs[:i], results, strict=True):
            if other is raw and other_map.normalise_inputs == pattern_map.normalise_inputs:
                result = known  # a search by `is`: torch.compile of PyTorch 2.5 knows no `id`
        results.append(pattern_map.normalise(raw) if result is None else result)
    return results


def choose_head_dim(name: str, given: int | None, total: int, n_heads: int) -> int:
    """Return the dimension of each head: the given one, or else an equal part of the total.

    Raises
    ------
    ValueError
        If heads cannot share the total equally, or a number is below 1. The message has `name`, the name of the option.
    """
    if n_heads < 1 or (given is not None and given < 1):
        raise ValueError(f"n_heads, {name}: expected whole numbers of at least 1, found {n_heads} and {given}")
    if given is None and total % n_heads:
        raise ValueError(f"{name}: {n_heads} heads cannot share {total} dimensions; expected it to be given")
    return total // n_heads if given is None else given


def merge_masks(
    padding: Tensor | None, association: Tensor | None, n_heads: int, *, batched: bool = True
) -> Tensor | None:
    """Merge a padding mask (..., N) with an association mask into one that fits (..., H, S, N).

    The association mask is (S, N) for all sets, or (B * H, S, N) as in `torch.nn.MultiheadAttention`, or any mask of
    four dimensions that broadcasts.
    """
    for mask in (padding, association):
        if mask is not None:
            check_mask(mask)
    if association is not None and association.ndim == 3 and batched:
        association = association.unflatten(
            0, (-1, n_heads)
        )  # (B * H, S, N) -> (B, H, S, N); unbatched it is (H, S, N)
    if padding is None or association is None:
        return association if padding is None else padding[..., None, None, :]
    padding = padding[..., None, None, :]
    if padding.dtype == torch.bool and association.dtype == torch.bool:
        return padding | association
    return _to_numbers(padding) + _to_numbers(association)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}: expected {', '.join(choices[:-1])} or {choices[-1]}, found {value!r}")


def _to_numbers(mask: Tensor) -> Tensor:
    return (
        torch.zeros(mask.shape, device=mask.device).masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask
    )
