"""What networks log while they are fitted, for the user of a benchmark, in which there are dozens of fits.

Such notes do not name the method. Each note, which is a place in the code, is shown once for each method, and names it.
Notes that matter for a single fit only are not shown. Warnings are not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["FitNote", "name_fit_notes", "show_fit_notes_once"]

_HIDDEN_LOGGERS = ("deeprc.training.calibration", "deeprc.training.confirmation", "deeprc.training.start_choice")
"""Loggers of notes that matter only to those who use the fitted network."""

_SHOWN_LOGGERS = ("deeprc.branches.special_clones", "deeprc.training.branch_start", "deeprc.training.network_start")
"""Loggers of notes that say what a method did or did not do with the cohort."""


class FitNote(NamedTuple):
    """A note of the fits of one method, told apart from others by its place in the code."""

    method: str
    logger: str
    line: int


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
    """Return whether a note is shown, and write the name of the method into it.

    Warnings stay as they are, and so do all notes if the user asked for debug messages.
    """
    method, shown = _method.get(), _shown.get()
    asks_for_debug = logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
    if method is None or record.levelno >= logging.WARNING or asks_for_debug:
        return True
    if record.name in _HIDDEN_LOGGERS:
        return False
    if shown is not None:
        note = FitNote(method, record.name, record.lineno)
        if note in shown:
            return False
        shown.add(note)
    # estimators do not know the name of their target
    record.msg, record.args = (
        "In one fit of %s (others may differ; the target is called 'y' there): %s",
        (method, record.getMessage()),
    )
    return True


for _name in (*_HIDDEN_LOGGERS, *_SHOWN_LOGGERS):
    logging.getLogger(_name).addFilter(_keep_note)
