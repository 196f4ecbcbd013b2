"""The death of a worker of a Dask cluster while it computes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

_PATIENCE = 100.0  # seconds until a test fails because no worker got a job


@contextmanager
def kill_a_worker_that_computes(cluster: str) -> Iterator[None]:
    """Kill the first worker of the cluster that gets a job of the body; all are stopped until then, so no job ends.

    Raises
    ------
    TimeoutError
        At the end of the body, if no worker ever had a job.
    """
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster, set_as_default=False) as client, ThreadPoolExecutor(1) as thread:
        pids = client.run(os.getpid)
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)

        def kill_the_first_busy_one() -> None:
            end = time.monotonic() + _PATIENCE
            try:
                while not (busy := [address for address, tasks in client.processing().items() if tasks]):
                    if time.monotonic() > end:
                        raise TimeoutError(f"no worker of {cluster} got a job in {_PATIENCE:g} s")
                    time.sleep(0.01)
                os.kill(pids[busy[0]], signal.SIGKILL)
            finally:
                for pid in pids.values():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)

        killed = thread.submit(kill_the_first_busy_one)
        yield
        killed.result()
