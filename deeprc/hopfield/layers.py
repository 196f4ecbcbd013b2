"""The three Hopfield layers (paper lines 670-915, 7124-7470).

| layer | state patterns | stored patterns |
|---|---|---|
| `Hopfield` | input | input |
| `HopfieldPooling` | learned | input |
| `HopfieldLayer` | input | learned, or a reference set |

A set is (S, d) or (N, d), a batch of sets (B, S, d), or (S, B, d) with `batch_first=False`. Sets of different sizes are
either padded, with a mask, or given end to end, (N, d), with the offsets of each.
Letters: S state and N stored patterns, B sets, H heads, d_k and d_v dimensions of each head's keys and values.
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
    arranged,
    dimension_of_heads,
    heads_together,
    key_map,
    merged_mask,
    output_map,
    value_map,
)

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from deeprc.hopfield.association import Dynamics

    class HopfieldOptions(Dynamics, total=False):
        """Options of `Hopfield` that `HopfieldLayer` hands on."""

        raw_value_dim: int | None
        n_heads: int
        key_dim: int | None
        value_dim: int | None
        output_dim: int | None
        project_states: bool
        project_stored: bool
        values: Values
        project_output: bool
        normalisation: Normalisation
        bias: bool
        batch_first: bool


__all__ = ["Hopfield", "HopfieldLayer", "HopfieldPooling"]


class Hopfield(nn.Module):
    """Associate two sets: Z = softmax(β R W_Q W_Kᵀ Yᵀ) Y W_V, for each head (paper lines 643-669, 7205-7262).

    Parameters
    ----------
    state_dim, stored_dim, raw_value_dim
        Of the raw state patterns R, the raw stored patterns Y, and what is projected if that is not Y. The second is by
        default the first, the third the second.
    n_heads
        H.
    key_dim
        d_k, the dimension of the associative space of each head, which sets the storage capacity; by default the heads
        share `state_dim`.
    value_dim
        d_v, the dimension of each head's values; by default d_k.
    output_dim
        Of the results; by default `state_dim`.
    project_states, project_stored
        Map the raw patterns into the associative space by W_Q and W_K. Patterns that are not mapped are the same for
        all heads, and have d_k dimensions already.
    values
        `projected`, `raw` or `associated`. Followed by the output's map, `associated` is the paper's
        Y W_K W_V, and with `project_output=False` the layer gives the retrieved states.
    project_output
        Map the results of all heads together into `output_dim` dimensions. Without, they are H d_v numbers.
    normalisation
        `inputs` normalises raw patterns that are mapped or compared (raw values stay as they are), `projected` the
        state and stored patterns in the associative space.
    bias
        Of all maps.
    batch_first
        Whether batches are (B, S, d) or (S, B, d).
    dynamics
        `beta`, `learn_beta`, `max_updates`, `tolerance`, `dropout`; see `Association`.
    """

    def __init__(
        self,
        state_dim: int,
        stored_dim: int | None = None,
        raw_value_dim: int | None = None,
        *,
        n_heads: int = 1,
        key_dim: int | None = None,
        value_dim: int | None = None,
        output_dim: int | None = None,
        project_states: bool = True,
        project_stored: bool = True,
        values: Values = "projected",
        project_output: bool = True,
        normalisation: Normalisation = "inputs",
        bias: bool = True,
        batch_first: bool = True,
        **dynamics: Unpack[Dynamics],
    ) -> None:
        super().__init__()
        stored_dim = state_dim if stored_dim is None else stored_dim
        if key_dim is None and not (project_states and project_stored):
            key_dim = stored_dim if not project_stored else state_dim
        key_dim = dimension_of_heads("key_dim", key_dim, state_dim, n_heads)
        self.n_heads = n_heads
        self.batch_first = batch_first
        self.map_states = key_map(state_dim, n_heads, key_dim, project_states, bias, normalisation)
        self.map_stored = key_map(stored_dim, n_heads, key_dim, project_stored, bias, normalisation)
        self.map_values = value_map(
            stored_dim if raw_value_dim is None else raw_value_dim,
            n_heads,
            key_dim if value_dim is None else value_dim,
            values,
            bias,
            normalisation,
        )
        self.association = Association(n_heads, key_dim, **dynamics)
        pooled = n_heads * (key_dim if self.map_values is None else self.map_values.head_dim)
        self.output = output_map(pooled, state_dim if output_dim is None else output_dim, project_output, bias)

    def forward(
        self,
        state: Tensor,
        stored: Tensor | None = None,
        values: Tensor | None = None,
        *,
        stored_padding_mask: Tensor | None = None,
        association_mask: Tensor | None = None,
        offsets: Tensor | None = None,
        state_offsets: Tensor | None = None,
    ) -> Tensor:
        """Return one result per state pattern, (..., S, output_dim).

        Parameters
        ----------
        state
            R, (..., S, state_dim).
        stored
            Y, (..., N, stored_dim); None associates the states with themselves.
        values
            What is projected, (..., N, raw_value_dim); None: the raw stored patterns.
        stored_padding_mask
            (..., N): True (or minus infinity) where a stored pattern is none.
        association_mask
            (S, N), or (B * H, S, N): True where a state must not see a stored pattern; or numbers that are added to
            the logits.
        offsets, state_offsets
            Each (B + 1,) int64: the sets of stored and of state patterns given end to end. With `offsets` alone, all
            sets are searched for the same states: the result is (B, S, output_dim). Without `stored`, give
            `state_offsets`: the stored sets are the states' sets.
        """
        if stored is None:
            stored, offsets = state, state_offsets if offsets is None else offsets
        query, key, value = self._patterns(state, stored, values)
        mask = merged_mask(stored_padding_mask, association_mask, self.n_heads)
        result = self.association(query, key, value, mask=mask, offsets=offsets, state_offsets=state_offsets)
        return arranged(self.output(heads_together(result)), self.batch_first)

    def association_weights(
        self,
        state: Tensor,
        stored: Tensor | None = None,
        *,
        stored_padding_mask: Tensor | None = None,
        association_mask: Tensor | None = None,
    ) -> Tensor:
        """Return how much of each stored pattern each state takes in its last update, (..., H, S, N)."""
        stored = state if stored is None else stored
        query, key = (arranged(patterns, self.batch_first) for patterns in (state, stored))
        mask = merged_mask(stored_padding_mask, association_mask, self.n_heads)
        return self.association.weights(self._states(query), self.map_stored(key), mask)

    def _patterns(self, state: Tensor, stored: Tensor, values: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        state, stored = arranged(state, self.batch_first), arranged(stored, self.batch_first)
        values = stored if values is None else arranged(values, self.batch_first)
        key = self.map_stored(stored)
        return self._states(state), key, key if self.map_values is None else self.map_values(values)

    def _states(self, state: Tensor) -> Tensor:
        query: Tensor = self.map_states(state)
        return query.expand(*query.shape[:-3], self.n_heads, *query.shape[-2:])


class HopfieldPooling(nn.Module):
    """Pool sets with static, learned state patterns: one result per query (paper lines 790-845, 7352-7374).

    As long as there is one update, the matrices W_K and W_V need not touch every stored pattern:
    ξᵀ (W_K y) = (W_Kᵀ ξ)ᵀ y, and the average of W_V y is W_V times the average of y. So the queries are mapped back
    into the raw space and one average is mapped forward, which gives the same result (up to rounding) with one
    pass over the raw patterns.

    Parameters
    ----------
    stored_dim, raw_value_dim
        Of the raw stored patterns Y, and of what is projected if that is not Y.
    n_queries
        S: how many results a set gives.
    n_heads, key_dim, value_dim, output_dim
        As in `Hopfield`, with `stored_dim` in the place of `state_dim`.
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
        key_dim = dimension_of_heads("key_dim", key_dim, stored_dim, n_heads)
        self.n_heads = n_heads
        self.batch_first = batch_first
        self.association = Association(n_heads, key_dim, **dynamics)
        self.queries = nn.Parameter(torch.empty(n_heads, n_queries, key_dim))
        nn.init.normal_(self.queries)
        self.normalise_queries = normalisation == "projected"
        # a bias of the keys moves all logits of a query alike: one update does not see it
        sees_bias = values == "associated" or normalisation == "projected" or not self.association.takes_one_update
        self.map_stored = key_map(stored_dim, n_heads, key_dim, project_stored, bias and sees_bias, normalisation)
        value_dim = key_dim if value_dim is None else value_dim
        raw_value_dim = stored_dim if raw_value_dim is None else raw_value_dim
        self.map_values = value_map(raw_value_dim, n_heads, value_dim, values, bias, normalisation)
        pooled = n_heads * (key_dim if self.map_values is None else self.map_values.head_dim)
        self.output = output_map(pooled, stored_dim if output_dim is None else output_dim, project_output, bias)

    def scaled_queries(self) -> Tensor:
        """Return β ξ of each head, (H, S, d_k)."""
        return self._states() * self.association.beta[:, None, None]

    def forward(
        self,
        stored: Tensor,
        values: Tensor | None = None,
        *,
        stored_padding_mask: Tensor | None = None,
        association_mask: Tensor | None = None,
        offsets: Tensor | None = None,
    ) -> Tensor:
        """Return one result per query and set, (..., S, output_dim); the parameters are those of `Hopfield`.

        With `offsets`, the sets are given end to end, (N, stored_dim), and the result is (B, S, output_dim).
        """
        stored = arranged(stored, self.batch_first)
        values = stored if values is None else arranged(values, self.batch_first)
        if association_mask is None and self._pools_raw_patterns():
            result = self._pool_raw_patterns(stored, values, stored_padding_mask, offsets)
        else:
            key = self.map_stored(stored)
            value = key if self.map_values is None else self.map_values(values)
            mask = merged_mask(stored_padding_mask, association_mask, self.n_heads)
            result = self.association(self._states(), key, value, mask=mask, offsets=offsets)
        return arranged(self.output(heads_together(result)), self.batch_first)

    def association_weights(
        self, stored: Tensor, *, stored_padding_mask: Tensor | None = None, offsets: Tensor | None = None
    ) -> Tensor:
        """Return how much of each stored pattern each query takes in its last update, (..., H, S, N).

        With `offsets`, the weights of each set sum to 1.
        """
        key, states = self.map_stored(arranged(stored, self.batch_first)), self._states()
        if offsets is None:
            return self.association.weights(states, key, merged_mask(stored_padding_mask, None, self.n_heads))
        states = states.expand(self.n_heads, -1, -1)
        sets = [self.association.weights(states, key[:, a:b]) for a, b in pairwise(offsets.tolist())]
        return torch.cat(sets, dim=-1)

    def _states(self) -> Tensor:
        return functional.layer_norm(self.queries, self.queries.shape[-1:]) if self.normalise_queries else self.queries

    def _pools_raw_patterns(self) -> bool:
        """Say whether the maps may be left to the queries and the averages, and whether that is less work."""
        if not self.association.takes_one_update or self.map_stored.normalise_projected:
            return False
        if self.training and self.association.dropout:  # dropped weights no longer sum to 1, as a bias needs it
            return False
        if self.map_stored.linear is None and (self.map_values is None or self.map_values.linear is None):
            return True
        n_queries, raw = self.queries.shape[1], self.map_stored.raw_dim
        mapped = self.map_stored.head_dim + (self.map_values or self.map_stored).head_dim
        return 2 * n_queries * raw <= mapped * (raw + n_queries)

    def _pool_raw_patterns(
        self, stored: Tensor, values: Tensor, padding: Tensor | None, offsets: Tensor | None
    ) -> Tensor:
        """Map the queries back, average raw patterns once, and map the averages: (..., H, S, d_v)."""
        H, S, _ = self.queries.shape
        states = self.scaled_queries()
        if self.map_stored.linear is not None:
            states = states @ self.map_stored.per_head()[0]  # (H, S, d_k) @ (H, d_k, d_y)
        stored = self.map_stored.normalised(stored)
        map_values = self.map_stored if self.map_values is None else self.map_values
        values = stored if self.map_values is None else map_values.normalised(values)
        pooled = associate(
            states.reshape(1, H * S, -1),  # all heads look at the same patterns
            stored[..., None, :, :],
            values[..., None, :, :],
            beta=1.0,
            mask=None if padding is None else padding[..., None, None, :],
            offsets=offsets,
        ).reshape(*stored.shape[:-2], *(() if offsets is None else (len(offsets) - 1,)), H, S, values.shape[-1])
        if map_values.linear is None:
            return pooled
        weight, bias = map_values.per_head()
        result = pooled @ weight.mT  # (..., H, S, raw) @ (H, raw, d_v)
        if bias is None:
            return result
        return result + bias * _has_patterns(stored, padding, offsets)[..., None, None, None]


class HopfieldLayer(nn.Module):
    """Associate the input with static stored patterns (paper lines 846-893).

    The stored patterns, `stored` (N, stored_dim), are a learned matrix: the layer is then like a fully connected one
    of N hidden neurons with a softmax. Or they are a reference set whose `targets` are averaged; see `filled`.

    Parameters
    ----------
    state_dim, stored_dim
        Of the raw state patterns and of the raw stored ones.
    n_stored
        N.
    learn_stored
        Whether training changes the stored patterns.
    options
        All other options of `Hopfield`.
    """

    def __init__(
        self,
        state_dim: int,
        stored_dim: int | None = None,
        *,
        n_stored: int,
        learn_stored: bool = True,
        **options: Unpack[HopfieldOptions],
    ) -> None:
        super().__init__()
        self.hopfield = Hopfield(state_dim, stored_dim, **options)
        self.stored = nn.Parameter(torch.empty(n_stored, state_dim if stored_dim is None else stored_dim))
        self.stored.requires_grad_(learn_stored)
        nn.init.normal_(self.stored)
        self.targets: nn.Parameter | None = None

    @classmethod
    def filled(
        cls,
        patterns: Tensor,
        targets: Tensor,
        *,
        learn_stored: bool = False,
        learn_targets: bool = False,
        project: bool = False,
        key_dim: int | None = None,
        normalisation: Normalisation = "inputs",
        **dynamics: Unpack[Dynamics],
    ) -> Self:
        """Fill the memory with a reference set, so that the result is an average of the targets (lines 866-886).

        Each state gives the average of the targets, weighted by how similar the state is to their patterns, and is of
        the patterns' precision. With a
        large β this is the target of the nearest pattern, with a smaller one a kernel average over the neighbourhood,
        like k nearest neighbours. With learned targets, and patterns that are not, it is a kernel machine, like a
        support vector machine; with few learned patterns, prototypes, it is like learning vector quantization.

        Parameters
        ----------
        patterns
            (N, d): the raw stored patterns. States are (..., S, d).
        targets
            (N, T): one-hot classes, numbers, or anything to be averaged, in the precision of the patterns.
        learn_stored, learn_targets
            Whether training changes them.
        project
            Learn the similarity too: maps into an associative space of `key_dim` dimensions, which start alike for
            states and stored patterns. Without, patterns are compared as they are.
        normalisation, dynamics
            As in `Hopfield`. `inputs` or `projected` give all patterns the same norm, so that the most similar
            pattern is the nearest one among normalised ones: the one of highest correlation. The mean and the spread
            of a pattern then count for nothing; docs/hopfield.md shows how to compare by distance instead.
        """
        if targets.ndim != 2 or len(patterns) != len(targets):
            expected = f"expected one for each of {len(patterns)} patterns, ({len(patterns)}, T)"
            raise ValueError(f"targets: {expected}, found {tuple(targets.shape)}")
        if key_dim is not None and not project:
            raise ValueError("key_dim: patterns have an associative space of their own only with project=True")
        layer = cls(
            patterns.shape[1],
            n_heads=1,
            n_stored=len(patterns),
            learn_stored=learn_stored,
            raw_value_dim=targets.shape[1],
            key_dim=key_dim,
            project_states=project,
            project_stored=project,
            values="raw",
            project_output=False,
            normalisation=normalisation,
            **dynamics,
        ).to(patterns.device, patterns.dtype)
        layer.stored.data.copy_(patterns)
        layer.targets = nn.Parameter(targets.detach().to(patterns, copy=True), requires_grad=learn_targets)
        layer.hopfield.map_stored.load_state_dict(layer.hopfield.map_states.state_dict())
        return layer

    def forward(self, state: Tensor, *, association_mask: Tensor | None = None) -> Tensor:
        """Return one result per state: (..., S, state_dim) gives (..., S, output_dim), or the targets' dimension.

        The mask is that of `Hopfield`. Where states are stored themselves, as in training, `torch.eye(N, dtype=bool)`
        lets none find itself.
        """
        result: Tensor = self.hopfield(state, *self._memory(state), association_mask=association_mask)
        return result

    def association_weights(self, state: Tensor, *, association_mask: Tensor | None = None) -> Tensor:
        """Return how much of each stored pattern each state takes in its last update, (..., H, S, N)."""
        return self.hopfield.association_weights(state, self._memory(state)[0], association_mask=association_mask)

    def _memory(self, state: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return stored patterns and targets with the dimensions of a batch, if the states have them."""
        if state.ndim < 3:
            return self.stored, self.targets
        at = 0 if self.hopfield.batch_first else 1
        return self.stored.unsqueeze(at), None if self.targets is None else self.targets.unsqueeze(at)


def _has_patterns(stored: Tensor, padding: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Say which sets have at least one pattern: (B,), or the leading dimensions of `stored`."""
    if offsets is not None:
        return offsets[1:] > offsets[:-1]
    if padding is not None:
        return ~(padding if padding.dtype == torch.bool else padding == -torch.inf).all(dim=-1)
    return torch.full((), stored.shape[-2] > 0, dtype=torch.bool, device=stored.device)
