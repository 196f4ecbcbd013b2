from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.sampling import select_top_rows
from deeprc.outputs import list_output_names
from deeprc.runs.run import Run
from deeprc.training.model import TrainedModel

SETTINGS: dict[str, list[str]] = {
    "linear": [],
    "raw": ["standardise=false"],
    "two heads": ["n_heads=2"],
    "deep output": ["n_output_layers=2", "n_heads=2", "output_units=8"],
    "top fraction": ["top_fraction=0.3", "n_heads=2"],
    "lstm": ["embedding=lstm", "n_kernels=8"],
    "genes": ["gene_units=3", "n_heads=2"],
    "no key layers": ["n_key_layers=0", "key_units=16", "n_kernels=16"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_contributions_sum_to_the_output(
    name: str, model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    model = model_factory(cohort, *SETTINGS[name], stir=0.3)
    for position in (0, 1, 5):
        scores = model.score_sequences(cohort, position)
        (output,) = model.compute_outputs(cohort[[position]]).double().numpy()
        np.testing.assert_allclose(scores.outputs, output, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(scores.contributions.sum(axis=0), output, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(scores.head_weights.sum(axis=0), 1, rtol=1e-12)


@pytest.mark.slow
def test_weights_are_those_of_the_sequences_that_the_top_fraction_keeps(
    model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    model = model_factory(cohort, "top_fraction=0.3", stir=0.3)
    scores = model.score_sequences(cohort, 1)
    kept, _ = select_top_rows(torch.from_numpy(scores.head_logits), torch.tensor([0, len(scores)]), 0.3)
    assert len(kept) == np.ceil(0.3 * len(cohort[1]))
    assert np.flatnonzero(scores.head_weights[:, 0]).tolist() == sorted(kept.tolist())
    odds = np.exp(scores.head_logits[kept, 0].astype(np.float64))
    np.testing.assert_allclose(scores.head_weights[kept, 0], odds / odds.sum(), rtol=1e-6)


@pytest.mark.slow
def test_contributions_to_a_linear_output_are_exact(
    model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    """By hand: the standardisation and the linear layer written out on z, for two heads and two targets."""
    model = model_factory(cohort, "n_heads=2", targets=("status=case", "age:regression"), stir=0.3)
    assert list_output_names(model.tasks) == ["status=case", "age"]
    standardise, linear = model.network.output_network
    scores = model.score_sequences(cohort, 2)
    with torch.no_grad():
        values, logits = model.network.attend(model.make_inference(cohort).collator.take(2, slice(None)))
        scale = (standardise.variance + 1e-8).rsqrt().double()
        slope = (linear.weight.double() * scale).view(2, 2, -1)  # (T, H, D)
        offset = linear.bias.double() - (linear.weight.double() * scale) @ standardise.mean.double()
        per_head = torch.einsum("nd,thd->nht", values.double(), slope) + offset / 2
        weights = torch.softmax(logits.double(), dim=0)
    np.testing.assert_allclose(scores.responses, per_head.sum(1).numpy(), rtol=1e-4, atol=1e-5)
    expected = (weights[:, :, None] * per_head).sum(1).numpy()
    np.testing.assert_allclose(scores.contributions, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_response_is_the_output_of_the_sequence_alone(
    model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    model = model_factory(cohort, "n_heads=2", "abundance=none", stir=0.3)
    scores, collator = model.score_sequences(cohort, 4), model.make_inference(cohort).collator
    for row in (0, 7):
        with torch.no_grad():
            alone = model.network(collator.take(4, np.array([row])))
        np.testing.assert_allclose(scores.responses[row], alone[0].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_classes_are_outputs_of_their_own(
    model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset
) -> None:
    model = model_factory(cohort, targets=("grade:multiclass", "status=case"))
    assert list_output_names(model.tasks) == ["grade:high", "grade:low", "grade:mid", "status=case"]
    assert model.score_sequences(cohort, 0).contributions.shape == (len(cohort[0]), 4)


def test_carriers_of_the_motif_contribute_to_the_positive_class(trained: Run, motif_cohort: RepertoireDataset) -> None:
    for position in (1, 3, 5, 7, 9):
        scores = trained.model.score_sequences(motif_cohort, position)
        carries = np.array(["WWHW" in sequence for sequence in motif_cohort[position].sequences.decode()])
        best = np.argsort(-scores.contributions[:, 0])[: carries.sum()]
        assert carries[best].mean() >= 0.7
        assert scores.contributions[carries, 0].mean() > 3 * abs(scores.contributions[~carries, 0].mean())
