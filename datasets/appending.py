"""Read the planned files of a cohort, and append their repertoires to a container, one after the other."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing

from deeprc.datasets.cleaning import CleanedTable
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.file_reading import ReadResult, choose_workers, read_file, read_files
from deeprc.datasets.plan import Plan
from deeprc.datasets.reading_faults import ReadingFaults
from deeprc.datasets.repertoire_checks import (
    check_loci,
    count_numbers_as_genes,
    describe_empty,
    warn_of_numbers_as_genes,
)
from deeprc.datasets.report import RepertoireReport
from deeprc.errors import InputError
from deeprc.progress import CountFunction, open_step

__all__ = ["RepertoireAppender"]

_logger = logging.getLogger(__name__)


class RepertoireAppender:
    """A reader of the planned files, which appends their repertoires to a container.

    If a file cannot be used, the other files are read nevertheless. So all faults are known at the end
    (`ReadingFaults`), and a second call need not read the other files again.

    Parameters
    ----------
    writer
        A resumable writer of the container.
    plan
        The plan of what is read from each file.
    allow_missing
        Whether repertoires without a kept row are left out, with a warning.
    skip_bad_files
        Whether files that cannot be read are left out, with a warning.
    """

    def __init__(self, writer: ContainerWriter, plan: Plan, *, allow_missing: bool, skip_bad_files: bool) -> None:
        self._writer, self._files, self._names = writer, plan.files_to_read, plan.names
        self._allow_missing, self._skip_bad_files = allow_missing, skip_bad_files
        self._faults = ReadingFaults(self._files, skip_bad_files=skip_bad_files)
        self._reports: dict[int, list[RepertoireReport]] = {}  # by the index of the file; empty for a skipped file
        self._repertoire_of_locus: dict[str, str] = {}  # id of the first repertoire with each locus
        self._gene_numbers: dict[str, Counter[str]] = defaultdict(Counter)  # numbers instead of genes, by file

    @property
    def repertoires(self) -> list[RepertoireReport]:
        """Report of each repertoire that was read, in the order of the plan."""
        return [report for index in sorted(self._reports) for report in self._reports[index]]

    @property
    def skipped(self) -> dict[str, str]:
        """Reason why a file could not be read, by its path."""
        return self._faults.skipped

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
                self._faults.log_first(n_left=n - n_done)
                if progress is not None:
                    progress(n_done, n)
                if self._faults.should_stop(n_done):
                    break
        if self._faults.are_fatal:
            raise self._faults.make_error(was_stopped=n_done < n)
        warn_of_numbers_as_genes(self._gene_numbers)

    def _take_over_earlier_files(self) -> None:
        """Reuse the repertoires that an earlier call appended from the same files with the same options."""
        checkpoints = self._writer.checkpoints
        index_of = {file.compute_key(): index for index, file in enumerate(self._files)} if checkpoints else {}
        n_reused = 0
        for note in checkpoints:
            index = index_of.get(note["reading"])
            if note["error"] is not None:  # the file was skipped, so nothing was appended
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
            n_reused += 1
        self._writer.rewind(n_reused)
        for report in self.repertoires:
            check_loci(self._repertoire_of_locus, report)
        self._faults.keeps_any = any(report.kept for report in self.repertoires)
        if self._reports:
            message = "%s: continues after %d of %d files or repertoires, which were read before"
            _logger.warning(message, self._writer.path, len(self._reports), len(self._files))

    def _append_result(self, index: int, result: ReadResult) -> None:
        """Append the repertoires of a file to the container, all or none, or note why it cannot be used."""
        if result.error is None:
            self._append_repertoires(index, result.key, dict(result.repertoires))
        elif self._skip_bad_files:
            self._skip_file(index, result.error)
            self._writer.checkpoint({"reading": result.key, "reports": [], "error": result.error})
        else:
            self._faults.add_error(index, result.error)

    def _skip_file(self, index: int, error: str) -> None:
        self._faults.add_error(index, error)
        self._reports[index] = []

    def _append_repertoires(self, index: int, key: str, cleaned_of: Mapping[str, CleanedTable]) -> None:
        """Append the repertoires of a file, or note why they cannot be used; `cleaned_of` has them by their ids."""
        file = self._files[index]
        reports = [
            RepertoireReport.of(
                repertoire_id, self._names[file.path], file.format, cleaned_of[repertoire_id], file.cleaning.locus
            )
            for repertoire_id in file.repertoires.values()  # in the order of the sheet, not of the file
            if repertoire_id in cleaned_of
        ]
        self._faults.keeps_any |= any(report.kept for report in reports)
        try:
            for report in reports:
                check_loci(self._repertoire_of_locus, report)
        except InputError as error:
            self._faults.mixture = str(error)
            return
        empty = [report for report in reports if not report.kept]
        if empty and not self._allow_missing:
            self._faults.add_empty(index, empty)
            return
        for report in empty:
            _logger.warning("%s: left out", describe_empty(file.path, report))
        self._write_repertoires(index, key, reports, cleaned_of)

    def _write_repertoires(
        self, index: int, key: str, reports: Sequence[RepertoireReport], cleaned_of: Mapping[str, CleanedTable]
    ) -> None:
        """Write the repertoires of a file that have a kept row, and remember that this file, with its key, is done."""
        numbers: Counter[str] = Counter()
        for report in reports:
            if report.kept:
                sequences = cleaned_of[report.repertoire_id].sequences
                self._writer.append(report.repertoire_id, sequences)
                numbers += count_numbers_as_genes(sequences)
        self._reports[index] = list(reports)
        self._gene_numbers[str(self._files[index].path)] += numbers
        entries = [report.to_dict() for report in reports]
        self._writer.checkpoint({"reading": key, "reports": entries, "error": None, "gene_numbers": numbers})
