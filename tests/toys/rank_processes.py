"""Start of a program in several processes that join each other, as `torchrun` starts it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path


def start_ranks(n: int, program: Path, *arguments: object, on_own_machines: bool = False) -> None:
    """Run a program in n processes; each must end without an error.

    With `on_own_machines`, each process is on a machine of its own, as far as it and NCCL can tell. So all may use one
    GPU, which NCCL refuses to processes of the same machine.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(program), *map(str, arguments)]
    processes = []
    for rank in range(n):
        local, n_local = (0, 1) if on_own_machines else (rank, n)
        numbers = {"RANK": rank, "WORLD_SIZE": n, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": n_local, "MASTER_PORT": port}
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", **{name: str(n) for name, n in numbers.items()}}
        if on_own_machines:
            environment |= {"NCCL_HOSTID": f"machine-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        processes.append(process)
    try:
        said = [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:  # one that waits for another, which has failed
            process.kill()
    assert [process.returncode for process in processes] == [0] * n, "\n".join(said)
