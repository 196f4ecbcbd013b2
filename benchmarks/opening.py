"""Time to check a container when it is opened, relative to the time to read the file once.

    python benchmarks/opening.py [--repertoires 785] [--sequences 300000]

"read" reads the file in pieces, from the disk if its pages can be dropped from memory (Linux); "check" opens it for the
first time while it is in memory; "again" opens it after it was checked.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import click
import torch
from common import make_cohort, report

from deeprc.datasets import container_check
from deeprc.datasets.cache_folder import get_cache_folder
from deeprc.datasets.container import Container

_PIECE = 1 << 24


@click.command()
@click.option("--repertoires", default=785, show_default=True)
@click.option("--sequences", default=300_000, show_default=True, help="Number of sequences of a repertoire.")
def main(repertoires: int, sequences: int) -> None:
    """Print a row for each way of opening, with its seconds as a share of reading."""
    with make_cohort(repertoires, sequences) as dataset:
        path = dataset.container.path
        del dataset
        seconds = {"read": _time_reading(path), "read again": _time_reading(path, forget=False)}
        shutil.rmtree(get_cache_folder(path), ignore_errors=True)
        container_check._CHECKED.clear()
        seconds["check"] = _time_opening(path)
        container_check._CHECKED.clear()
        seconds["again"] = _time_opening(path)
        size = path.stat().st_size
    rows = [
        {"what": name, "seconds": value, "gb_per_s": size / value / 1e9, "ratio": value / seconds["read"]}
        for name, value in seconds.items()
    ]
    report("opening", rows, torch.device("cpu"), bytes=size, sequences=repertoires * sequences)


def _time_reading(path: Path, *, forget: bool = True) -> float:
    """Return the seconds that it takes to read a file, after its pages were dropped if `forget`."""
    with path.open("rb", buffering=0) as file:
        if forget and hasattr(os, "posix_fadvise"):
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        piece = bytearray(_PIECE)
        started = time.perf_counter()
        while file.readinto(piece):
            pass
        return time.perf_counter() - started


def _time_opening(path: Path) -> float:
    started = time.perf_counter()
    Container(path)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
