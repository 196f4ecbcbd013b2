"""Containers are written once, whole or not at all; see `deeprc.datasets.container`."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS, offsets_of
from deeprc.datasets.container import FORMAT, VERSION
from deeprc.datasets.journal import Journal
from deeprc.datasets.sequences import GeneCalls, SequenceTable
from deeprc.errors import InputError
from deeprc.versions import package_version

__all__ = ["ContainerWriter"]

_SEQUENCE_DTYPES: dict[str, DTypeLike] = {
    "residues": np.uint8,
    "lengths": np.int64,
    "counts": np.uint32,
    "v_call": np.uint16,
    "j_call": np.uint16,
    "witness": np.uint8,
}
_OPTIONAL = ("v_call", "j_call", "witness")
_COPY_BYTES = 1 << 24
_WORTH_KEEPING = 1 << 24
"""Bytes; after an error less is read again in a moment."""

_STRING = h5py.string_dtype("utf-8")


class ContainerWriter:
    """Write a cohort repertoire by repertoire into a container that appears only when it is complete.

    Use it as a context manager: `append` each repertoire in the order of the metadata's rows, then `finish`.
    Sequences are spooled to a temporary folder beside `path` (so memory does not grow with the cohort) and
    copied into contiguous datasets at the end; leaving the block without `finish` leaves nothing behind.

    Parameters
    ----------
    path
        The container's path. An existing file is replaced only by `finish`, in one rename.
    resumable
        Where the process is killed, or the block is left by an interrupt, or by an error after some megabytes, what was
        written until the last `checkpoint` stays in a hidden folder beside `path`, `kept_in`, and the next writer of
        the same path finds it as `checkpoints`: it goes on after the first of them with `rewind`.
    """

    def __init__(self, path: str | os.PathLike[str], *, resumable: bool = False) -> None:
        self.path = Path(path)
        self.checkpoints: list[dict[str, Any]] = []
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path}: the folder {self.path.parent} does not exist")
        self._resumable = resumable
        self._journal: Journal | None = None
        self._folder: Path | None = None
        self._forget()

    def _note_all(self) -> None:
        """Remember how much of everything the journal has."""
        self._noted = {"repertoires": len(self._n_sequences)}
        self._noted |= {name: len(genes) for name, genes in self._vocabulary.items()}

    def _forget(self) -> None:
        self._repertoire_ids: dict[str, None] = {}
        self._n_sequences: list[int] = []
        self._vocabulary: dict[str, dict[str, int]] = {"v_call": {"": 0}, "j_call": {"": 0}}
        self._present: dict[str, bool] = dict.fromkeys(_OPTIONAL, False)
        self._note_all()

    def __enter__(self) -> ContainerWriter:
        new = not self.kept_in.exists()
        try:
            if self._resumable:
                self._folder = self.kept_in
                self._folder.mkdir(exist_ok=True)
                self._journal = Journal(self._folder)
                self.checkpoints = [entry["note"] for entry in self._journal.entries]
            else:
                self._folder = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from error
        except BaseException:  # the process is asked to end before `with` has begun, so nobody calls __exit__
            if new:
                shutil.rmtree(self.kept_in, ignore_errors=True)
            raise
        return self

    @property
    def kept_in(self) -> Path:
        """The folder in which a resumable writer leaves its checkpoints."""
        return self.path.with_name(f".{self.path.name}.partial")

    def rewind(self, n: int) -> None:
        """Go back to the state of the first n of `checkpoints`, which must be done before anything is appended."""
        assert self._journal is not None, "only a resumable writer has checkpoints"
        self._forget()
        for entry in self._journal.entries[:n]:
            self._repertoire_ids |= dict.fromkeys(entry["repertoire_ids"])
            self._n_sequences += entry["n_sequences"]
            self._present = dict(entry["present"])
            for name, genes in entry["vocabulary"].items():
                known = self._vocabulary[name]
                for gene in genes:
                    known.setdefault(gene, len(known))
        self._note_all()
        self._journal.rewind(n)
        self.checkpoints = self.checkpoints[:n]

    def checkpoint(self, note: Mapping[str, Any]) -> None:
        """Remember all that was appended, with a note for whoever goes on from here."""
        assert self._journal is not None, "only a resumable writer has checkpoints"
        self._journal.add(
            {
                "repertoire_ids": list(islice(self._repertoire_ids, self._noted["repertoires"], None)),
                "n_sequences": self._n_sequences[self._noted["repertoires"] :],
                "present": dict(self._present),
                "vocabulary": {
                    name: list(islice(genes, self._noted[name], None)) for name, genes in self._vocabulary.items()
                },
                "note": dict(note),
            }
        )
        self._note_all()
        self.checkpoints.append(dict(note))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal is not None:
            self._journal.close()
        if self._folder is not None and not (kind is not None and self._is_worth_keeping(kind)):
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _is_worth_keeping(self, kind: type[BaseException]) -> bool:
        if not self._resumable or not self.checkpoints:
            return False
        interrupted = not issubclass(kind, Exception)
        return interrupted or sum(path.stat().st_size for path in self.kept_in.iterdir()) >= _WORTH_KEEPING

    def append(self, repertoire_id: str, table: SequenceTable) -> None:
        """Add one repertoire's sequences.

        Raises
        ------
        InputError
            If the id was given before, or there are too many gene names.
        ValueError
            If the table's columns do not have the same number of sequences.
        """
        n = len(table.lengths)
        if repertoire_id in self._repertoire_ids:
            raise InputError(f"repertoire_id {repertoire_id!r} appears twice")
        if len(table.counts) != n or int(table.lengths.sum()) != len(table.residues):
            raise ValueError(f"{repertoire_id}: lengths, counts and residues do not belong together")
        self._repertoire_ids[repertoire_id] = None
        self._n_sequences.append(n)
        columns: dict[str, NDArray[Any]] = {
            "residues": table.residues,
            "lengths": table.lengths,
            "counts": table.counts,
            "v_call": self._codes("v_call", table.v_call, n),
            "j_call": self._codes("j_call", table.j_call, n),
            "witness": np.zeros(n, np.uint8) if table.witness is None else table.witness,
        }
        self._present["witness"] |= table.witness is not None
        for name, values in columns.items():
            if not self._present.get(name, True):
                continue
            with self._spool(name).open("ab") as file:
                if name in _OPTIONAL and file.tell() == 0:  # the repertoires before had none
                    np.zeros(sum(self._n_sequences) - n, _SEQUENCE_DTYPES[name]).tofile(file)
                np.ascontiguousarray(values, dtype=_SEQUENCE_DTYPES[name]).tofile(file)

    def finish(
        self,
        metadata: pd.DataFrame,
        *,
        source: str,
        preprocessing: Mapping[str, Any] | None = None,
        simulation: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the container and give it its name.

        Parameters
        ----------
        metadata
            One row per appended repertoire, in the same order; each column becomes `/metadata/<column>`.
        source
            What the cohort was made from, in words.
        preprocessing
            What was kept and dropped, stored as JSON.
        simulation
            The recipe of a simulated cohort, likewise.
        """
        if len(metadata) != len(self._repertoire_ids):
            raise ValueError(f"{len(metadata)} rows of metadata for {len(self._repertoire_ids)} repertoires")
        assert self._folder is not None, "ContainerWriter is used as a context manager"
        partial = self._folder / self.path.name
        with h5py.File(partial, "w", libver=("v108", "v108")) as file:  # older layouts limit attributes to 64 KB
            file.attrs["format"] = FORMAT
            file.attrs["version"] = VERSION
            file.attrs["alphabet"] = AMINO_ACIDS
            file.attrs["created_by"] = f"deeprc {package_version('deeprc') or 'unknown'}"
            file.attrs["source"] = source
            file.attrs["preprocessing"] = json.dumps(dict(preprocessing or {}))
            if simulation is not None:
                file.attrs["simulation"] = json.dumps(dict(simulation))
            file.create_dataset("repertoire_ids", data=list(self._repertoire_ids), dtype=_STRING)
            file.create_dataset("repertoire_offsets", data=offsets_of(np.asarray(self._n_sequences, np.int64)))
            self._write_sequences(file)
            _write_metadata(file.create_group("metadata"), metadata)
        partial.replace(self.path)

    def _write_sequences(self, file: h5py.File) -> None:
        n = sum(self._n_sequences)
        offsets = _contiguous(file, "sequence_offsets", n + 1, np.int64)
        offsets[:1] = 0
        position, total = 1, 0
        for lengths in self._spooled("lengths"):
            ends = np.cumsum(lengths) + total
            offsets[position : position + len(ends)] = ends
            position, total = position + len(ends), int(ends[-1])
        self._drop("lengths")
        for name in _SEQUENCE_DTYPES:
            if name == "lengths" or (name in _OPTIONAL and not self._present[name]):
                continue
            target = _contiguous(file, name, total if name == "residues" else n, _SEQUENCE_DTYPES[name])
            position = 0
            for values in self._spooled(name):
                target[position : position + len(values)] = values
                position += len(values)
            self._drop(name)
            if name in self._vocabulary:
                target.attrs.create("vocabulary", list(self._vocabulary[name]), dtype=_STRING)

    def _codes(self, name: str, calls: GeneCalls | None, n: int) -> NDArray[np.uint16]:
        if calls is None:
            return np.zeros(n, np.uint16)
        if len(calls.codes) != n:
            raise ValueError(f"{name}: {len(calls.codes)} gene calls for {n} sequences")
        self._present[name] = True
        known = self._vocabulary[name]
        codes = [known.setdefault(gene, len(known)) for gene in calls.vocabulary]
        if len(known) > np.iinfo(np.uint16).max:
            raise InputError(f"{name}: more than {np.iinfo(np.uint16).max} different gene names; is it a gene column?")
        return np.asarray(codes, np.uint16)[calls.codes] if codes else np.zeros(n, np.uint16)

    def _spool(self, name: str) -> Path:
        assert self._folder is not None, "ContainerWriter is used as a context manager"
        return self._folder / f"{name}.bin"

    def _drop(self, name: str) -> None:
        """Delete what is copied, so that the disk holds little more than the container; a resumed call may need it."""
        if not self._resumable:
            self._spool(name).unlink(missing_ok=True)

    def _spooled(self, name: str) -> Iterator[NDArray[Any]]:
        dtype = np.dtype(_SEQUENCE_DTYPES[name])
        if not self._spool(name).exists():
            return
        with self._spool(name).open("rb") as file:
            while len(block := np.fromfile(file, dtype=dtype, count=_COPY_BYTES // dtype.itemsize)):
                yield block


def _contiguous(file: h5py.File, name: str, length: int, dtype: DTypeLike) -> h5py.Dataset:
    return file.create_dataset(name, shape=(length,), dtype=dtype)


def _write_metadata(group: h5py.Group, metadata: pd.DataFrame) -> None:
    group.attrs.create("columns", [str(name) for name in metadata.columns], dtype=_STRING)
    for index, name in enumerate(metadata.columns):
        values = metadata[name]
        key = str(name).replace("/", "_").replace("\0", "")  # HDF5 reserves the slash, and ends names at a zero
        if key in ("", ".") or key in group:
            key = f"column {index}"
        if pd.api.types.is_bool_dtype(values):
            values = values.astype(str)
        if pd.api.types.is_numeric_dtype(values):
            numbers = values.to_numpy(np.float64, na_value=np.nan) if values.hasnans else values.to_numpy()
            group.create_dataset(key, data=numbers)
        else:
            text = ["" if pd.isna(value) else str(value).replace("\0", "") for value in values]
            group.create_dataset(key, data=text, dtype=_STRING)
        group[key].attrs["name"] = str(name)
