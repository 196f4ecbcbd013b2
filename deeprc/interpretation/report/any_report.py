"""The report of whatever a folder holds: a run or a benchmark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from deeprc.benchmarking.store import holds_benchmark
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.interpretation.report.benchmark_report import write_benchmark_report
from deeprc.interpretation.report.run_report import write_report
from deeprc.runs.run import load_run

__all__ = ["write_any_report"]

Progress = Callable[[Iterable[int]], Iterable[int]]


def write_any_report(
    folder: str | os.PathLike[str],
    cohort: str | os.PathLike[str] | RepertoireDataset | None = None,
    *,
    output: str | os.PathLike[str],
    top: int = 1000,
    device: str = "auto",
    progress: Progress | None = None,
) -> None:
    """Write the report of a run on a cohort, or of a benchmark, as one HTML file; `deeprc.report` is this function.

    Parameters
    ----------
    folder
        A run directory, or the folder of a benchmark.
    cohort
        For a run: a container, or a dataset, usually the one that it was trained on.
    output
        The file to write; it is replaced only if it is a report.
    top
        How many sequences of a run's cohort to keep for each class.
    device
        `auto`, `cpu`, `cuda` ...
    progress
        Takes the dataset's positions and gives them back, as a progress bar does.

    Raises
    ------
    InputError
        If the folder holds neither, a cohort is missing or one too many, or as `write_report` and
        `write_benchmark_report`.
    """
    path = Path(folder)
    if holds_benchmark(path):
        if cohort is not None:
            given = cohort.container.path if isinstance(cohort, RepertoireDataset) else cohort
            raise InputError(f"{folder}: holds a benchmark, whose report takes no CONTAINER; found {str(given)!r}")
        write_benchmark_report(path, output)
        return
    if cohort is None and (path / "config.yaml").is_file():
        raise InputError(f"{folder}: is a run, whose report needs a CONTAINER: deeprc report RUN CONTAINER -o FILE")
    if cohort is None:
        raise InputError(f"{folder}: is neither a run (no config.yaml) nor a benchmark (no benchmark.yaml)")
    run = load_run(path, device=device)
    dataset = cohort if isinstance(cohort, RepertoireDataset) else open_dataset(cohort)
    positions = range(len(dataset))
    write_report(run, dataset, output, top=top, positions=positions if progress is None else progress(positions))
