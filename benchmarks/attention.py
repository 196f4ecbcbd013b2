"""Time and peak memory of the attention table of a large repertoire, compared with one data frame.

python benchmarks/attention.py [--device cuda] [--sequences 1000000]

Both ways write the same columns and numbers. The other way, which most scripts take, has all rows in memory before it
writes them. Each way runs in its own process.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import torch
from common import make_cohort, report

from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.device import resolve_device
from deeprc.interpretation.attention import iterate_attention
from deeprc.interpretation.attention_files import write_attention
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training.model import TrainedModel


def _make_model(device: torch.device) -> TrainedModel:
    """Return a model with random weights."""
    torch.manual_seed(0)
    task = Task("status", "status", "binary", ("no", "yes"))
    return TrainedModel((task,), DeepRC().eval().to(device), Config())


def _write_streamed(model: TrainedModel, dataset: RepertoireDataset, path: Path) -> None:
    write_attention(path, iterate_attention(model, dataset))


def _write_at_once(model: TrainedModel, dataset: RepertoireDataset, path: Path) -> None:
    for one in iterate_attention(model, dataset):
        one.sequences.to_csv(path, sep="\t", index=False, float_format="%.9g")


_WAYS: dict[str, Callable[[TrainedModel, RepertoireDataset, Path], None]] = {
    "streamed": _write_streamed,
    "at once": _write_at_once,
}


def _measure(way: str, container: str, device: str) -> tuple[float, float]:
    """Return the seconds and the peak memory of this process, which does nothing else."""
    where = resolve_device(device)
    model, dataset = _make_model(where), open_dataset(container)
    with tempfile.TemporaryDirectory() as folder:
        _WAYS[way](model, dataset[:1], Path(folder) / "small.tsv")  # compilation
        started = time.perf_counter()
        _WAYS[way](model, dataset[1:], Path(folder) / "table.tsv")
        return time.perf_counter() - started, _read_peak_mb()


def _read_peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@click.command()
@click.option("--device", default="auto", help="auto, cpu, cuda ...")
@click.option("--sequences", default=1_000_000, help="Number of sequences of the repertoire.")
def main(device: str, sequences: int) -> None:
    """Time the table of one repertoire; the first repertoire of the cohort, of the same size, does not count."""
    context, rows = multiprocessing.get_context("spawn"), []
    with make_cohort(2, sequences) as dataset:
        for way in _WAYS:
            with ProcessPoolExecutor(1, mp_context=context) as process:
                seconds, peak = process.submit(_measure, way, str(dataset.container.path), device).result()
            rows.append({"way": way, "seconds": seconds, "peak_mb": peak, "sequences_per_s": sequences / seconds})
    report("attention", rows, resolve_device(device))


if __name__ == "__main__":
    main()
