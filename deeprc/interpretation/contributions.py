"""What every sequence of a repertoire adds to the outputs: attention says where the network looks, this says for what.

The network's output is o(p), where p joins the heads' averages p_h = Σ_i a_ih z_i of the sequences' representations. On
the tangent of o at p it is a sum over sequences, Σ_i Σ_h a_ih r_h(z_i), with the response of head h

    r_h(z) = g_h · z + (o(p) - Σ_h g_h · p_h) / H,    g_h = ∂o/∂p_h.

For a linear o this holds exactly, and the responses do not depend on the repertoire; for any o the contributions
a_ih r_h(z_i) of a repertoire sum to its output, because each head's weights sum to 1. The sum of a sequence's responses
over the heads is what the network would put out if it attended to this sequence alone.

Letters: N sequences of one repertoire, H heads, S dimensions of their representation, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.batch import Collator
from deeprc.nn.inference import attention_weights, chunks_of, pooled_representations
from deeprc.nn.network import DeepRC
from deeprc.runs.run import Run

__all__ = ["Attended", "SequenceScores", "attended", "network_scores", "score_sequences", "scores_at", "tangent"]


@dataclass(frozen=True)
class SequenceScores:
    """The attention on every sequence of a repertoire, and what each adds to the outputs.

    Attributes
    ----------
    repertoire_id
        Whose sequences they are.
    logits
        Of the attention, (N, H) float32.
    weights
        By which the prediction averages, (N, H) float64: the softmax over the sequences that the top fraction keeps,
        which sums to 1 per head; 0 for the others.
    contributions
        To the outputs before their activation, (N, T) float64. Their sum over the sequences is `outputs`.
    responses
        What the outputs would be if all attention were on one sequence, (N, T) float64. Unlike contributions they
        hardly depend on what else is in the repertoire: only through the features' standard deviation.
    outputs
        Of the repertoire, before their activation, (T,) float64.
    """

    repertoire_id: str
    logits: NDArray[np.float32]
    weights: NDArray[np.float64]
    contributions: NDArray[np.float64]
    responses: NDArray[np.float64]
    outputs: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.logits)

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """The mean of the heads' weights, (N,), which sums to 1."""
        return np.asarray(self.weights.mean(axis=1))

    @cached_property
    def logit(self) -> NDArray[np.float32]:
        """The highest of the heads' logits, (N,); unlike a weight it can be compared between repertoires."""
        return np.asarray(self.logits.max(axis=1, initial=-np.inf))

    @cached_property
    def head(self) -> NDArray[np.int64]:
        """The head that looks at each sequence most, (N,), from 1."""
        return np.asarray(self.weights.argmax(axis=1) + 1) if len(self) else np.zeros(0, np.int64)


def score_sequences(run: Run, dataset: RepertoireDataset, position: int) -> SequenceScores:
    """Return attention and contributions of the sequences of `dataset[position]`.

    The repertoire is read twice, in pieces: for its representation, then for the sequences' responses to it. Memory
    grows with 2 N (H + T) numbers, not with N S.

    Raises
    ------
    InputError
        If the weights are such that a number is not finite.
    """
    scores = network_scores(
        run.network, run.collator(dataset), position, top_fraction=run.settings.config.training.averaged_fraction
    )
    for numbers in (scores.logits, scores.contributions, scores.responses, scores.outputs):
        run.check_finite(numbers, scores.repertoire_id)
    return scores


def network_scores(network: DeepRC, collator: Collator, position: int, *, top_fraction: float) -> SequenceScores:
    """Return what `score_sequences` returns, of a network that is no run; parameters as in `repertoire_outputs`."""
    attention = list(attended(network, collator, [position], top_fraction=top_fraction))
    return next(scores_at(network, collator, [position], attention, [None]))


@dataclass(frozen=True)
class Attended:
    """The attention on all sequences of a repertoire, from `attended`.

    Attributes
    ----------
    pooled
        The repertoire's representation, the heads' averages, (H, S) float64.
    logits, weights
        See `SequenceScores`, (N, H).
    """

    pooled: Tensor
    logits: Tensor
    weights: Tensor


def attended(
    network: DeepRC, collator: Collator, positions: Iterable[int], *, top_fraction: float
) -> Iterator[Attended]:
    """Yield the attention on the sequences of each repertoire; parameters as in `repertoire_outputs`."""
    for pooled, logits in pooled_representations(network, collator, positions, top_fraction=top_fraction):
        yield Attended(pooled, logits, attention_weights(logits, top_fraction))


@torch.no_grad()
def scores_at(
    network: DeepRC,
    collator: Collator,
    positions: Sequence[int],
    attention: Sequence[Attended],
    rows: Sequence[NDArray[np.int64] | None],
) -> Iterator[SequenceScores]:
    """Yield the scores of the sequences at `rows` of each repertoire, (n,); of all in their order when None.

    Of several repertoires, the sequences must fit into one chunk together; see `groups_of_small`. Memory grows with the
    number of rows.
    """
    pieces = _representations(network, collator, positions, rows)
    for position, own, chosen, values in zip(positions, attention, rows, pieces, strict=True):
        yield _scores(network, collator.dataset[position].repertoire_id, own, chosen, values)


def _representations(
    network: DeepRC, collator: Collator, positions: Sequence[int], rows: Sequence[NDArray[np.int64] | None]
) -> Iterator[Iterable[Tensor]]:
    """Yield the representations of the given sequences of each repertoire, in pieces (n, S), on the CPU."""
    if len(positions) == 1:
        yield (network.attend(batch)[0].cpu() for batch in chunks_of(network, collator, positions[0], rows[0]))
        return
    given = [np.arange(collator.size(i)) if own is None else own for i, own in zip(positions, rows, strict=True)]
    batch = collator.take_together(positions, given).to(network.pooling.queries.device)
    for values in network.attend(batch)[0].cpu().split([len(own) for own in given]):
        yield [values]


def _scores(
    network: DeepRC,
    repertoire_id: str,
    attention: Attended,
    rows: NDArray[np.int64] | None,
    representations: Iterable[Tensor],
) -> SequenceScores:
    """Return the scores of the sequences at `rows` of one repertoire, whose representations come in pieces (n, S)."""
    gradient, offset, outputs = tangent(network, attention.pooled)
    logits, weights = (
        part if rows is None else part[torch.from_numpy(rows)] for part in (attention.logits, attention.weights)
    )
    contributions, responses = torch.zeros((2, len(logits), len(outputs)), dtype=torch.float64)
    done = 0
    for values in representations:
        part = slice(done, done + len(values))
        of_heads = _responses(values, gradient) + offset  # (n, H, T)
        contributions[part] = torch.einsum("nh,nht->nt", weights[part], of_heads)
        responses[part] = of_heads.sum(dim=1)
        done = part.stop
    arrays = (part.numpy() for part in (logits, weights, contributions, responses, outputs))
    return SequenceScores(repertoire_id, *arrays)


def _responses(values: Tensor, gradient: Tensor) -> Tensor:
    """Return g_h · z_i of every head and output, (n, H, T) float64, from the representations z, (n, S)."""
    T, H, S = gradient.shape
    return (values.double() @ gradient.reshape(T * H, S).T).view(-1, T, H).transpose(1, 2)  # (n, T * H) -> (n, H, T)


def tangent(network: DeepRC, pooled: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the responses r_h(z) = g_h · z + c at a repertoire's representation (H, S), and the outputs there.

    All are float64 on the CPU: g, (T, H, S); c, (T,); the outputs, (T,).
    """
    device = network.pooling.queries.device
    with torch.enable_grad():
        at = pooled.to(device).float().requires_grad_()
        outputs: Tensor = network.output_network(at.flatten()[None])[0]  # (1, H * S) -> (T,)
        rows = [torch.autograd.grad(output, at, retain_graph=True)[0] for output in outputs]
    gradient, outputs = torch.stack(rows).double().cpu(), outputs.detach().double().cpu()
    offset = (outputs - torch.einsum("thd,hd->t", gradient, pooled.double().cpu())) / len(pooled)
    return gradient, offset, outputs
