"""A cohort whose site predicts the label: what a benchmark, a training and a cross-validation say with adjustment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import roc_auc_score

import deeprc
from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.result import BenchmarkResult
from deeprc.cli.options import _split_names
from deeprc.cli.train import train
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.caution import read_cautions
from deeprc.evaluation.scoring import BINARY
from deeprc.evaluation.splits import SplitOptions
from deeprc.evaluation.strata import compute_stratified_auc
from deeprc.interpretation.report.origin import format_adjust_options, format_train_command
from deeprc.runs.assess import assess_predictor
from deeprc.runs.run import load_run, read_splits
from deeprc.runs.several_runs import RunOptions, plan_left_out, train_runs
from tests.toys.site_cohorts import draw_sites, share_of_signal

SETTINGS = ["n_updates=2", "evaluate_every=2", "n_kernels=8", "n_sequences=20", "composition=false", "clones=false"]
TINY = load_config("deeprc", [*SETTINGS, "seeded_start=0"])


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return draw_sites(tmp_path_factory.mktemp("sites") / "cohort.h5", 400, signal=1.35)


def compare(dataset: RepertoireDataset, folds: int | str, *columns: str) -> BenchmarkResult:
    options = BenchmarkOptions(folds=folds, adjust_for=columns)
    return benchmark(dataset, target="status=sick", methods=["v-gene-usage"], options=options)


def auc(result: BenchmarkResult) -> float:
    return float(result.comparison[BINARY.estimate_column].item())


@pytest.mark.slow
def test_with_adjustment_both_kinds_of_folds_have_the_auc_of_the_signal(cohort: RepertoireDataset) -> None:
    label = (cohort.metadata["status"] == "sick").to_numpy()
    truth = roc_auc_score(label, share_of_signal(cohort))
    at_random, left_out = compare(cohort, 5), compare(cohort, "leave-one-out:site")
    assert auc(at_random) > truth + 0.04  # the site tells more than the signal
    assert auc(left_out) < auc(at_random) - 0.1
    adjusted = [compare(cohort, folds, "site") for folds in (5, "leave-one-out:site")]
    for result in adjusted:
        assert truth - 0.12 < auc(result) < truth + 0.02
        (note,) = [each for each in result.cautions if each.name == "adjusted"]
        assert note.details["columns"] == ["site"]
        assert 40 <= note.details["n_kept"] <= 120
        assert len(result.predictions) == 400  # all are tested


@pytest.mark.slow
def test_the_table_of_folds_has_the_values_that_are_left_out(tmp_path: Path) -> None:
    dataset = draw_sites(tmp_path / "cohort.h5", 80, signal=1.0, seed=1)
    for folds in (5, "leave-one-out:site"):
        options = BenchmarkOptions(folds=folds)
        benchmark(
            dataset, target="status=sick", methods=["repertoire-size"], options=options, output=tmp_path / str(folds)
        )
    header, *_ = (tmp_path / "5" / "folds.tsv").read_text().splitlines()
    assert header == "repertoire_id\tfold\tlabel"
    lines = (tmp_path / "leave-one-out:site" / "folds.tsv").read_text().splitlines()
    header, *rows = [line.split("\t") for line in lines]
    assert header == ["repertoire_id", "fold", "left_out", "label"]
    site = dataset.metadata["site"].set_axis(dataset.repertoire_ids)
    assert [row[2] for row in rows] == site[[row[0] for row in rows]].tolist()
    assert len({(row[1], row[2]) for row in rows}) == site.nunique() > 1


@pytest.mark.slow
def test_without_a_signal_nothing_is_left_within_sites(tmp_path: Path) -> None:
    dataset = draw_sites(tmp_path / "cohort.h5", 400, signal=1.0, seed=1)
    label = (dataset.metadata["status"] == "sick").to_numpy(np.float64)
    found = compare(dataset, 5), compare(dataset, "leave-one-out:site"), compare(dataset, "leave-one-out:site", "site")
    assert auc(found[0]) > 0.75
    assert auc(found[1]) == pytest.approx(0.5, abs=0.06)
    assert auc(found[2]) == pytest.approx(0.5, abs=0.08)
    score = compare(dataset, 5, "site").predictions.set_index("repertoire_id")["score"]
    within = compute_stratified_auc(
        "site", dataset.metadata["site"].tolist(), label, score[dataset.repertoire_ids].to_numpy()
    )
    assert within is not None
    assert within.low < 0.5 < within.high


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_benchmark_continues_with_the_same_columns_only(cohort: RepertoireDataset, tmp_path: Path) -> None:
    given = {"target": "status=sick", "methods": ["diversity"], "output": tmp_path / "b"}
    first = benchmark(cohort, options=BenchmarkOptions(folds=3, adjust_for=("site",)), **given)  # type: ignore[arg-type]
    again = benchmark(cohort, options=BenchmarkOptions(folds=3, adjust_for=("site",)), resume=True, **given)  # type: ignore[arg-type]
    assert first.predictions.equals(again.predictions)
    with pytest.raises(InputError, match=r"in which adjust_for is \['site'\]; choose another `output`"):
        benchmark(cohort, options=BenchmarkOptions(folds=3), resume=True, **given)  # type: ignore[arg-type]


def test_a_benchmark_that_cannot_be_adjusted_writes_nothing(cohort: RepertoireDataset, tmp_path: Path) -> None:
    options = BenchmarkOptions(folds=3, adjust_for=("status",))
    with pytest.raises(InputError, match="is the target"):
        benchmark(cohort, target="status=sick", methods=["diversity"], output=tmp_path / "b", options=options)
    assert not (tmp_path / "b").exists()


@pytest.mark.slow
def test_a_run_records_the_columns_that_it_was_adjusted_for(cohort: RepertoireDataset, tmp_path: Path) -> None:
    place, folder = str(cohort.container.path), str(tmp_path / "run")
    given = [place, *SETTINGS, "seeded_start=0", "--target", "status=sick", "--device", "cpu", "--output", folder]
    result = CliRunner().invoke(train, [*given, "--adjust-for", "site,"])
    assert result.exit_code == 0, result.output
    assert "Adjusted for site" in result.output
    run = load_run(folder, device="cpu")
    assert run.settings.split_options.adjust_for == ("site",)
    assert "adjusted  for site" in repr(run)
    assert "--adjust-for site" in format_train_command(run.settings, folder)
    learned = cohort.select(run.splits["train"]).metadata
    shares = learned.groupby("site")["status"].value_counts(normalize=True).unstack()["sick"]
    np.testing.assert_allclose(shares, 0.5, atol=0.12)
    assert len(run.splits["test"]) == 80
    (note,) = [each for each in read_cautions(run.path) if each.name == "adjusted"]
    assert note.details["n_kept"] == len(learned)
    some = cohort.select([*run.splits["train"][:12], *run.splits["test"]])
    (again,) = [each for each in assess_predictor(run, some).cautions if each.name == "adjusted"]
    assert again.details["n_kept"] == len(learned)
    others = set(cohort.repertoire_ids) - {i for ids in run.splits.values() for i in ids}
    table = run.predict(cohort.select(sorted(others)))
    assert set(table["split"]) == {"new"}  # left out, so never seen


def test_column_names_with_commas_are_quoted_and_read_back() -> None:
    given = ("site,", '"age, years", batch', "site")
    names = _split_names(None, None, given)  # type: ignore[arg-type]
    assert names == ("site", "age, years", "batch")
    words = format_adjust_options(names)
    assert words == ["--adjust-for", "site", "--adjust-for", '"age, years"', "--adjust-for", "batch"]
    assert _split_names(None, None, tuple(words[1::2])) == names  # type: ignore[arg-type]
    assert SplitOptions(adjust_for="site").adjust_for == BenchmarkOptions(adjust_for="site").adjust_for == ("site",)


@pytest.mark.slow
def test_left_out_sites_are_trained_with_adjustment(cohort: RepertoireDataset, tmp_path: Path) -> None:
    plans = plan_left_out(cohort.container.path, "site", adjust_for=("site",))
    some = dict(list(plans.items())[:1])
    options = RunOptions(targets=("status=sick",), config=TINY, device="cpu")
    (folder,) = train_runs(cohort.container.path, tmp_path / "runs", some, options)
    run = load_run(folder, device="cpu")
    assert run.settings.split_options.adjust_for == ("site",)
    assert set(cohort.select(run.splits["test"]).metadata["site"]) == {"site 0"}
    assert "site 0" not in set(cohort.select(run.splits["train"]).metadata["site"])


@pytest.mark.slow
def test_a_cross_validation_is_adjusted(cohort: RepertoireDataset, tmp_path: Path) -> None:
    found = deeprc.cv(
        cohort.container.path, tmp_path / "cv", targets="status=sick", folds=3, members=1, adjust_for=["site"],
        config=TINY, device="cpu",
    )  # fmt: skip
    (note,) = [each for each in found.cautions if each.name == "adjusted"]
    assert note.text.startswith("Adjusted for site: ")
    assert found.metrics["status=sick"]["n"] == 400
    sides = [read_splits(run)[0] for run in (tmp_path / "cv" / "runs").iterdir()]
    assert note.details["n_kept"] == min(len(side["train"]) for side in sides)
    with pytest.raises(InputError, match="was started with `adjust_for=site`; choose another `output`"):
        deeprc.cv(cohort.container.path, tmp_path / "cv", targets="status=sick", folds=3, members=1, config=TINY)
