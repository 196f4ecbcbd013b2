"""Batches of repertoires: their sequences as flat residues and offsets, without padding.

A position is the index of a repertoire in a dataset. A row is the index of a sequence in its repertoire or batch, and a
column row its index in the columns of a container.
Letters: N sequences of all repertoires end to end, n chosen ones, B repertoires, Q branches, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation.simulated_dataset import SimulatedDataset
from deeprc.device import has_triton
from deeprc.nn.branches import BranchScores
from deeprc.nn.features import AbundanceMode
from deeprc.nn.genes import GeneNames, check_genes
from deeprc.nn.sampling import draw_rows
from deeprc.nn.sequence_sources import DeviceSource, MappedSource, SequenceSource, SimulatedSource
from deeprc.nn.sequence_tensors import (
    CPU,
    DrawnRows,
    RepertoireLocations,
    RepertoireTable,
    count_bytes,
    is_on_device,
    locate_repertoires,
)
from deeprc.nn.sequences import SequenceBatch, move

__all__ = ["CacheChoice", "Collator", "RepertoireBatch", "choose_cache_device"]

CacheChoice = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class RepertoireBatch:
    """The sequences of several repertoires, as the network reads them.

    Attributes
    ----------
    sequences
        The N sequences, repertoire by repertoire.
    offsets
        Bounds of the repertoires, (B + 1,) int64: the sequences of repertoire b are offsets[b] to offsets[b + 1].
        Sequences beyond offsets[B] belong to no repertoire: on CUDA they fill a batch up to a size that the host knows.
    genes
        Index of each sequence's V and J gene, see `GeneNames`, (N, 2) int64; None if the network reads no genes.
    branch_scores
        Scores of each repertoire from the network's branches, see `Branches`, (B, Q, T); None if it has no branches.
    """

    sequences: SequenceBatch
    offsets: Tensor
    genes: Tensor | None = None
    branch_scores: Tensor | None = None

    def take(self, rows: Tensor | slice, offsets: Tensor) -> RepertoireBatch:
        """Return the sequences of some rows, (n,) or a slice, ordered by repertoire, with new offsets (B + 1,).

        The repertoires and their branch scores stay the same.
        """
        genes = None if self.genes is None else self.genes[rows]
        return RepertoireBatch(self.sequences.take(rows), offsets, genes, self.branch_scores)

    def take_repertoires(self, selection: slice) -> RepertoireBatch:
        """Return a slice of the repertoires."""
        offsets = self.offsets[selection.start : selection.stop + 1]
        part = self.take(slice(int(offsets[0]), int(offsets[-1])), offsets - offsets[0])
        return part if part.branch_scores is None else replace(part, branch_scores=part.branch_scores[selection])

    def iterate_chunks(self, size: int) -> Iterator[RepertoireBatch]:
        """Yield batches of `size` sequences, each as if it were one repertoire, without branch scores."""
        n_sequences, without_scores = self.sequences.n_sequences, replace(self, branch_scores=None)
        for first in range(0, n_sequences, size):
            rows = slice(first, min(first + size, n_sequences))
            offsets = torch.arange(2, device=self.offsets.device) * (rows.stop - rows.start)  # (0, number of rows)
            yield without_scores.take(rows, offsets)

    def to(self, device: torch.device) -> RepertoireBatch:
        """Return the batch on another device, with the residues of its own sequences only."""
        if device == self.sequences.device:
            return self
        genes = None if self.genes is None else move(self.genes, device)
        scores = None if self.branch_scores is None else move(self.branch_scores, device)
        return RepertoireBatch(self.sequences.to(device), move(self.offsets, device), genes, scores)

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors of the batch."""
        yield from self.sequences.tensors()
        yield self.offsets
        for optional in (self.genes, self.branch_scores):
            if optional is not None:
                yield optional


class Collator:
    """A maker of batches from a dataset: random subsamples for training, given sequences for inference.

    Parameters
    ----------
    dataset
        The repertoires. The methods take the positions of repertoires in it.
    abundance
        Abundance scale of the one-hot features, see `compute_abundance_scale`.
    gene_names
        Genes that the network knows, see `DeepRC.gene_names`; None makes batches without genes.
    branches
        Scores of the dataset from the network's branches, which `draw` and `sample` add; None if it has no branches.
    device
        Device on which batches are made; see `choose_cache_device`. The CPU reads the memory-mapped container. To
        another device, all sequences of the container are copied once. Sequences of a simulated dataset are made
        on the CPU.

    Raises
    ------
    InputError
        If the network knows genes and the sequences have none.
    """

    def __init__(
        self,
        dataset: RepertoireDataset,
        abundance: AbundanceMode,
        *,
        gene_names: GeneNames | None = None,
        branches: BranchScores | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.dataset = dataset
        self.abundance = abundance
        self.gene_names = gene_names
        self.branches = branches
        self.device = device
        if gene_names is not None:
            check_genes(dataset)
        locations = locate_repertoires(dataset, device)
        self._source = self._make_source(locations)
        sizes = torch.from_numpy(dataset.container.repertoire_offsets).diff()[dataset.repertoire_indices]
        inverse_stds = torch.full((len(dataset),), torch.nan, dtype=torch.float32)  # NaN until they are needed
        self._table = RepertoireTable(sizes, torch.from_numpy(locations.first_row), inverse_stds)
        if device.type != "cpu":
            self._cache_inverse_stds(np.arange(len(dataset)))
            self._table = RepertoireTable(*(column.to(device) for column in self._table))

    def _make_source(self, locations: RepertoireLocations) -> SequenceSource:
        if isinstance(self.dataset, SimulatedDataset):
            return SimulatedSource(self.dataset, self.abundance, self.gene_names)
        if self.device.type == "cpu":
            return MappedSource(self.dataset, self.abundance, self.gene_names, locations.part)
        return DeviceSource(self.dataset, self.abundance, self.gene_names, self.device)

    def prefetch(self, positions: Iterable[int]) -> None:
        """Ask the system to read repertoires from the disk, by their positions, because they are needed soon."""
        self._source.prefetch(list(positions))

    def sample(self, positions: NDArray[np.int64], n_sequences: int, rng: np.random.Generator) -> RepertoireBatch:
        """Draw up to `n_sequences` sequences of each repertoire at random, without replacement; see `draw_rows`."""
        keys = torch.from_numpy(rng.integers(2**63, size=len(positions))).to(self.device)
        return self.draw(torch.from_numpy(positions).to(self.device), n_sequences, keys)

    def draw(self, positions: Tensor, n_sequences: int, keys: Tensor, *, total: int | None = None) -> RepertoireBatch:
        """Draw like `sample`, but with keys, (B,) int64, and positions, (B,) int64, on the collator's device.

        On CUDA, the batch is filled up to `total` sequences, if it is given, so that the host does not wait for the
        device. It must be at least the number of drawn sequences.
        """
        if total is not None and self.device.type == "cuda" and has_triton() and isinstance(self._source, DeviceSource):
            drawn = self._source.draw(self._table, positions, keys, max_rows=n_sequences, total=total)
            batch = RepertoireBatch(drawn.sequences, drawn.offsets, drawn.genes)
        else:
            draw = draw_rows(self._table.sizes[positions], n_sequences, keys, total=total)
            batch = self._look_up(self._table.locate(positions, draw.rows, draw.segments, draw.offsets))
        return batch if self.branches is None else replace(batch, branch_scores=self.branches.take(positions))

    def count_sequences(self, position: int) -> int:
        """Return the number of sequences of a repertoire."""
        return int(self._table.sizes[position])

    def take(self, position: int, rows: NDArray[np.int64] | slice) -> RepertoireBatch:
        """Return some sequences of one repertoire, by their rows within it, (n,) int64 or a slice without step."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.count_sequences(position))
            rows = np.arange(start, stop)
        column_rows = (torch.from_numpy(rows) + int(self._table.first_rows[position])).to(self.device)
        segments = torch.zeros(len(rows), dtype=torch.int64, device=self.device)
        offsets = torch.tensor([0, len(rows)], device=self.device)
        positions = torch.tensor([int(position)], device=self.device)
        return self._look_up(DrawnRows(positions, column_rows, segments, offsets))

    def take_together(self, positions: Sequence[int], rows: Sequence[NDArray[np.int64]]) -> RepertoireBatch:
        """Return some sequences of several repertoires as one batch.

        `rows` has the rows of the sequences within their repertoire, (n,) int64, for each of the positions.
        """
        sizes = np.array([len(rows_of_repertoire) for rows_of_repertoire in rows], np.int64)
        segments = torch.from_numpy(np.repeat(np.arange(len(rows)), sizes)).to(self.device)
        repertoire_rows = torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *rows])).to(self.device)
        repertoire_positions = torch.tensor(list(positions), dtype=torch.int64, device=self.device)
        offsets = torch.from_numpy(compute_offsets(sizes)).to(self.device)
        return self._look_up(self._table.locate(repertoire_positions, repertoire_rows, segments, offsets))

    def _look_up(self, drawn: DrawnRows) -> RepertoireBatch:
        if self.device.type == "cpu":
            self._cache_inverse_stds(drawn.positions.numpy())
        sequences, genes = self._source.look_up(drawn, self._table.inverse_stds[drawn.positions])
        return RepertoireBatch(sequences, drawn.offsets, genes)

    def get_inverse_std(self, position: int) -> float:
        """Return 1 / the standard deviation of the features of one whole repertoire; it is computed once."""
        if self.device.type == "cpu":
            self._cache_inverse_stds(np.array([position]))
        return float(self._table.inverse_stds[position])

    def _cache_inverse_stds(self, positions: NDArray[np.int64]) -> None:
        inverse_stds = self._table.inverse_stds
        for position in positions[np.isnan(inverse_stds.numpy()[positions])]:
            inverse_stds[position] = self._source.compute_inverse_std(int(position))


def choose_cache_device(
    dataset: RepertoireDataset, choice: CacheChoice, device: torch.device, *, with_genes: bool = False
) -> torch.device:
    """Return the device that holds the sequences of a dataset during training: that of the network, or the CPU.

    Parameters
    ----------
    dataset
        The repertoires. For a simulated dataset the result is the CPU.
    choice
        `always` is the device of the network, `never` the CPU; `auto` is the device of the network if the sequences
        need at most half of its free memory.
    device
        Device of the network.
    with_genes
        Whether the network reads genes; then they are copied, too.
    """
    if device.type != "cuda" or choice == "never" or isinstance(dataset, SimulatedDataset):
        return CPU
    container = dataset.sequence_container
    if choice == "always" or is_on_device(container, device):
        return device
    return device if count_bytes(container, with_genes=with_genes) <= torch.cuda.mem_get_info(device)[0] // 2 else CPU
