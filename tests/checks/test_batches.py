"""A cohort whose batch predicts the label: what a benchmark and a training show of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.result import BenchmarkResult
from deeprc.cli.tables import format_metrics
from deeprc.cli.train import train
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.relabelling import relabel
from deeprc.errors import InputError
from deeprc.evaluation.auc_intervals import compute_fold_aucs_interval
from deeprc.evaluation.caution import read_cautions
from deeprc.evaluation.folds_from_column import assign_folds_by_value, list_left_out_values
from deeprc.evaluation.scoring import BINARY
from deeprc.evaluation.splits import SplitOptions
from deeprc.evaluation.strata import compute_stratified_auc
from deeprc.interpretation.report.number_tables import make_within_table
from deeprc.interpretation.report.run_report import write_report
from deeprc.runs.assess import assess_predictor
from deeprc.runs.experiment import train_run
from deeprc.runs.run import Run, load_run
from deeprc.runs.several_runs import RunOptions, plan_left_out, train_runs
from deeprc.tasks import parse_tasks
from tests.toys.shift_cohorts import Recipe, draw_repertoire, write_repertoires

SETTINGS = ["n_updates=2", "evaluate_every=2", "n_kernels=8", "n_sequences=20", "composition=false", "clones=false"]
TINY = load_config("deeprc", [*SETTINGS, "seeded_start=0"])


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """A batch of another kit, in which TRBV20-1 is frequent, has most of the sick; within it, nothing tells them."""
    rng = np.random.default_rng(3)
    status = np.array(["well", "sick"] * 40)
    batch = np.where(rng.random(80) < 0.85, np.where(status == "sick", "kit 2", "kit 1"),
                     np.where(status == "sick", "kit 1", "kit 2"))  # fmt: skip
    recipe = {"kit 1": Recipe(depth=150), "kit 2": Recipe(depth=150, of_v=0.3)}
    drawn = {f"r{i}": draw_repertoire(rng, recipe[kit]) for i, kit in enumerate(batch.tolist())}
    return write_repertoires(
        tmp_path_factory.mktemp("batches") / "cohort.h5", drawn, status=status, batch=batch, person=np.arange(80) // 2
    )


@pytest.fixture(scope="module")
def compare(cohort: RepertoireDataset) -> Callable[..., BenchmarkResult]:
    def call(folds: int | str, **options: str) -> BenchmarkResult:
        settings = BenchmarkOptions(folds=folds, **options)  # type: ignore[arg-type]
        return benchmark(cohort, target="status=sick", methods=["v-gene-usage"], options=settings)

    return call


@pytest.mark.slow
def test_a_batch_is_found_out_within_it_and_when_it_is_left_out(compare: Callable[..., BenchmarkResult]) -> None:
    at_random, left_out = compare(5), compare("leave-one-out:batch")
    assert at_random.comparison[BINARY.estimate_column].item() > 0.75
    by_name = {each.name: each for each in at_random.cautions}
    assert by_name["label-from-column"].details["column"] == "batch"
    within = by_name["auc-within"].details["v-gene-usage"]
    assert within["auc"] == pytest.approx(0.5, abs=0.15)
    assert within["auc_ci"][0] < 0.5
    assert left_out.n_folds == 2
    assert left_out.comparison[BINARY.estimate_column].item() == pytest.approx(0.5, abs=0.15)
    assert left_out.predictions.groupby("fold").size().sum() == 80


def test_values_are_left_out_in_order(cohort: RepertoireDataset) -> None:
    metadata = cohort.metadata
    tasks = parse_tasks(["status=sick"], metadata, source="a test")
    assert list_left_out_values(metadata, "batch", "a test") == ["kit 1", "kit 2"]
    folds = assign_folds_by_value(metadata, tasks, "batch")
    assert (folds == (metadata["batch"] == "kit 2")).all()
    metadata.loc[3, "batch"], metadata.loc[4, "status"] = None, None
    assert np.flatnonzero(assign_folds_by_value(metadata, tasks, "batch") < 0).tolist() == [3, 4]
    with pytest.raises(InputError, match="no column 'site' for `folds=leave-one-out:site`; columns: sample, status"):
        assign_folds_by_value(metadata, tasks, "site")
    with pytest.raises(InputError, match="divides repertoires that 'person' keeps together"):
        assign_folds_by_value(metadata, tasks, "batch", group_by="person")
    with pytest.raises(InputError, match="expected at least 2 values, found 1"):
        list_left_out_values(metadata.assign(batch="one"), "batch", "a test")


@pytest.mark.slow
def test_runs_test_on_each_value(cohort: RepertoireDataset, tmp_path: Path) -> None:
    path = cohort.container.path
    plans = plan_left_out(path, "batch")
    assert {name: plan.split_options.test for name, plan in plans.items()} == {
        "fold-0": "batch=kit 1",
        "fold-1": "batch=kit 2",
    }
    options = RunOptions(targets=("status=sick",), config=TINY, device="cpu")
    for folder in train_runs(path, tmp_path / "runs", plans, options):
        run = load_run(folder, device="cpu")
        kit = plans[folder.name].split_options.test.partition("=")[2]  # type: ignore[union-attr]
        assert set(cohort.select(run.splits["test"]).metadata["batch"]) == {kit}
        assert kit not in set(cohort.select(run.splits["train"]).metadata["batch"])


@pytest.fixture(scope="module")
def run(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    path, split = tmp_path_factory.mktemp("training") / "run", SplitOptions(folds=3)
    return train_run(cohort.container.path, path, targets="status=sick", config=TINY, split=split, device="cpu")


@pytest.mark.slow
def test_a_run_keeps_a_warning_about_a_batch_that_tells_the_label(
    run: Run, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    (kept,) = [each for each in read_cautions(run.path) if each.name == "label-from-column"]
    assert kept.details["column"] == "batch"
    assert kept.text.startswith("Target 'status=sick': column 'batch' (technical) predicts 'sick' against 'well' with ")
    assert kept in assess_predictor(run, cohort).cautions
    write_report(run, cohort, tmp_path / "report.html", device="cpu", top=10)
    content = (tmp_path / "report.html").read_text()
    assert content.count("column &#39;batch&#39; (technical) predicts") == 1
    sheet, relabelled = tmp_path / "sheet.tsv", tmp_path / "relabelled.h5"
    cohort.metadata.drop(columns="batch").to_csv(sheet, sep="\t", index=False)
    relabel(cohort.container.path, sheet, relabelled)
    assert "label-from-column" not in {each.name for each in assess_predictor(run, open_dataset(relabelled)).cautions}
    recipe, rng = Recipe(depth=50), np.random.default_rng(4)
    others = {f"other {i}": draw_repertoire(rng, recipe) for i in range(12)}
    new = write_repertoires(tmp_path / "new.h5", others, status=np.array(["well", "sick"] * 6), batch=["kit 3"] * 12)
    assert "label-from-column" not in {each.name for each in assess_predictor(run, new).cautions}


@pytest.mark.slow
def test_the_command_trains_a_run_for_each_value(cohort: RepertoireDataset, tmp_path: Path) -> None:
    given = [str(cohort.container.path), *SETTINGS, "seeded_start=0", "--target", "status=sick", "--device", "cpu"]
    given += ["--output", str(tmp_path / "runs"), "--folds", "leave-one-out:batch"]
    result = CliRunner().invoke(train, given)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["fold-0", "fold-1"]
    assert "--fold" in str(CliRunner().invoke(train, [*given, "--fold", "1"]).exception)
    assert "expected a number or leave-one-out:COLUMN" in CliRunner().invoke(train, [*given, "--folds", "x"]).output


@pytest.mark.slow
def test_a_run_has_the_auc_within_batches(run: Run, cohort: RepertoireDataset) -> None:
    metrics = json.loads((run.path / "metrics.json").read_text())
    (within,) = metrics["test"]["status=sick"]["within"]
    table = pd.read_csv(run.path / "predictions.tsv", sep="\t").query("split == 'test'")
    batch = cohort.select(table["repertoire_id"].tolist()).metadata["batch"].tolist()
    expected = compute_stratified_auc(
        "batch", batch, table["label"].to_numpy(float), table["probability"].to_numpy(float)
    )
    assert expected is not None
    assert within == pytest.approx(expected.to_dict() | {"auc_ci": pytest.approx(expected.to_dict()["auc_ci"])})
    assert "among test repertoires with the same batch: 0." in format_metrics(metrics)
    assert "within" not in metrics["train"]["status=sick"]
    shown = make_within_table(assess_predictor(run, cohort).stratified_aucs)
    assert shown is not None
    assert [cell.text for cell in shown.rows[0]][:2] == ["batch", f"{within['auc']:.3f}"]


@pytest.mark.parametrize(("score", "is_told"), [("batch", True), ("label", False)])
def test_a_batch_that_may_explain_an_auc_is_a_warning(score: str, *, is_told: bool) -> None:
    rng = np.random.default_rng(0)
    label = np.tile([0.0, 1.0], 100)
    batch = np.where(rng.random(200) < 0.9, label, 1 - label)
    scores = {"batch": batch, "label": label}[score] + 0.5 * rng.normal(size=200)
    within = compute_stratified_auc("batch", batch.tolist(), label, scores)
    whole = compute_fold_aucs_interval([label.astype(np.int64)], [scores])
    assert within is not None
    assert within.explains(float(whole.aucs[0]), whole.low) == is_told
