"""Division of a command's arguments into runs and a container."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

__all__ = ["expand_runs", "runs_and_container", "split_runs_and_container"]

_HDF5 = b"\x89HDF\r\n\x1a\n"


def runs_and_container(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments RUN... CONTAINER to a command, which gets `runs` and `container`.

    A folder of several runs stands for these runs; see `expand_runs`.

    click alone would take a run for the container if the container is missing.
    """

    @click.argument("paths", nargs=-1, metavar="RUN... CONTAINER")
    @wraps(command)
    def run(paths: tuple[str, ...], **options: Any) -> None:
        """Call the command with the runs and the container of its paths."""
        if not paths:
            raise click.UsageError("expected RUN... CONTAINER: at least one run, and then a container")
        _refuse_empty(paths)
        runs, container = paths[:-1], paths[-1]
        if not runs and _is_hdf5(container):
            raise click.UsageError(f"expected a RUN before the CONTAINER {container}")
        if not runs:
            raise click.UsageError(f"expected a CONTAINER after {container}")
        _refuse_misplaced_container(runs)
        command(runs=expand_runs(runs), container=container, **options)

    return run


def expand_runs(paths: Sequence[str]) -> tuple[str, ...]:
    """Replace each folder of several runs that were trained alike by these runs; see `expand_run_folders`."""
    from deeprc.runs.run_folders import expand_run_folders

    return tuple(map(str, expand_run_folders(paths)))


def split_runs_and_container(paths: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the runs and the container of RUN... [CONTAINER]; the container is the last of several paths if no run."""
    _refuse_empty(paths)
    _refuse_misplaced_container(paths[:-1])
    if len(paths) > 1 and not Path(paths[-1]).is_dir() and Path(paths[-1]).suffix != ".deeprc":
        return list(paths[:-1]), paths[-1]
    return list(paths), None


def _refuse_empty(paths: Sequence[str]) -> None:
    """Raise UsageError if a path is empty: `Path` would take it for the working directory."""
    if "" in paths:
        raise click.UsageError("expected a path, found an empty argument '', such as a shell variable without a value")


def _refuse_misplaced_container(runs: Sequence[str]) -> None:
    """Raise UsageError if a path in the place of a run is a container."""
    misplaced = next((path for path in runs if _is_hdf5(path)), None)
    if misplaced is not None:
        raise click.UsageError(f"expected RUN... CONTAINER, but {misplaced} is a container; give it last")


def _is_hdf5(path: str) -> bool:
    """Return whether a path is a file that begins like a container; a pipe is not opened, because this may wait."""
    if not Path(path).is_file():
        return False
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_HDF5)) == _HDF5
    except OSError:
        return False
