"""The HDF5 container of a cohort, read by memory map; `container_writer.py` writes it.

Containers may come from strangers, so the whole container is checked when it is opened (`container_check.py`), and code
that computes with its arrays may trust them. The layout is specified in `docs/file-format.md`. Letters: R residues, N
sequences, B repertoires.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from deeprc.datasets.categorical import Categorical
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
    compute_checksum,
    convert_hdf5_errors,
    iterate_blocks,
    list_members,
    map_values,
    open_hdf5,
    read_text,
)
from deeprc.datasets.legacy_texts import read_legacy_texts
from deeprc.datasets.parts import OneStore
from deeprc.datasets.sequences import GENE_FIELDS, Sequences
from deeprc.errors import InputError
from deeprc.files import FileStamp

__all__ = ["Container", "is_container"]


class Container(OneStore):
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

    def _read(self, file: h5py.File) -> None:
        things = list_members(file)
        self.version = read_version(file, self.path)
        if self.version == LINKED_VERSION:
            raise InputError(f"{self.path}: names other containers; expected one that holds its sequences itself")
        texts = Texts(read_legacy_texts(self.path) if self.version == LEGACY_VERSION else None)
        origin, self.repertoire_ids, self.repertoire_offsets, self.metadata = read_header(
            file, things, texts, self.path
        )
        self.created_by, self.source, self.preprocessing, self.simulation = origin
        self.checksum = None if self.version == LEGACY_VERSION else texts.read_attribute(file, "checksum")
        self.sequences = self._map_sequences(things, texts)

    def _map_sequences(self, things: dict[str, h5py.Group | h5py.Dataset], texts: Texts) -> Sequences:
        genes = {}
        for name in GENE_FIELDS:
            if name in things:
                dataset = get_dataset(things, name)
                vocabulary = tuple(texts.read_attribute_list(dataset, "vocabulary"))
                genes[name] = Categorical(map_values(self.path, dataset, np.uint16), vocabulary)
        return Sequences(
            map_values(self.path, get_dataset(things, "residues"), np.uint8),
            map_values(self.path, get_dataset(things, "sequence_offsets"), np.int64),
            map_values(self.path, get_dataset(things, "counts"), np.uint32),
            witness=map_values(self.path, get_dataset(things, "witness"), np.uint8) if "witness" in things else None,
        ).with_genes(genes)


def _check_blocks(file: h5py.File, path: Path, checks: Mapping[str, BlockCheck]) -> None:
    for name, check in checks.items():
        for block in iterate_blocks(map_values(path, file[name])):
            check(block)


def _check_checksum(file: h5py.File, path: Path, checks: Mapping[str, BlockCheck]) -> None:
    if compute_checksum(file, path, checks) != read_text(file, "checksum"):
        raise InputError(f"{path}: the container is damaged: its content is not what its checksum says")
