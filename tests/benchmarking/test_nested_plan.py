"""The folds of a benchmark."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pandas as pd
import pytest

from deeprc.benchmarking.cohort_digest import digest_cohort
from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.labelled_folds import LabelledFolds
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.datasets.container_file import update_checksum
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.in_memory import from_frame
from deeprc.datasets.simulation import SimulatedDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import assign_folds
from deeprc.power import PlannedStudy
from deeprc.tasks import parse_tasks

FOLDS = BenchmarkOptions(folds="leave-one-out:site", group_by="donor")


def draw_donors(positive: list[int], negative: list[int]) -> RepertoireDataset:
    """Return a cohort of two sites, at each of which there are donors with these numbers of repertoires."""
    sizes, n = [*positive, *negative] * 2, len(positive) + len(negative)
    donors = np.repeat(np.arange(2 * n), sizes)
    dataset = SimulatedDataset(PlannedStudy(n_repertoires=len(donors), depth=20, witness_rate=0.5).to_cohort(0))
    status = np.where(donors % n < len(positive), "+", "-")
    for name, values in {"donor": donors, "site": donors // n, "status": status}.items():
        dataset.container.metadata[name] = values
    return dataset


def test_the_validation_fold_of_a_left_out_site_has_both_classes() -> None:
    """Four positive donors cannot be in each of five inner folds: the first fold that has some is for validation."""
    dataset, n_lacking = draw_donors([3] * 4, [12, *[3] * 8]), 0
    (task,) = parse_tasks(["status=+"], dataset.metadata, source="a test")
    for seed in range(4):
        options = BenchmarkOptions(folds=FOLDS.folds, group_by="donor", seed=seed)
        folds = LabelledFolds.assign(dataset, "status=+", options)
        fold_of, labels, inner_fold_of = folds.fold_of, folds.labels, folds.inner_fold_of
        assert inner_fold_of is not None
        for fold, inner in enumerate(inner_fold_of):
            rest = dataset.metadata[fold_of != fold]
            first = assign_folds(rest, [task], group_by="donor", seed=seed) == 0
            n_lacking += len(np.unique(labels[fold_of != fold][first])) < 2
            assert set(labels[inner == 0]) == {0, 1}
            assert set(labels[inner > 0]) == {0, 1}
            if len(np.unique(labels[fold_of != fold][first])) == 2:
                np.testing.assert_array_equal(inner[fold_of != fold] == 0, first)
    assert n_lacking > 0


def test_a_site_whose_others_have_one_positive_donor_is_refused() -> None:
    """The donor would be either in training or in validation."""
    with pytest.raises(InputError, match=r"without fold 0, no validation fold leaves every class of 'status=\+'"):
        LabelledFolds.assign(draw_donors([6], [3] * 12), "status=+", FOLDS)


def test_a_left_out_site_of_one_class_is_named() -> None:
    dataset = draw_donors([3] * 8, [3] * 8)
    dataset.container.metadata.loc[dataset.container.metadata["donor"] == 0, "site"] = 2
    with pytest.raises(InputError, match=r"fold 2 \(site=2\) has one class of 'status=\+' only; join this value with"):
        LabelledFolds.assign(dataset, "status=+", FOLDS)


@pytest.mark.usefixtures("no_pictures")
def test_a_dataset_with_other_metadata_is_not_opened_again_from_its_file(
    cohort: RepertoireDataset, tmp_path: Path
) -> None:
    """The only column of the dataset, which the file lacks, has the status of all repertoires but the first four."""
    metadata = cohort.metadata[["status"]].assign(site=cohort.metadata["status"])
    metadata.loc[:3, "site"] = metadata["status"].iloc[:4].map({"case": "healthy", "healthy": "case"})
    relabelled = cohort.with_metadata(metadata)
    options = BenchmarkOptions(folds=3, group_by=None)
    result = benchmark(
        relabelled, target="status=case", methods=["sheet-columns"], output=tmp_path / "out", options=options
    )
    assert not result.failures
    assert result.comparison["auc_mean"].min() > 0.8


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("change", ["sequences", "labels"])
def test_a_file_that_is_replaced_is_not_read(cohort: RepertoireDataset, tmp_path: Path, change: str) -> None:
    """Only a method that reads the sheet is affected by other labels."""
    path, other = tmp_path / "cohort.h5", tmp_path / "other.h5"
    shutil.copy(cohort.container.path, path)
    shutil.copy(path, other)
    with h5py.File(other, "r+") as file:
        if change == "sequences":
            file["counts"][0] += 1
        else:
            file["metadata/status"][:] = file["metadata/status"][:][::-1]
    update_checksum(other)
    n_calls = 0

    def replace_file(*_: object) -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:  # after the first job
            other.replace(path)

    result = benchmark(
        path,
        target="status=case",
        methods={"sheet-columns": None, "repertoire-size": None},
        options=BenchmarkOptions(folds=3, preset=write_preset(tmp_path)),
        progress=replace_file,
    )
    failed = {"repertoire-size"} if change == "sequences" else set()
    assert result.failures.keys() - {"sheet-columns"} == failed
    message = f"InputError: {path}: was changed after the start; expected its content of then"
    assert all(reason.endswith(message) for reason in result.failures.values())
    assert (change == "sequences") or result.failures


def write_preset(folder: Path) -> Path:
    """Write a preset whose sheet-columns reads the status."""
    path = folder / "preset.yaml"
    path.write_text("sheet-columns: {fixed: {columns: [status]}}\n")
    return path


def test_a_table_in_memory_has_a_digest_of_its_content() -> None:
    table = pd.DataFrame({"repertoire_id": ["a", "a", "b"], "junction_aa": ["CASSF", "CASWF", "CASSF"]})
    dataset = from_frame(table)
    assert digest_cohort(dataset) == digest_cohort(from_frame(table.copy()))
    assert digest_cohort(dataset) != digest_cohort(dataset[[1]])


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_results_of_a_method_are_reused_only_if_the_columns_that_it_reads_are_the_same(
    cohort: RepertoireDataset, toys: ModuleType, tmp_path: Path
) -> None:
    """After `deeprc relabel`, the same repertoires have other values in the columns beside the target."""
    status = cohort.metadata["status"]
    options, out = BenchmarkOptions(folds=3), tmp_path / "out"
    methods = {"sheet-columns": None, "repertoire-size": None, "mine": toys.Noise(log=str(tmp_path / "log"))}

    def run(site: list[str]) -> tuple[dict[str, float], set[Path], int]:
        dataset = cohort.with_metadata(pd.DataFrame({"status": status, "site": site}))
        result = benchmark(dataset, target="status=case", methods=methods, output=out, options=options, resume=True)
        jobs = set((out / "tasks").rglob("*.json"))
        return dict(result.comparison.set_index("method")["auc_mean"]), jobs, len(toys.read_log(tmp_path / "log"))

    alternating = [("a", "b")[row // 2 % 2] for row in range(len(cohort))]
    known = ["a" if (value == "case") == (row > 3) else "b" for row, value in enumerate(status)]
    _, first, n_first = run(alternating)
    auc, second, n_second = run(known)
    assert auc["sheet-columns"] > 0.7
    assert {path.parts[-3] for path in second - first} == {"mine", "sheet-columns"}  # "mine" may read all columns
    assert n_second == 2 * n_first
    assert run(alternating)[1:] == (second, n_second)
