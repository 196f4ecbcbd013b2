"""Time to read repertoire files, compared with pandas and a loop over sequences, and with unpacking alone.

"two passes" works like the published converter: every file is parsed twice with pandas, once for lengths and counts and
once for residues; rows are processed one after the other, all of them are in memory, and are written to HDF5 with gzip,
in as many processes as deeprc. "one pass" parses each file once, encodes one sequence after the other and writes
nothing, in one process that is already warm. `gzip -dc FILE | wc -l` is the minimum that any program must do. All read
the same files; deeprc is the whole command with its start, genes, chains, merging and container.

python benchmarks/preprocess.py [--layout export] [--files 4] [--rows 250000]
"""

from __future__ import annotations

import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import h5py
import numpy as np
import pandas as pd
from common import report
from exports import write_export, write_two_columns
from torch import device

from deeprc.datasets.alphabet import AMINO_ACIDS

_INDEX = {letter: index for index, letter in enumerate(AMINO_ACIDS)}
_LETTERS = tuple(AMINO_ACIDS)
_LAYOUTS = {"export": write_export, "two-columns": write_two_columns}


@click.command()
@click.option(
    "--layout", type=click.Choice(list(_LAYOUTS)), default="export", help="Layout of the files: 83 columns, or two."
)
@click.option("--files", default=4, help="Number of repertoire files.")
@click.option("--rows", default=250_000, help="Number of rows of each file.")
@click.option("--jobs", default=2, help="Number of processes of deeprc and of the two passes.")
@click.option("--plain", is_flag=True, help="Use files that are not packed.")
def main(layout: str, files: int, rows: int, jobs: int, plain: bool) -> None:
    """Measure rows and bytes per second, and the peak memory of deeprc."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "exports").mkdir()
        paths = [folder / "exports" / f"HIP{number:05d}.tsv{'' if plain else '.gz'}" for number in range(files)]
        size = sum(_LAYOUTS[layout](path, rows, seed) for seed, path in enumerate(paths))
        sheet = pd.DataFrame({"sample_name": [path.name.split(".")[0] for path in paths], "status": "a"})
        sheet.to_csv(folder / "sheet.tsv", sep="\t", index=False)
        seconds = {f"deeprc, {jobs} processes": _time(partial(_preprocess_by_deeprc, folder, jobs))}
        peak = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # peak memory of the largest process
        seconds["deeprc, 1 process"] = _time(partial(_preprocess_by_deeprc, folder, 1))
        seconds[f"two passes, {jobs} processes"] = _time(partial(_preprocess_in_two_passes, paths, folder, jobs))
        seconds["one pass, 1 process"] = _time(lambda: [_read_residues(path) for path in paths])
        seconds["gzip -dc | wc -l"] = _time(lambda: [_count_unpacked_lines(path) for path in paths])
    total = files * rows
    ours = seconds[f"deeprc, {jobs} processes"]
    table = [
        {
            "way": way,
            "seconds": value,
            "rows_per_s": total / value,
            "mb_per_s": size / value / 1e6,
            "times_deeprc": value / ours,
        }
        for way, value in seconds.items()
    ]
    report(f"preprocess, {layout}", table, device("cpu"), text_mb=size / 1e6, peak_process_mb=peak / 1e6)


def _time(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _preprocess_by_deeprc(folder: Path, jobs: int) -> None:
    arguments = ["exports", "--metadata", "sheet.tsv", "--output", "cohort.h5", "--jobs", str(jobs)]
    program = "from deeprc.cli import main; main()"
    command = [sys.executable, "-c", program, "preprocess", *arguments]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _preprocess_in_two_passes(paths: list[Path], folder: Path, jobs: int) -> None:
    """Preprocess as the original DeepRC did: read the lengths first, then the padded sequences."""
    with multiprocessing.Pool(jobs) as pool:
        lengths, counts = zip(*pool.imap(_read_lengths_and_counts, paths), strict=True)
    with multiprocessing.Pool(jobs) as pool:
        blocks = list(pool.imap(_read_residues, paths))
    residues = np.full((sum(map(len, blocks)), max(block.shape[1] for block in blocks)), -1, np.int8)
    start = 0
    for block in blocks:
        residues[start : start + len(block), : block.shape[1]] = block
        start += len(block)
    packed = {"compression": "gzip", "compression_opts": 4, "shuffle": True, "chunks": True}
    with h5py.File(folder / "two_passes.h5", "w") as file:
        for name, values in (("lengths", np.concatenate(lengths)), ("counts", np.concatenate(counts))):
            file.create_dataset(name, data=values, **packed)
        file.create_dataset("sequences", data=residues, **packed)


def _read_valid_rows(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, sep="\t", index_col=False, keep_default_na=False, low_memory=False)
    if "frame_type" in table:
        table = table[table["frame_type"].to_numpy() == "In"]
    sequences = table["amino_acid"].to_numpy()
    return table[[all([letter in _LETTERS for letter in str(sequence)]) for sequence in sequences]]  # noqa: C419


def _read_lengths_and_counts(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table = _read_valid_rows(path)
    return np.array([len(sequence) for sequence in table["amino_acid"]]), table["templates"].to_numpy()


def _read_residues(path: Path) -> np.ndarray:
    sequences = _read_valid_rows(path)["amino_acid"].to_numpy()
    residues = np.full((len(sequences), max(map(len, sequences))), -1, np.int8)
    for row, sequence in enumerate(sequences):
        residues[row, : len(sequence)] = [_INDEX[letter] for letter in sequence]
    return residues


def _count_unpacked_lines(path: Path) -> None:
    subprocess.run(f"gzip -dcf {path} | wc -l", shell=True, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
