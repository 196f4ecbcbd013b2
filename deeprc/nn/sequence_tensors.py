"""The columns of a container's sequences as tensors: memory-mapped on the CPU, or copied once to another device.

Where a container names parts, the CPU reads each part in its place, and a device holds them end to end.
Letters: N sequences and R residues of the columns; n sequences and B repertoires of a batch. A shape (repertoires,) has
one number for each repertoire of a dataset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.linked_container import SequenceContainer
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.nn.genes import GeneNames

__all__ = [
    "CPU",
    "DrawnRows",
    "RepertoireLocations",
    "RepertoireTable",
    "SequenceTensors",
    "count_bytes",
    "is_on_device",
    "load_gene_tensors",
    "load_sequence_tensors",
    "locate_repertoires",
]

CPU = torch.device("cpu")


@dataclass(frozen=True)
class SequenceTensors:
    """Sequences as tensors: residues (R,), offsets (N + 1,), counts (N,) in the bits of int32.

    `max_length` is None on the CPU, where it is looked up in every batch; on other devices this would make the host
    wait.
    """

    residues: Tensor
    offsets: Tensor
    counts: Tensor
    max_length: int | None


@dataclass(frozen=True)
class RepertoireLocations:
    """Where each repertoire of a dataset lies among a container's columns.

    Attributes
    ----------
    part
        Index of the part of the container in whose columns it lies, (repertoires,) int64.
    first_row
        Row of its first sequence in these columns, (repertoires,) int64.
    """

    part: NDArray[np.int64]
    first_row: NDArray[np.int64]


class DrawnRows(NamedTuple):
    """The n sequences of a batch of B repertoires, before they are looked up in columns.

    Attributes
    ----------
    positions
        Positions of the repertoires in the dataset, (B,) int64.
    column_rows
        Row of each sequence in the columns, (n,) int64; rows that only fill the batch may be out of range.
    segments
        Index of each sequence's repertoire among the positions, (n,) int64.
    offsets
        Bounds of the repertoires among the sequences, (B + 1,) int64.
    """

    positions: Tensor
    column_rows: Tensor
    segments: Tensor
    offsets: Tensor

    def take_repertoires(self, selection: slice) -> DrawnRows:
        """Return the sequences of a slice of the repertoires."""
        offsets = self.offsets[selection.start : selection.stop + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        segments = self.segments[rows] - selection.start
        return DrawnRows(self.positions[selection], self.column_rows[rows], segments, offsets - offsets[0])


class RepertoireTable(NamedTuple):
    """A table with a row per repertoire of a dataset, from which batches are drawn.

    Attributes
    ----------
    sizes
        Number of sequences, (repertoires,) int64.
    first_rows
        Row of the first sequence in the columns, (repertoires,) int64.
    inverse_stds
        1 / standard deviation of the features, (repertoires,) float32; NaN until it is needed.
    """

    sizes: Tensor
    first_rows: Tensor
    inverse_stds: Tensor

    def locate(self, positions: Tensor, rows: Tensor, segments: Tensor, offsets: Tensor) -> DrawnRows:
        """Return the sequences at rows within their repertoires, (n,); the others are attributes of `DrawnRows`."""
        return DrawnRows(positions, self.first_rows[positions].index_select(0, segments) + rows, segments, offsets)


def locate_repertoires(dataset: RepertoireDataset, device: torch.device) -> RepertoireLocations:
    """Return where a dataset's repertoires lie among what `load_sequence_tensors` returns."""
    first_row = dataset.container.repertoire_offsets[dataset.repertoire_indices]
    part = np.zeros(len(first_row), np.int64)
    if device.type == "cpu" and len(parts := getattr(dataset.container, "parts", ())) > 1:
        find_part = dataset.sequence_container.find_part
        part = np.array([find_part(index) for index in dataset.repertoire_indices.tolist()], np.int64)
        first_row = first_row - np.array([columns.first_sequence for columns in parts], np.int64)[part]
    return RepertoireLocations(part, first_row)


_ON_DEVICES: WeakKeyDictionary[SequenceContainer, dict[torch.device, list[SequenceTensors]]] = WeakKeyDictionary()


def is_on_device(container: SequenceContainer, device: torch.device) -> bool:
    """Return whether the container's sequences were copied to a device."""
    return device in _ON_DEVICES.get(container, {})


def load_sequence_tensors(container: SequenceContainer, device: torch.device) -> list[SequenceTensors]:
    """Return the columns of a container's parts on the CPU, or one set of columns of all parts on another device.

    All collators of a container share them.
    """
    by_device = _ON_DEVICES.setdefault(container, {})
    if device not in by_device:
        by_device[device] = _map_columns(container) if device.type == "cpu" else [copy_columns(container, device)]
    return by_device[device]


def _map_columns(container: SequenceContainer) -> list[SequenceTensors]:
    columns = []
    for sequences in (part.store.sequences for part in container.parts):
        arrays = sequences.residues, sequences.offsets, sequences.counts.view(np.int32)
        residues, offsets, counts = map(torch.from_numpy, arrays)
        columns.append(SequenceTensors(residues, offsets, counts, None))
    return columns


def copy_columns(container: SequenceContainer, device: torch.device) -> SequenceTensors:
    """Return copies of the sequences of all parts of a container, end to end."""
    stores = [part.store.sequences for part in container.parts]
    residues = _join_columns([store.residues for store in stores], device)
    counts = _join_columns([store.counts.view(np.int32) for store in stores], device)
    offsets = _join_columns([store.offsets if i == 0 else store.offsets[1:] for i, store in enumerate(stores)], device)
    first, n_residues = len(stores[0]) + 1, len(stores[0].residues)
    for store in stores[1:]:
        offsets[first : first + len(store)] += n_residues
        first, n_residues = first + len(store), n_residues + len(store.residues)
    return SequenceTensors(residues, offsets, counts, int(offsets.diff().max()) if len(counts) else 0)


def _join_columns(columns: Sequence[NDArray[Any]], device: torch.device) -> Tensor:
    """Return arrays end to end on a device, without a copy of all of them on the host."""
    if len(columns) == 1:
        return torch.from_numpy(columns[0]).to(device)
    tensors = [torch.from_numpy(column) for column in columns]
    joined = torch.empty(sum(map(len, tensors)), dtype=tensors[0].dtype, device=device)
    start = 0
    for tensor in tensors:
        joined[start : start + len(tensor)] = tensor.to(device)
        start += len(tensor)
    return joined


_CODES_ON_DEVICES: WeakKeyDictionary[SequenceContainer, dict[torch.device, list[list[Tensor]]]] = WeakKeyDictionary()


def load_gene_tensors(
    container: SequenceContainer, gene_names: GeneNames, device: torch.device
) -> list[list[tuple[Tensor, Tensor]]]:
    """Return, for each set of columns, the codes of the V and J genes, (N,), and the network's index of each code.

    The codes are in the bits of int16. All collators of a container share them. Where a column is missing, the genes
    are unknown.
    """
    by_device = _CODES_ON_DEVICES.setdefault(container, {})
    if device not in by_device:
        by_device[device] = _map_codes(container) if device.type == "cpu" else [copy_codes(container, device)]
    if device.type == "cpu":
        vocabularies = [
            {field: calls.vocabulary for field, calls in part.store.sequences.genes.items()} for part in container.parts
        ]
    else:
        vocabularies = [container.gene_names]
    return [
        [
            (code, torch.from_numpy(gene_names.index_names(gene_names_of_part.get(field, ("",)), field)).to(device))
            for code, field in zip(codes, GENE_FIELDS, strict=True)
        ]
        for codes, gene_names_of_part in zip(by_device[device], vocabularies, strict=True)
    ]


def _map_codes(container: SequenceContainer) -> list[list[Tensor]]:
    """Return the codes of the V and J genes of the sequences of each part of the container; 0 is an unknown gene."""
    codes = []
    for sequences in (part.store.sequences for part in container.parts):
        calls = [sequences.genes.get(field) for field in GENE_FIELDS]
        unknown = np.zeros(len(sequences), np.int16)
        codes.append([torch.from_numpy(unknown if call is None else call.codes.view(np.int16)) for call in calls])
    return codes


def copy_codes(container: SequenceContainer, device: torch.device) -> list[Tensor]:
    """Return the codes of V and J of all parts of a container, end to end, with the vocabularies `gene_names`."""
    copied = []
    for field in GENE_FIELDS:
        codes = []
        for index, sequences in enumerate(part.store.sequences for part in container.parts):
            calls = sequences.genes.get(field)
            joint_codes: NDArray[np.integer[Any]] = np.zeros(len(sequences), np.uint16)
            if calls is not None:
                joint_codes = container.map_to_joint_codes(index, field, calls.codes)
            codes.append(joint_codes.view(np.int16))
        copied.append(_join_columns(codes, device))
    return copied


def count_bytes(container: SequenceContainer, *, with_genes: bool) -> int:
    """Return how many bytes the copies of a container's sequences take on a device."""
    stores = [part.store.sequences for part in container.parts]
    size = sum(store.residues.nbytes + store.offsets.nbytes + store.counts.nbytes for store in stores)
    return size + (sum(store.counts.nbytes for store in stores) if with_genes else 0)  # two codes of 16 bits each
