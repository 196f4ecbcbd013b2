"""Locks of files, by which processes see each other; they end with the process that holds them, even a killed one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["is_at", "take_lock"]


def take_lock(file: IO[bytes]) -> bool | None:
    """Take the lock of an open file, without waiting.

    Returns
    -------
    True where it is taken, until the file is closed; False where another process, or another open file of this one,
    has it; None where the system or the file system knows no locks.
    """
    taken: bool | None = None
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = True
        except OSError as error:
            taken = False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return taken


def is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file still is the one at `path`; it may have been deleted before it was locked."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
