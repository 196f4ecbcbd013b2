"""Names of array types, for annotations, and functions that numpy lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

__all__ = [
    "Flags",
    "Floats",
    "Integers",
    "digest_arrays",
    "digest_buffers",
    "find_first_occurrences",
    "index_connected",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def find_first_occurrences(values: NDArray[Any]) -> Integers:
    """Return the index of the first occurrence of each different value of (N,), ascending."""
    return np.sort(np.unique(values, return_index=True)[1])


def index_connected(pairs: NDArray[np.integer[Any]], n: int) -> NDArray[np.int64]:
    """Return the index of the group of each of n nodes, (n,): pairs of nodes, (2, P), join groups, also indirectly."""
    first, second = pairs.astype(np.int32)  # SciPy 1.11 takes no other integers
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


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
