"""The table of the features of composition: effects and means by hand, in which order, and of which repertoires."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_fit import fit_composition
from deeprc.branches.residues import ExpectedResidues, count_placed_residues, name_placed_residues
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.expansion import compute_expansion_scores
from deeprc.datasets.kmers import list_kmers
from deeprc.errors import InputError
from deeprc.evaluation.stored_tables import read_composition
from deeprc.nn.branches import Branch
from deeprc.runs.composition_table import list_distinct_features, make_composition_table
from deeprc.runs.experiment import train_run
from deeprc.tasks import Task
from deeprc.training.building import build_network
from deeprc.training.model import Ensemble, TrainedModel
from tests.conftest import random_sequences
from tests.toys.repertoires import make_sequences, write_repertoires
from tests.toys.toy_branches import Composition, with_branches

STATUS = Task("status=ill", "status", "binary", ("well", "ill"))
SITE = Task("site", "site", "multiclass", ("gut", "lung", "skin"))
AGE = Task("age", "age", "regression", mean=50.0, scale=10.0)
AT = {name: index for index, name in enumerate(list_kmers(4))}
SHEET = pd.DataFrame(
    {"status": ["ill", "ill", "well", "well"], "site": ["gut", "lung", "skin", "skin"], "age": [70, 60, 50, 40]}
)


def write(
    path: Path,
    repertoires: list[list[str]],
    sheet: pd.DataFrame,
    *,
    v: list[list[str]] | None = None,
    counts: list[list[int]] | None = None,
) -> RepertoireDataset:
    """Write repertoires, with V genes and counts if they are given."""
    sequences = [
        make_sequences(junctions, counts and counts[number], v_call=v and v[number])
        for number, junctions in enumerate(repertoires)
    ]
    return write_repertoires(path, sequences, sheet)


def make_model(tasks: tuple[Task, ...], *branches: Branch, gain: float = 1.0) -> TrainedModel:
    config = load_config("deeprc", ["n_kernels=8"])
    network = build_network(config, tasks, seed=0, device=torch.device("cpu"))
    model = TrainedModel(tasks, network, config)
    return with_branches(model, *branches, gain=gain) if branches else model


def kmer_branch(weights: dict[str, float], *, output: int = 0, n_outputs: int = 1) -> CompositionBranch:
    branch = CompositionBranch(n_outputs)
    for name, weight in weights.items():
        branch.kmer_weights[output, AT[name]] = weight
    return branch


@pytest.fixture
def kmers(tmp_path: Path) -> RepertoireDataset:
    """Four repertoires with 2, 2, 0 and 0 of CASS and with 0, 0, 1 and 1 of WWWW in two sequences."""
    return write(tmp_path / "k.h5", [["CASS", "CASS"], ["CASS", "CASS"], ["WWWW", "HHH"], ["WWWW", "HHH"]], SHEET)


def row(table: pd.DataFrame, feature: str, output: str = "status=ill") -> dict[str, Any]:
    (found,) = table[(table["feature"] == feature) & (table["output"] == output)].to_dict("records")
    return {str(name): value for name, value in found.items()}


def test_4_mers_by_hand(kmers: RepertoireDataset) -> None:
    """CASS occurs 1, 1, 0, 0 times per sequence (standard deviation 1/2), WWWW half as often."""
    model = make_model((STATUS,), kmer_branch({"CASS": 3.0, "WWWW": 8.0, "HHHH": 100.0}), gain=2.0)
    table = make_composition_table(model, kmers)
    assert list(table["feature"]) == ["W", "WW", "WWW", "WWWW", "C", "CA", "CAS", "CASS"]  # HHHH does not occur
    assert row(table, "CASS") == {
        "output": "status=ill", "direction": "up", "kind": "k-mers", "feature": "CASS", "effect": pytest.approx(3),
        "mean_positive": 1.0, "mean_negative": 0.0,
    }  # fmt: skip
    assert row(table, "WWWW")["effect"] == pytest.approx(2 * 8 / 4)
    assert (row(table, "WWWW")["mean_positive"], row(table, "WWWW")["mean_negative"]) == (0.0, 0.5)


def test_a_shorter_k_mer_has_the_sum_of_its_4_mers(tmp_path: Path) -> None:
    """All k-mers that begin with CAS: weights 1 and 3, in repertoires with 1 and 0, 0 and 1, 1 and 1, none of them."""
    repertoires = [["CASS", "HHHH"], ["CASF", "HHHH"], ["CASS", "CASF"], ["HHHH", "HHHH"]]
    table = make_composition_table(
        make_model((STATUS,), kmer_branch({"CASS": 1.0, "CASF": 3.0})), write(tmp_path / "k.h5", repertoires, SHEET)
    )
    frequency, part = np.array([0.5, 0.5, 1, 0]), np.array([0.5, 1.5, 2, 0])
    slope = np.polyfit(frequency, part, 1)[0]
    for name in ("C", "CA", "CAS"):
        assert row(table, name)["effect"] == pytest.approx(slope * frequency.std())
        assert (row(table, name)["mean_positive"], row(table, name)["mean_negative"]) == (0.5, 0.5)
    assert row(table, "CASF")["effect"] == pytest.approx(3 / 4)
    assert len(table) == 5


def test_the_weights_of_a_residue_are_found_again(tmp_path: Path) -> None:
    """If all 4-mers that begin with W have one weight, the effect of W is this weight times its deviation."""
    rng = np.random.default_rng(0)
    dataset = write(tmp_path / "k.h5", [random_sequences(rng, 30) for _ in range(4)], SHEET)
    branch = kmer_branch({name: -2.0 for name in AT if name.startswith("W")})
    table = make_composition_table(make_model((STATUS,), branch), dataset, top=None)
    frequency = np.array([sum(text[:-3].count("W") for text in each.sequences.decode()) / 30 for each in dataset])
    assert row(table, "W")["effect"] == pytest.approx(-2 * frequency.std())
    assert row(table, "W")["direction"] == "down"
    assert row(table, "W")["mean_positive"] == pytest.approx(frequency[:2].mean())
    assert len(make_composition_table(make_model((STATUS,), branch), dataset, top=3)) == 1 + 3 * 3


def test_several_classes_and_numbers(kmers: RepertoireDataset) -> None:
    """The outputs are gut, lung, skin and age; CASS speaks for lung and for a higher age, WWWW against gut."""
    branch = kmer_branch({"CASS": 3.0}, output=1, n_outputs=4)
    branch.kmer_weights[3, AT["CASS"]] = 1.0
    branch.kmer_weights[0, AT["WWWW"]] = -4.0
    table = make_composition_table(make_model((SITE, AGE), branch), kmers)
    assert list(dict.fromkeys(table["output"])) == ["site:gut", "site:lung", "age"]
    found = row(table, "CASS", "site:lung")
    assert (found["effect"], found["mean_positive"], found["mean_negative"]) == (1.5, 1.0, pytest.approx(1 / 3))
    found = row(table, "WWWW", "site:gut")
    assert (found["direction"], found["mean_positive"], found["mean_negative"]) == ("down", 0.0, pytest.approx(1 / 3))
    found = row(table, "CASS", "age")  # 70 and 60 are above the median
    assert (found["effect"], found["mean_positive"], found["mean_negative"]) == (0.5, 1.0, 0.0)


def test_several_models_have_the_mean_in_common_units(kmers: RepertoireDataset) -> None:
    wide = Task("age", "age", "regression", mean=50.0, scale=30.0)
    one = make_model((AGE,), kmer_branch({"CASS": 2.0}), gain=3.0)
    other = make_model((wide,), kmer_branch({"CASS": 4.0, "WWWW": 1.0}))
    table = make_composition_table(Ensemble.of([one, other, make_model((AGE,))]), kmers)
    common = (10 + 30 + 10) / 3
    assert row(table, "CASS", "age")["effect"] == pytest.approx((6 * 10 + 4 * 30) / common / 3 / 2)
    assert row(table, "WWWW", "age")["effect"] == pytest.approx(30 / common / 3 / 4)


V_GENES = [["A"] * 6 + ["B"] * 2, ["A"] * 5 + ["B"] * 2 + [""], ["A"] * 2 + ["B"] * 6, ["A"] * 4 + ["B"] * 4]


@pytest.fixture
def genes(tmp_path: Path) -> RepertoireDataset:
    return write(tmp_path / "g.h5", [["CASSF"] * 8] * 4, SHEET, v=V_GENES)


def gene_branch(names: list[str], weights: list[float], **settings: bool) -> CompositionBranch:
    branch = CompositionBranch(1, {"v_call": names}, **settings)
    branch.get_buffer("v_call_weights")[0] = torch.tensor(weights)
    return branch


def test_genes_by_hand(genes: RepertoireDataset) -> None:
    table = make_composition_table(make_model((STATUS,), gene_branch(["A", "B", "new"], [2.0, 0.0, 0.0])), genes)
    logs = np.log(np.array([[6, 2, 0], [5, 2, 0], [2, 6, 0], [4, 4, 0]]) + 0.5)
    ratio = logs[:, 0] - logs.mean(axis=1)
    (found,) = table.to_dict("records")
    assert found == {
        "output": "status=ill", "direction": "up", "kind": "genes", "feature": "A",
        "effect": pytest.approx(2 * ratio.std()),
        "mean_positive": pytest.approx((6 / 8 + 5 / 7) / 2), "mean_negative": pytest.approx((2 / 8 + 4 / 8) / 2),
    }  # fmt: skip


def residue_branch(weights: dict[tuple[str, str], float], dataset: RepertoireDataset) -> CompositionBranch:
    """Return a branch that reads residues at positions by V gene, A, B or another, and expects those of a cohort."""
    branch = CompositionBranch(1, {"v_call": ["A", "B"]}, reads_residues=True)
    for (residue, gene), weight in weights.items():
        at = name_placed_residues().index(residue)
        branch.get_buffer("residue_weights")[0, ["A", "B", "other"].index(gene), at] = weight
    branch.expected_residues = ExpectedResidues.learn(count_placed_residues(dataset, branch.genes))
    return branch


def test_residues_by_hand(tmp_path: Path) -> None:
    """Both genes are in half of each repertoire; L at 106 is in 1, 1, 0 and 0 of two sequences with A."""
    junctions = [["CALF", "CAGF"], ["CALF", "CAGF"], ["CAGF", "CAGF"], ["CAGF", "CAGF"]]
    dataset = write(
        tmp_path / "r.h5", [[*two, "CALF", "CAGF"] for two in junctions], SHEET, v=[["A", "A", "B", "B"]] * 4
    )
    model = make_model((STATUS,), residue_branch({("L at 117", "A"): 8.0, ("L at 117", "B"): 2.0}, dataset))
    table = make_composition_table(model, dataset)
    assert set(table["feature"]) == {"L at 117 in A", "L at 117"}
    # with A: 1/2, 1/2, 0, 0 of the sequences with A; a quarter of all sequences is expected; standard deviation 1/8
    assert row(table, "L at 117 in A") == {
        "output": "status=ill", "direction": "up", "kind": "residues", "feature": "L at 117 in A",
        "effect": pytest.approx(8 / 8), "mean_positive": 0.5, "mean_negative": 0.0,
    }  # fmt: skip
    found = row(table, "L at 117")  # 2 sequences with A and 4 with B have it
    assert found["effect"] == pytest.approx((2 * 8 + 4 * 2) / 6 / 8)
    assert (found["mean_positive"], found["mean_negative"]) == (0.5, 0.25)


def test_pairs_of_genes_by_hand(tmp_path: Path) -> None:
    """Both genes are in half of each repertoire: A and J are in 2/4, 1/4, 1/4 and 1/4 of the sequences together."""
    v, j = [["A", "A", "B", "B"]] * 4, [["J", "J", "K", "K"], *[["J", "K", "J", "K"]] * 3]
    repertoires = [make_sequences(["CASSF"] * 4, v_call=own_v, j_call=own_j) for own_v, own_j in zip(v, j, strict=True)]
    write_repertoires(tmp_path / "p.h5", repertoires, SHEET)
    branch = CompositionBranch(1, {"v_call": ["A"], "j_call": ["J", "K"]}, reads_gene_pairs=True)
    branch.get_buffer("gene_pair_weights")[0, 0, 0] = 4.0
    table = make_composition_table(make_model((STATUS,), branch), open_dataset(tmp_path / "p.h5"))
    (found,) = table.to_dict("records")
    assert found == {
        "output": "status=ill", "direction": "up", "kind": "gene pairs", "feature": "A with J",
        "effect": pytest.approx(4 * np.std([1 / 4, 0, 0, 0])), "mean_positive": 0.375, "mean_negative": 0.25,
    }  # fmt: skip


def test_the_length_by_hand(tmp_path: Path) -> None:
    """Junctions have 4, 4, 5 and 5 residues; every residue has the weight 3, so the output moves by 3 for each one."""
    dataset = write(
        tmp_path / "r.h5", [["CAGF"], ["CALF"], ["CAGGF"], ["CAGLF"]], SHEET, v=[["A"], ["A"], ["B"], ["A"]]
    )
    every = {(residue, gene): 3.0 for residue in name_placed_residues() for gene in ("A", "B", "other")}
    table = make_composition_table(make_model((STATUS,), residue_branch(every, dataset)), dataset)
    deviation = np.array([4, 4, 5, 5]) - np.array([13 / 3, 13 / 3, 5, 13 / 3])  # from the mean with the V gene
    found = row(table, "junction length")
    assert found["effect"] == pytest.approx(3 * deviation.std())
    assert (found["mean_positive"], found["mean_negative"]) == (4.0, 5.0)


def test_means_in_a_v_gene_are_those_of_repertoires_that_have_it(tmp_path: Path) -> None:
    """L at 117 is in 1 of 1, 1 of 2, 0 of 0 and 0 of 0 sequences with A; the unknown gene is an other one."""
    junctions = [["CALF", "CALF"], ["CALF", "CAGF"], ["CALF", "CAGF"], ["CAGF", "CAGF"]]
    v = [["A", "B"], ["A", "A"], ["B", ""], ["B", ""]]
    dataset = write(tmp_path / "r.h5", junctions, SHEET, v=v)
    weights = {("L at 117", gene): 1.0 for gene in ("A", "B", "other")}
    table = make_composition_table(make_model((STATUS,), residue_branch(weights, dataset)), dataset)
    of_a, of_b = row(table, "L at 117 in A"), row(table, "L at 117 in B")
    assert (of_a["mean_positive"], str(of_a["mean_negative"])) == (0.75, "nan")
    assert (of_b["mean_positive"], of_b["mean_negative"]) == (1.0, 0.5)
    assert "L at 117 in other V genes" not in set(table["feature"])  # both are G, as expected


def test_without_v_genes_no_residue_is_in_one(tmp_path: Path) -> None:
    dataset = write(tmp_path / "r.h5", [["CALF"], ["CAGF"], ["CALF"], ["CAGF"]], SHEET)
    branch = CompositionBranch(1, {}, reads_residues=True)
    branch.get_buffer("residue_weights")[0, 0, name_placed_residues().index("L at 117")] = 2.0
    branch.expected_residues = ExpectedResidues.learn(count_placed_residues(dataset, branch.genes))
    table = make_composition_table(make_model((STATUS,), branch), dataset)
    assert list(table["feature"]) == ["L at 117"]
    assert table["effect"][0] == pytest.approx(2 * 0.5)


@pytest.fixture
def families(tmp_path: Path) -> RepertoireDataset:
    """Four repertoires, each with a family of two of gene A, and one or no sequence of gene B and its k-mer."""
    related, other = ["CARDYYGSSW", "CARDYYGSSF"], ["CAKWWWHHHW"]
    texts = [related + other] * 2 + [related] * 2
    repertoires = [make_sequences(own, v_call=["A", "A", "B"][: len(own)], j_call=["J"] * len(own)) for own in texts]
    return write_repertoires(tmp_path / "f.h5", repertoires, SHEET)


def test_means_of_families_by_hand(families: RepertoireDataset) -> None:
    branch = gene_branch(["A", "B"], [2.0, 0.0], counts_families=True)
    branch.kmer_weights[0, AT["CARD"]] = 8.0
    table = make_composition_table(make_model((STATUS,), branch), families)
    found = row(table, "A")
    logs = np.log(np.array([[1, 1], [1, 1], [1, 0], [1, 0]]) + 0.5)
    assert found["effect"] == pytest.approx(2 * (logs[:, 0] - logs.mean(axis=1)).std())
    assert (found["mean_positive"], found["mean_negative"]) == (0.5, 1.0)
    found = row(table, "CARD")  # in 1/2, 1/2, 1 and 1 of the families
    assert (found["effect"], found["mean_positive"], found["mean_negative"]) == pytest.approx((8 / 4, 0.5, 1))


def test_models_of_sequences_and_of_families_together(families: RepertoireDataset) -> None:
    branches = [CompositionBranch(1, counts_families=of_families) for of_families in (False, True)]
    for branch in branches:
        branch.kmer_weights[0, AT["CARD"]] = 8.0
    models = [make_model((STATUS,), branch) for branch in branches]
    alone = [row(make_composition_table(model, families), "CARD") for model in models]
    assert [found["mean_positive"] for found in alone] == pytest.approx([2 / 3, 1 / 2])
    together = row(make_composition_table(Ensemble.of(models), families), "CARD")
    assert together["effect"] == pytest.approx((alone[0]["effect"] + alone[1]["effect"]) / 2)


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_means_are_of_families_if_any_model_counts_them(families: RepertoireDataset, order: tuple[bool, bool]) -> None:
    branches = [gene_branch(["A", "B"], [2.0, 0.0], counts_families=of_families) for of_families in order]
    together = Ensemble.of([make_model((STATUS,), branch) for branch in branches])
    found = row(make_composition_table(together, families), "A")
    assert (found["mean_positive"], found["mean_negative"]) == (0.5, 1.0)


def test_models_that_know_other_genes(genes: RepertoireDataset) -> None:
    """The log-ratios of a model depend on the genes that it knows, so each model has its own effect."""
    few, many = gene_branch(["A", "B"], [2.0, 0.0]), gene_branch(["A", "B", "new"], [1.0, -1.0, 0.0])
    alone = [make_composition_table(make_model((STATUS,), each), genes) for each in (few, many)]
    both = make_composition_table(Ensemble.of([make_model((STATUS,), each) for each in (few, many)]), genes)
    effect = sum(row(table, "A")["effect"] for table in alone) / 2
    assert row(both, "A")["effect"] == pytest.approx(effect)
    assert row(both, "B") == {**row(alone[1], "B"), "effect": pytest.approx(row(alone[1], "B")["effect"] / 2)}


def test_counts_by_hand(tmp_path: Path) -> None:
    """The most abundant half has 3/4 and 2/3 of the counts; the counts of the third repertoire are unknown."""
    counts = [[6, 2], [2, 1], [1, 1], [3, 1]]
    dataset = write(tmp_path / "c.h5", [["CASSF", "CASF"]] * 4, SHEET, counts=counts)
    branch = CompositionBranch(1, reads_abundances=True)
    branch.get_buffer("abundance_weights")[0, 0] = -3.0
    table = make_composition_table(make_model((STATUS,), branch), dataset)
    assert row(table, "share of the counts of the most abundant half") == {
        "output": "status=ill", "direction": "down", "kind": "counts",
        "feature": "share of the counts of the most abundant half",
        "effect": pytest.approx(-3 * np.log([3 / 4, 2 / 3, 3 / 4]).std()),
        "mean_positive": pytest.approx((3 / 4 + 2 / 3) / 2), "mean_negative": pytest.approx(3 / 4),
    }  # fmt: skip
    without = write(tmp_path / "w.h5", [["CASSF", "CASF"]] * 4, SHEET)
    assert make_composition_table(make_model((STATUS,), branch), without).empty


def test_clones_per_count_of_models_with_different_depths(tmp_path: Path) -> None:
    """Each depth has a row; the shares of the most abundant sequences are the same feature in both models."""
    counts = [[6, 2], [2, 2], [7, 1], [3, 1]]
    dataset = write(tmp_path / "c.h5", [["CASSF", "CASF"]] * 4, SHEET, counts=counts)
    branches = [CompositionBranch(1, reads_abundances=True, richness_depth=depth) for depth in (1, 2, 4)]
    for branch in branches:
        branch.get_buffer("abundance_weights")[0, [0, 3]] = 3.0
    table = make_composition_table(Ensemble.of([make_model((STATUS,), branch) for branch in branches]), dataset)
    assert set(table["feature"]) == {
        "share of the counts of the most abundant half",
        "clones per count, among 2 counts",  # one among 1 count is 1 everywhere
        "clones per count, among 4 counts",
    }
    shares = np.array([6 / 8, 2 / 4, 7 / 8, 3 / 4])
    of_half = row(table, "share of the counts of the most abundant half")
    assert of_half["effect"] == pytest.approx(3 * np.log(shares).std())
    n_clones = np.array([1 + 2 * 12 / 56, 1 + 2 * 4 / 12, 1 + 2 * 7 / 56, 1 + 2 * 3 / 12])  # 1 + P(different)
    found = row(table, "clones per count, among 2 counts")
    assert found["effect"] == pytest.approx(np.log(n_clones).std())  # a third of 3
    assert found["mean_positive"] == pytest.approx(n_clones[:2].mean() / 2)


def test_expanded_clones_by_hand(tmp_path: Path) -> None:
    """The first sequence is the more abundant one in two repertoires, the second one in the others."""
    counts = [[6, 2], [2, 1], [1, 2], [1, 3]]
    dataset = write(tmp_path / "e.h5", [["CAS", "HHH"]] * 4, SHEET, counts=counts, v=[["A", "B"]] * 4)
    branch = gene_branch(["A", "B"], [0.0, 0.0], reads_expansion=True)
    branch.get_buffer("v_call_expansion_weights")[0, 1] = 5.0
    at = {name: index for index, name in enumerate(list_kmers(3))}
    branch.get_buffer("expansion_weights")[0, at["CAS"]] = 4.0
    high, low = compute_expansion_scores(np.array([2, 1], np.uint32)) / 2
    table = make_composition_table(make_model((STATUS,), branch), dataset)
    assert list(table["feature"]) == ["B", "C", "CA", "CAS"]
    spread = np.array([high, high, low, low]).std()
    found = row(table, "CAS")
    assert found["kind"] == "k-mers weighted by counts"
    assert [found["effect"], found["mean_positive"], found["mean_negative"]] == pytest.approx([4 * spread, high, low])
    found = row(table, "B")
    assert found["kind"] == "genes weighted by counts"
    assert [found["effect"], found["mean_positive"], found["mean_negative"]] == pytest.approx([5 * spread, low, high])


def test_only_repertoires_with_sequences_and_a_label_count(tmp_path: Path) -> None:
    sheet = pd.concat([SHEET, pd.DataFrame({"status": ["ill", None]})], ignore_index=True)
    repertoires = [["CASS", "CASS"], ["CASS", "CASS"], ["WWWW", "HHH"], ["WWWW", "HHH"], [], ["HHHH"]]
    dataset = write(tmp_path / "k.h5", repertoires, sheet)
    model = make_model((STATUS,), kmer_branch({"CASS": 3.0}))
    found = row(make_composition_table(model, dataset), "CASS")
    assert found["effect"] == pytest.approx(3 * np.array([1, 1, 0, 0, 0]).std())  # that without a label also varies
    assert (found["mean_positive"], found["mean_negative"]) == (1.0, 0.0)
    found = row(make_composition_table(model, dataset[[0, 5]]), "CASS")
    assert found["mean_positive"] == 1.0
    assert np.isnan(found["mean_negative"])


def test_the_table_may_be_empty(kmers: RepertoireDataset) -> None:
    columns = ["output", "direction", "kind", "feature", "effect", "mean_positive", "mean_negative"]
    models = [
        make_model((STATUS,)),
        make_model((STATUS,), Composition("A", [1.0])),
        make_model((STATUS,), CompositionBranch(1)),
        make_model((STATUS,), kmer_branch({"CASS": 1.0}), gain=0.0),
    ]
    for model in models:
        table = make_composition_table(model, kmers)
        assert table.empty
        assert list(table) == columns
    model = make_model((STATUS,), kmer_branch({"CASS": 1.0}))
    assert make_composition_table(model, kmers[:1]).empty  # nothing differs
    assert make_composition_table(model, kmers[:0]).empty


def test_a_cohort_without_the_genes_is_refused(kmers: RepertoireDataset, genes: RepertoireDataset) -> None:
    with pytest.raises(InputError, match=r"k\.h5: has no v_call$"):
        make_composition_table(make_model((STATUS,), gene_branch(["A"], [1.0])), kmers)
    with pytest.raises(InputError, match=r"g\.h5: v_call: expected genes named as in training, such as 'TRBV1'"):
        make_composition_table(make_model((STATUS,), gene_branch(["TRBV1"], [1.0])), genes)


@pytest.mark.parametrize("task", [STATUS, pytest.param(AGE, marks=pytest.mark.slow)], ids=["class", "number"])
def test_a_fitted_branch_names_the_gene_that_differs(tmp_path: Path, task: Task) -> None:
    """Of 20 V genes, the usage of one differs: half as frequent again in the ill, who are also older."""
    rng, names = np.random.default_rng(0), [f"TRBV{i}" for i in range(1, 21)]
    n, v = 80, []
    for number in range(n):
        usage = np.full(20, 0.05)
        usage[10] *= 1.5 if number % 2 else 1.0
        v.append(rng.choice(names, 2000, p=usage / usage.sum()).tolist())
    sheet = pd.DataFrame(
        {"status": ["well", "ill"] * (n // 2), "age": [40 + rng.normal(), 60 + rng.normal()] * (n // 2)}
    )
    dataset = write(tmp_path / "v.h5", [random_sequences(rng, 2000, low=12, high=15) for _ in range(n)], sheet, v=v)
    labels = make_model((task,)).encode_labels(dataset)
    fitted = fit_composition(TrainingCohort(dataset, labels, (task,)))
    assert fitted is not None
    table = make_composition_table(make_model((task,), fitted.branch), dataset)
    first = table.iloc[0]
    assert (first["feature"], first["direction"], first["kind"]) == ("TRBV11", "up", "genes")
    assert first["mean_positive"] == pytest.approx(1.5 / 20.5, abs=0.002)
    assert first["mean_negative"] == pytest.approx(0.05, abs=0.002)


def test_a_file_is_read_again(kmers: RepertoireDataset, tmp_path: Path) -> None:
    table = make_composition_table(make_model((STATUS,), kmer_branch({"CASS": 3.0})), kmers[:3])
    file = tmp_path / "composition.tsv"
    file.write_text(table.to_csv(sep="\t", index=False))
    pd.testing.assert_frame_equal(read_composition(file), table, check_dtype=False)
    file.write_text(table.assign(direction="left").to_csv(sep="\t", index=False))
    with pytest.raises(InputError, match="expected one of up, down, found 'left'"):
        read_composition(file)


def test_kmers_that_overlap_a_larger_one_are_left_out() -> None:
    """LDR and DRWF have two neighbouring residues of DRW, LD has not; D and DR are parts of it; GDR is a gene here."""
    effects = {"DRW": 3.0, "DR": -2.9, "LDR": 2.0, "LD": -1.9, "D": 1.8, "DRWF": 1.7, "GDR": 1.6, "K": 1.5, "AK": 1.4}
    kinds = ["genes" if name == "GDR" else "k-mers" for name in effects]
    table = pd.DataFrame({"feature": list(effects), "effect": list(effects.values()), "kind": kinds})
    shuffled = table.sample(frac=1, random_state=0)
    assert list_distinct_features(shuffled, 3) == ["DRW", "LD", "GDR"]
    assert list_distinct_features(shuffled, 9) == ["DRW", "LD", "GDR", "K"]


@pytest.mark.slow
def test_a_run_keeps_the_table_and_train_names_its_largest_effects(
    cohort: RepertoireDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["n_updates=10", "evaluate_every=10", "n_kernels=8", "kernel_size=4", "n_sequences=40", "clones=false"]
    run = train_run(
        cohort.container.path, tmp_path / "run", targets="age:regression", config=load_config("deeprc", settings)
    )
    learned = np.isin(cohort.repertoire_ids.astype(str), run.splits["train"] + run.splits["validation"])
    table = make_composition_table(run.model, cohort[np.flatnonzero(learned)], top=200)
    assert len(table) > 5
    pd.testing.assert_frame_equal(run.composition(), table, check_dtype=False)
    import_module("deeprc.cli.train")._show_results(run.path)
    names = ", ".join(list_distinct_features(table, 5))
    file = run.path / "composition.tsv"
    expected = f"largest effects of the composition (no overlapping k-mers): {names}, see {file}\n"
    assert expected in capsys.readouterr().out
