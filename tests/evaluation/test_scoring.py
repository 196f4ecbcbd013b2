"""Several classes and numbers in a benchmark: measures, tests, comparison, tables, curves, folder."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score, roc_auc_score

from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.auc_comparison import run_paired_error_test, run_paired_macro_auc_test
from deeprc.evaluation.auc_intervals import compute_auc_interval
from deeprc.evaluation.caution import read_cautions
from deeprc.evaluation.comparison import MethodInfo, compare, compute_fold_metrics, validate_predictions
from deeprc.evaluation.comparison_cautions import find_comparison_cautions
from deeprc.evaluation.curves import make_curves_table
from deeprc.evaluation.scoring import BINARY, MulticlassScoring, RegressionScoring, choose_scoring
from deeprc.evaluation.significance import FEW_IN_CLASS, are_few_repertoires, classify_difference
from deeprc.interpretation.report import write_benchmark_report

NUMBERS = RegressionScoring()
GRADES = MulticlassScoring(("high", "low", "mid"))
METHODS = [MethodInfo("a", "Method A"), MethodInfo("b", "Method B"), MethodInfo("v", "V gene usage", "control")]


def number_predictions(errors: dict[str, float], n: int = 12, folds: int = 4, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    label = rng.normal(50, 10, n * folds)
    parts = []
    for name, error in errors.items():
        predicted = label + error * rng.normal(size=len(label)) if np.isfinite(error) else np.full(len(label), 50.0)
        ids = [f"r{i}" for i in range(len(label))]
        columns = {"method": name, "fold": np.arange(len(label)) % folds, "repertoire_id": ids, "label": label}
        parts.append(pd.DataFrame({**columns, "prediction": predicted}))
    return pd.concat(parts, ignore_index=True)


def class_predictions(strengths: dict[str, float], n: int = 18, folds: int = 3, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    index = np.arange(n * folds) % 3
    fold = np.arange(n * folds) // n
    parts = []
    for name, strength in strengths.items():
        scores = rng.normal(size=(len(index), 3)) + strength * np.eye(3)[index]
        probability = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        table = pd.DataFrame({"method": name, "fold": fold, "repertoire_id": [f"r{i}" for i in range(len(index))]})
        table["label"] = [GRADES.classes[c] for c in index]
        for c, grade in enumerate(GRADES.classes):
            table[f"score={grade}"], table[f"probability={grade}"] = probability[:, c], probability[:, c]
        parts.append(table)
    return pd.concat(parts, ignore_index=True)


def test_few_repertoires_and_verdicts_begin_at_their_limits() -> None:
    assert (are_few_repertoires("binary", FEW_IN_CLASS - 1), are_few_repertoires("binary", FEW_IN_CLASS)) == (
        True,
        False,
    )
    assert (are_few_repertoires("regression", 29), are_few_repertoires("regression", 30)) == (True, False)
    assert [
        classify_difference(*pair) for pair in ((0.3, 0.039), (-0.3, 0.039), (0.3, 0.05), (-0.1, 0.9), (0.3, np.nan))
    ] == [
        "better",
        "worse",
        "equal",
        "equal",
        "equal",
    ]


def test_r2_is_that_of_all_folds_together() -> None:
    table = number_predictions({"a": 4.0, "b": 8.0, "v": np.inf})
    comparison = compare(table, METHODS, scoring=NUMBERS).set_index("method")
    for name, part in table.groupby("method"):
        assert comparison["r2"][name] == pytest.approx(r2_score(part["label"], part["prediction"]))
        each = [r2_score(fold["label"], fold["prediction"]) for _, fold in part.groupby("fold")]
        assert comparison["r2_sd"][name] == pytest.approx(np.std(each, ddof=1))
    assert comparison["best"].tolist() == [True, False, False]
    assert comparison["n_repertoires"].tolist() == [48] * 3
    assert (comparison["ci_low"] < comparison["r2"]).all()
    assert (comparison["r2"] < comparison["ci_high"]).all()
    metrics = compute_fold_metrics(table, NUMBERS)
    assert set(metrics["metric"]) == {"r2", "spearman", "mae"}
    part = table[(table["method"] == "a") & (table["fold"] == 2)]
    mae = metrics[(metrics["method"] == "a") & (metrics["fold"] == 2) & (metrics["metric"] == "mae")]["value"].item()
    assert mae == pytest.approx((part["label"] - part["prediction"]).abs().mean())


def test_random_signs_agree_with_all_signs() -> None:
    rng = np.random.default_rng(2)
    label = rng.normal(size=8)
    first, second = label + 0.4 * rng.normal(size=8), label + 0.9 * rng.normal(size=8)
    errors = (label - second) ** 2 - (label - first) ** 2
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1)
    exact = (np.abs(errors @ signs) >= abs(errors.sum()) - 1e-12).mean()
    found = run_paired_error_test(label, first, second)
    assert found.p_value == pytest.approx(exact, abs=0.015)
    assert found.difference == pytest.approx(r2_score(label, first) - r2_score(label, second))
    assert run_paired_error_test(label, second, first).difference == pytest.approx(-found.difference)
    assert run_paired_error_test(label, first, first) == (0.0, 1.0, "signs")


@pytest.mark.long
def test_tests_hold_their_level() -> None:
    """Methods that are alike are told apart in about 5% of cohorts."""
    rng = np.random.default_rng(0)
    numbers, classes = [], []
    for _ in range(400):
        label = rng.normal(size=25)
        common = rng.normal(size=25)
        first, second = (label + common + rng.standard_t(4, 25) for _ in range(2))
        numbers.append(run_paired_error_test(label, first, second).p_value)
        index = np.arange(24) % 3
        a, b = (rng.normal(size=(24, 3)) + np.eye(3)[index] for _ in range(2))
        ranks = [np.argsort(np.argsort(x, axis=0), axis=0) + 1.0 for x in (a, b)]
        classes.append(run_paired_macro_auc_test([index], [ranks[0]], [ranks[1]]).p_value)
    for p_values in (numbers, classes):
        assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.085


def test_macro_auc_by_hand() -> None:
    table = class_predictions({"a": 2.0, "b": 0.5, "v": 0.0})
    comparison = compare(table, METHODS, scoring=GRADES).set_index("method")
    own = table[table["method"] == "a"]
    aucs = np.array(
        [
            [roc_auc_score(fold["label"] == grade, fold[f"score={grade}"]) for grade in GRADES.classes]
            for _, fold in own.groupby("fold")
        ]
    )
    assert comparison["auc_mean"]["a"] == pytest.approx(aucs.mean())
    assert comparison["auc_sd"]["a"] == pytest.approx(aucs.mean(axis=1).std(ddof=1))
    limits = [compute_auc_interval(auc, [6] * 3, [12] * 3, variance_factor=2.5) for auc in aucs.mean(axis=0)]
    assert (comparison["ci_low"]["a"], comparison["ci_high"]["a"]) == pytest.approx(tuple(np.mean(limits, axis=0)))
    assert comparison["best"].tolist() == [True, False, False]
    assert comparison["n_smallest"].tolist() == [18] * 3
    assert comparison["p_value"]["v"] < 0.01
    assert comparison["test"]["v"] == "permutation"
    curves = make_curves_table(table, METHODS, GRADES)
    mean = curves[(curves["method"] == "a") & (curves["curve"] == "roc") & (curves["fold"] == "mean")]
    assert trapezoid(mean["y"], mean["x"]) == pytest.approx(aucs.mean())


def test_a_control_that_is_better_is_called_better() -> None:
    texts = [each.text for each in find_comparison_cautions(*_compared({"a": 12.0, "b": 14.0, "v": 3.0}), NUMBERS)]
    better = "V gene usage, a control method that sees no amino-acid sequence, is significantly better than "
    assert any(text.startswith(better) for text in texts)
    texts = [each.text for each in find_comparison_cautions(*_compared({"a": 2.0, "b": 14.0, "v": 30.0}), NUMBERS)]
    assert texts[0].startswith("Every control method is significantly worse than the best method, Method A (r² 0.9")
    found = find_comparison_cautions(*_compared({"a": 4.0, "v": 4.0}, n=5, seed=1), NUMBERS)
    assert [each.name for each in found][-2:] == ["control-not-worse", "few-repertoires"]
    assert found[-2].details["relation"] == "equal"
    assert "There are only 20 repertoires in all test folds together" in found[-1].text


def _compared(errors: dict[str, float], n: int = 12, seed: int = 0) -> tuple[pd.DataFrame, list[MethodInfo]]:
    methods = [each for each in METHODS if each.name in errors]
    return compare(number_predictions(errors, n=n, seed=seed), methods, scoring=NUMBERS), methods


@pytest.mark.parametrize(
    ("table", "scoring", "message"),
    [
        (number_predictions({"a": 1.0}).assign(prediction=np.nan), NUMBERS, "expected a number as prediction"),
        (number_predictions({"a": 1.0}).assign(prediction="x"), NUMBERS, "expected numbers as label, prediction"),
        (number_predictions({"a": 1.0}).drop(columns="prediction"), NUMBERS, "missing: prediction"),
        (class_predictions({"a": 1.0}).assign(label="best"), GRADES, "expected a label of high, low, mid"),
        (class_predictions({"a": 1.0}).assign(**{"probability=low": 2}), GRADES, "expected a probability of low"),
    ],
)
def test_predictions_that_cannot_be(
    table: pd.DataFrame, scoring: MulticlassScoring | RegressionScoring, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        validate_predictions(table, METHODS, scoring)


def test_there_is_no_other_kind() -> None:
    with pytest.raises(InputError, match="found 'ranking'"):
        choose_scoring("ranking")


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    """Search spaces of one setting, but for one method."""
    path = tmp_path / "preset.yaml"
    path.write_text(
        "knn-minmax: {search: {n_neighbors: [1, 5]}}\nlogistic: {fixed: {penalty: l2}, regression: {fixed: {C: 1}}}"
    )
    return path


class Mean(RegressorMixin, BaseEstimator):
    """Predicts the mean for all."""

    def fit(self, X: RepertoireDataset, y: np.ndarray) -> Mean:
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X: RepertoireDataset) -> np.ndarray:
        return np.full(len(X), self.mean_)


@pytest.mark.slow
def test_a_benchmark_of_numbers_measures_r2(
    cohort: RepertoireDataset, preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = {"logistic": None, "knn-minmax": None, "repertoire-size": None, "mean": Mean()}
    folder = tmp_path / "out"
    asked = {"target": "age:regression", "methods": methods, "output": folder}
    asked["options"] = BenchmarkOptions(folds=3, preset=preset)
    result = benchmark(cohort.container.path, **asked)
    assert not result.failures
    comparison = result.comparison.set_index("method")
    n = int(cohort.metadata["age"].notna().sum())
    assert comparison["n_repertoires"].tolist() == [n] * 4
    assert comparison["r2"]["mean"] < 0.05
    assert "Ridge regression" in result.table
    assert re.search(r"^\| Method +\| +r² \|", result.table, re.MULTILINE)
    assert "Macro" not in result.table
    (straddling, *_) = read_cautions(folder)
    assert (straddling.name, straddling.details["column"]) == ("subjects-apart", "patient_id")
    for name in ("table.md", "table.tex"):
        text = " ".join((folder / name).read_text().split()).replace("\\", "")
        assert "'patient_id' have repertoires in more than one fold" in text
        assert "There are only 26 repertoires in all test folds together" in text
    assert (folder / "curves" / "all.png").exists()
    monkeypatch.setattr("deeprc.benchmarking.result.draw_curves", lambda *_: None)  # they are there already
    again = benchmark(cohort.container.path, **asked, resume=True)
    assert again.table == result.table
    write_benchmark_report(folder, tmp_path / "page.html")
    page = " ".join((tmp_path / "page.html").read_text(encoding="utf-8").split())
    assert "r² is the share of the variance that the predictions explain" in page
    assert "The AUC is" not in page
    assert "patient_id&#39; have repertoires in more than one fold" in page
    assert "There are only 26 repertoires in all test folds together" in page
    assert "with the highest r² on the validation fold" in page
    with pytest.raises(InputError, match="method 'size': it predicts numbers; 'status=case' has classes"):
        benchmark(cohort, target="status=case", methods={"size": Mean()}, options=BenchmarkOptions(folds=3))


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_a_benchmark_of_several_classes_measures_the_macro_auc(
    cohort: RepertoireDataset, preset: Path, tmp_path: Path
) -> None:
    names = ("logistic", "svm-minmax", "knn-minmax", "v-gene-usage", "sheet-columns")
    folder = tmp_path / "out"
    asked = {"target": "grade:multiclass", "methods": names, "output": folder}
    asked["options"] = BenchmarkOptions(folds=3, preset=preset)
    result = benchmark(cohort.container.path, **asked)
    assert not result.failures
    probability = result.predictions[[f"probability={grade}" for grade in GRADES.classes]]
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    by_method = result.comparison.set_index("method")["auc_mean"]
    assert by_method["logistic"] > 0.6  # the motif is in every repertoire of grade high, in no other
    assert by_method["sheet-columns"] > 0.6  # the status says the same
    assert "Macro AUC" in result.table
    assert set((folder / "folds.tsv").read_text().split()) >= {"high", "low", "mid"}
    with pytest.raises(InputError, match="`methods=known-motif-binary`: it knows one signal"):
        benchmark(cohort, target="grade:multiclass", methods=["known-motif-binary"], options=BenchmarkOptions(folds=3))


@pytest.mark.slow
def test_deeprc_predicts_numbers_and_classes_in_a_benchmark(cohort: RepertoireDataset, tmp_path: Path) -> None:
    preset = tmp_path / "preset.yaml"
    preset.write_text(
        "deeprc:\n  fixed:\n    device: cpu\n"
        "    overrides: {n_updates: 10, n_kernels: 4, n_sequences: 20, evaluate_every: 5, composition: false}\n"
    )
    for target, columns in (("age:regression", ["prediction"]), ("grade:multiclass", ["score=high"])):
        result = benchmark(cohort, target=target, methods=["deeprc"], options=BenchmarkOptions(folds=3, preset=preset))
        assert not result.failures
        assert set(columns) <= set(result.predictions)


def test_a_class_is_called_from_the_cutoff() -> None:
    table = pd.DataFrame(
        {
            "method": "m",
            "fold": 0,
            "repertoire_id": list("abcd"),
            "label": [1, 1, 0, 0],
            "score": [0.9, 0.3, 0.2, 0.1],
            "probability": [0.9, 0.3, 0.2, 0.1],
        }
    )

    def accuracy(predictions: pd.DataFrame) -> float:
        metrics = compute_fold_metrics(predictions, BINARY)
        return float(metrics.loc[metrics["metric"] == "accuracy", "value"].item())

    assert accuracy(table) == 0.75  # 0.5, where a table names no cutoff
    assert accuracy(table.assign(cutoff=np.nan)) == 0.75
    assert accuracy(table.assign(cutoff=0.25)) == 1.0
    assert accuracy(table.assign(cutoff=0.15)) == 0.75
    with pytest.raises(InputError, match="expected a cutoff from 0 to 1"):
        accuracy(table.assign(cutoff=1.5))
