"""Folders for compiled code and other caches. A user may delete these files at any time.

Packages keep such files beside their sources or in the user's home. In many containers neither can be written. Then the
files go to a private folder of the user under the temporary directory.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

__all__ = ["has_home", "make_private_folder", "prepare_caches"]

_HOMES = {
    "MPLCONFIGDIR": (("XDG_CONFIG_HOME", "~/.config"), ("XDG_CACHE_HOME", "~/.cache")),
    "TRITON_CACHE_DIR": (("TRITON_HOME", "~"),),
}
"""Variables that set the cache folders of matplotlib and Triton, with the folders that these packages otherwise use.

Such a folder is a pair: a variable that may name it, and its default."""


def make_private_folder() -> Path | None:
    """Return the private folder of this user under the temporary directory, and create it if needed.

    Compiled code is loaded from this folder, so nobody else may be able to write to it. It must belong to this user, be
    closed to all others (mode 0700), and others must not be able to rename it. The function returns None if there is no
    such folder.
    """
    if not hasattr(os, "getuid"):  # Windows: the home can be written
        return None
    try:
        parent = Path(tempfile.gettempdir()).absolute()
        folder = parent / f"deeprc-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        parent_status, status = parent.stat(), folder.lstat()  # lstat: a link that somebody else made is refused
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return None
    shared = parent_status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not parent_status.st_mode & stat.S_ISVTX
    shared = shared or parent_status.st_uid not in (0, os.getuid())  # the owner of a folder may rename what is in it
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return folder if is_private and not shared else None


def has_home() -> bool:
    """Return whether this user has a home. Without one, "~" would be a folder in the working directory."""
    return os.path.expanduser("~") != "~"


def prepare_caches() -> None:
    """Make matplotlib and Triton use the private folder if they cannot write to the home.

    This sets their variables in the environment of this process, and so of the processes that it starts. Variables that
    are set already stay. Call it before matplotlib is imported.
    """
    for variable, others in _HOMES.items():
        folders = [os.path.expanduser(os.environ.get(other) or default) for other, default in others]
        if not os.environ.get(variable) and not all(map(_can_create_in, folders)):
            folder = make_private_folder()
            if folder is not None:
                os.environ[variable] = str(folder / variable.lower())


def _can_create_in(folder: str) -> bool:
    """Return whether a folder, or else its nearest existing parent, can be written; a relative path means no home."""
    path = Path(folder)
    if not path.is_absolute():
        return False
    existing = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
