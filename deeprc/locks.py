"""Locks on files between processes. A lock ends with the process that holds it, even if the process is killed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["take_lock"]


def take_lock(file: IO[bytes], path: Path) -> bool | None:
    """Try to lock the open file of a path, without waiting.

    Returns
    -------
    True if the file is locked now; the lock ends when the file is closed. False if the lock is held by another process
    or by another open file of this process. Also False if the file was deleted before it was locked. None if the system
    or the file system has no locks.
    """
    locked: bool | None = None
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except OSError as error:
            locked = False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return locked if locked is False or _is_same_file(file, path) else False


def _is_same_file(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
