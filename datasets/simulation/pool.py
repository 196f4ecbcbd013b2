"""A background of real sequences, of a container or a list, drawn without replacement within a repertoire."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.random_numbers import draw_word
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError

__all__ = ["SequencePool", "shuffle_rows"]

_BLOCK = 65536  # largest number of rows that a thread computes at a time
_ROUNDS = 6


@dataclass(frozen=True)
class SequencePool:
    """A pool of the sequences of a file.

    Attributes
    ----------
    path
        Path of a container, whose repertoires are pooled, or of a table or a list of sequences.
    """

    path: Path

    @cached_property
    def sequences(self) -> Sequences:
        """All sequences of the pool; they are read when they are first needed."""
        from deeprc.datasets.simulation.source import read_source

        sequences = read_source(self.path)
        if not len(sequences):
            raise InputError(f"{self.path}: holds no sequence")
        return sequences

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.sequences)

    def draw(self, key: int, rows: NDArray[np.int64]) -> Sequences:
        """Return the sequences at these rows of the shuffled pool; rows beyond its end belong to further shuffles."""
        return self.sequences.take(self._shuffle_indices(key, rows))

    def draw_lengths(self, key: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return only the lengths of the sequences that `draw` returns."""
        return self.sequences.lengths[self._shuffle_indices(key, rows)]

    def _shuffle_indices(self, key: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return shuffle_rows(key, rows, len(self))

    def __reduce__(self) -> tuple[type[SequencePool], tuple[Path]]:
        """Pickle the pool as its path: each worker process reads the file itself."""
        return SequencePool, (self.path,)


def shuffle_rows(key: int, rows: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return the numbers at some rows of a random permutation of 0 to n - 1, which a key of 64 bits determines.

    Rows from n on belong to further permutations of the same numbers.
    """
    shuffled = np.empty(len(rows), np.int64)
    run_in_blocks(_permute_numbers, len(rows), _BLOCK, np.uint64(key), rows, n, shuffled)
    return shuffled


@njit(nogil=True)
def _permute_numbers(
    first: int, stop: int, key: int, rows: NDArray[np.int64], n: int, shuffled: NDArray[np.int64]
) -> None:
    """Permute numbers below n with a Feistel network over an even number of bits, until the result is below n."""
    half = 1
    while (uint64(1) << uint64(2 * half)) < uint64(n):
        half += 1
    mask = (uint64(1) << uint64(half)) - uint64(1)
    for i in range(first, stop):
        order_key = draw_word(key, rows[i] // n)
        value = uint64(rows[i] % n)
        while True:
            left, right = value >> uint64(half), value & mask
            for round_index in range(_ROUNDS):
                left, right = right, left ^ (draw_word(order_key + uint64(round_index), right) & mask)
            value = (left << uint64(half)) | right
            if value < uint64(n):
                break
        shuffled[i] = value
