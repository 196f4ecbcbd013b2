"""Write the parts of a container's file that are not sequences, and its checksum.

`container_writer.py` writes new containers; this module can put another metadata sheet into an existing one.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.checksum import compute_checksum
from deeprc.datasets.container import Container
from deeprc.datasets.container_header import FORMAT, VERSION
from deeprc.datasets.hdf5 import MAX_MEMBERS, convert_hdf5_errors, encode_texts
from deeprc.documents import CONTROL_CHARACTERS
from deeprc.errors import InputError

__all__ = [
    "HDF5_LAYOUT",
    "HDF5Target",
    "rewrite_metadata",
    "update_checksum",
    "write_checksum",
    "write_metadata",
    "write_origin",
    "write_text_list",
    "write_texts",
]

_ARRAYS = frozenset({"residues", "sequence_offsets", "counts", "v_call", "j_call", "witness", "repertoire_offsets"})
HDF5_LAYOUT = ("v108", "v108")
"""The versions of HDF5's own format; older ones limit attributes to 64 KB."""


class HDF5Target(io.FileIO):
    """A file that HDF5 writes to. It keeps the first error until `check` raises it.

    HDF5 crashes if it closes a file that it could not write, so it is told that everything was written.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write bytes and return their number, also if they could not be written."""
        rest = memoryview(data)
        size = rest.nbytes
        try:
            while rest.nbytes:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = self.error or error
        return size

    def truncate(self, size: int | None = None) -> int:
        """Set the file's size and return it; if that is not possible, return the position in the file."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return self.tell()

    def check(self) -> None:
        """Raise the first error, if there was one; what was written after it is lost."""
        if self.error is not None:
            raise OSError(self.error.errno, self.error.strerror, self.name)


def write_metadata(group: h5py.Group, metadata: pd.DataFrame) -> None:
    """Write a table of metadata: one dataset for each column, and the order of the columns as an attribute.

    Raises
    ------
    InputError
        If it has more columns than a container may have.
    """
    if metadata.shape[1] > MAX_MEMBERS:
        raise InputError(f"metadata: expected at most {MAX_MEMBERS:,} columns, found {metadata.shape[1]:,}")
    write_text_list(group, "columns", [str(name) for name in metadata.columns])
    for index, (name, values) in enumerate(metadata.items()):
        key = str(name).replace("/", "_").replace("\0", "")  # HDF5 reserves the slash, and ends names at a zero
        number = index
        while key in ("", ".") or key in group:
            key, number = f"column {number}", number + 1
        if pd.api.types.is_bool_dtype(values):
            values = values.astype(str)
        if pd.api.types.is_numeric_dtype(values):
            numbers = values.to_numpy(np.float64, na_value=np.nan) if values.hasnans else values.to_numpy()
            column = group.create_dataset(key, data=numbers)
        else:
            column = write_texts(group, key, ["" if pd.isna(value) else str(value) for value in values])
        _write_text(column, "name", str(name))


def rewrite_metadata(
    path: Path, container: Container, metadata: pd.DataFrame, *, source: str, preprocessing: Mapping[str, Any]
) -> None:
    """Replace the metadata, one row per repertoire, and the origin in a copy of a container of any version.

    Parameters
    ----------
    path
        Copy, which is changed in place.
    container
        Container that was copied.
    metadata
        New table.
    source, preprocessing
        As in `ContainerWriter.finish`.
    """
    with HDF5Target(path, "r+") as target, h5py.File(target, "r+", libver=HDF5_LAYOUT) as file:
        with convert_hdf5_errors(container.path):
            _delete_all_but_arrays(file)
            write_origin(file, container.created_by, source, preprocessing, container.simulation)
            write_texts(file, "repertoire_ids", list(container.repertoire_ids))
            for name, genes in container.sequences.genes.items():
                write_text_list(file[name], "vocabulary", list(genes.vocabulary))
            write_metadata(file.create_group("metadata"), metadata)
        write_checksum(file, target, path)
    target.check()


def _delete_all_but_arrays(file: h5py.File) -> None:
    """Delete all attributes, and all objects except the arrays: version 1 has no checksum, and may hold anything."""
    for name in list(file):
        if name not in _ARRAYS:
            del file[name]
    for member in (file, *file.values()):
        for name in list(member.attrs):
            del member.attrs[name]


def update_checksum(path: str | os.PathLike[str]) -> None:
    """Write the checksum of a container's content into it, which is needed after any change.

    Raises
    ------
    ValueError
        If the file holds anything that no container has; it is left as it was.
    """
    with HDF5Target(path, "r+") as target, h5py.File(target, "r+") as file:
        write_checksum(file, target, Path(path))
    target.check()


def write_checksum(file: h5py.File, target: HDF5Target, path: Path) -> None:
    """Write the checksum into an open container, which is written through `target` to the file at `path`."""
    file.flush()
    target.check()
    checksum = compute_checksum(file, path)
    file.attrs.pop("checksum", None)
    _write_text(file, "checksum", checksum)


def write_origin(
    file: h5py.File,
    created_by: str,
    source: str,
    preprocessing: Mapping[str, Any],
    simulation: Mapping[str, Any] | None,
    *,
    version: int = VERSION,
) -> None:
    """Write the name and the version of the format, and the origin of the container; see `ContainerWriter`."""
    file.attrs["version"] = version
    _write_text(file, "format", FORMAT)
    _write_text(file, "alphabet", AMINO_ACIDS)
    _write_text(file, "created_by", created_by)
    _write_text(file, "source", CONTROL_CHARACTERS.sub("?", source).encode(errors="replace").decode())  # names files
    _write_text(file, "preprocessing", json.dumps(dict(preprocessing)))
    if simulation is not None:
        _write_text(file, "simulation", json.dumps(dict(simulation)))


def _write_text(member: h5py.Group | h5py.Dataset, name: str, text: str) -> None:
    texts = encode_texts([text], name)
    member.attrs.create(name, texts[0], dtype=texts.dtype)


def write_text_list(member: h5py.Group | h5py.Dataset, name: str, texts: list[str]) -> None:
    """Write several texts as one attribute of a group or dataset."""
    member.attrs.create(name, encode_texts(texts, f"{member.name}: {name}"))


def write_texts(group: h5py.Group, name: str, texts: list[str]) -> h5py.Dataset:
    """Write several texts as one dataset, and return it."""
    return group.create_dataset(name, data=encode_texts(texts, f"{group.name}/{name}"))
