"""Write repertoire files and a metadata sheet to a container: `deeprc preprocess` as a function."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from operator import index
from pathlib import Path

from deeprc.datasets.container import is_container
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.file_reading import FileToRead, ReadResult, choose_workers, note_failure, read_file, read_files
from deeprc.datasets.matching import SourceFiles, find_files
from deeprc.datasets.metadata import Metadata, read_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.plan import (
    BAD_FILES_ADVICE,
    Plan,
    describe_missing,
    describe_names,
    plan_files,
    raise_or_warn_of_unmatched,
)
from deeprc.datasets.report import PreprocessingReport, RepertoireReport
from deeprc.errors import InputError, end_sentence, group_errors
from deeprc.files import check_output_path, name_write_errors
from deeprc.jobs import check_scheduler
from deeprc.progress import open_step

__all__ = ["Progress", "check_container_output", "check_loci", "preprocess", "raise_or_warn_of_empty"]

_logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


def preprocess(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    metadata: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    options: ReadingOptions | None = None,
    skip_bad_files: bool = False,
    jobs: int | None = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> PreprocessingReport:
    """Read a cohort's repertoire files and write them to one container.

    Productive, in-frame sequences made of the 20 amino acids are kept; rows with the same junction and genes are
    merged. Repertoires are in the order of the metadata sheet, those of one table together. The container appears when
    it is complete, or not at all; it does not depend on `jobs` and `scheduler`. After an interrupt, or after an error
    when much was done, a second call with the same arguments continues with the first file that was not done.

    Parameters
    ----------
    sources
        Repertoire files and folders of them, packed or plain.
    metadata
        The metadata sheet: TSV, CSV or XLSX.
    output
        Path of the container to write; an existing container is replaced at the end.
    options
        Options that say how the files are read and which sequences are kept; None: the defaults of `ReadingOptions`.
    skip_bad_files
        Whether to leave out files that cannot be read, with a warning.
    jobs
        Number of worker processes; None: one per core, fewer if there is little to read.
    scheduler
        Address of a Dask scheduler, whose workers read the files instead of processes.
    progress
        Function that is called after each file, with the number of files that are done and of all files.

    Raises
    ------
    InputError
        If an argument or a file cannot be used; the message names it, and no container is written.
    """
    output, sheet_path = Path(output), Path(metadata)
    options = ReadingOptions() if options is None else options
    jobs = None if jobs is None else index(jobs)
    check_container_output(output)
    _check_jobs(jobs)
    if scheduler is not None:
        check_scheduler(scheduler)
    all_files = find_files(sources, exclude=sheet_path)
    if scheduler is not None:  # its workers have another working directory
        all_files = all_files.absolute()
    sheet = read_metadata(sheet_path, id_column=options.id_column, files=all_files.tables)
    files = all_files.select_named(sheet.files)
    plan = plan_files(sheet, files, options, skip_bad_files=skip_bad_files)
    _check_plan(sheet, plan, all_files, options.allow_missing)
    writer = ContainerWriter(output, resumable=True)
    with _log_kept_files(writer), name_write_errors(output), writer:
        writing = _Writing(writer, plan, options.allow_missing, skip_bad_files)
        writing.run(jobs, scheduler, progress)
        kept = [each for each in writing.repertoires if each.kept]
        if writing.skipped and not writing.repertoires:
            raise InputError("no file can be read: " + "\n".join(group_errors(writing.skipped)))
        if not kept:
            raise InputError(f"{sheet_path}: none of its repertoires has a sequence that is kept")
        report = plan.report(writing.repertoires, writing.skipped, options.cleaning())
        row_of = {name: row for row, name in enumerate(sheet.repertoire_ids)}
        writer.finish(
            sheet.table.iloc[[row_of[each.repertoire_id] for each in kept]].reset_index(drop=True),
            source=f"{len(kept)} repertoires and the metadata sheet {sheet_path.name}",
            preprocessing=report.to_dict(),
        )
    return report


@contextmanager
def _log_kept_files(writer: ContainerWriter) -> Generator[None, None, None]:
    try:
        yield
    except BaseException:
        if writer.checkpoints and writer.kept_in.exists():
            message = "%s: not written; %s keeps what was read, for a call that reads the same; it may be deleted"
            _logger.warning(message, writer.path, writer.kept_in)
        raise


def check_container_output(output: Path) -> None:
    """Refuse a path to which no container can be written, and the path of a file that is no container."""
    check_output_path(output)
    if output.exists() and not is_container(output):
        raise InputError(f"{output}: exists and is no container; choose another `output`")


def _check_jobs(jobs: int | None) -> None:
    if jobs is not None and jobs < 1:
        raise InputError(f"`jobs`: expected at least 1, found {jobs}")


def _check_plan(sheet: Metadata, plan: Plan, found: SourceFiles, allow_missing: bool) -> None:
    """Refuse a plan in which rows have no file or files have no row; log it if this is allowed."""
    differences = []
    if plan.rows_without_file:
        differences.append(f"{sheet.path}: {describe_missing(sheet, plan, found)}")
    if plan.files_without_row:
        names = [plan.names[file] for file in plan.files_without_row]
        differences.append(f"no row of {sheet.path} for {describe_names(names, 'file', 'files')}")
    for file, unknown in plan.repertoires_without_row.items():
        listing = describe_names(unknown, "repertoire", "repertoires")
        differences.append(f"no row of {sheet.path} for {listing} of {plan.names[file]}")
    if len(plan.rows_without_file) == len(sheet.repertoire_ids):
        raise InputError("; ".join(differences) + ". Not one file matches: is `id_column` right?")
    if plan.skipped and not plan.files_to_read:
        raise InputError("no file can be read: " + "\n".join(group_errors(plan.skipped)))
    raise_or_warn_of_unmatched(dict.fromkeys(differences, "left out"), allow_missing)
    for message in group_errors(plan.skipped):
        _logger.warning("%s: skipped", message)


class _Writing:
    """A reader of the planned files, which appends their repertoires to a container.

    Attributes
    ----------
    repertoires
        Report of each repertoire that was read.
    skipped
        Reason why a file could not be read, by its path.
    """

    def __init__(self, writer: ContainerWriter, plan: Plan, allow_missing: bool, skip_bad_files: bool) -> None:
        self.repertoires: list[RepertoireReport] = []
        self.skipped: dict[str, str] = {}
        self._writer, self._files, self._names = writer, plan.files_to_read, plan.names
        self._allow_missing, self._skip_bad_files = allow_missing, skip_bad_files
        self._loci: dict[str, str] = {}

    def run(self, jobs: int | None, scheduler: str | None, progress: Progress | None) -> None:
        """Write the repertoires that an interrupted call has not written yet."""
        start = self._resume()
        for report in self.repertoires:
            check_loci(self._loci, report)
        if progress is not None and start:
            progress(start, len(self._files))
        left = self._files[start:]
        with (
            closing(read_files(left, choose_workers(left, jobs, scheduler), read_file)) as results,
            open_step("reading repertoire files", len(self._files), done=start) as step,
        ):
            read = step.follow(zip(left, results, strict=True))
            for n_done, (file, result) in enumerate(read, start=start + 1):
                self._write(file, result)
                if progress is not None:
                    progress(n_done, len(self._files))

    def _resume(self) -> int:
        """Take over the files that an interrupted call did in the same way; return their number."""
        start = 0
        for file, note in zip(self._files, self._writer.checkpoints, strict=False):
            if note.get("reading") != file.key():
                break
            name = self._names[file.path]  # may be another one if other files are read with it
            reports = [RepertoireReport.from_dict({**each, "file": name}) for each in note["reports"]]
            if not self._allow_missing and any(not each.kept for each in reports):
                break
            if note["error"] is not None:
                if not self._skip_bad_files:
                    break
                self._skip(file, note["error"])
            self.repertoires += reports
            start += 1
        self._writer.rewind(start)
        if start:
            message = "%s: goes on after %d of %d files or repertoires, which were read before"
            _logger.warning(message, self._writer.path, start, len(self._files))
        return start

    def _write(self, file: FileToRead, result: ReadResult) -> None:
        if result.error is not None:
            if not self._skip_bad_files:
                raise InputError(f"{end_sentence(result.error)} {BAD_FILES_ADVICE}")
            self._skip(file, result.error)
        reports = []
        for repertoire_id, cleaned in result.repertoires:
            name, locus = self._names[file.path], file.cleaning.locus
            report = RepertoireReport.of(repertoire_id, name, file.format, cleaned, locus)
            check_loci(self._loci, report)
            reports.append(report)
            if report.kept:
                self._writer.append(repertoire_id, cleaned.sequences)
            else:
                raise_or_warn_of_empty(file.path, report, self._allow_missing)
        self.repertoires += reports
        note = {"reading": result.key, "reports": [each.to_dict() for each in reports], "error": result.error}
        self._writer.checkpoint(note)

    def _skip(self, file: FileToRead, error: str) -> None:
        if note_failure(self.skipped, file, error):
            _logger.warning("%s: skipped", error)


def check_loci(seen: dict[str, str], report: RepertoireReport) -> None:
    """Refuse a mixture of chains, because only the user knows which one is meant."""
    if report.locus is not None:
        return
    for locus in report.loci:
        if locus:
            seen.setdefault(locus, report.repertoire_id)
    if len(seen) > 1:
        chains = " and ".join(f"{locus} (repertoire {name!r})" for locus, name in sorted(seen.items()))
        raise InputError(f"the files hold several chains, {chains}; choose one with `locus`")


def raise_or_warn_of_empty(path: Path | str, report: RepertoireReport, allow_missing: bool) -> None:
    """Raise or log that no row of a repertoire is kept."""
    reasons = ", ".join(f"{reason} {n}" for reason, n in report.dropped.items() if n)
    message = f"{path}: none of the {report.rows_read} rows of repertoire {report.repertoire_id!r} is kept"
    message += f" ({reasons})" if reasons else ""
    if report.rows_read and report.dropped.get("empty") == report.rows_read:
        message += "; are the sequences in another column? Name it with `sequence_column`"
    if not allow_missing:
        raise InputError(f"{message}. `allow_missing` leaves such repertoires out")
    _logger.warning("%s: left out", message)
