"""SIGTERM and Ctrl-C end a command for certain, and what it began is cleaned up.

A signal becomes an exception, so that every `finally` and `with` on its way cleans up. The exception is raised wherever
the process happens to be; where that is a callback (`__del__`, a weak reference's, the garbage collector's, one that C
calls through ctypes), or C code that clears errors, Python throws the exception away and the command would go on. So a
timer looks again, as long as the command has not ended. If the exception is on its way, which shows in what is being
handled at that moment, the timer lets the clean-up go on; if not, it was thrown away, and is raised again.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from deeprc.errors import Terminated

__all__ = ["ending_by_signals"]

_TIMER_SECONDS = 0.1
"""The time after which the timer checks whether the exception is on its way."""

_Ending = Terminated | KeyboardInterrupt


class _Endings:
    """The handlers of the signals, and the exception that is to end the command."""

    def __init__(self) -> None:
        self.asked: _Ending | None = None
        self.hook = sys.unraisablehook

    def terminate(self, number: int, _: FrameType | None) -> None:
        """Handle SIGTERM; a second one does not disturb the clean-up."""
        if self.asked is None or not _is_handled(self.asked):
            self._raise(self.asked or Terminated(128 + number))

    def interrupt(self, _number: int, _: FrameType | None) -> None:
        """Handle Ctrl-C; a second one ends a clean-up that hangs."""
        self._raise(KeyboardInterrupt())

    def raise_again(self, _number: int, _: FrameType | None) -> None:
        """Handle the timer: raise the exception again if Python threw it away."""
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
        """Handle an exception that Python throws away: print nothing about one that will be raised again."""
        if unraisable.exc_value is None or unraisable.exc_value is not self.asked:
            self.hook(unraisable)


def _is_handled(ending: BaseException) -> bool:
    """Return whether this code runs because of an exception: in a `finally`, `except` or `__exit__` that it reached."""
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
def ending_by_signals() -> Iterator[None]:
    """Let SIGTERM raise `Terminated`, and Ctrl-C KeyboardInterrupt, in the block until it has ended.

    Must be entered in the main thread. Where Ctrl-C is ignored, as in a shell's background jobs, it stays so.
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
