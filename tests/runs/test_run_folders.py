"""Folders that stand for the runs in them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.cross_plan import CrossValidationHeader, index_runs, write_header
from deeprc.runs.run_folders import expand_run_folders, find_cross_validation
from deeprc.runs.run_settings import RunSettings
from deeprc.runs.several_runs import plan_left_out, plan_validations
from deeprc.tasks import Task

SETTINGS = RunSettings(
    cohort="/data/cohort.h5",
    fingerprint="0" * 64,
    targets=("status",),
    tasks=(Task("status", "status", "binary", ("a", "b")),),
    split_options=SplitOptions(folds=4),
    seed=0,
    device="cpu",
    config=load_config("deeprc"),
)


def write_run(folder: Path, *, is_trained: bool = True, **changes: Any) -> Path:
    """Write a stand-in for a run: its settings, and empty files."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(replace(SETTINGS, **changes).to_yaml())
    for file in ("splits.json", *(["model.safetensors"] if is_trained else [])):
        (folder / file).touch()
    return folder


def write_validations(folder: Path, names: str, **options: Any) -> list[Path]:
    """Write some of the runs of `deeprc train --validation-fold all`."""
    plans = plan_validations(folds=4, **options)
    return [
        write_run(folder / name, split_options=plans[name].split_options, seed=plans[name].seed)
        for name in names.split()
    ]


def write_cross_validation(folder: Path, n_runs: int) -> tuple[Path, list[Path]]:
    """Write a cross-validation of 3 folds with 2 members, of which only the first runs are trained."""
    header = CrossValidationHeader(
        cohort=SETTINGS.cohort, targets=SETTINGS.targets, folds=3, repeats=1, members=2, group_by=None, seed=0
    )
    write_header(folder, header)
    return folder, [
        write_run(
            folder / "runs" / name, split_options=SplitOptions(folds=3, fold=run.fold, validation_fold=run.validation)
        )
        for name, run in [*index_runs(header).items()][:n_runs]
    ]


def test_paths_that_are_no_folders_of_runs_are_kept(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run = write_run(tmp_path / "run", is_trained=False)
    paths = [tmp_path / "empty", run, tmp_path / "missing", tmp_path / "a.deeprc"]
    assert expand_run_folders(paths) == paths


def test_a_cross_validation_stands_for_all_its_runs(tmp_path: Path) -> None:
    folder, runs = write_cross_validation(tmp_path / "cv", 6)
    write_run(folder / "runs" / "copy")
    other = write_run(tmp_path / "other")
    assert expand_run_folders([folder, other]) == [*sorted(runs), other]


@pytest.mark.parametrize("n_runs", [1, 5])
def test_an_incomplete_cross_validation_does_not_predict(tmp_path: Path, n_runs: int) -> None:
    folder, runs = write_cross_validation(tmp_path / "cv", n_runs)
    write_run(folder / "runs" / "repeat-0-fold-2-validation-1", is_trained=False)
    with pytest.raises(InputError) as error:
        expand_run_folders([folder])
    assert str(error.value) == (
        f"{folder}: is not complete (trained runs: {n_runs} of 6); run the same `deeprc cv` command again to continue, "
        f"or give the runs that are to predict together, such as {runs[0]}"
    )


def test_a_cross_validation_without_a_trained_run_is_continued(tmp_path: Path) -> None:
    folder, _ = write_cross_validation(tmp_path / "cv", 0)
    with pytest.raises(InputError) as error:
        expand_run_folders([folder])
    assert str(error.value) == (
        f"{folder}: is not complete (trained runs: 0 of 6); run the same `deeprc cv` command again to continue"
    )


@pytest.mark.parametrize(
    ("is_cross_validation", "file", "name", "message"),
    [
        (True, "cv.yaml", "repeats", "folds x repeats x members: expected at most 100,000 runs, found 12,000,000,000"),
        (False, "validation-1/config.yaml", "folds", "folds: expected 3 to 100000, found 2000000000"),
    ],
)
def test_a_file_cannot_name_any_number_of_runs(
    tmp_path: Path, is_cross_validation: bool, file: str, name: str, message: str
) -> None:
    folder = tmp_path / "runs"
    if is_cross_validation:
        write_cross_validation(folder, 6)
    else:
        write_validations(folder, "validation-1 validation-2")
    path = folder / file
    path.write_text(re.sub(f"^{name}: .*", f"{name}: 2000000000", path.read_text(), flags=re.MULTILINE))
    with pytest.raises(InputError) as error:
        expand_run_folders([folder])
    assert str(error.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"fold": 1, "seed": 3}, "validation-0 validation-2 validation-3"),
        ({"test": "batch=b"}, "validation-0 validation-1 validation-2 validation-3"),
    ],
)
def test_validation_folds_must_be_complete(tmp_path: Path, options: dict[str, Any], names: str) -> None:
    runs = write_validations(tmp_path / "all", names, **options)
    assert expand_run_folders([tmp_path / "all"]) == runs
    folder = tmp_path / "some"
    runs = write_validations(folder, names.rpartition(" ")[0], **options)
    with pytest.raises(InputError) as error:
        expand_run_folders([folder])
    n = len(names.split())
    assert str(error.value) == (
        f"{folder}: is not complete (trained runs: {n - 1} of {n}); run the same `deeprc train` command again to "
        f"continue, or give the runs that are to predict together, such as {runs[0]}"
    )


def write_left_out(folder: Path, cohort: RepertoireDataset, names: str) -> list[Path]:
    """Write some of the runs of `deeprc train --folds leave-one-out:site=1` on a container."""
    path = str(cohort.container.path)
    plans = plan_left_out(path, "site=1", seed=3, group_by="donor")
    return [
        write_run(folder / name, cohort=path, split_options=plans[name].split_options, seed=plans[name].seed)
        for name in names.split()
    ]


def test_the_values_of_a_left_out_column_must_be_complete(
    small_cohort: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    """The name and the values of the column contain a '='."""
    cohort = small_cohort(["a", "b"] * 6, **{"site=1": ["x=1", "x=2", "x=3"] * 4})
    runs = write_left_out(tmp_path / "all", cohort, "fold-0 fold-1 fold-2")
    assert expand_run_folders([tmp_path / "all"]) == runs
    runs = write_left_out(tmp_path / "some", cohort, "fold-0 fold-1")
    write_run(tmp_path / "own" / "fold-0", cohort=str(cohort.container.path), split_options=SplitOptions(test="x=1"))
    assert len(expand_run_folders([tmp_path / "own"])) == 1
    with pytest.raises(InputError) as error:
        expand_run_folders([tmp_path / "some"])
    assert str(error.value) == (
        f"{tmp_path / 'some'}: is not complete (trained runs: 2 of 3); run the same `deeprc train` command again to "
        f"continue, or give the runs that are to predict together, such as {runs[0]}"
    )
    cohort.container.path.unlink()  # nothing says how many values the column has
    assert expand_run_folders([tmp_path / "some"]) == runs


def test_runs_of_several_commands_may_be_any_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Their test parts and seeds may differ, too: then they predict new repertoires."""
    folds = [write_run(tmp_path / "a" / f"fold-{i}", split_options=SplitOptions(test=f"batch={i}")) for i in "01"]
    seeds = [write_run(tmp_path / "b" / f"validation-{i}", seed=i) for i in (1, 2)]
    with caplog.at_level(logging.INFO):
        assert expand_run_folders([tmp_path / "a", tmp_path / "b"]) == [*folds, *seeds]
    assert f"{tmp_path}/a: its 2 runs predict together, by the mean of their outputs: fold-0, fold-1" in caplog.text


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"targets": ("age",), "fingerprint": "1"}, "for different targets"),
        ({"cohort": "/other.h5", "fingerprint": "1"}, "on different containers"),
        ({"fingerprint": "1"}, "on different data"),
        ({"split_options": SplitOptions(folds=5)}, "with different numbers of folds"),
        ({"split_options": SplitOptions(folds=4, group_by="donor")}, "with a different `group_by`"),
        ({"split_options": SplitOptions(folds=4, adjust_for=["batch"])}, "with a different `adjust_for`"),
        ({"config": load_config("deeprc", ["n_updates=7"]), "fingerprint": "1"}, "with different settings (n_updates)"),
        (
            {"config": load_config("deeprc", ["n_updates=7", "n_kernels=9"])},
            "with different settings (n_kernels, n_updates)",
        ),
    ],
)
def test_runs_that_differ_must_be_named(tmp_path: Path, changes: dict[str, Any], how: str) -> None:
    one, two, _ = (
        write_run(tmp_path / name, **each) for name, each in (("one", {}), ("two", changes), ("zero", changes))
    )
    with pytest.raises(InputError) as error:
        expand_run_folders([tmp_path])
    assert str(error.value) == (
        f"{tmp_path}: holds several runs, and {one.name} and {two.name} were trained {how}; give the runs that are to "
        f"predict together, such as {one}"
    )


def test_the_cross_validation_of_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, runs = write_cross_validation(tmp_path / "cv", 2)
    other = write_run(tmp_path / "other" / "runs" / "one")
    assert find_cross_validation(runs) == folder
    assert find_cross_validation([*runs, other]) is None
    assert find_cross_validation([other]) is None
    monkeypatch.chdir(folder / "runs")
    assert find_cross_validation([Path(run.name) for run in runs]) == folder
