"""Compilation of functions: `njit` is numba's `njit` with a cache on the disk, if there is a folder for it.

`run_in_blocks` and `run_in_parts` share the work of a compiled function among threads; `open_threads` is for the rest.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TypeVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.types import unliteral

from deeprc.caches import has_home, make_private_folder
from deeprc.locks import take_lock

__all__ = ["FAST", "njit", "open_threads", "run_in_blocks", "run_in_parts"]

FAST: dict[str, Any] = {"nogil": True, "fastmath": {"contract", "reassoc"}}
"""Options of `njit` for sums whose order and rounding may be those that are fastest on a processor."""

_MIN_PARTS = 16  # smallest number of parts of `run_in_parts`

_MAX_WAIT = 60.0  # seconds that a process waits until another one has compiled a function
_PAUSE = 0.02  # seconds between two tries to take a lock

_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class _Cache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """numba's cache of one function; code that cannot be read is compiled again, and failed writes are ignored.

    Of several processes that need the same code, one compiles it, and the others wait for it. numba itself would
    compile it in each. numba also compiles a function again if its file has changed, but not if that of a function that
    it calls has. The names of the files end with `suffix`.
    """

    def __init__(self, function: Callable[..., Any], suffix: str) -> None:
        super().__init__(function)
        self._stamp_of_file = self._impl.locator.get_source_stamp()
        self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base + suffix, self._stamp_of_file)
        self._lock: IO[bytes] | None = None  # held while this process compiles

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        self._cache_file._source_stamp = (self._stamp_of_file, _hash_compiled_sources())  # `save_overload` comes later
        loaded = self._load(sig, target_context)
        if loaded is None:
            _announce_compilation()
            if self._take_lock():  # another process may have compiled it meanwhile
                loaded = self._load(sig, target_context)
                if loaded is not None:
                    self._release_lock()
        return loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:  # for example, the disk is full
            _logger.debug("%s: not written: %s", self.cache_path, error)
        finally:
            self._release_lock()

    def _load(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code; None if there is none that can be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a damaged pickle may raise any exception
            _logger.debug("%s: not read: %s", self.cache_path, error)
            with contextlib.suppress(OSError):
                self.flush()  # otherwise the damaged file is never replaced
            return None

    def _take_lock(self) -> bool:
        """Wait until no other process compiles this function; False if there are no locks, or it takes too long.

        Functions that call each other are locked from the caller to the called one, so no two processes wait for each
        other.
        """
        if self._lock is not None:  # held already, if the last compilation failed
            return False
        path, end = self._lock_path, time.monotonic() + _MAX_WAIT
        try:
            while True:
                file = path.open("wb")
                locked = take_lock(file, path)
                if locked:
                    self._lock = file
                    return True
                file.close()
                if locked is None or time.monotonic() >= end:
                    return False
                time.sleep(_PAUSE)
        except OSError as error:  # the folder cannot be written to
            _logger.debug("%s: not locked: %s", path, error)
            return False

    def _release_lock(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock_path.unlink()
            self._lock.close()
            self._lock = None

    @property
    def _lock_path(self) -> Path:
        return Path(f"{self._cache_file._index_path}.lock")


@functools.cache
def _hash_compiled_sources() -> str:
    """Return a hash of all files of deeprc with compiled functions, or with constants of theirs (they name `njit`)."""
    specs = map(find_spec, ("deeprc", "deeprc.datasets", "deeprc.baselines"))  # in a checkout, beside each other
    folders = [Path(folder) for spec in specs for folder in (spec and spec.submodule_search_locations) or ()]
    content = hashlib.blake2b(digest_size=16)
    for path in sorted({path for folder in folders for path in folder.rglob("*.py")}):
        text = path.read_bytes()
        if b"numba" in text or b"njit" in text:
            content.update(text)
    return content.hexdigest()


@functools.cache
def _announce_compilation() -> None:
    """Say once in a process that functions are being compiled."""
    _logger.info("compiling functions for this processor, up to a minute in total; later runs find them compiled")


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function by `numba.njit` with these options, and cache the compiled code.

    numba keeps the code in the folder of `NUMBA_CACHE_DIR`, beside the source, or in the user's home. If none of them
    can be written, the code goes to `deeprc.caches.make_private_folder`. If there is no such folder either, it is not
    kept, and every process compiles the function again.

    Compiled code calls a second version of the function, without the wrapper that Python needs. Otherwise the wrapper
    would be compiled for the function, and once more for each of its callers. A function may not call itself.
    """

    def compile_lazily(function: Callable[..., Any]) -> Any:
        form = ".parallel" if options.get("parallel") else ""  # a function may be compiled with and without threads
        dispatcher = _make_dispatcher(function, form, **options)

        @functools.cache
        def make_inner() -> Any:
            return _make_dispatcher(function, f"{form}.inner", no_cpython_wrapper=True, **options)

        def get_call_template(args: Sequence[Any], kws: dict[str, Any]) -> Any:
            # without literals: calls with different numbers, such as 1 and 2, would each be compiled
            return make_inner().get_call_template(list(map(unliteral, args)), {k: unliteral(v) for k, v in kws.items()})

        dispatcher.get_call_template = get_call_template  # numba asks both functions for the code that a caller needs
        dispatcher.get_overload = lambda signature: make_inner().get_overload(signature)
        return dispatcher

    return compile_lazily


def _make_dispatcher(function: Callable[..., Any], suffix: str, **options: Any) -> Any:
    """Return numba's object that compiles a function when it is called; the names of cached files end with `suffix`."""
    settings = {"fastmath": False, **options}  # unset, numba takes those of the first caller that it compiles
    dispatcher = numba.njit(no_cfunc_wrapper=True, **settings)(function)  # a wrapper for C is not needed
    cache = _make_cache(function, suffix)
    if cache is not None:
        dispatcher._cache = cache  # like `cache=True`, which would raise an error if there is no folder
    return dispatcher


def open_threads() -> ThreadPoolExecutor:
    """Return a pool with a thread for each core, to run compiled code.

    In each of them, functions with numba's threads or `run_in_blocks` use one thread. BLAS is not limited, see
    `deeprc.threads.limit_blas_threads`. A function with numba's own threads (`prange`) must not run in several threads:
    with some of numba's threading layers the process is killed.
    """
    return ThreadPoolExecutor(numba.get_num_threads(), initializer=numba.set_num_threads, initargs=(1,))


def run_in_blocks(function: Callable[..., _Result], n: int, size: int, *arguments: Any) -> list[_Result]:
    """Call `function(start, stop, *arguments)` for blocks of at most `size` of n items, on all cores.

    The results are in the order of the blocks. The function is compiled with `nogil=True`, so that threads run it at
    the same time. numba's own threads (`parallel=True`, `prange`) start faster, but a function that uses them takes
    three times as long to compile. Use them only for functions that are called in every update of a training.
    """
    blocks = _split_evenly(n, size)
    if len(blocks) <= 1 or numba.get_num_threads() == 1:
        return [function(start, stop, *arguments) for start, stop in blocks]
    with open_threads() as threads:
        return list(threads.map(lambda block: function(*block, *arguments), blocks))


def run_in_parts(function: Callable[..., _Result], n: int, *arguments: Any) -> list[_Result]:
    """Call `run_in_blocks` with blocks that divide n items, which may differ in work, into at least 16 parts."""
    return run_in_blocks(function, n, max(1, n // _MIN_PARTS), *arguments)


def _split_evenly(n: int, size: int) -> list[tuple[int, int]]:
    """Return the bounds of blocks of at most `size` of n items, which differ by one item at most.

    If there are several blocks, their number is a multiple of the number of threads if n allows it, so that all threads
    end at the same time.
    """
    n_blocks, n_threads = -(-n // size), numba.get_num_threads()
    if n_blocks > 1:
        n_blocks = min(-(-n_blocks // n_threads) * n_threads, n)
    return list(pairwise(n * block // n_blocks for block in range(n_blocks + 1))) if n else []


def _make_cache(function: Callable[..., Any], suffix: str) -> _Cache | None:
    """Return the cache of a function; None if there is no folder for it."""
    if numba.config.CACHE_DIR or has_home():
        try:
            return _Cache(function, suffix)
        except RuntimeError:  # there is no folder that can be written to
            pass
    folder, before = make_private_folder(), numba.config.CACHE_DIR
    if folder is None:
        return None
    numba.config.CACHE_DIR = str(folder / "numba")  # for this function only, not for other packages
    try:
        return _Cache(function, suffix)
    except RuntimeError:
        return None
    finally:
        numba.config.CACHE_DIR = before
