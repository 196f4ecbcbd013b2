"""Reading the planned files of a cohort, whose repertoires are appended to a container one after the other."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from deeprc.datasets.cleaning import CleanedTable
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.file_reading import ReadResult, choose_workers, note_failure, read_file, read_files
from deeprc.datasets.plan import BAD_FILES_ADVICE, SKIP_ADVICE, Plan
from deeprc.datasets.repertoire_checks import (
    EMPTY_ADVICE,
    check_loci,
    count_numbers_as_genes,
    describe_empty,
    group_empty,
    warn_of_numbers_as_genes,
)
from deeprc.datasets.report import RepertoireReport
from deeprc.errors import (
    MAX_FAULTS,
    InputError,
    SeveralErrors,
    add_advice,
    end_sentence,
    group_errors,
    number_faults,
)
from deeprc.progress import CountFunction, open_step

__all__ = ["RepertoireAppender"]

_logger = logging.getLogger(__name__)

_FIRST_FILES = 20
"""If none of so many files that are read first can be used, for example because of a wrong format, no more are read."""


class RepertoireAppender:
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
        self._gene_numbers: dict[str, Counter[str]] = defaultdict(Counter)  # by their file
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

    def run(self, jobs: int | None, scheduler: str | None, progress: CountFunction | None) -> None:
        """Write the repertoires that an earlier call has not written yet; raise the faults of all files together."""
        self._take_over_earlier_files()
        start, n = len(self._reports), len(self._files)
        n_done = start
        if progress is not None and start:
            progress(start, n)
        unread = [index for index in range(n) if index not in self._reports]
        files = [self._files[index] for index in unread]
        with (
            closing(read_files(files, choose_workers(files, jobs, scheduler), read_file)) as results,
            open_step("reading repertoire files", n, done=start) as step,
        ):
            read = step.follow(zip(unread, results, strict=True))
            for n_done, (index, result) in enumerate(read, start=start + 1):
                self._append_result(index, result)
                self._log_first_fault(n - n_done)
                if progress is not None:
                    progress(n_done, n)
                if self._mixture or (n_done == _FIRST_FILES and self._has_failed_so_far(n_done)):
                    break
        if self._mixture or self._empty or (self._errors and not self._skip_bad_files):
            raise SeveralErrors(self._describe_failures(was_stopped=n_done < n))
        warn_of_numbers_as_genes(self._gene_numbers)

    def _has_failed_so_far(self, n_done: int) -> bool:
        return not self._skip_bad_files and not self._keeps_any and len({*self._errors, *self._empty}) == n_done

    def _take_over_earlier_files(self) -> None:
        """Reuse the repertoires that an earlier call appended from the same files with the same options."""
        checkpoints = self._writer.checkpoints
        index_of = {file.key(): index for index, file in enumerate(self._files)} if checkpoints else {}
        n = 0
        for note in checkpoints:
            index = index_of.get(note["reading"])
            if note["error"] is not None:  # the file was skipped
                if index is not None and self._skip_bad_files:
                    self._skip_file(index, note["error"])
            elif index is None or (not self._allow_missing and any(not entry["kept"] for entry in note["reports"])):
                break
            else:
                name = self._names[self._files[index].path]  # may be another one if other files are read with it
                self._reports[index] = [
                    RepertoireReport.from_dict({**entry, "file": name}) for entry in note["reports"]
                ]
                self._gene_numbers[str(self._files[index].path)].update(note.get("gene_numbers", {}))
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
        file_name, locus = self._names[file.path], file.cleaning.locus
        cleaned_of = dict(result.repertoires)
        reports = [
            RepertoireReport.of(repertoire_id, file_name, file.format, cleaned_of[repertoire_id], locus)
            for repertoire_id in file.repertoires.values()  # in the order of the sheet, not of the file
            if repertoire_id in cleaned_of
        ]
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
        self._append_repertoires(index, result.key, reports, cleaned_of)

    def _append_repertoires(
        self, index: int, key: str, reports: list[RepertoireReport], cleaned_of: Mapping[str, CleanedTable]
    ) -> None:
        """Append the repertoires of a file that have a kept row, and remember that this file, with its key, is done."""
        numbers: Counter[str] = Counter()
        for report in reports:
            if report.kept:
                sequences = cleaned_of[report.repertoire_id].sequences
                self._writer.append(report.repertoire_id, sequences)
                numbers += count_numbers_as_genes(sequences)
        self._reports[index] = reports
        self._gene_numbers[str(self._files[index].path)] += numbers
        entries = [report.to_dict() for report in reports]
        self._writer.checkpoint({"reading": key, "reports": entries, "error": None, "gene_numbers": numbers})

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
        unreadable = {} if self._skip_bad_files else self.skipped
        empty = [report for reports in self._empty.values() for report in reports]
        if self._mixture and not unreadable and not empty:
            return (self._mixture,)
        n_failed = len(empty) + sum(len(self._files[index].repertoires) for index in self._errors if unreadable)
        n_all = f"{self._n_repertoires:,} {self._unit}"
        failed = f"all {n_all}" if n_failed == self._n_repertoires else f"{n_failed:,} of {n_all}"
        if was_stopped and not self._mixture:
            failed = f"each of the first {failed}"
        faults = self._list_faults(unreadable, empty, n_failed, failed)
        not_read = f"The other {self._unit} were not read" if was_stopped else ""
        advice = []
        if self._keeps_any:
            file_advice = SKIP_ADVICE if len(faults) <= MAX_FAULTS else BAD_FILES_ADVICE
            advice = [file_advice] * (len(unreadable) > 0) + [EMPTY_ADVICE] * (len(empty) > 0)
        elif was_stopped:
            advice = [not_read, "`deeprc check` reads all files, and lists their faults"]
        lines = add_advice(number_faults(f"{failed} cannot be used", faults), "; ".join(advice))
        if self._mixture:
            lines = (*add_advice([end_sentence(self._mixture)], not_read and f"{not_read}."), *lines)
        return lines

    def _list_faults(
        self,
        unreadable: Mapping[str, str],
        empty: Sequence[tuple[Path, RepertoireReport]],
        n_failed: int,
        failed: str,
    ) -> list[str]:
        """Return the faults of files as text: each of them, or groups if they are many or if no file can be used.

        `failed` says in words how many files have failed; it is the subject of a fault that all of them have.
        """
        if self._keeps_any and len(unreadable) + len(empty) <= MAX_FAULTS:
            return [*unreadable.values(), *(describe_empty(path, report) for path, report in empty)]
        groups = [*group_errors(unreadable), *group_empty(empty)]
        is_only_fault = len(groups) == 1 and len(groups[0].members) == n_failed
        return [group.describe(failed if is_only_fault else "") for group in groups]
