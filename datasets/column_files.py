"""The columns of a container's sequences in temporary files, until all repertoires are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["COLUMN_DTYPES", "ColumnFiles"]

COLUMN_DTYPES: dict[str, DTypeLike] = {
    "residues": np.uint8,
    "lengths": np.int64,
    "counts": np.uint32,
    "v_call": np.uint16,
    "j_call": np.uint16,
    "witness": np.uint8,
}
"""The columns, and the types of their values."""

_BLOCK_BYTES = 1 << 24


class ColumnFiles:
    """Files in a folder, one for each column, to which the values of repertoires are appended.

    Parameters
    ----------
    folder
        Folder of the files.
    keep
        Whether the files stay as they are while they are read, because a later call may continue them.
    """

    def __init__(self, folder: Path, *, keep: bool) -> None:
        self._folder, self._keep = folder, keep

    def append(self, column: str, values: NDArray[Any]) -> None:
        """Append values to the file of a column."""
        with self._get_path(column).open("ab") as file:
            file.write(np.ascontiguousarray(values, dtype=COLUMN_DTYPES[column]).data)  # tofile names no error

    def read_backwards(self, column: str, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the values of a column in blocks, the last block first, each with the index of its first value.

        The caller fills the container from its end, and each block is cut off its temporary file after it was copied.
        So the disk never holds much more than the container, if the file system supports sparse files. Files that are
        kept are not cut.

        Parameters
        ----------
        column
            Name of the column.
        ranges
            Ranges (start, stop) of values in the file, one after the other in the order of the container. An index
            counts the values of all ranges.
        """
        itemsize, index = np.dtype(COLUMN_DTYPES[column]).itemsize, sum(stop - start for start, stop in ranges)
        if index == 0:
            return
        with self._get_path(column).open("rb" if self._keep else "r+b") as file:
            for first, last in reversed(ranges):
                stop = last
                while stop > first:
                    start = max(stop - _BLOCK_BYTES // itemsize, first)
                    file.seek(start * itemsize)
                    block = np.fromfile(file, dtype=COLUMN_DTYPES[column], count=stop - start)
                    if len(block) < stop - start:
                        raise OSError(f"{file.name} was changed while it was read")
                    index -= len(block)
                    yield index, block
                    if not self._keep:
                        file.truncate(start * itemsize)
                    stop = start

    def _get_path(self, column: str) -> Path:
        return self._folder / f"{column}.bin"
