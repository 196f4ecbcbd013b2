"""From repertoire files and a metadata sheet to a container: `deeprc preprocess` as a function."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deeprc.datasets.cleaning import CleanedTable, clean
from deeprc.datasets.container import ContainerWriter, is_container
from deeprc.datasets.matching import find_files, match_files
from deeprc.datasets.metadata import Metadata, read_metadata
from deeprc.datasets.readers import (
    Header,
    Layout,
    Reader,
    choose_reader,
    find_reader,
    read_header,
    read_table,
)
from deeprc.datasets.report import PreprocessingReport, RepertoireReport
from deeprc.errors import InputError

__all__ = ["preprocess"]

_LOGGER = logging.getLogger(__name__)
_LONGEST = 255  # residues; the network's tables grow with the square of it
_SHOWN = 10
_AHEAD = 2
"""Files per worker that may be read before the writer comes to them: this bounds the memory."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Task:
    """One repertoire of the cohort: a row of the metadata sheet and its file, whose header a reader knows."""

    row: int
    repertoire_id: str
    header: Header
    format: str
    layout: Layout
    min_length: int
    max_length: int


def preprocess(
    sources: Iterable[str | os.PathLike[str]],
    metadata: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    reader_format: str = "auto",
    id_column: str | None = None,
    sequence_column: str | None = None,
    count_column: str | None = None,
    allow_missing: bool = False,
    jobs: int = 1,
    min_length: int = 1,
    max_length: int = 50,
    progress: Progress | None = None,
) -> PreprocessingReport:
    """Read a cohort's repertoire files and write them, in the order of the metadata sheet, to one container.

    Productive, in-frame sequences made of the 20 amino acids are kept, as the files have them: rows with the
    same residues and genes are not merged. The container appears when it is complete, or not at all; it does
    not depend on `jobs`.

    Parameters
    ----------
    sources
        Repertoire files and folders of them, gzip or plain.
    metadata
        The metadata sheet: TSV, CSV or XLSX.
    output
        The container to write; an existing file is replaced at the end.
    reader_format
        One of `deeprc.datasets.readers.FORMATS`; "auto" recognises each file by its header.
    id_column
        The sheet's column of repertoire ids; None finds it.
    sequence_column, count_column
        The columns of any other table.
    allow_missing
        Leave out rows without a file, files without a row and repertoires without a kept sequence, with a
        warning; otherwise they are an error.
    jobs
        Worker processes. More than 1 needs an importable main module, as always with `multiprocessing`.
    min_length, max_length
        Shortest and longest sequence kept, in residues.
    progress
        Called after each repertoire with the number done and the number of all.

    Raises
    ------
    InputError
        If anything that was given cannot be used; the message names it, and nothing is written.
    """
    output, sheet_path = Path(output), Path(metadata)
    _check_options(output, jobs, min_length, max_length)
    reader = choose_reader(reader_format, sequence_column=sequence_column, count_column=count_column)
    files = find_files(sources, exclude=sheet_path)
    sheet = read_metadata(sheet_path, id_column=id_column, files=files)
    matched, left = match_files(sheet.repertoire_ids, sheet.files, files)
    missing = [name for name, file in zip(sheet.repertoire_ids, matched, strict=True) if file is None]
    _report_unmatched(sheet, missing, left, allow_missing)
    tasks = _tasks(sheet, matched, reader, (min_length, max_length))
    with _name_write_errors(output), ContainerWriter(output) as writer:
        repertoires = _write_repertoires(writer, tasks, jobs, allow_missing, progress)
        report = PreprocessingReport(
            tuple(repertoires), tuple(missing), tuple(file.name for file in left), min_length, max_length
        )
        rows = [task.row for task, each in zip(tasks, repertoires, strict=True) if each.kept]
        if not rows:
            raise InputError(f"{sheet_path}: none of its repertoires has a sequence that is kept")
        writer.finish(
            sheet.table.iloc[rows].reset_index(drop=True),
            source=f"{len(rows)} repertoire files and the metadata sheet {sheet_path.name}",
            preprocessing=report.to_dict(),
        )
    return report


@contextmanager
def _name_write_errors(output: Path) -> Generator[None, None, None]:
    """Let a full disk and the like name the container; errors of reading name their file by themselves."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from error


def _check_options(output: Path, jobs: int, min_length: int, max_length: int) -> None:
    if output.is_dir():
        raise InputError(f"{output}: the output is a folder; expected the name of a file to write")
    if output.exists() and not is_container(output):
        raise InputError(f"{output}: exists and is no container; choose another --output")
    if jobs < 1:
        raise InputError(f"--jobs: expected at least 1, found {jobs}")
    if not 1 <= min_length <= max_length <= _LONGEST:
        raise InputError(
            f"expected 1 <= --min-length <= --max-length <= {_LONGEST}, found {min_length} and {max_length}"
        )


def _report_unmatched(sheet: Metadata, missing: Sequence[str], left: Sequence[Path], allow_missing: bool) -> None:
    """Raise or log that rows have no file and files have no row."""
    parts = []
    if missing:
        parts.append(f"{sheet.path}: no file for {_listed(missing, 'row', 'rows')} (by column {sheet.id_column!r})")
    if left:
        parts.append(f"no row of {sheet.path} for {_listed([file.name for file in left], 'file', 'files')}")
    if len(missing) == len(sheet.repertoire_ids):
        raise InputError("; ".join(parts) + ". Not one file matches: is --id-column right?")
    if parts and not allow_missing:
        raise InputError("; ".join(parts) + ". Give what is missing, or leave these out with --allow-missing")
    for part in parts:
        _LOGGER.warning("%s: left out", part)


def _listed(names: Sequence[str], one: str, many: str) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {one if len(names) == 1 else many}: {', '.join(names[:_SHOWN])}{more}"


def _tasks(
    sheet: Metadata, matched: Sequence[Path | None], reader: Reader | None, lengths: tuple[int, int]
) -> list[_Task]:
    """Read every header before the first file is parsed, and report all that no reader knows at once."""
    tasks, errors = [], []
    for row, file in enumerate(matched):
        if file is None:
            continue
        try:
            header = read_header(file)
            found, layout = find_reader(header, reader)
            tasks.append(_Task(row, sheet.repertoire_ids[row], header, found.name, layout, *lengths))
        except InputError as error:
            errors.append(str(error))
    if errors:
        more = [f"and {len(errors) - _SHOWN} more files with errors"] if len(errors) > _SHOWN else []
        raise InputError("\n".join(errors[:_SHOWN] + more))
    return tasks


def _write_repertoires(
    writer: ContainerWriter, tasks: Sequence[_Task], jobs: int, allow_missing: bool, progress: Progress | None
) -> list[RepertoireReport]:
    reports = []
    with closing(_clean_files(tasks, min(jobs, len(tasks)))) as results:
        for task, cleaned in zip(tasks, results, strict=True):
            report = RepertoireReport.of(task.repertoire_id, task.header.path.name, task.format, cleaned)
            reports.append(report)
            if report.kept:
                writer.append(task.repertoire_id, cleaned.sequences)
            else:
                _report_empty(task.header.path, report, allow_missing)
            if progress is not None:
                progress(len(reports), len(tasks))
    return reports


def _report_empty(path: Path, report: RepertoireReport, allow_missing: bool) -> None:
    reasons = ", ".join(f"{reason} {n}" for reason, n in report.dropped.items() if n)
    message = f"{path}: none of the {report.rows_read} rows of repertoire {report.repertoire_id!r} is kept"
    message += f" ({reasons})" if reasons else ""
    if report.rows_read and report.dropped["empty"] == report.rows_read:
        message += "; are the sequences in another column? Name it with --sequence-column"
    if not allow_missing:
        raise InputError(f"{message}. --allow-missing leaves such repertoires out")
    _LOGGER.warning("%s: left out", message)


def _clean_files(tasks: Sequence[_Task], workers: int) -> Generator[CleanedTable, None, None]:
    """Yield the tasks' results in order; at most `_AHEAD` files per worker are in memory."""
    if workers <= 1:
        yield from map(_clean_file, tasks)
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
    pending: deque[Future[CleanedTable]] = deque()
    try:
        for task in tasks:
            pending.append(executor.submit(_clean_file, task))
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


def _clean_file(task: _Task) -> CleanedTable:
    table = read_table(task.header, task.layout)
    return clean(table, min_length=task.min_length, max_length=task.max_length)
