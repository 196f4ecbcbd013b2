"""Time and memory to find the repertoires that carry each clone, compared with pandas and a dictionary.

python benchmarks/clones.py [--container FILE] [--repertoires 100] [--sequences 300000] [--genes]

Without a container a cohort is simulated: V(D)J-like sequences with genes, or with `--pool FILE` real ones. `memory_mb`
is the memory that the process needs in addition; pages of the container, which the system may drop at any time, do not
count (Linux). pandas groups the sequences of a few repertoires as text, and a dictionary collects the repertoires of
each sequence. `times_ours` is their time divided by ours, on the same sequences.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from common import report
from torch import device

from deeprc.datasets.clones.grouping import SharedClones, group_clones
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import SequenceArrays
from deeprc.datasets.simulation import Cohort, GermlineBackground, SequencePool, Sizes, write_container

_STATUS = Path("/proc/self/status")


@click.command()
@click.option("--container", type=click.Path(exists=True, path_type=Path), help="A cohort, instead of a simulated one.")
@click.option("--repertoires", default=100)
@click.option("--sequences", default=300_000, help="Number of sequences of each repertoire.")
@click.option("--pool", type=click.Path(exists=True, path_type=Path), help="Real sequences to draw from.")
@click.option("--genes", is_flag=True, help="A clone is a sequence with its genes.")
@click.option("--share", default=1_000_000, help="Number of sequences for pandas and the dictionary.")
def main(container: Path | None, repertoires: int, sequences: int, pool: Path | None, genes: bool, share: int) -> None:
    """Measure time and memory."""
    with tempfile.TemporaryDirectory() as folder:
        if container is None:
            container = Path(folder) / "cohort.h5"
            background = GermlineBackground() if pool is None else SequencePool(pool)
            write_container(Cohort(repertoires, Sizes(sequences), background), container)
        report("clones", _compare_ways(open_dataset(container), genes, share), device("cpu"))


def _compare_ways(dataset: RepertoireDataset, genes: bool, share: int) -> list[dict[str, Any]]:
    """Return a row for each way of finding shared clones: deeprc, pandas, and a dictionary of Python."""
    fields = dataset.gene_fields if genes else []
    rows, bounds = dataset.container.sequences.arrays(fields), np.asarray(dataset.container.repertoire_offsets)
    _group_by_deeprc(rows, bounds, 2)  # compilation
    few = max(2, int(np.searchsorted(bounds, share, side="right")) - 1)
    table = [_measure_row("ours, all", int(bounds[-1]), lambda: _group_by_deeprc(rows, bounds, len(bounds) - 1))]
    table.append(_measure_row("ours", int(bounds[few]), lambda: _group_by_deeprc(rows, bounds, few)))
    frame = pd.concat([dataset[i].to_frame() for i in range(few)], ignore_index=True)[
        ["repertoire_id", "junction_aa", *fields]
    ]
    table.append(_measure_row("pandas", len(frame), lambda: _group_by_pandas(frame)))
    table.append(_measure_row("dictionary", len(frame), lambda: _group_by_dictionary(frame)))
    for row in table[1:]:
        row["times_ours"] = row["seconds"] / table[1]["seconds"]
    assert len({row["shared_clones"] for row in table[1:]}) == 1
    return table


def _group_by_deeprc(rows: SequenceArrays, bounds: np.ndarray[Any, Any], few: int) -> tuple[int, int]:
    n = int(bounds[few])
    part = SequenceArrays(rows.residues, rows.offsets[: n + 1], rows.v[:n], rows.j[:n])
    clones: SharedClones = group_clones(part, bounds[: few + 1])
    return len(clones), len(clones.carriers)


def _group_by_pandas(frame: pd.DataFrame) -> tuple[int, int]:
    columns = [name for name in frame if name != "repertoire_id"]
    carriers = frame.drop_duplicates().groupby(columns, sort=False, observed=True)["repertoire_id"].size()
    return int((carriers > 1).sum()), int(carriers[carriers > 1].sum())


def _group_by_dictionary(frame: pd.DataFrame) -> tuple[int, int]:
    carriers: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for repertoire, *clone in frame.itertuples(index=False, name=None):
        carriers[tuple(clone)].add(repertoire)
    sizes = [len(of_clone) for of_clone in carriers.values() if len(of_clone) > 1]
    return len(sizes), sum(sizes)


def _measure_row(what: str, n: int, work: Callable[[], tuple[int, int]]) -> dict[str, Any]:
    """Return the time and the additional peak memory of one call."""
    done, peak, before = threading.Event(), [0.0], _read_memory_mb()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], _read_memory_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    shared, pairs = work()
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    rate = n / seconds / 1e6
    return {
        "what": what,
        "sequences": n,
        "seconds": seconds,
        "million_per_s": rate,
        "memory_mb": max(0.0, peak[0] - before),
        "shared_clones": shared,
        "carriers": pairs,
    }


def _read_memory_mb() -> float:
    """Return the memory of this process in MB, without pages of files."""
    if not _STATUS.exists():
        return float("nan")
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    main()
