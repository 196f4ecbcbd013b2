"""Nearest neighbours against scikit-learn's, ties by hand, and what the class promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

from deeprc.baselines.kernels import KERNELS, compute_cross_kernel, compute_gram
from deeprc.baselines.knn import KNN, average_nearest
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.errors import InputError


def labels(dataset: RepertoireDataset) -> NDArray[np.str_]:
    return dataset.metadata["status"].to_numpy().astype(str)


@pytest.fixture(scope="module")
def other(cohort_factory: Callable[..., RepertoireDataset]) -> RepertoireDataset:
    """Repertoires of another container, of at most 4 sequences, some of none."""
    return cohort_factory(12, 0, seed=5)


def neighbours(kernel: NDArray[np.float64], y: NDArray[np.str_], number: int) -> KNeighborsClassifier:
    return KNeighborsClassifier(number, metric="precomputed").fit(1 - kernel, y)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KERNELS)
def test_scores_are_those_of_scikit_learn(cohort: RepertoireDataset, kind: str) -> None:
    y, train, test = labels(cohort), np.arange(0, 20), np.arange(20, 30)
    kernel = compute_gram(cohort, kind, [0, 1, 2])  # of 3-mers, so many that distances are seldom equal
    to_train = kernel[np.ix_(test, train)]
    distinct = [i for i in range(10) if len(np.unique(to_train[i])) == 20]
    assert len(distinct) > 5
    for number in range(1, 21):
        knn = KNN(kernel=kind, n_neighbors=number, kmer_offsets=[0, 1, 2]).fit(cohort[train], y[train])
        theirs = neighbours(kernel[np.ix_(train, train)], y[train], number).predict_proba(1 - to_train)
        np.testing.assert_allclose(knn.decision_function(cohort[test])[distinct], theirs[distinct, 1], atol=1e-12)


def test_equally_near_ones_share_the_votes() -> None:
    kernel = np.array([[0.5, 0.9, 0.5, 0.2, 0.5, 0.0]])
    positive = np.array([[True, False, False, True, True, False]])
    found = average_nearest(kernel, positive, np.arange(1, 7))[:, 0]
    # the nearest is negative; the next three have 2/3 of a vote each; then comes a positive one, then a negative one
    np.testing.assert_allclose(found, [0, (2 / 3) / 2, (4 / 3) / 3, 2 / 4, 3 / 5, 3 / 6], atol=1e-15)
    every = average_nearest(np.zeros((1, 6)), positive, np.arange(1, 7))[:, 0]
    np.testing.assert_allclose(every, 0.5, atol=1e-15)


@pytest.mark.slow
def test_new_repertoires_with_a_motif_have_higher_scores(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    dataset = cohort_factory(60, 300, seed=3)
    y = labels(dataset)
    scores = KNN(n_neighbors=9).fit(dataset[:40], y[:40]).decision_function(dataset[40:])
    assert roc_auc_score(y[40:] == "healthy", scores) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("kind", KERNELS)
def test_all_numbers_of_neighbours_at_once(cohort: RepertoireDataset, other: RepertoireDataset, kind: str) -> None:
    y, values = labels(cohort), [20, 3, 1, *range(2, 20), np.int64(7)]
    knn = KNN(kernel=kind)
    for new in (cohort[20:], other):
        found = knn.decision_path(cohort[:20], y[:20], new, values)
        each = [clone(knn).set_params(n_neighbors=value).fit(cohort[:20], y[:20]) for value in values]
        assert np.array_equal(found, [one.decision_function(new) for one in each])
        assert np.array_equal(knn.decision_path(cohort[:20], y[:20], new, [21, 1000]), found[[0, 0]])
    assert "positive_" not in vars(knn)
    assert knn.decision_path(cohort, y, cohort[:0], [1, 2]).shape == (2, 0)
    assert knn.decision_path(cohort, y, cohort, []).shape == (0, 30)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KERNELS)
def test_the_order_of_repertoires_does_not_matter(
    cohort: RepertoireDataset, other: RepertoireDataset, kind: str
) -> None:
    rows = np.repeat(np.arange(12), 2)  # all twice, so that many are equally near, some of them of two classes
    y = labels(cohort)[rows]
    y[[1, 7]] = y[[2, 4]]
    order = np.random.default_rng(0).permutation(24)
    for number in (1, 4, 9):
        one = KNN(kernel=kind, n_neighbors=number).fit(cohort[rows], y)
        two = KNN(kernel=kind, n_neighbors=number).fit(cohort[rows][order], y[order])
        for new in (cohort, other):
            scores = one.decision_function(new)
            assert np.array_equal(two.decision_function(new), scores)
            assert np.array_equal(one.decision_function(new[::-1])[::-1], scores)
            assert [one.decision_function(new[[i]])[0] for i in range(len(new))] == scores.tolist()
        np.testing.assert_allclose(one.calibration_, two.calibration_, rtol=1e-9)


def test_repertoires_of_another_container(cohort: RepertoireDataset, other: RepertoireDataset, tmp_path: Path) -> None:
    y = labels(cohort)
    knn = KNN(kernel="jaccard", n_neighbors=4).fit(cohort, y)
    scores = knn.decision_function(other)
    kernel = compute_cross_kernel(compute_kmer_frequencies(other), compute_kmer_frequencies(cohort), "jaccard")
    for row, score in zip(kernel, scores, strict=True):
        bound = np.sort(row)[-4]
        inside = row > bound
        share = (inside & (y == "healthy")).sum() + (4 - inside.sum()) * (y == "healthy")[row == bound].mean()
        assert score == pytest.approx(share / 4)
    assert np.all(scores[other.n_sequences == 0] == 0.5)  # equally far from all
    knn.save(tmp_path / "knn.safetensors")
    loaded = KNN.load(tmp_path / "knn.safetensors")
    for new in (cohort, other):
        assert np.array_equal(loaded.predict_proba(new), knn.predict_proba(new))
    assert loaded.get_params() == knn.get_params()


def test_all_training_repertoires_as_neighbours(cohort: RepertoireDataset) -> None:
    y = labels(cohort)
    for rows in ([0, 1], [0, 1, 2]):
        knn = KNN(n_neighbors=len(rows)).fit(cohort[rows], y[rows])
        np.testing.assert_allclose(knn.decision_function(cohort), (y[rows] == "healthy").mean())
        assert np.isfinite(knn.predict_proba(cohort)).all()
    more = KNN(n_neighbors=40).fit(cohort[[0, 1, 2]], y[[0, 1, 2]])
    np.testing.assert_array_equal(more.decision_function(cohort), knn.decision_function(cohort))


@pytest.mark.parametrize("value", [0, -1, 2.0, "3", True, None])
def test_numbers_of_neighbours_are_checked(cohort: RepertoireDataset, value: object) -> None:
    with pytest.raises(InputError, match=f"n_neighbors: expected a whole number of at least 1, found {value!r}"):
        KNN(n_neighbors=value).fit(cohort, labels(cohort))
    with pytest.raises(InputError, match="n_neighbors: expected a whole number of at least 1"):
        KNN().decision_path(cohort, labels(cohort), cohort, [1, value])
