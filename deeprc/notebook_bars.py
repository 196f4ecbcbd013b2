"""Bars below the cell of a notebook that show how far its computations are; they need no widgets."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from html import escape
from typing import Any

from deeprc.progress import Step, format_duration

__all__ = ["BARS", "NotebookBars"]

_DELAY = 1.0  # seconds; what ends before has no bar
_INTERVAL = 0.3  # seconds between two pictures


class NotebookBars:
    """Shows all open steps as bars, the outermost first; they disappear when the outermost ends.

    Parameters
    ----------
    clock
        Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last_shown = clock, clock()
        self._began: dict[Step, tuple[float, float]] = {}  # when a step began, and how much of it was done then
        self._shown: Any = None  # the output below the cell

    def begin(self, step: Step) -> None:
        """Remember when a step began."""
        self._began[step] = self._clock(), step.done

    def show(self, step: Step) -> None:
        """Draw the bars, if the last time was not a moment ago."""
        now = self._clock()
        began, _ = self._began[step]
        if now - began >= _DELAY and now - self._last_shown >= _INTERVAL:
            self._last_shown = now
            self._display("".join(self._draw(each, now) for each in list(self._began)))

    def end(self, step: Step) -> None:
        """Forget a step; the last one leaves an empty output."""
        del self._began[step]
        if not self._began and self._shown is not None:
            self._display("")
            self._shown = None

    def _draw(self, step: Step, now: float) -> str:
        left = step.seconds_left(now, *self._began[step])
        share = step.done / step.total if step.total else 0.0
        time_left = [] if left is None else [f"about {format_duration(max(left, 0))} left"]
        text = ", ".join([f"{100 * share:.0f}%", *time_left, *filter(None, [step.note])])
        return (
            f'<div><progress max="1" value="{share:.3f}" aria-label="{escape(step.name)}"></progress> '
            f"{escape(step.name)}: {escape(text)}</div>"
        )

    def _display(self, html: str) -> None:
        ipython = importlib.import_module("IPython.display")
        if self._shown is None:
            self._shown = ipython.display(ipython.HTML(html), display_id=True)
        else:
            self._shown.update(ipython.HTML(html))


BARS = NotebookBars()
"""What shows the steps of a notebook."""
