"""Sequences are compared with chance among those with the same strongest feature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.airr_ml.best_sequences import BestSequences
from deeprc.airr_ml.feature_groups import compute_excess_in_groups, find_strongest_features
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.estimator import DeepRCClassifier
from tests.conftest import random_sequences, write_cohort

SIZES = (30, 0, 20, 25)


@pytest.fixture
def cohort(tmp_path: Path) -> RepertoireDataset:
    """Write four repertoires of different sequences; the second one is empty."""
    sequences = list(dict.fromkeys(random_sequences(np.random.default_rng(0), 200)))
    ends = np.cumsum(SIZES)
    parts = [sequences[end - n : end] for n, end in zip(SIZES, ends, strict=True)]
    return write_cohort(tmp_path / "cohort.h5", parts, pd.DataFrame({"status": list("abab")}))


def make_list(X: RepertoireDataset, indices: np.ndarray, scores: np.ndarray, size: int = 1000) -> BestSequences:
    best = BestSequences(X, [], size)
    best.add_candidates(indices, scores)
    return best


def test_the_excess_of_a_group_is_beside_the_chance_of_this_group(cohort: RepertoireDataset) -> None:
    """Of 20 sequences of group 0, 4 times 2 are there by chance, and one more counts; of group 1 nearly all."""
    best = make_list(cohort, np.arange(40), 100.0 - np.arange(40))
    null = make_list(cohort, np.arange(50, 70), np.r_[np.linspace(99.5, 62.5, 4), np.full(16, 1.0)])
    groups, of_null = np.arange(40) % 2, np.r_[np.zeros(4), np.ones(16)].astype(np.int64)
    found = compute_excess_in_groups(best, null, 2.0, groups, of_null)
    # two bins of ten: in each of them 10 found, 2 x 2 by chance, and 1
    np.testing.assert_allclose(found[groups == 0], 0.5, atol=1e-9)
    np.testing.assert_allclose(found[groups == 1], 0.9)


def test_below_the_end_of_a_full_list_chance_is_unknown_in_every_group(cohort: RepertoireDataset) -> None:
    best = make_list(cohort, np.arange(40), 100.0 - np.arange(40))
    null = make_list(cohort, np.arange(50, 70), np.linspace(99.0, 61.0, 20), size=10)
    assert null.lowest == 81.0
    found = compute_excess_in_groups(best, null, 1.0, np.arange(40) % 2, np.zeros(10, np.int64))
    assert found[1] == pytest.approx(0.9)  # of the group without any chance
    assert (found[30:] == 0).all()
    assert make_list(cohort, np.arange(3), np.ones(3)).lowest == -np.inf


def test_lists_may_be_empty(cohort: RepertoireDataset) -> None:
    y, settings = np.array([1, 0, 1, 0]), {"n_updates": 1, "composition": False, "clones": False}
    estimator = DeepRCClassifier(overrides=settings, device="cpu").fit(cohort, y, X_validation=cohort, y_validation=y)
    some, none = make_list(cohort, np.arange(5), np.arange(5.0)), make_list(cohort, np.arange(0), np.zeros(0))
    groups, of_null = find_strongest_features(estimator, cohort, some, none)
    assert (len(groups), len(of_null)) == (5, 0)
    groups, of_null = find_strongest_features(estimator, cohort, none, some)
    assert (len(groups), len(of_null)) == (0, 5)
    assert compute_excess_in_groups(none, some, 1.0, groups, of_null).tolist() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"n_heads": 2}, {"standardise": False}, {"embedding": "lstm"}, {"n_output_layers": 2}, {"gene_units": 2}],
    ids=str,
)
def test_the_strongest_feature_changes_the_output_most(cohort: RepertoireDataset, changes: dict[str, Any]) -> None:
    """A feature is replaced by its mean, and the output of the network for this sequence alone is compared."""
    X = cohort[[3, 1, 0, 2]]  # not in the order of the container
    settings = {"n_kernels": 6, "n_updates": 2, "n_sequences": 10, "composition": False, "clones": False, **changes}
    y = np.array([1, 0, 1, 0])
    estimator = DeepRCClassifier(overrides=settings, device="cpu").fit(X, y, X_validation=X, y_validation=y)
    positive = make_list(X, np.r_[np.arange(0, 75, 4)], np.arange(19.0))
    negative = make_list(X, np.arange(1, 75, 4), np.arange(19.0))
    found = find_strongest_features(estimator, X, positive, negative)

    network, inference = estimator.model_.network, estimator.model_.make_inference(X)
    values = {}
    for at in range(len(X)):
        for batch in inference.iterate_batches(at):
            for row, own in enumerate(network.attend(batch)[0].detach()):
                values[X[at].start + row] = own
    mean = torch.stack([values[index] for index in negative.indices.tolist()]).mean(0)

    def output(of_sequence: torch.Tensor) -> float:
        """Return the output of the tangent of the output network at the mean."""
        at, heads = mean.clone().requires_grad_(), len(network.pooling.queries)
        value = network.output_network(at.repeat(heads)[None])[0, 0]
        (gradient,) = torch.autograd.grad(value, at)
        return float(gradient.double() @ (of_sequence - mean).double())

    for indices, features in zip((positive.indices, negative.indices), found, strict=True):
        for index, feature in zip(indices.tolist(), features.tolist(), strict=True):
            own = values[index]
            losses = []
            for each in range(len(own)):
                without = own.clone()
                without[each] = mean[each]
                losses.append(output(own) - output(without))
            assert losses[feature] == pytest.approx(max(losses), rel=1e-4, abs=1e-7)
    assert len(set(found[0].tolist())) > 1
