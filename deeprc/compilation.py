"""How functions are compiled: `njit` is numba's, with a cache on the disk that is used where there is one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import FunctionCache

from deeprc.caches import home_is_known, private_folder

__all__ = ["njit"]

logger = logging.getLogger(__name__)


class _Cache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """numba's cache of one function; what cannot be read is compiled, and what cannot be written is not kept."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # of a damaged pickle, any
            logger.debug("%s: not read: %s", self.cache_path, error)
            with contextlib.suppress(OSError):
                self.flush()  # else it could never be written again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:  # the disk is full, say
            logger.debug("%s: not written: %s", self.cache_path, error)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function by `numba.njit` with these options, and cache the compiled code.

    It is kept where numba keeps it: in the folder of `NUMBA_CACHE_DIR`, beside the source, or in the user's home. Where
    none of them can be written to, it is kept in `deeprc.caches.private_folder`, and where there is no such folder,
    nowhere: then every process compiles for itself.
    """

    def compile_lazily(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(**options)(function)
        cache = _cache_of(function)
        if cache is not None:
            compiled._cache = cache  # what `cache=True` does, which raises where there is no folder
        return compiled

    return compile_lazily


def _cache_of(function: Callable[..., Any]) -> _Cache | None:
    if numba.config.CACHE_DIR or home_is_known():
        try:
            return _Cache(function)
        except RuntimeError:  # there is no folder that can be written to
            pass
    folder, before = private_folder(), numba.config.CACHE_DIR
    if folder is None:
        return None
    numba.config.CACHE_DIR = str(folder / "numba")  # for this function only: other packages decide for themselves
    try:
        return _Cache(function)
    except RuntimeError:
        return None
    finally:
        numba.config.CACHE_DIR = before
