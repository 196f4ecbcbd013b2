"""How much memory the system can give."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["count_available_bytes"]

_SYSTEM = Path("/proc/meminfo")
_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of the container in which the process runs


def count_available_bytes(system: Path = _SYSTEM, limit: Path = _LIMIT) -> int | None:
    """Return how many bytes of memory processes may still use, with the pages of files that the system can drop.

    It is None if the system does not say so; Linux does. In a container with a limit, it is at most the limit.
    """
    try:
        available = re.search(r"^MemAvailable: *(\d+) kB$", system.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    if available is None:
        return None
    size = 1024 * int(available[1])
    try:
        return min(size, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no such limit: `max`
        return size
