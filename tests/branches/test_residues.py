"""Residues at IMGT positions: positions, expected numbers and scores by hand, and a signal that only they can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from deeprc.arrays import Floats
from deeprc.branches import genes as genes_module
from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_description import NOISE_SEQUENCES
from deeprc.branches.composition_features import CompositionFeatures
from deeprc.branches.composition_fit import fit_composition
from deeprc.branches.composition_models import RidgeModels
from deeprc.branches.frequencies import RepertoireFrequencies
from deeprc.branches.genes import list_frequent_genes
from deeprc.branches.linear_function import ModelKind
from deeprc.branches.residues import (
    N_PLACED_RESIDUES,
    POSITIONS,
    ExpectedResidues,
    count_placed_residues,
    find_placed_residues,
    find_position,
    name_placed_residues,
)
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.imgt import list_imgt_positions
from deeprc.errors import InputError
from deeprc.tasks import Task
from tests.conftest import random_sequences

AT = {name: index for index, name in enumerate(name_placed_residues())}
STATUS = Task("status=ill", "status", "binary", ("well", "ill"))


def encode(junctions: Sequence[str], v: Sequence[str], j: Sequence[str]) -> Sequences:
    return Sequences.encode(junctions).with_genes({"v_call": Categorical.encode(v), "j_call": Categorical.encode(j)})


def write(path: Path, repertoires: Sequence[Sequences]) -> RepertoireDataset:
    with ContainerWriter(path) as writer:
        for number, sequences in enumerate(repertoires):
            writer.append(f"r{number}", sequences)
        writer.finish(pd.DataFrame({"status": ["ill"] * len(repertoires)}), source="a test")
    return open_dataset(path)


@pytest.mark.parametrize("length", [*range(2, 25), 60])
def test_positions_are_those_of_imgt(length: int) -> None:
    for index, position in enumerate(list_imgt_positions(length)):
        if position not in ("104", "118"):
            expected = "insertion" if "." in position else position
            assert POSITIONS[find_position(index, length)] == expected


def test_every_residue_but_the_ends_is_at_one_position() -> None:
    sequences = Sequences.encode(["CASSF"])
    indices, placed = find_placed_residues(sequences.residues.astype(np.int64))
    assert indices.tolist() == [1, 2, 3]
    assert [name_placed_residues()[index] for index in placed.tolist()] == ["A at 105", "S at 106", "S at 117"]
    assert len(name_placed_residues()) == N_PLACED_RESIDUES == 280
    (long,) = (find_placed_residues(np.zeros(16, np.int64))[1],)
    assert "A between 111 and 112" in {name_placed_residues()[index] for index in long.tolist()}


COHORT = [
    encode(["CAF", "CGF", "CAW", "CAAF"], ["V1", "V1", "V2", "V2"], ["J1", "J2", "J1", ""]),
    encode(["CAF", "CSF"], ["V1", ""], ["J1", "J1"]),
]


def count_by_hand(repertoires: Sequence[Sequences], names: dict[str, list[str]]) -> tuple[Floats, Floats]:
    """Return the features of each repertoire, and the expected share of each sequence, from the text alone."""
    numbers, of_v, of_j, placed = [], [], [], []
    for number, sequences in enumerate(repertoires):
        v_names, j_names = (sequences.genes[field].names() for field in ("v_call", "j_call"))
        for junction, v, j in zip(sequences.decode(), v_names, j_names, strict=True):
            places = [
                "between 111 and 112" if "." in position else f"at {position}"
                for position in list_imgt_positions(len(junction))
            ]
            numbers.append(number)
            of_v.append(v if v in names["v_call"] else "?")
            of_j.append(j if j in names["j_call"] else "?")
            placed.append(Counter(f"{a} {place}" for a, place in list(zip(junction, places, strict=True))[1:-1]))
    has = np.array([[of_sequence[name] for name in AT] for of_sequence in placed], float)
    number, of_v, of_j = np.array(numbers), np.array(of_v), np.array(of_j)
    expected = np.array(
        [has[of_v == v].mean(0) + has[of_j == j].mean(0) - has.mean(0) for v, j in zip(of_v, of_j, strict=True)]
    )
    features = np.zeros((len(repertoires), len(names["v_call"]) + 1, len(AT)))
    for index, v in enumerate([*names["v_call"], "?"]):
        for repertoire in range(len(repertoires)):
            chosen = (number == repertoire) & (of_v == v)
            features[repertoire, index] = (has - expected)[chosen].sum(0) / (number == repertoire).sum()
    return features, expected


def test_features_by_hand(tmp_path: Path) -> None:
    """CAF, CGF and CAW have one residue at 105, CAAF one at 105 and one at 117."""
    dataset = write(tmp_path / "c.h5", COHORT)
    genes = {"v_call": ["V1", "V2"], "j_call": ["J1", "J2"]}
    counts = count_placed_residues(dataset, genes)
    assert counts.pairs.tolist() == [[[1, 1, 0], [1, 0, 1], [0, 0, 0]], [[1, 0, 0], [0, 0, 0], [1, 0, 0]]]
    assert counts.by_v[0, :, AT["A at 105"]].tolist() == [1, 2, 0]
    assert counts.by_j[0, :, AT["A at 117"]].tolist() == [0, 0, 1]
    expected = ExpectedResidues.learn(counts)
    # A at 105: 4 of 6 sequences, 2 of 3 with V1, 2 of 2 with V2, 0 of 1 without; 3 of 4 with J1, 0 of 1, 1 of 1
    np.testing.assert_allclose(expected.by_v[:, AT["A at 105"]], [0, 1 / 3, -2 / 3], atol=1e-15)
    np.testing.assert_allclose(expected.by_j[:, AT["A at 105"]], [3 / 4, 0, 1], atol=1e-15)
    features, sums, lengths = expected.compute_features(counts)
    # with V1 in the first: CAF is 1 and expected 2/3 + 3/4 - 2/3; CGF is 0 and expected 2/3 + 0 - 2/3
    np.testing.assert_allclose(features[0, 0, AT["A at 105"]], (1 - 3 / 4 + 0) / 4, rtol=1e-6)
    by_hand, _ = count_by_hand(COHORT, genes)
    np.testing.assert_allclose(features, by_hand, atol=1e-7)
    np.testing.assert_allclose(sums, by_hand.sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(lengths, by_hand.sum(axis=2), atol=1e-6)


def test_genes_that_are_not_named_are_counted_together(tmp_path: Path) -> None:
    dataset = write(tmp_path / "c.h5", COHORT)
    counts = count_placed_residues(dataset, {"v_call": ["V2", "V9"], "j_call": []})
    assert counts.pairs.tolist() == [[[2], [0], [2]], [[0], [0], [2]]]
    assert counts.by_v[:, :, AT["A at 105"]].tolist() == [[2, 0, 1], [0, 0, 1]]
    assert counts.by_j[:, :, AT["A at 105"]].tolist() == [[3], [1]]
    expected = ExpectedResidues.learn(counts)
    np.testing.assert_array_equal(expected.by_v[1], 0)  # no sequence has V9


def test_only_the_most_frequent_genes_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """V1 has three sequences, V2 two and V3 one; the second repertoire has V1 and V3 only."""
    repertoires = [
        encode(["CAF", "CGF", "CAW", "CAAF"], ["V1", "V1", "V2", "V2"], [""] * 4),
        encode(["CAF", "CSF"], ["V1", "V3"], [""] * 2),
    ]
    dataset = write(tmp_path / "c.h5", repertoires)
    assert list_frequent_genes(dataset, "v_call") == ["V1", "V2", "V3"]
    monkeypatch.setattr(genes_module, "_MAX_GENES", 2)
    assert list_frequent_genes(dataset, "v_call") == ["V1", "V2"]
    assert list_frequent_genes(dataset[1:], "v_call") == ["V1"]
    counts = count_placed_residues(dataset, {"v_call": ["V1", "V2", "V3"], "j_call": []})
    assert counts.pairs[:, :, 0].tolist() == [[2, 2, 0, 0], [1, 0, 0, 1]]
    assert CompositionFeatures(dataset).genes["v_call"] == ("V1", "V2")


def test_families_count_once(tmp_path: Path) -> None:
    """Two of the three sequences are a family of V1, which differs at the position 117."""
    sequences = encode(["CARDYYGSSW", "CARDYYGSFW", "CARDYYGPPPPW"], ["V1", "V1", "V2"], ["J1"] * 3)
    frequencies = RepertoireFrequencies(write(tmp_path / "c.h5", [sequences]), of_families=True)
    counts = frequencies.count_placed_residues({"v_call": ["V1"], "j_call": []})
    assert counts.pairs.tolist() == [[[1], [1]]]
    assert counts.by_v[0, 0, [AT["A at 105"], AT["S at 117"], AT["F at 117"], AT["P at 117"]]].tolist() == [
        1,
        0.5,
        0.5,
        0,
    ]
    assert counts.by_j[0, 0, [AT["A at 105"], AT["S at 117"], AT["P at 117"]]].tolist() == [2, 0.5, 1]


def test_a_length_that_is_equal_but_for_rounding_is_not_read(tmp_path: Path) -> None:
    """Families of 1 to 7 sequences, each of which counts as a part of one; all junctions have 14 residues."""
    rng = np.random.default_rng(0)
    repertoires = []
    for _ in range(4):
        sizes = rng.integers(1, 8, 60)
        ancestors = np.repeat(np.array([list(text) for text in random_sequences(rng, 60, low=14, high=14)]), sizes, 0)
        ancestors[np.arange(len(ancestors)), rng.integers(1, 13, len(ancestors))] = "A"  # each has one mutation
        v = np.repeat(rng.choice(["V1", "V2"], 60), sizes).tolist()
        repertoires.append(encode(["".join(text) for text in ancestors], v, ["J1"] * len(v)))
    features = CompositionFeatures(write(tmp_path / "c.h5", repertoires), of_families=True)
    assert {"residues", "gene_residues"} <= set(features.products)
    assert not {"length", "gene_lengths"} & set(features.products)


def drawn(n: int, seed: int) -> Sequences:
    rng = np.random.default_rng(seed)
    junctions = random_sequences(rng, n, low=2)
    v, j = (rng.choice(names, n).tolist() for names in (["V1", "V2", "V5", ""], ["J1", "J2", "J7", ""]))
    return encode(junctions, v, j)


def branch_with(dataset: RepertoireDataset, genes: dict[str, list[str]], n_outputs: int = 2) -> CompositionBranch:
    """Return a branch with random weights of residues, which expects what the dataset has."""
    branch = CompositionBranch(n_outputs, genes, reads_residues=True)
    for name in ("residue_weights", "residue_constants"):
        branch.get_buffer(name).normal_(generator=torch.Generator().manual_seed(0))
    branch.expected_residues = ExpectedResidues.learn(count_placed_residues(dataset, genes))
    return branch


@pytest.mark.parametrize("genes", [{"v_call": ["V1", "V2"], "j_call": ["J1", "J2"]}, {"v_call": [], "j_call": []}])
def test_contributions_are_weights_minus_their_expected_sum(tmp_path: Path, genes: dict[str, list[str]]) -> None:
    repertoires = [drawn(40, 0), drawn(60, 1)]
    dataset = write(tmp_path / "c.h5", repertoires)
    branch = branch_with(dataset, genes)
    features, expected = count_by_hand(repertoires, genes)
    weights = branch.get_buffer("residue_weights").double().numpy()
    constants = branch.get_buffer("residue_constants").numpy()
    scores = np.einsum("bgf,tgf->bt", features, weights) - constants
    for number, repertoire in enumerate(dataset):
        n = len(repertoire)
        contributions = branch.compute_contributions(repertoire)
        np.testing.assert_allclose(contributions.sum(0), scores[number] * n / (n + NOISE_SEQUENCES), rtol=1e-5)
    names = dataset[0].sequences.genes["v_call"].names()
    row = 7
    v = genes["v_call"].index(names[row]) if names[row] in genes["v_call"] else len(genes["v_call"])
    placed = find_placed_residues(dataset[0].sequences.take(np.array([row])).residues.astype(np.int64))[1]
    own = weights[:, v, placed].sum(1) - weights[:, v] @ expected[row] - constants
    np.testing.assert_allclose(branch.compute_contributions(dataset[0])[row], own / (40 + NOISE_SEQUENCES), rtol=1e-9)


def test_gene_usage_alone_changes_no_feature(tmp_path: Path) -> None:
    """Repertoires with other shares of the genes, but the same junctions with each gene, have equal features."""
    rng = np.random.default_rng(0)
    junctions = {gene: random_sequences(rng, 20, low=8) for gene in ("V1", "V2", "V3")}
    repertoires = []
    for usage in ((1, 1, 1), (5, 1, 2), (1, 7, 3)):
        v = [gene for gene, n in zip(junctions, usage, strict=True) for _ in range(20 * n)]
        residues = [junction for gene, n in zip(junctions, usage, strict=True) for junction in junctions[gene] * n]
        repertoires.append(encode(residues, v, ["J1"] * len(v)))
    features = CompositionFeatures(write(tmp_path / "c.h5", repertoires))
    assert not {"length", "gene_lengths", "residues", "gene_residues"} & set(features.products)
    assert "genes" in features.products


def make_cohort(path: Path, n: int, seed: int, *, with_genes: bool = True) -> RepertoireDataset:
    """Half of the repertoires have more L at 108 with V1, and less with V2; donors differ in gene usage."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    repertoires = []
    for label in labels:
        share = rng.beta(20, 20)  # of V1
        v = np.where(rng.random(400) < share, "V1", "V2")
        junctions = np.array([list(text) for text in random_sequences(rng, 400, low=13, high=13)])
        junctions[:, 4] = rng.choice(list("AG"), 400)
        shift = 0.1 if label else -0.1
        is_l = rng.random(400) < np.where(v == "V1", 0.3 + shift, 0.3 - shift)
        junctions[is_l, 4] = "L"
        sequences = Sequences.encode(["".join(text) for text in junctions])
        genes = {"v_call": Categorical.encode(v.tolist())}
        repertoires.append(sequences.with_genes(genes) if with_genes else sequences)
    with ContainerWriter(path) as writer:
        for number, sequences in enumerate(repertoires):
            writer.append(f"r{number}", sequences)
        writer.finish(pd.DataFrame({"status": np.where(labels == 1, "ill", "well")}), source="a test")
    return open_dataset(path)


def test_a_difference_within_v_genes_is_learned(tmp_path: Path) -> None:
    """All repertoires have as many L at 108, and use both genes alike; only the two together tell the classes."""
    dataset = make_cohort(tmp_path / "c.h5", 80, 0)
    labels = (np.arange(80) % 2).astype(float)
    fitted = fit_composition(TrainingCohort(dataset[:60], labels[:60, None], (STATUS,)))
    assert fitted is not None
    branch = fitted.branch
    assert branch.features == ["residues"]
    assert not branch.is_doubtful
    scores = np.array([branch.score(repertoire)[0] for repertoire in dataset[60:]])
    assert roc_auc_score(labels[60:], scores) > 0.95
    weights = branch.get_linear_function(0).residues.reshape(-1, 280)
    assert np.abs(weights).argmax() % 280 == AT["L at 108"]
    assert weights[0, AT["L at 108"]] > 0 > weights[1, AT["L at 108"]]  # V1, V2


def test_a_branch_is_the_same_after_it_was_described(tmp_path: Path) -> None:
    dataset = write(tmp_path / "c.h5", [drawn(40, 0)])
    branch = branch_with(dataset, {"v_call": ["V1", "V2"], "j_call": ["J1"]})
    again = CompositionBranch.from_description(branch.describe(), 2, "model")
    again.load_state_dict(branch.state_dict())
    np.testing.assert_array_equal(again.compute_contributions(dataset[0]), branch.compute_contributions(dataset[0]))
    assert again.features == ["residues"]
    older: dict[str, Any] = {"v_call": [], "j_call": []}
    assert not CompositionBranch.from_description(older, 2, "model").reads_residues


def test_a_container_without_genes_is_refused(tmp_path: Path) -> None:
    dataset = write(tmp_path / "c.h5", [drawn(40, 0)])
    branch = branch_with(dataset, {"v_call": ["V1"], "j_call": []})
    plain = write(tmp_path / "plain.h5", [Sequences.encode(dataset[0].sequences.decode())])
    with pytest.raises(InputError, match=r"plain\.h5: has no v_call, which the branch `composition`"):
        branch.compute_contributions(plain[0])


def test_absurd_numbers_of_genes_are_refused() -> None:
    names = tuple(f"V{number}" for number in range(20_000))
    description = {"v_call": names, "j_call": [], "residues": True}
    with pytest.raises(InputError, match="model: expected at most 4,793 genes, found 20,000"):
        CompositionBranch.from_description(description, 100, "model")


def test_without_genes_lengths_and_residues_are_read(tmp_path: Path) -> None:
    features = CompositionFeatures(make_cohort(tmp_path / "c.h5", 6, 0, with_genes=False))
    assert "residues" in features.products
    of_v_genes_or_lengths = {"gene_residues", "gene_lengths", "gene_pairs", "length"}
    assert not of_v_genes_or_lengths & set(features.products)  # no gene is known, and all junctions are as long
    assert features.centre.residues.shape == (N_PLACED_RESIDUES,)
    assert len(POSITIONS) * len(AMINO_ACIDS) == N_PLACED_RESIDUES


@pytest.mark.parametrize("kind", ["length", "gene_lengths", "residues", "gene_residues"])
def test_weights_of_features_are_those_of_the_inner_products(tmp_path: Path, kind: ModelKind) -> None:
    """The function of a model on the features of each repertoire is its score from the inner products."""
    rng = np.random.default_rng(1)
    repertoires = []
    for _ in range(12):
        junctions = random_sequences(rng, 60, low=4, high=18)
        v, j = (rng.choice(names, 60, p=rng.dirichlet([2, 2, 2])) for names in (["V1", "V2", ""], ["J1", "J2", ""]))
        repertoires.append(encode(junctions, v.tolist(), j.tolist()))
    dataset = write(tmp_path / "c.h5", repertoires)
    features = CompositionFeatures(dataset)
    labels = np.arange(12) % 2.0
    fitted = RidgeModels(features, (kind,), is_number=False).fit(labels, np.arange(12), 10.0, slope=1.5)
    counts = count_placed_residues(dataset, features.genes)
    table = features.expected_residues.compute_features(counts)[0].reshape(12, -1) - features.centre.residues
    np.testing.assert_allclose(
        features.size_weights * (table @ fitted.function.residues), fitted.scores, rtol=1e-5, atol=1e-6
    )
    assert np.ptp(fitted.scores) > 0.01
    weights = fitted.function.residues.reshape(3, len(POSITIONS), 20)
    n_different = {"length": 1, "gene_lengths": 3}.get(kind)
    if n_different is not None:
        assert len(np.unique(weights.round(12))) == n_different
    elif kind == "residues":
        np.testing.assert_allclose(weights, weights[:1] + np.zeros((3, 1, 1)))
