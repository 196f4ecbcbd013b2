"""How many cores a process may use, and linear algebra on one thread.

Several threads are slower for small matrices and change the last digits.
"""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["count_cores", "limit_blas_threads"]


def count_cores() -> int:
    """Return the number of cores that this process may use: those of a container or a job, not of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_blas_threads() -> AbstractContextManager[Any]:
    """Return a context in which the linear algebra of numpy and scipy (BLAS) runs on one thread."""
    limited: AbstractContextManager[Any] = _get_controller().limit(limits=1, user_api="blas")
    return limited


@functools.cache
def _get_controller() -> ThreadpoolController:
    """Return a controller of the BLAS libraries of numpy and scipy, cached, because finding them takes milliseconds."""
    import scipy.linalg  # noqa: F401  # loads scipy's own BLAS, if it is not loaded yet

    return ThreadpoolController()
