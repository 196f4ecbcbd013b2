"""Progress of commands: bars on a terminal, otherwise lines."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from deeprc.progress import Step, format_duration, open_step

if TYPE_CHECKING:
    from torch import Tensor

    from deeprc.training.state import TrainingState

    _StreamHandler = logging.StreamHandler[Any]
else:
    _StreamHandler = logging.StreamHandler  # Python 3.10 cannot subscript it

__all__ = ["Bars", "LineHandler", "make_evaluation_printer", "show_counts"]

_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}, {elapsed}<{remaining}{postfix}"
_COUNT = "{desc}: {n_fmt} of {total_fmt}, {elapsed}{postfix}"  # a bar would be read as the share of the time
_DELAY = 0.5  # seconds before a bar is shown; a shorter step has no bar
_MIN_INTERVAL = 0.1  # seconds between two updates of a bar
_MIN_SCALED = 10_000  # larger totals are shown with a unit prefix: 141M


class Bars:
    """A reporter that shows each open step as a bar on standard error, until the step ends."""

    def __init__(self) -> None:
        self._bars: dict[Step, tqdm[Any]] = {}

    def begin(self, step: Step) -> None:
        """Show an empty bar."""
        self._bars[step] = tqdm(
            desc=step.title,
            total=step.total,
            initial=step.done,
            bar_format=_BAR,
            unit_scale=step.total >= _MIN_SCALED,
            leave=False,
            delay=_DELAY,
            mininterval=_MIN_INTERVAL,
        )

    def show(self, step: Step) -> None:
        """Update the bar, if the last update is not too recent."""
        bar = self._bars[step]
        if step.left is not None:
            bar.bar_format = _COUNT
        if step.left is not None and math.isfinite(step.left):
            bar.set_postfix_str(f"about {format_duration(step.left)} left", refresh=False)
        elif step.note:
            bar.set_postfix_str(step.note, refresh=False)
        bar.update(step.done - bar.n)

    def end(self, step: Step) -> None:
        """Remove the bar."""
        self._bars.pop(step).close()


class LineHandler(_StreamHandler):
    """A log handler that writes lines above the bars; of other libraries than deeprc only warnings and errors.

    PyTorch, for example, writes statistics of its caches at the end of a process.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        is_wanted = record.levelno >= logging.WARNING or record.name.partition(".")[0] == "deeprc"
        return is_wanted and bool(super().filter(record))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        with tqdm.external_write_mode(file=self.stream):
            super().emit(record)


@contextmanager
def show_counts(name: str) -> Iterator[Callable[..., None]]:
    """Yield a function that shows the numbers of finished and of all parts, and the seconds left, if not None."""
    step: Step | None = None
    with ExitStack() as stack:

        def show(done: int, total: int, left: float | None = None) -> None:
            nonlocal step
            if step is None:  # made at the first call, from which the time left is estimated
                step = stack.enter_context(open_step(name, total, done=done))
            step.left = math.inf if left is None else left  # parts differ too much to tell the time from their number
            step.advance(done - step.done)

        yield show


def make_evaluation_printer(n_updates: int) -> Callable[[TrainingState, Tensor], None]:
    """Return a function that prints each evaluation of a training, unless a bar shows them."""

    def report(state: TrainingState, _: Tensor) -> None:
        last = state.history[-1] if state.history else {}
        if last.get("update") == state.update and not sys.stderr.isatty():
            values = "  ".join(f"{name} {value:.4g}" for name, value in last.items() if name != "update")
            click.echo(f"update {state.update}/{n_updates}  {values}", err=True)

    return report
