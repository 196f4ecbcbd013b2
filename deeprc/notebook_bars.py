"""Progress bars below the cell of a notebook, without widgets."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from html import escape
from typing import Any

from deeprc.progress import Step, TimedReporter

__all__ = ["BARS", "NotebookBars"]


class NotebookBars(TimedReporter):
    """A reporter that shows all open steps as bars. They disappear when the outermost step ends."""

    delay, interval = 1.0, 0.3
    _shown: Any = None  # handle of the output below the cell

    def show_all(self, steps: Sequence[Step], now: float) -> None:
        """Draw the bars."""
        self._display("".join(self._draw(step, now) for step in steps))

    def end(self, step: Step) -> None:
        """Forget a step; after the last one, clear the output."""
        super().end(step)
        if not self._times and self._shown is not None:
            self._display("")
            self._shown = None

    def _draw(self, step: Step, now: float) -> str:
        share = step.done / step.total if step.total else 0.0
        text = ", ".join([self.describe_part(step) or "0%", *self.describe_rest(step, now)])
        return (
            f'<div><progress max="1" value="{share:.3f}" aria-label="{escape(step.title)}"></progress> '
            f"{escape(step.title)}: {escape(text)}</div>"
        )

    def _display(self, html: str) -> None:
        ipython = importlib.import_module("IPython.display")
        if self._shown is None:
            self._shown = ipython.display(ipython.HTML(html), display_id=True)
        else:
            self._shown.update(ipython.HTML(html))


BARS = NotebookBars()
"""Reporter of the steps in a notebook."""
