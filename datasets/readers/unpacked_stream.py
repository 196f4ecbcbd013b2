"""A stream of unpacked bytes that ends with an error before a small packed file has filled the memory."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO

from deeprc.errors import InputError

__all__ = ["UnpackedStream"]

_MAX_RATIO = 100
"""Largest number of unpacked bytes per packed byte: our real tables have at most 16, and gzip can reach 1,000."""

_ALWAYS_ALLOWED = 1 << 28
"""Number of unpacked bytes up to which the ratio does not matter."""


class UnpackedStream(io.BufferedIOBase):
    """The unpacked bytes of a file; reading them fails if they are far more than any table of this packed size has.

    Parameters
    ----------
    stream
        Unpacked bytes, of which the caller closes the source.
    path
        The packed file.
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path = stream, path
        self._n_read = 0
        self._max_bytes = max(_ALWAYS_ALLOWED, _MAX_RATIO * path.stat().st_size)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most `size` bytes; raise InputError if too many were read."""
        data = self._stream.read(-1 if size is None else size)
        self._n_read += len(data)
        if self._n_read > self._max_bytes:
            raise InputError(
                f"{self._path}: unpacks to more than {_MAX_RATIO} times its size ({self._n_read >> 20:,} MiB so far), "
                "which no table of repertoires does; if it is one nevertheless, unpack it first"
            )
        return data
