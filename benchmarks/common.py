"""Functions that benchmarks share: a cohort, timing in alternation, limits of the machine, tables and JSON lines."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch

from deeprc.cli import prepare_process
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences

_WARM_UP = {"cpu": 2, "cuda": 6}  # runs before the timing; on CUDA, these record a graph
LENGTH_MEAN, LENGTH_DEVIATION = 14.5, 1.8  # lengths of real TRB junctions, paper line 8755

if "OMP_WAIT_POLICY" not in os.environ:  # to be set before torch is imported: start again
    prepare_process()
    os.execv(sys.executable, [sys.executable, *sys.argv])
prepare_process()


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all benchmarks have."""
    for option in (
        click.option("--device", default="auto", help="auto, cpu, cuda ..."),
        click.option(
            "--kernels",
            multiple=True,
            default=(32, 128),
            help="Number of kernels, d_v. The option may be given several times.",
        ),
        click.option("--sequences", default=300_000, help="Number of sequences of a repertoire."),
    ):
        command = option(command)
    return command


seconds_option = click.option("--seconds", default=4.0, help="To measure each figure for.")


@contextmanager
def make_cohort(n_repertoires: int, n_sequences: int, seed: int = 0) -> Iterator[RepertoireDataset]:
    """Yield a cohort of random repertoires in a temporary container."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cohort.h5"
        with ContainerWriter(path) as writer:
            for number in range(n_repertoires):
                normal = rng.normal(LENGTH_MEAN, LENGTH_DEVIATION, n_sequences)
                lengths = np.clip(np.round(normal), 5, 30).astype(np.int64)
                residues = rng.integers(0, 20, lengths.sum(), dtype=np.uint8)
                counts = rng.geometric(0.5, n_sequences).astype(np.uint32)
                writer.append(f"repertoire.{number}", Sequences(residues, compute_offsets(lengths), counts))
            status = np.where(np.arange(n_repertoires) % 2, "case", "control")
            writer.finish(pd.DataFrame({"status": status}), source="a benchmark")
        yield open_dataset(path)


def alternate(
    functions: Mapping[str, Callable[[], object]], device: torch.device, *, seconds: float, least: int = 5
) -> dict[str, float]:
    """Run the functions in alternation and return the median seconds of each.

    Every function is warmed up. Then each round runs every function, until `seconds` have passed per function. Fast
    functions run many times in a row, with their data in the caches, as in practice.
    """
    for function in functions.values():
        for _ in range(_WARM_UP[device.type]):
            function()
    wait(device)
    inner = {name: max(1, int(0.3 / max(_time_once(function, device), 1e-9))) for name, function in functions.items()}
    times: dict[str, list[float]] = {name: [] for name in functions}
    end = time.perf_counter() + seconds * len(functions)
    while time.perf_counter() < end or len(next(iter(times.values()))) < least:
        for name, function in functions.items():
            times[name].append(_time_once(function, device, inner[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def _time_once(function: Callable[[], object], device: torch.device, repeats: int = 1) -> float:
    wait(device)
    started = time.perf_counter()
    for _ in range(repeats):
        function()
    wait(device)
    return (time.perf_counter() - started) / repeats


def wait(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_copy_bandwidth(device: torch.device) -> float:
    """Measure the bytes per second, read and written, of a copy of arrays that are too large for any cache."""
    source = torch.ones(1 << 26, device=device)
    target = torch.empty_like(source)
    seconds = alternate({"copy": lambda: target.copy_(source)}, device, seconds=1.0)["copy"]
    return 2 * source.nbytes / seconds


def measure_multiply_adds(device: torch.device) -> float:
    """Measure the multiply-add operations per second of a large float32 matrix product.

    This is the limit of the device's arithmetic: to add a row of a table takes at least one operation per kernel.
    """
    n = 2048
    matrix = torch.rand(n, n, device=device)
    seconds = alternate({"product": lambda: matrix @ matrix}, device, seconds=1.0)["product"]
    return n**3 / seconds


def measure_launch_seconds(device: torch.device) -> float:
    """Measure the seconds that the host needs to start one small piece of work on a CUDA device."""
    one = torch.zeros(1, device=device)
    return alternate({"launch": lambda: one.add_(1)}, device, seconds=0.5)["launch"]


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return the machine and versions on which the results depend."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return {
        "cpu": name,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "deeprc": version("deeprc"),
    }


def report(name: str, rows: Sequence[Mapping[str, Any]], device: torch.device, **limits: float) -> None:
    """Print the rows as a table, the limits and the machine, and then all of this again as one JSON line."""
    frame = pd.DataFrame(rows)
    print(frame.to_string(index=False, float_format=lambda value: f"{value:,.4g}"))
    for limit, value in limits.items():
        print(f"{limit.replace('_', ' ')}: {value:,.4g}")
    print(json.dumps({"benchmark": name, "machine": describe_machine(device), "rows": list(rows), **limits}))
