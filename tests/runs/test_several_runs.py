"""Several runs of one cohort: trained here one after the other, by processes, or by the workers of a Dask cluster."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file
from torch import Tensor

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.relabelling import relabel
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.jobs import Workers
from deeprc.runs.cross_validation import cross_validate
from deeprc.runs.experiment import train_run
from deeprc.runs.file_digests import find_foreign_files
from deeprc.runs.several_runs import RunOptions, RunPlan, plan_left_out, plan_validations, train_runs
from deeprc.training.state import TrainingState
from tests.conftest import Killed
from tests.toys.repertoires import make_sequences, write_repertoires

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

SETTINGS = ["n_updates=20", "evaluate_every=10", "n_kernels=6", "kernel_size=4", "n_sequences=40"]
SMALL = load_config("deeprc", [*SETTINGS, "composition=false"])  # which takes half of the time
OPTIONS = RunOptions(targets=("status=case",), config=SMALL, device="cpu")
RESULTS = ("config.yaml", "splits.json", "metrics.json", "predictions.tsv", "clones.tsv", "seeds.tsv")


@pytest.fixture
def train(cohort: RepertoireDataset) -> Callable[..., list[Path]]:
    def call(output: Path, **options: Any) -> list[Path]:
        seed = options.pop("seed", 0)
        folds = options.pop("folds", range(3))
        plans = {f"fold-{fold}": RunPlan(SplitOptions(folds=3, fold=fold), seed) for fold in folds}
        call_options = {name: options.pop(name) for name in ("workers", "progress", "begin") if name in options}
        return train_runs(cohort.container.path, output, plans, replace(OPTIONS, **options), **call_options)

    return call


@pytest.fixture(scope="module")
def alone(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What `train_run` writes for each fold."""
    folder = tmp_path_factory.mktemp("alone")
    for fold in range(3):
        split = SplitOptions(folds=3, fold=fold)
        options = {"targets": "status=case", "config": SMALL, "device": "cpu"}
        train_run(cohort.container.path, folder / str(fold), split=split, **options)
    return [contents(folder / str(fold)) for fold in range(3)]


def contents(run: Path) -> dict[str, str]:
    """Return digests of what a run holds; the history without its times, the weights without the file's header."""
    assert not (run / "checkpoint").exists()
    found = {name: (run / name).read_bytes() for name in RESULTS}
    history = pd.read_csv(run / "history.tsv", sep="\t").drop(columns="seconds")
    found["history"] = history.to_csv().encode()
    found |= {name: value.numpy().tobytes() for name, value in load_file(run / "model.safetensors").items()}
    return {name: hashlib.sha256(value).hexdigest() for name, value in found.items()}


def check_alike(run: Path, single: Path) -> None:
    """Compare two runs whose weights may differ in the last bits, because of another number of threads."""
    assert (run / "splits.json").read_bytes() == (single / "splits.json").read_bytes()
    there, here = (pd.read_csv(each / "predictions.tsv", sep="\t") for each in (run, single))
    columns = ["repertoire_id", "split", "target", "label"]
    pd.testing.assert_frame_equal(there[columns], here[columns])
    np.testing.assert_allclose(there["probability"], here["probability"], atol=1e-3)


def test_runs_that_validate_on_each_fold() -> None:
    assert plan_validations(folds=3, fold=1, seed=4, group_by="donor") == {
        f"validation-{v}": RunPlan(SplitOptions(folds=3, fold=1, validation_fold=v, group_by="donor"), 4)
        for v in (0, 2)
    }
    assert len(plan_validations(folds=3, test="batch=2")) == 3
    with pytest.raises(InputError, match=r"^`folds=2` `fold=0`: expected 3 to 100,000 folds and a fold"):
        plan_validations(folds=2)


def test_several_runs_are_those_of_single_calls(
    train: Callable[..., list[Path]],
    alone: list[dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    with caplog.at_level("INFO"):
        runs = train(Path("runs"))
    assert caplog.text.count("positive is 'case'") == 1  # what is so for all runs is said once
    assert caplog.text.count("has ended") == 3
    assert caplog.messages.count("3 of 3 runs: Branches used: only the attention. Not used: clones.") == 1
    assert caplog.text.count("Branches used") == 1
    assert runs == [Path("runs") / f"fold-{fold}" for fold in range(3)]
    assert [contents(run) for run in runs] == alone


def test_the_same_call_continues(
    train: Callable[..., list[Path]],
    alone: list[dict[str, str]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    updates: list[int] = []

    def kill_in_the_second(state: TrainingState, loss: Tensor) -> None:
        updates.append(state.update)
        if updates.count(15) == 2:
            raise Killed

    with pytest.raises(Killed):
        train(tmp_path / "runs", progress=kill_in_the_second)
    ended = contents(tmp_path / "runs" / "fold-0")
    assert ended == alone[0]
    assert (tmp_path / "runs" / "fold-1" / "checkpoint").exists()
    assert not (tmp_path / "runs" / "fold-2").exists()
    with pytest.raises(InputError, match=r"fold-0: was started with a different `seed`; choose another `output`$"):
        train(tmp_path / "runs", seed=1)
    with pytest.raises(
        InputError, match=r"fold-0: was started with other settings \(.*n_updates.*\); give the same, or"
    ):
        train(tmp_path / "runs", config=load_config("deeprc", ["n_updates=30"]))
    stamp = (tmp_path / "runs" / "fold-0" / "metrics.json").stat().st_mtime_ns
    caplog.clear()
    with caplog.at_level("INFO"):
        runs = train(tmp_path / "runs")
    assert "1 of 3 runs were finished already" in caplog.messages
    assert [text for text in caplog.messages if "has ended" in text] == [
        f"fold-{fold} has ended ({fold + 1} of 3 runs)" for fold in (1, 2)
    ]
    assert [contents(run) for run in runs] == alone
    assert (tmp_path / "runs" / "fold-0" / "metrics.json").stat().st_mtime_ns == stamp
    caplog.clear()
    with caplog.at_level("INFO"):
        train(tmp_path / "runs")
    assert "3 of 3 runs were finished already" in caplog.messages
    assert "has ended" not in caplog.text


def test_a_cohort_that_has_changed_is_refused(
    cohort: RepertoireDataset, cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    path = tmp_path / "cohort.h5"
    shutil.copy(cohort.container.path, path)
    plans = {"fold-0": RunPlan(SplitOptions(folds=3))}
    train_runs(path, tmp_path / "runs", plans, OPTIONS)
    shutil.copy(cohort_factory(seed=5).container.path, path)
    with pytest.raises(
        InputError, match=r"cohort.h5: its repertoires or labels have changed since .*fold-0 was started"
    ):
        train_runs(path, tmp_path / "runs", plans, OPTIONS)
    moved = shutil.copy(cohort.container.path, tmp_path / "moved.h5")
    assert train_runs(moved, tmp_path / "runs", plans, OPTIONS) == [tmp_path / "runs" / "fold-0"]


def test_a_cohort_that_is_replaced_while_runs_are_trained_is_refused(
    cohort: RepertoireDataset, cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    """The second run learns from the new file: it may not predict, or be compared, with the first one."""
    path, other = tmp_path / "cohort.h5", tmp_path / "other.h5"
    shutil.copy(cohort.container.path, path)
    shutil.copy(cohort_factory(seed=5).container.path, other)

    def exchange(state: TrainingState, loss: Tensor) -> None:
        if state.update == 20 and other.exists():
            other.replace(path)

    plans = {f"fold-{fold}": RunPlan(SplitOptions(folds=3, fold=fold)) for fold in range(3)}
    with pytest.raises(InputError, match=r"cohort.h5: its repertoires or labels have changed .*fold-1 learned from"):
        train_runs(path, tmp_path / "runs", plans, OPTIONS, progress=exchange)
    assert not (tmp_path / "runs" / "fold-2").exists()


def test_runs_with_another_abundance_are_not_continued(cohort: RepertoireDataset, tmp_path: Path) -> None:
    """`abundance=log` continues runs in which it became `none`, but not those with `log1p`."""

    def train_with(abundance: str) -> None:
        network = replace(SMALL.network, abundance=abundance)
        plans = {"fold-0": RunPlan(SplitOptions(folds=3))}
        options = replace(OPTIONS, config=replace(SMALL, network=network))
        train_runs(cohort.container.path, tmp_path / "runs", plans, options)

    train_with("log1p")
    with pytest.raises(InputError, match=r"fold-0: was started with other settings \(abundance\)"):
        train_with("log")


@pytest.mark.long
def test_processes_train_the_same(train: Callable[..., list[Path]], tmp_path: Path, workers: None) -> None:
    for run, single in zip(train(tmp_path / "runs", workers=Workers(2)), train(tmp_path / "here"), strict=True):
        check_alike(run, single)


@pytest.mark.parametrize("name", ["metrics.json", "predictions.tsv", "history.tsv", "model.safetensors"])
def test_a_finished_run_that_is_damaged_is_told(
    train: Callable[..., list[Path]], alone: list[dict[str, str]], tmp_path: Path, name: str
) -> None:
    (run,) = train(tmp_path / "runs", folds=[0])
    content = (run / name).read_bytes()
    (run / name).unlink()
    if name == "metrics.json":  # without it, a run has not ended
        (run / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=rf"{name}: .*; delete .*metrics\.json, and the same call trains this run"):
        train(tmp_path / "runs", folds=[0])
    (run / "metrics.json").unlink()
    train(tmp_path / "runs", folds=[0])
    assert contents(run) == alone[0]


def test_a_finished_run_with_a_file_of_another_run_is_told(train: Callable[..., list[Path]], tmp_path: Path) -> None:
    first, second = train(tmp_path / "runs", folds=range(2))
    shutil.copy(first / "model.safetensors", second / "model.safetensors")
    told = r"runs/fold-1: these files are not as this run wrote them \(.*\): model.safetensors; delete "
    with pytest.raises(InputError, match=told):
        train(tmp_path / "runs", folds=range(2))
    (second / "metrics.json").unlink()
    train(tmp_path / "runs", folds=range(2))
    assert find_foreign_files(second) == []


def test_a_folder_of_something_else_is_left_alone(train: Callable[..., list[Path]], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"exists already; choose another `output`$"):
        train(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_finished_runs_need_no_cluster(
    train: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = train(tmp_path / "runs", folds=[0])

    def fail(*_: object, **__: object) -> None:
        raise InputError("no cluster is needed")

    monkeypatch.setattr("deeprc.runs.several_runs.check_scheduler", lambda _: None)
    monkeypatch.setattr("deeprc.runs.several_runs.run_jobs", fail)
    assert train(tmp_path / "runs", folds=[0], workers=Workers(scheduler="tcp://127.0.0.1:1")) == runs


def test_a_start_that_was_killed_is_no_obstacle(
    train: Callable[..., list[Path]], alone: list[dict[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "runs" / ".fold-0.abc.tmp").mkdir(parents=True)
    (run,) = train(tmp_path / "runs", folds=[0])
    assert contents(run) == alone[0]


def test_a_failure_names_the_run(
    train: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InputError("no memory")

    monkeypatch.setattr("deeprc.runs.several_runs.train_run", fail)
    with pytest.raises(InputError, match=r"^fold-0: no memory"):
        train(tmp_path / "runs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ("height",)}, "no metadata column 'height'"),
        ({"device": "abacus"}, "`device=abacus`: not available here"),
        ({"logger": "paper"}, "paper"),
    ],
)
def test_all_is_checked_before_anything_is_written(
    train: Callable[..., list[Path]], tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    begun: list[bool] = []
    with pytest.raises(InputError, match=message):
        train(tmp_path / "runs", begin=lambda: begun.append(True), **options)
    assert begun == []
    assert list(tmp_path.iterdir()) == []


def with_column(cohort: RepertoireDataset, path: Path, **columns: Any) -> Path:
    """Write a cohort's container with other columns in its sheet."""
    sheet = cohort.metadata.assign(**columns)
    sheet.insert(0, "name", cohort.repertoire_ids)
    sheet.to_csv(path.with_suffix(".tsv"), sep="\t", index=False)
    made = path.with_suffix(".new.h5")
    relabel(cohort.container.path, path.with_suffix(".tsv"), made, id_column="name")
    made.replace(path)
    return path


@pytest.mark.long
def test_runs_that_have_begun_keep_their_split(cohort: RepertoireDataset, tmp_path: Path) -> None:
    path = with_column(cohort, tmp_path / "cohort.h5")
    plans = {f"fold-{fold}": RunPlan(SplitOptions(folds=3, fold=fold, group_by="patient_id")) for fold in range(3)}
    train_runs(path, tmp_path / "runs", {"fold-0": plans["fold-0"]}, OPTIONS)
    n = len(cohort)
    with_column(cohort, path, patient_id=[f"q{(7 * i) % n // 2}" for i in range(n)])
    message = r"cohort.h5: its column 'patient_id', on which the split depends, has changed since .*runs/fold-0"
    with pytest.raises(InputError, match=message):
        train_runs(path, tmp_path / "runs", plans, OPTIONS)
    assert [each.name for each in (tmp_path / "runs").iterdir()] == ["fold-0"]
    with_column(cohort, path, age=50.0)  # which decides nothing
    assert len(train_runs(path, tmp_path / "runs", plans, OPTIONS)) == 3


def test_sketches_that_are_not_wanted_are_told(train: Callable[..., list[Path]], tmp_path: Path) -> None:
    runs = train(tmp_path / "runs", folds=[0, 1])
    with pytest.raises(InputError, match=r"fold-0/sketches.safetensors: was written by an earlier call"):
        train(tmp_path / "runs", keep_sketches=False, folds=[0, 1])
    for run in runs:
        (run / "sketches.safetensors").unlink()
    assert train(tmp_path / "runs", keep_sketches=False, folds=[0, 1]) == runs


def test_a_value_without_which_one_class_is_left_is_told_first(cohort: RepertoireDataset, tmp_path: Path) -> None:
    kit = np.where(cohort.metadata["status"] == "case", "b", "c")
    kit[:4] = "a"  # without b, two cases are left
    path = with_column(cohort, tmp_path / "cohort.h5", kit=kit)
    plans = plan_left_out(path, "kit")
    with pytest.raises(InputError, match=r"^fold-1: .*the smallest class has 2 repertoires; expected at least 5"):
        train_runs(path, tmp_path / "runs", plans, OPTIONS)
    alone = with_column(cohort, tmp_path / "other.h5", kit=cohort.metadata["status"])
    message = r"^fold-0: the training part has one class of 'status=case' only with `test=kit=case`$"
    plans = plan_left_out(alone, "kit")
    with pytest.raises(InputError, match=message):
        train_runs(alone, tmp_path / "runs", plans, OPTIONS)
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
def test_a_cluster_that_loses_a_worker_trains_the_same(
    train: Callable[..., list[Path]], tmp_path: Path, cluster: str
) -> None:
    distributed = pytest.importorskip("distributed")
    output = tmp_path / "runs"

    def kill_a_worker_that_trains() -> int:
        with distributed.Client(cluster, set_as_default=False) as client:
            pids = client.run(os.getpid)
            while not any(output.glob("fold-*/history.tsv")):
                time.sleep(0.01)
            pid = int(next(pids[address] for address, tasks in client.processing().items() if tasks))
            os.kill(pid, signal.SIGKILL)
            return pid

    with ThreadPoolExecutor(1) as thread:
        killed = thread.submit(kill_a_worker_that_trains)
        runs = train(output, workers=Workers(scheduler=cluster))
        assert killed.result() > 0
    for run, single in zip(runs, train(tmp_path / "here"), strict=True):
        check_alike(run, single)


def test_a_cohort_without_sequences_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_repertoires(tmp_path / "empty.h5", [make_sequences([])] * 40, {"y": ["no", "yes"] * 20})
    config, message = (
        load_config("deeprc", ["n_updates=2"]),
        r"empty\.h5: expected repertoires with sequences, found \d+",
    )
    with pytest.raises(InputError, match=message):
        train_run(tmp_path / "empty.h5", tmp_path / "run", targets="y=yes", config=config)
    with pytest.raises(InputError, match=message):
        cross_validate(tmp_path / "empty.h5", tmp_path / "cv", targets="y=yes", config=config)
    assert [path.name for path in tmp_path.iterdir() if path.name in ("run", "cv")] == []
