"""The faults of the files that `deeprc preprocess` reads one after the other, and the message about all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from deeprc.datasets.file_reading import FileToRead, note_failure
from deeprc.datasets.plan import BAD_FILES_ADVICE, SKIP_ADVICE
from deeprc.datasets.repertoire_checks import EMPTY_ADVICE, describe_empty, group_empty
from deeprc.datasets.report import RepertoireReport
from deeprc.errors import MAX_FAULTS, UnusableFiles, add_advice, end_sentence, group_errors, number_faults

__all__ = ["ReadingFaults"]

_logger = logging.getLogger(__name__)

_FIRST_FILES = 20
"""If none of so many files that are read first can be used, for example because of a wrong format, no more are read."""

_MANY_FILES = 20
"""Number of files that may take minutes, so that a user wants to know of a fault before they are read."""


class ReadingFaults:
    """A collector of faults: of files that cannot be read, and of files with a repertoire of which no row is kept.

    Parameters
    ----------
    files
        The files that are read; the methods get their indices.
    skip_bad_files
        Whether files that cannot be read are left out: then they are logged, and stop nothing.

    Attributes
    ----------
    keeps_any
        Whether any repertoire has a kept row, even if its file has a fault, too.
    mixture
        The message about several chains; "" if there is one chain. No more files are read then, since each must be read
        again for the chain that the user chooses.
    """

    def __init__(self, files: Sequence[FileToRead], *, skip_bad_files: bool) -> None:
        self._files, self._skip_bad_files = files, skip_bad_files
        self.keeps_any, self.mixture = False, ""
        self._errors: dict[int, str] = {}  # by the index of the file
        self._empty: dict[int, list[tuple[Path, RepertoireReport]]] = {}
        self._n_repertoires = sum(len(file.repertoires) for file in files)
        has_one_each = self._n_repertoires == len({file.path for file in files})
        self._unit = "files" if has_one_each else "repertoires"  # what is counted in messages
        self._has_logged_fault = skip_bad_files

    def add_error(self, index: int, error: str) -> None:
        """Note that a file cannot be read."""
        if self._skip_bad_files and error not in self._errors.values():  # each repertoire of a file may raise its error
            _logger.warning("%s: skipped", error)
        self._errors[index] = error

    def add_empty(self, index: int, reports: Sequence[RepertoireReport]) -> None:
        """Note that a file has repertoires of which no row is kept."""
        self._empty[index] = [(self._files[index].path, report) for report in reports]

    @property
    def skipped(self) -> dict[str, str]:
        """Reason why a file could not be read, by its path."""
        failed: dict[str, str] = {}
        for index in sorted(self._errors):
            note_failure(failed, self._files[index], self._errors[index])
        return failed

    @property
    def are_fatal(self) -> bool:
        """Whether no container can be written."""
        return bool(self.mixture or self._empty or (self._errors and not self._skip_bad_files))

    def should_stop(self, n_done: int) -> bool:
        """Return whether it is useless to read more files after the first `n_done` ones."""
        if self.mixture:
            return True
        n_failed = len({*self._errors, *self._empty})
        return n_done == _FIRST_FILES == n_failed and not self._skip_bad_files and not self.keeps_any

    def log_first(self, n_left: int) -> None:
        """Log the first fault at once if other files can be used and many are left, which may take minutes."""
        if self._has_logged_fault or not self.keeps_any or n_left < _MANY_FILES or not (self._errors or self._empty):
            return
        self._has_logged_fault = True
        fault = next(iter(self._errors.values()), None) or describe_empty(*next(iter(self._empty.values()))[0])
        message = "%s The other %s are read nevertheless, to list all faults at the end"
        _logger.warning(message, end_sentence(fault), self._unit)

    def make_error(self, *, was_stopped: bool) -> UnusableFiles:
        """Return an error with the faults of all files, or of those that were read."""
        unreadable = {} if self._skip_bad_files else self.skipped
        empty = [report for reports in self._empty.values() for report in reports]
        if self.mixture and not unreadable and not empty:
            return UnusableFiles([self.mixture])
        n_failed = len(empty) + sum(len(self._files[index].repertoires) for index in self._errors if unreadable)
        n_all = f"{self._n_repertoires:,} {self._unit}"
        failed = f"all {n_all}" if n_failed == self._n_repertoires else f"{n_failed:,} of {n_all}"
        if was_stopped and not self.mixture:
            failed = f"each of the first {failed}"
        faults = self._list_faults(unreadable, empty, n_failed, failed)
        not_read = f"The other {self._unit} were not read" if was_stopped else ""
        advice = []
        if self.keeps_any:
            file_advice = SKIP_ADVICE if len(faults) <= MAX_FAULTS else BAD_FILES_ADVICE
            advice += [file_advice] if len(unreadable) > 0 else []
            advice += [EMPTY_ADVICE] if len(empty) > 0 else []
        elif was_stopped:
            advice = [not_read, "`deeprc check` reads all files, and lists their faults"]
        heading: tuple[str, ...] = ()
        if self.mixture:
            heading = add_advice([end_sentence(self.mixture)], not_read and f"{not_read}.")
        return UnusableFiles(number_faults(f"{failed} cannot be used", faults), "; ".join(advice), heading)

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
        if self.keeps_any and len(unreadable) + len(empty) <= MAX_FAULTS:
            return [*unreadable.values(), *(describe_empty(path, report) for path, report in empty)]
        groups = [*group_errors(unreadable), *group_empty(empty)]
        is_only_fault = len(groups) == 1 and len(groups[0].members) == n_failed
        return [group.describe(failed if is_only_fault else "") for group in groups]
