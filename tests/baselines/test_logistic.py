"""Logistic regression on k-mers: Adam against torch's, the converged one against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression as ScikitLearns
from sklearn.metrics import roc_auc_score

from deeprc.baselines.adam import AdamSettings, AdamState, draw_batches, make_updates
from deeprc.baselines.logistic import AdamLogisticRegression, LogisticRegression
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.errors import InputError


def labels(cohort: RepertoireDataset) -> np.ndarray:
    return (cohort.metadata["status"] == "case").to_numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_columns", "batch_size"),
    [(9, 4), pytest.param(9, 6, marks=pytest.mark.long), pytest.param(9, 1, marks=pytest.mark.long), (20_000, 4)],
)
def test_adam_makes_the_steps_of_torch(n_columns: int, batch_size: int) -> None:
    rng = np.random.default_rng(0)
    matrix, positive = rng.random((12, n_columns)), rng.random(12) > 0.5
    batches = draw_batches(12, batch_size, 50, seed=3)
    state = AdamState(n_columns, np.float64)
    make_updates(state, matrix, positive, batches, AdamSettings(0.02, l1=1e-3, l2=1e-2))
    weight, bias = torch.zeros(n_columns, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    parameters = [each.requires_grad_() for each in (weight, bias)]
    optimiser = torch.optim.Adam(parameters, lr=0.02)
    x, y = torch.from_numpy(matrix), torch.from_numpy(positive.astype(np.float64))
    for batch in torch.from_numpy(batches):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x[batch] @ weight + bias, y[batch])
        loss = loss + 1e-3 * weight.abs().sum() + 0.5 * 1e-2 * (weight**2).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert state.n_updates == 50
    assert state.values[0, :-1] == pytest.approx(weight.detach().numpy(), rel=1e-9, abs=1e-12)
    assert state.values[0, -1] == pytest.approx(float(bias.detach()), rel=1e-9)


def test_adam_goes_on_where_it_stopped() -> None:
    rng = np.random.default_rng(1)
    matrix, positive, batches = rng.random((10, 6)), np.arange(10) % 2 == 0, draw_batches(10, 3, 40, seed=0)
    whole, parts = AdamState(6), AdamState(6)
    settings = AdamSettings(learning_rate=0.01, l1=0.0, l2=1e-3)
    make_updates(whole, matrix, positive, batches, settings)
    for part in (batches[:13], batches[13:]):
        make_updates(parts, matrix, positive, part, settings)
    assert np.array_equal(whole.values, parts.values)


def test_batches_are_permutations_cut_up() -> None:
    batches = draw_batches(6, 4, 9, seed=0)
    assert [sorted(each) for each in batches.reshape(-1, 6)] == [list(range(6))] * 6
    assert np.array_equal(draw_batches(6, 4, 4, seed=0), batches[:4])
    assert not np.array_equal(draw_batches(6, 4, 9, seed=1), batches)


def test_the_converged_one_is_scikit_learns(cohort: RepertoireDataset) -> None:
    y = labels(cohort)
    u = np.asarray(compute_kmer_frequencies(cohort, (0, 1)), np.float64)
    varies = u.std(axis=0) > 0
    z = (u[:, varies] - u[:, varies].mean(axis=0)) / u[:, varies].std(axis=0)
    ours = LogisticRegression(penalty="l2", C=0.1, kmer_offsets=[0, 1]).fit(cohort, y)
    theirs = ScikitLearns(C=0.1, tol=1e-10, max_iter=10_000).fit(z, y)
    assert ours.decision_function(cohort) == pytest.approx(theirs.decision_function(z), abs=1e-3)


def test_a_motif_is_found_in_new_repertoires(cohort: RepertoireDataset) -> None:
    y = labels(cohort)
    model = LogisticRegression(penalty="l1", C=1.0).fit(cohort[:20], y[:20])
    assert roc_auc_score(y[20:], model.decision_function(cohort[20:])) == 1
    assert 1 <= len(model.features_) <= 20


def test_adam_learns_a_motif_that_new_repertoires_have(cohort: RepertoireDataset) -> None:
    y = labels(cohort)
    model = AdamLogisticRegression(learning_rate=1e-2, n_updates=500).fit(cohort[:20], y[:20])
    assert roc_auc_score(y[20:], model.decision_function(cohort[20:])) > 0.9


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LogisticRegression(penalty="l3"), "penalty: expected one of l1, l2"),
        (LogisticRegression(scale="none"), "scale: expected one of"),  # type: ignore[arg-type]
        (LogisticRegression(C=0), "C: expected a number above 0"),
        (AdamLogisticRegression(n_updates=0), "n_updates: expected a whole number of at least 1"),
        (AdamLogisticRegression(batch_size=True), "batch_size: expected a whole number"),
        (AdamLogisticRegression(learning_rate=-1.0), "learning_rate: expected a number above 0"),
        (AdamLogisticRegression(l1=-1.0), "l1: expected a number of at least 0"),
        (AdamLogisticRegression(kmer_offsets=[0, 1, 2, 3, 4]), "kmer_offsets: expected at most 4"),
    ],
)
def test_bad_parameters_are_refused(cohort: RepertoireDataset, model: LogisticRegression, message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.fit(cohort, labels(cohort))
