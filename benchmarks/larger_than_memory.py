"""Time of updates from a container that does not fit into memory, with and without reading in advance.

    python benchmarks/larger_than_memory.py [--sequences 300000] [--kernels 32]

They are compared with updates from memory. One process makes both: updates from a quarter of the repertoires, which
stay in memory, and updates from the others, whose pages are dropped after each update, so that they are always read
from the disk. A real page cache of a quarter of the container would be slightly better, because it still has a few of
the repertoires. The time to drop pages does not count. Linux only.
"""

from __future__ import annotations

import mmap
import os
import resource
import statistics
import time
from itertools import pairwise

import click
import numpy as np
import torch
from common import make_cohort, options, report, seconds_option
from numpy.typing import NDArray
from training_step import make_trainer

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.trainer import Trainer

CPU = torch.device("cpu")
_IN_A_ROW, _NOT_TIMED = 12, 3
"""Number of updates of one way before the next way, and number of first updates that are not timed."""


@click.command()
@options
@seconds_option
@click.option("--repertoires", default=160)
def main(device: str, kernels: tuple[int, ...], sequences: int, seconds: float, repertoires: int) -> None:
    """Print the milliseconds of updates; `ratio` is the speed relative to memory, `cpu_ratio` that of the processor."""
    del device  # not used: on CUDA the sequences are copied to the device, or read as on the CPU
    rows = []
    with make_cohort(repertoires, sequences) as dataset:
        for n_kernels in kernels:
            rows += _measure(dataset, n_kernels, seconds)
    report("larger_than_memory", rows, CPU)


def _measure(dataset: RepertoireDataset, n_kernels: int, seconds: float) -> list[dict[str, object]]:
    """Return a row for each way of updating, from repertoires in memory and on the disk."""
    config = load_config("deeprc", {"n_kernels": n_kernels})
    quarter = len(dataset) // 4
    memory, disk = (make_trainer(part, config, CPU) for part in (dataset[:quarter], dataset[quarter:]))
    ways = [
        _Way("memory", memory, reads_ahead=False),
        _Way("memory, reading ahead", memory, reads_ahead=True),
        _Way("disk", disk, reads_ahead=False, drops=True),
        _Way("disk, reading ahead", disk, reads_ahead=True, drops=True),
    ]
    for one in (memory, disk):  # the standard deviation of a repertoire is computed when it is first read
        for position in range(len(one.train.dataset)):
            one._train_collator.get_inverse_std(position)
    end = time.perf_counter() + seconds * len(ways)
    while time.perf_counter() < end or len(ways[0].seconds) < 5 * (_IN_A_ROW - _NOT_TIMED):
        for way in ways:
            way.run()
    base = ways[0]
    return [
        {
            "kernels": n_kernels,
            "way": way.name,
            "ms": 1e3 * statistics.median(way.seconds),
            "cpu_ms": 1e3 * statistics.mean(way.cpu_seconds),
            "ratio": statistics.median(base.seconds) / statistics.median(way.seconds),
            "cpu_ratio": statistics.mean(base.cpu_seconds) / statistics.mean(way.cpu_seconds),
            "mb_read": statistics.mean(way.bytes_read) / 1e6,
        }
        for way in ways
    ]


class _Way:
    """A way to make updates of a trainer, with the pages of all repertoires dropped or not, and its measured costs."""

    def __init__(self, name: str, one: Trainer, *, reads_ahead: bool, drops: bool = False) -> None:
        self.name, self._trainer, self._reads_ahead, self._drops = name, one, reads_ahead, drops
        self._prefetch = one._train_collator.prefetch if reads_ahead else _read_nothing
        self._pages = _Pages(one.train.dataset)
        self._update, self._index = one.make_update_function(), 0
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self.bytes_read: list[float] = []

    def run(self) -> None:
        """Make some updates in a row."""
        self._trainer._train_collator.prefetch = self._prefetch
        for index in range(_IN_A_ROW):
            seconds, cpu, read = time.perf_counter(), time.process_time(), _count_blocks_read()
            self._update(self._index)
            self._index += 1
            if index >= _NOT_TIMED:
                self.seconds.append(time.perf_counter() - seconds)
                self.cpu_seconds.append(time.process_time() - cpu)
                self.bytes_read.append(512 * (_count_blocks_read() - read))
            if self._drops:
                soon = [
                    self._trainer.draws.choose_repertoires(self._index + ahead)
                    for ahead in range(2 * self._reads_ahead)
                ]
                self._pages.drop(np.concatenate([np.zeros(0, np.int64), *soon]))


def _read_nothing(positions: object) -> None:
    """Read nothing in advance."""


def _count_blocks_read() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock


class _Pages:
    """The pages in memory of a dataset whose repertoires are consecutive in their container."""

    def __init__(self, dataset: RepertoireDataset) -> None:
        container = dataset.container
        self._dataset, self._sequences = dataset, container.sequences
        bounds = container.repertoire_offsets[dataset.repertoire_indices.min() : dataset.repertoire_indices.max() + 2]
        self._bounds = bounds, self._sequences.offsets[bounds]

    def drop(self, kept: NDArray[np.int64]) -> None:
        """Drop all pages, except those of the repertoires at the kept positions."""
        at = np.searchsorted(np.sort(self._dataset.repertoire_indices), self._dataset.repertoire_indices[kept])
        edges = np.unique([0, *at, *(at + 1), len(self._dataset)])
        with self._dataset.container.path.open("rb") as file:
            for first, last in pairwise(edges.tolist()):
                if first not in at:
                    rows, residues = (slice(*bounds[[first, last]].tolist()) for bounds in self._bounds)
                    _drop_values(file.fileno(), self._sequences.residues, residues)
                    _drop_values(file.fileno(), self._sequences.offsets, rows)
                    _drop_values(file.fileno(), self._sequences.counts, rows)


def _drop_values(file: int, values: NDArray[np.generic], span: slice) -> None:
    """Unmap the whole pages within a span of a memory map, and drop them from the page cache."""
    assert isinstance(values, np.memmap)
    first = -(-(values.offset + span.start * values.itemsize) // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (values.offset + span.stop * values.itemsize) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        begin = values.offset - values.offset % mmap.ALLOCATIONGRANULARITY
        values._mmap.madvise(mmap.MADV_DONTNEED, first - begin, last - first)
        os.posix_fadvise(file, first, last - first, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
