"""The one-pass form of scoring equals the network's operations one after another."""

from dataclasses import replace

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.nn import Collator, DeepRC, RepertoireBatch
from deeprc.nn.sequences import SequenceBatch


def random_batch(lengths: list[int], seed: int) -> RepertoireBatch:
    rng = np.random.default_rng(seed)
    sizes = torch.tensor(lengths, dtype=torch.int64)
    residues = torch.from_numpy(rng.integers(0, 20, int(sizes.sum())).astype(np.uint8))
    scales = torch.from_numpy(rng.uniform(0.0, 3.0, (2, len(lengths))).astype(np.float32))
    offsets = torch.tensor([0, len(lengths)])
    sequences = SequenceBatch(residues, sizes.cumsum(0) - sizes, sizes, *scales, max_length=max(lengths, default=0))
    return RepertoireBatch(sequences, offsets)


def both(network: DeepRC, batch: RepertoireBatch) -> list[tuple[Tensor, ...]]:
    """Return values, logits and the gradients of all parameters, in one pass and by one operation after another."""
    generator = torch.Generator().manual_seed(0)
    directions, results = [], []
    for in_one_pass in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            assert network._collect_fused_weights(batch.sequences) is not None
            if not in_one_pass:
                patch.setattr(network, "_collect_fused_weights", lambda _: None)
            outputs = network.attend(batch)
        directions = directions or [torch.randn(output.shape, generator=generator) for output in outputs]
        total = sum((output * direction).sum() for output, direction in zip(outputs, directions, strict=True))
        own = [p for module in (network.embedding, network.key_network, network.pooling) for p in module.parameters()]
        gradients = torch.autograd.grad(total, own)  # type: ignore[arg-type]  # a tensor: there are two outputs
        results.append((*(output.detach() for output in outputs), *gradients))
    assert torch.equal(network.compute_logits(batch), results[0][1])
    return results


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 40), max_size=150),
    n_kernels=st.sampled_from([1, 8, 32, 40, 70]),
    kernel_size=st.integers(3, 15),
    n_key_layers=st.integers(1, 3),
    key_units=st.sampled_from([5, 32, 50]),
    n_heads=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_values_logits_and_gradients_of_one_pass_equal_the_operations(
    lengths: list[int],
    n_kernels: int,
    kernel_size: int,
    n_key_layers: int,
    key_units: int,
    n_heads: int,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    network = DeepRC(
        n_kernels=n_kernels,
        kernel_size=kernel_size,
        n_key_layers=n_key_layers,
        key_units=key_units,
        n_heads=n_heads,
        learn_beta=True,
    )
    for parameter in network.parameters():  # biases start as zero
        parameter.data += 0.1 * torch.randn_like(parameter)
    found, expected = both(network, random_batch(lengths, seed))
    assert found[0].shape == (len(lengths), n_kernels)
    for f, e in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(f, e, atol=1e-5, rtol=1e-5)
    for f, e in zip(found[2:], expected[2:], strict=True):
        torch.testing.assert_close(f, e, atol=5e-4, rtol=1e-4)


def test_without_key_layers_the_values_are_the_keys() -> None:
    torch.manual_seed(0)
    network = DeepRC(n_kernels=12, key_units=12, n_key_layers=0, n_heads=2)
    found, expected = both(network, random_batch([5, 9, 1, 14], 1))
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, atol=1e-5, rtol=1e-5)


@pytest.mark.long
def test_sequences_of_more_than_255_residues_equal_the_operations() -> None:
    torch.manual_seed(0)
    found, expected = both(DeepRC(n_kernels=8), random_batch([300, 257, 256, 2], 2))
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, atol=1e-4, rtol=1e-5)


def test_selu_is_exact_over_its_whole_range() -> None:
    bias = torch.cat([torch.linspace(-120, 30, 3001), -torch.logspace(-9, 0, 200), torch.zeros(1)])
    network = DeepRC(n_kernels=len(bias))
    with torch.no_grad():
        network.embedding.weight.zero_()
        network.embedding.bias.copy_(bias)
        values, _ = network.attend(random_batch([4], 0))
    expected = torch.selu(bias.double())
    torch.testing.assert_close(values[0].double(), expected, atol=1e-12, rtol=4e-7)


def test_sixteen_bits_are_the_same_in_one_pass() -> None:
    torch.manual_seed(0)
    found, expected = both(DeepRC(n_kernels=8, precision="bfloat16"), random_batch([7, 12, 30], 3))
    torch.testing.assert_close(found[1], expected[1], atol=1e-5, rtol=1e-5)


def test_a_weight_of_nan_makes_its_value_and_all_logits_nan() -> None:
    network = DeepRC(n_kernels=4)
    with torch.no_grad():
        network.embedding.weight[2] = float("nan")
        values, logits = network.attend(random_batch([6, 11], 0))
    assert torch.isnan(values).tolist() == [[False, False, True, False]] * 2
    assert torch.isnan(logits).all()


@pytest.mark.parametrize("top_fraction", [1.0, 0.2])
def test_outputs_without_gradients_equal_those_with(cohort: RepertoireDataset, top_fraction: float) -> None:
    torch.manual_seed(0)
    network = DeepRC(n_kernels=16, n_heads=2).eval()
    batch = Collator(cohort, "log1p").sample(np.arange(5), 50, np.random.default_rng(0))
    with torch.no_grad():
        without = network(batch, top_fraction=top_fraction)
    torch.testing.assert_close(without, network(batch, top_fraction=top_fraction).detach())


def test_a_training_batch_is_the_same_with_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.normal(14.5, 1.8, 5000).round(), 5, 30).astype(int).tolist()
    torch.manual_seed(0)
    network = DeepRC(n_kernels=32, n_heads=2)
    results = both(network, random_batch(lengths, 1))
    for f, e in zip(results[0][2:], results[1][2:], strict=True):
        assert (f - e).norm() <= 3e-5 * e.norm()
    runs = []
    for threads in (1, numba.config.NUMBA_NUM_THREADS):
        numba.set_num_threads(threads)
        runs.append(both(network, random_batch(lengths, 1))[0])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_the_slope_of_selu_at_zero_is_torchs() -> None:
    network = DeepRC(n_kernels=32, n_key_layers=1)
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.ones_(network.key_network[0].weight)  # type: ignore[arg-type]
    torch.nn.init.ones_(network.pooling.queries)
    found, expected = both(network, random_batch([5, 9], 0))
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e)


def test_hooks_and_gradients_of_scales_take_the_operations() -> None:
    torch.manual_seed(0)
    network, batch = DeepRC(n_kernels=8), random_batch([5, 9], 0)
    seen = []
    handle = network.key_network[0].register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        network.attend(batch)
    assert seen
    handle.remove()
    scale = batch.sequences.residue_scale.clone().requires_grad_()
    logits = network.attend(replace(batch, sequences=batch.sequences._replace(residue_scale=scale)))[1]
    assert torch.autograd.grad(logits.sum(), scale)[0].abs().min() > 0


def test_without_key_layers_the_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"the values are the keys: expected n_kernels \+ 2 gene_units, 64"):
        DeepRC(n_kernels=64, key_units=32, n_key_layers=0)
    with pytest.raises(
        InputError, match=r"network.key_units: expected n_kernels \+ 2 gene_units, 64, where n_key_layers is 0, found"
    ):
        load_config("deeprc", {"n_key_layers": 0, "n_kernels": 64})


def test_a_sequence_longer_than_stated_is_refused() -> None:
    network, batch = DeepRC(n_kernels=8), random_batch([5, 9], 0)
    with pytest.raises(ValueError, match=r"lengths: expected 1 to 8 \(max_length\) residues, found 5 to 9"):
        network.compute_logits(replace(batch, sequences=batch.sequences._replace(max_length=8)))


def test_no_sequences_give_no_values_and_no_logits() -> None:
    for implementation in ("auto", "reference"):
        network = DeepRC(n_kernels=8, implementation=implementation)  # type: ignore[arg-type]
        values, logits = network.attend(random_batch([], 0))
        assert values.shape == (0, 8)
        assert logits.shape == (0, 1)
        logits.sum().backward()
        assert network.compute_logits(random_batch([], 0)).shape == (0, 1)


def test_second_derivatives_are_refused() -> None:
    torch.manual_seed(0)
    network = DeepRC(n_kernels=8, kernel_size=3, key_units=8)
    values, logits = network.attend(random_batch([5, 7], 0))
    total = values.square().sum() + logits.square().sum()
    (first,) = torch.autograd.grad(total, network.embedding.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()
