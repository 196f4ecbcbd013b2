"""Reading repertoire files: deeprc against a plain loop over a pandas table, and against unpacking alone.

(a) reads every file with pandas and encodes one sequence after the other, as published converters do; (b) is
`gzip -dc FILE | wc -l`, the least that any program must do. All read the same immunoSEQ exports.

python benchmarks/preprocess.py [--files 2] [--rows 250000]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import pandas as pd
from common import report
from exports import write_export
from torch import device

from deeprc.datasets.alphabet import AMINO_ACIDS

_INDEX = {letter: index for index, letter in enumerate(AMINO_ACIDS)}


@click.command()
@click.option("--files", default=2, help="Repertoire files.")
@click.option("--rows", default=250_000, help="Of each file.")
@click.option("--jobs", default=2, help="Worker processes of deeprc.")
@click.option("--plain", is_flag=True, help="Files that are not packed.")
def main(files: int, rows: int, jobs: int, plain: bool) -> None:
    """Measure rows and bytes per second, and deeprc's peak memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "exports").mkdir()
        paths = [folder / "exports" / f"HIP{number:05d}.tsv{'' if plain else '.gz'}" for number in range(files)]
        size = sum(write_export(path, rows, seed) for seed, path in enumerate(paths))
        sheet = pd.DataFrame({"sample_name": [path.name.split(".")[0] for path in paths], "status": "a"})
        sheet.to_csv(folder / "sheet.tsv", sep="\t", index=False)
        seconds = {
            "deeprc": _time(lambda: _preprocess(folder, jobs)),
            "deeprc, 1 process": _time(lambda: _preprocess(folder, 1)),
            "pandas and a loop": _time(lambda: [_loop(path) for path in paths]),
            "gzip -dc | wc -l": _time(lambda: [_unpack(path) for path in paths]),
        }
    total = files * rows
    table = [
        {
            "way": way,
            "seconds": value,
            "rows_per_s": total / value,
            "mb_per_s": size / value / 1e6,
            "ratio": seconds["pandas and a loop"] / value,
        }
        for way, value in seconds.items()
    ]
    peak = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # the largest, be it deeprc's
    report("preprocess", table, device("cpu"), text_mb=size / 1e6, peak_process_mb=peak / 1e6)


def _time(function: object) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _preprocess(folder: Path, jobs: int) -> None:
    arguments = ["exports", "--metadata", "sheet.tsv", "--output", "cohort.h5", "--jobs", str(jobs)]
    program = "from deeprc.cli import main; main()"
    command = [sys.executable, "-c", program, "preprocess", *arguments]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _loop(path: Path) -> list[np.ndarray]:
    table = pd.read_csv(path, sep="\t", low_memory=False)
    table = table[table["frame_type"] == "In"]
    return [np.array([_INDEX[letter] for letter in sequence], np.int8) for sequence in table["amino_acid"]]


def _unpack(path: Path) -> None:
    subprocess.run(f"gzip -dcf {path} | wc -l", shell=True, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
