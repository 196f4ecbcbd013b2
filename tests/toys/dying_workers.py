"""The death of a worker of a Dask cluster while it computes."""

from __future__ import annotations

import os
import signal
import time

import pytest


def kill_a_worker_that_computes(cluster: str) -> int:
    """Wait until a worker of the cluster has a job, kill it, and return the index of its process."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster, set_as_default=False) as client:
        pids = client.run(os.getpid)
        while not any((busy := client.processing()).values()):
            time.sleep(0.01)
        pid = int(next(pids[address] for address, tasks in busy.items() if tasks))
        os.kill(pid, signal.SIGKILL)
        return pid
