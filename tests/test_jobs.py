"""Independent jobs give the same here, in processes and on a Dask cluster, also one that loses a worker."""

import importlib
import sys
import time
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deeprc.errors import InputError
from deeprc.jobs import HERE, Workers, check_scheduler, get_result, run_jobs


@pytest.fixture
def toy_jobs(toys: ModuleType) -> ModuleType:
    """The functions of `toy_jobs`, importable here and in the processes that run them."""
    return importlib.import_module("toy_jobs")


def values(ended: Any) -> list[Any]:
    return [future.result() for _, future in ended]


def test_here_a_job_is_begun_when_its_result_is_asked_for(toy_jobs: ModuleType) -> None:
    begun: list[int] = []
    ended = run_jobs(begun.append, [3, 1, 2])
    assert next(ended)[0] == 3
    assert begun == [3]
    assert [job for job, _ in ended] == [1, 2]
    assert list(run_jobs(toy_jobs.draw, [])) == list(run_jobs(toy_jobs.draw, [], Workers(2))) == []


def test_processes_give_the_same_in_order(workers: None, toy_jobs: ModuleType) -> None:
    seeds = list(range(7))
    assert values(run_jobs(toy_jobs.draw, seeds, Workers(2), in_order=True)) == values(
        run_jobs(toy_jobs.draw, seeds, HERE)
    )
    assert sorted(values(run_jobs(toy_jobs.draw, seeds, Workers(2)))) == values(run_jobs(toy_jobs.draw, seeds))


def test_no_more_processes_start_than_there_are_jobs_or_cores(
    workers: None, toy_jobs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeprc.jobs.count_cores", lambda: 1)
    seeds = [0, 1]
    many = Workers(10**20)  # more than an integer of C can hold
    assert values(run_jobs(toy_jobs.draw, seeds, many, in_order=True)) == values(run_jobs(toy_jobs.draw, seeds))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal masks")
def test_processes_never_get_ctrl_c_not_even_while_they_start(workers: None, toy_jobs: ModuleType) -> None:
    assert values(run_jobs(toy_jobs.holds_interrupts, [0, 1, 2], Workers(2))) == [True, True, True]
    assert not toy_jobs.holds_interrupts(0)


@pytest.mark.slow
def test_results_come_as_they_end_or_in_order(workers: None, toy_jobs: ModuleType) -> None:
    list(run_jobs(toy_jobs.sleep_longer_first, [1, 1], Workers(2)))  # the processes have started
    found = values(run_jobs(toy_jobs.sleep_longer_first, [0, 1], Workers(2)))
    assert found == [1, 0]
    assert values(run_jobs(toy_jobs.sleep_longer_first, [0, 1], Workers(2), in_order=True)) == [0, 1]


def test_an_error_names_the_job(toy_jobs: ModuleType) -> None:
    ended = [(job, future) for job, future in run_jobs(toy_jobs.fail, [0, 1, 2])]
    assert [future.result() for job, future in ended if job != 1] == [0, 2]  # the other jobs have run
    with pytest.raises(InputError, match=r"^fold 1: a\.tsv: is empty$"):
        get_result(ended[1][1], "fold 1")


def test_another_error_is_raised_as_it_is() -> None:
    future: Future[int] = Future()
    future.set_exception(KeyError("a"))
    with pytest.raises(KeyError):
        get_result(future, "fold 1")


@pytest.mark.long
def test_a_killed_process_is_one_line(workers: None, toy_jobs: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^`jobs=2`: a process was killed, .*; try fewer; the same call goes on$"):
        list(run_jobs(partial(toy_jobs.die_once, tmp_path), range(4), Workers(2), hint="the same call goes on"))


def test_there_is_at_least_one_process() -> None:
    with pytest.raises(InputError, match=r"^`jobs=0`: expected at least 1$"):
        Workers(0)


@pytest.mark.long
def test_a_cluster_gives_the_same_in_order(cluster: str, toy_jobs: ModuleType) -> None:
    seeds = list(range(20))
    assert values(run_jobs(toy_jobs.draw, seeds, Workers(scheduler=cluster), in_order=True)) == values(
        run_jobs(toy_jobs.draw, seeds)
    )
    assert sorted(values(run_jobs(toy_jobs.draw, seeds, Workers(scheduler=cluster)))) == values(
        run_jobs(toy_jobs.draw, seeds)
    )


@pytest.mark.long
def test_an_error_on_a_cluster_names_the_job(cluster: str, toy_jobs: ModuleType) -> None:
    ended = list(run_jobs(toy_jobs.fail, [0, 1, 2], Workers(scheduler=cluster), in_order=True))
    assert [future.result() for job, future in ended if job != 1] == [0, 2]
    with pytest.raises(InputError, match=r"^fold 1: a\.tsv: is empty$"):
        get_result(ended[1][1], "fold 1")


@pytest.mark.long
def test_a_killed_worker_costs_a_retry(cluster: str, toy_jobs: ModuleType, tmp_path: Path) -> None:
    found = values(run_jobs(partial(toy_jobs.die_once, tmp_path), range(4), Workers(scheduler=cluster), in_order=True))
    assert [index for index, _ in found] == [0, 1, 2, 3]
    first = {int(path.suffix[1:]) for path in tmp_path.glob("0.*")}
    assert len(first) == 2  # the killed one and another
    assert found[0][1] in first


@pytest.mark.long
def test_a_job_that_kills_every_worker_is_an_error(cluster: str, toy_jobs: ModuleType, tmp_path: Path) -> None:
    ((_, future),) = run_jobs(toy_jobs.kill_always, [0], Workers(scheduler=cluster))
    with pytest.raises(InputError, match=r"^fold 0: failed on the cluster: .*died") as error:
        get_result(future, "fold 0")
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_jobs_that_nobody_waits_for_are_cancelled(cluster: str, toy_jobs: ModuleType, tmp_path: Path) -> None:
    jobs = list(range(6))
    with closing(run_jobs(partial(toy_jobs.wait_for_ever, tmp_path), jobs, Workers(scheduler=cluster))) as ended:
        (tmp_path / "end").touch()
        next(ended)
        (tmp_path / "end").unlink()
    (tmp_path / "end").touch()
    begun = len(list(tmp_path.iterdir()))
    time.sleep(1)
    assert len(list(tmp_path.iterdir())) == begun < 1 + len(jobs)


@pytest.mark.long
def test_a_worker_without_a_module_is_named(
    cluster: str, toy_jobs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ModuleType("only_here")
    exec("def double(x): return 2 * x", vars(here))
    monkeypatch.setitem(sys.modules, "only_here", here)
    with pytest.raises(
        InputError, match=r"^`scheduler=.*`: a worker has no module 'only_here', which is installed here"
    ):
        list(run_jobs(vars(here)["double"], [1], Workers(scheduler=cluster)))
    assert values(run_jobs(toy_jobs.draw, [1], Workers(scheduler=cluster)))[0][0] == 1  # the worker lives


@pytest.mark.long
def test_a_worker_of_another_version_is_refused(
    cluster: str, toy_jobs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeprc.jobs.package_version", lambda _: "99.0")
    ((_, future),) = run_jobs(toy_jobs.draw, [1], Workers(scheduler=cluster))
    with pytest.raises(InputError, match=r"^the worker on .* has deeprc .*; expected 99\.0, as here$"):
        future.result()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://127.0.0.1:1", "cannot be reached: .*Connection refused"),
        ("127.0.0.1:1", "cannot be reached: .*Connection refused"),
        ("tcp://no.such.host.invalid:8786", "cannot be reached: "),
        ("nonsense", "cannot be reached: missing port number in address 'nonsense'"),
        ("ftp://127.0.0.1:1", "cannot be reached: unknown address scheme 'ftp'"),
        ("", "cannot be reached: "),
    ],
)
def test_a_scheduler_that_is_not_there(address: str, message: str) -> None:
    started = time.monotonic()
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match=message) as error:
        check_scheduler(address)
    assert str(error.value).startswith(f"`scheduler={address}`: ")
    assert "\n" not in str(error.value)
    assert time.monotonic() - started < 20


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed.comm.addressing", None)
    with pytest.raises(InputError, match=r"^`scheduler` needs Dask: pip install 'deeprc\[dask\]'$"):
        check_scheduler("tcp://127.0.0.1:1")
