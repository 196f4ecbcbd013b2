"""Outputs and attention of whole repertoires, in chunks.

Beyond one attention logit per sequence and head, where the top fraction is to be found, memory does not grow with the
repertoire.

Letters: N sequences of one repertoire, S dimensions of their representation, H heads, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.nn.batch import BatchMaker, RepertoireBatch
from deeprc.nn.network import DeepRC, chunk_size
from deeprc.nn.sampling import top_rows

__all__ = [
    "attention_logits",
    "attention_weights",
    "chunks_of",
    "cohort_outputs",
    "kept_rows",
    "pooled_representation",
    "repertoire_outputs",
]


@torch.no_grad()
def attention_logits(
    network: DeepRC,
    maker: BatchMaker,
    position: int,
    *,
    rows: NDArray[np.int64] | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Return the attention logits of the sequences of one repertoire, (N, H) float32, on the CPU.

    Parameters
    ----------
    network
        In the mode and on the device that it is to be used.
    maker
        Serves the sequences.
    position
        Of the repertoire in the maker's dataset.
    rows
        Positions of the sequences to score within the repertoire; all when None.
    chunk
        Sequences in work at a time; None chooses by the device.
    """
    parts = [network.score(batch).cpu() for batch in chunks_of(network, maker, position, rows, chunk)]
    return torch.cat(parts) if parts else torch.zeros(0, network.pooling.queries.shape[0])


def kept_rows(logits: Tensor, top_fraction: float) -> Tensor:
    """Return which sequences of one repertoire the prediction averages over, (n,) int64, from their logits (N, H)."""
    return top_rows(logits, torch.tensor([0, len(logits)]), top_fraction)[0]


def attention_weights(logits: Tensor, top_fraction: float) -> Tensor:
    """Return by which weights the prediction averages over one repertoire, (N, H) float64, from the logits (N, H).

    The softmax over the sequences that the top fraction keeps, which sums to 1 per head; 0 for the others.
    """
    weights = torch.zeros(logits.shape, dtype=torch.float64)
    kept = kept_rows(logits, top_fraction)
    weights[kept] = torch.softmax(logits[kept].double(), dim=0)
    return weights


@torch.no_grad()
def repertoire_outputs(
    network: DeepRC,
    maker: BatchMaker,
    position: int,
    *,
    top_fraction: float,
    rows: NDArray[np.int64] | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Return the outputs of one repertoire before their activation, (T,), on the CPU.

    All sequences (or the given rows) are scored; the top fraction of them is pooled with a softmax that is
    accumulated chunk by chunk.
    Parameters as in `attention_logits`, `top_fraction` as in `DeepRC.forward`.
    """
    if top_fraction < 1:
        logits = attention_logits(network, maker, position, rows=rows, chunk=chunk)
        kept = kept_rows(logits, top_fraction).numpy()
        rows = kept if rows is None else rows[kept]
    mean, _ = _pooled(network, maker, position, rows, chunk)
    outputs: Tensor = network.output_network(mean.float().flatten()[None])  # (1, H * S) -> (1, T)
    return outputs[0].cpu()


@torch.no_grad()
def pooled_representation(
    network: DeepRC, maker: BatchMaker, position: int, *, top_fraction: float, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the heads' averages over one repertoire, (H, S) float64, and all its logits, (N, H), on the CPU.

    Parameters as in `repertoire_outputs`.
    """
    if top_fraction < 1:
        logits = attention_logits(network, maker, position, chunk=chunk)
        kept = kept_rows(logits, top_fraction).numpy()
        return _pooled(network, maker, position, kept, chunk)[0].cpu(), logits
    mean, logits = _pooled(network, maker, position, None, chunk)
    return mean.cpu(), logits


def _pooled(
    network: DeepRC, maker: BatchMaker, position: int, rows: NDArray[np.int64] | None, chunk: int | None
) -> tuple[Tensor, Tensor]:
    """Return the heads' averages over the given sequences, (H, S) float64, and their logits, (n, H), on the CPU."""
    H, S = network.pooling.queries.shape[0], network.n_values
    device = network.pooling.queries.device
    maximum = torch.full((H,), -torch.inf, device=device)
    weight = torch.zeros(H, dtype=torch.float64, device=device)
    pooled = torch.zeros(H, S, dtype=torch.float64, device=device)
    seen = [torch.zeros(0, H)]
    for batch in chunks_of(network, maker, position, rows, chunk):
        values, logits = network.attend(batch)
        higher = torch.maximum(maximum, logits.amax(dim=0))
        shrink = torch.exp(maximum - higher).double()
        part = torch.exp(logits - higher)  # (N, H)
        weight = weight * shrink + part.sum(0).double()
        pooled = pooled * shrink[:, None] + (part.T @ values).double()  # (H, N) @ (N, S) -> (H, S)
        maximum = higher
        seen.append(logits.cpu())
    mean = pooled / weight.clamp_min(torch.finfo(torch.float64).tiny)[:, None]
    return mean, torch.cat(seen)


def cohort_outputs(
    network: DeepRC,
    maker: BatchMaker,
    *,
    top_fraction: float,
    rows: Sequence[NDArray[np.int64]] | None = None,
) -> Tensor:
    """Return the outputs of every repertoire of the maker's dataset, (B, T), in the dataset's order.

    `rows` names the sequences of each repertoire to use; all when None.
    """
    outputs = [
        repertoire_outputs(network, maker, i, top_fraction=top_fraction, rows=None if rows is None else rows[i])
        for i in range(len(maker.dataset))
    ]
    return torch.stack(outputs)


def chunks_of(
    network: DeepRC,
    maker: BatchMaker,
    position: int,
    rows: NDArray[np.int64] | None = None,
    chunk: int | None = None,
) -> Iterator[RepertoireBatch]:
    """Yield the sequences of one repertoire in pieces, on the network's device; see `attention_logits`."""
    device = network.pooling.queries.device
    chunk = chunk_size(device) if chunk is None else chunk
    n = int(maker.dataset.n_sequences[position]) if rows is None else len(rows)
    for start in range(0, n, chunk):
        part = slice(start, min(start + chunk, n))
        yield maker.take(position, part if rows is None else rows[part]).to(device)
