"""Names of array types, for annotations, and what numpy lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Flags", "Floats", "Integers", "find_first_occurrences"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def find_first_occurrences(values: NDArray[Any]) -> Integers:
    """Return the index of the first occurrence of each different value of (N,), ascending."""
    return np.sort(np.unique(values, return_index=True)[1])
