"""Outputs and attention of whole repertoires, in chunks.

Beyond one attention logit per sequence and head, where the top fraction is to be found, memory does not grow with the
repertoire.

Letters: N sequences of one repertoire, S dimensions of their representation, H heads, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.nn.network import DeepRC, chunk_size
from deeprc.nn.sampling import top_rows

__all__ = [
    "RepertoireOutputs",
    "attention_logits",
    "attention_weights",
    "chunks_of",
    "cohort_outputs",
    "groups_of_small",
    "kept_rows",
    "pooled_representation",
    "pooled_representations",
    "repertoire_outputs",
]


@torch.no_grad()
def attention_logits(
    network: DeepRC,
    collator: Collator,
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
    collator
        Serves the sequences.
    position
        Of the repertoire in the collator's dataset.
    rows
        Positions of the sequences to score within the repertoire; all when None.
    chunk
        Sequences in work at a time; None chooses by the device.
    """
    parts = [network.score(batch).cpu() for batch in chunks_of(network, collator, position, rows, chunk)]
    return torch.cat(parts) if parts else torch.zeros(0, network.pooling.queries.shape[0])


def kept_rows(logits: Tensor, top_fraction: float) -> Tensor:
    """Return which sequences of one repertoire the prediction averages over, (n,) int64, from their logits (N, H)."""
    return top_rows(logits, torch.tensor([0, len(logits)]), top_fraction)[0]


def attention_weights(logits: Tensor, top_fraction: float) -> Tensor:
    """Return by which weights the prediction averages over one repertoire, (N, H) float64, from the logits (N, H).

    The softmax over the sequences that the top fraction keeps, which sums to 1 per head; 0 for the others.
    """
    if top_fraction >= 1:
        weights = logits.to(torch.float64, copy=True)
        return torch.softmax(weights, dim=0, out=weights)
    weights = torch.zeros(logits.shape, dtype=torch.float64)
    kept = kept_rows(logits, top_fraction)
    weights[kept] = torch.softmax(logits[kept].double(), dim=0)
    return weights


@torch.no_grad()
def repertoire_outputs(
    network: DeepRC,
    collator: Collator,
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
        logits = attention_logits(network, collator, position, rows=rows, chunk=chunk)
        kept = kept_rows(logits, top_fraction).numpy()
        rows = kept if rows is None else rows[kept]
    mean, _ = _pooled(network, collator, position, rows, chunk)
    outputs: Tensor = network.output_network(mean.float().flatten()[None])  # (1, H * S) -> (1, T)
    return outputs[0].cpu()


@torch.no_grad()
def pooled_representation(
    network: DeepRC, collator: Collator, position: int, *, top_fraction: float, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the heads' averages over one repertoire, (H, S) float64, and all its logits, (N, H), on the CPU.

    Parameters as in `repertoire_outputs`.
    """
    if top_fraction < 1:
        logits = attention_logits(network, collator, position, chunk=chunk)
        kept = kept_rows(logits, top_fraction).numpy()
        return _pooled(network, collator, position, kept, chunk)[0].cpu(), logits
    mean, logits = _pooled(network, collator, position, None, chunk)
    return mean.cpu(), logits


def _pooled(
    network: DeepRC, collator: Collator, position: int, rows: NDArray[np.int64] | None, chunk: int | None
) -> tuple[Tensor, Tensor]:
    """Return the heads' averages over the given sequences, (H, S) float64, and their logits, (n, H), on the CPU."""
    average = _Average(network)
    seen = [torch.zeros(0, len(network.pooling.queries))]
    for batch in chunks_of(network, collator, position, rows, chunk):
        values, logits = network.attend(batch)
        average.add(values, logits)
        seen.append(logits.cpu())
    return average.mean(), torch.cat(seen)


class _Average:
    """The heads' averages over one repertoire's sequences, accumulated some sequences at a time."""

    def __init__(self, network: DeepRC) -> None:
        self._shape = (network.pooling.queries.shape[0], network.n_values)  # H, S
        self._device = network.pooling.queries.device
        self._added: tuple[Tensor, Tensor, Tensor] | None = None  # maximum, sum of weights and of weighted values

    def add(self, values: Tensor, logits: Tensor) -> None:
        """Add n sequences, at least one: representations (n, S) and attention logits (n, H)."""
        highest = logits.amax(dim=0)
        higher = highest if self._added is None else torch.maximum(self._added[0], highest)
        part = torch.exp(logits - higher)  # (n, H)
        weight, pooled = part.sum(0).double(), (part.T @ values).double()  # (H, n) @ (n, S) -> (H, S)
        if self._added is not None:
            shrink = torch.exp(self._added[0] - higher).double()
            weight += self._added[1] * shrink
            pooled += self._added[2] * shrink[:, None]
        self._added = higher, weight, pooled

    def mean(self) -> Tensor:
        """Return the averages, (H, S) float64."""
        if self._added is None:
            return torch.zeros(self._shape, dtype=torch.float64, device=self._device)
        _, weight, pooled = self._added
        return pooled / weight.clamp_min(torch.finfo(torch.float64).tiny)[:, None]


class RepertoireOutputs:
    """The outputs of a dataset's repertoires, one after the other; small ones that follow each other share their work.

    Called with a position, it returns the outputs of this repertoire before their activation, (T,), on the CPU: the
    same numbers as `repertoire_outputs`, whatever was asked for before.

    Parameters
    ----------
    network, collator, top_fraction
        As in `repertoire_outputs`.
    rows
        The sequences of each repertoire to use; all when None.
    """

    def __init__(
        self,
        network: DeepRC,
        collator: Collator,
        *,
        top_fraction: float,
        rows: Sequence[NDArray[np.int64]] | None = None,
    ) -> None:
        self._network, self._collator, self._top_fraction, self._rows = network, collator, top_fraction, rows
        sizes = collator.dataset.n_sequences if rows is None else np.array([len(each) for each in rows], np.int64)
        self._ends = np.cumsum(sizes)
        self._sizes = sizes
        self._known: dict[int, Tensor] = {}

    def __call__(self, position: int) -> Tensor:
        """Return the outputs of one repertoire, (T,)."""
        if position not in self._known:
            end = int(self._ends[position] - self._sizes[position]) + chunk_size(self._network.pooling.queries.device)
            stop = int(np.searchsorted(self._ends, end, side="right"))  # those before it fit into one chunk
            if stop <= position + 1:
                return self._of_one(position)
            self._known = dict(zip(range(position, stop), self._of_many(range(position, stop)), strict=True))
        return self._known[position]

    def _of_one(self, position: int) -> Tensor:
        rows = None if self._rows is None else self._rows[position]
        return repertoire_outputs(self._network, self._collator, position, top_fraction=self._top_fraction, rows=rows)

    @torch.no_grad()
    def _of_many(self, positions: range) -> list[Tensor]:
        rows = [np.arange(self._sizes[i]) if self._rows is None else self._rows[i] for i in positions]
        pooled = _pooled_together(self._network, self._collator, positions, rows, self._top_fraction)
        return [self._network.output_network(mean.float().flatten()[None])[0].cpu() for mean, _ in pooled]


def groups_of_small(network: DeepRC, collator: Collator, positions: Iterable[int]) -> Iterator[list[int]]:
    """Yield the positions in lists: those that follow each other and whose sequences fit into one chunk together."""
    max_together, n = chunk_size(network.pooling.queries.device), 0
    group: list[int] = []
    for position in positions:
        size = collator.size(position)
        if group and n + size > max_together:
            yield group
            group, n = [], 0
        group.append(position)
        n += size
    if group:
        yield group


@torch.no_grad()
def pooled_representations(
    network: DeepRC, collator: Collator, positions: Iterable[int], *, top_fraction: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `pooled_representation` of each repertoire; small ones that follow each other share their work."""
    for group in groups_of_small(network, collator, positions):
        if len(group) == 1:
            yield pooled_representation(network, collator, group[0], top_fraction=top_fraction)
        else:
            rows = [np.arange(collator.size(i)) for i in group]
            for mean, logits in _pooled_together(network, collator, group, rows, top_fraction):
                yield mean.cpu(), logits


def _pooled_together(
    network: DeepRC,
    collator: Collator,
    positions: Sequence[int],
    rows: Sequence[NDArray[np.int64]],
    top_fraction: float,
) -> list[tuple[Tensor, Tensor]]:
    """Return the heads' averages, (H, S) float64, and all logits, (n, H), of sequences of some small repertoires.

    The logits are on the CPU.
    """
    device = network.pooling.queries.device
    sizes = [len(each) for each in rows]
    scored: Sequence[Tensor] = []
    if top_fraction < 1:
        scored = network.score(collator.take_together(positions, rows).to(device)).cpu().split(sizes)
        rows = [each[kept_rows(part, top_fraction).numpy()] for each, part in zip(rows, scored, strict=True)]
        sizes = [len(each) for each in rows]
    values, logits = network.attend(collator.take_together(positions, rows).to(device))
    means = []
    for own_values, own_logits in zip(values.split(sizes), logits.split(sizes), strict=True):
        average = _Average(network)
        if len(own_logits):
            average.add(own_values, own_logits)
        means.append(average.mean())
    return list(zip(means, scored or logits.cpu().split(sizes), strict=True))


def cohort_outputs(
    network: DeepRC,
    collator: Collator,
    *,
    top_fraction: float,
    rows: Sequence[NDArray[np.int64]] | None = None,
) -> Tensor:
    """Return the outputs of every repertoire of the collator's dataset, (B, T), in the dataset's order.

    `rows` names the sequences of each repertoire to use; all when None.
    """
    outputs = RepertoireOutputs(network, collator, top_fraction=top_fraction, rows=rows)
    return torch.stack([outputs(i) for i in range(len(collator.dataset))])


def chunks_of(
    network: DeepRC,
    collator: Collator,
    position: int,
    rows: NDArray[np.int64] | None = None,
    chunk: int | None = None,
) -> Iterator[RepertoireBatch]:
    """Yield the sequences of one repertoire in pieces, on the network's device; see `attention_logits`."""
    device = network.pooling.queries.device
    chunk = chunk_size(device) if chunk is None else chunk
    n = collator.size(position) if rows is None else len(rows)
    for start in range(0, n, chunk):
        part = slice(start, min(start + chunk, n))
        yield collator.take(position, part if rows is None else rows[part]).to(device)
