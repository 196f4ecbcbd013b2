"""What networks log while they are fitted, for the user of a benchmark, in which there are dozens of fits.

Such notes do not name the method. Each note, which is a place in the code, is shown once for each method, and names it.
Notes that matter for a single fit only are not shown. Warnings are not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["FitNote", "name_fit_notes", "show_fit_notes_once"]

_OF_ONE_FIT = ("deeprc.training.calibration", "deeprc.training.confirmation")
"""Loggers of notes that matter only to those who use the fitted network."""

_NAMED = ("deeprc.branches.clones_fit", "deeprc.training.branch_start", "deeprc.training.network_start")
"""Loggers of notes that say what a method did or did not do with the cohort."""

FitNote = tuple[str, str, int]
"""A note of the fits of one method: method, logger and line in its module."""

# Filters are of a process, but what they do depends on the thread, because calls in several threads may overlap.
_method: ContextVar[str | None] = ContextVar("_method", default=None)
_shown: ContextVar[set[FitNote] | None] = ContextVar("_shown", default=None)


@contextmanager
def show_fit_notes_once(shown: set[FitNote]) -> Iterator[None]:
    """Show each note once for each method in this context; `shown` keeps what was shown."""
    token = _shown.set(shown)
    try:
        yield
    finally:
        _shown.reset(token)


@contextmanager
def name_fit_notes(method: str) -> Iterator[None]:
    """Let the notes of fits in this context name the method."""
    token = _method.set(method)
    try:
        yield
    finally:
        _method.reset(token)


def _keep_note(record: logging.LogRecord) -> bool:
    """Return whether a note is shown, and write the name of the method into it."""
    method, shown = _method.get(), _shown.get()
    if (
        method is None
        or record.levelno >= logging.WARNING
        or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
    ):
        return True
    if record.name in _OF_ONE_FIT:
        return False
    if shown is not None:
        note = method, record.name, record.lineno
        if note in shown:
            return False
        shown.add(note)
    # estimators do not know the name of their target
    record.msg, record.args = "In a fit of %s (which calls the target 'y'): %s", (method, record.getMessage())
    return True


for _name in (*_OF_ONE_FIT, *_NAMED):
    logging.getLogger(_name).addFilter(_keep_note)
