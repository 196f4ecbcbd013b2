"""The jobs of a benchmark on a Dask cluster: a real scheduler and two real workers, one of which is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import yaml

from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.usefixtures("no_pictures")

PATIENCE = 60.0  # seconds after which a cluster that does not start is given up


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes, which end with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def cluster(started: list[subprocess.Popen[bytes]], toys: ModuleType, tmp_path: Path) -> str:
    """The address of a scheduler, the first process, with two workers, which have joined."""

    def start(*arguments: object) -> None:
        command = [sys.executable, "-m", "dask", *map(str, arguments), "--no-dashboard", "--host", "127.0.0.1"]
        with open(tmp_path / f"dask-{len(started)}.txt", "wb") as output:
            started.append(subprocess.Popen(command, stdout=output, stderr=output, cwd=tmp_path))

    file = tmp_path / "scheduler.json"
    start("scheduler", "--port", 0, "--scheduler-file", file)
    _eventually(lambda: file.exists() and file.read_text().rstrip().endswith("}"), started)
    address = json.loads(file.read_text())["address"]
    for _ in range(2):
        options = ("--nworkers", 1, "--nthreads", 1, "--no-nanny", "--memory-limit", 0, "--local-directory", tmp_path)
        start("worker", address, *options)
    with distributed.Client(address, set_as_default=False) as client:
        _eventually(lambda: len(client.nthreads()) == 2, started)
    return str(address)


def _eventually(condition: Callable[[], Any], processes: list[subprocess.Popen[bytes]]) -> Any:
    started = time.monotonic()
    while not (found := condition()):
        assert all(process.poll() is None for process in processes)
        assert time.monotonic() - started < PATIENCE
        time.sleep(0.05)
    return found


@pytest.mark.long
def test_a_cluster_that_loses_a_worker_gives_the_same(
    cluster: str, toys: ModuleType, small_cohort: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    log, broken = tmp_path / "log", tmp_path / "broken"
    Path(f"{broken}.broken").write_text("rep.0")
    preset = tmp_path / "preset.yaml"
    search = {"noise": {"salt": [1, 2]}, "path": {"salt": {"from": 1, "to": 40}}, "broken": {"salt": [1]}}
    preset.write_text(yaml.safe_dump({name: {"search": each} for name, each in search.items()}))
    killed: list[int] = []

    def kill(done: int, _: int, __: float | None) -> None:
        if done >= 4 and not killed:
            killed.append(toys.read_log(log)[-1]["pid"])  # the one that began a fit last
            os.kill(killed[0], signal.SIGKILL)

    def compare(scheduler: str | None = None, **more: Any) -> Any:
        seconds = 0.0 if scheduler is None else 0.2
        methods = {
            "noise": toys.Noise(log=str(log), seconds=seconds),
            "path": toys.PathNoise(),
            "broken": toys.Broken(log=str(broken)),
        }
        cohort = small_cohort(24).container.path
        how = BenchmarkOptions(preset=preset, folds=3, scheduler=scheduler)
        return benchmark(cohort, target="status=sick", methods=methods, options=how, **more)

    there = compare(scheduler=cluster, output=tmp_path / "out", progress=kill)
    ran = {each["pid"] for each in toys.read_log(log)}
    assert len(killed) == 1
    assert killed[0] in ran
    assert os.getpid() not in ran
    here = compare()
    for name in ("predictions", "choices"):
        pd.testing.assert_frame_equal(getattr(here, name), getattr(there, name), check_exact=True)
    assert here.failures == there.failures
    assert list(here.failures) == ["broken"]
    # both workers have gone: what is there needs none
    again = compare(output=tmp_path / "out", resume=True)
    pd.testing.assert_frame_equal(here.predictions, again.predictions, check_exact=True)


@pytest.mark.long
def test_a_cluster_that_loses_its_scheduler_can_be_resumed(
    cluster: str,
    started: list[subprocess.Popen[bytes]],
    toys: ModuleType,
    small_cohort: Callable[..., RepertoireDataset],
    tmp_path: Path,
) -> None:
    cohort = small_cohort(24)
    process = started[0]

    def compare(scheduler: str | None = None, **more: Any) -> Any:
        methods = {"noise": toys.Noise(log=str(tmp_path / "log"))}
        how = BenchmarkOptions(scheduler=scheduler)
        return benchmark(cohort, target="status=sick", methods=methods, output=tmp_path / "out", options=how, **more)

    (tmp_path / "log.slow").write_text("2")
    with pytest.raises(InputError, match=rf"^`scheduler={cluster}`: the connection was lost; continue with `resume`"):
        compare(scheduler=cluster, progress=lambda done, _, __: process.kill() if done == 1 else None)
    n = len(list((tmp_path / "out").rglob("final-*.json")))
    assert 1 <= n < 5
    (tmp_path / "log.slow").unlink()
    told: list[tuple[int, int]] = []
    resumed = compare(resume=True, progress=lambda done, total, _: told.append((done, total)))
    # it begins where it stopped, and counts each job; without a search there are only the final jobs of 5 folds
    assert list(dict.fromkeys(told)) == [(done, 5) for done in range(n, 6)]
    fits = [each["pid"] for each in toys.read_log(tmp_path / "log")]
    assert fits.count(os.getpid()) == 2 * (5 - n)  # without and with the validation fold; nothing is computed again
    assert len(resumed.predictions) == 24
