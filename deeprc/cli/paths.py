"""Which arguments of a command are runs, and which is a container that need not be given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["runs_and_container"]


def runs_and_container(paths: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the runs of RUN... [CONTAINER], and the container: the last of several paths, unless that is a run."""
    if len(paths) > 1 and not Path(paths[-1]).is_dir() and Path(paths[-1]).suffix != ".deeprc":
        return list(paths[:-1]), paths[-1]
    return list(paths), None
