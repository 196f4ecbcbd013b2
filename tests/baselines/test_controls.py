"""The controls: their features by hand, and that they read no sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import entropy
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from deeprc.baselines.controls import SIZE_FEATURES, RepertoireSize, VGeneUsage, compute_size_features
from deeprc.baselines.elastic_net import Solution
from deeprc.baselines.gene_usage import GeneUsageFeatures, compute_centred_log_ratios, count_named_genes
from deeprc.baselines.linear import LinearClassifier
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from tests.conftest import random_sequences
from tests.toys.repertoires import make_sequences, write_repertoires


def test_size_and_diversity_by_hand() -> None:
    found = dict(zip(SIZE_FEATURES, compute_size_features(np.array([1, 4, 1, 2], np.uint32)), strict=True))
    share = np.array([1, 4, 1, 2]) / 8
    pairs = np.abs(np.subtract.outer([1, 4, 1, 2], [1, 4, 1, 2])).sum()
    expected = {
        "log_sequences": np.log(5),
        "log_total_count": np.log(9),
        "shannon_entropy": entropy(share),
        "clonality": 1 - entropy(share) / np.log(4),
        "log_hill_2": -np.log((share**2).sum()),
        "gini": pairs / (2 * 4 * 8),
        "share_of_largest": 0.5,
        "share_of_singletons": 0.5,
        "log_chao1": np.log(1 + 4 + 2 * 1 / (2 * 2)),
    }
    assert found == pytest.approx(expected)


def test_size_features_of_no_sequence_are_0_and_of_one_by_hand() -> None:
    assert compute_size_features(np.zeros(0, np.uint32)).tolist() == [0.0] * len(SIZE_FEATURES)
    one = dict(zip(SIZE_FEATURES, compute_size_features(np.array([5], np.uint32)), strict=True))
    assert (one["clonality"], one["shannon_entropy"], one["gini"], one["share_of_largest"]) == pytest.approx(
        (0, 0, 0, 1)
    )


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_equal_counts_have_no_clonality(count: int) -> None:
    for n in range(2, 300):
        found = dict(zip(SIZE_FEATURES, compute_size_features(np.full(n, count, np.uint32)), strict=True))
        assert found["clonality"] == found["gini"] == 0
        assert found["shannon_entropy"] == np.log(n)


def make(path: Path, *, genes: bool = True, seed: int = 0) -> RepertoireDataset:
    """Positives are twice as large, and use TRBV1 more often; their sequences are as the others'."""
    rng = np.random.default_rng(seed)
    repertoires = []
    for number in range(30):
        texts = random_sequences(rng, 120 if number % 2 else 60)
        share = [0.1, 0.5, 0.4] if number % 2 else [0.1, 0.4, 0.5]
        calls = Categorical(rng.choice(3, len(texts), p=share).astype(np.uint16), ("", "TRBV1", "TRBV2"))
        sequences = make_sequences(texts, rng.geometric(0.4, len(texts)))
        repertoires.append(sequences.with_genes({"v_call": calls} if genes else {}))
    return write_repertoires(path, repertoires, {"status": np.arange(30) % 2})


def test_sizes_are_told_apart(tmp_path: Path) -> None:
    cohort = make(tmp_path / "cohort.h5")
    y = cohort.metadata["status"].to_numpy()
    model = RepertoireSize().fit(cohort[:20], y[:20])
    assert np.array_equal(model.predict(cohort[20:]), y[20:])


def test_gene_usage_is_scikit_learns_on_centred_logarithms(tmp_path: Path) -> None:
    cohort = make(tmp_path / "cohort.h5")
    y = cohort.metadata["status"].to_numpy()
    counts = np.array([[(r.to_frame()["v_call"] == name).sum() for name in ("TRBV1", "TRBV2")] for r in cohort])
    logs = np.log(counts + 0.5)
    x = logs - logs.mean(axis=1, keepdims=True)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    model = VGeneUsage(C=0.5).fit(cohort, y)
    other = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(z, y)
    assert model.decision_function(cohort) == pytest.approx(other.decision_function(z), abs=1e-3)


def test_a_cohort_without_calls_is_refused(tmp_path: Path) -> None:
    cohort = make(tmp_path / "cohort.h5", genes=False)
    with pytest.raises(InputError, match=r"cohort\.h5: has no v_call"):
        VGeneUsage().fit(cohort, cohort.metadata["status"])
    with pytest.raises(InputError, match=r"cohort\.h5: has no v_call"):
        VGeneUsage.check_cohort(cohort)


def test_controls_do_not_read_sequences(tmp_path: Path) -> None:
    """Other sequences, the same sizes, counts and genes: the same scores."""
    one = make(tmp_path / "one.h5")
    other = tmp_path / "other.h5"
    others = []
    for repertoire in one:
        texts = ["ACDEFGHIKLMNPQRSTVWY"[i % 20] * 9 for i in range(len(repertoire))]
        others.append(make_sequences(texts, repertoire.counts).with_genes(repertoire.genes))
    write_repertoires(other, others, one.metadata)
    y = one.metadata["status"]
    for model in (RepertoireSize(), VGeneUsage()):
        scores = model.fit(one, y).decision_function(one)
        assert np.allclose(scores, model.decision_function(open_dataset(other)), rtol=1e-12)


class DiscriminantAnalysis(GeneUsageFeatures, LinearClassifier):
    """The example of a new method: its path is a generator, which runs when its solutions are asked for."""

    path_parameter = "shrinkage"

    def __init__(self, *, genes: str = "v_call", shrinkage: float = 0.5) -> None:
        self.genes = genes
        self.shrinkage = shrinkage

    def _fit_path(self, X: RepertoireDataset, labels: NDArray[Any], values: Sequence[Any]) -> Iterator[Solution]:
        features = self._compute_features(X)
        for value in values:
            model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=value).fit(features, labels)
            yield Solution(np.arange(features.shape[1]), model.coef_[0], float(model.intercept_[0]))


def test_a_linear_method_of_ones_own_needs_only_its_path(tmp_path: Path) -> None:
    dataset = make(tmp_path / "c.h5")
    status = dataset.metadata["status"]
    names = ["TRBV1", "TRBV2"]
    features = compute_centred_log_ratios(count_named_genes(dataset, "v_call", names))
    path = DiscriminantAnalysis().decision_path(dataset, status, dataset, [0.1, 0.9])
    for shrinkage, scores in zip((0.1, 0.9), path, strict=True):
        model = DiscriminantAnalysis(shrinkage=shrinkage).fit(dataset, status)
        assert model.v_names_.tolist() == names
        expected = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(features, status)
        np.testing.assert_allclose(scores, expected.decision_function(features), rtol=1e-9)
        np.testing.assert_array_equal(model.decision_function(dataset), scores)
