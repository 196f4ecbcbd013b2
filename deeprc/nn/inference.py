"""Inference: outputs and attention of whole repertoires, computed in chunks of sequences.

Memory grows with the size of a repertoire only by its attention logits, one per sequence and head, which are returned
with the averages.

Letters: N sequences of one repertoire, S dimensions of their representation, H heads, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.nn.averages import Average, KnownAverages
from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.nn.network import DeepRC, chunk_size
from deeprc.nn.sampling import select_top_rows

__all__ = ["Inference", "attention_weights", "select_kept_rows"]


def select_kept_rows(logits: Tensor, top_fraction: float) -> Tensor:
    """Return the rows of the sequences that a prediction averages over, (n,) int64, from their logits (N, H)."""
    return select_top_rows(logits, torch.tensor([0, len(logits)]), top_fraction)[0]


def attention_weights(logits: Tensor, top_fraction: float) -> Tensor:
    """Return the weights with which a prediction averages over one repertoire, (N, H) float64, from the logits (N, H).

    They are the softmax over the sequences that the top fraction keeps, which sums to 1 per head, and 0 for the others.
    """
    if top_fraction >= 1:
        weights = logits.to(torch.float64, copy=True)
        return torch.softmax(weights, dim=0, out=weights)
    weights = torch.zeros(logits.shape, dtype=torch.float64)
    kept = select_kept_rows(logits, top_fraction)
    weights[kept] = torch.softmax(logits[kept].double(), dim=0)
    return weights


@dataclass(frozen=True)
class Inference:
    """A network together with the dataset whose whole repertoires it reads.

    Consecutive repertoires that fit into one chunk share one pass over their sequences. Each is then pooled alone, so
    its results are the same as alone, to the last bit.

    Attributes
    ----------
    network
        The network, already in the right mode and on its device.
    collator
        Maker of batches from the dataset.
    top_fraction
        Share of a repertoire's sequences that the prediction averages over, see `DeepRC.forward`.
    chunk
        Number of sequences that are computed at a time; None chooses it by the device.
    known_averages
        Averages of whole repertoires that were computed before, which are not computed again; None keeps none.
    """

    network: DeepRC
    collator: Collator
    top_fraction: float = 1.0
    chunk: int | None = None
    known_averages: KnownAverages | None = None

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return self.network.pooling.queries.device

    def batches(self, position: int, rows: NDArray[np.int64] | None = None) -> Iterator[RepertoireBatch]:
        """Yield the sequences of one repertoire in chunks, on the network's device: all, or those at `rows`, (n,)."""
        n, size = self.collator.size(position) if rows is None else len(rows), self._chunk
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            yield self.collator.take(position, part if rows is None else rows[part]).to(self.device)

    @torch.no_grad()
    def logits(self, position: int, rows: NDArray[np.int64] | None = None) -> Tensor:
        """Return the attention logits of one repertoire, (N, H) float32, on the CPU.

        They are those of all sequences, or only of those at `rows` within the repertoire, (n,).
        """
        parts = [self.network.score(batch).cpu() for batch in self.batches(position, rows)]
        return torch.cat(parts) if parts else torch.zeros(0, len(self.network.pooling.queries))

    def outputs(
        self, positions: Iterable[int] | None = None, *, rows: Sequence[NDArray[np.int64]] | None = None
    ) -> Tensor:
        """Return the outputs of at least one repertoire before their activation, (B, T), on the CPU.

        The parameters are those of `iterate_outputs`.
        """
        return torch.stack([*self.iterate_outputs(positions, rows=rows)])

    def iterate_outputs(
        self, positions: Iterable[int] | None = None, *, rows: Sequence[NDArray[np.int64]] | None = None
    ) -> Iterator[Tensor]:
        """Yield the outputs of each repertoire before their activation, (T,), on the CPU.

        Parameters
        ----------
        positions
            Positions of the repertoires in the collator's dataset; None takes all in their order.
        rows
            Rows of the sequences to use in each repertoire of the dataset; None takes all sequences.
        """
        every = list(range(len(self.collator.dataset)) if positions is None else positions)
        averages = self.averages(every) if rows is None else (mean for mean, _ in self._pool_all(every, rows))
        for position, mean in zip(every, averages, strict=True):
            yield self._output(mean, position)

    def averages(self, positions: Iterable[int] | None = None) -> Iterator[Tensor]:
        """Yield the average of each head over each whole repertoire, (H, S) float64, on the network's device.

        The parameter is that of `iterate_outputs`. The weights of the network must not change before the last one is
        yielded.
        """
        if self.known_averages is None:
            yield from (mean for mean, _ in self._pool_all(positions, None))
            return
        dataset, known = self.collator.dataset, self.known_averages.find(self.network)
        every = list(range(len(dataset)) if positions is None else positions)
        batches = (dataset.container, self.collator.abundance, self.top_fraction)
        keys = [(*batches, int(dataset.rows[position])) for position in every]
        missing = {key: position for key, position in zip(keys, every, strict=True) if key not in known}
        computed = self._pool_all(list(missing.values()), None)
        for key in keys:
            if missing.pop(key, None) is not None:  # also if other code has computed it meanwhile
                known[key] = next(computed)[0].cpu()
            yield known[key].to(self.device)

    def pooled(self, positions: Iterable[int] | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the average of each head over each repertoire, (H, S) float64, and all its logits, (N, H), on the CPU.

        The parameter is that of `iterate_outputs`.
        """
        return ((mean.cpu(), logits) for mean, logits in self._pool_all(positions, None))

    def _pool_all(
        self, positions: Iterable[int] | None, rows: Sequence[NDArray[np.int64]] | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the averages, (H, S) float64, and the logits on the CPU, (n, H), of each repertoire."""
        for group in self.groups(positions, rows=rows):
            yield from self._pool(group, rows)

    def groups(
        self, positions: Iterable[int] | None = None, *, rows: Sequence[NDArray[np.int64]] | None = None
    ) -> Iterator[list[int]]:
        """Yield lists of consecutive positions, such that the sequences of a list fit into one chunk.

        While one list is computed, the system reads the sequences of the next from the disk. The parameters are those
        of `iterate_outputs`.
        """
        for group, following in pairwise(chain(self._list_groups(positions, rows), [[]])):
            self.collator.expect(following)
            yield group

    def _list_groups(
        self, positions: Iterable[int] | None, rows: Sequence[NDArray[np.int64]] | None
    ) -> Iterator[list[int]]:
        n = 0
        group: list[int] = []
        for position in range(len(self.collator.dataset)) if positions is None else positions:
            size = self.collator.size(position) if rows is None else len(rows[position])
            if group and n + size > self._chunk:
                yield group
                group, n = [], 0
            group.append(position)
            n += size
        if group:
            yield group

    @property
    def _chunk(self) -> int:
        return chunk_size(self.device) if self.chunk is None else self.chunk

    @torch.no_grad()
    def _output(self, mean: Tensor, position: int) -> Tensor:
        return self.network.combine(mean.float()[None], self.reading_scores(position))[0].cpu()

    def reading_scores(self, position: int) -> Tensor | None:
        """Return the scores of one repertoire from the network's readings, (1, Q, T); None if it has no readings."""
        readings = self.collator.readings
        return None if readings is None else readings.at(torch.tensor([position])).to(self.device)

    @torch.no_grad()
    def _pool(self, group: Sequence[int], rows: Sequence[NDArray[np.int64]] | None) -> list[tuple[Tensor, Tensor]]:
        """Return the averages, (H, S) float64, and the logits on the CPU, (n, H), of each repertoire of a group."""
        if len(group) == 1:
            return [self._pool_alone(group[0], None if rows is None else rows[group[0]])]
        every = [np.arange(self.collator.size(i)) if rows is None else rows[i] for i in group]
        return self._pool_together(group, every)

    def _pool_alone(self, position: int, rows: NDArray[np.int64] | None) -> tuple[Tensor, Tensor]:
        """Pool one repertoire of any size, with a softmax that is accumulated chunk by chunk."""
        scored = None
        if self.top_fraction < 1:
            scored = self.logits(position, rows)
            kept = select_kept_rows(scored, self.top_fraction).numpy()
            rows = kept if rows is None else rows[kept]
        average, seen = Average(self.network), [torch.zeros(0, len(self.network.pooling.queries))]
        for batch in self.batches(position, rows):
            values, logits = self.network.attend(batch)
            average.add(values, logits)
            seen.append(logits.cpu())
        return average.mean(), torch.cat(seen) if scored is None else scored

    def _pool_together(
        self, positions: Sequence[int], rows: Sequence[NDArray[np.int64]]
    ) -> list[tuple[Tensor, Tensor]]:
        """Pool several small repertoires, and read their sequences in one pass."""
        sizes = [len(each) for each in rows]
        scored: Sequence[Tensor] = []
        if self.top_fraction < 1:
            batch = self.collator.take_together(positions, rows).to(self.device)
            scored = self.network.score(batch).cpu().split(sizes)
            rows = [
                each[select_kept_rows(part, self.top_fraction).numpy()] for each, part in zip(rows, scored, strict=True)
            ]
            sizes = [len(each) for each in rows]
        values, logits = self.network.attend(self.collator.take_together(positions, rows).to(self.device))
        means = []
        for own_values, own_logits in zip(values.split(sizes), logits.split(sizes), strict=True):
            average = Average(self.network)
            if len(own_logits):
                average.add(own_values, own_logits)
            means.append(average.mean())
        return list(zip(means, scored or logits.cpu().split(sizes), strict=True))
