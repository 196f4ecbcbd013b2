"""Regressors: one contract, and against independent implementations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.svm import SVR

from deeprc.baselines.boosted import BoostedTreesRegressor
from deeprc.baselines.controls import RepertoireSizeRidge, VGeneUsageRidge, compute_size_features
from deeprc.baselines.diversity import DiversityRidge
from deeprc.baselines.kernels import compute_gram
from deeprc.baselines.knn import KNNRegressor
from deeprc.baselines.linear import fit_ridge_path
from deeprc.baselines.logistic import KmerRidge
from deeprc.baselines.sheet import SheetColumns, SheetColumnsRidge, list_control_columns
from deeprc.baselines.svm import SVMRegressor
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import RepertoireRegressor
from deeprc.labels import find_canonical_order
from deeprc.outputs import activate
from deeprc.tasks import Task
from deeprc.training.estimator import DeepRCRegressor
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.model import TrainedModel
from deeprc.training.trainer import Trainer

_QUICK = {"n_updates": 5, "n_kernels": 4, "n_sequences": 20, "evaluate_every": 5, "composition": False}
REGRESSORS: dict[str, Callable[[], RepertoireRegressor]] = {
    "size": RepertoireSizeRidge,
    "diversity": DiversityRidge,
    "boosted": lambda: BoostedTreesRegressor(max_gap=0, max_iter=20),
    "genes": VGeneUsageRidge,
    "ridge": KmerRidge,
    "svm-minmax": SVMRegressor,
    "svm-jaccard": lambda: SVMRegressor(kernel="jaccard"),
    "knn": lambda: KNNRegressor(n_neighbors=3),
    "sheet": lambda: SheetColumnsRidge(columns=["grade"]),
    "deeprc": lambda: DeepRCRegressor(overrides=_QUICK, device="cpu"),
}


@pytest.fixture(scope="module")
def numbers(cohort: RepertoireDataset) -> np.ndarray:
    rng = np.random.default_rng(1)
    return 40 + 10 * (cohort.metadata["status"] == "case").to_numpy() + rng.normal(0, 2, len(cohort))


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_obeys_the_contract_of_estimators(
    name: str, cohort: RepertoireDataset, numbers: np.ndarray, tmp_path: Path
) -> None:
    estimator = REGRESSORS[name]()
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.fit(cohort[:20], numbers[:20]) is estimator
    predicted = estimator.predict(cohort[20:])
    assert predicted.shape == (10,)
    assert np.isfinite(predicted).all()
    assert estimator.predict(cohort[:0]).shape == (0,)
    order = np.random.default_rng(0).permutation(20)
    again = clone(estimator).fit(cohort[order], numbers[order])
    np.testing.assert_array_equal(again.predict(cohort[20:]), predicted)  # the cohort's order decides nothing
    shifted = clone(estimator).fit(cohort[:20], 1000 + 10 * numbers[:20]).predict(cohort[20:])
    np.testing.assert_allclose(shifted, 1000 + 10 * predicted, rtol=1e-5)  # nor do the units
    estimator.save(tmp_path / "model.safetensors")
    loaded = type(estimator).load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(loaded.predict(cohort[20:]), predicted, rtol=1e-6)
    for wrong, message in (
        (numbers[:19], "expected one label per repertoire"),
        (np.full(20, 3.0), "one value only"),
        (np.where(np.arange(20) == 4, np.nan, numbers[:20]), "missing or infinite"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(estimator).fit(cohort[:20], wrong)
    with pytest.raises(TypeError, match="expected a RepertoireDataset"):
        clone(estimator).fit(numbers[:20], numbers[:20])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("size", [0.1, 1, 10]),
        ("diversity", [0.1, 10]),
        ("ridge", [1, 0.01]),
        ("svm-minmax", [0.1, 5]),
        ("knn", [1, 4, 99]),
    ],
)
def test_a_path_is_what_each_value_gives(
    name: str, values: list[float], cohort: RepertoireDataset, numbers: np.ndarray
) -> None:
    estimator = REGRESSORS[name]()
    path = estimator.decision_path(cohort[:20], numbers[:20], cohort[20:], values)
    assert not hasattr(estimator, "mean_")
    each = [
        clone(estimator).set_params(**{estimator.path_parameter: value}).fit(cohort[:20], numbers[:20])
        for value in values
    ]
    np.testing.assert_allclose(path, [one.predict(cohort[20:]) for one in each], rtol=1e-9)


def test_ridge_is_scikit_learns(cohort: RepertoireDataset) -> None:
    rng = np.random.default_rng(0)
    rows, y = rng.normal(3, 2, (25, 7)), rng.normal(size=25)
    rows[:, 3] = 5.0  # constant: left out
    standard = (rows - rows.mean(0)) / np.where(rows.std(0) > 0, rows.std(0), 1)
    for C, solution in zip([0.1, 4.0], fit_ridge_path(rows, y, [0.1, 4.0]), strict=True):
        known = Ridge(alpha=1 / C).fit(standard / np.sqrt(6), y)
        found = rows[:, solution.columns] @ solution.coefficients + solution.intercept
        np.testing.assert_allclose(found, known.predict(standard / np.sqrt(6)), rtol=1e-9)
        assert solution.columns.tolist() == [0, 1, 2, 4, 5, 6]


def test_ridge_on_sizes_and_svm_are_scikit_learns(cohort: RepertoireDataset, numbers: np.ndarray) -> None:
    rows = np.array([compute_size_features(repertoire.counts) for repertoire in cohort])
    standard = (rows - rows[:20].mean(0)) / rows[:20].std(0)
    known = Ridge(alpha=1.0).fit(standard[:20] / 3, numbers[:20]).predict(standard[20:] / 3)
    np.testing.assert_allclose(RepertoireSizeRidge().fit(cohort[:20], numbers[:20]).predict(cohort[20:]), known)
    kernel = compute_gram(cohort, "minmax")
    y = (numbers[:20] - numbers[:20].mean()) / numbers[:20].std()
    machine = SVR(kernel="precomputed", C=2, epsilon=0.1, tol=1e-8).fit(kernel[:20, :20], y)
    expected = numbers[:20].mean() + numbers[:20].std() * machine.predict(kernel[20:, :20])
    found = SVMRegressor(C=2).fit(cohort[:20], numbers[:20]).predict(cohort[20:])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_nearest_neighbours_by_hand(cohort: RepertoireDataset, numbers: np.ndarray) -> None:
    kernel = compute_gram(cohort, "minmax")[20:, :20]
    nearest = np.argsort(-kernel, axis=1)[:, :3]
    found = KNNRegressor(n_neighbors=3).fit(cohort[:20], numbers[:20]).predict(cohort[20:])
    np.testing.assert_allclose(found, numbers[:20][nearest].mean(axis=1))


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (RepertoireSizeRidge(C=0), "C: expected a number above 0, found 0"),
        (SVMRegressor(C=-1), "C: expected a number above 0, found -1"),
        (SVMRegressor(epsilon=-1), "epsilon: expected a number of at least 0, found -1"),
        (KNNRegressor(n_neighbors=0), "n_neighbors: expected a whole number of at least 1, found 0"),
        (KmerRidge(scale="none"), "scale: expected one of standard, common, found 'none'"),
        (SheetColumnsRidge(columns=["site"]), "the sheet has no column 'site'"),
        (SheetColumnsRidge(), "the sheet has no other column"),
    ],
)
def test_parameters_out_of_range(
    estimator: RepertoireRegressor, message: str, cohort: RepertoireDataset, numbers: np.ndarray
) -> None:
    with pytest.raises(InputError, match=message):
        estimator.fit(cohort, numbers)


def test_columns_that_a_control_can_read() -> None:
    n = 40
    table = pd.DataFrame(
        {
            "age": np.arange(n, dtype=float),
            "site": ["a", "b"] * 20,
            "name": [f"n{i}" for i in range(n)],
            "constant": "x",
            "half": [None, "b", "c", "b"] * 10,
            "target": ["x", "y"] * 20,
            "empty": np.nan,
        }
    )
    assert list_control_columns(table, left_out={"target"}) == ["age", "site", "half"]


def test_the_sheet_control_reads_categories_numbers_and_what_is_missing(cohort: RepertoireDataset) -> None:
    grade = cohort.metadata["grade"].map({"low": 1.0, "mid": 2.0, "high": 3.0}).to_numpy()
    model = SheetColumnsRidge(columns=["grade"], C=1e6).fit(cohort[:20], grade[:20])
    np.testing.assert_allclose(model.predict(cohort[20:]), grade[20:], atol=1e-3)
    missing = cohort.metadata["age"].isna().to_numpy()
    model = SheetColumns(columns=["age"], C=100).fit(cohort[:20], missing[:20])
    assert (model.predict(cohort[20:]) == missing[20:]).all()
    assert missing[20:].any()


@pytest.mark.slow
def test_deeprc_is_trained_as_a_run_for_a_number_is(cohort: RepertoireDataset, numbers: np.ndarray) -> None:
    model = DeepRCRegressor(overrides=_QUICK, device="cpu")
    model.fit(cohort[:16], numbers[:16], X_validation=cohort[16:24], y_validation=numbers[16:24])
    parts = []
    for part in (slice(0, 16), slice(16, 24)):
        order = find_canonical_order(cohort[part], numbers[part])
        parts.append(LabelledRepertoires(cohort[part][order], numbers[part][order][:, None]))
    task = Task("y", "y", "regression", mean=float(numbers[:16].mean()), scale=float(numbers[:16].std()))
    config = load_config("deeprc", {**_QUICK, "branches_use_validation": False})  # validation repertoires were given
    trainer = Trainer(config, [task], *parts, seed=0, device=torch.device("cpu"))
    trainer.fit()
    outputs = TrainedModel((task,), trainer.network, config).compute_outputs(cohort[24:])
    np.testing.assert_allclose(model.predict(cohort[24:]), activate(outputs, [task])[0], rtol=1e-6)
    with pytest.raises(ValueError, match="y_validation: expected 8 numbers"):
        model.fit(cohort[:16], numbers[:16], X_validation=cohort[16:24], y_validation=numbers[16:20])
