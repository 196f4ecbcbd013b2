"""Several runs that predict together."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.ensemble import RunEnsemble, load_ensemble
from deeprc.runs.experiment import train_run
from deeprc.runs.run import Run, load_run

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

SETTINGS = ["n_updates=20", "evaluate_every=10", "n_kernels=6", "kernel_size=4", "n_sequences=40"]
SMALL = load_config("deeprc", [*SETTINGS, "composition=false", "clones=false"])  # no test here is about branches
TARGETS = ("status=case", "grade:multiclass", "age:regression")


@pytest.fixture(scope="module")
def runs(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Runs that test on fold 0 of 4 and validate on 1, 2 and 3."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        train_run(
            cohort.container.path,
            folder / f"v{fold}",
            targets=TARGETS,
            config=SMALL,
            split=SplitOptions(folds=4, validation_fold=fold),
            device="cpu",
        )
        for fold in (1, 2, 3)
    ]


def values(table: pd.DataFrame, target: str, column: str = "probability") -> np.ndarray:
    return table.loc[table["target"] == target, column].to_numpy(np.float64)


def test_the_runs_share_their_test_side_and_rotate_the_others(runs: list[Run], cohort: RepertoireDataset) -> None:
    assert [run.settings.split_options.validation_fold for run in runs] == [1, 2, 3]
    first, *others = (run.splits for run in runs)
    for splits in others:
        assert splits["test"] == first["test"]
        assert set(splits["validation"]) < set(first["train"])
    validated = [i for run in runs for i in run.splits["validation"]]
    assert sorted(validated + first["test"]) == sorted(cohort.repertoire_ids)


def test_log_odds_and_numbers_are_the_means_of_the_runs(runs: list[Run], cohort: RepertoireDataset) -> None:
    table = RunEnsemble(tuple(runs)).predict(cohort)
    members = [run.predict(cohort) for run in runs]
    pd.testing.assert_frame_equal(runs[0].predict(cohort.container.path), members[0])
    own, each = ([run.tasks[i].calibration for run in runs] for i in (0, 1))
    odds = [
        (np.log(p / (1 - p)) - c.intercept) / c.slope
        for p, c in zip((values(m, "status=case") for m in members), own, strict=True)
    ]
    slope = 1 / np.mean([1 / c.slope for c in own])
    intercept = slope * np.mean([c.intercept / c.slope for c in own])
    assert slope != 1
    odds = slope * np.mean(odds, axis=0) + intercept
    np.testing.assert_allclose(values(table, "status=case"), 1 / (1 + np.exp(-odds)), rtol=1e-5)

    classes = [f"grade={name}" for name in runs[0].tasks[1].classes]
    logs = [[np.log(values(m, name)) / c.slope for name in classes] for m, c in zip(members, each, strict=True)]
    logs = np.mean(logs, axis=0) / np.mean([1 / c.slope for c in each])
    expected = np.exp(logs) / np.exp(logs).sum(axis=0)
    np.testing.assert_allclose([values(table, name) for name in classes], expected, rtol=1e-5)

    ages = [values(m, "age", "prediction") for m in members]
    assert len({(run.tasks[2].mean, run.tasks[2].scale) for run in runs}) > 1  # each has its training fold's
    np.testing.assert_allclose(values(table, "age", "prediction"), np.mean(ages, axis=0), rtol=1e-5)


def test_a_repertoire_that_any_run_learned_from_is_no_test(runs: list[Run], cohort: RepertoireDataset) -> None:
    known = dict(zip(cohort.repertoire_ids, RunEnsemble(tuple(runs)).split_of(cohort), strict=True))
    test = set(runs[0].splits["test"])
    assert {i for i, side in known.items() if side == "test"} == test
    assert {side for i, side in known.items() if i not in test} == {"train"}
    sides = RunEnsemble((runs[0], runs[0])).split_of(cohort)
    assert sides == runs[0].split_of(cohort)


def test_metrics_are_of_the_mean(runs: list[Run], cohort: RepertoireDataset) -> None:
    ensemble = load_ensemble([run.path for run in runs], device="cpu")
    found = ensemble.evaluate(cohort)
    assert list(found) == ["train", "test"]
    table = ensemble.predict(cohort)
    rows = table[(table["target"] == "status=case") & (table["split"] == "test")]
    p, label = rows["probability"].to_numpy(np.float64), rows["label"].to_numpy(np.float64)
    loss = -np.mean(label * np.log(p) + (1 - label) * np.log(1 - p))
    assert found["test"]["status=case"]["n"] == len(runs[0].splits["test"])
    assert found["test"]["status=case"]["loss"] == pytest.approx(loss, rel=1e-5)


def test_the_order_of_the_runs_is_nothing(runs: list[Run], cohort: RepertoireDataset) -> None:
    found = RunEnsemble(tuple(runs)).evaluate(cohort)["test"]["age"]
    again = RunEnsemble(tuple(runs[::-1])).evaluate(cohort)["test"]["age"]
    assert found.keys() == again.keys()
    for name, value in found.items():
        assert value == pytest.approx(again[name], rel=1e-4)
    scale = np.mean([run.tasks[2].scale for run in runs])
    table = RunEnsemble(tuple(runs)).predict(cohort)
    rows = table[(table["target"] == "age") & (table["split"] == "test")].dropna(subset="label")
    errors = (rows["prediction"] - rows["label"].astype(float)) / scale
    assert found["loss"] == pytest.approx(np.mean(errors**2) / 2, rel=1e-5)


def test_runs_without_a_common_test_side_are_told(
    runs: list[Run], cohort: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    another = train_run(
        cohort.container.path,
        tmp_path / "f1",
        targets=TARGETS,
        config=SMALL,
        split=SplitOptions(folds=4, fold=1),
        device="cpu",
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert "test" in RunEnsemble(tuple(runs)).split_of(cohort)
        assert caplog.text == ""
        assert set(RunEnsemble((runs[1], another)).split_of(cohort)) == {"train", "validation"}
    assert "no repertoire is a test repertoire of all runs; train them with the same `fold` and `seed`" in caplog.text


def test_runs_with_different_test_parts_are_told_where_they_are_measured(
    runs: list[Run], cohort: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The parts of a run are exchanged here, so that two runs have no common test repertoire."""
    one = runs[0]
    splits = {"train": one.splits["train"], "validation": one.splits["test"], "test": one.splits["validation"]}
    other = replace(one, splits=splits)
    (tmp_path / "cv.yaml").touch()
    of_cv = [replace(run, path=tmp_path / "runs" / name) for run, name in ((one, "a"), (other, "b"))]
    assert "test" not in RunEnsemble(tuple(of_cv)).split_of(cohort)
    assert (
        "no repertoire is a test repertoire of all runs, because each test fold of a cross-validation has other runs; "
        f"`deeprc cv` measures the runs on their test folds: see {tmp_path / 'metrics.json'}" in caplog.text
    )
    caplog.clear()
    left_out = [
        replace(
            run,
            settings=replace(
                run.settings, split_options=replace(run.settings.split_options, test=f"patient_id={value}")
            ),
        )
        for run, value in ((one, 1), (other, 2))
    ]
    assert "test" not in RunEnsemble(tuple(left_out)).split_of(cohort)
    assert (
        "no repertoire is a test repertoire of all runs; train them with the same `test`, or use "
        "`deeprc cv --folds leave-one-out:COLUMN`, which measures all of them on their test repertoires" in caplog.text
    )


def test_one_run_is_itself(runs: list[Run], cohort: RepertoireDataset) -> None:
    alone = load_ensemble([runs[1].path], device="cpu")
    assert torch.equal(alone.model.compute_outputs(cohort), runs[1].model.compute_outputs(cohort))
    assert alone.tasks == runs[1].tasks
    assert (
        load_ensemble(runs[1].path, device="cpu")
        .model.compute_outputs(cohort[:2])
        .equal(runs[1].model.compute_outputs(cohort[:2]))
    )
    assert alone.split_of(cohort) == runs[1].split_of(cohort)


def test_runs_that_do_not_go_together(
    runs: list[Run], cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    path = cohort_factory(12, 20).container.path
    other = train_run(
        path, tmp_path / "other", targets="status=case", config=SMALL, split=SplitOptions(folds=3), device="cpu"
    )
    with pytest.raises(
        InputError, match=r"other: predicts status=case:binary \(.*case\); expected status=case:binary .*v1 does"
    ):
        load_ensemble([runs[0].path, other.path])
    kinds = [
        train_run(
            path, tmp_path / kind, targets=f"status:{kind}", config=SMALL, split=SplitOptions(folds=3), device="cpu"
        ).path
        for kind in ("binary", "multiclass")
    ]
    with pytest.raises(InputError, match=r"multiclass: predicts status:multiclass .*; expected status:binary \("):
        load_ensemble(kinds)
    with pytest.raises(InputError, match="v1: is given twice"):
        load_ensemble([runs[0].path, runs[1].path, runs[0].path.parent / "." / "v1"])
    with pytest.raises(InputError, match="no run was given"):
        load_ensemble([])
    with pytest.raises(InputError, match="is not a run directory"):
        load_ensemble([runs[0].path, tmp_path])


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("cv.yaml", "is a cross-validation; its runs are the folders in {folder}/runs"),
        ("benchmark.yaml", "is a benchmark, which keeps no trained run; train one with `deeprc train`"),
        ("validation-1/config.yaml", "is not a run directory (no config.yaml); expected one made by `deeprc train`"),
        ("other.txt", "is not a run directory (no config.yaml); expected one made by `deeprc train`"),
    ],
)
def test_a_folder_of_another_result_is_named(tmp_path: Path, file: str, message: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    with pytest.raises(InputError) as error:
        load_ensemble([tmp_path])
    assert str(error.value) == f"{tmp_path}: {message.format(folder=tmp_path)}"


@pytest.mark.parametrize(("n_runs", "named"), [(1, "v0"), (3, "v0, v1, v2"), (4, "v0, v1, v2, ...")])
def test_runs_in_a_folder_that_is_no_run_are_named(tmp_path: Path, n_runs: int, named: str) -> None:
    for index in range(n_runs):
        (tmp_path / f"v{index}").mkdir()
        for file in ("config.yaml", "splits.json"):
            (tmp_path / f"v{index}" / file).touch()
    with pytest.raises(InputError) as error:
        load_ensemble([tmp_path])
    assert str(error.value) == f"{tmp_path}: is not a run directory; runs are in it: {named}"


def test_a_run_of_before_validates_on_the_next_fold(runs: list[Run], cohort: RepertoireDataset, tmp_path: Path) -> None:
    usual = train_run(
        cohort.container.path,
        tmp_path / "usual",
        targets=TARGETS,
        config=SMALL,
        split=SplitOptions(folds=4),
        device="cpu",
    )
    assert usual.splits == runs[0].splits
    assert torch.equal(usual.model.compute_outputs(cohort), runs[0].model.compute_outputs(cohort))
    shutil.copytree(usual.path, tmp_path / "old")
    file = tmp_path / "old" / "config.yaml"
    text = file.read_text()
    assert "validation_fold: null\n" in text
    assert "test: null\n" in text
    file.write_text(text.replace("validation_fold: null\n", "").replace("test: null\n", ""))
    assert load_run(tmp_path / "old").settings == usual.settings
