"""What residues add through the composition: exact sums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from deeprc.branches.composition import CompositionBranch
from deeprc.branches.residues import ExpectedResidues, count_placed_residues, name_placed_residues
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.expansion import compute_expansion_scores
from deeprc.interpretation.attributions import attribute
from deeprc.interpretation.composition_residues import attribute_composition
from deeprc.interpretation.residue_counts import residue_frequencies
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.training.model import Ensemble, TrainedModel
from tests.toys.repertoires import make_sequences, write_repertoires
from tests.toys.toy_branches import Clones, with_branches

TARGETS = ("status=case", "age:regression")


@pytest.fixture(scope="module")
def plain(model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset) -> TrainedModel:
    return model_factory(cohort, targets=TARGETS)


@pytest.fixture(scope="module")
def model(plain: TrainedModel) -> TrainedModel:
    """A model whose composition is linear in 4-mers, with random weights."""
    branch = CompositionBranch(2)
    branch.kmer_weights.copy_(torch.randn(branch.kmer_weights.shape, generator=torch.Generator().manual_seed(0)))
    return with_branches(plain, branch, Clones("WWHW", [1.0, 1.0]), gain=3.0)


@pytest.mark.slow
def test_residues_sum_to_what_comes_through_the_composition(model: TrainedModel, cohort: RepertoireDataset) -> None:
    index = SequenceIndex(np.array([1, 1, 4]), np.array([5, 0, 7]))
    frequencies = residue_frequencies(cohort)
    found = attribute_composition(model, cohort, index, output=1, background=frequencies)
    branches = model.network.branches
    assert branches is not None
    weights = 3.0 * branches.members["composition"].kmer_weights[1].double().numpy()
    mean = (
        weights
        @ np.multiply.outer(np.multiply.outer(np.multiply.outer(*2 * [frequencies]), frequencies), frequencies).ravel()
    )
    for place, (position, row) in enumerate(zip(index.positions, index.rows, strict=True)):
        repertoire = cohort[position]
        length = len(repertoire.sequences.decode()[row])
        through = model.score_sequences(cohort, position).by_source["composition"][row, 1]
        baseline = (length - 3) * mean / (len(repertoire) + 1000)
        assert found[place, :length].sum() == pytest.approx(through - baseline, rel=1e-5)
        assert np.isnan(found[place, length:]).all()


def test_a_residue_has_a_quarter_of_each_4_mer_that_holds_it(plain: TrainedModel, cohort: RepertoireDataset) -> None:
    branch = CompositionBranch(2)
    letters = [*"ACDEFGHIKLMNPQRSTVWY"]
    code = 0
    for letter in "WWHW":
        code = code * 20 + letters.index(letter)
    branch.kmer_weights[0, code] = 4.0
    text = cohort[1].sequences.decode()[0]
    start = text.index("WWHW")
    index = SequenceIndex(np.array([1]), np.array([0]))
    found = attribute_composition(with_branches(plain, branch), cohort, index, background=np.eye(20)[0])
    expected = np.zeros(len(text))
    expected[start : start + 4] = 1 / (len(cohort[1]) + 1000)
    np.testing.assert_allclose(found[0, : len(text)], expected)


def test_kmers_of_expanded_clones_are_weighted_by_the_score_of_the_sequence(
    plain: TrainedModel, cohort: RepertoireDataset
) -> None:
    branch = CompositionBranch(2, reads_expansion=True)
    weights = branch.get_buffer("expansion_weights")
    weights.copy_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(0)))
    model, frequencies = with_branches(plain, branch, gain=2.0), residue_frequencies(cohort)
    counts = cohort[1].counts
    rows = np.array([int(counts.argmax()), int(counts.argmin())])
    assert counts[rows[0]] > counts[rows[1]]
    index = SequenceIndex(np.array([1, 1]), rows)
    found = attribute_composition(model, cohort, index, output=1, background=frequencies)
    by_row = 2.0 * weights[1].double().numpy()
    mean = by_row @ np.multiply.outer(np.multiply.outer(frequencies, frequencies), frequencies).ravel()
    through = model.score_sequences(cohort, 1).by_source["composition"][rows, 1]
    for place, score in enumerate(compute_expansion_scores(counts)[rows]):
        length = len(cohort[1].sequences.decode()[rows[place]])
        baseline = score * (length - 2) * mean / (len(cohort[1]) + 1000)
        assert found[place, :length].sum() == pytest.approx(through[place] - baseline, rel=1e-5)


def test_a_family_that_counts_once_divides_its_part(
    plain: TrainedModel, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    """The first two sequences are a family of two among three families."""
    texts = ["CARDYYGSSW", "CARDYYGSSF", "CAKWWWHHHW", "CTTPPPHHHNNNW"]
    sequences = make_sequences(texts, v_call=["IGHV1-2"] * 4, j_call=["IGHJ4"] * 4)
    dataset = write_repertoires(tmp_path / "families.h5", [sequences], {"status": ["case"], "age": [50]})
    branches = [CompositionBranch(2, counts_families=of_families) for of_families in (False, True)]
    for branch in branches:
        branch.kmer_weights.copy_(torch.randn(branch.kmer_weights.shape, generator=torch.Generator().manual_seed(0)))
    index, background = SequenceIndex(np.array([0, 0]), np.array([1, 2])), residue_frequencies(cohort)
    models = [with_branches(plain, branch) for branch in branches]
    by_sequence, by_family = (attribute_composition(each, dataset, index, background=background) for each in models)
    factors = np.array([1 / 2, 1]) * 1004 / 1003
    np.testing.assert_allclose(by_family, factors[:, None] * by_sequence, rtol=1e-9)
    together = attribute_composition(Ensemble.of(models), dataset, index, background=background)
    np.testing.assert_allclose(together, (by_sequence + by_family) / 2, rtol=1e-9)


def test_an_ensemble_has_the_mean_of_its_models(
    model: TrainedModel, plain: TrainedModel, cohort: RepertoireDataset
) -> None:
    index, frequencies = SequenceIndex(np.array([3]), np.array([2])), residue_frequencies(cohort)
    both = attribute_composition(Ensemble.of([model, plain]), cohort, index, background=frequencies)
    alone = attribute_composition(model, cohort, index, background=frequencies)
    np.testing.assert_allclose(both, alone / 2)
    assert not attribute_composition(plain, cohort, index, background=frequencies).any()
    assert attribute_composition(model, cohort, index.take(np.zeros(0, np.int64)), background=frequencies).shape == (
        0,
        0,
    )


def test_attributions_contain_them(model: TrainedModel, plain: TrainedModel, cohort: RepertoireDataset) -> None:
    index, frequencies = SequenceIndex(np.array([1, 4]), np.array([5, 7])), residue_frequencies(cohort)
    found, attended = (attribute(each, cohort, index, output=1, steps=8) for each in (model, plain))
    composed = attribute_composition(model, cohort, index, output=1, background=frequencies)
    np.testing.assert_allclose(found.residues, attended.residues + composed)
    np.testing.assert_array_equal(found.through_composition, composed)
    assert attended.through_composition is None
    np.testing.assert_allclose(found.change, attended.change + np.nansum(composed, axis=1))
    np.testing.assert_array_equal(found.kernels, attended.kernels)
    np.testing.assert_allclose(found.convergence_delta, attended.convergence_delta, atol=1e-12)


def test_a_residue_at_a_position_has_its_whole_weight(plain: TrainedModel, tmp_path: Path) -> None:
    """Both sequences have the V gene A, which has a weight for L at 117; an average residue is L in a tenth."""
    sequences = make_sequences(["CASLF", "CALSF", "CASLF"], v_call=["A", "A", "B"])
    dataset = write_repertoires(tmp_path / "residues.h5", [sequences], {"status": ["case"], "age": [50]})
    branch = CompositionBranch(2, {"v_call": ["A"]}, reads_residues=True)
    at = name_placed_residues().index("L at 117")
    branch.get_buffer("residue_weights")[0, 0, at] = 4.0
    branch.expected_residues = ExpectedResidues.learn(count_placed_residues(dataset, branch.genes))
    background = np.zeros(20)
    background[AMINO_ACIDS.index("L")], background[AMINO_ACIDS.index("A")] = 0.1, 0.9
    model = with_branches(plain, branch)
    index = SequenceIndex(np.array([0, 0, 0]), np.array([0, 1, 2]))
    found = attribute_composition(model, dataset, index, background=background)
    expected = np.zeros((3, 5))
    expected[:2, 3] = np.array([4 * 0.9, -4 * 0.1]) / 1003  # the third has another V gene
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    through = model.score_sequences(dataset, 0).by_source["composition"][:, 0]
    assert through[0] - through[1] == pytest.approx(found[0].sum() - found[1].sum())
