"""How much memory the system can give."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["count_available_bytes"]

_SYSTEM = Path("/proc/meminfo")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container, by version


def count_available_bytes(system: Path = _SYSTEM, limits: Iterable[str | Path] = _LIMITS) -> int | None:
    """Return how many bytes of memory the system can give, with the pages of files that it can drop.

    It is None if the system does not say so; Linux does. In a container it is at most the container's limit, of which
    other processes may already use a part. Limits of a batch system are not known.
    """
    try:
        available = re.search(r"^MemAvailable: *(\d+) kB$", system.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    if available is None:
        return None
    size = 1024 * int(available[1])
    for limit in limits:
        with suppress(OSError, ValueError):  # no such file, or no limit: `max`
            size = min(size, int(Path(limit).read_text(encoding="ascii")))
    return size
