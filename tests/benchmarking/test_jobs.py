import gc
import itertools
import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from deeprc.benchmarking.cohort_digest import digest_values
from deeprc.benchmarking.jobs import (
    Job,
    RemainingTime,
    estimate_seconds_left,
    run_benchmark_jobs,
    run_job,
)
from deeprc.calibration import fit_calibration
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import Split
from deeprc.jobs import Workers
from deeprc.tasks import Task

N = 24
SPLIT = Split(np.arange(8, 24), np.arange(4, 8), np.arange(4))
POSITIVE = (np.arange(N) // 2 % 2).astype(np.int64)


TASK = Task("status", "status", "binary", ("well", "sick"))


@pytest.fixture(scope="module")
def data(small_cohort: Callable[..., RepertoireDataset]) -> RepertoireDataset:
    return small_cohort(["sick" if each else "well" for each in POSITIVE])


@pytest.fixture
def make(data: RepertoireDataset) -> Callable[..., Job]:
    def job(estimator: BaseEstimator, *settings: dict[str, Any], kind: Any = "search", **more: Any) -> Job:
        cohort = more.get("cohort", str(data.container.path))
        return Job(
            more.get("key", "k"), more.get("method", "m"), more.get("fold", 0), kind, cohort, estimator, settings,
            SPLIT, more.get("labels", POSITIVE), more.get("task", TASK),
        )  # fmt: skip

    return job


class Sure(BaseEstimator):
    """Is sure of one class of each repertoire: of the right one in the test part, else mostly of a wrong one."""

    def fit(self, X: RepertoireDataset, y: Any) -> "Sure":
        return self

    def predict_proba(self, X: RepertoireDataset) -> Any:
        numbers = np.array([int(name.split(".")[1]) for name in X.repertoire_ids])
        called = np.where(numbers % 4 == 0, numbers, numbers + (numbers >= 4)) % 3
        return np.where(np.arange(3) == called[:, None], 0.99, 0.005)


def naive_auc(labels: Any, scores: Any) -> float:
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(scores[labels == 1], scores[labels == 0])]
    return float(np.mean(pairs))


def test_keys_depend_on_content_only() -> None:
    assert digest_values("a", {"x": 1, "y": [2, None]}) == digest_values("a", {"y": [2, None], "x": 1})
    others = [("a",), ("a", {}), ("b", {"x": 1}), ("a", {"x": 1}), ("a", {"x": 1.5}), ("a", {"x": "1"}), ("a", "x", 1)]
    keys = [digest_values(*parts) for parts in others]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 24 and set(key) <= set("0123456789abcdef") for key in keys)
    assert (
        digest_values(LogisticRegression(C=2))
        == digest_values(LogisticRegression(C=2))
        != digest_values(LogisticRegression(C=3))
    )


def test_a_search_job_learns_from_the_training_part_and_scores_the_validation_part(
    toys: ModuleType, make: Callable[..., Job], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    outcome = run_job(make(toys.Noise(log=str(log)), {"salt": 5}))
    ids = np.array([f"rep.{i}" for i in range(N)])
    expected = naive_auc(POSITIVE[SPLIT.validation], toys.noise(ids[SPLIT.validation], 5))
    assert outcome["validation"] == [{"setting": {"salt": 5}, "auc": pytest.approx(expected, abs=1e-12)}]
    (fit,) = toys.read_log(log)
    assert fit["ids"] == ids[SPLIT.train].tolist()
    assert fit["y"] == POSITIVE[SPLIT.train].tolist()


def test_a_path_gives_what_single_fits_give(toys: ModuleType, make: Callable[..., Job], tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = [{"salt": salt, "seconds": 0.0} for salt in range(40)]
    path = run_job(make(toys.PathNoise(log=str(log)), *settings))
    single = [run_job(make(toys.PathNoise(), setting))["validation"][0] for setting in settings]
    assert path["validation"] == single
    assert len({each["auc"] for each in single}) > 3
    (call,) = toys.read_log(log)
    assert (call["what"], call["values"]) == ("path", list(range(40)))
    assert call["ids"] == [f"rep.{i}" for i in SPLIT.train]
    assert call["y"] == POSITIVE[SPLIT.train].tolist()


def test_the_final_job_predicts_the_test_side(toys: ModuleType, make: Callable[..., Job]) -> None:
    outcome = run_job(make(toys.Noise(), {"salt": 5}, kind="final"))
    ids = np.array([f"rep.{i}" for i in range(N)])
    scores = toys.score(ids, 5, ids[SPLIT.train], POSITIVE[SPLIT.train])
    assert outcome["setting"] == {"salt": 5}
    auc = naive_auc(POSITIVE[SPLIT.validation], scores[SPLIT.validation])
    assert outcome["validation_auc"] == pytest.approx(auc, abs=1e-12)
    test = outcome["test"]
    assert (test["repertoire_id"], test["label"]) == (ids[SPLIT.test].tolist(), POSITIVE[SPLIT.test].tolist())
    assert test["score"] == scores[SPLIT.test].tolist()
    fitted = fit_calibration(scores[SPLIT.validation], POSITIVE[SPLIT.validation] == 1)
    odds = fitted.slope * scores[SPLIT.test] + fitted.intercept
    assert fitted.slope < 1  # the validation fold shows that the scores are noise
    assert test["probability"] == pytest.approx((1 / (1 + np.exp(-odds))).tolist(), rel=1e-6)
    assert json.loads(json.dumps(outcome)) == outcome


def test_the_refit_learns_from_the_training_and_validation_sides(toys: ModuleType, make: Callable[..., Job]) -> None:
    outcome = run_job(make(toys.Noise(), {"salt": 5}, kind="final"))
    ids, both = np.array([f"rep.{i}" for i in range(N)]), np.sort(np.concatenate([SPLIT.train, SPLIT.validation]))
    scores = toys.score(ids, 5, ids[both], POSITIVE[both])
    assert outcome["refit_auc"] == pytest.approx(naive_auc(POSITIVE[SPLIT.test], scores[SPLIT.test]), abs=1e-12)
    for needs_validation in (toys.Stopping(), toys.Demanding()):
        assert run_job(make(needs_validation, {}, kind="final"))["refit_auc"] is None


def test_a_job_may_leave_out_the_refit(toys: ModuleType, make: Callable[..., Job], tmp_path: Path) -> None:
    log = tmp_path / "log"
    job = replace(make(toys.Noise(log=str(log)), {}, kind="final"), refits=False)
    assert run_job(job)["refit_auc"] is None
    assert len(toys.read_log(log)) == 1


@pytest.mark.parametrize("donors", [None, np.arange(N) // 2], ids=["no donors", "donors"])
def test_the_refit_of_deeprc_divides_both_sides_itself(
    toys: ModuleType, make: Callable[..., Job], tmp_path: Path, donors: NDArray[np.int64] | None
) -> None:
    log = tmp_path / "log"
    outcome = run_job(replace(make(toys.Dividing(log=str(log)), {}, kind="final"), groups=donors))
    ids, both = np.array([f"rep.{i}" for i in range(N)]), np.sort(np.concatenate([SPLIT.train, SPLIT.validation]))
    scores = toys.score(ids, 0, ids[both], POSITIVE[both])
    assert outcome["refit_auc"] == pytest.approx(naive_auc(POSITIVE[SPLIT.test], scores[SPLIT.test]), abs=1e-12)
    fit, refit = toys.read_log(log)
    assert fit["ids"] == ids[SPLIT.train].tolist()
    assert (refit["ids"], refit["y"], refit["groups_validation"]) == (ids[both].tolist(), POSITIVE[both].tolist(), None)
    assert refit["groups"] == (both if donors is None else donors[both]).tolist()  # DeepRC warns without any


def test_without_a_decision_function_the_probability_is_the_score(toys: ModuleType, make: Callable[..., Job]) -> None:
    outcome = run_job(make(toys.Memory(), {}, kind="final"))
    assert outcome["test"]["score"] == outcome["test"]["probability"] == [0.5] * 4
    assert outcome["validation_auc"] == 0.5
    assert run_job(make(toys.Memory(), {}))["validation"] == [{"setting": {}, "auc": 0.5}]


def test_estimators_that_stop_early_get_the_validation_part(
    toys: ModuleType, make: Callable[..., Job], tmp_path: Path
) -> None:
    for kind in ("search", "final"):
        assert "error" not in run_job(make(toys.Stopping(log=str(tmp_path / kind)), {"salt": 1}, kind=kind))
        (fit,) = toys.read_log(tmp_path / kind)
        assert fit["ids"] == [f"rep.{i}" for i in SPLIT.train]
        validation = {"ids": [f"rep.{i}" for i in SPLIT.validation], "y": POSITIVE[SPLIT.validation].tolist()}
        assert fit["validation"] == validation


def test_estimators_that_stop_early_are_not_calibrated_by_the_validation_labels(
    toys: ModuleType, make: Callable[..., Job]
) -> None:
    test = run_job(make(toys.Stopping(), {"salt": 5}, kind="final"))["test"]
    assert test["probability"] == pytest.approx((1 / (1 + np.exp(-np.array(test["score"])))).tolist(), rel=1e-12)


def test_probabilities_of_several_classes_are_calibrated(toys: ModuleType, make: Callable[..., Job]) -> None:
    labels = (np.arange(N) % 3).astype(np.int64)
    task = Task("t", "t", "multiclass", ("a", "b", "c"))
    test = run_job(make(Sure(), {}, kind="final", labels=labels, task=task))["test"]
    found = np.array([test[f"probability={name}"] for name in task.classes]).T
    assert found.sum(axis=1) == pytest.approx(1)
    assert (found.argmax(axis=1) == np.arange(4) % 3).all()  # no call changes
    assert (found.max(axis=1) < 0.9).all()  # from 0.99, which is right for one validation repertoire of four


def test_a_job_predicts_a_view_of_the_cohort_in_its_order(
    toys: ModuleType, make: Callable[..., Job], data: RepertoireDataset
) -> None:
    reverse = data[::-1]
    outcome = run_job(make(toys.Noise(), {}, kind="final", cohort=reverse))
    assert outcome["test"]["repertoire_id"] == ["rep.23", "rep.22", "rep.21", "rep.20"]


def test_a_container_that_was_made_anew_is_opened_anew(
    toys: ModuleType, make: Callable[..., Job], small_cohort: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    path = tmp_path / "c.h5"
    job = make(toys.Motif("CASSF"), {}, kind="final", cohort=str(path))
    small_cohort(N, path)
    assert run_job(job)["test"]["score"] == [0.5] * 4
    old = path.stat()
    path.unlink()
    small_cohort(N, path, note=["x"] * N)
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns + 1))
    from deeprc.benchmarking import jobs

    assert "note" in jobs._open_cohort(job).metadata


def test_errors_are_outcomes_of_one_line(toys: ModuleType, make: Callable[..., Job], tmp_path: Path) -> None:
    (tmp_path / "log.broken").write_text("rep.0")
    for kind in ("search", "final"):
        outcome = run_job(make(toys.Broken(log=str(tmp_path / "log")), {"salt": 1}, kind=kind))
        assert outcome == {"error": "RuntimeError: it does not work"}
    assert run_job(make(toys.Noise(), {"C": 1}))["error"].startswith("InputError: Noise: has no parameter 'C'")
    assert run_job(make(toys.Noise(), {}, cohort="no.h5"))["error"].startswith("FileNotFoundError: ")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("decision_function", [0.0, 1.0, np.nan, 2.0], "scores or probabilities of the shape (4,), found NaN"),
        ("decision_function", [0.0, 1.0, 2.0], "scores or probabilities of the shape (4,), found the shape (3,)"),
        ("decision_function", [[0.0]] * 4, "scores or probabilities of the shape (4,), found the shape (4, 1)"),
        ("decision_function", 1.0, "scores or probabilities of the shape (4,), found the shape ()"),
        ("predict_proba", [0.5] * 4, "scores or probabilities of the shape (4, 2), found the shape (4,)"),
        ("predict_proba", [[0.5, np.nan]] * 4, "scores or probabilities of the shape (4, 2), found NaN"),
        ("predict_proba", [[0.0, 1.5]] * 4, "probabilities from 0 to 1, found 0.0 to 1.5"),
        (
            "decision_path",
            [[0.0] * 4],
            "scores or probabilities of the shape (2, 4), found the shape (1, 4)",
        ),
    ],
)
def test_invalid_scores_of_an_estimator_are_an_error_of_the_job(
    name: str, value: Any, message: str, toys: ModuleType, make: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toys.PathNoise, name, lambda *_: value)
    settings = [{"salt": 1}, {"salt": 2}] if name == "decision_path" else [{}]
    kind = "final" if name == "predict_proba" else "search"
    assert run_job(make(toys.PathNoise(), *settings, kind=kind)) == {"error": f"ValueError: expected {message}"}


def test_scores_may_be_infinite(toys: ModuleType, make: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toys.Noise, "decision_function", lambda *_: [-np.inf, -np.inf, np.inf, 1e300])
    assert POSITIVE[SPLIT.validation].tolist() == [0, 0, 1, 1]
    assert run_job(make(toys.Noise(), {}))["validation"] == [{"setting": {}, "auc": 1.0}]


def test_equal_aucs_are_equal_to_the_last_bit(
    toys: ModuleType, make: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else rounding, not the order of the settings, chooses between equally good ones."""
    rng = np.random.default_rng(0)
    split = Split(np.arange(4), np.arange(4, 24), np.arange(4))
    scores = rng.integers(0, 6, (400, 20)).astype(float)
    monkeypatch.setattr(toys.PathNoise, "decision_path", lambda *_: scores)
    job = replace(make(toys.PathNoise(), *({"salt": salt} for salt in range(400))), split=split)
    found = [each["auc"] for each in run_job(job)["validation"]]
    labels = POSITIVE[split.validation]
    exact = {Fraction(naive_auc(labels, each)).limit_denominator(2 * 10 * 10) for each in scores}
    assert found[:50] == pytest.approx([naive_auc(labels, each) for each in scores[:50]], abs=1e-12)
    assert len(set(found)) == len(exact)


def test_an_interruption_is_no_outcome(toys: ModuleType, make: Callable[..., Job], tmp_path: Path) -> None:
    (tmp_path / "log.stop").write_text("0")
    with pytest.raises(KeyboardInterrupt):
        run_job(make(toys.Noise(log=str(tmp_path / "log")), {}))


def test_the_cost_is_measured(toys: ModuleType, make: Callable[..., Job]) -> None:
    outcome = run_job(make(toys.Noise(seconds=0.2), {}))
    assert 0.2 <= outcome["seconds"] < 20
    assert outcome["cpu_seconds"] >= 0
    assert 0 <= outcome["peak_memory_mb"] < 1000 or not os.path.exists("/proc/self/status")


@pytest.mark.slow
def test_the_peak_of_memory_is_that_of_the_job(toys: ModuleType, make: Callable[..., Job]) -> None:
    class Large(toys.Noise):  # type: ignore[misc, name-defined]
        def fit(self, X: RepertoireDataset, y: Any) -> Any:
            np.ones(400 << 20, np.uint8).sum()
            return super().fit(X, y)

    gc.collect()  # memory that is given back meanwhile would be taken for the job's own
    small, large, after = (run_job(make(kind(), {}))["peak_memory_mb"] for kind in (toys.Noise, Large, toys.Noise))
    if os.path.exists("/proc/self/clear_refs"):
        assert large > small + 200
        assert after < large - 200


def test_without_workers_jobs_run_in_their_order_when_asked_for(
    toys: ModuleType, make: Callable[..., Job], tmp_path: Path
) -> None:
    jobs = [make(toys.Noise(log=str(tmp_path / "log")), {"salt": salt}, key=str(salt)) for salt in (3, 1, 2)]
    ended = run_benchmark_jobs(jobs)
    assert next(ended)[0].key == "3"
    assert [each["salt"] for each in toys.read_log(tmp_path / "log")] == [3]  # none is begun before it is asked for
    assert [job.key for job, _ in ended] == ["1", "2"]
    assert list(run_benchmark_jobs([])) == list(run_benchmark_jobs([], Workers(2))) == []


def without_cost(outcome: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outcome.items() if name in ("validation", "test", "setting", "error")}


@pytest.mark.slow
def test_processes_give_the_same(
    workers: None, toys: ModuleType, make: Callable[..., Job], data: RepertoireDataset, tmp_path: Path
) -> None:
    (tmp_path / "log.broken").write_text("rep.0")
    jobs = [make(toys.Noise(), {"salt": salt}, key=f"n{salt}") for salt in range(6)]
    jobs += [make(toys.PathNoise(), *({"salt": s} for s in range(9)), key="path")]
    jobs += [make(toys.Noise(), {"salt": 1}, kind="final", key="final")]
    jobs += [make(toys.Noise(), {"salt": 1}, kind="final", key="part", cohort=data[::-1])]
    jobs += [make(toys.Broken(log=str(tmp_path / "log")), {}, key="broken")]
    here = {job.key: without_cost(outcome) for job, outcome in run_benchmark_jobs(jobs)}
    there = {job.key: without_cost(outcome) for job, outcome in run_benchmark_jobs(jobs, Workers(2))}
    assert there == here
    assert len(here) == len(jobs)
    assert here["broken"] == {"error": "RuntimeError: it does not work"}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


@pytest.mark.slow
# loky's own thread may hand out a job while the processes are being ended, and says so
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_processes_end_where_their_jobs_are_not_wanted_any_more(
    workers: None, toys: ModuleType, make: Callable[..., Job]
) -> None:
    jobs = [make(toys.Noise(seconds=0.0 if salt == 0 else 600.0), {"salt": salt}, key=str(salt)) for salt in range(4)]
    started = time.monotonic()
    with closing(run_benchmark_jobs(jobs, Workers(2))) as ended:
        assert next(ended)[0].key == "0"
        processes = [process.pid for process in get_reusable_executor(reuse=True)._processes.values()]
        assert processes
    while any(map(alive, processes)):
        assert time.monotonic() - started < 60
        time.sleep(0.05)


@pytest.mark.long
def test_a_killed_process_is_an_error_of_one_line(
    workers: None, toys: ModuleType, make: Callable[..., Job], tmp_path: Path
) -> None:
    jobs = [make(toys.Deadly(salt), {}, key=str(salt)) for salt in range(3)]
    with pytest.raises(
        InputError, match=r"^`jobs=2`: a process was killed, perhaps because memory was short;"
    ) as error:
        list(run_benchmark_jobs(jobs, Workers(2)))
    assert "\n" not in str(error.value)


def test_the_time_left_is_estimated_from_jobs_of_the_same_kind(toys: ModuleType, make: Callable[..., Job]) -> None:
    def job(method: str, kind: str) -> Job:
        return make(toys.Noise(), {}, method=method, kind=kind)

    done = [
        (job("a", "search"), {"seconds": 1.0}),
        (job("a", "search"), {"seconds": 3.0}),
        (job("a", "final"), {"seconds": 8.0}),
    ]
    search, final = ("a", "search"), ("a", "final")
    assert estimate_seconds_left([], [search], running=1) is None
    assert estimate_seconds_left(done, [], running=1) == 0
    assert estimate_seconds_left(done, [search], running=1) == 2
    assert estimate_seconds_left(done, [search, final], running=2) == 5
    assert estimate_seconds_left(done, [search], running=8) == 2  # one process does it
    assert estimate_seconds_left(done[:2], [final, search], running=1) == 2 + 2  # as long as searches of the method
    assert estimate_seconds_left(done, [("b", "search"), search], running=1) is None  # no job of b has ended


def test_the_time_left_on_a_cluster(
    toys: ModuleType, make: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers of a cluster are unknown, so the speed of this call counts; before its first job there is none."""
    clock = [100.0]
    monkeypatch.setattr("deeprc.benchmarking.jobs.time", SimpleNamespace(monotonic=lambda: clock[0]))
    job, known = ("a", "search"), [(make(toys.Noise(), {}, method="a"), {"seconds": 9.0})]
    here, cluster = RemainingTime(Workers(2)), RemainingTime(Workers(scheduler="tcp://host:1"))
    assert here.estimate(known, [job, job]) == 9
    assert cluster.estimate(known, [job, job]) is None
    clock[0] += 6
    for _ in range(3):
        cluster.count_job()
    assert cluster.estimate(known, [job, job]) == 4


def test_a_key_tells_arrays_and_objects_apart(toys: ModuleType) -> None:
    weights = np.ones(5000)
    other = weights.copy()
    other[1500] = 0
    assert digest_values(weights) == digest_values(weights.copy())
    assert (
        len({digest_values(each) for each in (weights, other, weights.astype(np.float32), weights.reshape(50, 100))})
        == 4
    )
    assert digest_values(toys.Noise(salt=1)) == digest_values(toys.Noise(salt=1)) != digest_values(toys.Noise(salt=2))
    assert digest_values(object()) == digest_values(object())  # no address in it
    assert digest_values(np.float64(0.5)) == digest_values(0.5)


def test_an_estimator_that_exits_is_a_failure(toys: ModuleType, make: Callable[..., Job]) -> None:
    class Exits(toys.Noise):  # type: ignore[misc, name-defined]
        def fit(self, X: RepertoireDataset, y: Any) -> Any:
            raise SystemExit(3)

    assert run_job(make(Exits(), {})) == {"error": "SystemExit: 3"}
