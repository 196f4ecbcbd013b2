"""Write containers as a whole or not at all; see `deeprc.datasets.container`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from itertools import islice, takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import MAX_LENGTH, compute_offsets
from deeprc.datasets.categorical import Categorical, extend_vocabulary
from deeprc.datasets.column_files import COLUMN_DTYPES, ColumnFiles
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
from deeprc.datasets.sequences import GENE_FIELDS, Sequences
from deeprc.errors import InputError
from deeprc.files import replace_file
from deeprc.hidden_folders import temporary_folder

__all__ = ["ContainerWriter", "check_n_gene_names"]

_OPTIONAL = (*GENE_FIELDS, "witness")
_CONTAINER = "container.h5"
"""Name of the container until it is renamed; its own could be that of another file in the folder."""

_MIN_KEPT_BYTES = 1 << 24
"""Bytes from which data is kept after an error; less data is read again in a moment."""


def check_n_gene_names(field: str, n: int) -> None:
    """Raise InputError if a cohort has more different names of a gene than there are codes of 16 bits."""
    limit = np.iinfo(np.uint16).max
    if n > limit:
        raise InputError(f"{field}: more than {limit:,} different gene names; is it a gene column?")


@dataclass(frozen=True)
class _AppendedRepertoire:
    """What is known of an appended repertoire: its sizes, and the codes of the gene names that came with it."""

    n_sequences: int
    n_residues: int
    v_call: list[int]
    j_call: list[int]


class ContainerWriter:
    """A writer of a container, to which repertoires are added one by one; the file appears when it is complete.

    Use it as a context manager: `append` each repertoire in any order, then `finish`. Sequences are collected in
    temporary files beside `path` (`ColumnFiles`), so that memory does not grow with the cohort, and copied into
    contiguous datasets at the end. If the block ends without `finish`, nothing is left behind.

    Parameters
    ----------
    path
        Path of the container. An existing file is replaced only by `finish`, in one rename.
    resumable
        Whether an interrupted writer can be continued. If the process is killed, or the block ends by an interrupt or
        by an error after some megabytes, the data until the last `checkpoint` stays in a hidden folder beside `path`,
        `checkpoint_folder`. The next writer of the same path finds it as `checkpoints`, and continues after the first n
        of them by `rewind(n)`.
    """

    def __init__(self, path: str | os.PathLike[str], *, resumable: bool = False) -> None:
        self.path = Path(path)
        self.checkpoints: list[dict[str, Any]] = []
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path}: the folder {self.path.parent} does not exist")
        self._resumable = resumable
        self._journal: Journal | None = None
        self._folder: Path | None = None
        self._temporary_folder = ExitStack()
        self._real_path = Path(os.path.realpath(self.path))  # a link stays one
        self._forget_repertoires()

    def _mark_all_as_journaled(self) -> None:
        """Remember which ids and gene names the journal has already."""
        self._n_journaled_genes = {name: len(genes) for name, genes in self._vocabulary.items()}
        self._n_journaled = len(self._appended)

    def _forget_repertoires(self) -> None:
        self._appended: dict[str, _AppendedRepertoire] = {}  # by repertoire, in the order of the temporary files
        self._vocabulary: dict[str, dict[str, int]] = {"v_call": {"": 0}, "j_call": {"": 0}}
        self._has_column: dict[str, bool] = dict.fromkeys(_OPTIONAL, False)  # whether any repertoire has it
        self._mark_all_as_journaled()

    def __enter__(self) -> ContainerWriter:
        is_new = not self.checkpoint_folder.exists()
        try:
            if self._resumable:
                self._folder = self.checkpoint_folder
                self._folder.mkdir(exist_ok=True)
                self._journal = Journal(self._folder)
                # those of an old version have no "appended"
                appended = takewhile(lambda entry: "appended" in entry, self._journal.entries)
                self.checkpoints = [entry["note"] for entry in appended]
            else:
                self._folder = self._temporary_folder.enter_context(temporary_folder(self._real_path))
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from error
        except BaseException:  # the process is asked to end before `with` has begun, so nobody calls __exit__
            if is_new:
                shutil.rmtree(self.checkpoint_folder, ignore_errors=True)
            raise
        return self

    @property
    def checkpoint_folder(self) -> Path:
        """The folder in which a resumable writer leaves its checkpoints."""
        return self._real_path.with_name(f".{self._real_path.name}.partial")

    def rewind(self, n: int) -> None:
        """Return to the state of the first n of `checkpoints`; this must be done before anything is appended."""
        assert self._journal is not None, "only a resumable writer has checkpoints"
        self._forget_repertoires()
        for entry in self._journal.entries[:n]:
            self._appended |= {name: _AppendedRepertoire(*values) for name, values in entry["appended"].items()}
            self._has_column = dict(entry["present"])
            for name, genes in entry["vocabulary"].items():
                extend_vocabulary(self._vocabulary[name], genes)
        self._mark_all_as_journaled()
        self._journal.rewind(n)
        self.checkpoints = self.checkpoints[:n]

    def checkpoint(self, note: Mapping[str, Any]) -> None:
        """Remember all that was appended, with a note for a call that continues from here."""
        assert self._journal is not None, "only a resumable writer has checkpoints"
        self._journal.add(
            {
                "appended": {
                    name: astuple(repertoire)
                    for name, repertoire in islice(self._appended.items(), self._n_journaled, None)
                },
                "present": dict(self._has_column),
                "vocabulary": {
                    name: list(islice(genes, self._n_journaled_genes[name], None))
                    for name, genes in self._vocabulary.items()
                },
                "note": dict(note),
            }
        )
        self._mark_all_as_journaled()
        self.checkpoints.append(dict(note))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._temporary_folder.close()
        if self._journal is not None:
            self._journal.close(delete=kind is None or not self._is_worth_keeping(kind))
        self._folder = None

    def _is_worth_keeping(self, kind: type[BaseException]) -> bool:
        if not self._resumable or not self.checkpoints:
            return False
        interrupted = not issubclass(kind, Exception)
        return interrupted or sum(path.stat().st_size for path in self.checkpoint_folder.iterdir()) >= _MIN_KEPT_BYTES

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
        if repertoire_id in self._appended:
            raise InputError(f"repertoire_id {repertoire_id!r} appears twice")
        if len(sequences.counts) != n or sequences.offsets[0] != 0 or sequences.offsets[-1] != len(sequences.residues):
            raise ValueError(f"{repertoire_id}: offsets, counts and residues do not belong together")
        if n and not (lengths.min() >= 1 and lengths.max() <= MAX_LENGTH and sequences.counts.min() > 0):
            raise ValueError(f"{repertoire_id}: expected lengths from 1 to {MAX_LENGTH} and counts of at least 1")
        v_codes, v_call = self._encode_genes("v_call", sequences.v_call, n)
        j_codes, j_call = self._encode_genes("j_call", sequences.j_call, n)
        self._append_optional("v_call", v_call, n)
        self._append_optional("j_call", j_call, n)
        self._append_optional("witness", sequences.witness, n)
        self._column_files.append("residues", sequences.residues)
        self._column_files.append("lengths", lengths)
        self._column_files.append("counts", sequences.counts)
        self._appended[repertoire_id] = _AppendedRepertoire(n, len(sequences.residues), v_codes, j_codes)

    def _append_optional(self, name: str, values: NDArray[Any] | None, n: int) -> None:
        """Append a repertoire's n values of a column that not all repertoires have; without the column they are 0."""
        if values is not None and not self._has_column[name]:
            self._has_column[name] = True
            n_before = sum(repertoire.n_sequences for repertoire in self._appended.values())
            self._column_files.append(name, np.zeros(n_before, COLUMN_DTYPES[name]))
        if self._has_column[name]:
            self._column_files.append(name, np.zeros(n, COLUMN_DTYPES[name]) if values is None else values)

    def finish(
        self,
        metadata: pd.DataFrame,
        *,
        source: str,
        order: Sequence[str] | None = None,
        preprocessing: Mapping[str, Any] | None = None,
        simulation: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the container and rename it to its path.

        Parameters
        ----------
        metadata
            One row per appended repertoire, in the container's order; each column becomes `/metadata/<column>`.
        source
            Origin of the cohort, in words.
        order
            Ids of all appended repertoires in the container's order; None: the order in which they were appended. Only
            a resumable writer can change this order. The container does not depend on the order of appending.
        preprocessing
            Report of what was kept and dropped, stored as JSON.
        simulation
            Recipe of a simulated cohort, stored as JSON.
        """
        order = list(self._appended) if order is None else list(order)
        if len(metadata) != len(self._appended):
            raise ValueError(f"{len(metadata)} rows of metadata for {len(self._appended)} repertoires")
        if order != list(self._appended) and (not self._resumable or set(order) != self._appended.keys()):
            raise ValueError("the container's order has other repertoires than were appended, or cannot be changed")
        assert self._folder is not None, "ContainerWriter is used as a context manager"
        partial = self._folder / _CONTAINER
        with HDF5Target(partial, "w+") as hdf5_file, h5py.File(hdf5_file, "w", libver=HDF5_LAYOUT) as file:
            write_origin(file, get_creator(), source, preprocessing or {}, simulation)
            write_texts(file, "repertoire_ids", order)
            n_sequences = np.asarray([self._appended[name].n_sequences for name in order], np.int64)
            file.create_dataset("repertoire_offsets", data=compute_offsets(n_sequences))
            self._write_sequences(file, hdf5_file, order)
            write_metadata(file.create_group("metadata"), metadata)
            write_checksum(file, hdf5_file, partial)
        hdf5_file.check()
        replace_file(partial, self._real_path)
        remember_written(self.path)

    def _write_sequences(self, file: h5py.File, hdf5_file: HDF5Target, order: Sequence[str]) -> None:
        """Copy the columns of all sequences from the temporary files into the container."""
        ranges, residue_ranges = self._list_ranges(order, "n_sequences"), self._list_ranges(order, "n_residues")
        self._write_offsets(file, hdf5_file, ranges)
        self._copy_column(file, hdf5_file, "residues", residue_ranges)
        self._copy_column(file, hdf5_file, "counts", ranges)
        for field in GENE_FIELDS:
            if self._has_column[field]:
                vocabulary, new_codes = self._sort_vocabulary(field, order)
                column = self._copy_column(file, hdf5_file, field, ranges, new_codes)
                write_text_list(column, "vocabulary", vocabulary)
        if self._has_column["witness"]:
            self._copy_column(file, hdf5_file, "witness", ranges)

    def _write_offsets(self, file: h5py.File, hdf5_file: HDF5Target, ranges: Sequence[tuple[int, int]]) -> None:
        """Write the offsets of all sequences, which are sums of their lengths, from the last to the first."""
        n_sequences = sum(stop - start for start, stop in ranges)
        end = sum(repertoire.n_residues for repertoire in self._appended.values())
        offsets = file.create_dataset("sequence_offsets", (n_sequences + 1,), np.int64)
        offsets[:1] = 0
        for start, lengths in self._column_files.read_backwards("lengths", ranges):
            sums = np.cumsum(lengths)
            first = end - int(sums[-1])
            offsets[start + 1 : start + 1 + len(sums)] = first + sums
            end = first
            hdf5_file.check()
        assert end == 0, "lengths and residues do not belong together"

    def _copy_column(
        self,
        file: h5py.File,
        hdf5_file: HDF5Target,
        name: str,
        ranges: Sequence[tuple[int, int]],
        new_codes: NDArray[np.uint16] | None = None,
    ) -> h5py.Dataset:
        """Copy a column into the container, and return it; if it has codes, each may get another one."""
        column = file.create_dataset(name, (sum(stop - start for start, stop in ranges),), COLUMN_DTYPES[name])
        for start, values in self._column_files.read_backwards(name, ranges):
            column[start : start + len(values)] = values if new_codes is None else new_codes[values]
            hdf5_file.check()
        return column

    def _encode_genes(
        self, name: str, calls: Categorical | None, n: int
    ) -> tuple[list[int], NDArray[np.uint16] | None]:
        """Return the codes of the vocabulary of gene calls, and the code of each call, (N,)."""
        if calls is None:
            return [], None
        if len(calls.codes) != n:
            raise ValueError(f"{name}: {len(calls.codes)} gene calls for {n} sequences")
        vocabulary = self._vocabulary[name]
        codes = extend_vocabulary(vocabulary, calls.vocabulary).astype(np.uint16)
        check_n_gene_names(name, len(vocabulary))
        return codes.tolist(), codes[calls.codes] if len(codes) else np.zeros(n, np.uint16)

    def _sort_vocabulary(self, name: str, order: Sequence[str]) -> tuple[list[str], NDArray[np.uint16]]:
        """Return the gene names as if the repertoires had been appended in an order, and the new code of each code."""
        names = list(self._vocabulary[name])
        codes = list(
            dict.fromkeys(
                [0, *(code for repertoire_id in order for code in getattr(self._appended[repertoire_id], name))]
            )
        )
        new_codes = np.zeros(len(names), np.uint16)
        new_codes[codes] = np.arange(len(codes))
        return [names[code] for code in codes], new_codes

    @property
    def _column_files(self) -> ColumnFiles:
        assert self._folder is not None, "ContainerWriter is used as a context manager"
        return ColumnFiles(self._folder, keep=self._resumable)

    def _list_ranges(self, order: Sequence[str], size: str) -> list[tuple[int, int]]:
        """Return where the values of the repertoires lie in a temporary file, neighbours as one range (start, stop).

        Parameters
        ----------
        order
            Ids of the repertoires in the container's order.
        size
            Attribute of `_AppendedRepertoire` with the number of a repertoire's values.
        """
        sizes = [getattr(repertoire, size) for repertoire in self._appended.values()]
        start_of = dict(zip(self._appended, compute_offsets(np.asarray(sizes, np.int64)).tolist(), strict=False))
        ranges: list[tuple[int, int]] = []
        for name in order:
            start = start_of[name]
            stop = start + getattr(self._appended[name], size)
            if ranges and ranges[-1][1] == start:
                ranges[-1] = ranges[-1][0], stop
            else:
                ranges.append((start, stop))
        return ranges
