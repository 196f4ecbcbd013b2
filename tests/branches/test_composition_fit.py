"""How the branch of composition is learned: cross-fitting, choice, emptiness, kinds of targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from deeprc.arrays import Floats
from deeprc.baselines.gene_usage import compute_centred_log_ratios, count_named_genes
from deeprc.baselines.inner_folds import assign_grouped_folds
from deeprc.branches import composition_fit
from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_description import NOISE_SEQUENCES
from deeprc.branches.composition_features import CompositionFeatures
from deeprc.branches.composition_fit import (
    _average_settings,
    _choose_setting,
    _fit_slope,
    _Setting,
    fit_composition,
)
from deeprc.branches.composition_models import RidgeModels
from deeprc.branches.linear_function import ModelKind
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.cache import digest_with_genes
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import SimulatedDataset, load_recipe
from deeprc.tasks import Task
from tests.conftest import random_sequences, write_cohort

N = 48
STATUS = Task("status", "status", "binary", ("negative", "positive"))
GRADE = Task("grade", "grade", "multiclass", ("low", "mid", "high"))
AGE = Task("age", "age", "regression", mean=50.0, scale=12.0)


@pytest.fixture(scope="module")
def tilted(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Return repertoires of 20 to 400 sequences of which the second half has more W, the more the later."""
    rng = np.random.default_rng(0)
    repertoires = []
    for number in range(N):
        share = np.ones(20)
        share[AMINO_ACIDS.index("W")] = 1 + 0.03 * number
        letters = rng.choice(list(AMINO_ACIDS), (rng.integers(20, 400), 12), p=share / share.sum())
        repertoires.append(["".join(row) for row in letters])
    metadata = pd.DataFrame({"number": np.arange(N)})
    return write_cohort(tmp_path_factory.mktemp("tilted") / "tilted.h5", repertoires, metadata)


def status() -> Floats:
    return (np.arange(N) >= N // 2).astype(np.float64)


def fit_status(dataset: RepertoireDataset, groups: NDArray[np.int64] | None = None, labels: Floats | None = None):  # type: ignore[no-untyped-def]
    values = status() if labels is None else labels
    return fit_composition(TrainingCohort(dataset, values[:, None], (STATUS,), groups))


def features_by_numpy(dataset: RepertoireDataset) -> tuple[list[Floats], Floats]:
    """Return the frequencies of k-mers with 4 to 1 residues and the log-ratios of V genes."""
    rows = np.asarray(compute_kmer_frequencies(dataset), np.float64)
    kmers = [rows.reshape(len(rows), 20**k, -1).sum(axis=2) for k in (4, 3, 2, 1)]
    return kmers, compute_centred_log_ratios(count_named_genes(dataset, "v_call", ["TRBV1", "TRBV2"]))


def design(dataset: RepertoireDataset, present: NDArray[np.bool_], share: float) -> Floats:
    """Return rows with the inner products of a mixture, centred at the mean of the repertoires that are present."""
    size_weights = dataset.n_sequences / (dataset.n_sequences + NOISE_SEQUENCES)
    kmers, genes = features_by_numpy(dataset)
    parts = []
    for weight, block in [*((share / 4, block) for block in kmers), (1 - share, genes)]:
        every = size_weights[:, None] * (block - np.average(block, axis=0, weights=size_weights))
        spread = every.std(axis=0)
        factor = (1 if block is not genes else 1 / spread) * (spread > 0)
        size = np.sqrt(((every * factor) ** 2).sum() / len(block))
        centred = size_weights[:, None] * (block - np.average(block[present], axis=0, weights=size_weights[present]))
        parts.append(np.sqrt(weight) * centred * factor / size)
    return np.hstack(parts)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_the_inner_products_are_those_of_the_features(tilted: RepertoireDataset, share: float) -> None:
    rows = design(tilted, np.ones(N, bool), share)
    products = CompositionFeatures(tilted).mix_inner_products(
        {"kmers": share, "genes": 1 - share} if share < 1 else {"kmers": 1}
    )
    np.testing.assert_allclose(products, rows @ rows.T, atol=2e-5)
    assert np.trace(products) == pytest.approx(N)


def regressed(rows: Floats, present: NDArray[np.bool_], target: Floats, C: float) -> Floats:
    """Return coefficients times rows, (B,), of scikit-learn's logistic regression of the rows that are present."""
    values, vectors = np.linalg.eigh(rows @ rows.T)
    few = vectors * np.sqrt(np.maximum(values, 0))  # B columns with the same inner products
    model = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(few[present], target[present])
    return np.asarray(few @ model.coef_[0])


def allow_ridge_models_only(monkeypatch: pytest.MonkeyPatch, share: float, C: float) -> None:
    """Leave one setting: inner products with this share of k-mers, and this C."""
    monkeypatch.setattr(RidgeModels, "Cs", (C,))
    kinds: tuple[ModelKind, ...] = ("kmers",) if share == 1 else ("kmers", "genes")
    monkeypatch.setattr(
        composition_fit, "list_models", lambda features, *, is_number: [RidgeModels(features, kinds, is_number)]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("share", "n_folds"), [pytest.param(1.0, 10, marks=pytest.mark.long), (0.5, 10), (0.5, 5)])
def test_scores_are_those_of_models_without_the_fold(
    tilted: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, share: float, n_folds: int
) -> None:
    if n_folds == 5:
        monkeypatch.setattr(composition_fit, "_LARGE_COHORT", N - 1)
    allow_ridge_models_only(monkeypatch, share, 0.3)
    monkeypatch.setattr(composition_fit, "_N_REPEATS_IF_SMALL", 1)
    monkeypatch.setattr(composition_fit, "count_standard_errors", lambda *_: 9.0)
    groups = np.arange(N) // 2
    fitted = fit_status(tilted, groups)
    folds = assign_grouped_folds(digest_with_genes(tilted), status().astype(np.int64), n_folds, groups=groups)
    assert folds.max() == n_folds - 1
    raw = np.zeros(N)
    for fold in range(n_folds):
        outside = folds == fold
        raw[outside] = regressed(design(tilted, ~outside, share), ~outside, status(), 0.3)[outside]
    slope = fitted.scores[:, 0].std() / raw.std()
    np.testing.assert_allclose(fitted.scores[:, 0], slope * raw, atol=1e-3 * fitted.scores.std())
    every = np.ones(N, bool)
    expected = slope * regressed(design(tilted, every, share), every, status(), 0.3)
    scores = [fitted.branch.score(repertoire)[0] for repertoire in tilted]
    np.testing.assert_allclose(scores, expected, atol=1e-3 * np.std(scores))


@pytest.mark.slow
def test_a_tilt_is_found_and_its_letter_has_the_weight(tilted: RepertoireDataset) -> None:
    fitted = fit_status(tilted)
    assert isinstance(fitted.branch, CompositionBranch)
    assert roc_auc_score(status(), fitted.scores[:, 0]) > 0.9
    assert 0.2 < fitted.loss_decreases[0] < np.log(2)
    residual = np.log1p(np.exp(np.where(status() == 1, -1, 1) * fitted.scores[:, 0])).mean()
    assert residual < np.log(2) - 0.2  # the scores need no other slope
    weights = fitted.branch.kmer_weights[0].double().numpy().reshape(20, 20, 20, 20)
    by_letter = weights.mean(axis=(1, 2, 3))
    assert by_letter.argmax() == AMINO_ACIDS.index("W")
    mean = np.mean([fitted.branch.score(repertoire)[0] for repertoire in tilted])
    assert abs(mean) < 0.2 * fitted.scores.std()


@pytest.mark.slow
def test_genes_are_read_where_they_tell_the_classes_apart(tmp_path: Path) -> None:
    dataset = SimulatedDataset(
        load_recipe(
            "diffuse",
            ["n_repertoires=60", "sizes.mean=300", "sizes.sd=0", "sizes.minimum=100", "signals.0.gene_share=1.0",
             "signals.0.strength=1.5"],
        )[0]
    )  # fmt: skip
    labels = (dataset.metadata["status"] == "positive").to_numpy(np.float64)
    fitted = fit_status(dataset, labels=labels)
    assert isinstance(fitted.branch, CompositionBranch)
    assert fitted.branch.genes["v_call"]
    assert roc_auc_score(labels, fitted.scores[:, 0]) > 0.8
    repertoire = dataset[0]
    np.testing.assert_allclose(
        fitted.branch.compute_contributions(repertoire).sum(axis=0), fitted.branch.score(repertoire), rtol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("n_labels", [3, pytest.param(6, marks=pytest.mark.long)])
def test_permuted_labels_give_no_clear_branch(tilted: RepertoireDataset, n_labels: int) -> None:
    found = [fit_status(tilted, labels=np.random.default_rng(seed).permutation(status())) for seed in range(n_labels)]
    assert sum(each is not None and not each.branch.is_doubtful for each in found) <= 1


@pytest.mark.parametrize(
    ("evidence", "few", "expected"),
    [(1.8, 50, "clear"), (1.6, 50, "doubtful"), (0.9, 50, "none"), (1.6, N, "none")],
    ids=["clear", "doubtful", "little", "many repertoires"],
)
def test_little_evidence_is_enough_for_few_repertoires(
    tilted: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, evidence: float, few: int, expected: str
) -> None:
    """With 48 repertoires, 1.5 + 10 / 48 = 1.71 standard errors are clear."""
    allow_ridge_models_only(monkeypatch, 1.0, 0.3)
    monkeypatch.setattr(composition_fit, "_N_REPEATS_IF_SMALL", 1)
    monkeypatch.setattr(composition_fit, "_FEW_UNITS", few)
    monkeypatch.setattr(composition_fit, "count_standard_errors", lambda *_: evidence)
    fitted = fit_status(tilted)
    assert ("none" if fitted is None else "doubtful" if fitted.branch.is_doubtful else "clear") == expected


def draw_decreases(rng: np.random.Generator, mean: float, evidence: float) -> Floats:
    """Return thirty decreases with this mean, which is so many standard errors."""
    values = rng.normal(size=30)
    values = (values - values.mean()) / values.std(ddof=1)
    return np.asarray(mean + values * mean / evidence * np.sqrt(30))


def make_setting(kinds: tuple[ModelKind, ...], decreases: Floats, *, of_families: bool = False) -> _Setting:
    """Return a setting with these kinds of features and decreases of the loss."""
    features = SimpleNamespace(of_families=of_families)
    models = RidgeModels(features, kinds, is_number=False)  # type: ignore[arg-type]
    return _Setting(models, 1.0, decreases, 1.0, decreases)


def test_features_of_expanded_clones_need_more_evidence() -> None:
    """The decreases have a mean of 1 (2.1 standard errors), 0.9 (1.9) or 0.5 (the largest, 2.4)."""
    rng = np.random.default_rng(0)
    expanded, without, less = (draw_decreases(rng, *numbers) for numbers in ((1.0, 2.1), (0.9, 1.9), (0.5, 2.4)))
    decreases = [without, expanded, less]

    def choose(kinds: Sequence[tuple[ModelKind, ...]], min_evidence: float) -> tuple[int, float]:
        """Return the index of the chosen setting, and its evidence."""
        settings = [make_setting(*pair) for pair in zip(kinds, decreases, strict=True)]
        chosen, evidence = _choose_setting(settings, None, min_evidence)
        return next(index for index, setting in enumerate(settings) if setting is chosen), evidence

    assert choose([("kmers",), ("kmers", "expansion"), ("genes",)], 1.7) == (0, pytest.approx(1.9))
    assert choose([("kmers",), ("kmers", "expansion"), ("genes",)], 1.5) == (1, pytest.approx(2.1 - 0.5))
    assert choose([("gene_expansion",)] * 3, 1.7) == (1, pytest.approx(1.6))
    assert choose([("kmers",)] * 3, 1.7) == (1, pytest.approx(2.1))


def test_features_of_clonal_families_need_more_evidence() -> None:
    decreases = draw_decreases(np.random.default_rng(0), 1.0, 2.3)
    for kinds, evidence in ((("genes",), 2.3 - 0.5), (("gene_expansion",), 2.3 - 2 * 0.5)):
        setting = make_setting(kinds, decreases, of_families=True)
        assert _choose_setting([setting], None, 1.7) == (setting, pytest.approx(evidence))


def test_settings_without_other_features_are_averaged_by_their_losses() -> None:
    """With 30 labels, mean losses of 0.1 and 0.2 more are 3 and 6 nats: weights of exp(-1) and exp(-2)."""
    rng = np.random.default_rng(3)
    target, scores = np.arange(30) % 2.0, rng.normal(size=(6, 30))
    scores[:3] += 2 * target
    cases: list[tuple[tuple[ModelKind, ...], float]] = [
        (("kmers",), 0.5), (("overdispersed_kmers",), 0.4), (("kmers",), 0.3), (("genes",), 0.5),
        (("kmers", "genes"), 0.5), (("kmers",), 0.19),
    ]  # fmt: skip
    settings = [
        make_setting(kinds, np.full(30, decrease))._replace(scores=own_scores, slope=2.0)
        for (kinds, decrease), own_scores in zip(cases, scores, strict=True)
    ]
    averaged = _average_settings(settings, settings[0], target, is_number=False, n_units=len(target))
    assert [*averaged.settings] == settings[:3]
    np.testing.assert_allclose(averaged.weights / averaged.weights[0], np.exp([0, -1, -2]))
    np.testing.assert_allclose(averaged.scores, averaged.weights @ scores[:3])
    slope, decreases = _fit_slope(averaged.scores, target, False)
    assert slope == pytest.approx(1, abs=1e-3)  # the scores need no other slope
    np.testing.assert_allclose(averaged.loss_decreases, decreases, atol=1e-4)
    of_both = _average_settings(settings, settings[4], target, is_number=False, n_units=len(target))
    assert [*of_both.settings] == settings[:5]


@pytest.mark.slow
def test_several_targets_with_missing_labels(tilted: RepertoireDataset) -> None:
    grade = np.minimum(np.arange(N) // 16, 2).astype(np.float64)
    age = 30.0 + np.arange(N)
    labels = np.stack([status(), grade, age], axis=1)
    labels[::5, 0] = labels[3::7, 1] = labels[1::6, 2] = np.nan
    cohort = TrainingCohort(tilted, labels, (STATUS, GRADE, AGE))
    fitted = fit_composition(cohort)
    assert fitted is not None
    assert fitted.scores.shape == (N, 5)
    assert np.isfinite(fitted.scores).all()
    assert fitted.loss_decreases[[0, 1, 3, 4]].min() > 0.05
    known = ~np.isnan(labels[:, 2])
    standard = (age - AGE.mean) / AGE.scale
    assert np.corrcoef(fitted.scores[known, 4], standard[known])[0, 1] > 0.8
    error = standard[known] - fitted.scores[known, 4]
    assert fitted.loss_decreases[4] == pytest.approx(0.5 * (standard[known].var() - error.var()), rel=1e-3)
    alone = fit_composition(replace(cohort, labels=labels[:, :1], tasks=(STATUS,)))
    assert alone is not None
    np.testing.assert_array_equal(alone.scores[:, 0], fitted.scores[:, 0])
    unknown = np.flatnonzero(np.isnan(labels[:, 0]))
    for row in unknown.tolist():
        assert alone.branch.score(tilted[row])[0] == pytest.approx(alone.scores[row, 0], abs=1e-4)


@pytest.mark.slow
def test_a_number_is_read_by_ridge_regression(tilted: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_ridge_models_only(monkeypatch, 1.0, 1.0)
    age = 30.0 + np.arange(N)
    fitted = fit_composition(TrainingCohort(tilted, age[:, None], (AGE,)))
    assert fitted is not None
    rows = design(tilted, np.ones(N, bool), 1.0)
    expected = Ridge(alpha=1.0, solver="cholesky").fit(rows, age).predict(rows)
    scores = np.array([fitted.branch.score(repertoire)[0] for repertoire in tilted])
    assert np.corrcoef(scores, expected)[0, 1] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "labels",
    [np.zeros(N), np.where(np.arange(N) == 3, 1.0, 0.0), np.full(N, np.nan)],
    ids=["one class", "one repertoire", "no label"],
)
def test_too_few_labels_give_no_branch(tilted: RepertoireDataset, labels: Floats) -> None:
    assert fit_status(tilted, labels=labels) is None


@pytest.mark.slow
def test_a_donor_with_both_labels_counts_twice(tilted: RepertoireDataset) -> None:
    """Eight donors with six repertoires each are enough if each has both labels, as eight pairs are sixteen units."""
    both, one_each = np.arange(N) % 8, np.arange(N) // 6
    assert fit_status(tilted, both) is not None
    assert fit_status(tilted, one_each) is None
    assert fit_status(tilted, both % 7) is None
    age = 30.0 + np.arange(N)
    assert fit_composition(TrainingCohort(tilted, age[:, None], (AGE,), both)) is None


def test_repertoires_without_sequences_say_nothing(
    tmp_path: Path, cohort_factory: Callable[..., RepertoireDataset]
) -> None:
    empty = write_cohort(tmp_path / "empty.h5", [[] for _ in range(N)], pd.DataFrame({"number": np.arange(N)}))
    assert fit_status(empty) is None


def write_families(path: Path, *, locus: str, of_families: bool) -> RepertoireDataset:
    """Write repertoires of 60 families, some of which are large; half of the repertoires use the first V gene more.

    More families have the gene, or only more sequences do, because large families have it.
    """
    rng = np.random.default_rng(0)
    with ContainerWriter(path) as writer:
        for number in range(N):
            is_positive = number >= N // 2
            v = rng.choice(4, 60, p=[0.4, 0.2, 0.2, 0.2] if of_families and is_positive else [0.25] * 4)
            sizes = np.where(rng.random(60) < 0.1, 40, 1)
            if not of_families:
                sizes = np.where((v == 0) & is_positive, 3, 1)
            ancestors = Sequences.encode(random_sequences(rng, 60, low=12)).take(np.repeat(np.arange(60), sizes))
            genes = {
                "v_call": Categorical.encode([f"{locus}V{gene}-1" for gene in np.repeat(v, sizes)]),
                "j_call": Categorical.encode([f"{locus}J1"] * len(ancestors)),
            }
            writer.append(f"r{number}", ancestors.with_genes(genes))
        writer.finish(pd.DataFrame({"number": np.arange(N)}), source="a test")
    return open_dataset(path)


def test_each_family_of_b_cells_counts_once_if_that_predicts_better(tmp_path: Path) -> None:
    fit = fit_status(write_families(tmp_path / "families.h5", locus="IGH", of_families=True))
    assert fit is not None
    assert isinstance(fit.branch, CompositionBranch)
    assert fit.branch.counts_families
    assert fit.branch.features == ["genes of clonal families"]
    assert not fit.branch.is_doubtful
    fit = fit_status(write_families(tmp_path / "sequences.h5", locus="IGH", of_families=False))
    assert fit is not None
    assert isinstance(fit.branch, CompositionBranch)
    assert not fit.branch.counts_families


def test_t_cells_have_no_families(tmp_path: Path) -> None:
    dataset = write_families(tmp_path / "families.h5", locus="TRB", of_families=True)
    fit = fit_status(dataset)
    assert fit is not None
    assert isinstance(fit.branch, CompositionBranch)
    assert not fit.branch.counts_families
    features = CompositionFeatures(dataset, of_families=True)
    np.testing.assert_array_equal(features.size_weights, 60 / (60 + NOISE_SEQUENCES))
