"""Write a container that names the containers of the parts of its cohort; see `linked_container`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.container import Container
from deeprc.datasets.container_file import (
    HDF5_LAYOUT,
    HDF5Target,
    write_checksum,
    write_metadata,
    write_origin,
    write_texts,
)
from deeprc.datasets.container_header import LINKED_VERSION, get_creator
from deeprc.datasets.linked_container import MAX_PARTS, is_plain, join_vocabularies
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.documents import CONTROL_CHARACTERS
from deeprc.errors import InputError, quote
from deeprc.files import write_atomically

__all__ = ["write_linked"]


def write_linked(
    path: Path,
    parts: Sequence[Container],
    metadata: pd.DataFrame,
    *,
    source: str,
    preprocessing: Mapping[str, Any],
    simulation: Mapping[str, Any] | None,
) -> None:
    """Write a linked container, which names its parts; it appears when it is complete, or not at all.

    Parameters
    ----------
    path
        The file to write.
    parts
        The parts, which must lie in the folder of the file or below.
    metadata
        One row per repertoire, part after part.
    source, preprocessing, simulation
        As in `ContainerWriter.finish`.

    Raises
    ------
    InputError
        If there are too many parts, or one lies elsewhere or is of version 1, which has no checksum.
    """
    if len(parts) > MAX_PARTS:
        raise InputError(
            f"expected at most {MAX_PARTS:,} parts, found {len(parts):,}; join some of them without `link`"
        )
    folder = Path(os.path.realpath(path)).parent
    names = [_make_part_name(part, folder, path) for part in parts]
    for field in GENE_FIELDS:
        join_vocabularies(field, parts)  # raises InputError if the parts have too many genes together
    with write_atomically(path) as temporary_path:
        with HDF5Target(temporary_path, "w+") as target, h5py.File(target, "w", libver=HDF5_LAYOUT) as file:
            write_origin(file, get_creator(), source, preprocessing, simulation, version=LINKED_VERSION)
            write_texts(file, "repertoire_ids", [str(name) for part in parts for name in part.repertoire_ids])
            sizes = np.concatenate([np.diff(part.repertoire_offsets) for part in parts])
            file.create_dataset("repertoire_offsets", data=compute_offsets(sizes))
            write_metadata(file.create_group("metadata"), metadata)
            group = file.create_group("parts")
            write_texts(group, "path", names)
            write_texts(group, "checksum", [str(part.checksum) for part in parts])
            group.create_dataset("size", data=np.array([part.stamp.size for part in parts], np.int64))
            write_checksum(file, target, temporary_path)
        target.check()


def _make_part_name(part: Container, folder: Path, path: Path) -> str:
    """Return the path of a part as the file at `path`, in `folder`, names it."""
    if part.checksum is None:
        raise InputError(
            f"{part.path}: is of version {part.version}, which has no checksum; join it without `link`, or run "
            "`deeprc preprocess` again"
        )
    real_path = Path(os.path.realpath(part.path))
    if not real_path.is_relative_to(folder):
        raise InputError(f"{part.path}: is not in the folder of {path} or below; a container names only such parts")
    name = real_path.relative_to(folder).as_posix()
    is_text = name == name.encode(errors="replace").decode() and not CONTROL_CHARACTERS.search(name)
    if not is_text or not is_plain(name):
        raise InputError(
            f"{path}: expected names of parts that all systems can read, found {quote(name)}; rename the file or folder"
        )
    return name
