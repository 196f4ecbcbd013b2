"""Time and additional memory of an update with whole repertoires, by the choice of sequences to learn from.

    python benchmarks/whole_repertoires.py [--device cuda]

Seconds are measured in alternation, memory (Linux, or CUDA's allocator) in a separate process for each choice.
"""

from __future__ import annotations

import json
from typing import Any

import click
import torch
from common import alternate, make_cohort, options, report, seconds_option
from memory import measure_peak, read_figure
from training_step import make_trainer, make_update

from deeprc.config import load_config
from deeprc.device import resolve_device

CHOICES: dict[str, dict[str, Any]] = {
    "n_sequences=10000": {},
    "n_sequences=all": {"n_sequences": None},
    "all, top_fraction=0.1": {"n_sequences": None, "top_fraction": 0.1},
    "all, top_fraction=0.1, constant": {"n_sequences": None, "top_fraction": 0.1, "unattended": "constant"},
    "all, top_number=1000, constant": {"n_sequences": None, "top_number": 1000, "unattended": "constant"},
}


@click.command()
@options
@seconds_option
@click.option("--worker", nargs=2, default=None, hidden=True, help="Choice and kernels of one figure.")
def main(device: str, kernels: tuple[int, ...], sequences: int, seconds: float, worker: tuple[str, str] | None) -> None:
    """Print a row for each choice, with its time relative to the first."""
    where = resolve_device(device)
    if worker is not None:
        print(json.dumps(_measure_memory(worker[0], int(worker[1]), sequences, where)))
        return
    rows = []
    for n_kernels in kernels:
        with make_cohort(8, sequences) as dataset:
            made = {name: make_trainer(dataset, _load_config(name, n_kernels), where) for name in CHOICES}
            median = alternate({name: make_update(one) for name, one in made.items()}, where, seconds=seconds, least=3)
        least = median["n_sequences=10000"]
        for name in CHOICES:
            arguments = ["--device", device, "--sequences", str(sequences), "--worker", name, str(n_kernels)]
            megabytes = read_figure(__file__, *arguments) / 1e6
            row = {"kernels": n_kernels, "choice": name, "seconds": median[name], "ratio": median[name] / least}
            rows.append({**row, "mb": megabytes})
    report("whole_repertoires", rows, where)


def _load_config(name: str, n_kernels: int) -> Any:
    return load_config("deeprc", {"n_kernels": n_kernels, **CHOICES[name]})


def _measure_memory(name: str, n_kernels: int, sequences: int, device: torch.device) -> int:
    with make_cohort(4, 300) as small, make_cohort(8, sequences) as large:
        make_update(make_trainer(small, _load_config(name, n_kernels), device))()
        return measure_peak(make_update(make_trainer(large, _load_config(name, n_kernels), device)), large, device)


if __name__ == "__main__":
    main()
