"""Division of a command's arguments into runs and an optional container."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["split_runs_and_container"]


def split_runs_and_container(paths: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the runs and the container of RUN... [CONTAINER]; the container is the last of several paths if no run."""
    if len(paths) > 1 and not Path(paths[-1]).is_dir() and Path(paths[-1]).suffix != ".deeprc":
        return list(paths[:-1]), paths[-1]
    return list(paths), None
