"""Contributions: what each sequence of a repertoire adds to the outputs of the network.

The output of the network is o(p). Here p joins the averages p_h = Σ_i a_ih z_i of the heads over the sequences'
representations. On the tangent of o at p, the output is a sum over sequences, Σ_i Σ_h a_ih r_h(z_i), with the response
of head h

    r_h(z) = g_h · z + (o(p) - Σ_h g_h · p_h) / H,    g_h = ∂o/∂p_h.

For a linear o this is exact, and the responses do not depend on the repertoire. For any o the contributions a_ih
r_h(z_i) of a repertoire sum to its output, because the weights of each head sum to 1. The sum of a sequence's responses
over the heads is the output that the network would have if all attention were on this sequence.

If the network has readings (`deeprc.nn.readings`), the amount that a sequence adds through them is part of its
contribution, but not of its response.

Letters: N sequences of one repertoire, H heads, S dimensions of their representation, Q readings, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import Repertoire
from deeprc.nn.inference import Inference, attention_weights
from deeprc.nn.network import DeepRC

__all__ = [
    "ATTENTION",
    "Attended",
    "OutputParts",
    "SequenceScores",
    "combine_parts",
    "combine_scores",
    "iterate_attended",
    "linearise_outputs",
    "mean_logit",
    "mean_weight",
    "score_rows",
    "score_sequences",
]


ATTENTION = "attention"
"""Name in tables of the part of an output, or of a contribution, that comes through the attention."""


@dataclass(frozen=True)
class OutputParts:
    """Outputs of repertoires, and the part of them that comes through each reading.

    Attributes
    ----------
    outputs
        Outputs before their activation, (B, T).
    through_readings
        Part of the outputs that comes through each reading, by its name, (B, T); the rest comes through the attention.
    """

    outputs: NDArray[np.floating[Any]]
    through_readings: Mapping[str, NDArray[np.floating[Any]]]

    @classmethod
    def stack(cls, parts: Sequence[OutputParts], n_outputs: int) -> OutputParts:
        """Join the outputs of single repertoires, (T,) each, by the same networks to those of several, (B, T)."""
        if not parts:
            return cls(np.zeros((0, n_outputs), np.float32), {})
        names = parts[0].through_readings
        read = {name: np.stack([each.through_readings[name] for each in parts]) for name in names}
        return cls(np.stack([each.outputs for each in parts]), read)

    @property
    def through(self) -> dict[str, NDArray[np.floating[Any]]]:
        """Parts of the outputs, (B, T) each, by name: that through the attention, then those through readings."""
        return _add_attention_part(self.outputs, self.through_readings)


def _add_attention_part(whole: NDArray[Any], through_readings: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    read = list(through_readings.values())
    return {ATTENTION: whole - np.sum(read, axis=0) if read else whole, **through_readings}


@dataclass(frozen=True)
class SequenceScores:
    """Attention, contribution and response of each sequence of a repertoire.

    Scores of several networks together have the heads of all networks, one network after the other.

    Attributes
    ----------
    repertoire_id
        Id of the repertoire that has the sequences.
    logits
        Attention logits, (N, H) float32.
    weights
        Attention weights of the prediction, (N, H) float64: the softmax over the sequences that the top fraction keeps,
        which sums to 1 per head; 0 for the others.
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
    through_readings
        Part of the contributions that comes through each reading, by its name, (N, T) float64; the rest comes through
        the attention.
    """

    repertoire_id: str
    logits: NDArray[np.float32]
    weights: NDArray[np.float64]
    contributions: NDArray[np.float64]
    responses: NDArray[np.float64]
    outputs: NDArray[np.float64]
    n_heads: tuple[int, ...]
    through_readings: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.logits)

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Attention weight of each sequence, the mean over heads, (N,), which sums to 1; see `mean_weight`."""
        return mean_weight(self.weights, self.n_heads)

    @cached_property
    def logit(self) -> NDArray[np.float32]:
        """Attention logit of each sequence, the highest of its heads, (N,); it can be compared between repertoires."""
        return mean_logit(self.logits, self.n_heads)

    @property
    def output_parts(self) -> OutputParts:
        """Outputs, (T,), of the repertoire and their part through each reading, if all its sequences have scores."""
        return OutputParts(self.outputs, {name: part.sum(axis=0) for name, part in self.through_readings.items()})

    @cached_property
    def through(self) -> dict[str, NDArray[np.float64]]:
        """Parts of the contributions, (N, T) each, by name: that through the attention, then those through readings."""
        return _add_attention_part(self.contributions, self.through_readings)

    def take(self, rows: NDArray[np.int64]) -> SequenceScores:
        """Return the scores of some of the sequences, by their indices, (n,)."""
        return replace(
            self,
            logits=self.logits[rows],
            weights=self.weights[rows],
            contributions=self.contributions[rows],
            responses=self.responses[rows],
            through_readings={name: part[rows] for name, part in self.through_readings.items()},
        )

    @cached_property
    def head(self) -> NDArray[np.int64]:
        """Index of the head that attends most to each sequence, (N,), from 1."""
        return np.asarray(self.weights.argmax(axis=1) + 1) if len(self) else np.zeros(0, np.int64)


def mean_weight(weights: NDArray[np.float64], n_heads: Sequence[int]) -> NDArray[np.float64]:
    """Return the attention weight of each sequence, (N,): the mean over networks of the mean over their heads.

    Parameters
    ----------
    weights
        Weights of all heads, (N, H).
    n_heads
        Number of heads of each network.
    """
    return _average_parts(
        [own[:, 0] if own.shape[1] == 1 else own.mean(axis=1) for own in _split_by_network(weights, n_heads)]
    )


def mean_logit(logits: NDArray[np.float32], n_heads: Sequence[int]) -> NDArray[np.float32]:
    """Return the attention logit of each sequence, (N,): the mean over networks of the highest of their heads.

    Parameters are those of `mean_weight`.
    """
    highest = [
        own[:, 0] if own.shape[1] == 1 else own.max(axis=1, initial=-np.inf)
        for own in _split_by_network(logits, n_heads)
    ]
    return _average_parts(highest)


def _split_by_network(values: NDArray[Any], n_heads: Sequence[int]) -> list[NDArray[Any]]:
    """Split the values of all heads, (N, H), into the columns of each network."""
    return np.split(values, np.cumsum(n_heads)[:-1], axis=1)


def _average_parts(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.asarray(np.mean(parts, axis=0))


def score_sequences(inference: Inference, position: int) -> SequenceScores:
    """Return the attention and contributions of all sequences of one repertoire.

    The repertoire is read twice, in chunks: first for its representation, then for the responses of the sequences.
    Memory grows with 2 N (H + T) numbers, not with N S.
    """
    attention = list(iterate_attended(inference, [position]))
    return next(score_rows(inference, [position], attention, [None]))


def combine_scores(
    scores: Sequence[SequenceScores], scales: NDArray[np.float64], shifts: NDArray[np.float64]
) -> SequenceScores:
    """Return the scores of an ensemble: networks whose outputs are averaged in common units.

    Contributions and responses are means over the networks in these units. The shift of an output is shared out among
    the sequences by their weights, so contributions sum to the outputs of the ensemble.

    Parameters
    ----------
    scores
        Scores of each network for the same sequences of one repertoire.
    scales, shifts
        Factor and summand that bring each network's outputs to common units, (number of networks, T) each.
    """
    units = list(zip(scores, scales, shifts, strict=True))
    return SequenceScores(
        scores[0].repertoire_id,
        np.concatenate([each.logits for each in scores], axis=1),
        np.concatenate([each.weights for each in scores], axis=1),
        _average_parts([each.contributions * scale + each.weight[:, None] * shift for each, scale, shift in units]),
        _average_parts([each.responses * scale + shift for each, scale, shift in units]),
        _average_parts([each.outputs * scale + shift for each, scale, shift in units]),
        tuple(n for each in scores for n in each.n_heads),
        _combine_readings([each.through_readings for each in scores], scales, scores[0].contributions.shape),
    )


def combine_parts(
    parts: Sequence[OutputParts], scales: NDArray[np.floating[Any]], shifts: NDArray[np.floating[Any]]
) -> OutputParts:
    """Return the outputs of an ensemble of networks; see `combine_scores`."""
    if len(parts) == 1:
        return parts[0]
    outputs = np.stack([each.outputs for each in parts]) * scales + shifts
    read = _combine_readings([each.through_readings for each in parts], scales, outputs.shape[1:])
    return OutputParts(outputs.mean(axis=0), read)


def _combine_readings(
    of_networks: Sequence[Mapping[str, NDArray[Any]]], scales: NDArray[np.floating[Any]], shape: tuple[int, ...]
) -> dict[str, NDArray[Any]]:
    """Return the mean part through each reading in common units; a network without this reading adds 0."""
    nothing = np.zeros(shape)
    names = dict.fromkeys(name for own in of_networks for name in own)
    return {
        name: _average_parts([own.get(name, nothing) * scale for own, scale in zip(of_networks, scales, strict=True)])
        for name in names
    }


@dataclass(frozen=True)
class Attended:
    """Attention of a network on all sequences of a repertoire, from `iterate_attended`.

    Attributes
    ----------
    pooled
        Representation of the repertoire, which is the average of each head, (H, S) float64.
    logits, weights
        Attention logits and weights, (N, H) each; see `SequenceScores`.
    """

    pooled: Tensor
    logits: Tensor
    weights: Tensor


def iterate_attended(inference: Inference, positions: Iterable[int]) -> Iterator[Attended]:
    """Yield the attention on the sequences of each repertoire, by their positions in the dataset."""
    for pooled, logits in inference.pooled(positions):
        yield Attended(pooled, logits, attention_weights(logits, inference.top_fraction))


@torch.no_grad()
def score_rows(
    inference: Inference,
    positions: Sequence[int],
    attention: Sequence[Attended],
    rows: Sequence[NDArray[np.int64] | None],
) -> Iterator[SequenceScores]:
    """Yield the scores of the sequences at `rows`, (n,), of each repertoire; None selects all sequences in their order.

    The sequences of several repertoires must fit into one chunk together; see `Inference.groups`. Memory grows with the
    number of rows.
    """
    pieces = _iterate_representations(inference, positions, rows)
    for position, own, chosen, values in zip(positions, attention, rows, pieces, strict=True):
        repertoire = inference.collator.dataset[position]
        scores = _score_repertoire(inference.network, repertoire.repertoire_id, own, chosen, values)
        yield _add_readings(inference.network, scores, repertoire, chosen)


def _add_readings(
    network: DeepRC, scores: SequenceScores, repertoire: Repertoire, rows: NDArray[np.int64] | None
) -> SequenceScores:
    """Return the scores of a repertoire's sequences at `rows`, with the contributions through readings added."""
    if network.readings is None:
        return scores
    whole = network.readings.contributions(repertoire)  # (Q, N, T)
    own = whole if rows is None else whole[:, rows]
    return replace(
        scores,
        contributions=scores.contributions + own.sum(axis=0),
        outputs=scores.outputs + whole.sum(axis=(0, 1)),
        through_readings=dict(zip(network.readings.names, own, strict=True)),
    )


def _iterate_representations(
    inference: Inference, positions: Sequence[int], rows: Sequence[NDArray[np.int64] | None]
) -> Iterator[Iterable[Tensor]]:
    """Yield the representations of the given sequences of each repertoire, in pieces (n, S), on the CPU."""
    network, collator = inference.network, inference.collator
    if len(positions) == 1:
        yield (network.attend(batch)[0].cpu() for batch in inference.batches(positions[0], rows[0]))
        return
    given = [np.arange(collator.size(i)) if own is None else own for i, own in zip(positions, rows, strict=True)]
    batch = collator.take_together(positions, given).to(inference.device)
    for values in network.attend(batch)[0].cpu().split([len(own) for own in given]):
        yield [values]


def _score_repertoire(
    network: DeepRC,
    repertoire_id: str,
    attention: Attended,
    rows: NDArray[np.int64] | None,
    representations: Iterable[Tensor],
) -> SequenceScores:
    """Return the scores of one repertoire's sequences at `rows`, from their representations in pieces (n, S)."""
    gradient, offset, outputs = linearise_outputs(network, attention.pooled)
    logits, weights = (
        part if rows is None else part[torch.from_numpy(rows)] for part in (attention.logits, attention.weights)
    )
    contributions, responses = torch.zeros((2, len(logits), len(outputs)), dtype=torch.float64)
    done = 0
    for values in representations:
        part = slice(done, done + len(values))
        of_heads = _compute_responses(values, gradient) + offset  # (n, H, T)
        contributions[part] = torch.einsum("nh,nht->nt", weights[part], of_heads)
        responses[part] = of_heads.sum(dim=1)
        done = part.stop
    return SequenceScores(
        repertoire_id,
        logits.numpy(),
        weights.numpy(),
        contributions.numpy(),
        responses.numpy(),
        outputs.numpy(),
        (len(attention.pooled),),
        {},
    )


def _compute_responses(values: Tensor, gradient: Tensor) -> Tensor:
    """Return g_h · z_i for each sequence, head and output, (n, H, T) float64, from the representations z, (n, S)."""
    T, H, S = gradient.shape
    return (values.double() @ gradient.reshape(T * H, S).T).view(-1, T, H).transpose(1, 2)  # (n, T * H) -> (n, H, T)


def linearise_outputs(network: DeepRC, pooled: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return g and c of the responses r_h(z) = g_h · z + c for a repertoire's representation, (H, S), and its outputs.

    The result is float64 on the CPU: g, (T, H, S); c, (T,); the outputs, (T,).
    """
    device = network.pooling.queries.device
    with torch.enable_grad():
        at = pooled.to(device).float().requires_grad_()
        outputs: Tensor = network.output_network(at.flatten()[None])[0]  # (1, H * S) -> (T,)
        rows = [torch.autograd.grad(output, at, retain_graph=True)[0] for output in outputs]
    gradient, outputs = torch.stack(rows).double().cpu(), outputs.detach().double().cpu()
    offset = (outputs - torch.einsum("thd,hd->t", gradient, pooled.double().cpu())) / len(pooled)
    return gradient, offset, outputs
