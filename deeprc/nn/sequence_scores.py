"""Scores of the sequences of a repertoire, outputs by their parts, and how those of several networks are combined.

`deeprc.nn.contributions` says what a contribution and a response are, and computes them.

Letters: N sequences of one repertoire, n selected ones, H heads, B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ATTENTION",
    "OutputParts",
    "SequenceScores",
    "UnitConversion",
    "average_head_weights",
    "average_max_head_logits",
    "combine_parts",
    "combine_scores",
]

ATTENTION = "attention"
"""Name in tables of the part of an output, or of a contribution, that comes through the attention."""


@dataclass(frozen=True)
class OutputParts:
    """Outputs of repertoires, and the part of them that comes through each branch.

    Attributes
    ----------
    outputs
        Outputs before their activation, (B, T).
    beside_attention
        Part of the outputs that comes through each branch beside the attention, by its name, (B, T); the rest comes
        through the attention.
    """

    outputs: NDArray[np.floating[Any]]
    beside_attention: Mapping[str, NDArray[np.floating[Any]]]

    @classmethod
    def stack(cls, parts: Sequence[OutputParts], n_outputs: int) -> OutputParts:
        """Join the outputs of single repertoires, (T,) each, by the same networks to those of several, (B, T)."""
        if not parts:
            return cls(np.zeros((0, n_outputs), np.float32), {})
        names = parts[0].beside_attention
        beside_attention = {name: np.stack([part.beside_attention[name] for part in parts]) for name in names}
        return cls(np.stack([part.outputs for part in parts]), beside_attention)

    @property
    def by_source(self) -> dict[str, NDArray[np.floating[Any]]]:
        """Parts of the outputs by source, (B, T) each: the attention, then each branch."""
        return _list_sources(self.outputs, self.beside_attention)


@dataclass(frozen=True)
class SequenceScores:
    """Attention, contribution and response of each sequence of a repertoire.

    Scores of several networks together have the heads of all networks, one network after the other.

    Attributes
    ----------
    repertoire_id
        Id of the repertoire that has the sequences.
    head_logits
        Attention logits of each head, (N, H) float32.
    head_weights
        Attention weights of each head in the prediction, (N, H) float64: the softmax over the sequences that the top
        fraction keeps, which sums to 1 per head; 0 for the others.
    contributions
        Amount that each sequence adds to the outputs before their activation, (N, T) float64. The sum over the
        sequences is `outputs`.
    responses
        Outputs that the network would have if all attention were on one sequence, (N, T) float64. Unlike contributions
        they hardly depend on the other sequences of the repertoire: only through the standard deviation of the
        features.
    outputs
        Outputs of the repertoire before their activation, (T,) float64.
    n_heads
        Number of heads of each network.
    beside_attention
        Part of the contributions that comes through each branch beside the attention, by its name, (N, T) float64; the
        rest comes through the attention.
    """

    repertoire_id: str
    head_logits: NDArray[np.float32]
    head_weights: NDArray[np.float64]
    contributions: NDArray[np.float64]
    responses: NDArray[np.float64]
    outputs: NDArray[np.float64]
    n_heads: tuple[int, ...]
    beside_attention: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.head_logits)

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Attention weight of each sequence, the mean over heads, (N,), which sums to 1; see `average_head_weights`."""
        return average_head_weights(self.head_weights, self.n_heads)

    @cached_property
    def logit(self) -> NDArray[np.float32]:
        """Highest logit over the heads of each network, averaged over networks, (N,).

        It can be compared between repertoires.
        """
        return average_max_head_logits(self.head_logits, self.n_heads)

    @property
    def output_parts(self) -> OutputParts:
        """Outputs, (T,), of the repertoire and their part through each branch, if all its sequences have scores."""
        return OutputParts(self.outputs, {name: part.sum(axis=0) for name, part in self.beside_attention.items()})

    @cached_property
    def by_source(self) -> dict[str, NDArray[np.float64]]:
        """Parts of the contributions by source, (N, T) each: the attention, then each branch."""
        return _list_sources(self.contributions, self.beside_attention)

    def take(self, rows: NDArray[np.int64]) -> SequenceScores:
        """Return the scores of some of the sequences, by their indices, (n,)."""
        return replace(
            self,
            head_logits=self.head_logits[rows],
            head_weights=self.head_weights[rows],
            contributions=self.contributions[rows],
            responses=self.responses[rows],
            beside_attention={name: part[rows] for name, part in self.beside_attention.items()},
        )

    @cached_property
    def head(self) -> NDArray[np.int64]:
        """Index of the head that attends most to each sequence, (N,), from 1."""
        return np.asarray(self.head_weights.argmax(axis=1) + 1) if len(self) else np.zeros(0, np.int64)


class UnitConversion(NamedTuple):
    """Conversion of the outputs of an ensemble's networks to common units: output * scale + shift.

    Attributes
    ----------
    scales, shifts
        Factor and summand of each output of each network, (number of networks, T) each.
    """

    scales: NDArray[np.floating[Any]]
    shifts: NDArray[np.floating[Any]]

    def to_float32(self) -> UnitConversion:
        """Return the same numbers with 32 bits, like the outputs of a network."""
        return UnitConversion(self.scales.astype(np.float32), self.shifts.astype(np.float32))


def combine_scores(scores: Sequence[SequenceScores], conversion: UnitConversion) -> SequenceScores:
    """Return the scores of an ensemble: networks whose outputs are averaged in common units.

    Contributions and responses are means over the networks in these units. The shift of an output is shared out among
    the sequences by their weights, so contributions sum to the outputs of the ensemble.

    Parameters
    ----------
    scores
        Scores of each network for the same sequences of one repertoire.
    conversion
        Conversion of the outputs of these networks.
    """
    scaled = list(zip(scores, *conversion, strict=True))
    contributions = [part.contributions * scale + part.weight[:, None] * shift for part, scale, shift in scaled]
    return SequenceScores(
        repertoire_id=scores[0].repertoire_id,
        head_logits=np.concatenate([part.head_logits for part in scores], axis=1),
        head_weights=np.concatenate([part.head_weights for part in scores], axis=1),
        contributions=_average_parts(contributions),
        responses=_average_parts([part.responses * scale + shift for part, scale, shift in scaled]),
        outputs=_average_parts([part.outputs * scale + shift for part, scale, shift in scaled]),
        n_heads=tuple(n for part in scores for n in part.n_heads),
        beside_attention=_combine_branches(
            [part.beside_attention for part in scores], conversion.scales, scores[0].contributions.shape
        ),
    )


def combine_parts(parts: Sequence[OutputParts], conversion: UnitConversion) -> OutputParts:
    """Return the outputs of an ensemble of networks; see `combine_scores`."""
    if len(parts) == 1:
        return parts[0]
    outputs = np.stack([part.outputs for part in parts]) * conversion.scales + conversion.shifts
    beside_attention = _combine_branches([p.beside_attention for p in parts], conversion.scales, outputs.shape[1:])
    return OutputParts(outputs.mean(axis=0), beside_attention)


def average_head_weights(head_weights: NDArray[np.float64], n_heads: Sequence[int]) -> NDArray[np.float64]:
    """Return the attention weight of each sequence, (N,): the mean over networks of the mean over their heads.

    `head_weights` are the attention weights of all heads, (N, H), and `n_heads` the numbers of heads of each network.
    """
    parts = _split_by_network(head_weights, n_heads)
    return _average_parts([part[:, 0] if part.shape[1] == 1 else part.mean(axis=1) for part in parts])


def average_max_head_logits(head_logits: NDArray[np.float32], n_heads: Sequence[int]) -> NDArray[np.float32]:
    """Return the highest logit over the heads of each network, averaged over networks, for each sequence, (N,).

    `head_logits` are the attention logits of all heads, (N, H).
    """
    max_logits = [
        logits[:, 0] if logits.shape[1] == 1 else logits.max(axis=1, initial=-np.inf)
        for logits in _split_by_network(head_logits, n_heads)
    ]
    return _average_parts(max_logits)


def _list_sources(total: NDArray[Any], beside_attention: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the parts of a total by source: first the attention, which is the total minus the branches."""
    parts = list(beside_attention.values())
    return {ATTENTION: total - np.sum(parts, axis=0) if parts else total, **beside_attention}


def _combine_branches(
    by_network: Sequence[Mapping[str, NDArray[Any]]], scales: NDArray[np.floating[Any]], shape: tuple[int, ...]
) -> dict[str, NDArray[Any]]:
    """Return the mean part through each branch in common units; a network without this branch adds 0."""
    zeros = np.zeros(shape)
    names = dict.fromkeys(name for parts in by_network for name in parts)
    return {
        name: _average_parts([parts.get(name, zeros) * scale for parts, scale in zip(by_network, scales, strict=True)])
        for name in names
    }


def _split_by_network(values: NDArray[Any], n_heads: Sequence[int]) -> list[NDArray[Any]]:
    """Split the values of all heads, (N, H), into the columns of each network."""
    return np.split(values, np.cumsum(n_heads)[:-1], axis=1)


def _average_parts(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.asarray(np.mean(parts, axis=0))
