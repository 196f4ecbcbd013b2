"""How much memory the system can give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

__all__ = ["count_available_bytes"]

_SYSTEM = Path("/proc/meminfo")
_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def count_available_bytes(system: Path = _SYSTEM, groups: Path = _GROUPS, root: Path = _ROOT) -> int | None:
    """Return how many bytes of memory the system can give, with the pages of files that it can drop.

    It is None if the system does not say so; Linux does. It is at most the limit of the container or of the job of a
    batch system such as Slurm, of which other processes may already use a part.

    Parameters
    ----------
    system
        File with the memory of the system.
    groups
        File with the control groups of this process.
    root
        Folder with the limits of all control groups.
    """
    try:
        available = re.search(r"^MemAvailable: *(\d+) kB$", system.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    if available is None:
        return None
    return min([1024 * int(available[1]), *_iterate_limits(groups, root)])


def _iterate_limits(groups: Path, root: Path) -> Iterator[int]:
    """Yield the memory limits of the control groups of this process, and of those that contain them, in bytes.

    A line is `number:controllers:path`; without controllers, it is of version 2. A container may not see the folders
    of its own groups; their limits are then those of the root.
    """
    try:
        lines = groups.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    paths = {"": "/", "memory": "/"}
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths.update(dict.fromkeys(controllers.split(","), path))
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        own_group = PurePosixPath(paths[controller].lstrip("/"))
        for group in (own_group, *own_group.parents):
            with suppress(OSError, ValueError):  # no such file, or no limit: `max`
                yield int((root / controller / group / name).read_text(encoding="ascii"))
