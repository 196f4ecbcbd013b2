"""Linear algebra on one thread, because several are slower for small matrices and change the last digits."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["limit_blas_threads"]


def limit_blas_threads() -> AbstractContextManager[Any]:
    """Return a context in which the linear algebra of numpy and scipy (BLAS) runs on one thread."""
    limited: AbstractContextManager[Any] = _get_controller().limit(limits=1, user_api="blas")
    return limited


@functools.cache
def _get_controller() -> ThreadpoolController:
    """Return a controller of the BLAS libraries of numpy and scipy, cached, because finding them takes milliseconds."""
    import scipy.linalg  # noqa: F401  # loads scipy's own BLAS, if it is not loaded yet

    return ThreadpoolController()
