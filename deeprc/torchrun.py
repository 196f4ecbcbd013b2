"""Reading of the environment variables that `torchrun` sets for the processes that it starts, without torch."""

from __future__ import annotations

import os
from dataclasses import dataclass

from deeprc.errors import InputError
from deeprc.threads import count_cores

__all__ = ["Launch", "read_launch", "share_cores"]


@dataclass(frozen=True)
class Launch:
    """Indices of a process among those that `torchrun` started to train one model, and their numbers.

    Attributes
    ----------
    rank, size
        Index of this process, from 0, among the processes of all machines, and number of these processes.
    local_rank, local_size
        Index of this process among those of this machine, and number of these processes.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int


def read_launch() -> Launch | None:
    """Return the indices that `torchrun` gave to this process; None if it has not started this process.

    Raises
    ------
    InputError
        If a variable is not a number.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if not {*names, "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return None
    numbers = []
    for name in names:
        if not os.environ[name].isdecimal():
            raise InputError(f"environment variable {name}: expected a number, found {os.environ[name]!r}")
        numbers.append(int(os.environ[name]))
    return Launch(*numbers)


def share_cores() -> None:
    """Divide the cores of this machine among its processes, for libraries that are imported later.

    torchrun sets `OMP_NUM_THREADS` to 1 if it is not set. So 1 counts as not set, and any other number is kept.
    """
    try:
        launch = read_launch()
    except InputError:  # the command reports it later
        return
    if launch is None or launch.local_size == 1 or os.environ.get("OMP_NUM_THREADS", "1") != "1":
        return
    os.environ["OMP_NUM_THREADS"] = str(max(1, count_cores() // launch.local_size))
