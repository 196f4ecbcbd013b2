"""Progress bars of the commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar

from tqdm import tqdm

if TYPE_CHECKING:
    from torch import Tensor

    from deeprc.training.state import TrainingState

__all__ = ["bar", "file_bar", "training_bar"]

_Item = TypeVar("_Item")
_SHOW_SECONDS = 0.3


def bar(items: Iterable[_Item], unit: str) -> Iterable[_Item]:
    """Show a progress bar on a terminal's standard error while the items are used up."""
    return tqdm(items, unit=unit, leave=False, disable=not sys.stderr.isatty())


@contextmanager
def file_bar() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows on a terminal how many of all files are done."""
    with tqdm(unit="file", disable=not sys.stderr.isatty()) as progress:

        def show(done: int, total: int) -> None:
            progress.total = total
            progress.update(done - progress.n)

        yield show


@contextmanager
def training_bar(n_updates: int) -> Iterator[Callable[[TrainingState, Tensor], None]]:
    """Yield a callback that shows loss, validation AUC and the time left: a bar on a terminal, else lines."""
    terminal = sys.stderr.isatty()
    with ExitStack() as stack:
        progress: tqdm[NoReturn] | None = None
        shown_at = 0.0

        def report(state: TrainingState, loss: Tensor) -> None:
            nonlocal progress, shown_at
            if progress is None:  # made with the first update, so that the time left counts from there
                started = tqdm(total=n_updates, initial=state.update - 1, unit="update", disable=not terminal)
                progress = stack.enter_context(started)
            last = state.history[-1] if state.history else {}
            if terminal:
                news = last.get("update") == state.update
                if news or time.monotonic() - shown_at > _SHOW_SECONDS:  # to look at the loss is to wait for the device
                    shown = {"loss": f"{float(loss):.3f}"}
                    if "validation_auc" in last:
                        shown["validation_auc"] = f"{last['validation_auc']:.3f}"
                    progress.set_postfix(shown, refresh=False)
                    shown_at = time.monotonic()
                progress.update()
            elif last.get("update") == state.update:
                values = "  ".join(f"{name} {value:.4g}" for name, value in last.items() if name != "update")
                tqdm.write(f"update {state.update}/{n_updates}  {values}", file=sys.stderr)

        yield report
