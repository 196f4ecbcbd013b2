"""Where compiled code and the like are kept between processes: nothing that a user must keep, and never needed.

Packages keep such files beside their sources or in the user's home. Where neither can be written to, as in many
containers, they are kept in a folder of the user's own under the temporary directory.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

__all__ = ["home_is_known", "prepare_caches", "private_folder"]

_HOMES = {
    "MPLCONFIGDIR": (("XDG_CONFIG_HOME", "~/.config"), ("XDG_CACHE_HOME", "~/.cache")),
    "TRITON_CACHE_DIR": (("TRITON_HOME", "~"),),
}
"""What names the places of matplotlib and Triton, and where they are otherwise: in that of a variable, or a default."""


def private_folder() -> Path | None:
    """Return this user's folder under the temporary directory, made if need be; None where there is no safe one.

    Compiled code is loaded from it, so nobody else may be able to put anything there: the folder must belong to this
    user and be closed to all others, and others must not be able to rename it.
    """
    if not hasattr(os, "getuid"):  # Windows, where the home can be written to
        return None
    try:
        parent = Path(tempfile.gettempdir()).absolute()
        folder = parent / f"deeprc-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        above, found = parent.stat(), folder.lstat()  # lstat: somebody else's link to a folder of ours is refused
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return None
    shared = above.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not above.st_mode & stat.S_ISVTX
    shared = shared or above.st_uid not in (0, os.getuid())  # the owner of a folder may rename what is in it
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if own and not shared else None


def home_is_known() -> bool:
    """Return whether this user has a home; without one, "~" would be a folder where the process runs."""
    return os.path.expanduser("~") != "~"


def prepare_caches() -> None:
    """Let matplotlib and Triton keep their files in the private folder where they could not keep them in the home.

    The variables are set in this process's environment, unless they are set already; the processes it starts have them,
    too. It must come before matplotlib is imported.
    """
    for variable, others in _HOMES.items():
        places = [os.path.expanduser(os.environ.get(other) or default) for other, default in others]
        if not os.environ.get(variable) and not all(map(_can_be_made, places)):
            folder = private_folder()
            if folder is not None:
                os.environ[variable] = str(folder / variable.lower())


def _can_be_made(folder: str) -> bool:
    """Return whether files can be made in a folder, or the folder itself; a relative one stands for no home."""
    place = Path(folder)
    if not place.is_absolute():
        return False
    existing = next(each for each in (place, *place.parents) if os.path.lexists(each))
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
