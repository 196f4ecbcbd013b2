"""Messages that several runs of one process log: each is written once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["count_runs_of_messages", "log_once"]


@contextmanager
def log_once(*names: str) -> Iterator[None]:
    """Let loggers write each message only once within this context, because all runs warn of the same things."""
    written: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        n_known = len(written)
        written.add(record.getMessage())
        return len(written) > n_known

    with _filter_records(is_new, names):
        yield


@contextmanager
def count_runs_of_messages(n_runs: int, *names: str) -> Iterator[None]:
    """Let loggers write their messages at the end of this context, each once, with the number of runs that logged it.

    If the context ends early, the messages until then are written. A single run writes its messages at once.
    """
    n_runs_of: Counter[tuple[str, int, str]] = Counter()

    def count(record: logging.LogRecord) -> bool:
        n_runs_of[record.name, record.levelno, record.getMessage()] += 1
        return False

    if n_runs == 1:
        yield
        return
    try:
        with _filter_records(count, names):
            yield
    finally:
        for (name, level, message), n in n_runs_of.items():
            logging.getLogger(name).log(level, "%d of %d runs: %s", n, n_runs, message)


@contextmanager
def _filter_records(keep: Callable[[logging.LogRecord], bool], names: tuple[str, ...]) -> Iterator[None]:
    """Let loggers write only the records that are to be kept within this context."""
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(keep)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(keep)
