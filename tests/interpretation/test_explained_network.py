from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deeprc.interpretation.explained_network import (
    ExplainedNetwork,
    ExplainedQuantity,
    _average_all_but_one,
    _compute_logsumexp_of_others,
)
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.nn import DeepRC, SequenceEncoder


class Noisy(SequenceEncoder):
    """An encoder whose results depend on the mode in each of its layers."""

    def __init__(self) -> None:
        super().__init__(8)
        self.lstm = nn.LSTM(23, 8, num_layers=2, dropout=0.9, batch_first=True)
        self.norm, self.dropout = nn.BatchNorm1d(8), nn.Dropout(0.9)

    def encode(self, linear: Tensor, lengths: Tensor) -> Tensor:  # all sequences have one length
        return cast(Tensor, self.dropout(self.norm(self.lstm(linear)[1][0][-1])))


def test_dropout_and_batch_normalisation_of_an_encoder_are_those_of_predictions() -> None:
    torch.manual_seed(0)
    network = DeepRC(n_kernels=8, key_units=8)
    network.embedding = Noisy()
    inference: Any = SimpleNamespace(network=network.eval(), device=torch.device("cpu"))
    quantity = ExplainedQuantity(output=0, of="output", scale=1.0, shift=0.0)
    explained = ExplainedNetwork(inference, torch.full((20,), 0.05), quantity, steps=4)
    features, lengths = torch.randn(5, 7, 23), torch.full((5,), 7)
    found = explained._exact.embedding.encode(features.double(), lengths)
    torch.testing.assert_close(found.float(), network.embedding.encode(features, lengths))
    assert explained._exact.embedding.get_submodule("lstm").training  # for cuDNN
    assert network.embedding.lstm.dropout == 0.9


@pytest.mark.parametrize(("n_rest", "n"), [(0, 1), (0, 4), (5, 1), (3, 4)])
@pytest.mark.parametrize("highest", [0.0, 2000.0])
def test_the_logsumexp_of_all_others_by_a_loop(n_rest: int, n: int, highest: float) -> None:
    logits = torch.randn(n_rest + n, 2, generator=torch.Generator().manual_seed(0)) * 3
    logits[-1, 0] += highest
    rest, chosen = logits[:n_rest], logits[n_rest:].double()
    found = _compute_logsumexp_of_others(rest, chosen)
    for row in range(n):
        others = torch.cat([rest.double(), chosen[:row], chosen[row + 1 :]])
        expected = torch.logsumexp(others, dim=0) if len(others) else torch.full((2,), -torch.inf)
        np.testing.assert_allclose(found[row], expected, rtol=1e-12)


@pytest.mark.parametrize(("n_rest", "n"), [(1, 1), (5, 1), (3, 4)])
@pytest.mark.parametrize("highest", [0.0, 2000.0])
def test_the_average_of_all_but_one_by_a_loop(n_rest: int, n: int, highest: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n_rest + n, 2, generator=generator, dtype=torch.float64) * 3
    values = torch.randn(n_rest + n, 6, generator=generator, dtype=torch.float64)
    logits[-1, 0] += highest
    rest, chosen = logits[:n_rest], logits[n_rest:]
    rest_average = rest.softmax(dim=0).T @ values[:n_rest]
    logsumexp = _compute_logsumexp_of_others(rest, chosen)
    found = _average_all_but_one(values[n_rest:], chosen, rest_average, rest.logsumexp(dim=0), logsumexp)
    for row in range(n):
        others = [i for i in range(n_rest + n) if i != n_rest + row]
        expected = logits[others].softmax(dim=0).T @ values[others]
        np.testing.assert_allclose(found[row], expected, rtol=1e-9)


def test_repeats_of_sequences_are_dropped() -> None:
    index = SequenceIndex(np.array([3, 0, 3, 0, 3]), np.array([1, 5, 1, 2, 0]))
    different, place = index.drop_repeats()
    assert list(zip(different.positions.tolist(), different.rows.tolist(), strict=True)) == [
        (0, 2),
        (0, 5),
        (3, 0),
        (3, 1),
    ]
    assert place.tolist() == [3, 1, 3, 0, 2]
