"""The HDF5 container of a cohort, read by memory map; `container_writer.py` writes it.

Containers may come from strangers, so the whole container is checked when it is opened (`container_check.py`), and code
that computes with its arrays may trust them. The layout is specified in `docs/file-format.md`. Letters: R residues, N
sequences, B repertoires.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import h5py
import numpy as np

from deeprc.available_memory import count_available_bytes
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.checksum import compute_checksum
from deeprc.datasets.container_check import is_checked, make_content_checks, remember_checked
from deeprc.datasets.container_header import (
    EXPECTED,
    LEGACY_VERSION,
    LINKED_VERSION,
    Texts,
    get_dataset,
    is_container,
    read_header,
    read_version,
)
from deeprc.datasets.hdf5 import (
    BlockCheck,
    convert_hdf5_errors,
    iterate_blocks,
    list_members,
    map_values,
    open_hdf5,
    read_text_attribute,
)
from deeprc.datasets.legacy_texts import read_texts_in_subprocess
from deeprc.datasets.parts import SingleStoreContainer
from deeprc.datasets.sequences import GENE_FIELDS, Sequences
from deeprc.errors import InputError
from deeprc.files import FileStamp

__all__ = ["Container", "is_container"]

_MAX_HASHES_AT_ONCE = 1 << 28  # they take 2 GB


class Container(SingleStoreContainer):
    """An open container: memory maps of its sequences, those of all repertoires, and the metadata in memory.

    Parameters
    ----------
    path
        File written by `ContainerWriter`.

    Raises
    ------
    InputError
        If the file is missing, is not HDF5, was cut short or altered, has another format or version, or contradicts
        itself; the message names the file and the dataset inside it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.digests: dict[tuple[int, int], str] = {}  # by first sequence and the one after the last
        self.path = Path(path).absolute()
        with convert_hdf5_errors(path), open_hdf5(Path(path), expected=EXPECTED) as file:
            self.stamp = FileStamp.of(self.path)  # stamp of the file that is read here, even if it is replaced
            self._read(file)
            if not is_checked(self.path, self.stamp):
                checks = make_content_checks(self)
                if self.version == LEGACY_VERSION:
                    _check_blocks(file, self.path, checks)
                else:
                    _check_checksum(file, self.path, checks)
                remember_checked(self.path, self.stamp)

    def __reduce__(self) -> tuple[type[Container], tuple[Path]]:
        """Pickle the container as its path: each worker process maps the file itself."""
        return Container, (self.path,)

    def choose_max_hashes(self, gene_fields: Collection[str], minimum: int) -> int:
        """Return how many hashes should be in memory at once; see `CohortContainer`.

        If the file is larger than the available memory, a quarter of this memory holds hashes. Ranks may have the same
        memory, so each takes its share of it.
        """
        from deeprc import ranks  # it imports `deeprc.datasets.dataset`

        available = count_available_bytes()
        bytes_beside_residues = 8 + 2 * len(gene_fields)  # of a sequence: its offset, and codes of 16 bits
        size = self.sequences.residues.nbytes + bytes_beside_residues * len(self.sequences)
        if available is None or size <= available:
            return minimum
        return max(minimum, min(_MAX_HASHES_AT_ONCE, available // 4 // 8 // ranks.count_ranks()))  # of 8 bytes each

    def _read(self, file: h5py.File) -> None:
        members = list_members(file)
        self.version = read_version(file, self.path)
        if self.version == LINKED_VERSION:
            raise InputError(f"{self.path}: names other containers; expected one that holds its sequences itself")
        texts = Texts(read_texts_in_subprocess(self.path) if self.version == LEGACY_VERSION else None)
        origin, self.repertoire_ids, self.repertoire_offsets, self.metadata = read_header(
            file, members, texts, self.path
        )
        self.created_by, self.source, self.preprocessing, self.simulation = origin
        self.checksum = None if self.version == LEGACY_VERSION else texts.read_attribute(file, "checksum")
        self.sequences = self._map_sequences(members, texts)

    def _map_sequences(self, members: dict[str, h5py.Group | h5py.Dataset], texts: Texts) -> Sequences:
        """Return the sequences of the container as memory maps."""
        genes = {}
        for name in GENE_FIELDS:
            if name in members:
                dataset = get_dataset(members, name)
                vocabulary = tuple(texts.read_attribute_list(dataset, "vocabulary"))
                genes[name] = Categorical(map_values(self.path, dataset, np.uint16), vocabulary)
        return Sequences(
            map_values(self.path, get_dataset(members, "residues"), np.uint8),
            map_values(self.path, get_dataset(members, "sequence_offsets"), np.int64),
            map_values(self.path, get_dataset(members, "counts"), np.uint32),
            witness=map_values(self.path, get_dataset(members, "witness"), np.uint8) if "witness" in members else None,
        ).with_genes(genes)


def _check_blocks(file: h5py.File, path: Path, checks: Mapping[str, BlockCheck]) -> None:
    for name, check in checks.items():
        for block in iterate_blocks(map_values(path, file[name])):
            check(block)


def _check_checksum(file: h5py.File, path: Path, checks: Mapping[str, BlockCheck]) -> None:
    if compute_checksum(file, path, checks) != read_text_attribute(file, "checksum"):
        raise InputError(f"{path}: the container is damaged: its content is not what its checksum says")
