"""The HDF5 container of a cohort, read by memory map; `container_writer.py` writes it.

The layout is specified in `docs/file-format.md`. Letters: R residues, N sequences, B repertoires.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.sequences import GeneCalls
from deeprc.errors import InputError

__all__ = ["FORMAT", "VERSION", "Container", "is_container"]

FORMAT = "deeprc-repertoires"
VERSION = 1


class Container:
    """An open container: memory maps of the per-sequence datasets and the metadata in memory.

    Parameters
    ----------
    path
        A file written by `ContainerWriter`.

    Raises
    ------
    InputError
        If the file is missing, is not HDF5, was cut short, has another format or version, or contradicts
        itself.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.digests: dict[tuple[int, int], str] = {}  # of repertoires, by their first and last sequence
        self.path = Path(path).absolute()
        try:
            status = self.path.stat()
            self.stamp = (status.st_size, status.st_mtime_ns)  # of the file that is read here, also if it is replaced
            with h5py.File(self.path, "r") as file:
                self._read(file)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file; expected a container made by `deeprc preprocess`") from None
        except OSError as error:
            if self.path.is_dir():
                raise InputError(f"{path}: is a folder; expected a container made by `deeprc preprocess`") from None
            told = " ".join(str(error).split())
            raise InputError(f"{path}: cannot be read as HDF5 (damaged, cut short, or no container): {told}") from error
        except InputError:
            raise
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            # What h5py makes of parts that are missing or altered.
            reason = error.args[0] if isinstance(error, KeyError) else error
            raise InputError(f"{path}: the container is damaged: {reason}") from error

    def __reduce__(self) -> tuple[type[Container], tuple[Path]]:
        """Pickle as the path: a worker process maps the file by itself."""
        return Container, (self.path,)

    def _read(self, file: h5py.File) -> None:
        if file.attrs.get("format") != FORMAT:
            raise InputError(f"{self.path}: an HDF5 file, but no container made by `deeprc preprocess`")
        if file.attrs["version"] != VERSION:
            raise InputError(
                f"{self.path}: expected version {VERSION} of the container, found {file.attrs['version']}; "
                "run `deeprc preprocess` again with this version of deeprc"
            )
        if file.attrs["alphabet"] != AMINO_ACIDS:
            raise InputError(f"{self.path}: expected the alphabet {AMINO_ACIDS}, found {file.attrs['alphabet']}")
        self.created_by = str(file.attrs["created_by"])
        self.source = str(file.attrs["source"])
        self.preprocessing: dict[str, Any] = json.loads(file.attrs["preprocessing"])
        self.simulation: dict[str, Any] | None = json.loads(file.attrs.get("simulation", "null"))
        self.repertoire_ids: NDArray[np.object_] = file["repertoire_ids"].asstr()[:]
        self.repertoire_offsets: NDArray[np.int64] = file["repertoire_offsets"][:]
        self.residues: NDArray[np.uint8] = self._map(file["residues"], np.uint8)
        self.sequence_offsets: NDArray[np.int64] = self._map(file["sequence_offsets"], np.int64)
        self.counts: NDArray[np.uint32] = self._map(file["counts"], np.uint32)
        self.v_call = self._genes(file, "v_call")
        self.j_call = self._genes(file, "j_call")
        self.witness: NDArray[np.uint8] | None = self._map(file["witness"], np.uint8) if "witness" in file else None
        self.metadata = _read_metadata(file["metadata"], len(self.repertoire_ids))
        self._check()

    def _check(self) -> None:
        n = len(self.sequence_offsets) - 1
        expected = {
            "repertoire_offsets": (len(self.repertoire_offsets), len(self.repertoire_ids) + 1),
            "repertoire_offsets, last value": (int(self.repertoire_offsets[-1]), n),
            "residues": (len(self.residues), int(self.sequence_offsets[-1])),
            "counts": (len(self.counts), n),
            "v_call": (n if self.v_call is None else len(self.v_call.codes), n),
            "j_call": (n if self.j_call is None else len(self.j_call.codes), n),
            "witness": (n if self.witness is None else len(self.witness), n),
        }
        for name, (found, wanted) in expected.items():
            if found != wanted:
                raise InputError(f"{self.path}: /{name}: expected {wanted}, found {found}; the container is damaged")
        if np.any(np.diff(self.repertoire_offsets) < 0):
            raise InputError(f"{self.path}: /repertoire_offsets: decreases; the container is damaged")

    def _genes(self, file: h5py.File, name: str) -> GeneCalls | None:
        if name not in file:
            return None
        return GeneCalls(self._map(file[name], np.uint16), tuple(file[name].attrs["vocabulary"]))

    def _map(self, dataset: h5py.Dataset, dtype: DTypeLike) -> NDArray[Any]:
        if dataset.dtype != dtype or dataset.ndim != 1:
            expected = f"expected one dimension of {np.dtype(dtype)}"
            raise InputError(f"{self.path}: {dataset.name}: {expected}, found {dataset.dtype} {dataset.shape}")
        offset = dataset.id.get_offset()
        if dataset.size == 0:
            return np.zeros(dataset.shape, dataset.dtype)
        if offset is None:
            raise InputError(f"{self.path}: {dataset.name}: expected a contiguous, uncompressed dataset")
        # Copy-on-write: torch takes only writable arrays without a copy, and nothing ever reaches the file.
        return np.memmap(self.path, dataset.dtype, mode="c", offset=offset, shape=dataset.shape)


def is_container(path: Path) -> bool:
    """Return whether a file is a container, of whatever version, whole or damaged."""
    try:
        with h5py.File(path, "r") as file:
            return bool(file.attrs.get("format") == FORMAT)
    except OSError:
        return False


def _read_metadata(group: h5py.Group, n: int) -> pd.DataFrame:
    columns: dict[str, pd.Series] = {}
    by_name = {dataset.attrs["name"]: dataset for dataset in group.values()}
    for name in group.attrs["columns"]:
        dataset = by_name[name]
        if h5py.check_string_dtype(dataset.dtype) is None:
            columns[name] = pd.Series(dataset[:])
        else:
            columns[name] = pd.Series([value or None for value in dataset.asstr()[:]], dtype=object)
    return pd.DataFrame(columns, index=pd.RangeIndex(n))
