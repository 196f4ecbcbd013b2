from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.hopfield.segments import segment_logsumexp
from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.nn.network import DeepRC
from deeprc.nn.sampling import select_top_rows


@pytest.fixture
def batch(cohort: RepertoireDataset) -> RepertoireBatch:
    return Collator(cohort, "none").sample(np.arange(4), 10_000, np.random.default_rng(0))


def build(*, n_heads: int = 1) -> DeepRC:
    torch.manual_seed(0)
    network = DeepRC(n_kernels=8, kernel_size=4, n_heads=n_heads, convolution_gain=3.0)
    with torch.no_grad():
        network.pooling.queries *= 5  # so that attention tells sequences apart
    return network


def test_many_small_terms_of_a_sum_count() -> None:
    """A term of 32 bits that is smaller than 6e-8 does not change a sum of 1."""
    logits = torch.full((1_000_001, 1), -17.0)
    logits[0] = 0
    expected = math.log(1 + 1e6 * math.exp(-17))
    assert float(segment_logsumexp(logits, torch.tensor([0, len(logits)]))) == pytest.approx(expected, rel=1e-5)


def test_logsumexp_of_ragged_sets() -> None:
    logits = torch.tensor([[1.0], [2.0], [-3.0], [1000.0]], requires_grad=True)
    found = segment_logsumexp(logits, torch.tensor([0, 2, 2, 4]))
    torch.testing.assert_close(found[:, 0], torch.tensor([np.log(np.e + np.e**2), -np.inf, 1000.0]).float())
    found[0].sum().backward()
    torch.testing.assert_close(logits.grad[:2, 0], torch.softmax(torch.tensor([1.0, 2.0]), 0))


@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("limits", [{"top_fraction": 0.2}, {"top_number": 7}, {"top_fraction": 0.5, "top_number": 3}])
def test_outputs_are_those_of_all_sequences(batch: RepertoireBatch, n_heads: int, limits: dict[str, float]) -> None:
    network = build(n_heads=n_heads)
    whole = network(batch)
    torch.testing.assert_close(network(batch, unattended="constant", **limits), whole)
    assert not torch.allclose(network(batch, **limits), whole, atol=1e-3)


def test_gradients_are_those_of_the_kept_sequences_alone(batch: RepertoireBatch) -> None:
    """By autograd: all sequences take part, and what the others give is detached."""
    network = build()
    parameters = list(network.parameters())
    values, logits = network.attend(batch)
    rows, _ = select_top_rows(logits, batch.offsets, 0.2)
    kept = torch.zeros(len(logits), 1, dtype=torch.bool).index_fill(0, rows, True)
    values, logits = (torch.where(kept, each, each.detach()) for each in (values, logits))
    outputs = []
    for first, last in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        weights = torch.softmax(logits[first:last, 0], dim=0)
        outputs.append(network.output_network(weights @ values[first:last]))
    expected = torch.autograd.grad(torch.stack(outputs).square().sum(), parameters)
    found = torch.autograd.grad(network(batch, top_fraction=0.2, unattended="constant").square().sum(), parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_repertoires_of_which_all_is_kept(cohort: RepertoireDataset) -> None:
    batch = Collator(cohort, "none").sample(np.arange(3), 4, np.random.default_rng(0))
    network = build()
    found = network(batch, top_number=4, unattended="constant")
    torch.testing.assert_close(found, network(batch))
    found.sum().backward()
    gradients: list[Tensor] = [each.grad for each in network.parameters() if each.grad is not None]
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


def test_an_empty_repertoire_gives_what_it_gives_without_a_rest(batch: RepertoireBatch) -> None:
    offsets = torch.cat([batch.offsets[:2], batch.offsets[1:]])  # the second one is empty
    network = build()
    holed = batch.take(torch.arange(batch.sequences.n_sequences), offsets)
    found = network(holed, top_fraction=0.2, unattended="constant")
    torch.testing.assert_close(found, network(holed))
    found.square().sum().backward()
    assert all(bool(torch.isfinite(each.grad).all()) for each in network.parameters() if each.grad is not None)
