"""What branches add to the outputs of a network, and what each sequence contributes through them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.nn.batch import Collator
from deeprc.nn.branches import Branch, BranchScores
from deeprc.nn.contributions import score_sequences
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.nn.sequence_scores import UnitConversion, combine_scores
from tests.conftest import write_cohort
from tests.nn.share_branch import ShareBranch
from tests.toys.gene_repertoires import write_genes

LETTER, OFFSET, GAINS = "W", [0.25, -1.0], [2.0, 0.5]


@pytest.fixture
def few(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Four repertoires with a W in 1 of 4, 2 of 2, 0 of 3 and none of no sequences."""
    repertoires = [["CASSW", "CASSF", "CASRF", "CAAAF"], ["WWWW", "CAWF"], ["CASSF", "CATTF", "CVVVF"], []]
    path = tmp_path_factory.mktemp("few") / "few.h5"
    return write_cohort(path, repertoires, pd.DataFrame({"status": ["a", "b", "a", "b"]}))


def network_with(branches: list[Branch], n_outputs: int = 2) -> DeepRC:
    torch.manual_seed(0)
    network = DeepRC(n_outputs=n_outputs, n_kernels=4, kernel_size=3).eval()
    network.attach_branches(branches)
    if network.branches is not None:
        with torch.no_grad():
            network.branches.gains.copy_(torch.tensor([GAINS]))
    return network


def inference_of(network: DeepRC, dataset: RepertoireDataset) -> Inference:
    scores = None if network.branches is None else BranchScores(network.branches, dataset)
    return Inference(network, Collator(dataset, "none", branches=scores))


def test_gains_times_scores_are_added_to_the_outputs(few: RepertoireDataset) -> None:
    shares = np.array([0.25, 1.0, 0.0])
    without = inference_of(network_with([]), few).compute_outputs().numpy()
    found = inference_of(network_with([ShareBranch(LETTER, OFFSET)]), few).compute_outputs().numpy()
    expected = (shares[:, None] - OFFSET) * GAINS
    np.testing.assert_allclose((found - without)[:3], expected, atol=1e-6)
    np.testing.assert_allclose(found[3], without[3])  # no sequence says nothing


def test_batches_carry_the_scores_and_an_update_reads_them(few: RepertoireDataset) -> None:
    network = network_with([ShareBranch(LETTER, OFFSET)])
    inference = inference_of(network, few)
    batch = inference.collator.sample(np.array([1, 0]), 100, np.random.default_rng(0))
    assert batch.branch_scores is not None
    assert batch.branch_scores.tolist() == [[[0.75, 2.0]], [[0.0, 1.25]]]
    torch.testing.assert_close(network(batch), inference.compute_outputs([1, 0]), atol=1e-5, rtol=0)
    network(batch).sum().backward()
    assert network.branches is not None
    assert network.branches.gains.grad is not None
    assert network.branches.gains.grad.tolist() == [[0.75, 3.25]]
    assert [name for name, _ in network.named_parameters() if "branches" in name] == ["branches.gains"]


def test_a_batch_without_scores_is_refused(few: RepertoireDataset) -> None:
    network = network_with([ShareBranch(LETTER, OFFSET)])
    with pytest.raises(ValueError, match="branches: expected batches"):
        network(Collator(few, "none").sample(np.array([0]), 10, np.random.default_rng(0)))


def test_repertoires_that_branches_learned_from_keep_their_cross_fitted_scores(few: RepertoireDataset) -> None:
    """The rest is shared by all sequences: of the second repertoire, (known - what its two sequences add) / 2 each."""
    network = network_with([])
    learned = few[[1, 2]]
    network.attach_branches([ShareBranch(LETTER, OFFSET)], identify_repertoires(learned))
    assert network.branches is not None
    network.branches.store_known_scores(learned, np.array([[[4.0, 5.0]], [[-1.0, 0.5]]]))
    inference = inference_of(network, few)
    assert inference.take_branch_scores(1).tolist() == [[[4.0, 5.0]]]  # type: ignore[union-attr]
    assert inference.take_branch_scores(2).tolist() == [[[-1.0, 0.5]]]  # type: ignore[union-attr]
    assert inference.take_branch_scores(0).tolist() == [[[0.0, 1.25]]]  # type: ignore[union-attr]
    through = score_sequences(inference, 1).beside_attention["composition"]
    np.testing.assert_allclose(through, [[2.0, 2.5], [2.0, 2.5]])  # both hold the residue
    first = score_sequences(inference, 0).beside_attention["composition"]
    np.testing.assert_allclose(first.sum(axis=0), [0.0, 1.25])


def test_repertoires_that_differ_in_genes_alone_keep_their_own_scores(tmp_path: Path) -> None:
    """The first two differ in the second V gene; the third has the sequences of the fourth, and the same genes."""
    repertoires = [["CASSW", "CASSF"]] * 2 + [["CAWF"]] * 2 + [["CASSF"]]
    dataset = write_genes(tmp_path / "genes.h5", repertoires, [["V2", "V3"], ["V2", "V5"], ["V2"], ["V2"], ["V9"]])
    identities = sorted(set(identify_repertoires(dataset)))
    assert len(identities) == 4
    network = network_with([])
    network.attach_branches([ShareBranch(LETTER, OFFSET)], identities)
    assert network.branches is not None
    scores = np.arange(5.0)[:, None, None] + [[[0.0, 0.5]]]
    scores[3] = scores[2]
    network.branches.store_known_scores(dataset, scores)
    np.testing.assert_array_equal([network.branches.score(repertoire) for repertoire in dataset], scores)
    bare = write_genes(tmp_path / "bare.h5", repertoires, None)
    assert network.branches.score(bare[4]).tolist() == [[4.0, 4.5]]  # known without its gene
    assert network.branches.score(bare[0]).tolist() == [[0.25, 1.5]]  # one of two, so it counts as new
    others = write_genes(tmp_path / "others.h5", repertoires, [["V7", "V7"], ["V3", "V2"], ["V7"], ["V7"], ["V7"]])
    (branch,) = network.branches
    for repertoire in others:  # new ones
        np.testing.assert_array_equal(network.branches.score(repertoire), [branch.score(repertoire)])


def test_contributions_through_branches_sum_to_what_they_add(few: RepertoireDataset) -> None:
    network = network_with([ShareBranch(LETTER, OFFSET)])
    inference = inference_of(network, few)
    for position in range(3):
        scores = score_sequences(inference, position)
        np.testing.assert_allclose(scores.contributions.sum(axis=0), scores.outputs, atol=1e-6)
        np.testing.assert_allclose(scores.outputs, inference.compute_outputs([position])[0].numpy(), atol=1e-5)
    first = score_sequences(inference, 0)
    expected = (np.array([[1.0], [0.0], [0.0], [0.0]]) - OFFSET) / 4 * GAINS
    np.testing.assert_allclose(first.beside_attention["composition"], expected)
    without = score_sequences(inference_of(network_with([]), few), 0)
    np.testing.assert_allclose(first.contributions - expected, without.contributions, atol=1e-7)
    np.testing.assert_allclose(first.responses, without.responses, atol=1e-7)
    assert without.beside_attention == {}


def test_networks_with_and_without_a_branch_combine(few: RepertoireDataset) -> None:
    networks = [network_with([ShareBranch(LETTER, OFFSET)]), network_with([])]
    scores = [score_sequences(inference_of(network, few), 1) for network in networks]
    scales, shifts = np.array([[2.0, 1.0], [1.0, 1.0]]), np.array([[0.0, 1.0], [0.5, 0.0]])
    both = combine_scores(scores, UnitConversion(scales, shifts))
    np.testing.assert_allclose(both.contributions.sum(axis=0), both.outputs, atol=1e-6)
    np.testing.assert_allclose(
        both.beside_attention["composition"], scores[0].beside_attention["composition"] * scales[0] / 2
    )


def test_names_gains_and_buffers_of_branches_are_weights(few: RepertoireDataset) -> None:
    network = network_with([ShareBranch(LETTER, OFFSET)])
    state = network.state_dict()
    assert state["branches.gains"].tolist() == [GAINS]
    assert state["branches.members.composition.offset"].tolist() == OFFSET
    assert network.branches is not None
    assert network.branches.names == ("composition",)
    assert network_with([]).branches is None
