"""The HDF5 container of a cohort, read by memory map; `container_writer.py` writes it.

Containers may come from strangers, so the whole container is checked when it is opened (`container_check.py`), and code
that computes with its arrays may trust them. The layout is specified in `docs/file-format.md`. Letters: R residues, N
sequences, B repertoires.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_check import check_contents, is_checked, remember_checked
from deeprc.datasets.hdf5 import (
    BlockCheck,
    blocks,
    check_texts,
    has_attribute,
    is_fixed_text,
    map_values,
    members,
    naming_damage,
    open_hdf5,
    read_integer,
    read_text,
    read_texts,
    seal,
)
from deeprc.datasets.legacy_texts import read_legacy_texts
from deeprc.datasets.provenance import read_preprocessing, read_simulation
from deeprc.datasets.sequences import GENE_FIELDS, Sequences
from deeprc.errors import InputError
from deeprc.files import FileStamp

__all__ = ["FORMAT", "VERSION", "Container", "is_container"]

FORMAT = "deeprc-repertoires"
VERSION = 2
_LEGACY_VERSION = 1
"""The version with text of variable length and without a checksum."""

_EXPECTED = "a container made by `deeprc preprocess`"


class Container:
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
        self.digests: dict[tuple[int, int], str] = {}  # digests of repertoires, by first and last sequence
        self.path = Path(path).absolute()
        with naming_damage(path), open_hdf5(Path(path), expected=_EXPECTED) as file:
            self.stamp = FileStamp.of(self.path)  # stamp of the file that is read here, even if it is replaced
            self._read(file)
            if not is_checked(self.path, self.stamp):
                checks = check_contents(self)
                if self.version == _LEGACY_VERSION:
                    _check_blocks(file, self.path, checks)
                else:
                    _check_seal(file, self.path, checks)
                remember_checked(self.path, self.stamp)

    def __reduce__(self) -> tuple[type[Container], tuple[Path]]:
        """Pickle the container as its path: each worker process maps the file itself."""
        return Container, (self.path,)

    def _read(self, file: h5py.File) -> None:
        things = members(file)
        self.version = _read_version(file, self.path)
        texts = _Texts(read_legacy_texts(self.path) if self.version == _LEGACY_VERSION else None)
        if texts.attribute(file, "format") != FORMAT:
            raise InputError(f"{self.path}: an HDF5 file, but not {_EXPECTED}")
        if (alphabet := texts.attribute(file, "alphabet")) != AMINO_ACIDS:
            raise InputError(f"{self.path}: expected the alphabet {AMINO_ACIDS}, found {alphabet!r:.60}")
        self.created_by = texts.attribute(file, "created_by")
        self.source = texts.attribute(file, "source")
        self.preprocessing = read_preprocessing(texts.attribute(file, "preprocessing"))
        simulated = has_attribute(file, "simulation")
        self.simulation = read_simulation(texts.attribute(file, "simulation")) if simulated else None
        self.repertoire_ids: NDArray[np.object_] = np.array(texts.dataset(_dataset(things, "repertoire_ids")), object)
        offsets = map_values(self.path, _dataset(things, "repertoire_offsets"), np.int64)
        self.repertoire_offsets: NDArray[np.int64] = np.array(offsets)
        self.sequences = self._map_sequences(things, texts)
        self.metadata = _read_metadata(things.get("metadata"), texts, self.path)

    def _map_sequences(self, things: dict[str, h5py.Group | h5py.Dataset], texts: _Texts) -> Sequences:
        genes = {}
        for name in GENE_FIELDS:
            if name in things:
                dataset = _dataset(things, name)
                vocabulary = tuple(texts.attribute_list(dataset, "vocabulary"))
                genes[name] = Categorical(map_values(self.path, dataset, np.uint16), vocabulary)
        return Sequences(
            map_values(self.path, _dataset(things, "residues"), np.uint8),
            map_values(self.path, _dataset(things, "sequence_offsets"), np.int64),
            map_values(self.path, _dataset(things, "counts"), np.uint32),
            witness=map_values(self.path, _dataset(things, "witness"), np.uint8) if "witness" in things else None,
        ).with_genes(genes)

    def take(self, rows: NDArray[np.int64]) -> Sequences:
        """Return some of the container's sequences, at rows (n,), in this order."""
        return self.sequences.take(rows)


class _Texts:
    """The texts of a container: of fixed length in version 2; in version 1, another process has read them."""

    def __init__(self, legacy: dict[str, Any] | None) -> None:
        self._legacy = legacy

    def attribute(self, thing: h5py.Group | h5py.Dataset, name: str) -> str:
        return read_text(thing, name) if self._legacy is None else self._listed(f"{_place(thing)}@{name}", str)[0]

    def attribute_list(self, thing: h5py.Group | h5py.Dataset, name: str) -> list[str]:
        return read_texts(thing, name) if self._legacy is None else self._listed(f"{_place(thing)}@{name}", list)

    def dataset(self, dataset: h5py.Dataset) -> list[str]:
        return read_texts(dataset) if self._legacy is None else self._listed(_place(dataset), list)

    def _listed(self, place: str, kind: type[str] | type[list[str]]) -> list[str]:
        """Return the texts that the other process has read at a place, one or several."""
        assert self._legacy is not None
        if not isinstance(found := self._legacy[place], kind):
            raise ValueError(f"/{place}: expected {'one text' if kind is str else 'several texts'}")
        texts = found if isinstance(found, list) else [found]
        check_texts(texts, f"/{place}")
        return texts

    def holds(self, dataset: h5py.Dataset) -> bool:
        """Return whether a dataset's values are texts."""
        return is_fixed_text(dataset) if self._legacy is None else _place(dataset) in self._legacy


def _place(thing: h5py.Group | h5py.Dataset) -> str:
    return str(thing.name).strip("/")


def is_container(path: Path) -> bool:
    """Return whether a file is a container, of any version, whole or damaged."""
    try:
        with open_hdf5(path, expected=_EXPECTED) as file:
            # The text of "format" is not read: in a damaged file of version 1 that may not end.
            return has_attribute(file, "format") and has_attribute(file, "alphabet") and "repertoire_ids" in file
    except (InputError, OSError, RuntimeError):
        return False


def _read_version(file: h5py.File, path: Path) -> int:
    if not (has_attribute(file, "format") and has_attribute(file, "version")):
        raise InputError(f"{path}: an HDF5 file, but not {_EXPECTED}")
    version = read_integer(file, "version")
    if version not in (_LEGACY_VERSION, VERSION):
        raise InputError(
            f"{path}: expected version {VERSION} of the container, found {version}; "
            "run `deeprc preprocess` again with this version of deeprc"
        )
    return version


def _dataset(things: dict[str, h5py.Group | h5py.Dataset], name: str) -> h5py.Dataset:
    if not isinstance(things.get(name), h5py.Dataset):
        raise ValueError(f"no dataset {name!r}")
    return things[name]


def _check_blocks(file: h5py.File, path: Path, checks: Mapping[str, BlockCheck]) -> None:
    for name, check in checks.items():
        for block in blocks(map_values(path, file[name])):
            check(block)


def _check_seal(file: h5py.File, path: Path, checks: Mapping[str, BlockCheck]) -> None:
    if seal(file, path, checks) != read_text(file, "checksum"):
        raise InputError(f"{path}: the container is damaged: its content is not what its checksum says")


def _read_metadata(group: h5py.Group | h5py.Dataset | None, texts: _Texts, path: Path) -> pd.DataFrame:
    if not isinstance(group, h5py.Group):
        raise ValueError("no group 'metadata'")
    by_name = {texts.attribute(dataset, "name"): dataset for dataset in members(group).values()}
    names = texts.attribute_list(group, "columns")
    if len(set(names)) != len(names) or set(names) != set(by_name) or len(group) != len(names):
        raise ValueError("/metadata: its attribute 'columns' does not name each of its datasets once")
    columns: dict[str, pd.Series] = {}
    for name in names:
        dataset = by_name[name]
        if isinstance(dataset, h5py.Dataset) and texts.holds(dataset):
            columns[name] = pd.Series([value or None for value in texts.dataset(dataset)], dtype=object)
            continue
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "iuf" or not dataset.dtype.isnative:
            raise ValueError(f"{dataset.name}: expected texts or numbers")
        columns[name] = pd.Series(np.array(map_values(path, dataset)))
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"/metadata: expected columns of one length, found {sorted(lengths)}")
    return pd.DataFrame(columns)
