"""Boosted trees: against scikit-learn, features by hand, and files that a stranger may have changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from deeprc.baselines.boosted import BoostedTrees, BoostedTreesRegressor
from deeprc.baselines.diversity import compute_diversity_table, find_common_depth
from deeprc.baselines.gapped import list_gapped_offsets
from deeprc.baselines.gene_usage import compute_centred_log_ratios, count_named_genes
from deeprc.baselines.trees import Trees
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.datasets.simulation import Cohort, Counts, GermlineBackground, Motif, MotifSignal, Sizes, write_container
from deeprc.errors import InputError
from tests.conftest import random_sequences
from tests.toys.repertoires import make_sequences, write_repertoires
from tests.toys.saved_files import change_description


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """SFEN in every tenth sequence of the positive class."""
    signals = (MotifSignal((Motif("SFEN"),), witness_rate=0.1),)
    cohort = Cohort(60, Sizes(200, 40), GermlineBackground(), signals, Counts(exponent=2.0), seed=5)
    path = tmp_path_factory.mktemp("boosted") / "cohort.h5"
    write_container(cohort, path)
    return open_dataset(path)


@pytest.fixture(scope="module")
def positive(simulated: RepertoireDataset) -> np.ndarray:
    found: np.ndarray = (simulated.metadata["status"] == "positive").to_numpy()
    return found


@pytest.fixture(scope="module")
def model(simulated: RepertoireDataset, positive: np.ndarray) -> BoostedTrees:
    return BoostedTrees(max_iter=20).fit(simulated[:40], positive[:40])


@pytest.mark.parametrize("is_number", [False, True])
def test_trees_are_scikit_learns(is_number: bool) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 5))
    y = rows[:, 0] * rows[:, 1] + 0.1 * rng.normal(size=400)
    kind = HistGradientBoostingRegressor if is_number else HistGradientBoostingClassifier
    model = kind(max_iter=30, max_features=0.5, random_state=0).fit(rows[:300], y[:300] if is_number else y[:300] > 0)
    trees = Trees.of(model)
    trees.check(5)
    expected = model.predict(rows) if is_number else model.decision_function(rows)
    baseline = float(model._baseline_prediction.ravel()[0])
    np.testing.assert_allclose(baseline + trees.sum_leaves(rows), expected, rtol=0, atol=1e-12)
    at_thresholds = np.repeat(np.quantile(rows, [0, 0.5, 1], axis=0), 2, axis=0)
    at_thresholds[::2, trees.features[0]] = trees.thresholds[0]  # a tie goes left
    expected = model.predict(at_thresholds) if is_number else model.decision_function(at_thresholds)
    np.testing.assert_allclose(baseline + trees.sum_leaves(at_thresholds), expected, rtol=0, atol=1e-12)


def test_the_features_of_a_repertoire(simulated: RepertoireDataset, positive: np.ndarray, model: BoostedTrees) -> None:
    rows, training = model._compute_features(simulated), simulated[:40]
    frequencies = np.asarray(compute_kmer_frequencies(simulated, (0, 1, 2)), np.float64)
    known = PCA(39, svd_solver="full").fit(frequencies[:40])
    assert model.loadings_.shape == (8000, 39)
    scores = known.transform(frequencies)[:, :5]
    for column in range(5):  # up to the sign, and a factor that all have in common
        assert abs(np.corrcoef(scores[:, column], rows[:, column])[0, 1]) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(rows[:40, :39].mean(axis=0), 0, atol=1e-5 * rows[:40, 0].std())
    patterns = list_gapped_offsets(4, 1)
    correlations = []
    for pattern, kmer, column in zip(model.patterns_, model.kmers_, range(39, 49), strict=True):
        values = np.asarray(compute_kmer_frequencies(simulated, patterns[pattern]))[:, kmer]
        np.testing.assert_array_equal(rows[:, column], values)
        correlations.append(abs(np.corrcoef(values[:40], positive[:40])[0, 1]))
    assert correlations == sorted(correlations, reverse=True)
    letters = "ACDEFGHIKLMNPQRSTVWY"
    named = ["".join(letters[kmer // 20**power % 20] for power in (3, 2, 1, 0)) for kmer in model.kmers_.tolist()]
    assert (0, "SFEN") in zip(model.patterns_.tolist(), named, strict=True)
    genes = [compute_centred_log_ratios(count_named_genes(simulated, "v_call", model.v_names_.tolist()))]
    genes.append(compute_centred_log_ratios(count_named_genes(simulated, "j_call", model.j_names_.tolist())))
    n_genes = genes[0].shape[1] + genes[1].shape[1]
    np.testing.assert_array_equal(rows[:, 49 : 49 + n_genes], np.hstack(genes))
    lengths = simulated[3].lengths
    own = rows[3, 49 + n_genes : -8]
    assert own[13 - 6] == pytest.approx((lengths == 13).mean())
    assert own[:30].sum() == pytest.approx(1)
    assert own[-2:] == pytest.approx([lengths.mean(), lengths.std()])
    np.testing.assert_array_equal(rows[:, -8:], compute_diversity_table(simulated, find_common_depth(training)))


def test_a_motif_is_found(simulated: RepertoireDataset, positive: np.ndarray, model: BoostedTrees) -> None:
    assert (model.predict(simulated[40:]) == positive[40:]).mean() >= 0.9
    numbers = BoostedTreesRegressor(max_iter=60).fit(simulated[:40], 50 + 10.0 * positive[:40])
    assert np.corrcoef(numbers.predict(simulated[40:]), positive[40:])[0, 1] > 0.8


def test_without_components_and_kmers_the_other_features_stay(
    simulated: RepertoireDataset, positive: np.ndarray
) -> None:
    model = BoostedTrees(n_components=0, n_selected=0, max_iter=2).fit(simulated, positive)
    assert model.loadings_.shape == (8000, 0)
    assert len(model.kmers_) == 0
    n_genes = len(model.v_names_) + len(model.j_names_)
    assert model._compute_features(simulated[:2]).shape == (2, n_genes + 32 + 8)


def test_a_cohort_without_genes_and_abundances(tmp_path: Path) -> None:
    rng, labels = np.random.default_rng(0), np.arange(12) % 2
    sequences = [make_sequences(random_sequences(rng, 30)) for _ in range(12)]
    cohort = write_repertoires(tmp_path / "cohort.h5", sequences, {"status": labels})
    model = BoostedTrees(max_iter=3, max_gap=0, min_samples_leaf=2).fit(cohort, labels)
    assert len(model.v_names_) == len(model.j_names_) == 0
    model.save(tmp_path / "model.safetensors")
    loaded = BoostedTrees.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(cohort), model.predict_proba(cohort))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"n_components": -1}, "n_components: expected a whole number of at least 0, found -1"),
        ({"n_selected": 1.5}, "n_selected: expected a whole number of at least 0, found 1.5"),
        ({"max_gap": 5}, "max_gap: expected a whole number from 0 to 4, found 5"),
        ({"max_iter": 0}, "max_iter: expected a whole number of at least 1, found 0"),
        ({"max_leaf_nodes": 1}, "max_leaf_nodes: expected a whole number of at least 2, found 1"),
        ({"learning_rate": 0}, "learning_rate: expected a number above 0, found 0"),
    ],
)
def test_parameters_out_of_range(
    setting: dict[str, Any], message: str, simulated: RepertoireDataset, positive: np.ndarray
) -> None:
    with pytest.raises(InputError, match=message):
        BoostedTrees(**setting).check_parameters()
    with pytest.raises(InputError, match=message):
        BoostedTrees(**setting).fit(simulated, positive)


_BIG = 2**62


def _n(arrays: dict[str, Any]) -> int:
    """Return the number of nodes."""
    return len(arrays["tree_features_"])


def _change(**changes: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets one number of each named array."""

    def change(arrays: dict[str, Any]) -> None:
        for name, (index, value) in changes.items():
            arrays[f"{name}_"][index] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_change(tree_left=(0, 0)), "left: expected nodes of the same tree, after their parents"),
        (_change(tree_left=(0, -1)), "left: expected nodes of the same tree"),
        (_change(tree_right=(0, 1000)), "right: expected nodes of the same tree"),
        (_change(tree_features=(0, 10_000)), "features: expected numbers from 0 to"),
        (_change(tree_features=(0, -2)), "features: expected numbers from 0 to"),
        (_change(tree_starts=(1, 0)), "starts: expected rising numbers"),
        (_change(tree_starts=(-1, 5)), "starts: expected rising numbers"),
        (
            lambda arrays: arrays.update(
                tree_starts_=np.array([0, _BIG, 2 * _BIG - 1, -2 * _BIG, -_BIG, -1, _n(arrays)])
            ),
            "starts: expected rising numbers",  # their differences are positive, modulo 2 ** 64
        ),
        (_change(tree_values=(0, np.nan)), "expected finite numbers"),
        (_change(kmers=(0, 160_000)), "kmers: expected 10 numbers from 0 to 159999"),
        (_change(patterns=(0, 4)), "patterns: expected 10 numbers from 0 to 3"),
        (lambda arrays: arrays.update(tree_left_=arrays["tree_left_"][:-1]), "left: expected .* nodes, found"),
        (
            lambda arrays: arrays.update(tree_left_=arrays["tree_left_"] * 1.0),
            "left: expected a one-dimensional array of 64-bit numbers",
        ),
        (lambda arrays: arrays.update(loadings_=arrays["loadings_"][:, 1:]), "loadings: expected 39 components"),
        (lambda arrays: arrays.update(loadings_=arrays["loadings_"][1:]), "loadings: expected 39 components"),
        (lambda arrays: arrays.pop("tree_left_"), "no attribute 'tree_left_'"),
        (lambda arrays: arrays.pop("origin_"), "no attribute 'origin_'"),
    ],
)
def test_a_file_that_was_changed_is_refused(
    change: Callable[[dict[str, Any]], None], message: str, model: BoostedTrees, tmp_path: Path
) -> None:
    model.save(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        text = file.metadata()["deeprc"]
    change(arrays)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(arrays, tmp_path / "changed.safetensors", {"deeprc": text})
    with pytest.raises(InputError, match=rf"changed\.safetensors: is damaged: .*{message}"):
        BoostedTrees.load(tmp_path / "changed.safetensors")


@pytest.mark.parametrize(
    ("name", "holder", "message"),
    [
        ("depth_", {"value": 0}, "depth: expected a whole number of at least 1, found 0"),
        ("baseline_", {"value": {}}, "baseline: expected a finite number, found {}"),
        ("baseline_", {"value": float("nan")}, "baseline: expected a finite number, found nan"),
        ("v_names_", {"value": 3}, "v_names_: expected texts, found 3"),
    ],
)
def test_a_value_that_was_changed_is_refused(
    model: BoostedTrees, tmp_path: Path, name: str, holder: dict[str, object], message: str
) -> None:
    model.save(tmp_path / "model.safetensors")
    changed = change_description(tmp_path / "model.safetensors", lambda body: body["values"].update({name: holder}))
    with pytest.raises(InputError, match=f"is damaged: {message}"):
        BoostedTrees.load(changed)
