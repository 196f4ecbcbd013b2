"""Several runs of one cohort: trained here one after the other, or by the workers of a Dask cluster."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file
from torch import Tensor

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.experiment import train_run
from deeprc.runs.several import name_splits, train_runs
from deeprc.training.state import TrainingState
from tests.conftest import Killed

SMALL = load_config("deeprc", ["n_updates=20", "evaluate_every=10", "n_kernels=6", "kernel_size=4", "n_sequences=40"])
RESULTS = ("config.yaml", "splits.json", "metrics.json", "predictions.tsv", "clones.tsv", "seeds.tsv")


@pytest.fixture
def train(cohort: RepertoireDataset) -> Callable[..., list[Path]]:
    def call(output: Path, **options: Any) -> list[Path]:
        splits = options.pop("splits", None) or name_splits(folds=3, fold="all")
        given = {"targets": "status=case", "config": SMALL, "device": "cpu", **options}
        return train_runs(cohort.container.path, output, splits, **given)

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


def test_the_names_of_splits() -> None:
    assert name_splits(folds=3, fold=1, group_by="donor") == {"": SplitOptions(folds=3, fold=1, group_by="donor")}
    assert name_splits(folds=3, fold="all", validation_fold=None) == {
        f"fold-{fold}": SplitOptions(folds=3, fold=fold) for fold in range(3)
    }
    assert name_splits(folds=3, fold=1, validation_fold="all") == {
        f"validation-{v}": SplitOptions(folds=3, fold=1, validation_fold=v) for v in (0, 2)
    }
    assert list(name_splits(folds=3, fold="all", validation_fold="all")) == [
        "fold-0-validation-1", "fold-0-validation-2", "fold-1-validation-0", "fold-1-validation-2",
        "fold-2-validation-0", "fold-2-validation-1",
    ]  # fmt: skip
    assert len(name_splits(folds=3, validation_fold="all", test="batch=2")) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fold": "all", "test": "batch=2"}, "^`fold=all` tests on each fold, and `test` names the part for testing"),
        (
            {"fold": "all", "validation_fold": 1},
            "^`validation_fold=1`: expected a fold from 0 to 2 other",
        ),
        ({"folds": 0, "fold": "all"}, "^`folds=0`: expected at least 3 folds"),
        ({"folds": 2, "fold": "all"}, "^`folds=2` `fold=0`: expected at least 3 folds"),
    ],
)
def test_splits_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        name_splits(**{"folds": 3, **options})


def test_several_runs_are_those_of_single_calls(
    train: Callable[..., list[Path]], alone: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = train(Path("runs"))
    assert runs == [Path("runs") / f"fold-{fold}" for fold in range(3)]
    assert [contents(run) for run in runs] == alone


def test_the_same_call_continues(train: Callable[..., list[Path]], alone: list[dict[str, str]], tmp_path: Path) -> None:
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
    with pytest.raises(InputError, match=r"fold-0: was begun with another `seed`; choose another `output`$"):
        train(tmp_path / "runs", seed=1)
    with pytest.raises(InputError, match=r"fold-0: was begun with another `config`; choose another `output`$"):
        train(tmp_path / "runs", config=load_config("deeprc", ["n_updates=30"]))
    stamp = (tmp_path / "runs" / "fold-0" / "metrics.json").stat().st_mtime_ns
    runs = train(tmp_path / "runs")
    assert [contents(run) for run in runs] == alone
    assert (tmp_path / "runs" / "fold-0" / "metrics.json").stat().st_mtime_ns == stamp


def test_a_folder_of_something_else_is_left_alone(train: Callable[..., list[Path]], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"exists already; choose another `output`$"):
        train(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_start_that_was_killed_is_no_obstacle(
    train: Callable[..., list[Path]], alone: list[dict[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "runs" / ".fold-0.abc.tmp").mkdir(parents=True)
    runs = train(tmp_path / "runs")
    assert [contents(run) for run in runs] == alone


def test_a_failure_names_the_run(train: Callable[..., list[Path]], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^fold-0: .*no metadata column 'height'"):
        train(tmp_path / "runs", targets="height")


@pytest.mark.slow
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
        runs = train(output, scheduler=cluster)
        assert killed.result() > 0
    for run, single in zip(runs, train(tmp_path / "here"), strict=True):
        assert (run / "splits.json").read_bytes() == (single / "splits.json").read_bytes()
        there, here = (pd.read_csv(each / "predictions.tsv", sep="\t") for each in (run, single))
        columns = ["repertoire_id", "split", "target", "label"]
        pd.testing.assert_frame_equal(there[columns], here[columns])
        np.testing.assert_allclose(there["probability"], here["probability"], atol=1e-3)
