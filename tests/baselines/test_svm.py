"""The SVM against scikit-learn's on a kernel computed by a loop, the conditions of its optimum, and its promises."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from deeprc.baselines.kernels import KERNELS, compute_cross_kernel, compute_gram
from deeprc.baselines.svm import SVM, _solve_for_cost
from deeprc.calibration import fit_platt_scaling
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.kmers import count_kmers
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.errors import InputError

COSTS = [1e-6, 0.01, 0.3, 1.0, 1.7, 50.0, 1e6]


def labels(dataset: RepertoireDataset) -> NDArray[np.str_]:
    return dataset.metadata["status"].to_numpy().astype(str)


@pytest.fixture(scope="module")
def other(cohort_factory: Callable[..., RepertoireDataset]) -> RepertoireDataset:
    """Repertoires of another container, of at most 4 sequences, some of none."""
    dataset = cohort_factory(12, 0, seed=5)
    assert dataset.n_sequences.min() == 0
    return dataset


def naive_kernel(dataset: RepertoireDataset, kind: str) -> NDArray[np.float64]:
    u = np.array([count_kmers(r.residues, r.lengths) / max(len(r), 1) for r in dataset])
    u = u[:, u.any(axis=0)]
    u = (u > 0).astype(float) if kind == "jaccard" else u
    return np.array([[np.minimum(a, b).sum() / np.maximum(a, b).sum() for b in u] for a in u])


@pytest.mark.parametrize("kind", KERNELS)
def test_scores_are_those_of_scikit_learn(cohort: RepertoireDataset, kind: str) -> None:
    y, train, test = labels(cohort), np.arange(0, 20), np.arange(20, 30)
    kernel = naive_kernel(cohort, kind)
    for cost in (0.3, 1.0, 50.0):
        expected = SVC(kernel="precomputed", C=cost, tol=1e-10).fit(kernel[np.ix_(train, train)], y[train])
        svm = SVM(kernel=kind, C=cost).fit(cohort[train], y[train])
        found = svm.decision_function(cohort[test])
        np.testing.assert_allclose(found, expected.decision_function(kernel[np.ix_(test, train)]), atol=1e-6)
        assert np.array_equal(
            svm.predict(cohort[test]), svm.classes_[(svm.predict_proba(cohort[test])[:, 1] > 0.5) * 1]
        )


def test_new_repertoires_with_a_motif_have_higher_scores(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    dataset = cohort_factory(60, 300, seed=3)
    y = labels(dataset)
    scores = SVM().fit(dataset[:40], y[:40]).decision_function(dataset[40:])
    assert roc_auc_score(y[40:] == "healthy", scores) > 0.95


@pytest.mark.parametrize("n_positive", [1, 9, 20, 31])
@pytest.mark.parametrize("cost", [1e-6, 1e-3, 0.015, 0.03, 0.2, 1.0, 3.0, 1e6])
def test_the_solution_fulfils_the_conditions_of_the_optimum(n_positive: int, cost: float) -> None:
    rng = np.random.default_rng(n_positive)
    rows = rng.gamma(0.3, 1, (40, 50)).astype(np.float32)
    kernel = compute_cross_kernel(rows, rows, "minmax")
    positive = rng.permutation(40) < n_positive
    solution = _solve_for_cost(kernel, positive, cost)
    sign = np.where(positive, 1, -1)
    alpha = np.zeros(40)
    alpha[solution.rows] = solution.coefficients * sign[solution.rows]
    assert np.all((alpha >= 0) & (alpha <= cost * (1 + 1e-12)))
    assert abs(alpha @ sign) <= 1e-12 * alpha.sum()
    # A score may miss its side of the margin by the solver's tolerance, of a small C by that tolerance times C.
    margin, tolerance = sign * solution.compute_scores(kernel) - 1, 1e-6 * min(1, 40 * cost)
    assert np.all(margin[alpha == 0] > -tolerance)
    assert np.all(margin[alpha >= cost * (1 - 1e-12)] < tolerance)
    assert np.all(np.abs(margin[(alpha > 0) & (alpha < cost * (1 - 1e-12))]) < tolerance)


@pytest.mark.parametrize("kind", KERNELS)
def test_many_values_of_c_at_once(cohort: RepertoireDataset, other: RepertoireDataset, kind: str) -> None:
    y, values = labels(cohort), [*COSTS[::-1], 3, 1.0]
    svm = SVM(kernel=kind)
    for train, new in ((np.arange(19), cohort[19:]), (np.array([1, 0, 5, 8, 4, 2]), other)):
        found = svm.decision_path(cohort[train], y[train], new, values)
        each = [clone(svm).set_params(C=value).fit(cohort[train], y[train]) for value in values]
        np.testing.assert_allclose(found, [one.decision_function(new) for one in each], rtol=1e-6, atol=1e-8)
        for row, one in zip(found, each, strict=True):  # also of the smallest C, whose scores hardly differ
            spread = np.ptp(one.decision_function(new))
            np.testing.assert_allclose(row, one.decision_function(new), rtol=0, atol=1e-6 * spread)
    assert "dual_coef_" not in vars(svm)
    assert svm.decision_path(cohort, y, cohort[:0], [1, 2]).shape == (2, 0)
    assert svm.decision_path(cohort, y, cohort, []).shape == (0, 30)


def test_the_order_of_repertoires_does_not_matter(cohort: RepertoireDataset) -> None:
    y, order = labels(cohort), np.random.default_rng(0).permutation(24)
    for cost in COSTS:
        one = SVM(C=cost).fit(cohort[:24], y[:24])
        two = SVM(C=cost).fit(cohort[order], y[order])
        assert np.array_equal(one.decision_function(cohort[24:]), two.decision_function(cohort[24:]))
        assert np.array_equal(one.calibration_, two.calibration_)
    scores = one.decision_function(cohort)
    np.testing.assert_allclose(one.decision_function(cohort[::-1])[::-1], scores, rtol=1e-12)
    np.testing.assert_allclose([one.decision_function(cohort[[i]])[0] for i in range(30)], scores, rtol=1e-12)


def test_repertoires_of_another_container(cohort: RepertoireDataset, other: RepertoireDataset) -> None:
    y = labels(cohort)
    svm = SVM().fit(cohort, y)
    assert "support_" not in vars(svm)
    scores = svm.decision_function(other)
    kernel = compute_cross_kernel(compute_kmer_frequencies(other), compute_kmer_frequencies(cohort), "minmax")
    expected = SVC(kernel="precomputed", tol=1e-10).fit(compute_gram(cohort, "minmax"), y).decision_function(kernel)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    empty = other.n_sequences == 0
    np.testing.assert_allclose(scores[empty], svm.intercept_[0], rtol=1e-12)  # the kernel is 0
    np.testing.assert_allclose([svm.decision_function(other[[i]])[0] for i in range(len(other))], scores, rtol=1e-9)
    again = svm.fit(other, labels(other))  # from other repertoires than before
    assert again.support_.shape == (len(again.dual_coef_), 20**4)
    assert np.array_equal(svm.decision_function(cohort), SVM().fit(other, labels(other)).decision_function(cohort))


@pytest.mark.parametrize("kmer_offsets", [None, [0, 1, 3], (0, 1, 2)])
@pytest.mark.parametrize("kind", KERNELS)
def test_a_loaded_svm_has_its_parameters_and_scores(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, kind: str, kmer_offsets: list[int] | None
) -> None:
    dataset = cohort_factory(10, 40)
    svm = SVM(kernel=kind, C=3, kmer_offsets=kmer_offsets).fit(dataset[:8], labels(dataset)[:8])
    svm.save(tmp_path / "svm.safetensors")
    loaded = SVM.load(tmp_path / "svm.safetensors")
    assert loaded.get_params() == {
        **svm.get_params(),
        "kmer_offsets": None if kmer_offsets is None else list(kmer_offsets),
    }
    assert np.array_equal(loaded.predict_proba(dataset), svm.predict_proba(dataset))
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").stat().st_size == (tmp_path / "svm.safetensors").stat().st_size
    view, trained = pickle.loads(pickle.dumps((dataset[8:], svm)))  # as for another process
    assert np.array_equal(trained.decision_function(view), svm.decision_function(dataset[8:]))


@pytest.mark.parametrize("rows", [[0, 1], [0, 1, 2, 4, 6], [0, 1, 2, 3, 5]])
def test_a_class_of_few_repertoires(cohort: RepertoireDataset, rows: list[int]) -> None:
    y = labels(cohort)[rows]
    svm = SVM().fit(cohort[rows], y)
    assert np.isfinite(svm.predict_proba(cohort)).all()
    if min(np.unique(y, return_counts=True)[1]) == 1:  # the scores of the training repertoires themselves
        expected = fit_platt_scaling(svm.decision_function(cohort[rows]), y == "healthy")
        np.testing.assert_allclose(svm.calibration_, expected, rtol=1e-6)


def test_contradictory_repertoires(cohort: RepertoireDataset) -> None:
    twice = np.repeat(np.arange(10), 2)
    y = np.tile(["a", "b"], 10)  # each repertoire is of both classes
    for cost in COSTS:
        scores = SVM(C=cost).fit(cohort[twice], y).decision_function(cohort)
        np.testing.assert_allclose(scores, 0, atol=1e-7)


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "1", True, None])
def test_c_must_be_a_number_above_0(cohort: RepertoireDataset, value: object) -> None:
    with pytest.raises(InputError, match=f"C: expected a number above 0, found {value!r}"):
        SVM(C=value).fit(cohort, labels(cohort))
    with pytest.raises(InputError, match="C: expected a number above 0"):
        SVM().decision_path(cohort, labels(cohort), cohort, [1.0, value])


def test_labels_and_kernels_are_checked(cohort: RepertoireDataset) -> None:
    grade = cohort.metadata["grade"].to_numpy()
    for call in (SVM().fit, lambda X, y: SVM().decision_path(X, y, X, [1.0])):
        with pytest.raises(ValueError, match="y: expected two classes, found 3"):
            call(cohort, grade)
        with pytest.raises(ValueError, match="y has one class only"):
            call(cohort, ["a"] * 30)
    with pytest.raises(InputError, match="kernel: expected one of minmax, jaccard, found 'linear'"):
        SVM(kernel="linear").fit(cohort, labels(cohort))


def test_preparing_computes_the_gram_matrix(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = cohort_factory(6, 20, seed=11)
    SVM().prepare(dataset[:2])
    for module in ("kernels", "kernel_methods"):
        monkeypatch.setattr(f"deeprc.baselines.{module}.compute_cross_kernel", None)
    again = open_dataset(dataset.container.path)
    SVM(weighted=False, kmer_offsets=[0, 1, 2, 3]).fit(again, labels(again)).predict(again)
