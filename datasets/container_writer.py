"""Write containers as a whole or not at all; see `deeprc.datasets.container`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
import pandas as pd
from numpy.typing import DTypeLike, NDArray

from deeprc.datasets.alphabet import MAX_LENGTH, compute_offsets
from deeprc.datasets.categorical import Categorical, extend_vocabulary
from deeprc.datasets.container_check import remember_written
from deeprc.datasets.container_file import (
    HDF5_LAYOUT,
    HDF5Target,
    write_checksum,
    write_metadata,
    write_origin,
    write_text_list,
    write_texts,
)
from deeprc.datasets.container_header import get_creator
from deeprc.datasets.journal import Journal
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError
from deeprc.files import replace_file
from deeprc.hidden_folders import temporary_folder

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
_CONTAINER = "container.h5"
"""Name of the container until it is renamed; its own could be that of another file in the folder."""

_COPY_BYTES = 1 << 24
_WORTH_KEEPING = 1 << 24
"""Bytes from which data is kept after an error; less data is read again in a moment."""


class ContainerWriter:
    """A writer of a container, to which repertoires are added one by one; the file appears when it is complete.

    Use it as a context manager: `append` each repertoire in the order of the metadata's rows, then `finish`. Sequences
    are collected in a temporary folder beside `path`, so that memory does not grow with the cohort, and copied into
    contiguous datasets at the end. If the block ends without `finish`, nothing is left behind.

    Parameters
    ----------
    path
        Path of the container. An existing file is replaced only by `finish`, in one rename.
    resumable
        Whether an interrupted writer can be continued. If the process is killed, or the block ends by an interrupt or
        by an error after some megabytes, the data until the last `checkpoint` stays in a hidden folder beside `path`,
        `kept_in`. The next writer of the same path finds it as `checkpoints`, and continues after the first n of them
        by `rewind(n)`.
    """

    def __init__(self, path: str | os.PathLike[str], *, resumable: bool = False) -> None:
        self.path = Path(path)
        self.checkpoints: list[dict[str, Any]] = []
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path}: the folder {self.path.parent} does not exist")
        self._resumable = resumable
        self._journal: Journal | None = None
        self._folder: Path | None = None
        self._hidden = ExitStack()
        self._real_path = Path(os.path.realpath(self.path))  # a link stays one
        self._forget()

    def _note_all(self) -> None:
        """Remember which ids and gene names the journal has already."""
        self._noted = {name: len(genes) for name, genes in self._vocabulary.items()}
        self._new_repertoire_ids: list[str] = []

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
                self._folder = self._hidden.enter_context(temporary_folder(self._real_path))
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
        return self._real_path.with_name(f".{self._real_path.name}.partial")

    def rewind(self, n: int) -> None:
        """Return to the state of the first n of `checkpoints`; this must be done before anything is appended."""
        assert self._journal is not None, "only a resumable writer has checkpoints"
        self._forget()
        for entry in self._journal.entries[:n]:
            self._repertoire_ids |= dict.fromkeys(entry["repertoire_ids"])
            self._n_sequences += entry["n_sequences"]
            self._present = dict(entry["present"])
            for name, genes in entry["vocabulary"].items():
                extend_vocabulary(self._vocabulary[name], genes)
        self._note_all()
        self._journal.rewind(n)
        self.checkpoints = self.checkpoints[:n]

    def checkpoint(self, note: Mapping[str, Any]) -> None:
        """Remember all that was appended, with a note for a call that continues from here."""
        assert self._journal is not None, "only a resumable writer has checkpoints"
        self._journal.add(
            {
                "repertoire_ids": self._new_repertoire_ids,
                "n_sequences": self._n_sequences[len(self._n_sequences) - len(self._new_repertoire_ids) :],
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
        self._hidden.close()
        if self._journal is not None:
            self._journal.close(delete=kind is None or not self._is_worth_keeping(kind))
        self._folder = None

    def _is_worth_keeping(self, kind: type[BaseException]) -> bool:
        if not self._resumable or not self.checkpoints:
            return False
        interrupted = not issubclass(kind, Exception)
        return interrupted or sum(path.stat().st_size for path in self.kept_in.iterdir()) >= _WORTH_KEEPING

    def append(self, repertoire_id: str, sequences: Sequences) -> None:
        """Add one repertoire's sequences.

        Raises
        ------
        InputError
            If the id was given before, or there are too many gene names.
        ValueError
            If the columns do not have the same number of sequences, a sequence is empty or longer than `MAX_LENGTH`, or
            a count is 0.
        """
        n, lengths = len(sequences), sequences.lengths
        if repertoire_id in self._repertoire_ids:
            raise InputError(f"repertoire_id {repertoire_id!r} appears twice")
        if len(sequences.counts) != n or sequences.offsets[0] != 0 or sequences.offsets[-1] != len(sequences.residues):
            raise ValueError(f"{repertoire_id}: offsets, counts and residues do not belong together")
        if n and not (lengths.min() >= 1 and lengths.max() <= MAX_LENGTH and sequences.counts.min() > 0):
            raise ValueError(f"{repertoire_id}: expected lengths from 1 to {MAX_LENGTH} and counts of at least 1")
        self._repertoire_ids[repertoire_id] = None
        self._new_repertoire_ids.append(repertoire_id)
        self._n_sequences.append(n)
        columns: dict[str, NDArray[Any] | None] = {
            "residues": sequences.residues,
            "lengths": lengths,
            "counts": sequences.counts,
            "v_call": self._encode_genes("v_call", sequences.v_call, n),
            "j_call": self._encode_genes("j_call", sequences.j_call, n),
            "witness": sequences.witness,
        }
        self._present["witness"] |= sequences.witness is not None
        for name, values in columns.items():
            if not self._present.get(name, True):
                continue
            if values is None:
                values = np.zeros(n, _SEQUENCE_DTYPES[name])
            with self._get_spool_path(name).open("ab") as file:
                if name in _OPTIONAL and file.tell() == 0:  # earlier repertoires had none
                    np.zeros(sum(self._n_sequences) - n, _SEQUENCE_DTYPES[name]).tofile(file)
                file.write(np.ascontiguousarray(values, dtype=_SEQUENCE_DTYPES[name]).data)  # tofile names no error

    def finish(
        self,
        metadata: pd.DataFrame,
        *,
        source: str,
        preprocessing: Mapping[str, Any] | None = None,
        simulation: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the container and rename it to its path.

        Parameters
        ----------
        metadata
            One row per appended repertoire, in the same order; each column becomes `/metadata/<column>`.
        source
            Origin of the cohort, in words.
        preprocessing
            Report of what was kept and dropped, stored as JSON.
        simulation
            Recipe of a simulated cohort, stored as JSON.
        """
        if len(metadata) != len(self._repertoire_ids):
            raise ValueError(f"{len(metadata)} rows of metadata for {len(self._repertoire_ids)} repertoires")
        assert self._folder is not None, "ContainerWriter is used as a context manager"
        partial = self._folder / _CONTAINER
        with HDF5Target(partial, "w+") as hdf5_file, h5py.File(hdf5_file, "w", libver=HDF5_LAYOUT) as file:
            write_origin(file, get_creator(), source, preprocessing or {}, simulation)
            write_texts(file, "repertoire_ids", list(self._repertoire_ids))
            file.create_dataset("repertoire_offsets", data=compute_offsets(np.asarray(self._n_sequences, np.int64)))
            self._write_sequences(file, hdf5_file)
            write_metadata(file.create_group("metadata"), metadata)
            write_checksum(file, hdf5_file, partial)
        hdf5_file.check()
        replace_file(partial, self._real_path)
        remember_written(self.path)

    def _write_sequences(self, file: h5py.File, hdf5_file: HDF5Target) -> None:
        n = sum(self._n_sequences)
        offsets = _create_dataset(file, "sequence_offsets", n + 1, np.int64)
        offsets[:1] = 0
        total = end = self._count_spooled("residues")
        for start, lengths in self._consume_spooled("lengths"):
            sums = np.cumsum(lengths)
            first = end - int(sums[-1])
            offsets[start + 1 : start + 1 + len(sums)] = first + sums
            end = first
            hdf5_file.check()
        assert end == 0, "lengths and residues do not belong together"
        for name in _SEQUENCE_DTYPES:
            if name == "lengths" or (name in _OPTIONAL and not self._present[name]):
                continue
            column = _create_dataset(file, name, total if name == "residues" else n, _SEQUENCE_DTYPES[name])
            for start, values in self._consume_spooled(name):
                column[start : start + len(values)] = values
                hdf5_file.check()
            if name in self._vocabulary:
                write_text_list(column, "vocabulary", list(self._vocabulary[name]))

    def _encode_genes(self, name: str, calls: Categorical | None, n: int) -> NDArray[np.uint16] | None:
        if calls is None:
            return None
        if len(calls.codes) != n:
            raise ValueError(f"{name}: {len(calls.codes)} gene calls for {n} sequences")
        self._present[name] = True
        vocabulary = self._vocabulary[name]
        codes = extend_vocabulary(vocabulary, calls.vocabulary).astype(np.uint16)
        if len(vocabulary) > np.iinfo(np.uint16).max:
            raise InputError(f"{name}: more than {np.iinfo(np.uint16).max} different gene names; is it a gene column?")
        return codes[calls.codes] if len(codes) else np.zeros(n, np.uint16)

    def _get_spool_path(self, name: str) -> Path:
        assert self._folder is not None, "ContainerWriter is used as a context manager"
        return self._folder / f"{name}.bin"

    def _count_spooled(self, name: str) -> int:
        """Return how many values of a column were appended."""
        path = self._get_spool_path(name)
        return path.stat().st_size // np.dtype(_SEQUENCE_DTYPES[name]).itemsize if path.exists() else 0

    def _consume_spooled(self, name: str) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield blocks of a column, the last first, each with the index of its first value.

        Each block is cut off after it was copied. So the disk never holds much more than the container, if the file
        system allows holes: the container grows from its end. A resumable writer cuts off nothing, because a resumed
        call may need it.
        """
        dtype, stop = np.dtype(_SEQUENCE_DTYPES[name]), self._count_spooled(name)
        if stop == 0:
            return
        with self._get_spool_path(name).open("rb" if self._resumable else "r+b") as file:
            while stop:
                start = max(stop - _COPY_BYTES // dtype.itemsize, 0)
                file.seek(start * dtype.itemsize)
                block = np.fromfile(file, dtype=dtype, count=stop - start)
                if len(block) < stop - start:
                    raise OSError(f"{file.name} was changed while it was read")
                yield start, block
                if not self._resumable:
                    file.truncate(start * dtype.itemsize)
                stop = start


def _create_dataset(file: h5py.File, name: str, length: int, dtype: DTypeLike) -> h5py.Dataset:
    return file.create_dataset(name, shape=(length,), dtype=dtype)
