"""`RepertoireBatch`: several repertoires' sequences as flat residues and offsets, without padding.

Letters: N sequences of all repertoires end to end, B repertoires, R residues.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.features import AbundanceMode, abundance_scale, inverse_standard_deviation

__all__ = ["BatchMaker", "RepertoireBatch", "draw_rows"]


@dataclass(frozen=True)
class RepertoireBatch:
    """What the network sees.

    Attributes
    ----------
    residues
        Amino-acid indices, (R,) uint8, in which the sequences lie anywhere.
    starts, lengths
        Of each sequence in `residues`, (N,) int64.
    residue_scale, position_scale
        Factors of each sequence's one-hot and positional features, (N,) float32: the abundance scale over the
        repertoire's standard deviation, and 1 over it.
    offsets
        Repertoire b's sequences are offsets[b] to offsets[b + 1], (B + 1,) int64.
    """

    residues: Tensor
    starts: Tensor
    lengths: Tensor
    residue_scale: Tensor
    position_scale: Tensor
    offsets: Tensor

    def take(self, rows: Tensor, offsets: Tensor) -> RepertoireBatch:
        """Return these sequences, rows (n,) in repertoire order, with their new offsets (B + 1,)."""
        return replace(
            self,
            starts=self.starts[rows],
            lengths=self.lengths[rows],
            residue_scale=self.residue_scale[rows],
            position_scale=self.position_scale[rows],
            offsets=offsets,
        )

    def compact(self) -> RepertoireBatch:
        """Return the batch with its own residues only, its sequences lying end to end."""
        offsets = torch.zeros(len(self.lengths) + 1, dtype=torch.int64, device=self.lengths.device)
        torch.cumsum(self.lengths, 0, out=offsets[1:])
        shift = torch.repeat_interleave(self.starts - offsets[:-1], self.lengths)  # (R,)
        residues = self.residues[torch.arange(len(shift), device=shift.device) + shift]
        return replace(self, residues=residues, starts=offsets[:-1])

    def to(self, device: torch.device) -> RepertoireBatch:
        """Return the batch on another device; there, only its own sequences' residues are kept."""
        if device == self.residues.device:
            return self
        compact = self.compact()
        moved = (getattr(compact, f.name).to(device, non_blocking=True) for f in fields(self))
        return RepertoireBatch(*moved)


def draw_rows(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Choose up to `most` of n rows at random, without replacement, in ascending order."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False, shuffle=False))


class BatchMaker:
    """Make batches from a dataset: random subsamples for training, ranges of sequences for inference.

    Parameters
    ----------
    dataset
        The repertoires; positions given to the methods count within it.
    abundance
        The abundance scale of the one-hot features.
    """

    def __init__(self, dataset: RepertoireDataset, abundance: AbundanceMode) -> None:
        self.dataset = dataset
        self.abundance = abundance
        self._residues = torch.from_numpy(dataset.container.residues)
        self._inverse_std: dict[int, float] = {}

    def sample(self, positions: NDArray[np.int64], n_sequences: int, rng: np.random.Generator) -> RepertoireBatch:
        """Draw up to `n_sequences` sequences of each repertoire at random, without replacement."""
        rows = []
        for position in positions:
            repertoire = self.dataset[int(position)]
            rows.append(draw_rows(len(repertoire), n_sequences, rng) + repertoire.start)
        return self._batch(positions, rows)

    def take(self, position: int, rows: NDArray[np.int64]) -> RepertoireBatch:
        """Return the given sequences of one repertoire; rows count within it, (n,) int64."""
        return self._batch(np.array([position]), [rows + self.dataset[position].start])

    def _batch(self, positions: NDArray[np.int64], rows: list[NDArray[np.int64]]) -> RepertoireBatch:
        container = self.dataset.container
        sizes = [len(chosen) for chosen in rows]
        at = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        starts = np.asarray(container.sequence_offsets[at])
        lengths = container.sequence_offsets[at + 1] - starts
        inverse_std = np.repeat([self.inverse_std(int(p)) for p in positions], sizes).astype(np.float32)
        scale = abundance_scale(container.counts[at], self.abundance) * inverse_std
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        arrays = (starts, np.asarray(lengths), scale, inverse_std, offsets)
        return RepertoireBatch(self._residues, *(torch.from_numpy(array) for array in arrays))

    def inverse_std(self, position: int) -> float:
        """Return 1 / the standard deviation of the features of one whole repertoire; computed once."""
        if position not in self._inverse_std:
            repertoire = self.dataset[position]
            self._inverse_std[position] = inverse_standard_deviation(
                repertoire.lengths, np.asarray(repertoire.counts), self.abundance
            )
        return self._inverse_std[position]
