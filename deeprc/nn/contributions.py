"""Contributions: what each sequence of a repertoire adds to the outputs of the network.

For example, two sequences have the attention weights 0.75 and 0.25. Their responses, the outputs if all attention were
on one of them, are 2 and -2. Then their contributions are 1.5 and -0.5, which sum to the output of the repertoire, 1.

The output of the network is o(p). Here p joins the pooled values p_h = Σ_i a_ih z_i of the heads, where z_i are the
values of sequence i and a_ih its attention weights. On the tangent of o at p, the output is a sum over sequences,
Σ_i Σ_h a_ih r_h(z_i), with the response of head h

    r_h(z) = g_h · z + (o(p) - Σ_h g_h · p_h) / H,    g_h = ∂o/∂p_h.

For a linear o this is exact, and the responses do not depend on the repertoire. For any o the contributions a_ih
r_h(z_i) of a repertoire sum to its output, because the weights of each head sum to 1. The sum of a sequence's responses
over the heads is the output that the network would have if all attention were on this sequence.

A contribution is the sum of its parts through each source: the attention and, if the network has them, the branches of
`deeprc.nn.branches`. The amount that a sequence adds through the branches is part of its contribution, but not of its
response.

Letters: N sequences of one repertoire, n selected ones, H heads, S values of a sequence, Q branches, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import Repertoire
from deeprc.nn.inference import Inference, compute_attention_weights
from deeprc.nn.linearisation import LinearisedOutputs, linearise_outputs
from deeprc.nn.network import DeepRC
from deeprc.nn.sequence_scores import SequenceScores

__all__ = ["HeadAttention", "iterate_head_attention", "score_rows", "score_sequences"]


@dataclass(frozen=True)
class HeadAttention:
    """Attention of a network's heads on all sequences of a repertoire, from `iterate_head_attention`.

    Attributes
    ----------
    pooled
        Pooled values of the repertoire, (H, S) float64.
    logits, weights
        Attention logits and weights of each head, (N, H) each; see `SequenceScores`.
    """

    pooled: Tensor
    logits: Tensor
    weights: Tensor


def score_sequences(inference: Inference, position: int) -> SequenceScores:
    """Return the attention and contributions of all sequences of one repertoire.

    The repertoire is read twice, in chunks: first for its pooled values, then for the responses of the sequences.
    Memory grows with 2 N (H + T) numbers, not with N S.
    """
    attention = list(iterate_head_attention(inference, [position]))
    return next(score_rows(inference, [position], attention, [None]))


def iterate_head_attention(inference: Inference, positions: Iterable[int]) -> Iterator[HeadAttention]:
    """Yield the attention on the sequences of each repertoire, by their positions in the dataset."""
    for pooled, logits in inference.iterate_pooled_with_logits(positions):
        yield HeadAttention(pooled, logits, compute_attention_weights(logits, inference.top_fraction))


@torch.no_grad()
def score_rows(
    inference: Inference,
    positions: Sequence[int],
    attention: Sequence[HeadAttention],
    rows: Sequence[NDArray[np.int64] | None],
) -> Iterator[SequenceScores]:
    """Yield the scores of the sequences at `rows`, (n,), of each repertoire; None selects all sequences in their order.

    The sequences of several repertoires must fit into one chunk together; see `Inference.iterate_groups`. Memory grows
    with the number of rows.
    """
    values = _iterate_values(inference, positions, rows)
    for position, head_attention, selected, value_pieces in zip(positions, attention, rows, values, strict=True):
        repertoire = inference.collator.dataset[position]
        scores = _score_repertoire(inference.network, repertoire.repertoire_id, head_attention, selected, value_pieces)
        yield _add_branches(inference.network, scores, repertoire, selected)


def _add_branches(
    network: DeepRC, scores: SequenceScores, repertoire: Repertoire, rows: NDArray[np.int64] | None
) -> SequenceScores:
    """Return the scores of a repertoire's sequences at `rows`, with the contributions through branches added."""
    if network.branches is None:
        return scores
    contributions = network.branches.compute_contributions(repertoire)  # (Q, N, T)
    selected = contributions if rows is None else contributions[:, rows]
    return replace(
        scores,
        contributions=scores.contributions + selected.sum(axis=0),
        outputs=scores.outputs + contributions.sum(axis=(0, 1)),
        beside_attention=dict(zip(network.branches.names, selected, strict=True)),
    )


def _iterate_values(
    inference: Inference, positions: Sequence[int], rows: Sequence[NDArray[np.int64] | None]
) -> Iterator[Iterable[Tensor]]:
    """Yield the values of the sequences at `rows` of each repertoire, in pieces (n, S), on the CPU."""
    network, collator = inference.network, inference.collator
    if len(positions) == 1:
        yield (network.attend(batch)[0].cpu() for batch in inference.iterate_batches(positions[0], rows[0]))
        return
    selected = [
        np.arange(collator.count_sequences(position)) if repertoire_rows is None else repertoire_rows
        for position, repertoire_rows in zip(positions, rows, strict=True)
    ]
    batch = collator.take_together(positions, selected).to(inference.device)
    for values in network.attend(batch)[0].cpu().split([len(sequences) for sequences in selected]):
        yield [values]


def _score_repertoire(
    network: DeepRC,
    repertoire_id: str,
    attention: HeadAttention,
    rows: NDArray[np.int64] | None,
    value_pieces: Iterable[Tensor],
) -> SequenceScores:
    """Return the scores of one repertoire's sequences at `rows`, from their values in pieces (n, S)."""
    linear = linearise_outputs(network, attention.pooled)
    logits, weights = (
        part if rows is None else part[torch.from_numpy(rows)] for part in (attention.logits, attention.weights)
    )
    contributions, responses = torch.zeros((2, len(logits), len(linear.outputs)), dtype=torch.float64)
    first = 0
    for values in value_pieces:
        part = slice(first, first + len(values))
        head_responses = _compute_responses(values, linear)  # (n, H, T)
        contributions[part] = torch.einsum("nh,nht->nt", weights[part], head_responses)
        responses[part] = head_responses.sum(dim=1)
        first = part.stop
    return SequenceScores(
        repertoire_id=repertoire_id,
        head_logits=logits.numpy(),
        head_weights=weights.numpy(),
        contributions=contributions.numpy(),
        responses=responses.numpy(),
        outputs=linear.outputs.numpy(),
        n_heads=(len(attention.pooled),),
        beside_attention={},
    )


def _compute_responses(values: Tensor, linear: LinearisedOutputs) -> Tensor:
    """Return the responses r_h(z_i) of each sequence, head and output, (n, H, T) float64, from the values z, (n, S)."""
    T, H, S = linear.gradient.shape
    products = values.double() @ linear.gradient.reshape(T * H, S).T  # (n, T * H)
    return products.view(-1, T, H).transpose(1, 2) + linear.offset  # (n, H, T)
