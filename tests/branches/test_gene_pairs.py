"""Pairs of V genes and J genes: features and shares by hand, and a signal that only they can read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_description import NOISE_SEQUENCES
from deeprc.branches.composition_features import CompositionFeatures
from deeprc.branches.composition_fit import fit_composition
from deeprc.branches.composition_models import RidgeModels
from deeprc.branches.gene_pairs import compute_gene_pairs, share_pair_scores
from deeprc.branches.residues import count_placed_residues
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.tasks import Task

STATUS = Task("status=ill", "status", "binary", ("well", "ill"))


def test_features_by_hand() -> None:
    """Half of the sequences have V1, and half J1; of the first repertoire 3 of 8 have both, of the second 1 of 4."""
    counts = np.array([[[3, 1], [1, 3]], [[1, 1], [1, 1]], [[0, 0], [0, 0]]], float)
    np.testing.assert_allclose(compute_gene_pairs(counts), [[1 / 8, -1 / 8, -1 / 8, 1 / 8], [0] * 4, [0] * 4])
    assert not compute_gene_pairs(np.array([[[5.0, 2.0]]])).any()  # with one V gene, no pair can differ


def test_shares_sum_to_weights_times_features() -> None:
    rng = np.random.default_rng(0)
    v, j, factors = rng.integers(0, 3, 50), rng.integers(0, 2, 50), rng.random(50)
    weights = rng.normal(size=(2, 3, 2))
    counts = np.zeros((1, 3, 2))
    np.add.at(counts[0], (v, j), factors)
    shares = share_pair_scores(weights, v, j, factors)
    assert shares.shape == (2, 50)
    expected = weights.reshape(2, -1) @ compute_gene_pairs(counts)[0]
    np.testing.assert_allclose(shares @ factors / factors.sum(), expected, atol=1e-9)


def test_a_sequence_has_the_weight_of_its_pair_minus_what_is_expected() -> None:
    """Of four sequences three have V0 and two have J0; only the pair of both has a weight, 8."""
    weights = np.array([[[8.0, 0.0], [0.0, 0.0]]])
    shares = share_pair_scores(weights, np.array([0, 0, 0, 1]), np.array([0, 1, 1, 0]), np.ones(4))
    of_v0, of_j0 = 8 * 2 / 4, 8 * 3 / 4
    expected = [[8 - (of_v0 + of_j0) / 2, -of_v0 / 2, -of_v0 / 2, -of_j0 / 2]]
    np.testing.assert_allclose(shares, expected)


def make_cohort(path: Path, n: int, seed: int) -> RepertoireDataset:
    """In half of the repertoires V1 is used with J1 more than by chance, in the others less; donors differ in usage."""
    rng = np.random.default_rng(seed)
    with ContainerWriter(path) as writer:
        for number in range(n):
            share_v, share_j = rng.beta(10, 10, 2)
            shift = 0.05 if number % 2 else -0.05
            pairs = np.outer([share_v, 1 - share_v], [share_j, 1 - share_j]) + shift * np.array([[1, -1], [-1, 1]])
            drawn = rng.choice(4, 600, p=np.maximum(pairs.ravel(), 0) / np.maximum(pairs, 0).sum())
            genes = {
                "v_call": Categorical.encode(np.array(["V1", "V2"])[drawn // 2].tolist()),
                "j_call": Categorical.encode(np.array(["J1", "J2"])[drawn % 2].tolist()),
            }
            writer.append(f"r{number}", Sequences.encode(["CASSF"] * 600).with_genes(genes))
        writer.finish(pd.DataFrame({"status": np.where(np.arange(n) % 2 == 1, "ill", "well")}), source="a test")
    return open_dataset(path)


def test_genes_that_are_used_together_are_learned(tmp_path: Path) -> None:
    dataset, labels = make_cohort(tmp_path / "c.h5", 80, 0), np.arange(80) % 2.0
    fitted = fit_composition(TrainingCohort(dataset[:60], labels[:60, None], (STATUS,)))
    assert fitted is not None
    branch = fitted.branch
    assert branch.features == ["gene pairs"]
    scores = np.array([branch.score(repertoire)[0] for repertoire in dataset[60:]])
    assert roc_auc_score(labels[60:], scores) > 0.95
    weights = branch.get_linear_function(0).gene_pairs.reshape(3, 3)
    assert weights[0, 0] > 0 > weights[0, 1]


def test_scores_are_the_linear_function_of_the_features(tmp_path: Path) -> None:
    dataset = make_cohort(tmp_path / "c.h5", 12, 1)
    features = CompositionFeatures(dataset)
    fitted = RidgeModels(features, ("gene_pairs",), is_number=False).fit(
        np.arange(12) % 2.0, np.arange(12), 10, slope=1
    )
    branch = CompositionBranch(1, features.genes, reads_gene_pairs=True)
    branch.set_linear_function(0, fitted.function, features.centre)
    scores = [branch.score(repertoire)[0] for repertoire in dataset]
    np.testing.assert_allclose(scores, fitted.scores, atol=1e-9)
    table = compute_gene_pairs(count_placed_residues(dataset, features.genes).pairs)
    by_hand = (table - features.centre.gene_pairs) @ fitted.function.gene_pairs * 600 / (600 + NOISE_SEQUENCES)
    np.testing.assert_allclose(fitted.scores, by_hand, atol=1e-9)
    again = CompositionBranch.from_description(branch.describe(), 1, "model")
    again.load_state_dict(branch.state_dict())
    assert again.score(dataset[0])[0] == scores[0]


@pytest.mark.parametrize("names", [{"v_call": ["V1", "V9"], "j_call": ["J1"]}, {"v_call": ["V1"], "j_call": ["J2"]}])
def test_other_genes_count_together(tmp_path: Path, names: dict[str, list[str]]) -> None:
    dataset = make_cohort(tmp_path / "c.h5", 2, 1)
    branch = CompositionBranch(2, names, reads_gene_pairs=True)
    branch.get_buffer("gene_pair_weights").normal_(generator=torch.Generator().manual_seed(0))
    table = compute_gene_pairs(count_placed_residues(dataset, names).pairs)
    weights = branch.get_buffer("gene_pair_weights").numpy().reshape(2, -1)
    for number, repertoire in enumerate(dataset):
        expected = weights @ table[number] * 600 / (600 + NOISE_SEQUENCES)
        np.testing.assert_allclose(branch.compute_contributions(repertoire).sum(axis=0), expected, atol=1e-9)
