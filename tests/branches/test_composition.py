"""The branch of composition: scores and contributions by hand, files, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch

from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_description import NOISE_SEQUENCES
from deeprc.branches.fit import attach_described_branches, describe_branches
from deeprc.branches.linear_function import LinearFunction
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones.families import compute_family_weights, find_families
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.expansion import compute_expansion_scores
from deeprc.datasets.kmers import count_kmers, list_kmers
from deeprc.datasets.parts import RepertoireInMemory
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError
from deeprc.nn.branches import Branches
from deeprc.nn.network import DeepRC
from tests.conftest import random_sequences

GENES = {"v_call": ["TRBV1", "TRBV2", "TRBV9"], "j_call": ["TRBJ1", "TRBJ2"]}


def repertoire(sequences: Sequences) -> Repertoire:
    made = RepertoireInMemory(Path("cohort.h5"), sequences, {})
    return Repertoire("r", 0, len(sequences), made, {})


def drawn(n: int, seed: int = 0) -> Sequences:
    """Draw sequences with genes, some of which are unknown or new."""
    rng = np.random.default_rng(seed)
    v_call = Categorical(rng.integers(0, 4, n).astype(np.uint16), ("", "TRBV2", "TRBV1", "TRBV5"))
    j_call = Categorical(rng.integers(0, 3, n).astype(np.uint16), ("TRBJ2", "", "TRBJ1"))
    return Sequences.encode(random_sequences(rng, n, low=1)).with_genes({"v_call": v_call, "j_call": j_call})


def random_branch(n_outputs: int = 2, genes: dict[str, list[str]] | None = None, seed: int = 1) -> CompositionBranch:
    branch = CompositionBranch(n_outputs, GENES if genes is None else genes)
    generator = torch.Generator().manual_seed(seed)
    for buffer in branch.buffers():
        buffer.normal_(generator=generator)
    return branch


def test_a_score_by_hand() -> None:
    branch = CompositionBranch(1)
    at = {name: index for index, name in enumerate(list_kmers(4))}
    branch.kmer_weights[0, at["CASS"]] = 2
    branch.kmer_weights[0, at["ASSL"]] = 5
    branch.kmer_constants[:] = 1.5
    sequences = Sequences.encode(["CASSL", "CAS", "CASSCASS", "WWWW"])
    expected = np.array([2 + 5 - 1.5, -1.5, 2 * 2 - 1.5, -1.5]) / (4 + NOISE_SEQUENCES)
    np.testing.assert_allclose(branch.compute_contributions(repertoire(sequences))[:, 0], expected, rtol=1e-14)
    assert branch.score(repertoire(sequences)) == pytest.approx(expected.sum(), rel=1e-14)


def test_genes_by_hand() -> None:
    branch = CompositionBranch(1, {"v_call": ["A", "B"]})
    branch.get_buffer("v_call_weights")[:] = torch.tensor([[1.0, 10.0]])
    branch.get_buffer("v_call_centre")[:] = torch.tensor([0.25, -0.25])
    calls = Categorical(np.array([0, 0, 1, 2], np.uint16), ("A", "", "new"))
    sequences = Sequences.encode(["CAS"] * 4).with_genes({"v_call": calls})
    log_ratio = np.log(2.5 / 0.5) / 2  # two of A, none of B
    of_a, of_b = log_ratio - 0.25, 10 * (-log_ratio + 0.25)
    expected = np.array([of_a / 2 + of_b / 4, of_a / 2 + of_b / 4, of_b / 4, of_b / 4]) * 4 / (4 + NOISE_SEQUENCES)
    np.testing.assert_allclose(branch.compute_contributions(repertoire(sequences))[:, 0], expected, rtol=1e-14)


def test_contributions_sum_to_the_linear_function_of_the_features() -> None:
    sequences, branch = drawn(3000), random_branch()
    n = len(sequences)
    frequencies = count_kmers(sequences.residues, sequences.lengths) / n
    expected = branch.kmer_weights.double().numpy() @ frequencies - branch.kmer_constants.numpy()
    for field, names in GENES.items():
        found = sequences.genes[field].names()
        logarithms = np.log(np.array([(found == name).sum() for name in names]) + 0.5)
        ratios = logarithms - logarithms.mean() - branch.get_buffer(f"{field}_centre").numpy()
        expected += branch.get_buffer(f"{field}_weights").numpy() @ ratios
    contributions = branch.compute_contributions(repertoire(sequences))
    assert contributions.shape == (n, 2)
    np.testing.assert_allclose(contributions.sum(axis=0), expected * n / (n + NOISE_SEQUENCES), rtol=1e-11)
    np.testing.assert_array_equal(branch.score(repertoire(sequences)), contributions.sum(axis=0))


def draw_families(n_families: int = 300, seed: int = 0) -> Sequences:
    """Draw families of one to five sequences, with genes and counts."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, n_families)
    ancestors = Sequences.encode(random_sequences(rng, n_families, low=10)).take(
        np.repeat(np.arange(n_families), sizes)
    )
    residues = ancestors.residues.copy()
    residues[ancestors.offsets[1:] - 2] = rng.integers(0, 20, len(ancestors))  # one substitution
    genes = {
        "v_call": Categorical(
            np.repeat(rng.integers(0, 4, n_families), sizes).astype(np.uint16), ("", *GENES["v_call"])
        ),
        "j_call": Categorical(np.repeat(rng.integers(0, 2, n_families), sizes).astype(np.uint16), (*GENES["j_call"],)),
    }
    counts = rng.integers(1, 50, len(ancestors)).astype(np.uint32)
    return Sequences(residues, ancestors.offsets, counts).with_genes(genes)


def test_families_that_count_once_sum_to_the_linear_function_of_their_features() -> None:
    sequences = draw_families()
    drawn_repertoire = repertoire(sequences)
    branch = CompositionBranch(2, GENES, reads_expansion=True, counts_families=True)
    generator = torch.Generator().manual_seed(1)
    for buffer in branch.buffers():
        buffer.normal_(generator=generator)
    weights = compute_family_weights(drawn_repertoire)
    n, n_families = len(sequences), len(np.unique(find_families(sequences)))
    assert n_families < 0.5 * n
    kmers = np.zeros(20**4)
    for row, weight in enumerate(weights):
        kmers += weight * count_kmers(sequences.take(np.array([row])).residues, sequences.lengths[row : row + 1])
    expected = branch.kmer_weights.double().numpy() @ (kmers / n_families) - branch.kmer_constants.numpy()
    scores = compute_expansion_scores(sequences.counts)
    for field, names in GENES.items():
        is_gene = sequences.genes[field].names()[:, None] == np.array(names)
        logarithms = np.log(weights @ is_gene + 0.5)
        ratios = logarithms - logarithms.mean() - branch.get_buffer(f"{field}_centre").numpy()
        expected += branch.get_buffer(f"{field}_weights").numpy() @ ratios
        expected += branch.get_buffer(f"{field}_expansion_weights").numpy() @ (scores @ is_gene / n)
    kmers_of_expanded = np.zeros(20**3)
    for row, score in enumerate(scores):
        residues = sequences.take(np.array([row])).residues
        kmers_of_expanded += score * count_kmers(residues, sequences.lengths[row : row + 1], (0, 1, 2))
    expected += branch.get_buffer("expansion_weights").double().numpy() @ (kmers_of_expanded / n)
    expected -= branch.get_buffer("expansion_constants").numpy()
    contributions = branch.compute_contributions(drawn_repertoire)
    expected *= n_families / (n_families + NOISE_SEQUENCES)
    np.testing.assert_allclose(contributions.sum(axis=0), expected, rtol=1e-9)


def test_a_copy_with_a_substitution_changes_no_gene_usage_of_families() -> None:
    """A family's second sequence takes half of the part of the first; other sequences keep theirs."""
    branch = CompositionBranch(1, GENES, counts_families=True)
    branch.get_buffer("v_call_weights")[:] = torch.tensor([[1.0, -2.0, 3.0]])
    sequences = draw_families().take(np.arange(200))
    substituted = Sequences.concatenate([sequences, sequences.take(np.array([7]))])
    before = branch.compute_contributions(repertoire(sequences))[:, 0]
    after = branch.compute_contributions(repertoire(substituted))[:, 0]
    families = find_families(sequences)
    is_related = families == families[7]
    np.testing.assert_allclose(after[:200][~is_related], before[~is_related], rtol=1e-12)
    assert after[:200][is_related].sum() + after[200] == pytest.approx(before[is_related].sum(), rel=1e-12)


def test_families_need_both_genes() -> None:
    branch, sequences = CompositionBranch(1, counts_families=True), draw_families()
    without = sequences.with_genes({"v_call": sequences.genes["v_call"]})
    with pytest.raises(InputError, match=r"^cohort\.h5: has no j_call, which is needed to find clonal families$"):
        branch.score(repertoire(without))


def test_order_and_threads_change_nothing() -> None:
    sequences, branch = drawn(5000), random_branch()
    order = np.random.default_rng(3).permutation(len(sequences))
    numba.set_num_threads(1)
    alone = branch.compute_contributions(repertoire(sequences))
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    np.testing.assert_array_equal(branch.compute_contributions(repertoire(sequences)), alone)
    np.testing.assert_array_equal(branch.compute_contributions(repertoire(sequences.take(order))), alone[order])


def test_a_repertoire_without_sequences_has_no_score() -> None:
    branch = random_branch(n_outputs=3)
    assert branch.compute_contributions(repertoire(drawn(0))).shape == (0, 3)
    assert branch.score(repertoire(drawn(0))).tolist() == [0, 0, 0]


def test_a_container_without_the_genes_is_refused() -> None:
    sequences = drawn(5)
    without = sequences.with_genes({"v_call": sequences.genes["v_call"]})
    with pytest.raises(InputError, match=r"^cohort\.h5: has no j_call, which the branch `composition`"):
        random_branch().score(repertoire(without))
    only_kmers = random_branch(genes={})
    assert np.isfinite(only_kmers.score(repertoire(sequences.with_genes({})))).all()


def test_a_description_and_the_buffers_rebuild_a_branch() -> None:
    branch, sequences = random_branch(), repertoire(drawn(50))
    network = DeepRC(n_outputs=2)
    attach_described_branches(network, (), describe_branches(Branches([branch], 2)), "model")
    assert network.branches is not None
    (rebuilt,) = network.branches
    rebuilt.load_state_dict(branch.state_dict())
    rebuilt.check("model")
    np.testing.assert_array_equal(rebuilt.score(sequences), branch.score(sequences))
    assert {buffer.dtype for buffer in branch.buffers()} <= {torch.float32, torch.float64, torch.int64}


def test_a_linear_function_has_all_weights_of_an_output() -> None:
    branch = random_branch()
    function = branch.get_linear_function(1)
    np.testing.assert_array_equal(function.kmers, branch.kmer_weights[1].double().numpy())
    genes = [branch.get_buffer(f"{field}_weights")[1].numpy() for field in ("v_call", "j_call")]
    np.testing.assert_array_equal(function.genes, np.concatenate(genes))
    assert [len(each) for each in (function.abundances, function.expansion, function.gene_expansion)] == [3, 8000, 5]
    assert not any(each.any() for each in (function.abundances, function.expansion, function.gene_expansion))
    assert len(function.residues) == 4 * 280
    assert len(function.gene_pairs) == 4 * 3
    assert not function.residues.any()
    assert not function.gene_pairs.any()
    branch = CompositionBranch(
        1, {"v_call": ["A"]}, reads_abundances=True, reads_expansion=True, reads_residues=True, reads_gene_pairs=True
    )
    for name, buffer in branch.named_buffers():
        buffer.fill_(len(name))
    function = branch.get_linear_function(0)
    assert set(function.abundances) == {len("abundance_weights")}
    assert set(function.expansion) == {len("expansion_weights")}
    assert function.gene_expansion.tolist() == [len("v_call_expansion_weights")]
    assert function.residues.tolist() == [len("residue_weights")] * 2 * 280


def test_a_linear_function_that_was_set_is_that_of_the_branch() -> None:
    branch = CompositionBranch(
        2, GENES, reads_abundances=True, reads_expansion=True, reads_residues=True, reads_gene_pairs=True
    )
    rng = np.random.default_rng(0)
    sizes = {
        "kmers": 160_000, "genes": 5, "abundances": 3, "expansion": 8000, "gene_expansion": 5, "residues": 4 * 280,
        "gene_pairs": 4 * 3,
    }  # fmt: skip
    weights, centre = (
        LinearFunction(**{kind: rng.normal(size=n).astype(np.float32).astype(np.float64) for kind, n in sizes.items()})
        for _ in range(2)
    )
    branch.set_linear_function(1, weights, centre)
    for kind in sizes:
        np.testing.assert_array_equal(getattr(branch.get_linear_function(1), kind), getattr(weights, kind))
        assert not getattr(branch.get_linear_function(0), kind).any()
    assert branch.kmer_constants.tolist() == [0, pytest.approx(weights.kmers @ centre.kmers, rel=1e-12)]
    of_expansion = weights.expansion @ centre.expansion + weights.gene_expansion @ centre.gene_expansion
    assert branch.get_buffer("expansion_constants").tolist() == [0, pytest.approx(of_expansion, rel=1e-12)]
    of_residues = pytest.approx(weights.residues @ centre.residues, rel=1e-12)
    assert branch.get_buffer("residue_constants").tolist() == [0, of_residues]
    of_pairs = pytest.approx(weights.gene_pairs @ centre.gene_pairs, rel=1e-12)
    assert branch.get_buffer("gene_pair_constants").tolist() == [0, of_pairs]
    np.testing.assert_array_equal(branch.get_buffer("j_call_centre"), centre.genes[3:])
    np.testing.assert_array_equal(branch.get_buffer("abundance_centre"), centre.abundances)


def test_a_description_says_whether_families_count_once() -> None:
    branch = CompositionBranch(1, counts_families=True)
    assert CompositionBranch.from_description(branch.describe(), 1, "model").counts_families
    assert not CompositionBranch.from_description(CompositionBranch(1).describe(), 1, "model").counts_families
    assert not CompositionBranch.from_description({"v_call": [], "j_call": []}, 1, "model").counts_families  # older


def test_features_of_families_are_named() -> None:
    branch = CompositionBranch(1, GENES, reads_abundances=True, counts_families=True)
    for buffer in branch.buffers():
        buffer.fill_(1)
    assert branch.features == ["k-mers of clonal families", "genes of clonal families", "counts"]


def test_the_largest_depth_can_be_read() -> None:
    largest = {"v_call": [], "j_call": [], "abundances": True, "richness_depth": 2**63 - 1}
    branch = CompositionBranch.from_description(largest, 1, "model")
    branch.get_buffer("abundance_weights")[:] = 1
    sequences = replace(Sequences.encode(["CAS", "CAT", "CAV"]), counts=np.array([1, 2**32 - 1, 2], np.uint32))
    assert np.isfinite(branch.score(repertoire(sequences))).all()


def test_doubt_is_stored() -> None:
    doubtful = CompositionBranch(1, is_doubtful=True)
    assert CompositionBranch.from_description(doubtful.describe(), 1, "model").is_doubtful
    assert not CompositionBranch.from_description(CompositionBranch(1).describe(), 1, "model").is_doubtful
    assert not CompositionBranch.from_description({"v_call": [], "j_call": []}, 1, "model").is_doubtful  # older


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ([], "model: expected names and values"),
        ({"v_call": []}, "model: j_call: is missing"),
        ({"v_call": [], "j_call": [], "d_call": []}, "model: no key 'd_call' is known here"),
        ({"v_call": "TRBV1", "j_call": []}, "model: v_call: expected a list"),
        ({"v_call": [1], "j_call": []}, r"model: v_call\[0\]: expected text"),
        ({"v_call": ["A", "B", "A"], "j_call": []}, "model: v_call: expected different names"),
        ({"v_call": [], "j_call": [""]}, "model: j_call: expected different names"),
        ({"v_call": [], "j_call": [], "richness_depth": -1}, "model: richness_depth: expected a number from 0"),
        ({"v_call": [], "j_call": [], "richness_depth": 10**400}, "model: richness_depth: expected a whole number"),
        ({"v_call": [], "j_call": [], "richness_depth": 2.5}, "model: richness_depth: expected a whole number"),
        ({"v_call": [str(i) for i in range(20_001)], "j_call": []}, "model: v_call: expected at most 20,000 names"),
    ],
)
def test_a_bad_description_is_refused(description: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}") as caught:
        CompositionBranch.from_description(description, 1, "model")
    assert "\n" not in str(caught.value)


def test_numbers_that_are_not_finite_are_refused() -> None:
    branch = random_branch()
    branch.check("model")
    branch.get_buffer("j_call_weights")[1, 0] = torch.inf
    with pytest.raises(InputError, match=r"^model: j_call_weights: expected finite numbers$"):
        branch.check("model")
