"""Progress of computations: the library opens steps, and a reporter shows them.

By default, the reporter writes log lines, at most one in 30 seconds. A notebook shows bars, and so does the command
line on a terminal.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar

__all__ = [
    "CountFunction",
    "LogLines",
    "Reporter",
    "Step",
    "TimedReporter",
    "format_duration",
    "is_in_notebook",
    "name_job_of_steps",
    "open_step",
    "track",
    "use_reporter",
]

_logger = logging.getLogger(__name__)

_MARKED_SHARE = 0.01  # share of a step after which its time is noted
_MAX_TIME, _MAX_DONE = 0.75, 0.5  # shares of the time and of the finished part that precede what tells the speed

CountFunction = Callable[[int, int], None]
"""Function that is called with the number of items that are done, and of all items."""

_Item = TypeVar("_Item")


@dataclass(eq=False)
class Step:
    """A step of a computation, whose progress is shown.

    Attributes
    ----------
    name
        Name of the step, in words: what is computed.
    total, done
        Size of the whole step and of its finished part, in any unit; `done` begins above 0 if a step is continued.
    left
        Time that is left in seconds; None if only the speed so far tells it, infinite if nothing tells it. If it is not
        None, the items take different times: their number is shown, not a share.
    note
        Text that is shown beside the progress.
    job
        Name of the job that the step belongs to, such as a method and a fold, see `name_job_of_steps`; "" for none.
    """

    name: str
    total: float
    reporter: Reporter = field(repr=False)
    done: float = 0
    left: float | None = None
    note: str = ""
    job: str = ""

    @property
    def title(self) -> str:
        """Name of the step, with its job if it has one."""
        return f"{self.job}: {self.name}" if self.job else self.name

    def advance(self, amount: float = 1) -> None:
        """Add an amount to `done` and show it."""
        self.done += amount
        self.reporter.show(self)

    def follow(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items, and advance by one after each."""
        for item in items:
            yield item
            self.advance()


class _Times:
    """The times at which parts of a step were finished, for an estimate of the time that is left."""

    def __init__(self, step: Step, now: float) -> None:
        self._step = step
        self._marks = [(now, step.done)]  # time, and `done` at this time
        self._latest = now

    @property
    def began(self) -> float:
        """Time when the step began."""
        return self._marks[0][0]

    def note(self, now: float) -> None:
        """Note the time at which the step was shown; the speed needs it if a hundredth of the step was finished."""
        self._latest = now
        if self._step.done - self._marks[-1][1] >= _MARKED_SHARE * (self._step.total - self._marks[0][1]):
            self._marks.append((now, self._step.done))

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds that the rest will take: by `left` of the step if it is known, else by its later parts.

        The first part never counts, because it often takes longer than the others: functions are compiled, or workers
        start. The parts that count are at least half of what is finished, and took at least a quarter of the time. The
        reason is that workers that began together finish their first parts together. None: there are no such parts yet.
        """
        step, (began, done_before) = self._step, self._marks[0]
        if step.left is not None:  # it was known when the step was shown
            rest = step.left - (now - self._latest)
            return rest if rest > 0 or step.done >= step.total else None
        latest, most = began + _MAX_TIME * (now - began), done_before + _MAX_DONE * (step.done - done_before)
        earlier = [mark for mark in self._marks[1:] if mark[0] <= latest and mark[1] <= most]
        if not earlier or step.done <= done_before:
            return None
        time_then, done_then = earlier[-1]
        return (now - time_then) / (step.done - done_then) * (step.total - step.done)


class Reporter(Protocol):
    """An object that shows steps; a step may be opened while another one is open."""

    def begin(self, step: Step) -> None:
        """Begin to show a step."""

    def show(self, step: Step) -> None:
        """Show how far an open step is."""

    def end(self, step: Step) -> None:
        """Stop showing a step."""


class TimedReporter(ABC):
    """A reporter that shows all open steps together, the outermost first, but only after `delay` and every `interval`.

    Parameters
    ----------
    clock
        Function that returns the time in seconds.

    Attributes
    ----------
    delay
        Time that a step runs before it is shown, in seconds.
    interval
        Time between two updates of the shown steps, in seconds.
    """

    delay: ClassVar[float]
    interval: ClassVar[float]

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last_shown = clock, clock()
        self._times: dict[Step, _Times] = {}

    def begin(self, step: Step) -> None:
        """Remember when a step began."""
        self._times[step] = _Times(step, self._clock())

    def show(self, step: Step) -> None:
        """Show all open steps if `delay` and `interval` have passed."""
        now, times = self._clock(), self._times[step]
        times.note(now)
        if now - times.began >= self.delay and now - self._last_shown >= self.interval:
            self._last_shown = now
            self.show_all(list(self._times), now)

    def end(self, step: Step) -> None:
        """Forget a step."""
        del self._times[step]

    @abstractmethod
    def show_all(self, steps: Sequence[Step], now: float) -> None:
        """Show all open steps, the outermost first; `now` is the time in seconds."""

    def describe_part(self, step: Step) -> str:
        """Return the part of a step that is done as text; "" if nothing is known of it."""
        if step.left is not None:
            return f"{step.done:.0f} of {step.total:.0f}"
        return f"{100 * step.done / step.total:.0f}%" if step.total else ""

    def describe_rest(self, step: Step, now: float) -> list[str]:
        """Return texts about the rest of a step: the time that is left, and its note, as far as they are known."""
        left = self._times[step].seconds_left(now)
        time_left = [] if left is None or math.isinf(left) else [f"about {format_duration(max(left, 0))} left"]
        return [*time_left, *filter(None, [step.note])]


class LogLines(TimedReporter):
    """A reporter that logs one line about all open steps, at most once in 30 seconds."""

    delay, interval = 5.0, 30.0

    def show_all(self, steps: Sequence[Step], now: float) -> None:
        """Log a line."""
        jobs = ["", *(step.job for step in steps)]  # a job is named before the first of its steps
        names = [step.name if step.job == outer else step.title for step, outer in zip(steps, jobs, strict=False)]
        described = (self._describe(name, step, now) for name, step in zip(names, steps, strict=True))
        _logger.info("%s", "; ".join(described))

    def _describe(self, name: str, step: Step, now: float) -> str:
        part = self.describe_part(step)
        return ", ".join([f"{name}: {part}" if part else name, *self.describe_rest(step, now)])


_REPORTER: ContextVar[Reporter | None] = ContextVar("_REPORTER", default=None)
_JOB: ContextVar[str] = ContextVar("_JOB", default="")
_LINES = LogLines()


def _get_reporter() -> Reporter:
    """Return the current reporter: the one that `use_reporter` has set, else bars in a notebook, else log lines."""
    reporter = _REPORTER.get()
    if reporter is None and is_in_notebook():
        from deeprc.notebook_bars import BARS

        return BARS
    return reporter or _LINES


def is_in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


@contextmanager
def use_reporter(reporter: Reporter) -> Iterator[None]:
    """Let a reporter show all steps within this context."""
    token = _REPORTER.set(reporter)
    try:
        yield
    finally:
        _REPORTER.reset(token)


@contextmanager
def name_job_of_steps(job: str) -> Iterator[None]:
    """Show with each step that is opened within this context what it is computed for, such as "deeprc, fold 2"."""
    token = _JOB.set(job)
    try:
        yield
    finally:
        _JOB.reset(token)


@contextmanager
def open_step(name: str, total: float, *, done: float = 0) -> Iterator[Step]:
    """Show a step within this context.

    Parameters
    ----------
    name
        Name of the step, in words: what is computed.
    total
        Size of the step, in the unit in which it advances.
    done
        Size of the part that is already finished.
    """
    step = Step(name, total, _get_reporter(), done, job=_JOB.get())
    step.reporter.begin(step)
    try:
        yield step
    finally:
        step.reporter.end(step)


def track(items: Iterable[_Item], name: str, total: int) -> Iterator[_Item]:
    """Yield all `total` items, and show as a step how many of them have been yielded."""
    with open_step(name, total) as step:
        yield from step.follow(items)


def format_duration(seconds: float) -> str:
    """Return a time as text, in seconds, minutes or hours."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{round(seconds)} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
