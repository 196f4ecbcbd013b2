"""The layers `Hopfield` and `HopfieldLayer` (paper lines 670-915, 7124-7470); the third is in `pooling.py`.

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

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from deeprc.hopfield.association import Association
from deeprc.hopfield.maps import (
    Normalisation,
    Values,
    arranged,
    dimension_of_heads,
    heads_together,
    key_map,
    merged_mask,
    normalised_together,
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


__all__ = ["Hopfield", "HopfieldLayer"]


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
        if values == "associated" and raw_value_dim is not None:
            raise ValueError("raw_value_dim: expected None with values='associated'")
        raw_value_dim = stored_dim if raw_value_dim is None else raw_value_dim
        self.map_values = value_map(raw_value_dim, n_heads, key_dim, value_dim, values, bias, normalisation)
        self.association = Association(n_heads, key_dim, **dynamics)
        pooled = n_heads * (key_dim if self.map_values is None else self.map_values.head_dim)
        self.output = output_map(pooled, output_dim, state_dim, project_output, bias)

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
            sets are searched for the same states: the result is (B, S, output_dim). Without `stored`, one of them is
            that of both. One update of common states is one pass over all patterns; anything else takes one set after
            the other.
        """
        if stored is None:
            offsets = state_offsets if offsets is None else offsets
            state_offsets = offsets
        if values is not None and self.map_values is None:
            raise ValueError("values: expected None with values='associated', which averages the stored patterns")
        batched = state.ndim > 2
        state = arranged(state, self.batch_first)
        stored = state if stored is None else arranged(stored, self.batch_first)
        values = stored if values is None else arranged(values, self.batch_first)
        query, key, *mapped = self._mapped(state, stored, *([] if self.map_values is None else [values]))
        mask = merged_mask(stored_padding_mask, association_mask, self.n_heads, batched=batched)
        value = mapped[0] if mapped else key
        result = self.association(query, key, value, mask=mask, offsets=offsets, state_offsets=state_offsets)
        return arranged(self.output(heads_together(result)), self.batch_first or offsets is not None)

    def association_weights(
        self,
        state: Tensor,
        stored: Tensor | None = None,
        *,
        stored_padding_mask: Tensor | None = None,
        association_mask: Tensor | None = None,
    ) -> Tensor:
        """Return how much of each stored pattern each state takes in its last update, (..., H, S, N)."""
        mask = merged_mask(stored_padding_mask, association_mask, self.n_heads, batched=state.ndim > 2)
        state = arranged(state, self.batch_first)
        query, key = self._mapped(state, state if stored is None else arranged(stored, self.batch_first))
        return self.association.weights(query, key, mask)

    def _mapped(self, state: Tensor, *others: Tensor) -> list[Tensor]:
        """Map the states, the stored patterns and the values, as many of them as are given, for all heads."""
        maps = [each for each in (self.map_states, self.map_stored, self.map_values) if each is not None]
        pairs = list(zip(maps, (state, *others), strict=False))
        ready = normalised_together(*pairs)
        query, *mapped = (each.mapped(patterns) for (each, _), patterns in zip(pairs, ready, strict=True))
        return [query.expand(*query.shape[:-3], self.n_heads, *query.shape[-2:]), *mapped]


class HopfieldLayer(nn.Module):
    """Associate the input with static stored patterns (paper lines 846-893).

    The stored patterns, `stored` (N, stored_dim), are a learned matrix: the layer is then like a fully connected one
    of N hidden neurons with a softmax. Or they are a reference set whose `targets` (N, target_dim) are averaged; see
    `filled`.

    Parameters
    ----------
    state_dim, stored_dim
        Of the raw state patterns and of the raw stored ones.
    n_stored
        N.
    target_dim
        Of targets that are averaged in the place of the stored patterns; they begin as 0. None: no targets.
    learn_stored, learn_targets
        Whether training changes the stored patterns, and the targets.
    options
        All other options of `Hopfield`; with targets, not those of values.
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
        """Fill the memory with a reference set, so that the result is an average of the targets (lines 866-886).

        Each state gives the average of the targets, weighted by how similar the state is to their patterns. With a
        large β this is the target of the nearest pattern, with a smaller one a kernel average over the neighbourhood,
        like k nearest neighbours. With learned targets, and patterns that are not, it is a kernel machine, like a
        support vector machine; with few learned patterns, prototypes, it is like learning vector quantization. The
        layer has the patterns' precision.

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
