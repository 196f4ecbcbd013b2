"""Write repertoire files and a metadata sheet to a container: `deeprc preprocess` as a function."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import index as as_integer
from pathlib import Path

from deeprc.datasets.container import is_container
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.file_reading import ReadResult, choose_workers, note_failure, read_file, read_files
from deeprc.datasets.matching import SourceFiles, find_files
from deeprc.datasets.metadata import Metadata, read_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.plan import (
    BAD_FILES_ADVICE,
    SKIP_ADVICE,
    Plan,
    describe_missing,
    describe_names,
    plan_files,
    raise_or_warn_of_unmatched,
)
from deeprc.datasets.report import PreprocessingReport, RepertoireReport
from deeprc.errors import (
    MAX_FAULTS,
    FaultGroup,
    InputError,
    SeveralErrors,
    add_advice,
    end_sentence,
    group_errors,
    number_faults,
)
from deeprc.files import check_output_path, name_write_errors
from deeprc.jobs import check_scheduler
from deeprc.progress import open_step

__all__ = ["Progress", "check_container_output", "check_loci", "preprocess", "raise_or_warn_of_empty"]

_logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

_FIRST_FILES = 20
"""If none of so many files that are read first can be used, for example because of a wrong format, no more are read."""

_QUESTIONS = {
    "other_locus": "is `locus` right?",
    "too_long": "is `max_length` right?",
    "too_short": "is `min_length` right?",
}
"""Question to ask if most rows of a repertoire are left out for a reason."""

_EMPTY_ADVICE = "`allow_missing` leaves such repertoires out"


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
    it is complete, or not at all; it does not depend on `jobs` and `scheduler`. If files cannot be used, the others are
    read nevertheless, and the error lists the faults of all files; but no more are read if none of the first 20 files
    can be used, or if the files hold several chains. After an interrupt, or after an error when much was done, a second
    call with the same arguments reads only the files that were not done.

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
        appender = _RepertoireAppender(writer, plan, options.allow_missing, skip_bad_files)
        appender.run(jobs, scheduler, progress)
        kept = [each for each in appender.repertoires if each.kept]
        if appender.skipped and not appender.repertoires:
            raise InputError(_describe_unreadable(appender.skipped))
        if not kept:
            raise InputError(f"{sheet_path}: none of its repertoires has a sequence that is kept")
        report = plan.report(appender.repertoires, appender.skipped, options.cleaning())
        row_of = {name: row for row, name in enumerate(sheet.repertoire_ids)}
        writer.finish(
            sheet.table.iloc[[row_of[each.repertoire_id] for each in kept]].reset_index(drop=True),
            source=f"{len(kept)} repertoires and the metadata sheet {sheet_path.name}",
            order=[each.repertoire_id for each in kept],
            preprocessing=report.to_dict(),
        )
    return report


@contextmanager
def _log_kept_files(writer: ContainerWriter) -> Generator[None, None, None]:
    try:
        yield
    except BaseException:
        if writer.checkpoints and writer.kept_in.exists():
            message = "%s: not written. The same command continues from %s, with what was read; you may delete it"
            _logger.warning(message, writer.path, writer.kept_in)
        raise


def check_container_output(output: Path) -> None:
    """Refuse a path to which no container can be written, and the path of a file that is not a container."""
    check_output_path(output)
    if output.exists() and not is_container(output):
        raise InputError(f"{output}: exists and is not a container; choose another `output`")


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
        raise InputError(_describe_unreadable(plan.skipped))
    raise_or_warn_of_unmatched(dict.fromkeys(differences, "left out"), allow_missing)
    for group in group_errors(plan.skipped):
        _logger.warning("%s: skipped", group.describe())


def _describe_unreadable(errors: Mapping[str, str]) -> str:
    return "no file can be read: " + "\n".join(each.describe() for each in group_errors(errors))


class _RepertoireAppender:
    """A reader of the planned files, which appends their repertoires to a container.

    A file that cannot be used does not stop it: the other files are read, so that all faults are known at the end, and
    a second call need not read these files again. A mixture of chains stops it, since each file must be read again for
    the chain that the user chooses.

    Attributes
    ----------
    skipped
        Reason why a file could not be read, by its path.
    """

    def __init__(self, writer: ContainerWriter, plan: Plan, allow_missing: bool, skip_bad_files: bool) -> None:
        self._writer, self._files, self._names = writer, plan.files_to_read, plan.names
        self._allow_missing, self._skip_bad_files = allow_missing, skip_bad_files
        self._reports: dict[int, list[RepertoireReport]] = {}  # by the index of their file, as the errors
        self._errors: dict[int, str] = {}
        self._empty: dict[int, list[tuple[Path, RepertoireReport]]] = {}
        self._keeps_any = False  # whether any repertoire has a kept row, even if its file has a fault, too
        self._loci: dict[str, str] = {}
        self._mixture = ""  # the message about several chains
        self._n_repertoires = sum(len(file.repertoires) for file in self._files)
        has_one_each = self._n_repertoires == len({file.path for file in self._files})
        self._unit = "files" if has_one_each else "repertoires"  # what is counted in messages
        self._has_logged_fault = skip_bad_files  # then every fault is logged

    @property
    def repertoires(self) -> list[RepertoireReport]:
        """Report of each repertoire that was read, in the order of the plan."""
        return [report for index in sorted(self._reports) for report in self._reports[index]]

    @property
    def skipped(self) -> dict[str, str]:
        """Reason why a file could not be read, by its path."""
        failed: dict[str, str] = {}
        for index in sorted(self._errors):
            note_failure(failed, self._files[index], self._errors[index])
        return failed

    def run(self, jobs: int | None, scheduler: str | None, progress: Progress | None) -> None:
        """Write the repertoires that an earlier call has not written yet; raise the faults of all files together."""
        self._take_over_earlier_files()
        start, n = len(self._reports), len(self._files)
        n_done = start
        if progress is not None and start:
            progress(start, n)
        left = [index for index in range(n) if index not in self._reports]
        files = [self._files[index] for index in left]
        with (
            closing(read_files(files, choose_workers(files, jobs, scheduler), read_file)) as results,
            open_step("reading repertoire files", n, done=start) as step,
        ):
            read = step.follow(zip(left, results, strict=True))
            for n_done, (index, result) in enumerate(read, start=start + 1):
                self._append_result(index, result)
                self._log_first_fault(n - n_done)
                if progress is not None:
                    progress(n_done, n)
                if self._mixture or (n_done == _FIRST_FILES and self._has_failed_so_far(n_done)):
                    break
        if self._mixture or self._empty or (self._errors and not self._skip_bad_files):
            raise SeveralErrors(self._describe_failures(was_stopped=n_done < n))

    def _has_failed_so_far(self, n_done: int) -> bool:
        return not self._skip_bad_files and not self._keeps_any and len({*self._errors, *self._empty}) == n_done

    def _take_over_earlier_files(self) -> None:
        """Take over the files that an earlier call did in the same way."""
        checkpoints = self._writer.checkpoints
        index_of = {file.key(): index for index, file in enumerate(self._files)} if checkpoints else {}
        n = 0
        for note in checkpoints:
            index = index_of.get(note["reading"])
            if note["error"] is not None:  # the file was skipped
                if index is not None and self._skip_bad_files:
                    self._skip_file(index, note["error"])
            elif index is None or (not self._allow_missing and any(not each["kept"] for each in note["reports"])):
                break
            else:
                name = self._names[self._files[index].path]  # may be another one if other files are read with it
                self._reports[index] = [RepertoireReport.from_dict({**each, "file": name}) for each in note["reports"]]
            n += 1
        self._writer.rewind(n)
        for report in self.repertoires:
            check_loci(self._loci, report)
        self._keeps_any = any(report.kept for report in self.repertoires)
        if self._reports:
            message = "%s: continues after %d of %d files or repertoires, which were read before"
            _logger.warning(message, self._writer.path, len(self._reports), len(self._files))

    def _append_result(self, index: int, result: ReadResult) -> None:
        """Append the repertoires of a file to the container, all or none, or note why it cannot be used."""
        file = self._files[index]
        if result.error is not None:
            if self._skip_bad_files:
                self._skip_file(index, result.error)
                self._writer.checkpoint({"reading": result.key, "reports": [], "error": result.error})
            else:
                self._errors[index] = result.error
            return
        name, locus = self._names[file.path], file.cleaning.locus
        cleaned_of = dict(result.repertoires)
        reports = [RepertoireReport.of(each, name, file.format, cleaned_of[each], locus) for each in cleaned_of]
        self._keeps_any = self._keeps_any or any(report.kept for report in reports)
        try:
            for report in reports:
                check_loci(self._loci, report)
        except InputError as error:
            self._mixture = str(error)
            return
        empty = [(file.path, report) for report in reports if not report.kept]
        if empty and not self._allow_missing:
            self._empty[index] = empty
            return
        for path, report in empty:
            _logger.warning("%s: left out", describe_empty(path, report))
        for report in reports:
            if report.kept:
                self._writer.append(report.repertoire_id, cleaned_of[report.repertoire_id].sequences)
        self._reports[index] = reports
        note = {"reading": result.key, "reports": [each.to_dict() for each in reports], "error": None}
        self._writer.checkpoint(note)

    def _skip_file(self, index: int, error: str) -> None:
        if error not in self._errors.values():  # an error of the whole file, which each of its repertoires raises
            _logger.warning("%s: skipped", error)
        self._errors[index] = error
        self._reports[index] = []

    def _log_first_fault(self, n_left: int) -> None:
        """Log the first fault at once if other files can be used and many follow, which may take minutes."""
        if self._has_logged_fault or not self._keeps_any or n_left < _FIRST_FILES or not (self._errors or self._empty):
            return
        self._has_logged_fault = True
        fault = next(iter(self._errors.values()), None) or describe_empty(*next(iter(self._empty.values()))[0])
        message = "%s The other %s are read nevertheless, to list all faults at the end"
        _logger.warning(message, end_sentence(fault), self._unit)

    def _describe_failures(self, was_stopped: bool) -> tuple[str, ...]:
        """Return the lines of a message with the faults of all files, or of those that were read."""
        bad = {} if self._skip_bad_files else self.skipped
        empty = [report for reports in self._empty.values() for report in reports]
        if self._mixture and not bad and not empty:
            return (self._mixture,)
        n_failed = len(empty) + sum(len(self._files[index].repertoires) for index in self._errors if bad)
        n_all = f"{self._n_repertoires:,} {self._unit}"
        which = f"all {n_all}" if n_failed == self._n_repertoires else f"{n_failed:,} of {n_all}"
        if was_stopped and not self._mixture:
            which = f"each of the first {which}"
        if self._keeps_any and len(bad) + len(empty) <= MAX_FAULTS:
            faults = [*bad.values(), *(describe_empty(path, report) for path, report in empty)]
        else:
            groups = [*group_errors(bad), *_group_empty(empty)]
            is_only_fault = len(groups) == 1 and len(groups[0].members) == n_failed
            faults = [each.describe(which if is_only_fault else "") for each in groups]
        not_read = f"The other {self._unit} were not read" if was_stopped else ""
        advice = [not_read, "`deeprc check` reads all files, and lists their faults"] if was_stopped else []
        if self._keeps_any:
            file_advice = SKIP_ADVICE if len(faults) <= MAX_FAULTS else BAD_FILES_ADVICE
            advice = [file_advice] * (len(bad) > 0) + [_EMPTY_ADVICE] * (len(empty) > 0)
        lines = add_advice(number_faults(f"{which} cannot be used", faults), "; ".join(advice))
        if self._mixture:
            lines = (*add_advice([end_sentence(self._mixture)], not_read and f"{not_read}."), *lines)
        return lines


def _group_empty(empty: Sequence[tuple[Path, RepertoireReport]]) -> list[FaultGroup]:
    """Group repertoires without a kept row by their main reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for path, report in empty:
        reason = _find_main_reason(report)
        fault = f"no row is kept, most for the reason {reason!r}" if reason else "no row is kept"
        by_reason[fault].append(describe_empty(path, report))
    return [
        FaultGroup(some[0] if len(some) == 1 else fault, tuple(some), "repertoires")
        for fault, some in by_reason.items()
    ]


def _find_main_reason(report: RepertoireReport) -> str:
    """Return the reason for which most rows of a repertoire are left out; "" if it has no row."""
    return max(report.dropped, key=lambda reason: report.dropped[reason]) if report.rows_read else ""


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


def describe_empty(path: Path | str, report: RepertoireReport) -> str:
    """Return a message about a repertoire of which no row is kept."""
    if not report.rows_read:
        return f"{path}: has a header, but no rows (repertoire {report.repertoire_id!r})"
    reasons = ", ".join(f"{reason} {n}" for reason, n in report.dropped.items() if n)
    message = f"{path}: none of the {report.rows_read} rows of repertoire {report.repertoire_id!r} is kept ({reasons})"
    if report.dropped.get("empty") == report.rows_read:
        message += "; are the sequences in another column? Name it with `sequence_column`"
    return "; ".join(filter(None, [message, _QUESTIONS.get(_find_main_reason(report))]))


def raise_or_warn_of_empty(path: Path | str, report: RepertoireReport, allow_missing: bool) -> None:
    """Raise or log that no row of a repertoire is kept."""
    message = describe_empty(path, report)
    if not allow_missing:
        raise InputError(f"{message}. {_EMPTY_ADVICE}")
    _logger.warning("%s: left out", message)
