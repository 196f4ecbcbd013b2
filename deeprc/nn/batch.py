"""Batches of repertoires: their sequences as flat residues and offsets, without padding.

Letters: N sequences of all repertoires end to end, B repertoires, R residues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.compilation import njit
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.read_ahead import ReadAhead
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.datasets.simulation.dataset import SimulatedDataset
from deeprc.device import has_triton
from deeprc.nn.columns import (
    CPU,
    Columns,
    DrawnRows,
    RepertoireTable,
    count_bytes,
    find_place,
    is_on,
    load_columns,
    load_gene_columns,
)
from deeprc.nn.features import ABUNDANCE_MODES, AbundanceMode, abundance_scale, inverse_standard_deviation
from deeprc.nn.genes import GeneNames, check_genes
from deeprc.nn.readings import ReadingScores
from deeprc.nn.sampling import COMPILED_CODE, draw_rows
from deeprc.nn.sequences import BatchArrays, SequenceBatch, join_sequences, move

__all__ = ["CacheChoice", "Collator", "RepertoireBatch", "choose_cache_device"]

CacheChoice = Literal["auto", "always", "never"]

_UNSIGNED = 0xFFFFFFFF  # mask that restores the counts, which are unsigned, from the bits of int32
_UNSIGNED_16 = 0xFFFF  # mask that restores the codes of genes from the bits of int16
_NONE, _LOG = ABUNDANCE_MODES.index("none"), ABUNDANCE_MODES.index("log")
_LENGTH_STEP = 8  # a batch's greatest length is rounded up to a multiple, so that few tables of positions are needed


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
    reading_scores
        Scores of each repertoire from the network's readings, see `Readings`, (B, Q, T); None if it has no readings.
    """

    sequences: SequenceBatch
    offsets: Tensor
    genes: Tensor | None = None
    reading_scores: Tensor | None = None

    def take(self, rows: Tensor | slice, offsets: Tensor) -> RepertoireBatch:
        """Return the sequences of some rows, (n,) or a slice, ordered by repertoire, with new offsets (B + 1,)."""
        genes = None if self.genes is None else self.genes[rows]
        return RepertoireBatch(self.sequences.take(rows), offsets, genes, self.reading_scores)

    def take_repertoires(self, some: slice) -> RepertoireBatch:
        """Return a slice of the repertoires."""
        offsets = self.offsets[some.start : some.stop + 1]
        part = self.take(slice(int(offsets[0]), int(offsets[-1])), offsets - offsets[0])
        return part if part.reading_scores is None else replace(part, reading_scores=part.reading_scores[some])

    def chunks(self, size: int) -> Iterator[RepertoireBatch]:
        """Yield batches of `size` sequences, each as if it were one repertoire."""
        n_sequences = self.sequences.n_sequences
        for first in range(0, n_sequences, size):
            rows = slice(first, min(first + size, n_sequences))
            yield self.take(rows, torch.arange(2, device=self.offsets.device) * (rows.stop - rows.start))

    def to(self, device: torch.device) -> RepertoireBatch:
        """Return the batch on another device, with the residues of its own sequences only."""
        if device == self.sequences.device:
            return self
        genes, scores = (None if each is None else move(each, device) for each in (self.genes, self.reading_scores))
        return RepertoireBatch(self.sequences.to(device), move(self.offsets, device), genes, scores)

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors of the batch."""
        yield from self.sequences.tensors()
        yield self.offsets
        for optional in (self.genes, self.reading_scores):
            if optional is not None:
                yield optional


class Collator:
    """A maker of batches from a dataset: random subsamples for training, given sequences for inference.

    Parameters
    ----------
    dataset
        The repertoires. The methods take the positions of repertoires in it.
    abundance
        Abundance scale of the one-hot features, see `abundance_scale`.
    genes
        Genes that the network knows, see `DeepRC.gene_names`; None makes batches without genes.
    readings
        Scores of the dataset from the network's readings, which `draw` and `sample` add; None if it has no readings.
    device
        Device on which batches are made: the CPU, which reads the memory-mapped container, or a device to which all
        sequences of the container are copied once, see `choose_cache_device`. Sequences of a simulated dataset are made
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
        genes: GeneNames | None = None,
        readings: ReadingScores | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.dataset = dataset
        self.abundance = abundance
        self.genes = genes
        self.readings = readings
        self.device = device
        if genes is not None:
            check_genes(dataset)
        virtual = isinstance(dataset, SimulatedDataset)
        self._columns = [] if virtual else load_columns(dataset.sequence_container, device)
        self._calls = [] if virtual or genes is None else load_gene_columns(dataset.sequence_container, genes, device)
        self._read_ahead = self._make_read_ahead()
        bounds = torch.from_numpy(dataset.container.repertoire_offsets)
        place = find_place(dataset, device)
        self._part = place.part  # (B,)
        inverse_stds = torch.full((len(dataset),), torch.nan, dtype=torch.float32)  # NaN until they are needed
        self._table = RepertoireTable(bounds.diff()[dataset.rows], torch.from_numpy(place.first), inverse_stds)
        if device.type != "cpu":
            self._cache_inverse_stds(np.arange(len(dataset)))
            self._table = RepertoireTable(*(column.to(device) for column in self._table))

    def _make_read_ahead(self) -> ReadAhead | None:
        """Return the object that asks the system to read sequences in advance; None if they are not in a file."""
        if isinstance(self.dataset, SimulatedDataset) or self.device.type != "cpu":
            return None
        fields = [] if self.abundance == "none" else ["counts"]
        return ReadAhead(self.dataset.sequence_container, fields + ([] if self.genes is None else [*GENE_FIELDS]))

    def expect(self, positions: Iterable[int]) -> None:
        """Ask the system to read repertoires from the disk, by their positions, because they are needed soon."""
        if self._read_ahead is not None:
            self._read_ahead(self.dataset.rows[list(positions)].tolist())

    def sample(self, positions: NDArray[np.int64], n_sequences: int, rng: np.random.Generator) -> RepertoireBatch:
        """Draw up to `n_sequences` sequences of each repertoire at random, without replacement; see `draw_rows`."""
        keys = torch.from_numpy(rng.integers(2**63, size=len(positions))).to(self.device)
        return self.draw(torch.from_numpy(positions).to(self.device), n_sequences, keys)

    def draw(self, positions: Tensor, n_sequences: int, keys: Tensor, *, total: int | None = None) -> RepertoireBatch:
        """Draw like `sample`, but with keys, (B,) int64, and positions, (B,) int64, on the collator's device.

        On CUDA, the batch is filled up to `total` sequences, if it is given, so that the host does not wait for the
        device. It must be at least the number of drawn sequences.
        """
        if total is not None and self.device.type == "cuda" and has_triton():
            batch = self._draw_on_cuda(positions, n_sequences, keys, total)
        else:
            rows, owner, offsets = draw_rows(self._table.sizes[positions], n_sequences, keys, total=total)
            batch = self._make_batch(self._table.locate(positions, rows, owner, offsets))
        return batch if self.readings is None else replace(batch, reading_scores=self.readings.at(positions))

    def _draw_on_cuda(self, positions: Tensor, n_sequences: int, keys: Tensor, total: int) -> RepertoireBatch:
        """Draw the batch of `draw` by one compiled function."""
        from deeprc.nn.draw_cuda import draw_sequences

        (columns,) = self._columns
        assert columns.max_length is not None
        sequences, offsets, column_rows = draw_sequences(
            columns,
            self._table,
            positions,
            keys,
            max_rows=n_sequences,
            total=total,
            abundance=self.abundance,
            max_length=_round_up_length(columns.max_length),
        )
        return RepertoireBatch(sequences, offsets, self._take_genes(0, column_rows))

    def size(self, position: int) -> int:
        """Return the number of sequences of a repertoire."""
        return int(self._table.sizes[position])

    def take(self, position: int, rows: NDArray[np.int64] | slice) -> RepertoireBatch:
        """Return some sequences of one repertoire, by their rows within it, (n,) int64 or a slice without step."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.size(position))
            rows = np.arange(start, stop)
        column_rows = (torch.from_numpy(rows) + int(self._table.first_rows[position])).to(self.device)
        owner = torch.zeros(len(rows), dtype=torch.int64, device=self.device)
        offsets = torch.tensor([0, len(rows)], device=self.device)
        positions = torch.tensor([int(position)], device=self.device)
        return self._make_batch(DrawnRows(positions, column_rows, owner, offsets))

    def take_together(self, positions: Sequence[int], rows: Sequence[NDArray[np.int64]]) -> RepertoireBatch:
        """Return some sequences of several repertoires as one batch, by their rows within each, (n,) int64."""
        sizes = np.array([len(each) for each in rows], np.int64)
        owner = torch.from_numpy(np.repeat(np.arange(len(rows)), sizes)).to(self.device)
        within = torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *rows])).to(self.device)
        where = torch.tensor(list(positions), dtype=torch.int64, device=self.device)
        offsets = torch.from_numpy(compute_offsets(sizes)).to(self.device)
        return self._make_batch(self._table.locate(where, within, owner, offsets))

    def _make_batch(self, drawn: DrawnRows) -> RepertoireBatch:
        if self.device.type == "cpu":
            self._cache_inverse_stds(drawn.positions.numpy())
            return self._simulate(drawn) if isinstance(self.dataset, SimulatedDataset) else self._make_on_cpu(drawn)
        (columns,) = self._columns
        assert columns.max_length is not None
        rows = drawn.column_rows.clamp(max=len(columns.counts) - 1)  # those that only fill the batch may be beyond
        starts = columns.offsets.index_select(0, rows)
        lengths = columns.offsets.index_select(0, rows + 1) - starts
        inverse_std = self._table.inverse_stds[drawn.positions].index_select(0, drawn.owner)
        counts = columns.counts.index_select(0, rows).long() & _UNSIGNED
        scale = abundance_scale(counts, self.abundance) * inverse_std
        max_length = _round_up_length(columns.max_length)
        sequences = SequenceBatch(columns.residues, starts, lengths, scale, inverse_std, max_length)
        return RepertoireBatch(sequences, drawn.offsets, self._take_genes(0, rows))

    def _make_on_cpu(self, drawn: DrawnRows) -> RepertoireBatch:
        """Return a batch whose residues stay where they are, or are copied if they lie in several parts."""
        part = self._part[drawn.positions.numpy()]
        changes = np.flatnonzero(np.diff(part)) + 1
        if not len(changes):
            index = int(part[0]) if len(part) else 0
            sequences = self._look_up_on_cpu(self._columns[index], drawn)
            return RepertoireBatch(sequences, drawn.offsets, self._take_genes(index, drawn.column_rows))
        found, genes = [], []
        for first, stop in pairwise([0, *changes.tolist(), len(part)]):  # repertoires of one part
            index, own = int(part[first]), drawn.take_repertoires(first, stop)
            found.append(self._look_up_on_cpu(self._columns[index], own))
            genes.append(self._take_genes(index, own.column_rows))
        known = [each for each in genes if each is not None]
        return RepertoireBatch(join_sequences(found), drawn.offsets, torch.cat(known) if known else None)

    def _look_up_on_cpu(self, columns: Columns, drawn: DrawnRows) -> SequenceBatch:
        """Return the drawn sequences, all of which lie in these columns."""
        starts, lengths = torch.empty((2, len(drawn.owner)), dtype=torch.int64)
        scales = torch.empty((2, len(drawn.owner)), dtype=torch.float32)
        sequences = SequenceBatch(columns.residues, starts, lengths, scales[0], scales[1], max_length=0)
        inverse_std = self._table.inverse_stds[drawn.positions]
        read = (drawn.column_rows, drawn.owner, columns.offsets, columns.counts, inverse_std)
        inputs = (tensor.numpy() for tensor in read)
        with COMPILED_CODE:
            longest = _look_up(*inputs, ABUNDANCE_MODES.index(self.abundance), sequences.arrays())
        return sequences._replace(max_length=_round_up_length(longest))

    def _take_genes(self, part: int, rows: Tensor) -> Tensor | None:
        """Return the indices of the V and J genes, (N, 2), of the sequences at rows, (N,), of the columns of a part."""
        if self.genes is None:
            return None
        found = [indices[codes.index_select(0, rows).long() & _UNSIGNED_16] for codes, indices in self._calls[part]]
        return torch.stack(found, dim=1)

    def _simulate(self, drawn: DrawnRows) -> RepertoireBatch:
        """Make the drawn sequences of a simulated dataset, and return their batch."""
        assert isinstance(self.dataset, SimulatedDataset)
        inverse_std = self._table.inverse_stds[drawn.positions][drawn.owner]
        with COMPILED_CODE:
            table = self.dataset.container.take(drawn.column_rows.numpy())
        residues, lengths, counts = map(torch.from_numpy, (table.residues, table.lengths, table.counts))
        starts = lengths.cumsum(0) - lengths
        scale = abundance_scale(counts.long(), self.abundance) * inverse_std
        max_length, genes = _round_up_length(int(lengths.max()) if len(lengths) else 0), None
        if self.genes is not None:
            genes = torch.from_numpy(self.genes.indices(table.v_call, table.j_call, len(lengths)))
        sequences = SequenceBatch(residues, starts, lengths, scale, inverse_std, max_length)
        return RepertoireBatch(sequences, drawn.offsets, genes)

    def inverse_std(self, position: int) -> float:
        """Return 1 / the standard deviation of the features of one whole repertoire; it is computed once."""
        if self.device.type == "cpu":
            self._cache_inverse_stds(np.array([position]))
        return float(self._table.inverse_stds[position])

    def _cache_inverse_stds(self, positions: NDArray[np.int64]) -> None:
        known = self._table.inverse_stds
        for position in positions[np.isnan(known.numpy()[positions])]:
            known[position] = self._compute_inverse_std(int(position))

    def _compute_inverse_std(self, position: int) -> float:
        if not isinstance(self.dataset, SimulatedDataset):
            repertoire = self.dataset[position]
            return inverse_standard_deviation(repertoire.lengths, repertoire.counts, self.abundance)
        index, known = int(self.dataset.rows[position]), self.dataset.container.inverse_stds
        if (index, self.abundance) not in known:
            with COMPILED_CODE:
                lengths, counts = self.dataset.cohort.draw_lengths_and_counts(index)
            known[index, self.abundance] = inverse_standard_deviation(lengths, counts, self.abundance)
        return known[index, self.abundance]


def _round_up_length(length: int) -> int:
    return -(-length // _LENGTH_STEP) * _LENGTH_STEP


@njit(parallel=True, nogil=True)
def _look_up(
    at: NDArray[np.int64],
    owner: NDArray[np.int64],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int32],
    inverse_std: NDArray[np.float32],
    mode: int,
    sequences: BatchArrays,
) -> int:
    """Write starts, lengths and scales of a batch in one pass over memory; return the greatest length.

    The batch has the sequences `at`, (N,), of a container with these offsets and counts.
    """
    starts, lengths = sequences.starts, sequences.lengths
    residue_scale, position_scale = sequences.residue_scale, sequences.position_scale
    longest = 0
    for n in numba.prange(len(at)):
        starts[n] = offsets[at[n]]
        lengths[n] = offsets[at[n] + 1] - starts[n]
        longest = max(longest, lengths[n])
        scale = np.float32(1)
        if mode != _NONE:
            count = max(float(counts[at[n]] & _UNSIGNED), 1.0)
            scale = np.float32(np.log(count) if mode == _LOG else np.log1p(count))
        position_scale[n] = inverse_std[owner[n]]
        residue_scale[n] = scale * position_scale[n]
    return longest


def choose_cache_device(
    dataset: RepertoireDataset, choice: CacheChoice, device: torch.device, *, genes: bool = False
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
    genes
        Whether the network reads genes; then they are copied, too.
    """
    if device.type != "cuda" or choice == "never" or isinstance(dataset, SimulatedDataset):
        return CPU
    container = dataset.sequence_container
    if choice == "always" or is_on(container, device):
        return device
    return device if count_bytes(container, genes=genes) <= torch.cuda.mem_get_info(device)[0] // 2 else CPU
