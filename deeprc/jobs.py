"""Independent jobs, run one after the other in this process, in processes of this machine, or on a Dask cluster.

A job is the argument of a function. Function and jobs are sent to the workers as pickles, so the function must be
defined at the top level of a module. A job must not depend on the process that runs it: its paths are absolute, and it
contains the seed of its random numbers. A job may run twice, because another worker repeats the job of a worker that
died. So a job writes its files under temporary names and renames them at the end.
"""

from __future__ import annotations

import logging
import pickle
import signal
import socket
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from deeprc.errors import InputError
from deeprc.threads import count_cores
from deeprc.versions import package_version

__all__ = ["HERE", "Workers", "check_scheduler", "get_result", "run_jobs"]

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

_AHEAD = 2
"""Number of jobs per worker that run or whose results wait to be used. It limits the memory."""

_LOOK_SECONDS = 2.0
"""Seconds after which the number of the cluster's workers is read again, and whether its scheduler still answers."""

_CONNECT_SECONDS = 10.0
_THREADS = ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB", "NUMBA", "NUMEXPR")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workers:
    """The processes that run jobs.

    Attributes
    ----------
    processes
        Number of processes on this machine; 1 runs the jobs in this process.
    scheduler
        Address of a Dask scheduler. Then its workers run the jobs instead of processes of this machine. They must find
        all files at the same paths as this process.
    modules
        Folder of modules that the function and its jobs need and that are not installed. The workers of a cluster
        import them from there.
    """

    processes: int = 1
    scheduler: str | None = None
    modules: Path | None = None

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise InputError(f"`jobs={self.processes}`: expected at least 1")


HERE = Workers()
"""Jobs run in this process."""


def run_jobs(
    function: Callable[[_Job], _Result],
    jobs: Sequence[_Job],
    workers: Workers = HERE,
    *,
    in_order: bool = False,
    hint: str = "",
) -> Generator[tuple[_Job, Future[_Result]], None, None]:
    """Run a function for each job, and yield each job when it has ended, with a future that has its result or error.

    Close the generator to cancel the other jobs: processes are killed, and workers of a cluster begin no other job.

    Parameters
    ----------
    function
        Function that is defined at the top level of a module.
    jobs
        Jobs in the order in which they start.
    workers
        Processes that run the jobs.
    in_order
        Whether the jobs are yielded in their order; otherwise, they are yielded in the order in which they end.
    hint
        Text for the error message that says how to continue if the workers are lost.

    Raises
    ------
    InputError
        If a process is killed, the scheduler cannot be reached or is lost, or Dask is not installed. It is no error if
        workers of a cluster end: other workers repeat their jobs.
    """
    if workers.scheduler is None and (workers.processes == 1 or len(jobs) < 2):
        for job in jobs:
            yield job, _run_here(function, job)
        return
    n = min(workers.processes, max(len(jobs), count_cores()))  # a process without a core or a job is of no use
    pool: _Pool = _Processes(n) if workers.scheduler is None else _Cluster(workers)
    has_ended = False
    try:
        yield from _iterate_as_completed(pool, function, jobs, in_order)
        has_ended = True
    except _LostWorkersError as error:
        raise InputError("; ".join(filter(None, [str(error), hint]))) from error.__cause__
    finally:
        pool.close(has_ended)


def get_result(future: Future[_Result], name: str) -> _Result:
    """Return the result of a job that has ended.

    Raises
    ------
    InputError
        If the job has failed because of its input or because of the cluster; the message names the job.
    """
    try:
        return future.result()
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    except Exception as error:
        if not type(error).__module__.startswith("distributed"):
            raise
        raise InputError(f"{name}: failed on the cluster: {' '.join(str(error).split())}") from error


def check_scheduler(address: str) -> None:
    """Raise InputError if nothing listens at the address of a Dask scheduler, or Dask is not installed."""
    try:
        from distributed.comm.addressing import get_address_host_port
    except ImportError as error:
        raise InputError("`scheduler` needs Dask: pip install 'deeprc[dask]'") from error
    try:
        socket.create_connection(get_address_host_port(address), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"`scheduler={address}`: cannot be reached: {error}") from error


class _LostWorkersError(Exception):
    """Raised if workers cannot be used any more."""


class _Pool(Protocol):
    """A group of workers that run jobs."""

    def submit(self, function: Callable[[Any], Any], job: Any) -> Future[Any]:
        """Give a job to a worker."""

    def capacity(self) -> int:
        """Return how many jobs may run or wait at a time; raise `_LostWorkersError` if no workers are left."""

    def check(self, future: Future[Any]) -> None:
        """Raise `_LostWorkersError` if a job has ended because its worker cannot be used any more."""

    def close(self, has_ended: bool) -> None:
        """Release the workers; cancel their jobs unless all have ended."""


def _run_here(function: Callable[[_Job], _Result], job: _Job) -> Future[_Result]:
    future: Future[_Result] = Future()
    try:
        future.set_result(function(job))
    except Exception as error:
        future.set_exception(error)
    return future


def _iterate_as_completed(
    pool: _Pool, function: Callable[[Any], Any], jobs: Sequence[Any], in_order: bool
) -> Generator[tuple[Any, Future[Any]], None, None]:
    """Yield each job with its future when it has ended; no more jobs are submitted than the pool takes at a time."""
    waiting = deque(jobs)
    running: dict[Future[Any], Any] = {}  # the order is that of the jobs
    while waiting or running:
        for _ in range(min(len(waiting), pool.capacity() - len(running))):
            job = waiting.popleft()
            running[pool.submit(function, job)] = job
        looked_at = list(running)[:1] if in_order else list(running)
        wait(looked_at, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
        for future in looked_at:
            if future.done():
                pool.check(future)
                yield running.pop(future), future


class _Processes:
    """Processes of this machine, which share its cores. They are kept for a while, for the next jobs."""

    def __init__(self, n: int) -> None:
        from joblib.externals.loky import get_reusable_executor
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        # loky warns if it restarts a worker because its memory has grown, which the first job with torch causes
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        threads = str(max(1, count_cores() // n))
        self._n, self._killed = n, TerminatedWorkerError
        with _hold_interrupts():
            self._executor: Executor = get_reusable_executor(
                n,
                env={f"{name}_NUM_THREADS": threads for name in _THREADS},
                # Ctrl-C reaches every process, but only this one may react: it ends the others
                initializer=signal.signal,
                initargs=(signal.SIGINT, signal.SIG_IGN),
            )

    def submit(self, function: Callable[[Any], Any], job: Any) -> Future[Any]:
        try:
            with _hold_interrupts():  # the first job starts the processes
                return self._executor.submit(function, job)
        except self._killed as error:
            raise self._make_lost_error() from error

    def capacity(self) -> int:
        return _AHEAD * self._n

    def check(self, future: Future[Any]) -> None:
        error = future.exception()
        if isinstance(error, self._killed):
            raise self._make_lost_error() from error

    def close(self, has_ended: bool) -> None:
        if not has_ended:
            self._executor.shutdown(kill_workers=True)  # type: ignore[call-arg]

    def _make_lost_error(self) -> _LostWorkersError:
        return _LostWorkersError(f"`jobs={self._n}`: a process was killed, perhaps because memory was short; try fewer")


@contextmanager
def _hold_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back from this thread until the block ends; processes that start in the block never get it.

    Without this, a process that is still importing modules prints a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # first, because Python 3.11 lets signals in again when it starts this process
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Cluster:
    """The workers of a Dask cluster, which may come and go."""

    def __init__(self, workers: Workers) -> None:
        address = workers.scheduler or ""
        check_scheduler(address)
        from distributed import Client

        self._address, self._modules, self._has_waited = address, workers.modules, False
        try:
            self._client = Client(address, timeout="20s", set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(f"`scheduler={address}`: cannot be reached: {error}") from error
        self._executor = self._client.get_executor(pure=False)

    def submit(self, function: Callable[[Any], Any], job: Any) -> Future[Any]:
        from cloudpickle import dumps

        # A worker dies from a task that it cannot unpickle. Every worker can unpickle `pickle.loads` and bytes.
        future: Future[Any] = self._executor.submit(pickle.loads, dumps(_Call(function, job, self._modules)))
        return future

    def capacity(self) -> int:
        try:
            if self._client.status != "running":
                raise self._make_lost_error()
            n_threads = int(sum(self._client.nthreads().values()))
        except OSError as error:
            raise self._make_lost_error() from error
        if not n_threads and not self._has_waited:
            self._has_waited = True
            _logger.warning("`scheduler=%s` has no workers yet; waiting for the first", self._address)
        return _AHEAD * max(1, n_threads)

    def check(self, future: Future[Any]) -> None:
        if future.cancelled():
            raise self._make_lost_error()
        error = future.exception()
        if isinstance(error, ModuleNotFoundError):
            message = f"`scheduler={self._address}`: a worker has no module {error.name!r}, which is installed here"
            raise _LostWorkersError(message) from error

    def close(self, has_ended: bool) -> None:
        if not has_ended:
            self._executor.shutdown(wait=False)
        self._client.close()

    def _make_lost_error(self) -> _LostWorkersError:
        return _LostWorkersError(f"`scheduler={self._address}`: the connection was lost")


class _Call:
    """A job that runs when this object is unpickled; the unpickled value is the result of the function."""

    def __init__(self, function: Callable[[Any], Any], job: Any, modules: Path | None) -> None:
        self._function, self._job, self._modules = function, job, modules

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The folder is first, so that it can be imported from when the others are unpickled.
        return _run_on_worker, (_Modules(self._modules), self._function, self._job, package_version("deeprc"))


class _Modules:
    """A folder from which a worker imports modules as soon as this object is unpickled; None is not a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _import_from, (None if self._folder is None else str(self._folder),)


def _import_from(folder: str | None) -> None:
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)


def _run_on_worker(_: None, function: Callable[[_Job], _Result], job: _Job, version: str) -> _Result:
    """Run a job on a worker of a cluster; raise InputError if the worker has a different version of deeprc.

    The first argument is only unpickled, which makes the folder of modules known, see `_Modules`.
    """
    installed = package_version("deeprc")
    if installed != version:
        raise InputError(f"the worker on {socket.gethostname()} has deeprc {installed}; expected {version}, as here")
    return function(job)
