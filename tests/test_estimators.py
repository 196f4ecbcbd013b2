"""How a classifier of two classes learns the probabilities that its scores stand for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.svm import SVC

from deeprc.baselines.inner_folds import assign_grouped_folds
from deeprc.baselines.kernels import compute_gram
from deeprc.baselines.logistic import LogisticRegression
from deeprc.baselines.logistic_mil import LogisticMIL
from deeprc.baselines.svm import SVM
from deeprc.calibration import fit_platt_scaling
from deeprc.datasets.cache import digest_with_genes
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.estimators import BinaryClassifier
from deeprc.labels import find_canonical_order

N = 60
Y = (np.arange(N) // 2 % 2).astype(np.int64)


class Memory(BinaryClassifier):
    """Gives its training repertoires 1 or -1 by their label, and others the number in the sheet; then scales all."""

    path_parameter = "unit"
    fits: ClassVar[list[set[str]]] = []

    def __init__(self, *, unit: float = 1.0) -> None:
        self.unit = unit

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        self.fits.append(set(X.repertoire_ids))
        self.known_ = dict(zip(X.repertoire_ids, np.where(positive, 1.0, -1.0).tolist(), strict=True))
        self.shift_ = 100.0 * len(X)  # models of different folds differ in their units

    def _score_repertoires(self, X: RepertoireDataset) -> NDArray[np.float64]:
        numbers = zip(X.repertoire_ids, X.metadata["number"], strict=True)
        return np.array([self.unit * (self.known_.get(name, number) + self.shift_) for name, number in numbers])


@pytest.fixture
def data(small_cohort: Callable[..., RepertoireDataset], tmp_path: Path) -> RepertoireDataset:
    rng = np.random.default_rng(0)
    status = ["sick" if each else "well" for each in Y]
    numbers = rng.normal(0.5 * (2 * Y - 1), 1.0)
    Memory.fits.clear()
    return small_cohort(status, tmp_path / "c.h5", number=numbers, donor=np.arange(N) // 4)


def expected_calibration(data: RepertoireDataset) -> NDArray[np.float64]:
    """Return slope and intercept of what a `Memory` of all repertoires says: those of the numbers in the sheet."""
    number = data.metadata["number"].to_numpy()
    slope, intercept = fit_platt_scaling(number, Y == 1, unit=1.0)
    return np.array([slope, intercept - slope * 100 * N])


def test_probabilities_are_of_repertoires_that_a_model_has_not_seen(data: RepertoireDataset) -> None:
    model = Memory().fit(data, Y)
    np.testing.assert_allclose(model.calibration_, expected_calibration(data), rtol=1e-4)
    whole, *folds = Memory.fits
    assert whole == set(data.repertoire_ids)
    assert len(folds) == 5
    assert sorted(name for fold in folds for name in whole - fold) == sorted(whole)  # each is left out once
    odds = model.calibration_[0] * model.decision_function(data) + model.calibration_[1]
    np.testing.assert_allclose(model.predict_proba(data)[:, 1], expit(odds))


def test_units_do_not_matter(data: RepertoireDataset) -> None:
    one, other = Memory().fit(data, Y), Memory(unit=1e-6).fit(data, Y)
    np.testing.assert_allclose(other.predict_proba(data), one.predict_proba(data), rtol=1e-4)


def test_scores_alone_need_one_fit(data: RepertoireDataset) -> None:
    model, whole = Memory().fit_uncalibrated(data, Y), Memory().fit(data, Y)
    assert len(Memory.fits) == 1 + 6
    np.testing.assert_array_equal(model.decision_function(data), whole.decision_function(data))
    np.testing.assert_allclose(model.predict_proba(data)[:, 1], expit(model.decision_function(data)))
    Memory.fits.clear()
    Memory().decision_path(data, Y, data[:3], [1.0, 2.0])
    assert len(Memory.fits) == 2


def test_folds_do_not_separate_donors(data: RepertoireDataset) -> None:
    donors = data.metadata["donor"].to_numpy()
    Memory().fit(data, Y, groups=donors)
    names = np.array(data.repertoire_ids)
    for fold in Memory.fits[1:]:
        inside = np.isin(names, list(fold))
        assert not set(donors[inside]) & set(donors[~inside])
    with pytest.raises(ValueError, match="groups: expected 60 values"):
        Memory().fit(data, Y, groups=donors[:3])


def test_probabilities_keep_the_order_of_scores_that_say_nothing(data: RepertoireDataset) -> None:
    wrong = 1 - Y  # the numbers of repertoires that were left out point to the other class
    model = Memory().fit(data, wrong)
    scores, probability = model.decision_function(data), model.predict_proba(data)[:, 1]
    assert 0.49 < probability.min() < probability.max() < 0.51
    np.testing.assert_array_equal(np.argsort(probability, kind="stable"), np.argsort(scores, kind="stable"))


def test_few_repertoires_are_judged_by_the_model_itself(data: RepertoireDataset) -> None:
    rows = [0, 1, 2]
    model = Memory().fit(data[rows], Y[rows])
    expected = fit_platt_scaling(model.decision_function(data[rows]), Y[rows] == 1)
    np.testing.assert_allclose(model.calibration_, expected, rtol=1e-4)


@pytest.mark.long
def test_a_model_that_separates_labels_without_meaning_is_not_sure(
    cohort_factory: Callable[..., RepertoireDataset],
) -> None:
    cohort = cohort_factory(60, 60, seed=2)
    y = np.random.default_rng(1).permutation(np.arange(60) // 2 % 2)
    model = LogisticRegression(C=10.0).fit(cohort, y)
    assert ((model.decision_function(cohort) > 0) == y).all()
    assert np.abs(expit(model.decision_function(cohort)) - 0.5).min() > 0.3  # sure of each training repertoire
    assert np.abs(model.predict_proba(cohort)[:, 1] - 0.5).max() < 0.3


def test_scores_of_a_machine_by_an_independent_implementation(cohort: RepertoireDataset) -> None:
    positive = cohort.metadata["status"].to_numpy() == "healthy"
    order = find_canonical_order(cohort, positive.astype(np.int64))
    X, label = cohort[order], positive[order]
    fold_of = assign_grouped_folds(digest_with_genes(X), label.astype(np.int64), 5)
    kernel, scores = compute_gram(X, "minmax"), np.zeros(30)

    def decide(inside: NDArray[np.bool_]) -> NDArray[np.float64]:
        machine = SVC(kernel="precomputed", C=0.5, tol=1e-10).fit(kernel[np.ix_(inside, inside)], label[inside])
        found = machine.decision_function(kernel[:, inside])
        return np.asarray((found - found[inside].mean()) / found[inside].std())

    for fold in range(5):
        scores[fold_of == fold] = decide(fold_of != fold)[fold_of == fold]
    slope, intercept = fit_platt_scaling(scores, label, unit=1.0)
    odds = slope * decide(np.ones(30, np.bool_)) + intercept
    svm = SVM(C=0.5).fit(cohort, positive)
    np.testing.assert_allclose(svm.predict_proba(X)[:, 1], expit(odds), rtol=1e-4)


def test_a_slow_method_calibrates_by_quicker_models(cohort: RepertoireDataset) -> None:
    model = LogisticMIL(n_restarts=8, n_epochs=2).fit(cohort, cohort.metadata["status"])
    quicker: dict[str, Any] = model._copy_for_fold().get_params()
    carrier = ("first", "second")[model.carrier_]
    assert quicker == {**model.get_params(), "n_restarts": 2, "carrier": carrier}
