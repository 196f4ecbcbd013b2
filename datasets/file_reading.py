"""Read and clean one file, or many files by several workers.

This module imports neither pandas nor h5py, since a worker process starts faster without them.
"""

from __future__ import annotations

import hashlib
import shlex
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from deeprc.datasets.cleaning import CleanedTable, Cleaning, clean, examine_file, split_by_repertoire
from deeprc.datasets.readers import Header, Layout, RawRows, read_rows
from deeprc.datasets.readers.text import PACKED
from deeprc.errors import InputError
from deeprc.jobs import HERE, Workers, get_result, run_jobs
from deeprc.threads import count_cores
from deeprc.versions import package_version

__all__ = ["ORIGINAL", "FileToRead", "ReadResult", "choose_workers", "note_failure", "read_file", "read_files"]

_Result = TypeVar("_Result")

ORIGINAL = "deeprc-hdf5"
"""The name of the format of the original DeepRC's containers."""

_MAX_BATCH_FILES, _MAX_BATCH_BYTES = 32, 1 << 20
"""The largest number of small files, and of bytes of text, that a worker reads for one message."""

_BYTES_WORTH_A_WORKER = 1 << 26
"""Bytes of text from which another process is worth its start."""

_FILES_WORTH_A_WORKER = 1000
"""Number of files, of any size, from which another process is worth its start."""

_UNPACKING_FACTOR = 8
"""Bytes of text per byte of a packed file, roughly."""


@dataclass(frozen=True)
class FileToRead:
    """One file to read, or one repertoire of an original container.

    Attributes
    ----------
    path
        Path of the file.
    format
        Name of the format.
    repertoires
        Id of each repertoire to take from the file, by its name in the file's column of repertoires. A file without
        such a column has one repertoire, and its name is "".
    cleaning
        Settings that say which sequences are kept.
    header, layout
        Header of a table, and layout of its columns; None for other files.
    """

    path: Path
    format: str
    repertoires: Mapping[str, str]
    cleaning: Cleaning
    header: Header | None = None
    layout: Layout | None = None

    def compute_key(self) -> str:
        """Return a digest of everything on which the result depends; a file counts by its size and time of change."""
        state = self.path.stat()
        identity = (
            self.path.absolute(),
            state.st_size,
            state.st_mtime_ns,
            self.format,
            sorted(self.repertoires.items()),
        )
        text = repr(
            (*identity, self.cleaning, self.layout and _describe_layout(self.layout), package_version("deeprc"))
        )
        return hashlib.sha256(text.encode()).hexdigest()


@lru_cache
def _describe_layout(layout: Layout) -> str:
    return repr(layout)


@dataclass(frozen=True)
class ReadResult:
    """The cleaned repertoires of one file, the key of its `FileToRead`, and the error if it cannot be read."""

    repertoires: list[tuple[str, CleanedTable]] = field(default_factory=list)
    key: str = ""
    error: str | None = None


def read_file(file: FileToRead) -> ReadResult:
    """Read and clean one file; if that fails, the result holds the error."""
    key = ""
    try:
        key = file.compute_key()
        repertoires = [(file.repertoires[name], cleaned) for name, cleaned in _clean_repertoires(file)]
        if file.compute_key() != key:
            raise InputError(f"{file.path}: changed while it was read")
    except InputError as error:
        text = str(error) if str(file.path) in str(error) else f"{file.path}: {error}"
        return ReadResult(key=key, error=text)
    except FileNotFoundError:
        return ReadResult(error=f"{file.path}: no such file on {socket.gethostname()}; it was there before")
    except OSError as error:
        return ReadResult(error=f"{file.path}: cannot be read: {error.strerror or error}")
    return ReadResult(repertoires, key)


def note_failure(failed: dict[str, str], file: FileToRead, error: str) -> None:
    """Add a new error to the errors by file (and by repertoire if a file has several)."""
    if error not in failed.values():  # an error of the whole file is raised by each of its repertoires
        path = str(file.path)
        failed[path if path not in failed else f"{path}: {', '.join(file.repertoires)}"] = error


def choose_workers(files: Sequence[FileToRead], jobs: int | None, scheduler: str | None = None) -> Workers:
    """Return the workers that read files, from the number of processes and the address of a Dask scheduler.

    If the number is None, there is one process per core, or fewer if there is little to read.
    """
    return Workers(max(1, min(_count_useful_workers(files) if jobs is None else jobs, len(files))), scheduler)


def read_files(
    files: Sequence[FileToRead], workers: Workers, function: Callable[[FileToRead], _Result]
) -> Generator[_Result, None, None]:
    """Apply a function to each file in worker processes, and yield the results in the order of the files.

    The function must be defined at the top of a module, because processes import it by name. A few results per worker
    are in memory at once. Close the generator to cancel the other files.
    """
    if workers == HERE:
        yield from map(function, files)
        return
    batches = [*_batch_files(files)]
    with closing(run_jobs(partial(_apply_to_each, function), batches, workers, in_order=True)) as ended:
        for batch, future in ended:
            yield from get_result(future, str(batch[0].path))


def _count_useful_workers(files: Sequence[FileToRead]) -> int:
    """Return the number of processes that are worth their start: at most one per core."""
    sizes = {file.path: _count_text_bytes(file.path) for file in files if file.path.exists()}
    return min(count_cores(), sum(sizes.values()) // _BYTES_WORTH_A_WORKER + len(sizes) // _FILES_WORTH_A_WORKER)


def _count_text_bytes(path: Path) -> int:
    """Return roughly how many bytes of text a file holds."""
    return path.stat().st_size * (_UNPACKING_FACTOR if path.suffix.lower() in PACKED else 1)


def _batch_files(files: Iterable[FileToRead]) -> Iterator[list[FileToRead]]:
    """Yield files in lists of one, or of several small files, since each message to a worker takes time."""
    batch: list[FileToRead] = []
    size = 0
    for file in files:
        n_bytes = _count_text_bytes(file.path) if file.path.exists() else 0
        if batch and (size + n_bytes > _MAX_BATCH_BYTES or len(batch) == _MAX_BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += n_bytes
    if batch:
        yield batch


def _apply_to_each(function: Callable[[FileToRead], _Result], files: Sequence[FileToRead]) -> list[_Result]:
    return [function(file) for file in files]


def _clean_repertoires(file: FileToRead) -> Iterator[tuple[str, CleanedTable]]:
    """Yield the name and the cleaned sequences of each requested repertoire of a file; "" is the whole file."""
    if file.format == ORIGINAL:
        from deeprc.datasets.readers.original_hdf5 import read_original_container  # h5py is for this one format

        for name, rows in read_original_container(file.path, file.repertoires):
            yield name, clean(rows, file.cleaning)
        return
    assert file.header is not None
    assert file.layout is not None
    rows = read_rows(file.header, file.layout)
    file_facts = examine_file(rows, file.path)
    if "" not in file.repertoires:
        for name, rows_of_repertoire in split_by_repertoire(rows):
            if name in file.repertoires:
                yield name, clean(rows_of_repertoire, file.cleaning, file_facts)
        return
    _check_one_repertoire(file, rows)
    yield "", clean(rows, file.cleaning, file_facts)


def _check_one_repertoire(file: FileToRead, rows: RawRows) -> None:
    """Raise InputError if a column of a file that is one repertoire names several."""
    repertoire_ids = [] if rows.repertoire is None else [name for name in rows.repertoire.vocabulary if name]
    if len(repertoire_ids) > 1:
        column, more = rows.repertoire_column, ", ..." if len(repertoire_ids) > 3 else ""
        listing = ", ".join(repertoire_ids[:3]) + more
        raise InputError(
            f"{file.path}: column {column!r} names {len(repertoire_ids)} repertoires ({listing}); the sheet gives the "
            f"whole file to {file.repertoires['']!r}. `split_by={shlex.quote(column)}` separates them, `split_by=none` "
            "keeps them together"
        )
