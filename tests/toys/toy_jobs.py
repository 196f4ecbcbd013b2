"""Functions that run jobs, in processes that can die."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from deeprc.errors import InputError


def draw(seed: int) -> tuple[int, float]:
    return seed, float(np.random.default_rng(seed).normal())


def sleep_longer_first(index: int) -> int:
    time.sleep(0.6 if index == 0 else 0.0)
    return index


def fail(index: int) -> int:
    if index == 1:
        raise InputError("a.tsv: is empty")
    return index


def die_once(folder: Path, index: int) -> tuple[int, int]:
    """Write one's process into a file; the first process of the first job kills itself."""
    begun = folder / f"{index}.{os.getpid()}"
    is_first = not list(folder.glob(f"{index}.*"))
    begun.touch()
    if index == 0 and is_first:
        os.kill(os.getpid(), signal.SIGKILL)
    return index, os.getpid()


def holds_interrupts(_: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def wait_for_ever(folder: Path, index: int) -> int:
    (folder / f"{index}.begun").touch()
    while not (folder / "end").exists():
        time.sleep(0.02)
    return index


def kill_always(index: int) -> int:
    if index == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return index
