"""The Triton kernels against the CPU's; without a CUDA device they run in Triton's interpreter, on CPU tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deeprc.nn.motif_convolution import autograd, cpu, motif_convolution
from deeprc.nn.sequences import SequenceBatch
from tests.toys.motif_convolutions import draw_convolution
from tests.triton_kernels import DEVICE, import_kernels, use_interpreter

cuda = import_kernels("deeprc.nn.motif_convolution.cuda")


@pytest.fixture(autouse=True, scope="module")
def _interpreter() -> Iterator[None]:
    with use_interpreter():
        yield


def on_device(tensors: list[Any]) -> list[Any]:
    return [tensor.to(DEVICE) for tensor in tensors]


def packed(arguments: list[Any], max_length: int) -> list[Any]:
    """Return the first five arguments as one, and the others as they are."""
    return [SequenceBatch(*arguments[:5], max_length), *arguments[5:]]


def forward(arguments: list[Any], max_length: int, precision: str = "float32") -> tuple[Tensor, Tensor]:
    maximum, window = cuda.forward(*packed(on_device(arguments), max_length), precision=precision)
    return maximum.cpu(), window.cpu()


def assert_equals_cpu(arguments: list[Any], max_length: int) -> None:
    """Compare the maxima, the windows, and the gradients of a weighted sum of the maxima."""
    *columns, weight, _ = arguments
    expected, expected_window = cpu.forward(*packed(arguments, max_length), precision="float32")
    found, window = forward(arguments, max_length)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert window.dtype == expected_window.dtype
    if weight.dtype == torch.float64:  # in 32 bits, two windows may be as good as equal
        assert torch.equal(window, expected_window)

    gradient = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=weight.dtype)
    inputs = [*columns, weight, expected_window, gradient]
    for name in ("compute_weight_gradient", "compute_scale_gradients"):
        expected_gradients = getattr(cpu, name)(*packed(inputs, max_length))
        gradients = getattr(cuda, name)(*packed(on_device(inputs), max_length))
        for g, e in zip(as_tuple(gradients), as_tuple(expected_gradients), strict=True):
            torch.testing.assert_close(g.cpu(), e, atol=1e-5, rtol=1e-5)


def as_tuple(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else result


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    n_kernels=st.sampled_from([1, 8, 33, 40]),
    kernel_size=st.integers(1, 15),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 1000),
)
def test_equals_the_cpu(lengths: list[int], n_kernels: int, kernel_size: int, dtype: torch.dtype, seed: int) -> None:
    longer = max(lengths) + seed % 3  # a bound that no sequence need reach
    assert_equals_cpu(draw_convolution(lengths, n_kernels, kernel_size, dtype, seed), longer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sequences_of_1_to_20_residues_in_one_batch(dtype: torch.dtype) -> None:
    assert_equals_cpu(draw_convolution(list(range(1, 21)), 8, 4, dtype), 20)


@pytest.mark.parametrize("lengths", [[7], [1], [3, 1, 2]], ids=["one sequence", "one residue", "shorter than a kernel"])
def test_few_sequences_that_may_be_shorter_than_the_kernels(lengths: list[int]) -> None:
    arguments = draw_convolution(lengths, 5, 9, torch.float64)
    assert_equals_cpu(arguments, max(lengths))
    expected = motif_convolution(*packed(arguments, max(lengths)), implementation="reference")
    torch.testing.assert_close(forward(arguments, max(lengths))[0], expected)


@pytest.mark.slow
def test_256_kernels_which_are_several_tiles() -> None:
    assert_equals_cpu(draw_convolution([5, 9, 2], 256, 3), 9)


def test_no_sequences_give_no_maxima_and_gradients_of_0() -> None:
    arguments = draw_convolution([], 4, 3)
    maximum, window = forward(arguments, 0)
    assert maximum.shape == window.shape == (0, 4)
    inputs = on_device([*arguments[:6], window, maximum])
    gradient = cuda.compute_weight_gradient(*packed(inputs, 0))
    assert torch.equal(gradient.cpu(), torch.zeros(4, 23, 3))
    assert [g.shape for g in cuda.compute_scale_gradients(*packed(inputs, 0))] == [(0,), (0,)]


@pytest.mark.slow
def test_a_table_of_16_bits_loses_nothing_of_a_rounded_weight() -> None:
    arguments = draw_convolution([4, 12, 7], 33, 5)
    arguments[5] = arguments[5].bfloat16().float()
    (found, window), (expected, expected_window) = (forward(arguments, 12, p) for p in ("bfloat16", "float32"))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert torch.equal(window, expected_window)


def test_the_first_of_equal_windows_is_kept() -> None:
    residues = torch.tensor([3, 5, 5, 3, 5], dtype=torch.uint8)
    weight = torch.zeros(2, 23, 1)
    weight[0, 5] = 2.0  # the windows at 1, 2 and 4 are equal; for the other kernel all are
    scale = torch.ones(1)
    arguments = [residues, torch.tensor([0]), torch.tensor([5]), scale, scale, weight, torch.tensor([0.5, -1.0])]
    maximum, window = forward(arguments, 5)
    assert maximum.tolist() == [[2.5, -1.0]]
    assert window.tolist() == [[1, 0]]


def test_a_maximum_that_is_not_a_number_stays() -> None:
    arguments = draw_convolution([6, 6], 2, 2)
    residues, starts, weight = arguments[0], arguments[1], arguments[5]
    residues[residues == 7] = 8
    residues[starts[0] + 3] = 7
    weight[1, 7, 1] = torch.nan  # reached by the second kernel's window at 2
    maximum, window = forward(arguments, 6)
    expected, expected_window = cpu.forward(*packed(arguments, 6), precision="float32")
    assert maximum.isnan().tolist() == [[False, True], [False, False]]
    assert window[0, 1] == 2
    torch.testing.assert_close(maximum, expected, atol=1e-5, rtol=1e-5, equal_nan=True)
    assert torch.equal(window, expected_window)


@pytest.mark.long
def test_windows_beyond_255() -> None:
    arguments = draw_convolution([300, 4], 1, 2)
    residues, starts, weight = arguments[0], arguments[1], arguments[5]
    residues[residues == 7] = 8
    residues[starts[0] + 280] = 7
    weight[0, 7, 0] = 50.0
    _, window = forward(arguments, 300)
    assert window.dtype == torch.int32
    assert window[0, 0] == 280
    assert_equals_cpu(arguments, 300)


@pytest.mark.long
def test_gradcheck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "_import_backend", lambda tensor: cuda)
    residues, starts, lengths, *rest = on_device(draw_convolution([1, 5], 2, 2, torch.float64))
    leaves = [tensor.requires_grad_() for tensor in rest]

    def function(*tensors: Tensor) -> Tensor:
        return motif_convolution(*packed([residues, starts, lengths, *tensors], 5), implementation="compiled")

    assert torch.autograd.gradcheck(function, leaves, nondet_tol=0.0)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a CUDA device")
def test_calls_can_be_captured_in_a_graph() -> None:
    arguments = on_device(draw_convolution([5, 9, 2], 8, 3))
    expected, window = cuda.forward(*packed(arguments, 9), precision="float32")
    inputs = [*arguments[:6], window, expected]
    expected_gradient = cuda.compute_weight_gradient(*packed(inputs, 9))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found, _ = cuda.forward(*packed(arguments, 9), precision="float32")
        gradient = cuda.compute_weight_gradient(*packed(inputs, 9))
    graph.replay()
    torch.testing.assert_close(found, expected)
    assert torch.equal(gradient, expected_gradient)  # sums have a fixed order
