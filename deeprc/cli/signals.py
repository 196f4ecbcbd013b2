"""Handling of SIGTERM and Ctrl-C: they always end a command, after a clean-up.

A signal becomes an exception, so that every `finally` and `with` cleans up. The exception is raised at the place that
the process is executing. In two kinds of code, Python discards it, and the command would continue: in callbacks
(`__del__`, a callback of a weak reference or the garbage collector, or one that C calls through ctypes), and in C code
that clears errors. So a timer checks repeatedly until the command has ended. If the exception is being handled at this
moment, the timer lets the clean-up continue. If not, the exception was discarded, and the timer raises it again.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from deeprc.errors import LostRank, Terminated, WriteError
from deeprc.torchrun import read_launch

__all__ = ["handle_signals", "show_how_to_continue"]

_TIMER_SECONDS = 0.1
"""Time between two checks of the timer, in seconds."""

_Ending = Terminated | KeyboardInterrupt


class _Endings:
    """The handlers of the signals, with the exception that ends the command."""

    def __init__(self) -> None:
        self.asked: _Ending | None = None
        self.hook = sys.unraisablehook

    def terminate(self, signal_number: int, _: FrameType | None) -> None:
        """Handle SIGTERM; a second SIGTERM does not interrupt the clean-up."""
        if self.asked is None or not _is_handled(self.asked):
            self._raise(self.asked or Terminated(128 + signal_number))

    def interrupt(self, _number: int, _: FrameType | None) -> None:
        """Handle Ctrl-C; a second Ctrl-C ends a clean-up that hangs."""
        self._raise(KeyboardInterrupt())

    def raise_again(self, _number: int, _: FrameType | None) -> None:
        """Handle the timer: raise the exception again if Python has discarded it."""
        if self.asked is None:
            return
        if _is_handled(self.asked):
            _set_timer()
        else:
            self._raise(self.asked)

    def _raise(self, ending: _Ending) -> None:
        self.asked = ending
        _set_timer()
        raise ending

    def print_unraisable(self, unraisable: Any) -> None:
        """Handle an exception that Python discards; print nothing if it will be raised again."""
        if unraisable.exc_value is None or unraisable.exc_value is not self.asked:
            self.hook(unraisable)


def _is_handled(ending: BaseException) -> bool:
    """Return whether an exception is being handled now, in a `finally`, `except` or `__exit__`."""
    waiting, seen = [sys.exc_info()[1]], set()
    while waiting:
        error = waiting.pop()
        if error is ending:
            return True
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            waiting += [error.__context__, error.__cause__]
    return False


def _set_timer() -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, _TIMER_SECONDS)


@contextmanager
def handle_signals() -> Iterator[None]:
    """Let SIGTERM raise `Terminated`, and Ctrl-C KeyboardInterrupt, within this context, until it has ended.

    It must be entered in the main thread. If Ctrl-C is ignored, as in background jobs of a shell, it stays ignored.
    """
    endings = _Endings()
    handlers: dict[Any, Any] = {signal.SIGTERM: endings.terminate}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handlers[signal.SIGINT] = endings.interrupt
    if hasattr(signal, "setitimer"):
        handlers[signal.SIGALRM] = endings.raise_again
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    sys.unraisablehook = endings.print_unraisable
    try:
        yield
    finally:
        endings.asked = None
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = endings.hook
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def show_how_to_continue(advice: str, begun: Path | None = None) -> Iterator[None]:
    """Show advice if the user, the system, a full disk or another rank ends the command early.

    It is shown if there is something to continue: if the file `begun` exists; None: always. Of several ranks only the
    first one shows it.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, WriteError, LostRank):
        launch = read_launch()
        if (launch is None or launch.rank == 0) and (begun is None or begun.exists()):
            click.echo(f"\nInterrupted. {advice}", err=True)
        raise
