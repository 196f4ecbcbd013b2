"""Sources of the sequences of batches: a memory-mapped container, its copy on a device, or a simulated cohort.

Letters: N sequences of a batch, B repertoires of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.compilation import njit
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.read_ahead import ReadAhead
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.datasets.simulation.simulated_dataset import SimulatedDataset
from deeprc.nn.features import ABUNDANCE_MODES, AbundanceMode, compute_abundance_scale, compute_inverse_std
from deeprc.nn.genes import GeneNames
from deeprc.nn.sampling import COMPILED_CODE
from deeprc.nn.sequence_tensors import (
    CPU,
    DrawnRows,
    RepertoireTable,
    SequenceTensors,
    load_gene_tensors,
    load_sequence_tensors,
)
from deeprc.nn.sequences import BatchArrays, SequenceBatch, join_sequences

__all__ = ["DeviceSource", "MappedSource", "SequenceSource", "SimulatedSource"]

_UNSIGNED = 0xFFFFFFFF  # mask that restores the counts, which are unsigned, from the bits of int32
_UNSIGNED_16 = 0xFFFF  # mask that restores the codes of genes from the bits of int16
_NONE, _LOG = ABUNDANCE_MODES.index("none"), ABUNDANCE_MODES.index("log")
_LENGTH_STEP = 8  # a batch's greatest length is rounded up to a multiple, so that few tables of positions are needed


class SequenceSource(Protocol):
    """A place from which the sequences of the repertoires of a dataset are looked up."""

    def look_up(self, drawn: DrawnRows, inverse_stds: Tensor) -> tuple[SequenceBatch, Tensor | None]:
        """Return drawn sequences, and the indices of their V and J genes, (N, 2); None if no genes are asked for.

        `inverse_stds` has 1 / the standard deviation of the features of each of the drawn repertoires, (B,).
        """

    def compute_inverse_std(self, position: int) -> float:
        """Return 1 / the standard deviation of the features of a whole repertoire, by its position in the dataset."""

    def prefetch(self, positions: Sequence[int]) -> None:
        """Ask the system to read repertoires from the disk, by their positions, because they are needed soon."""


class MappedSource:
    """The memory-mapped container, read on the CPU.

    Parameters
    ----------
    dataset
        The repertoires.
    abundance
        Abundance scale of the one-hot features, see `compute_abundance_scale`.
    gene_names
        Genes that the network knows; None looks up no genes.
    parts
        Index of the container's part in which each repertoire lies, (number of repertoires,).
    """

    def __init__(
        self,
        dataset: RepertoireDataset,
        abundance: AbundanceMode,
        gene_names: GeneNames | None,
        parts: NDArray[np.int64],
    ) -> None:
        self._dataset, self._abundance, self._parts = dataset, abundance, parts
        container, fields = dataset.sequence_container, [] if abundance == "none" else ["counts"]
        self._columns = load_sequence_tensors(container, CPU)
        self._gene_columns = None
        if gene_names is not None:
            self._gene_columns = load_gene_tensors(container, gene_names, CPU)
            fields = [*fields, *GENE_FIELDS]
        self._read_ahead = ReadAhead(container, fields)

    def look_up(self, drawn: DrawnRows, inverse_stds: Tensor) -> tuple[SequenceBatch, Tensor | None]:
        """Return drawn sequences, whose residues stay where they are, or are copied if they lie in several parts."""
        parts = self._parts[drawn.positions.numpy()]
        changes = np.flatnonzero(np.diff(parts)) + 1
        if not len(changes):
            return self._look_up_in_part(int(parts[0]) if len(parts) else 0, drawn, inverse_stds)
        sequences, genes = [], []
        for first, stop in pairwise([0, *changes.tolist(), len(parts)]):  # repertoires of one part
            drawn_of_part = drawn.take_repertoires(slice(first, stop))
            part_sequences, part_genes = self._look_up_in_part(
                int(parts[first]), drawn_of_part, inverse_stds[first:stop]
            )
            sequences.append(part_sequences)
            if part_genes is not None:
                genes.append(part_genes)
        return join_sequences(sequences), torch.cat(genes) if genes else None

    def _look_up_in_part(
        self, part: int, drawn: DrawnRows, inverse_stds: Tensor
    ) -> tuple[SequenceBatch, Tensor | None]:
        """Do what `look_up` does, for sequences that all lie in one part of the container."""
        columns = self._columns[part]
        starts, lengths = torch.empty((2, len(drawn.segments)), dtype=torch.int64)
        scales = torch.empty((2, len(drawn.segments)), dtype=torch.float32)
        sequences = SequenceBatch(columns.residues, starts, lengths, scales[0], scales[1], max_length=0)
        inputs = (drawn.column_rows, drawn.segments, columns.offsets, columns.counts, inverse_stds)
        input_arrays = (tensor.numpy() for tensor in inputs)
        with COMPILED_CODE:
            _look_up(*input_arrays, ABUNDANCE_MODES.index(self._abundance), sequences.arrays())
        max_length = int(lengths.numpy().max(initial=0))
        genes = None if self._gene_columns is None else _take_genes(self._gene_columns[part], drawn.column_rows)
        return sequences._replace(max_length=_round_up_length(max_length)), genes

    def compute_inverse_std(self, position: int) -> float:
        """Return 1 / the standard deviation of the features of a whole repertoire."""
        return _compute_inverse_std(self._dataset, position, self._abundance)

    def prefetch(self, positions: Sequence[int]) -> None:
        """Ask the system to read repertoires from the disk, by their positions, because they are needed soon."""
        self._read_ahead(self._dataset.repertoire_indices[positions].tolist())


class DrawnSequences(NamedTuple):
    """The sequences of a batch that were drawn and looked up at once.

    Attributes
    ----------
    sequences
        The N sequences.
    offsets
        Bounds of the repertoires among the sequences, (B + 1,) int64.
    genes
        Indices of their V and J genes, (N, 2); None if no genes are asked for.
    """

    sequences: SequenceBatch
    offsets: Tensor
    genes: Tensor | None


class DeviceSource:
    """A copy of all sequences of the container on a device.

    Parameters
    ----------
    dataset, abundance, gene_names
        As of `MappedSource`.
    device
        The device.
    """

    def __init__(
        self,
        dataset: RepertoireDataset,
        abundance: AbundanceMode,
        gene_names: GeneNames | None,
        device: torch.device,
    ) -> None:
        self._dataset, self._abundance = dataset, abundance
        self._columns: SequenceTensors
        (self._columns,) = load_sequence_tensors(dataset.sequence_container, device)
        self._gene_columns = None
        if gene_names is not None:
            (self._gene_columns,) = load_gene_tensors(dataset.sequence_container, gene_names, device)

    def look_up(self, drawn: DrawnRows, inverse_stds: Tensor) -> tuple[SequenceBatch, Tensor | None]:
        """Return drawn sequences, without waiting for the device."""
        columns = self._columns
        rows = drawn.column_rows.clamp(max=len(columns.counts) - 1)  # those that only fill the batch may be beyond
        starts = columns.offsets.index_select(0, rows)
        lengths = columns.offsets.index_select(0, rows + 1) - starts
        position_scale = inverse_stds.index_select(0, drawn.segments)
        counts = columns.counts.index_select(0, rows).long() & _UNSIGNED
        residue_scale = compute_abundance_scale(counts, self._abundance) * position_scale
        sequences = SequenceBatch(columns.residues, starts, lengths, residue_scale, position_scale, self._max_length)
        return sequences, self._take_genes(rows)

    def draw(
        self, repertoires: RepertoireTable, positions: Tensor, keys: Tensor, *, max_rows: int, total: int
    ) -> DrawnSequences:
        """Draw sequences and look them up, by one function that is compiled for CUDA; see `draw_sequences`."""
        from deeprc.nn.draw_cuda import draw_sequences

        drawn = draw_sequences(
            self._columns,
            repertoires,
            positions,
            keys,
            max_rows=max_rows,
            total=total,
            abundance=self._abundance,
            max_length=self._max_length,
        )
        return DrawnSequences(drawn.sequences, drawn.offsets, self._take_genes(drawn.column_rows))

    @property
    def _max_length(self) -> int:
        assert self._columns.max_length is not None
        return _round_up_length(self._columns.max_length)

    def _take_genes(self, rows: Tensor) -> Tensor | None:
        return None if self._gene_columns is None else _take_genes(self._gene_columns, rows)

    def compute_inverse_std(self, position: int) -> float:
        """Return 1 / the standard deviation of the features of a whole repertoire."""
        return _compute_inverse_std(self._dataset, position, self._abundance)

    def prefetch(self, positions: Sequence[int]) -> None:
        """Do nothing: all sequences are on the device."""


class SimulatedSource:
    """A simulated cohort, whose sequences are made on the CPU when they are looked up.

    The parameters are those of `MappedSource`.
    """

    def __init__(self, dataset: SimulatedDataset, abundance: AbundanceMode, gene_names: GeneNames | None) -> None:
        self._dataset, self._abundance, self._gene_names = dataset, abundance, gene_names

    def look_up(self, drawn: DrawnRows, inverse_stds: Tensor) -> tuple[SequenceBatch, Tensor | None]:
        """Make the drawn sequences, and return them."""
        position_scale = inverse_stds[drawn.segments]
        with COMPILED_CODE:
            table = self._dataset.container.take(drawn.column_rows.numpy())
        residues, lengths, counts = map(torch.from_numpy, (table.residues, table.lengths, table.counts))
        starts = lengths.cumsum(0) - lengths
        residue_scale = compute_abundance_scale(counts.long(), self._abundance) * position_scale
        max_length = _round_up_length(int(lengths.max()) if len(lengths) else 0)
        genes = None
        if self._gene_names is not None:
            genes = torch.from_numpy(self._gene_names.index_calls(table.v_call, table.j_call, len(lengths)))
        return SequenceBatch(residues, starts, lengths, residue_scale, position_scale, max_length), genes

    def compute_inverse_std(self, position: int) -> float:
        """Return 1 / the standard deviation of the features of a whole repertoire, which its container keeps."""
        index, known_stds = int(self._dataset.repertoire_indices[position]), self._dataset.container.inverse_stds
        if (index, self._abundance) not in known_stds:
            with COMPILED_CODE:
                lengths, counts = self._dataset.cohort.draw_lengths_and_counts(index)
            known_stds[index, self._abundance] = compute_inverse_std(lengths, counts, self._abundance)
        return known_stds[index, self._abundance]

    def prefetch(self, positions: Sequence[int]) -> None:
        """Do nothing: there is no file."""


def _compute_inverse_std(dataset: RepertoireDataset, position: int, abundance: AbundanceMode) -> float:
    repertoire = dataset[position]
    return compute_inverse_std(repertoire.lengths, repertoire.counts, abundance)


def _take_genes(gene_columns: list[tuple[Tensor, Tensor]], rows: Tensor) -> Tensor:
    """Return the indices of the V and J genes, (N, 2), of the sequences at these rows of the columns, (N,)."""
    indices = [
        index_of_code[codes.index_select(0, rows).long() & _UNSIGNED_16] for codes, index_of_code in gene_columns
    ]
    return torch.stack(indices, dim=1)


def _round_up_length(length: int) -> int:
    return -(-length // _LENGTH_STEP) * _LENGTH_STEP


@njit(parallel=True, nogil=True)
def _look_up(
    rows: NDArray[np.int64],
    segments: NDArray[np.int64],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int32],
    inverse_stds: NDArray[np.float32],
    mode: int,
    sequences: BatchArrays,
) -> None:
    """Write starts, lengths and scales of a batch in one pass over memory.

    The batch has the sequences at these rows, (N,), of columns with these offsets and counts.
    """
    starts, lengths = sequences.starts, sequences.lengths
    residue_scale, position_scale = sequences.residue_scale, sequences.position_scale
    for n in numba.prange(len(rows)):
        starts[n] = offsets[rows[n]]
        lengths[n] = offsets[rows[n] + 1] - starts[n]
        scale = np.float32(1)
        if mode != _NONE:
            count = max(float(counts[rows[n]] & _UNSIGNED), 1.0)
            scale = np.float32(np.log(count) if mode == _LOG else np.log1p(count))
        position_scale[n] = inverse_stds[segments[n]]
        residue_scale[n] = scale * position_scale[n]
