"""Write repertoire files and a metadata sheet to a container: `deeprc preprocess` as a function."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from operator import index as as_integer
from pathlib import Path

from deeprc.datasets.appending import RepertoireAppender
from deeprc.datasets.container_header import refuse_other_file
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.matching import SourceFiles, find_files
from deeprc.datasets.metadata import Metadata, read_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.plan import Plan, describe_missing, plan_files, raise_or_warn_of_unmatched
from deeprc.datasets.report import PreprocessingReport
from deeprc.errors import InputError, describe_names, group_errors
from deeprc.files import check_output_path, name_write_errors
from deeprc.jobs import check_scheduler
from deeprc.progress import CountFunction

__all__ = ["check_container_output", "preprocess"]

_logger = logging.getLogger(__name__)


def preprocess(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    metadata: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    options: ReadingOptions | None = None,
    skip_bad_files: bool = False,
    jobs: int | None = 1,
    scheduler: str | None = None,
    progress: CountFunction | None = None,
) -> PreprocessingReport:
    """Read a cohort's repertoire files and write them to one container.

    Productive, in-frame sequences made of the 20 amino acids are kept; rows with the same junction and genes are
    merged. Repertoires are in the order of the metadata sheet, those of one table together. The container appears when
    it is complete, or not at all; it does not depend on `jobs` and `scheduler`.

    If files cannot be used, the others are read nevertheless, and the error lists the faults of all files. Reading
    stops early if none of the first 20 files can be used, or if the files hold several chains. After an interrupt, or
    after an error when much was done, a second call with the same arguments reads only the files that were not read
    yet.

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
        If an argument or files cannot be used; the message names them, and no container is written.
    """
    output, sheet_path = Path(output), Path(metadata)
    options = ReadingOptions() if options is None else options
    jobs = None if jobs is None else as_integer(jobs)
    check_container_output(output)
    if jobs is not None and jobs < 1:
        raise InputError(f"`jobs`: expected at least 1, found {jobs}")
    if scheduler is not None:
        check_scheduler(scheduler)
    all_files = find_files(sources, exclude=sheet_path)
    if scheduler is not None:  # its workers have another working directory
        all_files = all_files.make_absolute()
    sheet = read_metadata(sheet_path, id_column=options.id_column, files=all_files.tables)
    files = all_files.select_named(sheet.files)
    plan = plan_files(sheet, files, options, skip_bad_files=skip_bad_files)
    _check_plan(sheet, plan, all_files, options.allow_missing)
    writer = ContainerWriter(output, resumable=True)
    with _log_kept_files(writer), name_write_errors(output), writer:
        appender = RepertoireAppender(writer, plan, allow_missing=options.allow_missing, skip_bad_files=skip_bad_files)
        appender.run(jobs, scheduler, progress)
        kept = [repertoire for repertoire in appender.repertoires if repertoire.kept]
        if appender.skipped and not appender.repertoires:
            raise InputError(_describe_unreadable(appender.skipped))
        if not kept:
            raise InputError(f"{sheet_path}: none of its repertoires has a sequence that is kept")
        report = plan.make_report(appender.repertoires, appender.skipped, options.make_cleaning())
        row_of = {name: row for row, name in enumerate(sheet.repertoire_ids)}
        writer.finish(
            sheet.table.iloc[[row_of[report.repertoire_id] for report in kept]].reset_index(drop=True),
            source=f"{len(kept)} repertoires and the metadata sheet {sheet_path.name}",
            order=[report.repertoire_id for report in kept],
            preprocessing=report.to_dict(),
        )
    return report


@contextmanager
def _log_kept_files(writer: ContainerWriter) -> Generator[None, None, None]:
    try:
        yield
    except BaseException:
        if writer.checkpoints and writer.checkpoint_folder.exists():
            message = "%s: not written. The same command continues from %s, with what was read; you may delete it"
            _logger.warning(message, writer.path, writer.checkpoint_folder)
        raise


def check_container_output(output: Path) -> None:
    """Refuse a path to which no container can be written, and the path of a file that is not a container."""
    check_output_path(output)
    refuse_other_file(output)


def _check_plan(sheet: Metadata, plan: Plan, source_files: SourceFiles, allow_missing: bool) -> None:
    """Refuse a plan in which rows have no file or files have no row; log it if this is allowed."""
    differences = []
    if plan.rows_without_file:
        differences.append(f"{sheet.path}: {describe_missing(sheet, plan, source_files)}")
    if plan.files_without_row:
        names = [plan.names[file] for file in plan.files_without_row]
        differences.append(f"no row of {sheet.path} for {describe_names(names, 'file', 'files')}")
    for file, unknown in plan.repertoires_without_row.items():
        listing = describe_names(unknown, "repertoire", "repertoires")
        differences.append(f"no row of {sheet.path} for {listing} of {plan.names[file]}")
    if len(plan.rows_without_file) == len(sheet.repertoire_ids):
        raise InputError("; ".join(differences) + ". Not one file matches: is `id_column` right?")
    if plan.skipped and not plan.files_to_read:
        raise InputError(_describe_unreadable(plan.skipped))
    raise_or_warn_of_unmatched(dict.fromkeys(differences, "left out"), allow_missing)
    for group in group_errors(plan.skipped):
        _logger.warning("%s: skipped", group.describe())


def _describe_unreadable(errors: Mapping[str, str]) -> str:
    return "no file can be read: " + "\n".join(group.describe() for group in group_errors(errors))
