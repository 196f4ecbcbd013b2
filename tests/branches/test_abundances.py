"""Features of how diverse counts are: by hand, invariances, and when the branch of composition reads them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import ArrayLike
from sklearn.metrics import roc_auc_score

from deeprc.airr_ml.sequence_scores import _find_composition
from deeprc.branches.abundances import (
    choose_richness_depth,
    compute_abundance_features,
    compute_abundance_table,
    name_abundance_features,
)
from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_description import NOISE_SEQUENCES
from deeprc.branches.composition_features import CompositionFeatures
from deeprc.branches.composition_fit import fit_composition
from deeprc.branches.composition_models import RidgeModels
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.nn.branches import Branches
from deeprc.tasks import Task
from deeprc.training.log_abundance import warn_of_counts_of_one
from tests.branches.test_composition import repertoire

STATUS = Task("status", "status", "binary", ("negative", "positive"))


def compute_features(counts: ArrayLike, richness_depth: int = 0) -> np.ndarray:
    """The features of a repertoire of different sequences with these counts."""
    known = np.array(counts, np.uint32)
    texts = ["".join(letters) for letters in islice(product("ACDEFGHIKL", repeat=4), len(known))]
    return compute_abundance_features(repertoire(replace(Sequences.encode(texts), counts=known)), richness_depth)


def test_shares_by_hand() -> None:
    """Half of four sequences are two of them, a tenth are 0.4 of the largest, a hundredth 0.04."""
    assert [name.split()[-1] for name in name_abundance_features(0)] == ["half", "tenth", "hundredth"]
    found = np.exp(compute_features([1, 5, 2, 2]))
    np.testing.assert_allclose(found, [7 / 10, 0.4 * 5 / 10, 0.04 * 5 / 10], rtol=1e-12)


def test_equal_counts_have_the_shares_of_their_number() -> None:
    np.testing.assert_allclose(np.exp(compute_features([3] * 50)), [0.5, 0.1, 0.01], rtol=1e-12)


@pytest.mark.parametrize("counts", [[], [1], [1, 1, 1]], ids=["none", "one", "ones"])
def test_counts_of_one_say_nothing(counts: list[int]) -> None:
    assert np.isnan(compute_features(counts)).all()
    assert np.isnan(compute_features(counts, 2)).tolist() == [True] * 4


def test_clones_per_count_by_hand() -> None:
    """Of 10 counts, 2 are drawn: both are of the clone of 5 in 10 of 45 pairs, of either clone of 2 in one."""
    assert name_abundance_features(2)[3] == "clones per count, among 2 counts"
    found = np.exp(compute_features([1, 5, 2, 2], 2)[3])
    assert found == pytest.approx((2 - 12 / 45) / 2, rel=1e-12)
    assert np.exp(compute_features([1, 5, 2, 2], 10)[3]) == pytest.approx(4 / 10, rel=1e-12)


def test_clones_per_count_do_not_depend_on_the_depth() -> None:
    """A tenth of the counts of a repertoire have as many clones among 500, up to chance; the other features change."""
    rng = np.random.default_rng(1)
    deep = np.minimum(rng.zipf(1.7, 5000), 500)
    shallow = rng.multivariate_hypergeometric(deep, deep.sum() // 10)
    of_deep, of_shallow = compute_features(deep, 500), compute_features(shallow[shallow > 0], 500)
    assert of_shallow[3] == pytest.approx(of_deep[3], abs=0.03)
    assert np.abs(of_shallow[:2] - of_deep[:2]).min() > 0.05


def test_the_depth_is_that_of_the_shallowest_tenth(tmp_path: Path) -> None:
    totals = [*range(10, 31), 0, 3]  # 3 counts of 1 are unknown, as no count is
    with ContainerWriter(tmp_path / "cohort.h5") as writer:
        for number, total in enumerate(totals):
            counts = np.ones(3, np.uint32) if total == 3 else np.array([total - 4, 4] if total else [], np.uint32)
            texts = ["CAAF", "CDDF", "CEEF"][: len(counts)]
            writer.append(f"rep.{number}", replace(Sequences.encode(texts), counts=counts))
        writer.finish(pd.DataFrame({"number": totals}), source="a test")
    cohort = open_dataset(tmp_path / "cohort.h5")
    assert choose_richness_depth(cohort) == 12
    assert choose_richness_depth(cohort[-2:]) == 1


def test_a_common_factor_and_the_order_change_nothing() -> None:
    rng = np.random.default_rng(0)
    counts = np.minimum(rng.zipf(1.8, 2000), 10**6).astype(np.uint32)
    order = rng.permutation(2000)
    expected = compute_features(counts)
    np.testing.assert_allclose(compute_features(7 * counts), expected, rtol=1e-12)
    np.testing.assert_array_equal(compute_features(counts[order]), expected)
    np.testing.assert_array_equal(compute_features(counts[order], 100), compute_features(counts, 100))
    n_top = [1000, 200, 20]
    by_sorting = [np.sort(counts)[::-1][:n].sum() / counts.sum() for n in n_top]
    np.testing.assert_allclose(np.exp(expected), by_sorting, rtol=1e-12)


def test_a_branch_by_hand() -> None:
    branch = CompositionBranch(2, reads_abundances=True, richness_depth=2)
    branch.get_buffer("abundance_weights")[:] = torch.tensor([[1, 0, 0, 0], [0, 10, 2, 3]])
    branch.get_buffer("abundance_centre")[:] = torch.tensor([-0.5, -1, -2, -4])
    sequences = replace(Sequences.encode(["CASSL", "CAS", "CAT", "WWWW"]), counts=np.array([1, 5, 2, 2], np.uint32))
    score = [np.log(0.7) + 0.5, 10 * (np.log(0.2) + 1) + 2 * (np.log(0.02) + 2) + 3 * (np.log(13 / 15) + 4)]
    found = branch.compute_contributions(repertoire(sequences))  # each sequence has an equal share
    np.testing.assert_allclose(found, np.tile(score, (4, 1)) / (4 + NOISE_SEQUENCES), rtol=1e-7)
    assert branch.score(repertoire(Sequences.encode(["CASSL"] * 9))).tolist() == [0, 0]  # counts of 1
    reads = {"abundances": True, "richness_depth": 2, "expansion": False}
    others = dict.fromkeys(["residues", "gene_pairs", "families", "doubtful"], False)
    assert branch.describe() == {"v_call": [], "j_call": [], **reads, **others}
    rebuilt = CompositionBranch.from_description(branch.describe(), 2, "model")
    rebuilt.load_state_dict(branch.state_dict())
    np.testing.assert_array_equal(rebuilt.score(repertoire(sequences)), branch.score(repertoire(sequences)))


def test_models_of_an_earlier_version_read_shares_alone() -> None:
    branch = CompositionBranch.from_description({"v_call": [], "j_call": [], "abundances": True}, 1, "model")
    stored = {"weights": torch.tensor([[1.0, 10.0, 2.0]]).double(), "centre": torch.tensor([-0.5, -1, -2]).double()}
    branch.load_state_dict({**branch.state_dict(), **{f"abundance_{name}": part for name, part in stored.items()}})
    sequences = replace(Sequences.encode(["CASSL", "CAS", "CAT", "WWWW"]), counts=np.array([1, 5, 2, 2], np.uint32))
    score = np.log(0.7) + 0.5 + 10 * (np.log(0.2) + 1) + 2 * (np.log(0.02) + 2)
    np.testing.assert_allclose(branch.score(repertoire(sequences)), [score * 4 / (4 + NOISE_SEQUENCES)], rtol=1e-7)
    assert branch.get_linear_function(0).abundances.tolist() == [1, 10, 2]


def test_models_of_earlier_versions_read_no_counts() -> None:
    branch = CompositionBranch.from_description({"v_call": ["A"], "j_call": []}, 1, "model")
    assert not branch.reads_counts
    assert set(branch.state_dict()) == {
        f"{name}_{part}" for name in ("v_call", "j_call") for part in ("weights", "centre")
    } | {"kmer_weights", "kmer_constants"}


@pytest.fixture(scope="module")
def expanded(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """48 repertoires of the same 300 sequences; every other one has more unequal counts, and each its own depth.

    One of each class has no counts.
    """
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("expanded") / "expanded.h5"
    with ContainerWriter(path) as writer:
        for number in range(48):
            counts = np.exp(rng.normal(0, 0.8 + 0.5 * (number % 2) + rng.normal(0, 0.1), 300)) * rng.integers(10, 200)
            counts = np.ones(300) if number < 2 else np.ceil(counts)
            sequences = Sequences(
                np.tile(np.arange(12, dtype=np.uint8), 300), np.arange(0, 12 * 300 + 1, 12), counts.astype(np.uint32)
            )
            writer.append(f"rep.{number}", sequences)
        writer.finish(pd.DataFrame({"number": np.arange(48)}), source="a test")
    return open_dataset(path)


def test_a_difference_of_counts_is_found(expanded: RepertoireDataset) -> None:
    labels = (np.arange(48) % 2).astype(np.float64)
    fitted = fit_composition(TrainingCohort(expanded, labels[:, None], (STATUS,)))
    assert fitted is not None
    assert isinstance(fitted.branch, CompositionBranch)
    assert fitted.branch.reads_abundances
    assert fitted.branch.features == ["counts"]
    scores = np.array([fitted.branch.score(each)[0] for each in expanded])
    assert scores[:2].tolist() == [0, 0]
    assert roc_auc_score(labels[2:], scores[2:]) > 0.95
    assert roc_auc_score(labels, fitted.scores[:, 0]) > 0.9


def test_left_out_repertoires_without_counts_score_0(expanded: RepertoireDataset) -> None:
    """Their features are the mean of the learned repertoires with counts, whatever the other left-out ones are."""
    labels, left_out = (np.arange(48) % 2).astype(np.float64), np.array([0, 1, 10, 11, 13])
    learned = np.setdiff1d(np.arange(48), left_out)
    models = RidgeModels(CompositionFeatures(expanded), ("abundances",), is_number=False)
    scores = models.score_left_out(labels[learned], learned, left_out)
    np.testing.assert_allclose(scores[:, :2], 0, atol=1e-12)
    assert (scores[:, 3:] > scores[:, 2:3]).all()
    assert (np.abs(scores[:, 2:]) > 1e-6).all()


def test_counts_can_be_left_out(expanded: RepertoireDataset) -> None:
    """Nothing else varies, so no branch is left."""
    labels = (np.arange(48) % 2).astype(np.float64)
    assert fit_composition(TrainingCohort(expanded, labels[:, None], (STATUS,)), with_counts=False) is None


def test_the_table_has_the_features_of_each_repertoire(expanded: RepertoireDataset) -> None:
    for depth in (0, 700):
        table = compute_abundance_table(expanded[::-1], depth)
        assert np.isnan(table[-2:]).all()
        for row, each in zip(table[:-2], expanded[2:][::-1], strict=True):
            np.testing.assert_array_equal(row, compute_abundance_features(each, depth))
    assert Path(f"{expanded.container.path}.cache").is_dir()


def test_repertoires_without_counts_are_named(expanded: RepertoireDataset, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_counts_of_one(expanded[:4], "none", branches_read_counts=False)
    assert caplog.messages == []
    warn_of_counts_of_one(expanded[:4], "none", branches_read_counts=True)
    (message,) = caplog.messages
    assert message.startswith("Counts add nothing to the prediction of 2 repertoires: rep.0, rep.1: they are all 1.")
    warn_of_counts_of_one(expanded[2:], "none", branches_read_counts=True)
    assert len(caplog.messages) == 1


def test_no_sequences_are_ranked_by_a_composition_of_counts_alone() -> None:
    by_counts, by_kmers = CompositionBranch(1, reads_abundances=True), CompositionBranch(1, reads_abundances=True)
    by_counts.get_buffer("abundance_weights")[:] = 1
    by_kmers.kmer_weights[0, 7] = 1

    def find(branch: CompositionBranch) -> CompositionBranch | None:
        network = SimpleNamespace(branches=Branches([branch], 1))
        return _find_composition(cast("Any", SimpleNamespace(model_=SimpleNamespace(network=network))))

    assert find(by_counts) is None
    assert find(by_kmers) is by_kmers
