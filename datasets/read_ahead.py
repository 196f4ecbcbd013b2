"""Read ahead: ask the system for the sequences that are needed soon, while earlier ones are processed.

A container is memory-mapped. If it is larger than the memory that is free, the system has dropped most of its pages,
and a reader waits for the disk. Only pages are fetched here; no value is read or changed.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

from numpy.typing import NDArray

from deeprc.datasets.linked_container import SequenceContainer
from deeprc.datasets.sequences import Sequences

__all__ = ["ReadAhead"]

_WILL_NEED: int | None = getattr(mmap, "MADV_WILLNEED", None)
"""Advice of `madvise`; None if the system has no such call, such as Windows."""

_BYTES_AT_ONCE = 1 << 17
"""Bytes of one call: Linux ignores what a call asks for beyond the read-ahead of the disk, 128 KB by default."""

_MIN_BYTES = 1 << 28
"""Size of the residues and offsets below which nothing is read ahead: after one pass they are in memory."""

_IDLE_CALLS, _PAUSE = 4, 16
"""Number of calls in a row that find everything in memory, and the interval at which a call asks after them."""


class ReadAhead:
    """A thread that asks the system for the pages of a container's repertoires.

    The system reads them in the background. So neither the thread nor the caller waits for the disk, unless the disk is
    slower than the requests. If nothing has to be read from the disk, nearly all calls do nothing.

    Parameters
    ----------
    container
        Container whose repertoires are read.
    fields
        Columns of its sequences that are read, beside the residues and the offsets: `counts`, `v_call`, `j_call`.
    """

    def __init__(self, container: SequenceContainer, fields: Collection[str]) -> None:
        stores = [part.store.sequences for part in container.parts]
        self._container = container
        self._columns = [_select_columns(sequences, fields) for sequences in stores]  # of each part
        size = sum(sequences.residues.nbytes + sequences.offsets.nbytes for sequences in stores)
        helps = _WILL_NEED is not None and size >= _MIN_BYTES
        self._thread = ThreadPoolExecutor(1) if helps else None
        self._asked: Future[None] | None = None
        self._residues: dict[int, slice] = {}  # residues of each repertoire that was asked for before
        self._n_reads, self._idle_calls = -1, 0

    def __call__(self, repertoires: Iterable[int]) -> None:
        """Ask for repertoires, by their indices in the container; wait until those of the last call are asked for."""
        if self._thread is None:
            return
        self.wait()
        n_reads = _count_reads()
        self._idle_calls = self._idle_calls + 1 if n_reads == self._n_reads else 0
        self._n_reads = n_reads
        if self._idle_calls <= _IDLE_CALLS or self._idle_calls % _PAUSE == 0:
            self._asked = self._thread.submit(self._request_repertoires, list(repertoires))

    def wait(self) -> None:
        """Wait until the thread has asked for everything, which the system may still be reading then."""
        if self._asked is not None:
            self._asked.result()

    def _request_repertoires(self, repertoires: list[int]) -> None:
        """Ask the system to read the columns and residues of some repertoires."""
        part_indices = [self._container.find_part(index) for index in repertoires]
        parts = [self._container.parts[part_index] for part_index in part_indices]
        spans = [
            slice(*(self._container.repertoire_offsets[index : index + 2] - part.first_sequence).tolist())
            for index, part in zip(repertoires, parts, strict=True)
        ]
        for part_index, part, span in zip(part_indices, parts, spans, strict=True):
            _request_values(part.store.sequences.offsets[span.start : span.stop + 1])
            for column in self._columns[part_index]:
                _request_values(column[span])
        for index, part, span in zip(repertoires, parts, spans, strict=True):
            sequences = part.store.sequences
            if index not in self._residues:  # the first time this waits for the offsets
                self._residues[index] = slice(int(sequences.offsets[span.start]), int(sequences.offsets[span.stop]))
            _request_values(sequences.residues[self._residues[index]])


def _select_columns(sequences: Sequences, fields: Collection[str]) -> list[NDArray[Any]]:
    """Return the columns that `fields` names, where the sequences have them."""
    columns = {"counts": sequences.counts} | {name: calls.codes for name, calls in sequences.genes.items()}
    return [columns[name] for name in fields if name in columns]


def _request_values(values: NDArray[Any]) -> None:
    """Ask the system to read a part of a memory map; an error only means that it is not read now."""
    assert _WILL_NEED is not None
    start = values.ctypes.data
    stop = start + values.nbytes
    for at in range(start - start % mmap.PAGESIZE, stop, _BYTES_AT_ONCE):
        _madvise(at, min(_BYTES_AT_ONCE, stop - at), _WILL_NEED)


def _madvise(address: int, size: int, advice: int) -> None:
    """Call the system's `madvise`; unlike with `mmap.madvise`, other threads of Python run meanwhile."""
    _load_libc().madvise(address, size, advice)


@cache
def _load_libc() -> ctypes.CDLL:
    system = ctypes.CDLL(None)
    system.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return system


def _count_reads() -> int:
    """Return a number that grows when this process reads from a disk, or waits for a page of a file."""
    import resource  # which Windows lacks

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_inblock + usage.ru_majflt
