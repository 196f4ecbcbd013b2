"""Additional peak memory of an update and of scoring a repertoire, compared with the dense reference.

    python benchmarks/memory.py [--device cuda] [--rows 10000000]

Below the table is the memory of `deeprc preprocess` for one file of two columns and so many rows, most of them
different, also per row and relative to the size of the file.

Each number is measured in its own process: on CUDA by the allocator, on the CPU (Linux) by the kernel's peak of
resident memory, which is reset after a warm-up on a small cohort.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import torch
from common import make_cohort, options, report, wait
from exports import write_two_columns
from training_step import make_trainer

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.preprocessing import preprocess
from deeprc.device import resolve_device
from deeprc.nn.batch import Collator
from deeprc.nn.inference import Inference
from deeprc.nn.motif_convolution import Implementation
from deeprc.nn.network import DeepRC

CASES = ("update, top fraction 0.1", "update, top fraction 1.0", "1 x repertoire", "4 x repertoire")
PREPROCESS = "preprocess"
IMPLEMENTATIONS: dict[str, Implementation] = {"ours": "compiled", "dense": "reference"}


@click.command()
@options
@click.option("--rows", default=1_000_000, help="Number of rows of the file that is preprocessed.")
@click.option("--worker", nargs=3, default=None, hidden=True, help="Case, implementation and kernels of one figure.")
def main(device: str, kernels: tuple[int, ...], sequences: int, rows: int, worker: tuple[str, str, str] | None) -> None:
    """Print the table, or, in a worker, one number."""
    where = resolve_device(device)
    if worker is not None:
        case, name, n_kernels = worker
        if case == PREPROCESS:
            print(json.dumps(_measure_preprocessing(rows)))
            return
        print(json.dumps(_measure(case, IMPLEMENTATIONS[name], int(n_kernels), sequences, where)))
        return
    table = []
    for n_kernels in kernels:
        for case in CASES:
            megabytes = {
                name: _measure_in_process(case, name, n_kernels, sequences, device) / 1e6 for name in IMPLEMENTATIONS
            }
            table.append(
                {
                    "kernels": n_kernels,
                    "case": case,
                    "ours_mb": megabytes["ours"],
                    "dense_mb": megabytes["dense"],
                    "ratio": megabytes["dense"] / megabytes["ours"],
                }
            )
    peak, size = read_figures(__file__, "--rows", str(rows), "--worker", PREPROCESS, "ours", "0")
    preprocessing = {"preprocess_mb": peak / 1e6, "preprocess_bytes_per_row": peak / rows}
    report("memory", table, where, **preprocessing, preprocess_times_file=peak / size)


def _measure_in_process(case: str, name: str, n_kernels: int, sequences: int, device: str) -> float:
    options = ["--device", device, "--sequences", str(sequences), "--worker", case, name, str(n_kernels)]
    return read_figure(__file__, *options)


def read_figure(script: str, *options: str) -> float:
    """Run a script in its own process, and return the number that it prints last."""
    (figure,) = read_figures(script, *options)
    return figure


def read_figures(script: str, *options: str) -> list[float]:
    """Run a script in its own process, and return the number, or the list of numbers, that it prints last."""
    output = subprocess.run([sys.executable, script, *options], check=True, capture_output=True, text=True).stdout
    found = json.loads(output.splitlines()[-1])
    return [float(size) for size in (found if isinstance(found, list) else [found])]


def _measure_preprocessing(rows: int) -> list[int]:
    """Return the additional peak memory of preprocessing a file, and the size of the file, both in bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for cohort_name, n in (("small", 1000), ("large", rows)):
            size = write_two_columns(folder / f"{cohort_name}.tsv", n, 0)
            (folder / f"{cohort_name}.sheet.tsv").write_text(f"repertoire_id\tstatus\n{cohort_name}\tcase\n")

        def run(cohort_name: str) -> None:
            sheet = folder / f"{cohort_name}.sheet.tsv"
            preprocess([folder / f"{cohort_name}.tsv"], sheet, folder / f"{cohort_name}.h5")

        run("small")
        gc.collect()
        cpu = torch.device("cpu")
        before = _reset_peak(cpu)
        run("large")
        return [_read_peak(cpu) - before, size]


def _measure(case: str, implementation: Implementation, n_kernels: int, sequences: int, device: torch.device) -> int:
    """Return the additional peak memory of one case, in bytes."""
    update = case.startswith("update")
    times = 1 if update else int(case.split()[0])
    with make_cohort(4, 300) as small, make_cohort(4 if update else 1, times * sequences) as large:
        make = _make_update if update else _make_scoring
        option = float(case.split()[-1]) if update else 1.0
        make(small, implementation, n_kernels, option, device)()
        return measure_peak(make(large, implementation, n_kernels, option, device), large, device)


def measure_peak(run: Callable[[], object], dataset: RepertoireDataset, device: torch.device) -> int:
    """Return the additional peak memory of three runs over a dataset, in bytes."""
    _read_all(dataset)
    gc.collect()
    before = _reset_peak(device)
    for _ in range(3):
        run()
    wait(device)
    return _read_peak(device) - before


def _make_update(
    dataset: RepertoireDataset, implementation: Implementation, n_kernels: int, fraction: float, device: torch.device
) -> Callable[[], object]:
    """Return a function that makes one update of a trainer."""
    one = make_trainer(dataset, load_config("deeprc", {"n_kernels": n_kernels, "top_fraction": fraction}), device)
    one.network.embedding.implementation = implementation
    update = one.make_update_function(capture=False)
    return lambda: update(0)


def _make_scoring(
    dataset: RepertoireDataset, implementation: Implementation, n_kernels: int, fraction: float, device: torch.device
) -> Callable[[], object]:
    """Return a function that computes the output of the first repertoire."""
    network = DeepRC(n_kernels=n_kernels, implementation=implementation).eval().to(device)
    collator = Collator(dataset, "none")
    inference = Inference(network, collator, fraction)
    return lambda: inference.compute_outputs([0])


def _read_all(dataset: RepertoireDataset) -> None:
    """Read the memory-mapped sequences, so that their pages do not count as additional memory."""
    sequences = dataset.container.sequences
    for column in (sequences.residues, sequences.offsets, sequences.counts):
        column.sum()


def _reset_peak(device: torch.device) -> int:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    ctypes.CDLL(None).malloc_trim(0)  # otherwise the work could use freed memory, which is not counted
    Path("/proc/self/clear_refs").write_text("5")
    return _read_status("VmRSS")


def _read_peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _read_status("VmHWM")


def _read_status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
