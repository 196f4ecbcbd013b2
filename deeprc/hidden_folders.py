"""Hidden folders beside a path, for files that are not finished.

A process that is killed leaves its hidden folder; the next process that needs one beside the same path deletes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from deeprc.locks import take_lock

__all__ = ["make_hidden_prefix", "temporary_folder"]

_SUFFIX, _LOCK = ".tmp", ".lock"
_MAX_PREFIX = 60
"""Number of letters of a file's name that the name of its hidden folder repeats; names have at most 255 bytes."""


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Yield a new hidden folder beside `path` for unfinished files; delete it when the block ends.

    It also deletes the hidden folders of processes that were killed while they wrote to `path`. A process that still
    runs holds a lock on a file in its folder, so its folder stays.

    Raises
    ------
    OSError
        If no folder can be created there.
    """
    prefix = make_hidden_prefix(path)
    _delete_leftovers(path.parent, prefix)
    folder, lock = _make_locked(path.parent, prefix)
    try:
        yield folder
    finally:
        lock.close()  # first, because Windows cannot delete open files
        shutil.rmtree(folder, ignore_errors=True)


def _make_locked(parent: Path, prefix: str) -> tuple[Path, IO[bytes]]:
    """Create a hidden folder with a lock file; return both."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=parent))
        try:
            lock = (folder / _LOCK).open("wb")
        except FileNotFoundError:  # another process has deleted the folder, because it was still empty
            continue
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if take_lock(lock, folder / _LOCK) is not False:
            return folder, lock
        lock.close()


def _delete_leftovers(parent: Path, prefix: str) -> None:
    """Delete the hidden folders whose processes have ended."""
    pattern = re.compile(re.escape(prefix) + "[a-z0-9_]{8}" + re.escape(_SUFFIX))  # random names of `tempfile`
    for folder in [parent / name for name in os.listdir(parent) if pattern.fullmatch(name)]:
        with contextlib.suppress(OSError):  # another process deletes it, or it belongs to another user
            if not os.listdir(folder):
                folder.rmdir()
                continue
            with (folder / _LOCK).open("r+b") as lock:
                if take_lock(lock, folder / _LOCK):
                    shutil.rmtree(folder, ignore_errors=True)


def make_hidden_prefix(path: Path) -> str:
    """Return the prefix of the names of the hidden folders beside a path."""
    return f".{path.name[:_MAX_PREFIX]}."
