"""The layers `Hopfield` and `HopfieldLayer` (paper lines 670-915, 7124-7470); `HopfieldPooling` is in `pooling.py`.

| layer | state patterns | stored patterns |
|---|---|---|
| `Hopfield` | input | input |
| `HopfieldPooling` | learned | input |
| `HopfieldLayer` | input | learned, or a reference set |

A set is (S, d) or (N, d). A batch of sets is (B, S, d), or (S, B, d) with `batch_first=False`. Sets of different sizes
are either padded, with a mask, or given end to end, (N, d), with offsets that say where each begins.
Letters: S state patterns, N stored patterns, B sets, H heads, d_k and d_v dimensions of each head's keys and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from deeprc.hopfield.association import Association
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

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from deeprc.hopfield.association import Dynamics

    class HopfieldOptions(Dynamics, total=False):
        """Options of `Hopfield` that `HopfieldLayer` passes on."""

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


__all__ = ["Hopfield", "HopfieldLayer"]


class Hopfield(nn.Module):
    """Associate two sets: Z = softmax(β R W_Q W_Kᵀ Yᵀ) Y W_V, for each head (paper lines 643-669, 7205-7262).

    Parameters
    ----------
    state_dim, stored_dim, raw_value_dim
        Dimensions of the raw state patterns R, of the raw stored patterns Y, and of the raw values if these are not Y.
        `stored_dim` is by default `state_dim`, and `raw_value_dim` is by default `stored_dim`.
    n_heads
        Number of heads, H.
    key_dim
        Dimension of the associative space of each head, d_k. A larger one can store more patterns. By default
        `state_dim` is divided among the heads.
    value_dim
        Dimension of the values of each head, d_v; by default d_k.
    output_dim
        Dimension of the results; by default `state_dim`.
    project_states, project_stored
        Whether to map the raw patterns into the associative space, by W_Q and W_K. Patterns that are not mapped must
        have d_k dimensions, and all heads share them.
    values
        Values that are averaged: `projected`, `raw` or `associated`, see `Values`. `associated` with a map of the
        output is Y W_K W_V in the paper. `associated` with `project_output=False` gives the retrieved states.
    project_output
        Whether to map the results of all heads together into `output_dim` dimensions. If not, they are H d_v numbers.
    normalisation
        `inputs` scales raw patterns that are mapped or compared to mean 0 and variance 1; raw values stay as they are.
        `projected` scales the state patterns and stored patterns in the associative space. `none` scales nothing.
    bias
        Whether all maps have a bias.
    batch_first
        Whether batches are (B, S, d), not (S, B, d).
    dynamics
        `beta`, `learn_beta`, `max_updates`, `tolerance`, `dropout`; see `Association`.

    Raises
    ------
    ValueError
        If options contradict each other or dimensions do not fit.
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
        key_dim = choose_head_dim("key_dim", key_dim, state_dim, n_heads)
        self.n_heads = n_heads
        self.batch_first = batch_first
        self.map_states = make_key_map(
            state_dim, n_heads, key_dim, project=project_states, bias=bias, normalisation=normalisation
        )
        self.map_stored = make_key_map(
            stored_dim, n_heads, key_dim, project=project_stored, bias=bias, normalisation=normalisation
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
        self.association = Association(n_heads, key_dim, **dynamics)
        pooled_dim = n_heads * (key_dim if self.map_values is None else self.map_values.head_dim)
        self.output = make_output_map(pooled_dim, output_dim, state_dim, project=project_output, bias=bias)

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
            Raw state patterns R, (..., S, state_dim).
        stored
            Raw stored patterns Y, (..., N, stored_dim). None: the states are associated with themselves.
        values
            Raw values, (..., N, raw_value_dim). None: the raw stored patterns.
        stored_padding_mask
            (..., N): True, or minus infinity, where a stored pattern is padding.
        association_mask
            (S, N), or (B * H, S, N): True where a state must not be associated with a stored pattern; or numbers that
            are added to the logits.
        offsets, state_offsets
            Each (B + 1,) int64: where the sets of stored patterns and of state patterns begin if they are given end to
            end. With `offsets` alone, all sets share the states, and the result is (B, S, output_dim). Without
            `stored`, one of the two is enough. If all sets share the states and there is one update, one pass over the
            patterns handles all sets. Otherwise the sets are handled one after the other.

        Raises
        ------
        ValueError
            If the patterns, masks or offsets do not fit.
        """
        if stored is None:
            offsets = state_offsets = _join_offsets(offsets, state_offsets)
        if values is not None and self.map_values is None:
            raise ValueError("values: expected None with values='associated', which averages the stored patterns")
        batched = state.ndim > 2
        state = swap_batch_first(state, self.batch_first)
        stored = state if stored is None else swap_batch_first(stored, self.batch_first)
        values = stored if values is None else swap_batch_first(values, self.batch_first)
        query, key, value = self._map_all(state, stored, values)
        mask = merge_masks(stored_padding_mask, association_mask, self.n_heads, batched=batched)
        result = self.association(query, key, value, mask=mask, offsets=offsets, state_offsets=state_offsets)
        return swap_batch_first(self.output(merge_heads(result)), self.batch_first or offsets is not None)

    def association_weights(
        self,
        state: Tensor,
        stored: Tensor | None = None,
        *,
        stored_padding_mask: Tensor | None = None,
        association_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the association weights of the last update, (..., H, S, N); parameters as in `forward`."""
        mask = merge_masks(stored_padding_mask, association_mask, self.n_heads, batched=state.ndim > 2)
        state = swap_batch_first(state, self.batch_first)
        stored = state if stored is None else swap_batch_first(stored, self.batch_first)
        query, key, _ = self._map_all(state, stored, None)
        return self.association.compute_weights(query, key, mask)

    def _map_all(self, state: Tensor, stored: Tensor, values: Tensor | None) -> _MappedPatterns:
        """Return the patterns of all heads in the associative space, from raw patterns.

        The values are the keys if `values` is None, or if the stored patterns in the associative space are averaged.
        """
        maps_and_patterns = [(self.map_states, state), (self.map_stored, stored)]
        if values is not None and self.map_values is not None:
            maps_and_patterns.append((self.map_values, values))
        normalised = normalise_all(*maps_and_patterns)
        mapped = [
            pattern_map.map_normalised(patterns)
            for (pattern_map, _), patterns in zip(maps_and_patterns, normalised, strict=True)
        ]
        query, key, value = mapped[0], mapped[1], mapped[-1]
        query = query.expand(*query.shape[:-3], self.n_heads, *query.shape[-2:])
        return _MappedPatterns(query, key, value)


class _MappedPatterns(NamedTuple):
    """Queries, (..., H, S, d_k), keys, (..., H, N, d_k), and values, (..., H, N, d_v)."""

    query: Tensor
    key: Tensor
    value: Tensor


def _join_offsets(offsets: Tensor | None, state_offsets: Tensor | None) -> Tensor | None:
    """Return the offsets of sets that are associated with themselves, from one of the two, or from two equal ones.

    Like `check_offsets`, this compares values on the CPU only.

    Raises
    ------
    ValueError
        If both are given, and they differ.
    """
    if offsets is None or state_offsets is None:
        return state_offsets if offsets is None else offsets
    is_readable = offsets.device.type == state_offsets.device.type == "cpu" and not torch.compiler.is_compiling()
    if is_readable and not torch.equal(offsets, state_offsets):
        raise ValueError("state_offsets: expected those of offsets, because the states are associated with themselves")
    return offsets


class HopfieldLayer(nn.Module):
    """Associate the input with static stored patterns (paper lines 846-893).

    The stored patterns, `stored` (N, stored_dim), may be a learned matrix. Then the layer resembles a fully connected
    layer with N hidden neurons and a softmax. Or they are a reference set whose `targets` (N, target_dim) are averaged;
    see `filled`.

    Parameters
    ----------
    state_dim, stored_dim
        Dimensions of the raw state patterns and of the raw stored patterns.
    n_stored
        Number of stored patterns, N.
    target_dim
        Dimension of the targets, which are averaged instead of the stored patterns and start as 0. None: no targets.
    learn_stored, learn_targets
        Whether training changes the stored patterns, and the targets.
    options
        All other options of `Hopfield`. With targets, the options of values are not allowed.
    """

    def __init__(
        self,
        state_dim: int,
        stored_dim: int | None = None,
        *,
        n_stored: int,
        target_dim: int | None = None,
        learn_stored: bool = True,
        learn_targets: bool = True,
        **options: Unpack[HopfieldOptions],
    ) -> None:
        super().__init__()
        if target_dim is not None:
            options = {**options, "values": "raw", "raw_value_dim": target_dim}
        self.hopfield = Hopfield(state_dim, stored_dim, **options)
        self.stored = nn.Parameter(torch.empty(n_stored, state_dim if stored_dim is None else stored_dim))
        self.stored.requires_grad_(learn_stored)
        nn.init.normal_(self.stored)
        self.targets: nn.Parameter | None
        targets = None if target_dim is None else nn.Parameter(torch.zeros(n_stored, target_dim), learn_targets)
        self.register_parameter("targets", targets)

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
        """Return a layer that stores a reference set and averages its targets (paper lines 866-886).

        The result for a state is the average of the targets, weighted by the similarity of the state to the stored
        patterns. With a large β, this is the target of the nearest pattern. With a smaller β, it is a kernel average
        over the neighbourhood, like k nearest neighbours. If only the targets are learned, the layer is a kernel
        machine, like a support vector machine. If a few patterns are learned as prototypes, it is like learning vector
        quantization. The layer has the floating-point precision of the patterns.

        Parameters
        ----------
        patterns
            Raw stored patterns, (N, d). States are then (..., S, d).
        targets
            One-hot classes, or numbers to be averaged, (N, T), in the precision of the patterns.
        learn_stored, learn_targets
            Whether training changes the patterns, and the targets.
        project
            Whether to learn the similarity too, by maps into an associative space of `key_dim` dimensions. The maps of
            states and of stored patterns start equal. If False, patterns are compared as they are.
        normalisation, dynamics
            As in `Hopfield`. `inputs` and `projected` give all patterns the same norm, so that the most similar pattern
            is the one with the highest correlation. Then the mean and the spread of a pattern do not count.
            docs/hopfield.md shows how to compare by distance instead.

        Raises
        ------
        ValueError
            If the targets do not fit the patterns, or if `key_dim` is given without `project`.
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
            target_dim=targets.shape[1],
            learn_stored=learn_stored,
            learn_targets=learn_targets,
            key_dim=key_dim,
            project_states=project,
            project_stored=project,
            project_output=False,
            normalisation=normalisation,
            **dynamics,
        ).to(patterns.device, patterns.dtype)
        layer.stored.data.copy_(patterns)
        assert layer.targets is not None
        layer.targets.data.copy_(targets)
        layer.hopfield.map_stored.load_state_dict(layer.hopfield.map_states.state_dict())
        return layer

    def forward(self, state: Tensor, *, association_mask: Tensor | None = None) -> Tensor:
        """Return one result per state, (..., S, output_dim) or (..., S, target_dim), from (..., S, state_dim).

        The mask is that of `Hopfield`. If the states are the stored patterns, as in training, the mask
        `torch.eye(N, dtype=bool)` prevents that a state finds itself.
        """
        result: Tensor = self.hopfield(state, *self._get_memory(state), association_mask=association_mask)
        return result

    def association_weights(self, state: Tensor, *, association_mask: Tensor | None = None) -> Tensor:
        """Return the association weights of the last update, (..., H, S, N); parameters as in `forward`."""
        return self.hopfield.association_weights(state, self._get_memory(state)[0], association_mask=association_mask)

    def _get_memory(self, state: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the stored patterns and targets, with the dimension of a batch if the states have it."""
        if state.ndim < 3:
            return self.stored, self.targets
        dim = 0 if self.hopfield.batch_first else 1
        return self.stored.unsqueeze(dim), None if self.targets is None else self.targets.unsqueeze(dim)
