"""The k-mers of expanded clones: by hand, invariances, and when the branch of composition reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from deeprc.airr_ml.sequence_scores import compute_sequence_scores
from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_description import NOISE_SEQUENCES
from deeprc.branches.composition_features import CompositionFeatures
from deeprc.branches.composition_fit import _FittedOutput, _make_branch, fit_composition
from deeprc.branches.composition_models import LassoModels, RidgeModels
from deeprc.branches.expansion import (
    _compute_rows,
    compute_expansion_table,
    compute_gene_expansion_table,
)
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import Repertoire, RepertoireDataset, open_dataset
from deeprc.datasets.expansion import compute_expansion_scores
from deeprc.datasets.kmers import list_kmers
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError
from deeprc.nn.branches import Branches
from deeprc.tasks import Task
from deeprc.training.estimator import DeepRCClassifier
from tests.branches.test_composition import repertoire
from tests.conftest import random_sequences

STATUS = Task("status", "status", "binary", ("negative", "positive"))
AT = {name: index for index, name in enumerate(list_kmers(3))}


def as_counts(*counts: int) -> np.ndarray:
    return np.array(counts, np.uint32)


def test_scores_by_hand() -> None:
    """1/4, 1/4 + 1/3, 1/4 + 1/3 + 1/2 and 1/4 + 1/3 + 1/2 + 1, minus 1; the two in the middle are equal."""
    scores = compute_expansion_scores(as_counts(1, 5, 2, 2))
    np.testing.assert_allclose(scores, [-3 / 4, 13 / 12, -1 / 6, -1 / 6], rtol=1e-12)


@pytest.mark.parametrize("counts", [as_counts(), as_counts(4), as_counts(7, 7, 7)], ids=["none", "one", "equal"])
def test_equal_counts_have_scores_of_0(counts: np.ndarray) -> None:
    np.testing.assert_array_equal(compute_expansion_scores(counts), np.zeros(len(counts)))


def test_scores_have_the_mean_0_and_depend_on_the_order_of_the_counts_alone() -> None:
    rng = np.random.default_rng(0)
    counts = np.minimum(rng.zipf(1.8, 2000), 60_000).astype(np.uint32)
    scores = compute_expansion_scores(counts)
    assert scores.mean() == pytest.approx(0, abs=1e-12)
    assert scores[counts.argmax()] == pytest.approx(np.log(2000) - 0.4228, abs=1e-3)  # Euler's constant, minus 1
    np.testing.assert_array_equal(compute_expansion_scores(counts**2), scores)
    order = rng.permutation(2000)
    np.testing.assert_array_equal(compute_expansion_scores(counts[order]), scores[order])


def make_branch(n_outputs: int = 1) -> CompositionBranch:
    return CompositionBranch(n_outputs, reads_expansion=True)


def test_a_branch_by_hand() -> None:
    branch = make_branch(2)
    branch.get_buffer("expansion_weights")[0, AT["ASS"]] = 2
    branch.get_buffer("expansion_weights")[1, AT["SSL"]] = 3
    branch.get_buffer("expansion_constants")[:] = torch.tensor([0.5, 0])
    sequences = replace(Sequences.encode(["CASSL", "CASS", "CAT", "WW"]), counts=as_counts(1, 5, 2, 2))
    found = branch.compute_contributions(repertoire(sequences)) * (4 + NOISE_SEQUENCES)
    first, second = -3 / 4, 13 / 12
    expected = [[2 * first - 0.5, 3 * first], [2 * second - 0.5, 0], [-0.5, 0], [-0.5, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    for count in (1, 3):  # equal counts say nothing
        equal = replace(Sequences.encode(["CASSL"] * 9), counts=as_counts(*[count] * 9))
        assert branch.score(repertoire(equal)).tolist() == [0, 0]
    assert branch.score(repertoire(Sequences.encode([]))).tolist() == [0, 0]
    assert branch.features == ["k-mers weighted by counts"]
    assert branch.reads_counts
    rebuilt = CompositionBranch.from_description(branch.describe(), 2, "model")
    rebuilt.load_state_dict(branch.state_dict())
    np.testing.assert_array_equal(rebuilt.score(repertoire(sequences)), branch.score(repertoire(sequences)))


def test_genes_by_hand() -> None:
    """A gene without a weight, and an unknown one, add nothing."""
    branch = CompositionBranch(1, {"v_call": ["A", "B"], "j_call": ["J"]}, reads_expansion=True)
    branch.get_buffer("v_call_expansion_weights")[0] = torch.tensor([2.0, 7.0])
    branch.get_buffer("j_call_expansion_weights")[0] = torch.tensor([3.0])
    branch.get_buffer("expansion_constants")[0] = 0.25
    v_call = Categorical(np.array([0, 1, 2, 1], np.uint16), ("B", "A", "C"))
    j_call = Categorical(np.array([1, 0, 0, 1], np.uint16), ("", "J"))
    sequences = replace(Sequences.encode(["CASSL", "CAS", "CAT", "WW"]), counts=as_counts(1, 5, 2, 2))
    found = branch.compute_contributions(repertoire(sequences.with_genes({"v_call": v_call, "j_call": j_call})))
    scores = np.array([-3 / 4, 13 / 12, -1 / 6, -1 / 6])
    expected = scores * [7 + 3, 2, 0, 2 + 3] - 0.25
    np.testing.assert_allclose(found[:, 0] * (4 + NOISE_SEQUENCES), expected, rtol=1e-12)
    assert branch.features == ["genes weighted by counts"]


def test_models_of_earlier_versions_do_not_read_them() -> None:
    branch = CompositionBranch.from_description({"v_call": [], "j_call": [], "abundances": True}, 1, "model")
    assert not branch.reads_expansion
    assert not any("expansion" in name for name in branch.state_dict())


@pytest.fixture(scope="module")
def expanded(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """48 repertoires, in which one sequence of 20 has WHW. In every other one, these sequences have higher counts.

    Counts have the same distribution in all, up to a factor. One repertoire of each class has no counts.
    """
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("expanded") / "expanded.h5"
    with ContainerWriter(path) as writer:
        for number in range(48):
            texts = [text[:4] + ("WHW" if i % 20 == 0 else text[4:7]) + text[7:] for i, text in enumerate(drawn(rng))]
            ranks = rng.permutation(400)
            if number % 2:
                ranks[::20] = rng.permutation(np.arange(0, 80, 4))  # among the most abundant fifth
                ranks[np.arange(400) % 20 > 0] = rng.permutation(np.setdiff1d(np.arange(400), ranks[::20]))
            counts = np.ceil(2000 / (1 + ranks)) * rng.integers(1, 9) if number > 1 else np.ones(400)
            writer.append(f"rep.{number}", replace(Sequences.encode(texts), counts=counts.astype(np.uint32)))
        writer.finish(pd.DataFrame({"number": np.arange(48)}), source="a test")
    return open_dataset(path)


def drawn(rng: np.random.Generator) -> list[str]:
    return random_sequences(rng, 400, low=10)


LABELS = (np.arange(48) % 2).astype(np.float64)


def test_the_table_against_plain_counts(expanded: RepertoireDataset) -> None:
    table = compute_expansion_table(expanded[::-1])
    assert table.shape == (48, 8000)
    assert np.isnan(table[-2:]).all()
    for row, each in list(zip(table[:-2], expanded[2:][::-1], strict=True))[::15]:
        total: Counter[str] = Counter()
        for text, score in zip(each.sequences.decode(), compute_expansion_scores(each.counts), strict=True):
            for start in range(len(text) - 2):
                total[text[start : start + 3]] += score / 400
        expected = np.zeros(8000)
        expected[[AT[name] for name in total]] = list(total.values())
        np.testing.assert_allclose(row, expected, atol=1e-7)
    assert Path(f"{expanded.container.path}.cache").is_dir()


@pytest.mark.slow
def test_expanded_clones_with_a_motif_are_found(expanded: RepertoireDataset) -> None:
    fitted = fit_composition(TrainingCohort(expanded, LABELS[:, None], (STATUS,)))
    assert fitted is not None
    branch = cast("CompositionBranch", fitted.branch)
    assert branch.features == ["k-mers weighted by counts"]
    assert int(branch.get_buffer("expansion_weights")[0].argmax()) == AT["WHW"]
    assert roc_auc_score(LABELS[2:], fitted.scores[2:, 0]) > 0.95
    scores = np.array([branch.score(each)[0] for each in expanded])
    assert scores[:2].tolist() == [0, 0]
    assert roc_auc_score(LABELS[2:], scores[2:]) > 0.95


def test_the_branch_is_the_linear_function_of_the_features(expanded: RepertoireDataset) -> None:
    branch = make_branch()
    weights = torch.randn(8000, generator=torch.Generator().manual_seed(0))
    branch.get_buffer("expansion_weights")[0] = weights
    branch.get_buffer("expansion_constants")[0] = 0.25
    table = compute_expansion_table(expanded[2:])
    expected = (table.astype(np.float64) @ weights.double().numpy() - 0.25) * 400 / (400 + NOISE_SEQUENCES)
    np.testing.assert_allclose([branch.score(each)[0] for each in expanded[2:]], expected, atol=1e-5)


@pytest.fixture(scope="module")
def one_gene(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """60 repertoires of the same sequences, 30 V genes and 2 J genes; in every other one, clones of one V expanded."""
    rng = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("genes") / "genes.h5"
    names = tuple(f"TRBV{number}" for number in range(1, 31))
    with ContainerWriter(path) as writer:
        for number in range(60):
            v, j = rng.integers(30, size=600), rng.integers(2, size=600)
            counts = np.ceil(np.exp(rng.normal(1, 1, 600) + 1.2 * (number % 2) * (v == 11)))
            sequences = Sequences(
                np.tile(np.arange(12, dtype=np.uint8), 600),
                np.arange(0, 12 * 600 + 1, 12),
                counts.astype(np.uint32),
                v_call=Categorical(v.astype(np.uint16), names),
                j_call=Categorical(j.astype(np.uint16), ("TRBJ1", "TRBJ2")),
            )
            writer.append(f"rep.{number}", sequences)
        writer.finish(pd.DataFrame({"number": np.arange(60)}), source="a test")
    return open_dataset(path)


@pytest.mark.slow
def test_an_expanded_gene_is_found(one_gene: RepertoireDataset) -> None:
    labels = (np.arange(60) % 2).astype(np.float64)
    fitted = fit_composition(TrainingCohort(one_gene, labels[:, None], (STATUS,)))
    assert fitted is not None
    branch = cast("CompositionBranch", fitted.branch)
    assert "genes weighted by counts" in branch.features
    weights = branch.get_buffer("v_call_expansion_weights")[0]
    assert branch.genes["v_call"][int(weights.argmax())] == "TRBV12"
    assert roc_auc_score(labels, fitted.scores[:, 0]) > 0.9
    assert roc_auc_score(labels, [branch.score(each)[0] for each in one_gene]) > 0.9


def test_the_score_is_the_linear_function_of_the_genes(one_gene: RepertoireDataset) -> None:
    """Against a plain sum; the constant makes the mean of the training repertoires score 0."""
    labels = (np.arange(60) % 2).astype(np.float64)
    features = CompositionFeatures(one_gene)
    function, scores = LassoModels(features, ("gene_expansion",)).fit(labels, np.arange(60), 0.3, slope=2.0)
    assert not function.genes.any()
    branch = _make_branch(features, [(0, _FittedOutput(function, ("gene_expansion",), scores, 1.0, True))], 1)
    np.testing.assert_allclose([branch.score(each)[0] for each in one_gene], scores, atol=1e-9)
    names = features.genes["v_call"]
    table = compute_gene_expansion_table(one_gene, features.genes)
    assert table.shape == (60, len(names) + 2)
    each = one_gene[3]
    expanded_scores = compute_expansion_scores(each.counts)
    of_sequences = np.array(each.genes["v_call"].vocabulary)[each.genes["v_call"].codes]
    expected = [expanded_scores[of_sequences == name].sum() / 600 for name in names]
    np.testing.assert_allclose(table[3, : len(names)], expected, atol=1e-12)


def with_genes(dataset: RepertoireDataset, at: int, v_codes: np.ndarray, names: tuple[str, ...]) -> Repertoire:
    """Return a repertoire of a dataset with other V genes and one J gene."""
    j_call = Categorical(np.zeros(600, np.uint16), ("TRBJ1",))
    genes = {"v_call": Categorical(v_codes.astype(np.uint16), names), "j_call": j_call}
    return repertoire(dataset[at].sequences.with_genes(genes))


def test_a_gene_that_all_sequences_have_does_not_vary(one_gene: RepertoireDataset) -> None:
    """Its feature is the sum of all scores, which is 0 but for rounding."""
    each = with_genes(one_gene, 3, np.arange(600) % 2, ("A", "B"))
    _, row = _compute_rows(each, {"v_call": ["A", "B"], "j_call": ["TRBJ1"]})
    assert row["j_call"] == [0]
    assert row["v_call"][0] == pytest.approx(-row["v_call"][1], abs=1e-11)
    assert abs(row["v_call"][0]) > 1e-4


def test_genes_of_another_container_are_looked_up_by_name(
    one_gene: RepertoireDataset, expanded: RepertoireDataset
) -> None:
    table = compute_gene_expansion_table(one_gene[::2], {"v_call": ["TRBV2", "new", "TRBV1"], "j_call": []})
    ordered = compute_gene_expansion_table(one_gene, {"v_call": ["TRBV1", "TRBV2"]})
    np.testing.assert_array_equal(table, np.stack([ordered[::2, 1], np.zeros(30), ordered[::2, 0]], axis=1))
    assert compute_gene_expansion_table(expanded, {"v_call": [], "j_call": []}).shape == (48, 0)
    with pytest.raises(InputError, match=r"expanded\.h5: has no v_call$"):
        compute_gene_expansion_table(expanded, {"v_call": ["TRBV1"]})


@pytest.mark.parametrize("models", [RidgeModels, LassoModels])
def test_a_gene_that_was_hardly_seen_cannot_decide(
    one_gene: RepertoireDataset, models: type[RidgeModels | LassoModels], tmp_path: Path
) -> None:
    """One training repertoire has one sequence with RARE; a new repertoire has 20, which have expanded."""
    names = (*(f"TRBV{number}" for number in range(1, 31)), "RARE")
    path = tmp_path / "rare.h5"
    with ContainerWriter(path) as writer:
        for number, each in enumerate(one_gene):
            codes = np.array(each.genes["v_call"].codes)
            codes[0] = 30 if number == 0 else codes[0]
            genes = {"v_call": Categorical(codes, names), "j_call": each.genes["j_call"]}
            writer.append(each.repertoire_id, each.sequences.with_genes(genes))
        writer.finish(pd.DataFrame({"number": np.arange(60)}), source="a test")
    features, labels = CompositionFeatures(open_dataset(path)), (np.arange(60) % 2).astype(np.float64)
    kinds = ("gene_expansion",)
    made = models(features, kinds, False) if models is RidgeModels else models(features, kinds)
    function, scores = made.fit(labels, np.arange(60), made.Cs[-1], slope=1.0)
    branch = _make_branch(features, [(0, _FittedOutput(function, kinds, scores, 1.0, True))], 1)
    codes = np.arange(600) % 30
    codes[np.argsort(one_gene[5].counts)[-20:]] = 30
    assert abs(branch.score(with_genes(one_gene, 5, codes, names))[0]) < 3 * np.abs(scores).max()


def test_left_out_repertoires_without_counts_score_0(expanded: RepertoireDataset) -> None:
    left_out = np.array([0, 1, 10, 11])
    learned = np.setdiff1d(np.arange(48), left_out)
    models = RidgeModels(CompositionFeatures(expanded), ("expansion",), is_number=False)
    scores = models.score_left_out(LABELS[learned], learned, left_out)
    np.testing.assert_allclose(scores[:, :2], 0, atol=1e-5)  # features have 32 bits
    assert (scores[:, 3] - scores[:, 2] > 1e-4).all()


def test_counts_can_be_left_out(expanded: RepertoireDataset) -> None:
    assert "expansion" not in CompositionFeatures(expanded, with_counts=False).products
    assert fit_composition(TrainingCohort(expanded, LABELS[:, None], (STATUS,)), with_counts=False) is None


def test_sequences_are_ranked_by_them(expanded: RepertoireDataset) -> None:
    branch = make_branch()
    branch.get_buffer("expansion_weights")[0, AT["WHW"]] = 2
    estimator = DeepRCClassifier()
    responses = SimpleNamespace(responses=np.zeros((400, 1)))
    network = SimpleNamespace(branches=Branches([branch], 1))
    model = SimpleNamespace(network=network, score_sequences=lambda *_: responses)
    estimator.model_ = cast("Any", model)
    found = compute_sequence_scores(estimator, expanded, 5)["composition"]
    counts = np.array([text.count("WHW") for text in expanded[5].sequences.decode()])
    np.testing.assert_allclose(found, 2 * counts * compute_expansion_scores(expanded[5].counts), rtol=1e-6)
