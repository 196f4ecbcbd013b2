"""Inference: outputs and attention of whole repertoires, computed in chunks of sequences.

Memory grows with the size of a repertoire only by its attention logits, one per sequence and head, which are returned
with the pooled values.

Letters: N sequences of one repertoire, n selected ones, B repertoires, S values of a sequence, H heads, Q branches, T
outputs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.nn.network import DeepRC, choose_chunk_size
from deeprc.nn.pooled_values import PooledAccumulator, PooledValueCache
from deeprc.nn.sampling import select_top_rows

__all__ = ["Inference", "compute_attention_weights", "select_kept_rows"]


def select_kept_rows(logits: Tensor, top_fraction: float) -> Tensor:
    """Return the rows of the sequences that a prediction averages over, (n,) int64, from their logits (N, H)."""
    return select_top_rows(logits, torch.tensor([0, len(logits)]), top_fraction)[0]


def compute_attention_weights(logits: Tensor, top_fraction: float) -> Tensor:
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


class _Selection(NamedTuple):
    """A repertoire, by its position in the dataset, and the rows of its sequences that are read, (n,); None: all."""

    position: int
    rows: NDArray[np.int64] | None = None


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
    pooled_value_cache
        Pooled values of whole repertoires that were computed before, which are not computed again; None keeps none.
    """

    network: DeepRC
    collator: Collator
    top_fraction: float = 1.0
    chunk: int | None = None
    pooled_value_cache: PooledValueCache | None = None

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return self.network.pooling.queries.device

    @property
    def _chunk_size(self) -> int:
        return choose_chunk_size(self.device) if self.chunk is None else self.chunk

    def iterate_batches(self, position: int, rows: NDArray[np.int64] | None = None) -> Iterator[RepertoireBatch]:
        """Yield the sequences of one repertoire in chunks, on the network's device: all, or those at `rows`, (n,)."""
        n, size = self.collator.count_sequences(position) if rows is None else len(rows), self._chunk_size
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            yield self.collator.take(position, part if rows is None else rows[part]).to(self.device)

    @torch.no_grad()
    def compute_logits(self, position: int, rows: NDArray[np.int64] | None = None) -> Tensor:
        """Return the attention logits of one repertoire, (N, H) float32, on the CPU.

        They are those of all sequences, or only of those at `rows` within the repertoire, (n,).
        """
        parts = [self.network.compute_logits(batch).cpu() for batch in self.iterate_batches(position, rows)]
        return torch.cat(parts) if parts else torch.zeros(0, len(self.network.pooling.queries))

    def compute_outputs(self, positions: Iterable[int] | None = None) -> Tensor:
        """Return the outputs of at least one repertoire before their activation, (B, T), on the CPU.

        `positions` are those of `iterate_outputs`.
        """
        return torch.stack([*self.iterate_outputs(positions)])

    def iterate_outputs(
        self, positions: Iterable[int] | None = None, *, rows: Sequence[NDArray[np.int64]] | None = None
    ) -> Iterator[Tensor]:
        """Yield the outputs of each repertoire before their activation, (T,), on the CPU.

        Parameters
        ----------
        positions
            Positions of the repertoires in the collator's dataset; None takes all in their order.
        rows
            Rows of the sequences to use, (n,), for each of these positions; None takes all sequences.
        """
        listed = self._list_positions(positions)
        if rows is None:
            pooled_values = self.iterate_pooled(listed)
        else:
            selections = [_Selection(*pair) for pair in zip(listed, rows, strict=True)]
            pooled_values = (pooled for pooled, _ in self._pool_selections(selections))
        for position, pooled in zip(listed, pooled_values, strict=True):
            yield self._compute_output(pooled, position)

    def iterate_pooled(self, positions: Iterable[int] | None = None) -> Iterator[Tensor]:
        """Yield the pooled values of each whole repertoire, (H, S) float64, on the network's device.

        The parameter is that of `iterate_outputs`. The weights of the network must not change before the last one is
        yielded.
        """
        listed = self._list_positions(positions)
        if self.pooled_value_cache is None:
            yield from (pooled for pooled, _ in self._pool_selections([*map(_Selection, listed)]))
            return
        cached = self.pooled_value_cache.find(self.network)
        keys = [self._make_cache_key(position) for position in listed]
        missing = {key: position for key, position in zip(keys, listed, strict=True) if key not in cached}
        computed = self._pool_selections([*map(_Selection, missing.values())])
        for key in keys:
            if missing.pop(key, None) is not None:  # also if other code has computed it meanwhile
                cached[key] = next(computed)[0].cpu()
            yield cached[key].to(self.device)

    def _make_cache_key(self, position: int) -> Hashable:
        """Return what the pooled values of a repertoire depend on besides the weights of the network."""
        dataset = self.collator.dataset
        index = int(dataset.repertoire_indices[position])
        return dataset.container, self.collator.abundance, self.top_fraction, index

    def iterate_pooled_with_logits(self, positions: Iterable[int] | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the pooled values of each repertoire, (H, S) float64, and all its logits, (N, H), on the CPU.

        The parameter is that of `iterate_outputs`.
        """
        selections = [*map(_Selection, self._list_positions(positions))]
        return ((pooled.cpu(), logits) for pooled, logits in self._pool_selections(selections))

    def iterate_groups(self, positions: Iterable[int] | None = None) -> Iterator[list[int]]:
        """Yield lists of consecutive positions, such that the sequences of a list fit into one chunk.

        While one list is computed, the system reads the sequences of the next from the disk. The parameter is that of
        `iterate_outputs`.
        """
        selections = [*map(_Selection, self._list_positions(positions))]
        return ([selection.position for selection in group] for group in self._group_selections(selections))

    def take_branch_scores(self, position: int) -> Tensor | None:
        """Return the scores of one repertoire from the network's branches, (1, Q, T); None if it has no branches."""
        branches = self.collator.branches
        return None if branches is None else branches.take(torch.tensor([position])).to(self.device)

    def _list_positions(self, positions: Iterable[int] | None) -> list[int]:
        return list(range(len(self.collator.dataset)) if positions is None else positions)

    def _group_selections(self, selections: Sequence[_Selection]) -> Iterator[list[_Selection]]:
        """Yield groups of repertoires whose sequences fit into one chunk; see `iterate_groups`."""
        for group, next_group in pairwise(chain(self._divide_into_groups(selections), [[]])):
            self.collator.prefetch([selection.position for selection in next_group])
            yield group

    def _divide_into_groups(self, selections: Sequence[_Selection]) -> Iterator[list[_Selection]]:
        """Yield groups of consecutive repertoires that together have at most as many sequences as a chunk."""
        group: list[_Selection] = []
        n_sequences = 0
        for selection in selections:
            position, rows = selection
            size = self.collator.count_sequences(position) if rows is None else len(rows)
            if group and n_sequences + size > self._chunk_size:
                yield group
                group, n_sequences = [], 0
            group.append(selection)
            n_sequences += size
        if group:
            yield group

    def _pool_selections(self, selections: Sequence[_Selection]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the pooled values, (H, S) float64, and the logits on the CPU, (n, H), of each repertoire."""
        for group in self._group_selections(selections):
            yield from self._pool_group(group)

    @torch.no_grad()
    def _pool_group(self, group: Sequence[_Selection]) -> list[tuple[Tensor, Tensor]]:
        """Return what `_pool_selections` yields for the repertoires of a group."""
        return [self._pool_in_chunks(*group[0])] if len(group) == 1 else self._pool_in_one_batch(group)

    def _pool_in_chunks(self, position: int, rows: NDArray[np.int64] | None) -> tuple[Tensor, Tensor]:
        """Pool one repertoire of any size, with a softmax that is accumulated chunk by chunk."""
        all_logits = None
        if self.top_fraction < 1:
            all_logits = self.compute_logits(position, rows)
            kept = select_kept_rows(all_logits, self.top_fraction).numpy()
            rows = kept if rows is None else rows[kept]
        accumulator, logit_parts = PooledAccumulator(self.network), [torch.zeros(0, len(self.network.pooling.queries))]
        for batch in self.iterate_batches(position, rows):
            values, logits = self.network.attend(batch)
            accumulator.add(values, logits)
            logit_parts.append(logits.cpu())
        return accumulator.compute_pooled(), torch.cat(logit_parts) if all_logits is None else all_logits

    def _pool_in_one_batch(self, group: Sequence[_Selection]) -> list[tuple[Tensor, Tensor]]:
        """Pool several small repertoires, and read their sequences in one pass."""
        positions = [position for position, _ in group]
        rows = [np.arange(self.collator.count_sequences(p)) if own is None else own for p, own in group]
        sizes = [len(rows_of_repertoire) for rows_of_repertoire in rows]
        all_logits: Sequence[Tensor] = []
        if self.top_fraction < 1:
            batch = self.collator.take_together(positions, rows).to(self.device)
            all_logits = self.network.compute_logits(batch).cpu().split(sizes)
            rows = [
                rows_of_repertoire[select_kept_rows(logits, self.top_fraction).numpy()]
                for rows_of_repertoire, logits in zip(rows, all_logits, strict=True)
            ]
            sizes = [len(rows_of_repertoire) for rows_of_repertoire in rows]
        values, logits = self.network.attend(self.collator.take_together(positions, rows).to(self.device))
        pooled = []
        for repertoire_values, repertoire_logits in zip(values.split(sizes), logits.split(sizes), strict=True):
            accumulator = PooledAccumulator(self.network)
            if len(repertoire_logits):
                accumulator.add(repertoire_values, repertoire_logits)
            pooled.append(accumulator.compute_pooled())
        return list(zip(pooled, all_logits or logits.cpu().split(sizes), strict=True))

    @torch.no_grad()
    def _compute_output(self, pooled: Tensor, position: int) -> Tensor:
        """Return the outputs of a repertoire, (T,), from its pooled values, (H, S)."""
        return self.network.compute_outputs(pooled.float()[None], self.take_branch_scores(position))[0].cpu()
