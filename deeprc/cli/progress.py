"""Progress bars of the commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn, TypeVar

from tqdm import tqdm

from deeprc.training.trainer import TrainingState

__all__ = ["bar", "training_bar"]

_Item = TypeVar("_Item")
_SMOOTHING = 0.98


def bar(items: Iterable[_Item], unit: str) -> Iterable[_Item]:
    """Show a progress bar on a terminal's standard error while the items are used up."""
    return tqdm(items, unit=unit, leave=False, disable=not sys.stderr.isatty())


@contextmanager
def training_bar(n_updates: int) -> Iterator[Callable[[TrainingState, float], None]]:
    """Give a callback that shows loss, validation AUC and the time left; lines instead of a bar without a terminal."""
    terminal = sys.stderr.isatty()
    smooth: float | None = None
    with ExitStack() as stack:
        progress: tqdm[NoReturn] | None = None

        def report(state: TrainingState, loss: float) -> None:
            nonlocal smooth, progress
            smooth = loss if smooth is None else _SMOOTHING * smooth + (1 - _SMOOTHING) * loss
            if progress is None:  # made with the first update, so that the time left counts from there
                started = tqdm(total=n_updates, initial=state.update - 1, unit="update", disable=not terminal)
                progress = stack.enter_context(started)
            last = state.history[-1] if state.history else {}
            shown = {"loss": f"{smooth:.3f}"}
            if "validation_auc" in last:
                shown["validation_auc"] = f"{last['validation_auc']:.3f}"
            if terminal:
                progress.set_postfix(shown, refresh=False)
                progress.update()
            elif last.get("update") == state.update:
                values = "  ".join(f"{name} {value:.4g}" for name, value in last.items() if name != "update")
                tqdm.write(f"update {state.update}/{n_updates}  {values}", file=sys.stderr)

        yield report
