"""The lasso models of the branch `composition`, against scikit-learn; and when they are chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso
from sklearn.metrics import roc_auc_score

from deeprc.arrays import Floats, Integers
from deeprc.baselines.gene_usage import compute_centred_log_ratios, count_named_genes
from deeprc.branches import scaled_features
from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_description import NOISE_SEQUENCES
from deeprc.branches.composition_features import CompositionFeatures
from deeprc.branches.composition_fit import fit_composition
from deeprc.branches.composition_models import LassoModels, RidgeModels, list_models
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.datasets.sequences import Sequences
from deeprc.tasks import Task
from tests.conftest import write_cohort

N, SIZE, NAMES = 60, 400, tuple(f"TRBV{number}" for number in range(2, 32))
POSITIVE = np.arange(N) % 2
STATUS = Task("status", "status", "binary", ("negative", "positive"))
AGE = Task("age", "age", "regression", mean=50.0, scale=10.0)


@pytest.fixture(scope="module")
def two_genes(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Return repertoires with equal sequences and 30 V genes, of which two are used more or less by positive ones."""
    rng = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("genes") / "genes.h5"
    with ContainerWriter(path) as writer:
        for number in range(N):
            log_usage = rng.normal(0, 0.3, len(NAMES))
            log_usage[3] += 0.9 * POSITIVE[number]
            log_usage[17] -= 0.9 * POSITIVE[number]
            usage = np.exp(log_usage)
            codes = (1 + rng.choice(len(NAMES), SIZE + 5 * number, p=usage / usage.sum())).astype(np.uint16)
            n = len(codes)
            sequences = Sequences(
                np.tile(np.arange(12, dtype=np.uint8), n),
                np.arange(0, 12 * n + 1, 12),
                np.ones(n, np.uint32),
                v_call=Categorical(codes, ("", *NAMES)),
            )
            writer.append(f"rep.{number}", sequences)
        writer.finish(pd.DataFrame({"number": np.arange(N)}), source="a test")
    return open_dataset(path)


def centred(dataset: RepertoireDataset, present: Floats) -> Floats:
    """Return the weighted log-ratios, (B, G), centred at the mean of the repertoires that are present."""
    size_weights = dataset.n_sequences / (dataset.n_sequences + NOISE_SEQUENCES)
    ratios = compute_centred_log_ratios(count_named_genes(dataset, "v_call", sorted(NAMES)))
    return size_weights[:, None] * (ratios - np.average(ratios, axis=0, weights=present * size_weights))


def test_which_models_there_are(two_genes: RepertoireDataset) -> None:
    """All repertoires have the same sequences, once each, so no k-mer and no count varies, and only genes are left."""
    kinds = list_models(CompositionFeatures(two_genes), is_number=False)
    assert [(type(models), models.kinds) for models in kinds] == [
        (RidgeModels, ("genes",)),
        (LassoModels, ("genes",)),
    ]


def fit_lasso(rows: Floats, target: Floats, C: float) -> Floats:
    """Return the weights of the rows' columns by scikit-learn's lasso, to convergence."""
    spread = rows.std(axis=0)
    model = Lasso(alpha=1 / (C * len(rows)), tol=1e-10, max_iter=100_000).fit(rows / spread, target)
    return np.asarray(model.coef_ / spread)


def test_left_out_repertoires_are_scored_by_lassos_without_them(two_genes: RepertoireDataset) -> None:
    is_learned = np.arange(N) % 5 > 0
    learned, left_out, target = np.flatnonzero(is_learned), np.flatnonzero(~is_learned), POSITIVE.astype(float)
    models = LassoModels(CompositionFeatures(two_genes), ("genes",))
    found = models.score_left_out(target[learned], learned, left_out)
    assert found.shape == (5, 12)
    rows = centred(two_genes, is_learned.astype(float))
    for C, scores in zip(models.Cs, found, strict=True):
        expected = rows[left_out] @ fit_lasso(rows[learned], target[learned], C)
        np.testing.assert_allclose(scores, expected, atol=2e-3)
    assert (np.abs(found).max(axis=1) > 0).tolist() == [False, False, True, True, True]  # a small C leaves no gene


def test_a_fitted_lasso_is_a_function_of_genes(two_genes: RepertoireDataset) -> None:
    numbers = 0.7 * POSITIVE + np.linspace(-1, 1, N)
    fitted = LassoModels(CompositionFeatures(two_genes), ("genes",)).fit(numbers, np.arange(N), 0.3, slope=2.0)
    rows = centred(two_genes, np.ones(N))
    expected = 2 * fit_lasso(rows, numbers, 0.3)
    np.testing.assert_allclose(fitted.function.genes, expected, atol=1e-3 * np.abs(expected).max())
    np.testing.assert_allclose(fitted.scores, rows @ fitted.function.genes, atol=1e-9)
    assert not fitted.function.kmers.any()


@pytest.mark.parametrize("task", [STATUS, AGE], ids=["class", "number"])
def test_if_two_genes_differ_most_others_have_small_weights(two_genes: RepertoireDataset, task: Task) -> None:
    labels = POSITIVE.astype(float) if task is STATUS else 45 + 10.0 * POSITIVE
    fitted = fit_composition(TrainingCohort(two_genes, labels[:, None], (task,)))
    assert fitted is not None
    assert isinstance(fitted.branch, CompositionBranch)
    weights = dict(zip(fitted.branch.genes["v_call"], fitted.branch.v_call_weights[0].tolist(), strict=True))
    largest = sorted(weights, key=lambda name: -abs(weights[name]))[:2]
    assert set(largest) == {NAMES[3], NAMES[17]}
    assert weights[NAMES[3]] > 0 > weights[NAMES[17]]
    assert np.median(np.abs([*weights.values()])) < 0.15 * abs(weights[largest[0]])
    scores = np.array([fitted.branch.score(repertoire)[0] for repertoire in two_genes])
    assert scores[POSITIVE == 1].mean() > scores[POSITIVE == 0].mean() + 0.5


@pytest.fixture(scope="module")
def two_kmers(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Return repertoires whose usage of residues varies; positive ones have GTS more often, and LAG less often."""
    rng = np.random.default_rng(6)
    letters, repertoires = np.array(list(AMINO_ACIDS)), []
    for label in POSITIVE:
        usage = np.exp(rng.normal(0, 0.6, 20))
        sequences = ["".join(rng.choice(letters, 10, p=usage / usage.sum())) for _ in range(SIZE)]
        for motif, share in (("GTS", 0.04 + 0.05 * label), ("LAG", 0.09 - 0.05 * label)):
            for at in np.flatnonzero(rng.random(SIZE) < share):
                start = int(rng.integers(7))
                sequences[at] = sequences[at][:start] + motif + sequences[at][start:]
        repertoires.append(sequences)
    return write_cohort(tmp_path_factory.mktemp("kmers") / "c.h5", repertoires, pd.DataFrame({"number": range(N)}))


def frequencies_of_3mers(dataset: RepertoireDataset) -> Floats:
    """Return the frequencies of 3-mers that are followed by a residue, (B, 8000), as the sum over this residue."""
    return (
        np.asarray(compute_kmer_frequencies(dataset, range(4)), np.float64).reshape(len(dataset), 8000, 20).sum(axis=2)
    )


def choose_overdispersed(rows: Floats, sizes: Integers) -> Integers:
    """Return the indices of 3-mers whose variance is 3 standard deviations above that of counting."""
    shares = sizes / (sizes + NOISE_SEQUENCES)
    shares = shares / shares.sum()
    mean = shares @ rows
    size, n_donors = 1 / (shares / sizes).sum(), 1 / (shares**2).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = shares @ (rows - mean) ** 2 * size / mean  # variance of a count over its mean, 1 by counting alone
        z_scores = (ratio - 1) / np.sqrt((2 + 1 / (mean * size)) / n_donors)
    return np.flatnonzero(np.nan_to_num(z_scores) > 3)


def index_3mer(letters: str) -> int:
    return int(np.dot([AMINO_ACIDS.index(letter) for letter in letters], [400, 20, 1]))


@pytest.mark.slow
def test_overdispersed_kmers_are_those_that_vary_more_than_counts(two_kmers: RepertoireDataset) -> None:
    rows = frequencies_of_3mers(two_kmers)
    chosen = choose_overdispersed(rows, two_kmers.n_sequences)
    assert {index_3mer("GTS"), index_3mer("LAG")} <= set(chosen.tolist())
    features = CompositionFeatures(two_kmers)
    np.testing.assert_allclose(features.get_table("overdispersed_kmers"), rows[:, chosen], rtol=1e-5)
    centred = features.size_weights[:, None] * (rows - np.average(rows, axis=0, weights=features.size_weights))
    z = centred[:, chosen] / np.sqrt(np.mean(centred[:, chosen] ** 2, axis=0))
    gram = z @ z.T
    found = features.products["overdispersed_kmers"]
    np.testing.assert_allclose(found, gram * N / np.trace(gram), atol=1e-4)
    dual = np.linspace(-1, 1, N)
    function = features.make_linear_function(dual, {"overdispersed_kmers": 1.0})
    weights = function.kmers.reshape(8000, 20)
    assert set(np.flatnonzero(weights[:, 0]).tolist()) == set(chosen.tolist())
    assert (weights == weights[:, :1]).all()  # a 3-mer weighs the same, whatever follows it
    np.testing.assert_allclose(centred @ weights[:, 0], found @ dual, atol=1e-3)


def test_without_variation_beyond_counting_no_kmer_is_overdispersed(tmp_path: Path) -> None:
    """All sequences are from one distribution; repertoires have 50 to 345 of them, and one has none."""
    rng = np.random.default_rng(3)
    letters = np.array(list(AMINO_ACIDS))
    repertoires = [["".join(rng.choice(letters[:8], 12)) for _ in range(50 + 5 * b)] for b in range(N)] + [[]]
    dataset = write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"number": range(N + 1)}))
    assert CompositionFeatures(dataset).get_table("overdispersed_kmers").shape[1] <= 5  # of 512


def test_if_there_are_many_those_with_the_highest_z_scores_are_taken(
    two_kmers: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = CompositionFeatures(two_kmers).get_table("overdispersed_kmers")
    monkeypatch.setattr(scaled_features, "_MAX_OVERDISPERSED", 50)
    few = CompositionFeatures(two_kmers).get_table("overdispersed_kmers")
    assert few.shape == (N, 50)
    assert every.shape[1] > 50
    columns = [row.tobytes() for row in every.T]
    places = [columns.index(row.tobytes()) for row in few.T]
    assert places == sorted(set(places))
    motifs = frequencies_of_3mers(two_kmers)[:, [index_3mer("GTS"), index_3mer("LAG")]]
    assert all(np.isclose(few, motif[:, None], rtol=1e-5).all(axis=0).any() for motif in motifs.T)


def test_a_lasso_chooses_among_overdispersed_kmers(two_kmers: RepertoireDataset) -> None:
    features, target = CompositionFeatures(two_kmers), POSITIVE.astype(float)
    models = LassoModels(features, ("overdispersed_kmers",))
    learned, left_out = np.arange(10, N), np.arange(10)
    rows = frequencies_of_3mers(two_kmers)
    rows = rows[:, choose_overdispersed(rows, two_kmers.n_sequences)]
    weights = features.size_weights * (np.arange(N) >= 10)
    rows = features.size_weights[:, None] * (rows - weights @ rows / weights.sum())
    spread = rows[learned].std(axis=0)
    scale = np.maximum(spread, 0.1 * np.sqrt(np.mean(spread**2)))
    found = models.score_left_out(target[learned], learned, left_out)
    for C, scores in zip(models.Cs, found, strict=True):
        model = Lasso(alpha=1 / (C * 50), tol=1e-10, max_iter=100_000).fit(rows[learned] / scale, target[learned])
        np.testing.assert_allclose(scores, rows[left_out] / scale @ model.coef_, atol=5e-3)
    assert np.abs(found[-2]).max() > 0.1


@pytest.mark.slow
def test_if_two_kmers_differ_others_have_small_weights(two_kmers: RepertoireDataset) -> None:
    fitted = fit_composition(TrainingCohort(two_kmers, POSITIVE.astype(float)[:, None], (STATUS,)))
    assert fitted is not None
    assert isinstance(fitted.branch, CompositionBranch)
    assert fitted.branch.features == ["k-mers"]
    weights = fitted.branch.get_buffer("kmer_weights")[0].numpy().reshape(8000, 20)
    assert weights[:, 0].argmax() == index_3mer("GTS")
    assert weights[:, 0].argmin() == index_3mer("LAG")
    third, second, _ = np.sort(np.abs(weights[:, 0]))[-3:]
    assert third < 0.1 * second
    scores = [fitted.branch.score(repertoire)[0] for repertoire in two_kmers]
    assert roc_auc_score(POSITIVE, fitted.scores[:, 0]) > 0.85
    assert roc_auc_score(POSITIVE, scores) > 0.95
