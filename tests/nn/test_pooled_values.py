"""Averages over whole repertoires that were computed before are not computed again, and only those."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.batch import Collator
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.nn.pooled_values import PooledAccumulator, PooledValueCache
from deeprc.nn.sequence_tensors import CPU, load_sequence_tensors


@pytest.fixture
def network() -> Iterator[DeepRC]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield DeepRC(n_kernels=8, kernel_size=4, n_heads=2, standardise=True, precision="bfloat16").eval()


class Reader:
    """An inference that notes the positions of the repertoires that it reads, one after the other."""

    def __init__(
        self, network: DeepRC, cohort: RepertoireDataset, known: PooledValueCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.collator = Collator(cohort, "log1p")
        self.inference = Inference(network, self.collator, pooled_value_cache=known, chunk=1)
        self.alone = Inference(network, Collator(cohort, "log1p"), chunk=1)
        self.read: list[int] = []
        take = self.collator.take

        def note(position: int, rows: object) -> object:
            if position not in self.read[-1:]:
                self.read.append(position)
            return take(position, rows)  # type: ignore[arg-type]

        monkeypatch.setattr(self.collator, "take", note)

    def check(self, positions: list[int] | None, read: list[int]) -> None:
        """Assert that all numbers are right to the last bit, and which repertoires are read for them."""
        self.read.clear()
        found = self.inference.compute_outputs(positions)
        assert torch.equal(found, self.alone.compute_outputs(positions))
        assert self.read == read


def test_pooled_values_and_logsumexp_of_parts_are_those_of_the_whole(network: DeepRC) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(7, network.n_values, generator=generator, dtype=torch.float64)
    logits = 500 * torch.randn(7, 2, generator=generator, dtype=torch.float64)
    accumulator = PooledAccumulator(network)
    assert accumulator.compute_logsumexp().tolist() == [-np.inf, -np.inf]
    for part in (slice(0, 1), slice(1, 5), slice(5, 7)):
        accumulator.add(values[part], logits[part])
    torch.testing.assert_close(accumulator.compute_logsumexp(), logits.logsumexp(dim=0), rtol=1e-14, atol=0)
    torch.testing.assert_close(accumulator.compute_pooled(), logits.softmax(dim=0).T @ values, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_a_repertoire_is_read_once(cohort: RepertoireDataset, network: DeepRC, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(network, cohort[:6], PooledValueCache(), monkeypatch)
    reader.check([4, 1], [4, 1])
    reader.check([4, 1], [])
    reader.check([1, 3, 4, 0], [3, 0])
    reader.check([5, 5, 2, 5], [5, 2])
    reader.check(None, [])


@pytest.mark.slow
def test_changed_outputs_need_no_branch_but_changed_kernels_do(
    cohort: RepertoireDataset, network: DeepRC, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(network, cohort[:3], PooledValueCache(), monkeypatch)
    reader.check(None, [0, 1, 2])
    network.output_network[1].weight.mul_(2)
    network.output_network[0].mean.add_(1)
    reader.check(None, [])
    for weights in (network.embedding.weight, network.embedding.bias, network.key_network[0].weight):
        before = weights.clone()
        weights[0] += 0.25
        reader.check([0, 2], [0, 2])
        weights.copy_(before)
        reader.check(None, [])  # the same weights as before
    network.pooling.queries.neg_()
    reader.check([1], [1])


@pytest.mark.slow
def test_averages_of_the_latest_four_weights_are_kept(
    cohort: RepertoireDataset, network: DeepRC, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(network, cohort[:1], PooledValueCache(), monkeypatch)
    bias = network.embedding.bias

    def check(value: float, read: list[int]) -> None:
        bias.fill_(value)
        reader.check(None, read)

    for value in (1.0, 2.0, 3.0, 4.0):
        check(value, [0])
    check(1.0, [])
    check(5.0, [0])  # 2.0 was used longest ago
    check(1.0, [])
    check(2.0, [0])


@pytest.mark.slow
def test_repertoires_of_other_containers_and_chosen_rows_are_others(
    cohort: RepertoireDataset,
    cohort_factory: Callable[..., RepertoireDataset],
    network: DeepRC,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = PooledValueCache()
    first, second = (Reader(network, each, known, monkeypatch) for each in (cohort[2:5], cohort_factory(6, 30)[:3]))
    first.check(None, [0, 1, 2])
    second.check(None, [0, 1, 2])
    Reader(network, cohort[[4, 2]], known, monkeypatch).check(None, [])  # other positions of the same repertoires
    rows = [np.arange(3)] * 3
    of_rows, alone = (torch.stack([*one.iterate_outputs(rows=rows)]) for one in (first.inference, first.alone))
    assert torch.equal(of_rows, alone)
    assert not torch.equal(of_rows, first.inference.compute_outputs())


def test_caches_of_a_container_do_not_depend_on_its_labels(
    cohort: RepertoireDataset, network: DeepRC, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = PooledValueCache()
    Reader(network, cohort[:3], known, monkeypatch).check(None, [0, 1, 2])
    relabelled = cohort.with_metadata(cohort.whole().metadata.assign(status="unknown"))
    Reader(network, relabelled[:3], known, monkeypatch).check(None, [])
    assert load_sequence_tensors(relabelled.sequence_container, CPU) is load_sequence_tensors(
        cohort.sequence_container, CPU
    )


@pytest.mark.slow
def test_streams_that_are_read_in_turns_do_not_mix_repertoires(cohort: RepertoireDataset, network: DeepRC) -> None:
    expected = Inference(network, Collator(cohort[:5], "log1p"), chunk=1).compute_outputs()
    inference = Inference(network, Collator(cohort[:5], "log1p"), pooled_value_cache=PooledValueCache(), chunk=1)
    stream = inference.iterate_outputs()
    found = [next(stream)]
    assert torch.equal(inference.compute_outputs([3, 1]), expected[[3, 1]])
    found += stream
    assert torch.equal(torch.stack(found), expected)
    assert torch.equal(inference.compute_outputs(), expected)


def test_a_group_of_which_some_are_known(cohort: RepertoireDataset, network: DeepRC) -> None:
    expected = Inference(network, Collator(cohort[:6], "log1p")).compute_outputs()
    inference = Inference(network, Collator(cohort[:6], "log1p"), pooled_value_cache=PooledValueCache())
    assert len(list(inference.iterate_groups())) == 1  # all are read together
    assert torch.equal(inference.compute_outputs([4, 1]), expected[[4, 1]])
    assert torch.equal(inference.compute_outputs(), expected)


def test_batches_that_are_made_in_another_way_have_other_averages(cohort: RepertoireDataset, network: DeepRC) -> None:
    known = PooledValueCache()
    for abundance, top_fraction in (("log1p", 1.0), ("none", 1.0), ("log1p", 0.1)):
        collator = Collator(cohort[:4], abundance)  # type: ignore[arg-type]
        expected = Inference(network, collator, top_fraction).compute_outputs()
        assert torch.equal(
            Inference(network, collator, top_fraction, pooled_value_cache=known).compute_outputs(), expected
        )
