"""The layer `HopfieldPooling`: one result per learned query and set (paper lines 790-845, 7352-7374).

Letters: S queries, N stored patterns, B sets, H heads, d_k and d_v dimensions of each head's keys and values.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from deeprc.hopfield.association import Association
from deeprc.hopfield.functional import associate
from deeprc.hopfield.maps import (
    Normalisation,
    Values,
    choose_head_dim,
    make_key_map,
    make_output_map,
    make_value_map,
    merge_heads,
    merge_masks,
    normalise_all,
    swap_batch_first,
)
from deeprc.hopfield.segments import check_offsets

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from deeprc.hopfield.association import Dynamics

__all__ = ["HopfieldPooling"]


class HopfieldPooling(nn.Module):
    """Pool sets with learned state patterns, the queries: one result per query (paper lines 790-845, 7352-7374).

    With one update, the matrices W_K and W_V need not be multiplied with every stored pattern:
    ξᵀ (W_K y) = (W_Kᵀ ξ)ᵀ y, and the average of W_V y is W_V times the average of y. So the layer maps the queries back
    into the raw space, averages raw patterns, and maps the average. This gives the same result, up to rounding, with
    one pass over the raw patterns.

    Parameters
    ----------
    stored_dim, raw_value_dim
        Dimensions of the raw stored patterns Y, and of the raw values if these are not Y.
    n_queries
        Number of results per set, S.
    n_heads, key_dim, value_dim, output_dim
        As in `Hopfield`, with defaults from `stored_dim` instead of `state_dim`.
    project_stored, values, project_output, normalisation, bias, batch_first, dynamics
        As in `Hopfield`.
    """

    def __init__(
        self,
        stored_dim: int,
        raw_value_dim: int | None = None,
        *,
        n_queries: int = 1,
        n_heads: int = 1,
        key_dim: int | None = None,
        value_dim: int | None = None,
        output_dim: int | None = None,
        project_stored: bool = True,
        values: Values = "projected",
        project_output: bool = True,
        normalisation: Normalisation = "inputs",
        bias: bool = True,
        batch_first: bool = True,
        **dynamics: Unpack[Dynamics],
    ) -> None:
        super().__init__()
        if key_dim is None and not project_stored:
            key_dim = stored_dim
        key_dim = choose_head_dim("key_dim", key_dim, stored_dim, n_heads)
        self.n_heads = n_heads
        self.batch_first = batch_first
        self.association = Association(n_heads, key_dim, **dynamics)
        self.queries = nn.Parameter(torch.empty(n_heads, n_queries, key_dim))
        nn.init.normal_(self.queries)
        self.normalise_queries = normalisation == "projected"
        # a bias of the keys adds the same number to all logits of a query, which one update does not change
        needs_bias = values == "associated" or normalisation == "projected" or not self.association.takes_one_update
        self.map_stored = make_key_map(
            stored_dim,
            n_heads,
            key_dim,
            project=project_stored,
            bias=bias and needs_bias,
            normalisation=normalisation,
        )
        self.map_values = make_value_map(
            stored_dim,
            n_heads,
            key_dim,
            raw_value_dim=raw_value_dim,
            value_dim=value_dim,
            values=values,
            bias=bias,
            normalisation=normalisation,
        )
        pooled_dim = n_heads * (key_dim if self.map_values is None else self.map_values.head_dim)
        self.output = make_output_map(pooled_dim, output_dim, stored_dim, project=project_output, bias=bias)

    def scaled_queries(self) -> Tensor:
        """Return the queries times β, β ξ of each head, (H, S, d_k)."""
        return self._get_states() * self.association.beta[:, None, None]

    def forward(
        self,
        stored: Tensor,
        values: Tensor | None = None,
        *,
        stored_padding_mask: Tensor | None = None,
        association_mask: Tensor | None = None,
        offsets: Tensor | None = None,
    ) -> Tensor:
        """Return one result per query and set, (..., S, output_dim); parameters and errors as in `Hopfield`.

        With `offsets`, the sets are given end to end, (N, stored_dim), and the result is (B, S, output_dim).
        """
        if values is not None and self.map_values is None:
            raise ValueError("values: expected None with values='associated', which averages the stored patterns")
        mask = merge_masks(stored_padding_mask, association_mask, self.n_heads, batched=stored.ndim > 2)
        if mask is not None and offsets is not None:
            raise ValueError("masks: expected none with offsets; leave the patterns themselves out of the sets")
        stored = swap_batch_first(stored, self.batch_first)
        values = stored if values is None else swap_batch_first(values, self.batch_first)
        map_values = self.map_stored if self.map_values is None else self.map_values
        stored, values = normalise_all((self.map_stored, stored), (map_values, values))
        if association_mask is None and self._can_pool_raw_patterns():
            result = self._pool_raw_patterns(stored, values, stored_padding_mask, offsets)
        else:
            key = self.map_stored.map_normalised(stored)
            value = key if self.map_values is None else self.map_values.map_normalised(values)
            result = self.association(self._get_states(), key, value, mask=mask, offsets=offsets)
        return swap_batch_first(self.output(merge_heads(result)), self.batch_first or offsets is not None)

    def association_weights(
        self, stored: Tensor, *, stored_padding_mask: Tensor | None = None, offsets: Tensor | None = None
    ) -> Tensor:
        """Return the association weights of each query in the last update, (..., H, S, N).

        With `offsets`, the weights are (H, S, N). They sum to 1 in each set, and are 0 beyond the last offset.
        """
        key, states = self.map_stored(swap_batch_first(stored, self.batch_first)), self._get_states()
        mask = merge_masks(stored_padding_mask, None, self.n_heads)
        if offsets is None:
            return self.association.compute_weights(states, key, mask)
        if mask is not None:
            raise ValueError("masks: expected none with offsets; leave the patterns themselves out of the sets")
        check_offsets(offsets, len(stored))
        bounds = offsets.tolist()
        sets = [self.association.compute_weights(states, key[:, first:stop]) for first, stop in pairwise(bounds)]
        beyond = states.new_zeros(*states.shape[:2], len(stored) - bounds[-1])
        return torch.cat([*sets, beyond], dim=-1)

    def _get_states(self) -> Tensor:
        """Return the queries as state patterns in the associative space, (H, S, d_k)."""
        return functional.layer_norm(self.queries, self.queries.shape[-1:]) if self.normalise_queries else self.queries

    def _can_pool_raw_patterns(self) -> bool:
        """Return whether raw patterns can be averaged before the map of the values, and whether this is less work."""
        if not self.association.takes_one_update or self.map_stored.normalise_projected:
            return False
        if self.training and self.association.dropout:  # weights do not sum to 1: bias would be wrong
            return False
        if self.map_stored.linear is None and (self.map_values is None or self.map_values.linear is None):
            return True
        n_queries, raw_dim = self.queries.shape[1], self.map_stored.raw_dim
        mapped_dim = self.map_stored.head_dim + (self.map_values or self.map_stored).head_dim
        return 2 * n_queries * raw_dim <= mapped_dim * (raw_dim + n_queries)  # multiplications per pattern and head

    def _pool_raw_patterns(
        self, stored: Tensor, values: Tensor, padding: Tensor | None, offsets: Tensor | None
    ) -> Tensor:
        """Map the queries back, average the normalised raw patterns, and map the averages; return (..., H, S, d_v)."""
        H, S, _ = self.queries.shape
        states = self.scaled_queries()
        if self.map_stored.linear is not None:
            states = states @ self.map_stored.head_matrices()[0]  # (H, S, d_k) @ (H, d_k, d_y)
        map_values = self.map_stored if self.map_values is None else self.map_values
        pooled = associate(
            states.reshape(1, H * S, -1),  # all heads share the raw patterns
            stored[..., None, :, :],
            values[..., None, :, :],
            beta=1.0,
            mask=None if padding is None else padding[..., None, None, :],
            offsets=offsets,
        ).reshape(*stored.shape[:-2], *(() if offsets is None else (len(offsets) - 1,)), H, S, values.shape[-1])
        if map_values.linear is None:
            return pooled
        weight, bias = map_values.head_matrices()
        result = torch.einsum("...hsr,hdr->...hsd", pooled, weight)  # `@` would copy the matrices for each set
        if bias is None:
            return result
        return result + bias * _has_patterns(stored, padding, offsets)[..., None, None, None]


def _has_patterns(stored: Tensor, padding: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Return which sets have at least one pattern: (B,) bool, or in the shape of the leading dimensions of `stored`."""
    if offsets is not None:
        return offsets[1:] > offsets[:-1]
    if padding is not None:
        return ~(padding if padding.dtype == torch.bool else padding == -torch.inf).all(dim=-1)
    return torch.full((), stored.shape[-2] > 0, dtype=torch.bool, device=stored.device)
