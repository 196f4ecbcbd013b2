"""Names of array types, for annotations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Flags", "Floats", "Integers"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
