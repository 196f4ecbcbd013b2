"""Which repertoires are read from which file, and how: what `deeprc preprocess` and `deeprc check` share."""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from deeprc.datasets.cleaning import CleanedTable, Cleaning, cdr3s_are_junctions, clean, split
from deeprc.datasets.matching import match_files, stems
from deeprc.datasets.metadata import Metadata
from deeprc.datasets.readers import Header, Layout, Reader, Rows, find_reader, read_header, read_rows, repertoire_names
from deeprc.datasets.readers.columns import read_columns
from deeprc.datasets.readers.original_hdf5 import (
    is_original_container,
    original_repertoire_ids,
    read_original_container,
)
from deeprc.errors import InputError
from deeprc.versions import package_version

__all__ = ["Plan", "ReadResult", "Reading", "listed", "plan_readings", "read_file", "read_files"]

_Result = TypeVar("_Result")

_SHOWN = 10
_ORIGINAL = "deeprc-hdf5"
_AHEAD = 2
"""Files per worker that may be read before they are asked for: this bounds the memory."""


@dataclass(frozen=True)
class Reading:
    """One file to read.

    Attributes
    ----------
    path
        The file.
    format
        What the format is called.
    repertoires
        The id of each repertoire to take from the file, by the name that the file's column has for it; "" is the
        only repertoire of a file without such a column.
    cleaning
        What is kept.
    header, layout
        Of a table.
    """

    path: Path
    format: str
    repertoires: Mapping[str, str]
    cleaning: Cleaning
    header: Header | None = None
    layout: Layout | None = None

    def key(self) -> str:
        """Return a digest of what decides the result; a file is known by its size and its time."""
        state = self.path.stat()
        parts = (self.path.absolute(), state.st_size, state.st_mtime_ns, self.format, sorted(self.repertoires.items()))
        text = repr((*parts, self.cleaning, self.layout and repr(self.layout), package_version("deeprc")))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class ReadResult:
    """The repertoires of one file and the `key` that it was read with, or why it cannot be read."""

    repertoires: list[tuple[str, CleanedTable]] = field(default_factory=list)
    key: str = ""
    error: str | None = None


@dataclass(frozen=True)
class Plan:
    """What there is to do.

    Attributes
    ----------
    readings
        In the order of the sheet, by the first repertoire of each file.
    missing
        Ids of the sheet for which there is no file.
    left
        Files that belong to no row.
    unknown
        Repertoires, by file, that belong to no row, of files that hold others that do.
    skipped
        Files whose header cannot be used, with the reason, where that is no error.
    """

    readings: tuple[Reading, ...]
    missing: tuple[str, ...]
    left: tuple[Path, ...]
    unknown: Mapping[Path, tuple[str, ...]]
    skipped: Mapping[str, str]


def plan_readings(
    sheet: Metadata,
    files: Sequence[Path],
    reader: Reader | None,
    cleaning: Cleaning,
    *,
    split_by: str | None = None,
    skip_bad_files: bool = False,
) -> Plan:
    """Find each repertoire's file, and read every header before the first file is parsed.

    A file belongs to the row of the sheet that names it; see `match_files`. One that belongs to none, but has a column
    that names repertoires, holds those of its values that are ids of the sheet; with `split_by` every file does.

    Raises
    ------
    InputError
        With a line for each file whose header cannot be used, unless they are skipped; or if two files hold one
        repertoire.
    """
    original = [file for file in files if is_original_container(file)]
    tables = [file for file in files if file not in original]
    names = [""] * len(sheet.repertoire_ids) if split_by else sheet.files
    matched, left = match_files(sheet.repertoire_ids, names, [] if split_by else tables)
    planner = _Planner(sheet, reader, cleaning, split_by)
    for name, file in zip(sheet.repertoire_ids, matched, strict=True):
        if file is not None:
            planner.add_table(file, {"": name})
    for file in tables if split_by else left:
        planner.add_split_table(file)
    for file in original:
        planner.add_original(file)
    errors = planner.errors
    if errors and not skip_bad_files:
        more = [f"and {len(errors) - _SHOWN} more files with errors"] if len(errors) > _SHOWN else []
        raise InputError("\n".join([*list(errors.values())[:_SHOWN], *more]))
    readings = planner.readings()
    bad = {name for name, file in zip(sheet.repertoire_ids, matched, strict=True) if file in errors}
    planned = _owners(readings).keys() | bad
    missing = [name for name in sheet.repertoire_ids if name not in planned]
    skipped = {str(file): text for file, text in errors.items()}
    return Plan(readings, tuple(missing), tuple(planner.left), planner.unknown, skipped)


def read_file(reading: Reading) -> ReadResult:
    """Read and clean one file; what is wrong with it becomes the result's error."""
    try:
        key = reading.key()
        parts = [
            (reading.repertoires[name], clean(rows, reading.cleaning, cdr3s_are_junctions=junctions))
            for name, rows, junctions in _parts(reading)
        ]
        if reading.key() != key:
            raise InputError(f"{reading.path}: changed while it was read")
    except InputError as error:
        return ReadResult(error=str(error))
    except FileNotFoundError:
        return ReadResult(error=f"{reading.path}: no such file; it was there before")
    return ReadResult(parts, key)


def read_files(
    readings: Sequence[Reading], workers: int, function: Callable[[Reading], _Result]
) -> Generator[_Result, None, None]:
    """Yield a function's results of the readings, in order, from several processes.

    A few results per worker are in memory at once. Close the generator to end the workers.
    """
    if workers <= 1:
        yield from map(function, readings)
        return
    executor = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(
            signal.SIGINT,
            signal.SIG_IGN,
        ),  # on Ctrl-C this process ends them, and they need not say so
    )
    pending: deque[Future[_Result]] = deque()
    try:
        for reading in readings:
            pending.append(executor.submit(function, reading))
            if len(pending) >= workers * _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process ended unexpectedly: out of memory, or a script without "
            "`if __name__ == '__main__':`? One process does without: jobs=1"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def listed(names: Sequence[str], one: str, many: str) -> str:
    """Return how many there are, and the first of them."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {one if len(names) == 1 else many}: {', '.join(names[:_SHOWN])}{more}"


def _parts(reading: Reading) -> Iterable[tuple[str, Rows, bool]]:
    """Yield the wanted repertoires of a file, and whether its column of CDR3s holds junctions."""
    if reading.format == _ORIGINAL:
        every = read_original_container(reading.path)
        return ((name, rows, False) for name, rows in every if name in reading.repertoires)
    assert reading.header is not None
    assert reading.layout is not None
    rows = read_rows(reading.header, reading.layout)
    junctions = cdr3s_are_junctions(rows, reading.path)
    if "" not in reading.repertoires:
        return ((name, part, junctions) for name, part in split(rows) if name in reading.repertoires)
    named = [] if rows.repertoire is None else [name for name in rows.repertoire.values if name]
    if len(named) > 1:
        column, listing = reading.layout.repertoire[0], ", ".join(named[:3]) + ", ..." * (len(named) > 3)
        raise InputError(
            f"{reading.path}: column {column!r} names {len(named)} repertoires ({listing}); the sheet gives the whole "
            f"file to {reading.repertoires['']!r}. --split-by {column} takes them apart"
        )
    return [("", rows, junctions)]


class _Planner:
    """Readings, and the files that become none."""

    def __init__(self, sheet: Metadata, reader: Reader | None, cleaning: Cleaning, split_by: str | None) -> None:
        self.row_of = {name: row for row, name in enumerate(sheet.repertoire_ids)}
        self.reader = reader
        self.cleaning = cleaning
        self.split_by = split_by
        self.errors: dict[Path, str] = {}
        self.left: list[Path] = []
        self.unknown: dict[Path, tuple[str, ...]] = {}
        self._readings: list[Reading] = []

    def readings(self) -> tuple[Reading, ...]:
        """Return the readings in the order of the sheet."""
        return tuple(
            sorted(self._readings, key=lambda reading: min(self.row_of[name] for name in reading.repertoires.values()))
        )

    def add_table(self, file: Path, repertoires: Mapping[str, str]) -> None:
        """Plan to read a table whose repertoires are known."""
        try:
            header = read_header(file)
            found, layout = find_reader(header, self.reader)
        except InputError as error:
            self.errors[file] = str(error)
            return
        if self.split_by is not None:
            column = header.find(self.split_by)
            layout = replace(layout, repertoire=() if column is None else (column,))
        self._readings.append(Reading(file, found.name, repertoires, self.cleaning, header, layout))

    def add_split_table(self, file: Path) -> None:
        """Plan to read the repertoires that a table's column names, if the sheet has them."""
        try:
            named = self._named(file)
            known = [name for name in named if name in self.row_of]
        except InputError as error:
            if self.split_by is not None:
                self.errors[file] = str(error)
                return
            named, known = (), []  # a file of another kind, which nobody has asked for
        if known:
            self.add_table(file, {name: name for name in known})
            self._note_unknown(file, named, known)
        else:
            self.left.append(file)

    def add_original(self, file: Path) -> None:
        """Plan to read an original container; its keys are file names, whose endings the sheet may leave out."""
        known = {}
        keys = original_repertoire_ids(file)
        for key in keys:
            name = next((stem for stem in stems(key) if stem in self.row_of), None)
            if name is not None:
                known[key] = name
        if known:
            self._readings.append(Reading(file, _ORIGINAL, known, self.cleaning))
            self._note_unknown(file, keys, known)
        else:
            self.left.append(file)

    def _note_unknown(self, file: Path, named: Sequence[str], known: Container[str]) -> None:
        """Remember the repertoires of a file that the sheet does not know."""
        unknown = [name or "(no name)" for name in named if name not in known]
        if unknown:
            self.unknown[file] = tuple(unknown)

    def _named(self, file: Path) -> tuple[str, ...]:
        header = read_header(file)
        if self.split_by is None:
            columns = find_reader(header, self.reader)[1].repertoire
            if not columns:
                return ()
        else:
            column = header.find(self.split_by)
            if column is None:
                listing = ", ".join(header.columns[:_SHOWN])
                raise InputError(f"{file}: no column {self.split_by!r} to split by; the file's columns are {listing}")
            columns = (column,)
        found = read_columns(header, (), columns)[1]
        return repertoire_names([found[column] for column in columns]).values


def _owners(readings: Sequence[Reading]) -> dict[str, Path]:
    owners: dict[str, Path] = {}
    for reading in readings:
        for name in reading.repertoires.values():
            if name in owners:
                raise InputError(f"two files hold the repertoire {name!r}: {owners[name]} and {reading.path}")
            owners[name] = reading.path
    return owners
