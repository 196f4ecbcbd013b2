"""Names of array types, for annotations, and functions that numpy lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Flags", "Floats", "Integers", "digest_arrays", "digest_buffers", "find_first_occurrences"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def find_first_occurrences(values: NDArray[Any]) -> Integers:
    """Return the index of the first occurrence of each different value of (N,), ascending."""
    return np.sort(np.unique(values, return_index=True)[1])


def digest_arrays(arrays: Mapping[str, NDArray[Any]], text: str) -> str:
    """Return a digest, as hexadecimal text, of a text and of named arrays with their types and shapes, in any order."""
    return digest_buffers(
        ((f"{name} {array.dtype} {array.shape}", array.tobytes()) for name, array in sorted(arrays.items())), text
    )


def digest_buffers(buffers: Iterable[tuple[str, bytes | memoryview]], text: str) -> str:
    """Return a digest, as hexadecimal text, of a text and of buffers, each with a line that describes it."""
    content = hashlib.blake2b(text.encode(), digest_size=16)
    for description, buffer in buffers:
        content.update(f"{description}\n".encode())
        content.update(buffer)
    return content.hexdigest()
