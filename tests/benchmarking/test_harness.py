import itertools
import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from joblib.externals.loky import get_reusable_executor
from sklearn.base import BaseEstimator
from sklearn.metrics import roc_auc_score

from deeprc.benchmarking import methods
from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.registry import RegisteredMethod
from deeprc.benchmarking.result import BenchmarkResult
from deeprc.calibration import choose_cutoff, fit_calibration
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.simulation import (
    Cohort,
    IndependentBackground,
    MotifSignal,
    SimulatedDataset,
    Sizes,
    write_container,
)
from deeprc.datasets.simulation import Motif as SimulatedMotif
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions, make_split
from deeprc.tasks import parse_tasks
from tests.benchmarking.test_jobs import alive

pytestmark = pytest.mark.usefixtures("no_pictures")

N_FOLDS = 4
SALTS = list(range(9))


@pytest.fixture(autouse=True)
def without_refits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the refits, so that every job is one fit; except in tests of refits and of processes, which do not know."""
    if not ("refit" in request.node.name or "processes" in request.node.name):
        monkeypatch.setattr("deeprc.benchmarking.jobs._measure_refit", lambda *_: None)


@pytest.fixture(scope="module")
def data(small_cohort: Callable[..., RepertoireDataset]) -> RepertoireDataset:
    """32 repertoires, two of which have no label, two of each patient."""
    status = [["well", "sick", "sick"][number % 3] for number in range(32)]
    return small_cohort([None, *status[1:31], None], patient_id=[f"p{number // 2}" for number in range(32)])


@pytest.fixture
def run(data: RepertoireDataset, toys: ModuleType, tmp_path: Path) -> Callable[..., BenchmarkResult]:
    """Compare methods on the cohort; `search` gives each method's entry of the preset."""

    def call(
        methods: dict[str, BaseEstimator | None] | list[str], search: dict[str, Any] | None = None, **options: Any
    ) -> BenchmarkResult:
        preset = tmp_path / "preset.yaml"
        preset.write_text(yaml.safe_dump(search or {}))
        names = {each.name for each in fields(BenchmarkOptions)} & options.keys()
        how = BenchmarkOptions(**{"preset": preset, "folds": N_FOLDS, **{name: options.pop(name) for name in names}})
        asked = {"cohort": data, "target": "status=sick", "methods": methods, **options}
        return benchmark(asked.pop("cohort"), options=how, **asked)

    return call


@pytest.fixture(scope="module")
def splits(data: RepertoireDataset) -> list[dict[str, list[str]]]:
    """The ids of the three parts of each split, without those that have no label."""
    tasks = parse_tasks(["status=sick"], data.metadata)
    sides = [
        make_split(data.metadata, tasks, SplitOptions(folds=N_FOLDS, fold=fold)).ids(data.repertoire_ids)
        for fold in range(N_FOLDS)
    ]
    return [{side: [i for i in ids if i not in ("rep.0", "rep.31")] for side, ids in each.items()} for each in sides]


@pytest.fixture(scope="module")
def sick(data: RepertoireDataset) -> dict[str, int]:
    return dict(zip(data.repertoire_ids, (data.metadata["status"] == "sick").astype(int), strict=True))


def naive_auc(labels: list[int], scores: Any) -> float:
    pairs = [
        (a > b) + (a == b) / 2
        for (x, a), (y, b) in itertools.product(zip(labels, scores, strict=True), repeat=2)
        if x > y
    ]
    return float(np.mean(pairs))


def choices(result: BenchmarkResult, method: str) -> list[Any]:
    table = result.choices[result.choices["method"] == method]
    assert table["fold"].tolist() == list(range(len(table)))
    return [json.loads(text) for text in table["settings"]]


def scores(result: BenchmarkResult, method: str) -> dict[str, float]:
    table = result.predictions[result.predictions["method"] == method]
    return dict(zip(table["repertoire_id"], table["score"], strict=True))


def assert_same(a: BenchmarkResult, b: BenchmarkResult) -> None:
    """All but the cost is equal, to the last bit."""
    for name in ("predictions", "choices"):
        pd.testing.assert_frame_equal(getattr(a, name), getattr(b, name), check_exact=True)
    assert (a.methods, a.failures, a.n_folds) == (b.methods, b.failures, b.n_folds)


@pytest.mark.slow
def test_every_labelled_repertoire_is_tested_once_by_every_method(
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    splits: list[dict[str, list[str]]],
    sick: dict[str, int],
) -> None:
    result = run({"noise": toys.Noise(), "memory": toys.Memory()}, {"noise": {"search": {"salt": SALTS}}})
    assert [each.name for each in result.methods] == ["noise", "memory"]
    assert (result.n_folds, result.failures) == (N_FOLDS, {})
    for method in ("noise", "memory"):
        table = result.predictions[result.predictions["method"] == method]
        assert sorted(table["repertoire_id"]) == sorted(f"rep.{i}" for i in range(1, 31))
        for fold, part in table.groupby("fold"):
            assert part["repertoire_id"].tolist() == splits[int(str(fold))]["test"]
        assert table["label"].tolist() == [sick[each] for each in table["repertoire_id"]]


@pytest.mark.slow
def test_the_best_setting_on_the_validation_fold_predicts_the_test_fold(
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    splits: list[dict[str, list[str]]],
    sick: dict[str, int],
) -> None:
    result = run({"noise": toys.Noise()}, {"noise": {"search": {"salt": SALTS}}})
    chosen = choices(result, "noise")
    found = scores(result, "noise")
    for fold, sides in enumerate(splits):
        assert sides["validation"] == splits[(fold + 1) % N_FOLDS]["test"]
        validation, train = sides["validation"], sides["train"]
        aucs = [naive_auc([sick[i] for i in validation], toys.noise(validation, salt)) for salt in SALTS]
        assert len(set(aucs)) > 3
        best = aucs.index(max(aucs))
        assert chosen[fold] == {"salt": SALTS[best]}
        assert result.choices["validation_auc"][fold] == pytest.approx(max(aucs), abs=1e-12)
        expected = toys.score(sides["test"], SALTS[best], train, [sick[i] for i in train])
        assert [found[i] for i in sides["test"]] == expected.tolist()
        at_validation = toys.score(validation, SALTS[best], train, [sick[i] for i in train])
        fitted = fit_calibration(at_validation, np.array([sick[i] for i in validation]) == 1)
        own = result.predictions.set_index("repertoire_id").loc[sides["test"]]
        odds = fitted.slope * expected + fitted.intercept
        np.testing.assert_allclose(own["probability"], 1 / (1 + np.exp(-odds)), rtol=1e-6)
        cutoff = choose_cutoff(fitted.slope * at_validation + fitted.intercept)  # of log-odds
        np.testing.assert_allclose(own["cutoff"], 1 / (1 + np.exp(-cutoff)), rtol=1e-6)
        called = result.metrics.set_index(["fold", "metric"])["value"]
        right = (own["probability"] >= own["cutoff"]) == [bool(sick[i]) for i in sides["test"]]
        assert called[fold, "accuracy"] == pytest.approx(right.mean())


def test_every_fit_but_the_refit_sees_the_training_part_alone(
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    splits: list[dict[str, list[str]]],
    sick: dict[str, int],
    tmp_path: Path,
) -> None:
    log = str(tmp_path / "log")
    methods = {"noise": toys.Noise(log=log), "path": toys.PathNoise(log=log), "stopping": toys.Stopping(log=log)}
    run(methods, {name: {"search": {"salt": [1, 2]}} for name in ("noise", "path")})
    every = toys.read_log(log)
    not_tested = [sorted(sides["train"] + sides["validation"], key=lambda name: int(name[4:])) for sides in splits]
    refits = [fit for fit in every if fit["ids"] in not_tested]
    assert sorted(fit["ids"] for fit in refits) == sorted(2 * not_tested)  # what stops early is not refitted
    fits = [fit for fit in every if fit not in refits]
    assert len(fits) == (3 + 2 + 1) * N_FOLDS
    for fit in fits:
        (sides,) = [each for each in splits if each["train"] == fit["ids"]]
        assert not set(sides["train"]) & (set(sides["validation"]) | set(sides["test"]))
        assert not set(sides["validation"]) & set(sides["test"])
        assert sorted(sides["train"] + sides["validation"] + sides["test"]) == sorted(f"rep.{i}" for i in range(1, 31))
        assert fit["y"] == [sick[i] for i in fit["ids"]]  # 0 and 1, whatever the classes are called
        if "validation" in fit:
            assert fit["validation"]["ids"] == sides["validation"]
            assert fit["validation"]["y"] == [sick[i] for i in sides["validation"]]


def test_an_estimator_that_memorises_the_training_part_has_auc_one_half(
    run: Callable[..., BenchmarkResult], toys: ModuleType
) -> None:
    result = run({"memory": toys.Memory()})
    assert set(result.predictions["score"]) == {0.5}
    assert result.comparison["auc_mean"].tolist() == [0.5]
    assert result.choices["validation_auc"].tolist() == [0.5] * N_FOLDS


@pytest.mark.slow
def test_labels_of_the_test_fold_do_not_change_its_predictions(
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    small_cohort: Callable[..., RepertoireDataset],
    tmp_path: Path,
) -> None:
    fold = np.arange(40) % 4
    folds = tmp_path / "folds.tsv"
    folds.write_text("repertoire_id\tfold\n" + "".join(f"rep.{i}\t{each}\n" for i, each in enumerate(fold)))
    status = np.random.default_rng(0).permutation(["sick", "well"] * 20)
    other = status.copy()
    other[fold == 2] = np.where(status[fold == 2] == "sick", "well", "sick")
    results = [
        run(
            {"noise": toys.Noise(), "path": toys.PathNoise()},
            {name: {"search": {"salt": list(range(30))}} for name in ("noise", "path")},
            cohort=small_cohort(each.tolist()),
            folds=folds,
        )
        for each in (status, other)
    ]
    for method in ("noise", "path"):
        before, after = (choices(result, method) for result in results)
        assert before[2] == after[2]
        assert before[1] != after[1]  # there it chooses the settings
        first, second = (scores(result, method) for result in results)
        same = {int(name[4:]) % 4 for name in first if first[name] == second[name]}
        assert same == {2}  # for the others it was in the training part, or chose


@pytest.mark.slow
def test_the_first_of_equally_good_settings_is_chosen(run: Callable[..., BenchmarkResult], toys: ModuleType) -> None:
    for seconds in ([0.0, 1e-9, 2e-9], [2e-9, 0.0, 1e-9]):
        result = run({"noise": toys.Noise()}, {"noise": {"search": {"seconds": seconds}}})
        assert choices(result, "noise") == [{"seconds": seconds[0]}] * N_FOLDS
    paths = {"path": {"search": {"salt": [4, 4, 2], "seconds": [1e-9, 0.0]}}}
    assert all(each["seconds"] == 1e-9 for each in choices(run({"path": toys.PathNoise()}, paths), "path"))


@pytest.mark.slow
def test_a_path_chooses_and_predicts_what_single_fits_do(
    run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path
) -> None:
    search = {"search": {"salt": {"from": 1, "to": 30}, "seconds": [0.0, 1e-9]}}
    log = {name: str(tmp_path / name) for name in ("path", "single")}
    result = run(
        {"path": toys.PathNoise(log=log["path"]), "single": toys.Noise(log=log["single"])},
        {"path": search, "single": search},
    )
    assert choices(result, "path") == choices(result, "single")
    assert scores(result, "path") == scores(result, "single")
    assert len(toys.read_log(log["single"])) == N_FOLDS * (60 + 1)
    calls = toys.read_log(log["path"])
    assert [each["what"] for each in calls].count("path") == N_FOLDS * 2
    assert [each["what"] for each in calls].count("fit") == N_FOLDS
    assert all(each["values"] == list(range(1, 31)) for each in calls if each["what"] == "path")


def test_a_long_path_of_values_is_divided_into_several_jobs(
    run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = str(tmp_path / "log")
    search = {"search": {"salt": {"from": 1, "to": 501}}}
    result = run({"path": toys.PathNoise(log=log)}, {"path": search})
    values = [each["values"] for each in toys.read_log(log) if each["what"] == "path"]
    assert sorted(map(len, values)) == [250] * (2 * N_FOLDS)  # the last value alone is one fit
    assert sum(each["what"] == "fit" for each in toys.read_log(log)) == 2 * N_FOLDS
    monkeypatch.setattr("deeprc.benchmarking.nested_plan._MAX_PATH", 501)
    assert_same(result, run({"path": toys.PathNoise()}, {"path": search}))


def test_draws_differ_between_folds_and_seeds(run: Callable[..., BenchmarkResult], toys: ModuleType) -> None:
    def drawn(seed: int) -> list[float]:
        search = {"noise": {"search": {"salt": {"log10": [-3, 3]}}, "trials": 1}}
        return [each["salt"] for each in choices(run({"noise": toys.Noise()}, search, seed=seed), "noise")]

    assert len({*drawn(0), *drawn(1)}) == 2 * N_FOLDS
    assert drawn(1) == drawn(1)


def test_estimators_get_the_seed(run: Callable[..., BenchmarkResult], toys: ModuleType) -> None:
    search = {
        "a": {"search": {"extra.x": [7]}, "fixed": {"extra": {"y": 1}}},
        "b": {"search": {"seed": [3]}},
    }
    methods = {"a": toys.Seeded(seed=99), "b": toys.Seeded()}
    result = run(methods, search, seed=5)
    seconds = {"a": [0, 5, {"y": 1, "x": 7}], "b": [0, 3, None]}
    for method, salt in seconds.items():
        found = scores(result, method)
        for fold, part in result.predictions[result.predictions["method"] == method].groupby("fold"):
            ids = part["repertoire_id"].tolist()
            differences = np.array([found[i] for i in ids]) - toys.noise(ids, salt)
            assert np.ptp(differences) < 1e-9, fold  # the rest is the share of the training part
    assert methods["a"].seed == 99


def test_an_estimator_of_a_user_is_compared_on_a_path_and_on_a_dataset(
    cohort: RepertoireDataset, toys: ModuleType
) -> None:
    result = benchmark(
        cohort.container.path, target="status", methods={"mine": toys.Motif()}, options=BenchmarkOptions(folds=3)
    )
    assert result.comparison["auc_mean"].tolist() == [1.0]
    other = benchmark(
        cohort, target="status=healthy", methods={"mine": toys.Motif()}, options=BenchmarkOptions(folds=3)
    )
    assert other.comparison["auc_mean"].tolist() == [0.0]


def test_methods_are_given_by_name_class_or_object(
    run: Callable[..., BenchmarkResult], toys: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_object = run({"Noise": toys.Noise(), "toy_methods:Memory": None})
    by_class = run(["toy_methods:Noise", "toy_methods:Memory"])
    by_text = run("toy_methods:Noise,toy_methods:Memory")  # type: ignore[arg-type]
    assert_same(by_class, by_text)
    assert [each.name for each in by_object.methods] == ["Memory", "Noise"]
    assert scores(by_object, "Noise") == scores(by_class, "Noise")


def test_equal_estimators_with_two_names_have_equal_scores(
    run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    methods = {"a": toys.Noise(), "b": toys.Noise()}
    result = run(methods, output=tmp_path / "out", progress=lambda done, total, _: told.append((done, total)))
    assert scores(result, "a") == scores(result, "b")
    assert told[-1] == (2 * N_FOLDS, 2 * N_FOLDS)
    assert result.costs.groupby("method").size().to_dict() == {"a": N_FOLDS, "b": N_FOLDS}


def test_views_in_another_order_or_of_a_part_are_compared(
    run: Callable[..., BenchmarkResult], toys: ModuleType, cohort: RepertoireDataset
) -> None:
    order = np.random.default_rng(3).permutation(30)
    for rows in (order, np.arange(30)[::-1], np.arange(2, 26)):
        result = run({"motif": toys.Motif()}, cohort=cohort[rows], target="status=case")
        assert sorted(result.predictions["repertoire_id"]) == sorted(cohort.repertoire_ids[rows])
        assert result.comparison["auc_mean"].tolist() == [1.0]


@pytest.mark.slow
def test_a_simulated_cohort_gives_the_results_of_its_container(
    run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path
) -> None:
    cohort = Cohort(20, Sizes(30), IndependentBackground(), (MotifSignal((SimulatedMotif("WWHW"),), 0.3),))
    write_container(cohort, tmp_path / "cohort.h5")
    search = {"motif": {"search": {"motif": ["WWH", "HW", "WWHW"]}}}
    virtual, written = (
        run({"motif": toys.Motif()}, search, cohort=each, target="status", folds=3, output=tmp_path / name)
        for each, name in ((SimulatedDataset(cohort), "virtual"), (open_dataset(tmp_path / "cohort.h5"), "written"))
    )
    assert_same(virtual, written)
    assert virtual.comparison["auc_mean"].tolist() == [1.0]
    again = run(
        {"motif": toys.Motif()},
        search,
        cohort=SimulatedDataset(cohort),
        target="status",
        folds=3,
        output=tmp_path / "virtual",
        resume=True,
    )
    assert_same(again, virtual)


# What a folder keeps


def task_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "tasks").rglob("*") if path.is_file())


def log_of(toys: ModuleType, path: Path) -> list[tuple[Any, ...]]:
    return [(each["what"], each["salt"], *each["ids"]) for each in toys.read_log(path)]


N_JOBS = N_FOLDS * (3 + 1) + N_FOLDS * 2
METHODS = {"noise": {"search": {"salt": [1, 2, 3]}}, "path": {"search": {"salt": {"from": 1, "to": 5}}}}


@pytest.fixture
def two(toys: ModuleType) -> Callable[[Path], dict[str, BaseEstimator]]:
    return lambda log: {"noise": toys.Noise(log=str(log)), "path": toys.PathNoise(log=str(log))}


@pytest.mark.slow
def test_a_benchmark_keeps_its_search_spaces(
    run: Callable[..., BenchmarkResult], toys: ModuleType, two: Callable[..., Any], tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    run(two(log), METHODS, output=out)
    again = run(two(log), METHODS, output=out, resume=True, preset=None)  # as it began
    assert len(log_of(toys, log)) == N_JOBS
    assert len(set(again.choices["settings"])) > 1
    with pytest.raises(InputError, match=r"holds a benchmark in which preset is .*preset\.yaml"):
        run(two(log), METHODS, output=out, resume=True, preset="quick")


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 1, 7, 11, 18, N_JOBS - 1])
def test_an_interrupted_benchmark_continues_with_the_missing_jobs(
    n: int, run: Callable[..., BenchmarkResult], toys: ModuleType, two: Callable[..., Any], tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    Path(f"{log}.stop").write_text(str(n))
    with pytest.raises(KeyboardInterrupt):
        run(two(log), METHODS, output=out)
    assert len(task_files(out)) == n
    assert len(log_of(toys, log)) == n
    Path(f"{log}.stop").unlink()
    told: list[tuple[int, int, float | None]] = []
    resumed = run(two(log), METHODS, output=out, resume=True, progress=lambda *each: told.append(each))
    assert len(task_files(out)) == len(log_of(toys, log)) == N_JOBS
    assert not [path for path in out.rglob("*") if "partial" in path.name]
    whole = run(two(tmp_path / "whole"), METHODS)
    assert_same(resumed, whole)
    assert sorted(log_of(toys, log)) == sorted(log_of(toys, tmp_path / "whole"))
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert (told[0][0], told[-1][0]) == (min(n, N_JOBS - 2 * N_FOLDS), N_JOBS)
    assert {total for _, total, _ in told} == {N_JOBS}


@pytest.mark.slow
def test_a_finished_benchmark_is_not_computed_again(
    run: Callable[..., BenchmarkResult], toys: ModuleType, two: Callable[..., Any], tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    first = run(two(log), METHODS, output=out)
    before = {path: path.stat().st_mtime_ns for path in task_files(out)}
    again = run(two(log), METHODS, output=out, resume=True)
    assert_same(first, again)
    pd.testing.assert_frame_equal(first.costs, again.costs)  # what it took then
    assert len(log_of(toys, log)) == N_JOBS
    assert {path: path.stat().st_mtime_ns for path in task_files(out)} == before


@pytest.mark.slow
def test_a_lost_or_damaged_file_is_computed_again_alone(
    run: Callable[..., BenchmarkResult], toys: ModuleType, two: Callable[..., Any], tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    first = run(two(log), METHODS, output=out)
    files = task_files(out)
    files[0].unlink()
    files[3].write_bytes(files[3].read_bytes()[:40])
    files[5].write_text("{}")
    left = files[9].with_name(f".{files[9].name}.abcdefgh.tmp")  # by a process that was killed
    left.mkdir()
    (left / ".lock").touch()
    files[9].rename(left / files[9].name)
    again = run(two(log), METHODS, output=out, resume=True)
    assert_same(first, again)
    assert len(log_of(toys, log)) == N_JOBS + 4
    assert set(log_of(toys, log)[N_JOBS:]) < set(log_of(toys, log)[:N_JOBS])
    assert task_files(out) == files


@pytest.mark.slow
def test_another_method_adds_its_own_jobs_only(
    run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path
) -> None:
    log, other, out = str(tmp_path / "log"), str(tmp_path / "other"), tmp_path / "out"
    search = {name: {"fixed": {"log": path}} for name, path in (("toy_methods:Noise", log), ("more", other))}
    noise, more = "toy_methods:Noise", "more=toy_methods:Seeded"
    first = run([noise], {noise: search[noise]}, output=out)
    both = run([noise, more], search, output=out, resume=True)
    assert [each.name for each in both.methods] == ["Noise", "more"]
    assert scores(both, "Noise") == scores(first, "Noise")
    assert (len(toys.read_log(log)), len(toys.read_log(other))) == (N_FOLDS, N_FOLDS)
    mine = run({noise: None, more: None, "mine": toys.Memory()}, search, output=out, resume=True)
    assert [each.name for each in mine.methods] == ["Noise", "more", "mine"]
    assert (len(toys.read_log(log)), len(toys.read_log(other))) == (N_FOLDS, N_FOLDS)
    header = yaml.safe_load((out / "benchmark.yaml").read_text())
    assert list(header["methods"]) == ["Noise", "more", "mine"]
    assert header["asked"] == [noise, more]
    for names in (["more"], [noise], {"mine": toys.Memory()}):
        with pytest.raises(InputError, match="code is run only where the call names it: give it again"):
            run(names, search, output=out, resume=True)


@pytest.mark.slow
def test_another_search_computes_what_is_new(
    run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    run({"noise": toys.Noise(log=str(log))}, {"noise": {"search": {"salt": [1, 2]}}}, output=out)
    n = len(log_of(toys, log))
    more = {"noise": {"search": {"salt": [2, 1, 50]}}}
    resumed = run({"noise": toys.Noise(log=str(log))}, more, output=out, resume=True)
    new = log_of(toys, log)[n:]
    assert sum(salt == 50 for _, salt, *_ in new) >= N_FOLDS
    assert len(set(log_of(toys, log)[:n])) == 2 * N_FOLDS  # the final fits are of known settings
    assert_same(resumed, run({"noise": toys.Noise()}, more))


def test_the_header_records_what_was_run(
    run: Callable[..., BenchmarkResult], toys: ModuleType, data: RepertoireDataset, tmp_path: Path
) -> None:
    search = {"noise": {"search": {"salt": [1, 2], "seconds": {"log10": [-9, -8]}}, "trials": 3, "label": "Loud"}}
    run({"noise": toys.Noise()}, search, output=tmp_path / "out", seed=4)
    header = yaml.safe_load((tmp_path / "out" / "benchmark.yaml").read_text())
    expected = {
        "target": "status=sick",
        "group_by": None,
        "seed": 4,
        "classes": ["well", "sick"],
        "cohort": str(data.container.path),
        "n_repertoires": 30,
        "n_positive": 20,
        "n_folds": N_FOLDS,
    }
    assert {name: header[name] for name in expected} == expected
    assert header["methods"]["noise"] == {
        "label": "Loud",
        "kind": "method",
        "estimator": "toy_methods:Noise",
        "fixed": {"log": None, "salt": 0, "seconds": 0.0},
        "search": {"salt": [1, 2], "seconds": {"log10": [-9, -8]}},
        "trials": 3,
    }


def test_a_folder_of_a_benchmark_with_other_options_is_refused(
    run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path
) -> None:
    run({"noise": toys.Noise()}, output=tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    others: list[tuple[dict[str, Any], str]] = [
        ({"seed": 1}, "in which seed is 0;"),
        ({"folds": 3}, "in which the number of folds is 4;"),
        ({"target": "status=well"}, "in which target is 'status=sick';"),
        ({"group_by": "patient_id"}, "in which group_by is None;"),
        ({"resume": False}, "exists already; continue it with `resume`, or choose another `output`"),
    ]
    for options, message in others:
        with pytest.raises(InputError, match=message):
            run({"noise": toys.Noise(salt=2)}, output=tmp_path / "out", **{"resume": True, **options})
        assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    (tmp_path / "out" / "mine").symlink_to(tmp_path)
    with pytest.raises(InputError, match="out/mine: is a link that leads out of "):
        run({"noise": toys.Noise()}, output=tmp_path / "out", resume=True)


@pytest.mark.slow
def test_a_folder_is_not_used_for_another_cohort(
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    data: RepertoireDataset,
    cohort_factory: Callable[..., RepertoireDataset],
    tmp_path: Path,
) -> None:
    shutil.copy(data.container.path, tmp_path / "copy.h5")
    first = run({"noise": toys.Noise()}, output=tmp_path / "out")
    moved = run({"noise": toys.Noise()}, output=tmp_path / "out", resume=True, cohort=tmp_path / "copy.h5")
    assert_same(first, moved)
    options = {"cohort": cohort_factory(32, 5), "target": "status=case"}
    run({"noise": toys.Noise()}, output=tmp_path / "other", **options)
    with pytest.raises(InputError, match="in which the cohort's content is another one"):
        run({"noise": toys.Noise()}, output=tmp_path / "other", resume=True, target="status=case",
            cohort=cohort_factory(32, 5, 1))  # fmt: skip
    with pytest.raises(InputError, match="in which the cohort's content is another one"):
        run({"noise": toys.Noise()}, output=tmp_path / "out", resume=True, cohort=data[:30])


@pytest.mark.slow
def test_other_labels_are_computed_anew(
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    small_cohort: Callable[..., RepertoireDataset],
    tmp_path: Path,
) -> None:
    folds = tmp_path / "folds.tsv"
    folds.write_text("repertoire_id\tfold\n" + "".join(f"rep.{i}\t{i // 2 % 3}\n" for i in range(24)))
    log = str(tmp_path / "log")
    for status in (["sick", "well"] * 12, ["well", "sick"] * 12):
        cohort = small_cohort(status)
        result = run({"noise": toys.Noise(log=log)}, cohort=cohort, folds=folds, output=tmp_path / "o", resume=True)
        assert "folds_file: true" in (tmp_path / "o" / "benchmark.yaml").read_text()
        expected = (cohort.metadata["status"] == "sick").astype(int)
        found = result.predictions.set_index("repertoire_id")["label"]
        assert [found[i] for i in cohort.repertoire_ids] == expected.tolist()
    assert len(toys.read_log(log)) == 6


# What goes wrong


@pytest.mark.slow
def test_a_method_that_fails_in_one_fold_stops_nothing(
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    splits: list[dict[str, list[str]]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    held_out = splits[1]["test"] + splits[1]["validation"]
    Path(f"{log}.broken").write_text(" ".join(held_out))
    search = {name: {"search": {"salt": [1, 2]}} for name in ("broken", "noise")}
    methods = {"broken": toys.Broken(log=str(log)), "noise": toys.Noise(log=str(log))}
    with caplog.at_level(logging.WARNING):
        result = run(methods, search, output=out)
    assert result.failures == {"broken": "fold 1: RuntimeError: it does not work"}
    assert "broken failed: fold 1: RuntimeError: it does not work" in caplog.text
    folds = result.predictions.groupby("method")["fold"].unique()
    assert {name: sorted(each) for name, each in folds.items()} == {"broken": [0, 2, 3], "noise": [0, 1, 2, 3]}
    assert result.choices.groupby("method").size().to_dict() == {"broken": 3, "noise": 4}
    n = len(log_of(toys, log))
    still = run(methods, search, output=out, resume=True)
    assert still.failures == result.failures
    assert len(log_of(toys, log)) == n
    Path(f"{log}.broken").unlink()
    mended = run(methods, search, output=out, resume=True)
    assert mended.failures == {}
    assert len(log_of(toys, log)) == n + 3
    assert_same(mended, run(methods, search))


def test_a_method_that_always_fails_is_named_and_has_no_results(
    run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path
) -> None:
    result = run({"a": toys.Unprepared(), "b": toys.Memory()})
    assert result.failures == {"a": "fold 0: RuntimeError: cannot be prepared"}
    assert set(result.predictions["method"]) == {"b"}
    alone = run({"a": toys.Unprepared()}, output=tmp_path / "out")
    assert len(alone.predictions) == len(alone.choices) == len(alone.costs) == 0
    assert list(alone.predictions) == ["method", "fold", "repertoire_id", "label", "score", "probability", "cutoff"]


def test_a_method_without_a_score_for_one_repertoire_fails_in_its_fold(
    run: Callable[..., BenchmarkResult], toys: ModuleType, splits: list[dict[str, list[str]]], tmp_path: Path
) -> None:
    class Hole(toys.Noise):  # type: ignore[misc, name-defined]
        def decision_function(self, X: RepertoireDataset) -> Any:
            return np.where(X.repertoire_ids == splits[2]["test"][0], np.nan, super().decision_function(X))

    result = run({"hole": Hole(), "noise": toys.Noise()}, output=tmp_path / "out")
    assert list(result.failures) == ["hole"]
    assert "found NaN" in result.failures["hole"]
    tested = result.predictions.groupby("method")["fold"].unique()
    assert sorted(tested["hole"]) == [0, 3]  # in fold 1 it is in the validation side
    assert sorted(tested["noise"]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "grade"}, r"'grade' has 4 classes \(a \(6\), b \(6\), c \(6\), d \(6\)\); say 'grade=CLASS'"),
        ({"target": "age:regression"}, "^method 'noise': it is not a regressor; 'age' is a number$"),
        ({"target": "status=sick@0.5"}, "^`target='status=sick@0.5'`: a benchmark has one target, so a weight"),
        ({"target": "CMV"}, "no metadata column 'CMV' for `target='CMV'`"),
        ({"target": "status=ill"}, r"no class 'ill'; its classes: sick \(12\), well \(12\)"),
        ({"folds": 2}, "^`folds=2`: expected at least 3$"),
        ({"folds": 13}, "the smallest class has 12 repertoires; expected at least 13"),
        ({"folds": "no.tsv"}, "^no.tsv: no such file; expected a table of folds"),
        ({"group_by": "donor"}, "no column 'donor' for `group_by`"),
        ({"group_by": "status"}, "`group_by` makes 2 groups; expected at least `folds=4`"),
        ({"group_by": "site"}, "fold [0-3] has one class of 'status=sick' only; try fewer `folds`, another `seed`"),
        ({"group_by": "site", "folds": "{folds}"}, "^`group_by`: cannot be combined with a file of folds"),
        ({"folds": "{one_class}"}, "fold 2 has one class of 'status=sick' only; try"),
        ({"folds": "{unlabelled}"}, "fold 2 has one class of 'half' only; try", ),
        ({"folds": "{unknown}"}, "row 2: the cohort has no repertoire 'rep.99'"),
        ({"seed": -1}, "^`seed=-1`: expected 0 to"),
        ({"jobs": 0}, "^`jobs=0`: expected at least 1$"),
        ({"methods": ["svn"]}, r"^no method 'svn'\."),
        ({"methods": []}, "^no method was given; expected `methods` with some of: deeprc, "),
        ({"methods": {"mine": None}}, r"^no method 'mine'\."),
        ({"preset": "fast"}, "^`preset=fast`: neither a file nor one of paper, quick$"),
        ({"cohort": "{no}"}, "no.h5: no such file"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "^`scheduler=tcp://127.0.0.1:1`: "),
    ],
)  # fmt: skip
def test_invalid_options_get_one_line_and_write_nothing(
    options: dict[str, Any],
    message: str,
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    small_cohort: Callable[..., RepertoireDataset],
    tmp_path: Path,
) -> None:
    number = np.arange(24)
    half = np.where(number < 12, np.where(number % 2, "no", "yes"), None)
    cohort = small_cohort(
        24,
        grade=list("abcd") * 6,
        age=number * 1.5,
        half=half,
        site=np.where(number % 2, 10, 0) + number // 8,
    )
    folds = {
        "folds": number % 4,
        "one_class": np.where(number % 2, np.arange(24) // 2 % 2, number // 2 % 3),
        "unlabelled": np.where(number < 12, number // 2 % 2, 2),
    }
    places = {name: tmp_path / f"{name}.tsv" for name in (*folds, "unknown")} | {"no": tmp_path / "no.h5"}
    for name, each in folds.items():
        rows = "".join(f"rep.{i}\t{fold}\n" for i, fold in enumerate(each))
        places[name].write_text("repertoire_id\tfold\n" + rows)
    places["unknown"].write_text("repertoire_id\tfold\nrep.99\t0\n")
    options = {k: v.format(**places) if isinstance(v, str) else v for k, v in options.items()}
    if "unlabelled" in str(options.get("folds")):
        options["target"] = "half"
    before = sorted(tmp_path.iterdir())
    methods = options.pop("methods", {"noise": toys.Noise()})
    with pytest.raises(InputError, match=message) as error:
        run(methods, **{"cohort": cohort, "output": tmp_path / "out", **options})
    assert "\n" not in str(error.value)
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "preset.yaml"] == before


def test_folds_from_a_file_are_used(
    run: Callable[..., BenchmarkResult], toys: ModuleType, data: RepertoireDataset, tmp_path: Path
) -> None:
    fold = {f"rep.{i}": i // 3 % 3 for i in range(30) if i != 7}  # rep.0 has no label, rep.30 and rep.7 are not listed
    path = tmp_path / "folds.tsv"
    path.write_text("fold\trepertoire_id\n" + "".join(f"{each}\t{name}\n" for name, each in fold.items()))
    log = str(tmp_path / "log")
    result = run({"noise": toys.Noise(log=log)}, folds=path)
    assert result.n_folds == 3
    tested = dict(zip(result.predictions["repertoire_id"], result.predictions["fold"], strict=True))
    assert tested == {name: each for name, each in fold.items() if name != "rep.0"}
    assert [set(fit["ids"]) for fit in toys.read_log(log)] == [
        {name for name in tested if tested[name] == (each + 2) % 3} for each in range(3)
    ]
    assert_same(result, run({"noise": toys.Noise(log=log)}, folds=str(path)))


def test_groups_are_kept_together(
    run: Callable[..., BenchmarkResult], toys: ModuleType, data: RepertoireDataset, caplog: pytest.LogCaptureFixture
) -> None:
    patient = dict(zip(data.repertoire_ids, data.metadata["patient_id"], strict=True))

    def n_apart(result: BenchmarkResult) -> int:
        of_patient = result.predictions["repertoire_id"].map(patient)
        return sum(len(set(folds)) > 1 for _, folds in result.predictions["fold"].groupby(of_patient))

    with caplog.at_level(logging.WARNING):
        assert n_apart(run({"memory": toys.Memory()}, group_by="patient_id")) == 0
    assert "in more than one fold" not in caplog.text
    with caplog.at_level(logging.WARNING):
        apart = n_apart(run({"memory": toys.Memory()}))
    assert apart > 5
    assert f"{apart} values of 'patient_id' have repertoires in more than one fold: what was learned" in caplog.text
    assert "Use `group_by='patient_id'`." in caplog.text


def test_the_subjects_of_the_sheet_are_donors(
    run: Callable[..., BenchmarkResult], toys: ModuleType, data: RepertoireDataset
) -> None:
    """Also where folds do not keep them together."""
    donors = run({"noise": toys.Noise()}).donors
    assert donors is not None
    patients = dict(zip(data.repertoire_ids, data.metadata["patient_id"], strict=True))
    assert set(donors) == set(patients)
    for first, second in itertools.combinations(donors, 2):
        assert (donors[first] == donors[second]) == (patients[first] == patients[second])


def test_all_methods_leave_out_those_that_the_cohort_does_not_allow(
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    classes = {"moon": "NeedsMore", "noise": "Noise"}
    known = {name: RegisteredMethod(name, f"toy_methods:{kind}") for name, kind in classes.items()}
    monkeypatch.setattr(methods, "METHODS", known)
    with caplog.at_level(logging.WARNING):
        result = run(["all"], {})
    assert [each.name for each in result.methods] == ["noise"]
    assert "moon is left out: needs the moon's phase" in caplog.text


# Cost and progress


@pytest.mark.slow
def test_tables_of_members_agree_with_the_fitted_stacks(
    run: Callable[..., BenchmarkResult], data: RepertoireDataset, tmp_path: Path
) -> None:
    """Both tables agree with the stack that is fitted to the training part of each fold."""
    folder = tmp_path / "out"
    result = run(["stack", "diversity"], {"stack": {"fixed": {"members": ["logistic", "diversity"]}}}, output=folder)
    assert result.failures == {}
    assert set(result.members["method"]) == {"stack"}
    members = pd.read_csv(folder / "members.tsv", sep="\t")
    assert list(members) == ["method", "fold", "member", "auc", "weight", "share", "intercept"]
    assert members["member"].tolist() == ["logistic", "diversity"] * N_FOLDS
    added = pd.read_csv(folder / "contributions.tsv", sep="\t").groupby(["fold", "repertoire_id"])["contribution"].sum()
    score = result.predictions[result.predictions["method"] == "stack"].set_index(["fold", "repertoire_id"])["score"]
    intercept = members.drop_duplicates("fold").set_index("fold")["intercept"]
    np.testing.assert_allclose(score - added, intercept.reindex(added.index.get_level_values("fold")), atol=1e-9)
    share = members.groupby("member")["share"].mean()
    lines = result.table.split("## How much each member counts\n\n")[1].split("\n")
    assert f"logistic {share['logistic']:.0%} (AUC " in lines[0]
    assert lines[0].startswith("- Stack: ")


def test_each_job_has_a_cost_and_is_reported_as_progress(run: Callable[..., BenchmarkResult], toys: ModuleType) -> None:
    told: list[tuple[int, int, float | None]] = []
    methods = {"noise": toys.Noise(seconds=0.01), "path": toys.PathNoise()}
    result = run(methods, METHODS, progress=lambda *each: told.append(each))
    counts = result.costs.groupby(["method", "task"]).size().to_dict()
    assert counts == {
        ("noise", "search"): 3 * N_FOLDS,
        ("noise", "final"): N_FOLDS,
        ("path", "search"): N_FOLDS,
        ("path", "final"): N_FOLDS,
    }
    assert (result.costs.loc[result.costs["method"] == "noise", "seconds"] >= 0.01).all()
    assert [done for done, _, _ in told] == [*range(4 * N_FOLDS + 1), *range(4 * N_FOLDS, N_JOBS + 1)]
    assert {total for _, total, _ in told} == {N_JOBS}
    is_path_unknown = [left is None for _, _, left in told]
    assert is_path_unknown == [True] * 2 + [False] * (len(told) - 2)  # a job of each method comes first
    assert told[-1][2] == 0
    noise_left = (3 * N_FOLDS - 1) * 0.01 + N_FOLDS * 0.01  # all searches but one, and the final jobs
    assert (told[2][2] or 0) >= noise_left


def test_one_process_does_not_prepare_the_cohort_first(
    run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path
) -> None:
    log = str(tmp_path / "log")
    run({"prepared": toys.Prepared(log=log)})
    assert [each["what"] for each in toys.read_log(log)] == ["fit"] * N_FOLDS


@pytest.mark.slow
def test_several_processes_give_the_results_of_one(
    workers: None,
    run: Callable[..., BenchmarkResult],
    toys: ModuleType,
    data: RepertoireDataset,
    splits: list[dict[str, list[str]]],
    tmp_path: Path,
) -> None:
    log, broken = tmp_path / "log", tmp_path / "broken"
    Path(f"{broken}.broken").write_text(" ".join(splits[1]["test"] + splits[1]["validation"]))
    methods = {
        "noise": toys.Noise(),
        "path": toys.PathNoise(),
        "prepared": toys.Prepared(log=str(log)),
        "broken": toys.Broken(log=str(broken)),
        "unprepared": toys.Unprepared(),
    }
    search = {**METHODS, "prepared": {"search": {"salt": [1, 2]}}}
    here = run(methods, search)
    log.unlink()
    there = run(methods, search, jobs=2, output=tmp_path / "out")
    assert_same(here, there)
    assert set(there.failures) == {"broken", "unprepared"}
    prepared = [each for each in toys.read_log(log) if each["what"] == "prepare"]
    assert [each["salt"] for each in prepared[:2]] == [1, 2]  # before anything is run, for all repertoires
    assert all(each["ids"] == data.repertoire_ids.tolist() for each in prepared)
    log.unlink()
    again = run(methods, search, jobs=2, output=tmp_path / "out", resume=True)
    assert_same(here, again)
    assert not log.exists()


@pytest.mark.slow
def test_several_processes_give_the_results_of_one_for_simulated_cohorts_and_views(
    workers: None, run: Callable[..., BenchmarkResult], toys: ModuleType, cohort: RepertoireDataset
) -> None:
    simulated = Cohort(20, Sizes(30), IndependentBackground(), (MotifSignal((SimulatedMotif("WWHW"),), 0.3),))
    order = np.random.default_rng(3).permutation(30)[:24]
    for each, target in ((SimulatedDataset(simulated), "status"), (cohort[order], "status=case")):
        here, there = (run({"m": toys.Motif()}, cohort=each, target=target, folds=3, jobs=n) for n in (1, 2))
        assert_same(here, there)
        assert here.comparison["auc_mean"].tolist() == [1.0]


@pytest.mark.long
def test_an_interruption_ends_the_processes(
    workers: None, run: Callable[..., BenchmarkResult], toys: ModuleType, tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    methods = {"noise": toys.Noise(log=str(log)), "path": toys.PathNoise(log=str(log))}
    processes: list[Any] = []

    def interrupt(done: int, _: int, __: float | None) -> None:
        if done == 5:
            processes.extend(get_reusable_executor(reuse=True)._processes.values())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(methods, METHODS, output=out, jobs=2, progress=interrupt)
    assert len(processes) == 2
    until = time.monotonic() + 30
    while any(alive(process.pid) for process in processes):  # exit codes are loky's: it may have waited for them
        assert time.monotonic() < until
        time.sleep(0.05)
    assert len(task_files(out)) == 5
    resumed = run(methods, METHODS, output=out, resume=True)
    whole = {name: type(each)(log=str(tmp_path / "whole")) for name, each in methods.items()}
    assert_same(resumed, run(whole, METHODS))
    assert set(log_of(toys, log)) == set(log_of(toys, tmp_path / "whole"))


def test_aucs_of_the_table_are_those_of_the_predictions(run: Callable[..., BenchmarkResult], toys: ModuleType) -> None:
    result = run({"noise": toys.Noise()}, {"noise": {"search": {"salt": SALTS}}})
    each = [roc_auc_score(part["label"], part["score"]) for _, part in result.predictions.groupby("fold")]
    assert result.comparison["auc_mean"].tolist() == [pytest.approx(np.mean(each))]


def test_estimators_get_the_donors_of_both_sides(
    run: Callable[..., BenchmarkResult], toys: ModuleType, data: RepertoireDataset, tmp_path: Path
) -> None:
    patient = dict(zip(data.repertoire_ids, data.metadata["patient_id"], strict=True))
    log = str(tmp_path / "log")
    run({"grouped": toys.Grouped(log=log)}, group_by="patient_id")
    fits = toys.read_log(log)
    assert len(fits) == 4
    for fit in fits:
        pairs = {(patient[name], group) for name, group in zip(fit["ids"], fit["groups"], strict=True)}
        assert len(pairs) == len({group for _, group in pairs}) == len({name for name, _ in pairs})
        assert fit["groups_validation"]
        assert not set(fit["groups"]) & set(fit["groups_validation"])
    run({"grouped": toys.Grouped(log=f"{log}.alone")})
    assert {(fit["groups"], fit["groups_validation"]) for fit in toys.read_log(f"{log}.alone")} == {(None, None)}
