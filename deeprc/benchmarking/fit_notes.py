"""What networks log while they are fitted, for the user of a benchmark, in which there are dozens of fits.

Such notes name neither the method nor the user's target. Each kind of note is shown once for each method, and names
both. Notes that matter for a single fit only are not shown. Warnings are not changed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["name_fit_notes", "show_fit_notes_once"]

_OF_ONE_FIT = ("deeprc.training.calibration", "deeprc.training.confirmation")
"""Loggers of notes that matter only to those who use the fitted network."""

_NAMED = ("deeprc.branches.clones_fit", "deeprc.training.branch_start", "deeprc.training.network_start")
"""Loggers of notes that say what a method did or did not do with the cohort."""

# Filters are of a process, but what they do depends on the thread, because calls in several threads may overlap.
_method_and_target: ContextVar[tuple[str, str] | None] = ContextVar("_method_and_target", default=None)
_shown: ContextVar[set[tuple[str, str]] | None] = ContextVar("_shown", default=None)


@contextmanager
def show_fit_notes_once(shown: set[tuple[str, str]]) -> Iterator[None]:
    """Show each kind of note once for each method in this context; `shown` keeps what was shown."""
    token = _shown.set(shown)
    try:
        yield
    finally:
        _shown.reset(token)


@contextmanager
def name_fit_notes(method: str, target: str) -> Iterator[None]:
    """Let the notes of fits in this context name the method and the target."""
    token = _method_and_target.set((method, target))
    try:
        yield
    finally:
        _method_and_target.reset(token)


def _keep_note(record: logging.LogRecord) -> bool:
    """Return whether a note is shown, and write the names of the method and the target into it."""
    names = _method_and_target.get()
    if names is None or record.levelno >= logging.WARNING or logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
        return True
    if record.name in _OF_ONE_FIT:
        return False
    method, target = names
    text, shown = record.getMessage(), _shown.get()
    kind = method, re.sub(r"\d[\d.,]*", "0", text.partition(". ")[0])  # details and numbers differ between fits
    if shown is not None:
        if kind in shown:
            return False
        shown.add(kind)
    text = re.sub(r"\by\b", lambda _: target, text)  # estimators call their target y
    record.msg, record.args = "In a fit of %s: %s", (method, text)
    return True


for _name in (*_OF_ONE_FIT, *_NAMED):
    logging.getLogger(_name).addFilter(_keep_note)
