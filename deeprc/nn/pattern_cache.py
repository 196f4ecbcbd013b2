"""Patterns of residues that a frozen encoder computes once for each sequence, and then reads from a temporary file.

Letters: N sequences, R residues of all sequences end to end, W width of a pattern.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from deeprc.files import name_write_errors
from deeprc.nn.sequences import SequenceBatch

__all__ = ["PatternCache", "get_shared_cache"]

_MAX_BYTES = 16 << 30


class PatternCache:
    """Patterns of the sequences that were asked for so far, in 16 bits, in a file that ends with the process.

    Several threads may use a cache: they find patterns one after the other.

    Parameters
    ----------
    width
        Number of values of a pattern, W.
    max_bytes
        Size of the file from which it is begun anew.
    """

    def __init__(self, width: int, *, max_bytes: int = _MAX_BYTES) -> None:
        self.width, self.max_bytes = width, max_bytes
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it is open as long as the cache
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        self._first_rows: dict[bytes, int] = {}  # row of each sequence's first pattern in the file
        self._n_patterns = 0
        self._patterns = np.zeros((0, width), np.float16)

    def __len__(self) -> int:
        return len(self._first_rows)

    def find(self, sequences: SequenceBatch, compute: Callable[[SequenceBatch], Tensor]) -> Tensor:
        """Return the patterns of all residues, (R, W) float32; `compute` returns those of new sequences.

        New patterns are rounded to 16 bits, too, like those that were stored before. Which sequences are computed
        together changes sums by rounding, and so the last of the 16 bits of about one number in 3,000.
        """
        with self._lock:
            return self._find(sequences, compute)

    def _find(self, sequences: SequenceBatch, compute: Callable[[SequenceBatch], Tensor]) -> Tensor:
        """Return the patterns of all residues, (R, W); see `find`, which holds the lock."""
        if 2 * self.width * self._n_patterns > self.max_bytes:
            self._clear()
        sequences = sequences.compact()
        text, lengths = sequences.residues.numpy().tobytes(), sequences.lengths.numpy()
        bounds = [0, *np.cumsum(lengths).tolist()]
        keys = [text[first:stop] for first, stop in pairwise(bounds)]
        new = {key: sequence_row for sequence_row, key in enumerate(keys) if key not in self._first_rows}
        if new:
            self._add(new, compute(sequences.take(torch.tensor(list(new.values()))).compact()))
        first_rows = np.fromiter((self._first_rows[key] for key in keys), np.int64, len(keys))
        pattern_rows = np.arange(bounds[-1]) + np.repeat(first_rows - bounds[:-1], lengths)
        return torch.from_numpy(self._patterns[pattern_rows]).float()

    def _add(self, keys: dict[bytes, int], patterns: Tensor) -> None:
        """Append patterns to the file, and note where the patterns of each new sequence begin."""
        with name_write_errors(Path(tempfile.gettempdir())):
            self._file.seek(2 * self.width * self._n_patterns)
            self._file.write(patterns.half().numpy().tobytes())
            self._file.flush()
        for key in keys:
            self._first_rows[key] = self._n_patterns
            self._n_patterns += len(key)
        self._patterns = np.memmap(self._file, np.float16, "r", shape=(self._n_patterns, self.width))

    def _clear(self) -> None:
        self._first_rows, self._n_patterns, self._patterns = {}, 0, self._patterns[:0].copy()
        self._file.truncate(0)


def get_shared_cache(digest: str, width: int) -> PatternCache:
    """Return the cache of an encoder whose weights have this digest: all runs of a process share it.

    A forked process has caches of its own, because two processes that write to one file would mix their patterns.
    """
    return _make_cache(digest, width, os.getpid())


@lru_cache(maxsize=1)
def _make_cache(digest: str, width: int, process: int) -> PatternCache:  # noqa: ARG001  # digest and process are keys
    return PatternCache(width)
