"""Learning curves: which donors are learned from, values by hand, permutations, and the command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import roc_auc_score

import deeprc
from deeprc.benchmarking.labelled_folds import LabelledFolds
from deeprc.benchmarking.methods import Method
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.cli import main
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation import SimulatedDataset
from deeprc.errors import InputError
from deeprc.evaluation.auc_intervals import compute_auc_interval
from deeprc.power import LearningCurve, PlannedStudy, PowerOptions, measure_learning_curve
from deeprc.power.extrapolation import PowerLaw
from deeprc.power.files import draw_learning_curve_figure
from deeprc.power.learning_curve import (
    _count_smallest_class,
    _make_curve,
    _make_full_plan,
    _make_permuted_plans,
    _MeasuredShare,
    _replace_labels,
)
from deeprc.power.resampling import (
    FoldScores,
    _compute_sample_aucs,
    _compute_spread_factor,
    average_aucs,
    compute_p_value,
)
from deeprc.power.subsampling import SubsampledPlan
from deeprc.tasks import Task


class Nothing(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that is never fitted."""


def plan(n: int, per_donor: int = 1, **others: Any) -> SubsampledPlan:
    """Return a plan of 5 folds by donors, whose labels alternate from donor to donor."""
    dataset = SimulatedDataset(PlannedStudy(n_repertoires=n, depth=20, witness_rate=0.5).to_cohort(0))
    donors = np.arange(n) // per_donor
    dataset.container.metadata["donor"] = donors
    method = Method("nothing", "Nothing", Nothing())
    task = Task("status", "status", "binary", classes=("negative", "positive"), n_positive=1)
    return SubsampledPlan(
        dataset=dataset,
        folds=LabelledFolds(task=task, labels=donors % 2, fold_of=donors // 2 % 5),
        seed=0,
        content="",
        methods=(method,),
        groups=donors,
        **others,
    )


def test_a_share_of_the_donors_of_each_class_is_kept() -> None:
    whole, half, quarter = plan(80, 2), plan(80, 2, share=0.5), plan(80, 2, share=0.25)
    for fold in range(5):
        learned = []
        for each in (whole, half, quarter):
            split = each.splits[fold]
            np.testing.assert_array_equal(split.test, whole.splits[fold].test)
            rows = np.concatenate([split.train, split.validation])
            learned.append(set(rows.tolist()))
            assert {row ^ 1 for row in learned[-1]} == learned[-1]  # both repertoires of a donor
            np.testing.assert_array_equal(np.bincount(each.folds.labels[rows]), [len(rows) / 2] * 2)
        assert learned[2] < learned[1] < learned[0]
        assert [len(each) for each in learned] == [64, 32, 16]
        assert half.n_learned(fold) == 32
    other = plan(80, 2, share=0.5, draw=1)
    assert set(other.splits[0].train.tolist()) != set(half.splits[0].train.tolist())
    keys = [each.make_final_job(each.methods[0], 0, {}).key for each in (whole, half, quarter, other)]
    assert len(set(keys)) == 4


def test_a_donor_has_the_class_of_the_first_repertoire_with_a_label() -> None:
    """The first repertoire of every other positive donor has none: these donors are no class of their own."""
    whole = plan(60, 2)
    labels, fold_of = whole.folds.labels.copy(), whole.folds.fold_of.copy()
    labels[2::8] = fold_of[2::8] = -1
    few = replace(whole, folds=replace(whole.folds, labels=labels, fold_of=fold_of), share=0.125)
    for split in few.splits:
        for rows in (split.train, split.validation):
            assert [len(np.unique(whole.donors[rows][labels[rows] == c])) for c in (0, 1)] == [1, 1]


def test_the_smallest_class_of_all_draws_counts_also_if_it_is_absent() -> None:
    """Negative donors have 1 or 9 repertoires, so draws of a third of them differ; without positives there are 0."""
    whole = plan(400)
    sizes = np.where(np.arange(60) % 4 == 0, 9, 1)
    donors = np.repeat(np.arange(60), sizes)
    whole = replace(whole, groups=np.r_[donors, np.arange(60, 460 - len(donors))])
    labels, fold_of = np.r_[donors % 2, np.ones(400 - len(donors), np.int64)], whole.donors // 2 % 5
    whole = replace(whole, folds=replace(whole.folds, labels=labels, fold_of=fold_of))
    plans = [replace(whole, share=0.25, draw=draw) for draw in range(8)]
    of_one, of_two, of_eight = (_count_smallest_class(plans[:n]) for n in (1, 2, 8))
    assert of_one >= of_two >= of_eight != of_one
    one_class = replace(whole, folds=replace(whole.folds, labels=np.zeros(400, np.int64)))
    assert _count_smallest_class([replace(one_class, share=0.25)]) == 0


def test_repertoires_that_were_drawn_several_times_count_as_often() -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 40), rng.integers(0, 9, 40) / 3
    n_drawn = rng.integers(0, 4, (3, 40))
    expected = [roc_auc_score(np.repeat(labels, own), np.repeat(scores, own)) for own in n_drawn]
    np.testing.assert_allclose(_compute_sample_aucs(labels, scores, n_drawn), expected)
    assert np.isnan(_compute_sample_aucs(np.ones(4, np.int64), np.arange(4.0), np.ones((1, 4), np.int64))).all()


def test_draws_that_differ_widen_intervals_by_hand() -> None:
    """0.75 of the variance of new donors is between draws of a quarter of them, 0.5 between those of a half."""
    variance, shares = np.array([0.001, 0.002, 0.002]), np.array([0.25, 0.5, 1.0])
    quiet = [np.array([0.70, 0.71, 0.72]), np.array([0.75, 0.76, 0.77]), np.array([0.8])]
    np.testing.assert_allclose(_compute_spread_factor(variance, quiet, shares, 5) ** 2, 2.25)
    np.testing.assert_allclose(
        _compute_spread_factor(variance, [own[:1] for own in quiet], shares, 5) ** 2, 2.25
    )  # one draw
    loud = [np.array([0.6, 0.7, 0.8]), np.array([0.65, 0.75, 0.85]), np.array([0.8])]
    training_variance = (0.01 + 0.01) / (0.75 + 0.5)
    mean_variance = training_variance * np.array([0.25 + 0.75 / 3, 0.5 + 0.5 / 3, 1.0])
    np.testing.assert_allclose(_compute_spread_factor(variance, loud, shares, 5) ** 2, 1 + mean_variance / variance)


def test_the_interval_of_perfect_separation_is_not_a_point() -> None:
    """Five folds of 8 repertoires, all separated: bootstrap samples do not differ, and still little is known."""
    whole = plan(40)
    folds = [whole.splits[fold].test for fold in range(5)]
    tested = FoldScores(folds, [whole.folds.labels[rows].astype(float) for rows in folds])
    curve = _make_curve(whole.methods[0], whole, [_MeasuredShare(1.0, 32.0, [tested])], [], PowerOptions())
    low, high = compute_auc_interval(1.0, [4] * 5, [4] * 5, variance_factor=2.25)
    assert low < 0.9
    measured, *extrapolated = curve.table.to_dict("records")
    assert (measured["auc"], measured["auc_low"], measured["auc_high"]) == (1.0, pytest.approx(low, abs=0.02), high)
    assert measured["auc_low"] <= low
    for row in extrapolated:
        assert (row["auc"], row["auc_high"]) == (1.0, 1.0)
        assert row["auc_low"] < 0.95
    assert curve.n_needed[2] == np.inf  # the AUC of 0.9 may never be reached


def test_permuted_labels_stay_with_donors() -> None:
    whole = plan(80, 2)
    options = PowerOptions(n_permutations=5, benchmark=BenchmarkOptions(group_by="donor"))
    for each in _make_permuted_plans(whole, options):
        np.testing.assert_array_equal(each.folds.labels[::2], each.folds.labels[1::2])
        assert each.folds.labels.sum() == 40
        assert (each.folds.labels != whole.folds.labels).any()
        for fold in range(5):  # the folds are divided anew, by the permuted labels
            test = each.splits[fold].test
            assert len(np.unique(each.folds.labels[test])) == 2
            assert {row ^ 1 for row in test.tolist()} == set(test.tolist())


def test_a_permutation_that_cannot_be_divided_into_folds_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Three donors of six repertoires are positive, ten of one are negative: permuted, a class may have three."""
    whole = plan(28)
    donors = np.r_[np.repeat([0, 1, 2], 6), np.arange(3, 13)]
    whole.dataset.container.metadata["donor"] = donors  # type: ignore[union-attr]
    folds = replace(whole.folds, labels=(donors < 3).astype(np.int64))
    whole = replace(whole, folds=folds, groups=donors)
    options = PowerOptions(n_permutations=20, benchmark=BenchmarkOptions(group_by="donor"))
    made = _make_permuted_plans(whole, options)
    assert 0 < len(made) < 20
    assert all(min(np.bincount(each.folds.labels)) >= 5 for each in made)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{20 - len(made)} of 20 permutations of the labels leave too few")


def test_donors_are_those_of_the_sheet_without_group_by(caplog: pytest.LogCaptureFixture) -> None:
    """As in a benchmark: folds separate repertoires of a donor only by `group_by`, intervals and labels always do."""
    whole = plan(80, 4)  # with a column `donor`
    options = PowerOptions(n_permutations=5)
    made = _make_full_plan(whole.dataset, "status=positive", ["repertoire-size"], options)
    assert made.groups is None
    assert not made.refits  # a curve does not show them, and they would double the time
    np.testing.assert_array_equal(made.donors, np.arange(80) // 4)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "values of 'donor' have repertoires in more than one fold" in told
    labelled = replace(made, folds=replace(made.folds, labels=whole.folds.labels))
    for each in _make_permuted_plans(labelled, options):
        assert (each.folds.labels.reshape(20, 4) == each.folds.labels[::4, None]).all()
    np.testing.assert_array_equal(replace(made, known_donors=None).donors, np.arange(80))


def auc_of_pipeline(own: SubsampledPlan, features: np.ndarray) -> FoldScores:
    """Return the test scores of a small learner: it takes the feature with the highest correlation in training."""
    tested = FoldScores([], [])
    for fold in range(own.n_folds):
        split = own.splits[fold]
        r = [np.corrcoef(one[split.train], own.folds.labels[split.train])[0, 1] for one in features]
        best = int(np.abs(r).argmax())
        tested.rows.append(split.test)
        tested.scores.append(np.sign(r[best]) * features[best][split.test])
    return tested


@pytest.mark.slow
@pytest.mark.parametrize("shared", [pytest.param(False, marks=pytest.mark.long), True])
def test_without_a_signal_p_values_are_uniform(shared: bool) -> None:
    """Also if the repertoires of a donor are the same."""
    options, found = PowerOptions(n_permutations=19, benchmark=BenchmarkOptions(group_by="donor")), []
    whole = plan(60, 2)
    whole = _replace_labels(whole, whole.folds.labels, options.benchmark)
    permuted = _make_permuted_plans(whole, options)
    for seed in range(80):
        features = np.random.default_rng(seed).normal(size=(5, 60))
        features = np.repeat(features[:, ::2], 2, axis=1) if shared else features
        auc = average_aucs([[auc_of_pipeline(whole, features)]], whole.folds.labels)[0, 0]
        found.append(compute_p_value(auc, [(each, auc_of_pipeline(each, features)) for each in permuted], 19))
    assert kstest(found, "uniform").pvalue > 0.01
    assert np.mean(np.array(found) <= 0.1) <= 0.2


def test_a_permutation_without_an_auc_counts_as_high() -> None:
    ten = plan(10)
    one_class = replace(ten, folds=replace(ten.folds, labels=np.ones(10, np.int64)))
    tested = FoldScores([np.arange(10)], [np.arange(10.0)])
    assert compute_p_value(0.9, [(one_class, tested)] * 3, 3) == 1
    assert compute_p_value(0.9, [(plan(10), tested)] * 3, 3) == 0.25
    assert compute_p_value(0.9, [(plan(10), tested)] * 3, 7) == 5 / 8  # four were not run
    assert np.isnan(compute_p_value(0.9, [], 0))


def test_below_the_smallest_number_nothing_is_said() -> None:
    law = PowerLaw(0.95, 0.0, 1.0)
    table = pd.DataFrame(
        {"kind": "measured", "n_cohort": [24.6, 80], "n_learned": [20, 64], "auc": 0.95, "auc_low": 0.9, "auc_high": 1}
    )
    flat = LearningCurve("any", table, law, 0.9, (1.25, 1.25, 60.0), float("nan"), 0)
    (line,) = [line for line in flat.to_lines() if "needs" in line]
    assert "needs fewer than 25 repertoires (95% interval: fewer than 25 to 60; 25 is the smallest that was" in line
    labels = [tick.get_text() for tick in draw_learning_curve_figure([flat]).axes[0].get_xticklabels()]
    assert labels == ["25", "80"]
    (line,) = [line for line in replace(flat, n_needed=(40.0, 30.0, np.inf)).to_lines() if "needs" in line]
    never, below = "is not reached with any number of repertoires", "; 25 is the smallest that was measured"
    for numbers, told in (
        ((40.0, 30.0, np.inf), "needs 40 repertoires (95% interval: any number from 30 on, or never)"),
        ((np.inf, 30.0, np.inf), f"{never} (95% interval: any number from 30 on, or never)"),
        ((np.inf, 10.0, np.inf), f"{never} (95% interval: any number from fewer than 25 on, or never{below})"),
        ((np.inf, np.inf, np.inf), f"{never} (95% interval: not reached)"),
        ((40.0, np.inf, np.inf), "needs 40 repertoires (95% interval: not reached)"),
        ((10.0, 10.0, 10.0), f"needs fewer than 25 repertoires (95% interval: fewer than 25{below})"),
        ((40.0, 30.0, 60.0), "needs 40 repertoires (95% interval: 30 to 60)"),
    ):
        assert f"  AUC 0.9 {told}, if the curve goes on like this" in replace(flat, n_needed=numbers).to_lines()
    explained = "  This number is from the curve through all sizes; the measured AUC of 80 repertoires is 0.950"
    assert explained in replace(flat, n_needed=(np.inf, 30.0, np.inf)).to_lines()
    assert explained not in replace(flat, n_needed=(80.0, 30.0, np.inf)).to_lines()
    assert explained in replace(flat, n_needed=(60.0, 30.0, 90.0), target_auc=0.96).to_lines()


def test_without_an_interval_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeprc.power.learning_curve.resample_aucs", lambda *_: np.full((5, 3), np.nan))
    cohort = SimulatedDataset(PlannedStudy(n_repertoires=60, depth=50, witness_rate=0.5).to_cohort(1))
    with pytest.raises(InputError, match="too few donors"):
        measure_learning_curve(cohort, target="status=positive", methods=["repertoire-size"])


@pytest.mark.slow
def test_a_strong_signal_is_found_and_the_same_again(tmp_path: Path) -> None:
    cohort = SimulatedDataset(PlannedStudy(n_repertoires=60, depth=300, witness_rate=0.03).to_cohort(1))
    options = PowerOptions(n_permutations=9, n_draws=2, auc=0.8)
    call = {"target": "status=positive", "methods": ["known-recipe"], "options": options, "output": tmp_path / "jobs"}
    (curve,) = measure_learning_curve(cohort, **call)  # type: ignore[arg-type]
    measured = curve.table[curve.table["kind"] == "measured"]
    assert measured["n_learned"].tolist() == pytest.approx([24, 36, 48], abs=2)
    assert measured["n_runs"].tolist() == [2, 2, 1]
    assert (measured["auc"] > 0.95).all()
    assert (measured["auc_low"] <= measured["auc"]).all()
    assert (measured["auc_high"] >= measured["auc"]).all()
    assert curve.p_value == 0.1
    assert curve.n_needed[0] == pytest.approx(1.25)  # the law is flat: one repertoire to learn from
    with pytest.raises(InputError, match="resume"):
        measure_learning_curve(cohort, **call)  # type: ignore[arg-type]
    (again,) = measure_learning_curve(cohort, resume=True, **call)  # type: ignore[arg-type]
    pd.testing.assert_frame_equal(again.table, curve.table)


@pytest.mark.parametrize("changed", [{"n_draws": 0}, {"n_draws": 10**30}, {"n_permutations": -1}, {"auc": 0.5}])
def test_bad_options_are_refused(changed: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(changed))):
        PowerOptions(**changed)  # type: ignore[arg-type]


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["power", *words])
    return int(ended.value.code or 0)


@pytest.mark.slow
def test_the_command_on_a_cohort(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = str(cohort_factory(60, 30, seed=4).container.path), tmp_path / "power"
    call = [path, "--target", "status=case", "--method", "repertoire-size", "--draws", "1", "-o", str(folder)]
    assert run(*call, "--permutations", "4") == 0
    shown = capsys.readouterr().out
    assert "4 permutations" in shown
    assert shown.endswith(f"Wrote {folder}\n")
    assert shown.count("Wrote") == 1
    table = pd.read_csv(folder / "power.tsv", sep="\t")
    assert table["kind"].tolist()[-3:] == ["extrapolated"] * 3
    assert (folder / "power.png").read_bytes().startswith(b"\x89PNG")
    assert run(*call) == 2
    assert "--resume" in capsys.readouterr().err
    assert run(*call, "--resume") == 0
    assert run(*call[:-2]) == 0
    assert capsys.readouterr().out.endswith("Nothing was written; --output FOLDER keeps the tables.\n")


@pytest.mark.parametrize(
    ("options", "begun", "shown"), [(["-o", "{folder}"], True, 1), ([], True, 0), (["-o", "{folder}"], False, 0)]
)
def test_an_interruption_says_how_to_continue(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    begun: bool,
    shown: int,
) -> None:
    def stop(*_: object, **__: object) -> None:
        if begun:
            (tmp_path / "power" / "jobs").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("deeprc.power.learning_curve.measure_learning_curve", stop)
    words = [word.format(folder=tmp_path / "power") for word in options]
    assert run("c.h5", "--target", "status=case", *words) == 130
    assert capsys.readouterr().err.count("Interrupted. Continue with the same command and --resume.\n") == shown


@pytest.mark.slow
def test_the_command_on_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--repertoires", "70", "--depth", "1000", "--witness-rate", "0.05"]
    assert run(*words, "--cohorts", "0") == 0
    assert "it should find this motif" in capsys.readouterr().out
    folder = tmp_path / "plan"
    assert run(*words, "--method", "known-recipe", "--cohorts", "1", "-o", str(folder)) == 0
    assert "expect an AUC of 1.000" in capsys.readouterr().out
    assert pd.read_csv(folder / "power.tsv", sep="\t")["auc"].tolist() == [1.0]
    assert run(*words, "--method", "known-recipe", "--cohorts", "2", "-o", str(folder), "--resume") == 0
    assert pd.read_csv(folder / "power.tsv", sep="\t")["cohort"].tolist() == [1, 2]
    assert run(*words[:-1], "0.06", "--method", "known-recipe", "-o", str(folder), "--resume") == 2
    assert "holds a power analysis in which the cohort's content is another one" in capsys.readouterr().err
    for held in (folder, folder / "jobs"):
        with pytest.raises(InputError, match="holds a power analysis, which has no report"):
            deeprc.report(held, output=tmp_path / "report.html")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected a CONTAINER, or --repertoires, --depth, --witness-rate"),
        (["--repertoires", "40"], "--depth, --witness-rate"),
        (["--target", "x", "--repertoires", "40"], "--target needs a CONTAINER"),
        (["cohort.h5", "--target", "x", "--depth", "3"], "--depth cannot be combined with a CONTAINER"),
        (["cohort.h5"], "--target"),
        (["--resume"], "--resume needs --output"),
        (["cohort.h5", "--target", "x", "--method", " ,"], "--methods ' ,': expected names of methods"),
        (["--repertoires", "4", "--depth", "9", "--witness-rate", "0.1"], "--repertoires 4: expected at least 5"),
        (["--repertoires", "40", "--depth", "9", "--witness-rate", "2"], "--witness-rate 2"),
    ],
)
def test_bad_calls_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    shown = capsys.readouterr().err.strip()
    assert message in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("planned", [True, False])
def test_a_scheduler_that_is_not_there_leaves_no_folder(
    cohort_factory: Callable[..., RepertoireDataset],
    tmp_path: Path,
    planned: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("distributed")
    study = ["--repertoires", "40", "--depth", "9", "--witness-rate", "0.1"]
    words = study if planned else [str(cohort_factory(20, 9).container.path), "--target", "status=case"]
    assert run(*words, "--method", "repertoire-size", "--scheduler", "nowhere", "-o", str(tmp_path / "power")) == 2
    assert "--scheduler nowhere: cannot be reached" in capsys.readouterr().err
    assert not (tmp_path / "power").exists()
