"""What every container's file says beside its sequences: format, version, origin and metadata, read with care.

Letters: B repertoires.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.hdf5 import (
    check_texts,
    describe_values,
    has_attribute,
    is_fixed_text,
    list_members,
    map_values,
    open_hdf5,
    read_integer_attribute,
    read_text_attribute,
    read_text_dataset,
    read_text_list_attribute,
)
from deeprc.datasets.provenance import read_preprocessing, read_simulation
from deeprc.documents import abbreviate
from deeprc.errors import InputError
from deeprc.versions import package_version

__all__ = [
    "EXPECTED",
    "FORMAT",
    "LEGACY_VERSION",
    "LINKED_VERSION",
    "VERSION",
    "ContainerHeader",
    "Origin",
    "Texts",
    "get_creator",
    "get_dataset",
    "is_container",
    "read_header",
    "read_version",
    "refuse_other_file",
]

FORMAT = "deeprc-repertoires"
VERSION = 2
LEGACY_VERSION = 1
"""The version with text of variable length and without a checksum."""
LINKED_VERSION = 3
"""Holds no sequences, but names the containers that do; see `linked_container.py`."""

EXPECTED = "a container made by `deeprc preprocess`"


class Origin(NamedTuple):
    """What a container was made from and by, see `ContainerWriter.finish`."""

    created_by: str
    source: str
    preprocessing: dict[str, Any]
    simulation: dict[str, Any] | None


class ContainerHeader(NamedTuple):
    """What a container holds beside its sequences: its origin, and the ids, bounds and metadata of B repertoires."""

    origin: Origin
    repertoire_ids: NDArray[np.object_]
    repertoire_offsets: NDArray[np.int64]
    metadata: pd.DataFrame


class Texts:
    """The texts of a container: of fixed length in version 2; in version 1, another process has read them."""

    def __init__(self, legacy: dict[str, Any] | None = None) -> None:
        self._legacy = legacy

    def read_attribute(self, member: h5py.Group | h5py.Dataset, name: str) -> str:
        """Return an attribute that is one text."""
        return (
            read_text_attribute(member, name)
            if self._legacy is None
            else self._get_list(f"{_get_location(member)}@{name}", str)[0]
        )

    def read_attribute_list(self, member: h5py.Group | h5py.Dataset, name: str) -> list[str]:
        """Return an attribute that is a list of texts."""
        return (
            read_text_list_attribute(member, name)
            if self._legacy is None
            else self._get_list(f"{_get_location(member)}@{name}", list)
        )

    def read_dataset(self, dataset: h5py.Dataset) -> list[str]:
        """Return a dataset of texts."""
        return read_text_dataset(dataset) if self._legacy is None else self._get_list(_get_location(dataset), list)

    def _get_list(self, name: str, kind: type[str] | type[list[str]]) -> list[str]:
        """Return the texts that the other process has read at a location, one or several."""
        assert self._legacy is not None
        if not isinstance(value := self._legacy.get(name), kind):
            raise ValueError(f"/{name}: expected {'one text' if kind is str else 'several texts'} of variable length")
        texts = value if isinstance(value, list) else [value]
        check_texts(texts, f"/{name}")
        return texts

    def holds(self, dataset: h5py.Dataset) -> bool:
        """Return whether a dataset's values are texts."""
        return is_fixed_text(dataset) if self._legacy is None else _get_location(dataset) in self._legacy


def _get_location(member: h5py.Group | h5py.Dataset) -> str:
    return str(member.name).strip("/")


def is_container(path: Path) -> bool:
    """Return whether a file is a container, of any version, whole or damaged."""
    try:
        with open_hdf5(path, expected=EXPECTED) as file:
            # The text of "format" is not read: in a damaged file of version 1 that may not end.
            return has_attribute(file, "format") and has_attribute(file, "alphabet") and "repertoire_ids" in file
    except (InputError, OSError, RuntimeError):
        return False


def refuse_other_file(output: Path) -> None:
    """Raise InputError if a file would be replaced that is not a container."""
    if output.exists() and not is_container(output):
        raise InputError(f"{output}: exists and is not a container; choose another `output`")


def read_version(file: h5py.File, path: Path) -> int:
    """Return the version of a container; raise InputError if it is none, or of a version that is not known."""
    if not (has_attribute(file, "format") and has_attribute(file, "version")):
        raise InputError(f"{path}: an HDF5 file, but not {EXPECTED}")
    version = read_integer_attribute(file, "version")
    if version not in (LEGACY_VERSION, VERSION, LINKED_VERSION):
        raise InputError(
            f"{path}: expected version {VERSION} or {LINKED_VERSION} of the container, found {version}; "
            "run `deeprc preprocess` again with this version of deeprc"
        )
    return version


def get_creator() -> str:
    """Return the name that a new container gives to its creator: this version of deeprc."""
    return f"deeprc {package_version('deeprc') or 'unknown'}"


def read_header(
    file: h5py.File, members: dict[str, h5py.Group | h5py.Dataset], texts: Texts, path: Path
) -> ContainerHeader:
    """Return the header of a container of any version; `members` are the members of the file."""
    origin = _read_origin(file, texts, path)
    ids = texts.read_dataset(get_dataset(members, "repertoire_ids"))
    offsets = map_values(path, get_dataset(members, "repertoire_offsets"), np.int64)
    if len(offsets) != len(ids) + 1:  # before they are copied: the file may be sparse, and claim to have terabytes
        raise ValueError(f"/repertoire_offsets: expected {len(ids) + 1:,} values, found {len(offsets):,}")
    metadata = _read_metadata_table(members.get("metadata"), texts, path, len(ids))
    return ContainerHeader(origin, np.array(ids, object), np.array(offsets), metadata)


def _read_origin(file: h5py.File, texts: Texts, path: Path) -> Origin:
    """Check a container's format and alphabet, and return its origin."""
    if texts.read_attribute(file, "format") != FORMAT:
        raise InputError(f"{path}: an HDF5 file, but not {EXPECTED}")
    if (alphabet := texts.read_attribute(file, "alphabet")) != AMINO_ACIDS:
        raise InputError(f"{path}: expected the alphabet {AMINO_ACIDS}, found {alphabet!r:.60}")
    simulated = has_attribute(file, "simulation")
    return Origin(
        texts.read_attribute(file, "created_by"),
        texts.read_attribute(file, "source"),
        read_preprocessing(texts.read_attribute(file, "preprocessing")),
        read_simulation(texts.read_attribute(file, "simulation")) if simulated else None,
    )


def get_dataset(members: dict[str, h5py.Group | h5py.Dataset], name: str) -> h5py.Dataset:
    """Return one of the members of a group; raise ValueError if it is missing or no dataset."""
    if not isinstance(members.get(name), h5py.Dataset):
        raise ValueError(f"no dataset {name!r}")
    return members[name]


def _read_metadata_table(
    group: h5py.Group | h5py.Dataset | None, texts: Texts, path: Path, n_repertoires: int
) -> pd.DataFrame:
    """Return the table in the group `metadata` of a container, one row per repertoire."""
    if not isinstance(group, h5py.Group):
        raise ValueError("no group 'metadata'")
    by_name = {texts.read_attribute(dataset, "name"): dataset for dataset in list_members(group).values()}
    names = texts.read_attribute_list(group, "columns")
    if len(set(names)) != len(names) or set(names) != set(by_name) or len(group) != len(names):
        raise ValueError("/metadata: its attribute 'columns' does not name each of its datasets once")
    columns: dict[str, pd.Series] = {}
    for name in names:
        dataset = by_name[name]
        if isinstance(dataset, h5py.Dataset) and texts.holds(dataset):
            columns[name] = pd.Series([value or None for value in texts.read_dataset(dataset)], dtype=object)
            continue
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "iuf" or not dataset.dtype.isnative:
            found = describe_values(dataset)
            raise ValueError(f"{dataset.name}: expected texts of fixed length or numbers, found {found}")
        if dataset.dtype.itemsize > 8:
            raise ValueError(f"{dataset.name}: expected numbers of at most 8 bytes, found {dataset.dtype}")
        numbers = map_values(path, dataset)
        if len(numbers) > n_repertoires:
            raise ValueError(f"/metadata: expected {n_repertoires:,} rows, found {len(numbers):,}")
        # pandas cannot group by numbers of 16 bits
        columns[name] = pd.Series(np.array(numbers, np.float64 if numbers.dtype == np.float16 else None))
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"/metadata: expected columns of one length, found {abbreviate(sorted(lengths))}")
    return pd.DataFrame(columns)
