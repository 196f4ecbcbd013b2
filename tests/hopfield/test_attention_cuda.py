"""Attention's Triton kernels against its form in tensors; without a CUDA device they run in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deeprc.hopfield.segments import _attention_in_torch
from tests.triton_kernels import DEVICE, import_kernels, use_interpreter

attention_cuda = import_kernels("deeprc.hopfield.attention_cuda")

SegmentAttention = attention_cuda.SegmentAttention

PIECE = 8
REAL_SIZES = {name: getattr(attention_cuda, name) for name in ("_PIECE_ROWS", "_PIECES_AT_ONCE")}


@pytest.fixture(autouse=True, scope="module")
def _interpreter() -> Iterator[None]:
    """Choose the interpreter, and pieces so small that few rows make several, more than are combined at once."""
    with use_interpreter(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_cuda, "_PIECE_ROWS", PIECE)
        patch.setattr(attention_cuda, "_PIECES_AT_ONCE", 2)
        yield


def problem(
    sizes: list[int], heads: int, d_v: int, tail: int = 0, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, values and offsets; the last `tail` rows belong to no set."""
    generator = torch.Generator().manual_seed(seed)
    n = sum(sizes) + tail
    logits = 10 * torch.randn(n, heads, generator=generator, dtype=dtype)
    values = torch.randn(n, d_v, generator=generator, dtype=dtype)
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    return logits.to(DEVICE), values.to(DEVICE), offsets.to(DEVICE)


def results(logits: Tensor, values: Tensor, offsets: Tensor, *, by_tensors: bool = False) -> tuple[Tensor, ...]:
    """Return the averages and the gradients, with respect to logits and values, of a weighted sum of the averages."""
    logits, values = (t.detach().requires_grad_() for t in (logits, values))
    form = _attention_in_torch if by_tensors else SegmentAttention.apply
    pooled = form(logits, values, offsets)
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(pooled.shape, generator=generator, dtype=values.dtype).to(DEVICE)
    return pooled.detach(), *torch.autograd.grad((pooled * direction).sum(), [logits, values])


def assert_equals_tensors(
    arguments: tuple[Tensor, Tensor, Tensor], *, tolerance: float = 1e-11, equal_nan: bool = False
) -> None:
    pairs = zip(results(*arguments), results(*arguments, by_tensors=True), strict=True)
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance, equal_nan=equal_nan)


@pytest.mark.slow
@settings(deadline=None, max_examples=12)
@given(
    sizes=st.lists(st.sampled_from([0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 3]), min_size=1, max_size=4),
    heads=st.integers(1, 3),
    d_v=st.sampled_from([1, 3, 32, 40]),
    tail=st.sampled_from([0, 1, PIECE, 2 * PIECE + 1]),
    seed=st.integers(0, 1000),
)
def test_equals_the_form_in_tensors(sizes: list[int], heads: int, d_v: int, tail: int, seed: int) -> None:
    assert_equals_tensors(problem(sizes, heads, d_v, tail, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)], ids=["32", "64"])
def test_pieces_of_the_real_size(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, tolerance: float) -> None:
    for name, size in REAL_SIZES.items():
        monkeypatch.setattr(attention_cuda, name, size)
    rows = REAL_SIZES["_PIECE_ROWS"]
    sizes = [rows - 1, 0, rows, 1, rows + 1, 3 * rows + 5]
    assert_equals_tensors(problem(sizes, 2, 40, 3, dtype), tolerance=tolerance)


def test_the_average_of_two_values_by_hand() -> None:
    logits = torch.tensor([[0.0], [3.0]], device=DEVICE).log1p()  # log 1 and log 4
    values = torch.tensor([[5.0], [10.0]], device=DEVICE)
    pooled = SegmentAttention.apply(logits, values, torch.tensor([0, 2], device=DEVICE))
    assert pooled.item() == pytest.approx(0.2 * 5 + 0.8 * 10)


@pytest.mark.slow
def test_values_of_600_dimensions_equal_the_tensor_form() -> None:
    assert_equals_tensors(problem([11, 2], 1, 600, 1))  # wider than half a tile: few rows at once backward


@pytest.mark.slow
def test_more_sets_than_are_compared_at_once() -> None:
    assert_equals_tensors(problem([1, 0] * 64 + [9, 2], 1, 1, 1))


@pytest.mark.long
def test_gradcheck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_cuda, "_PIECE_ROWS", 2)
    logits, values, offsets = problem([1, 0, 4], 2, 2, 1)
    leaves = (logits / 10).requires_grad_(), values.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: SegmentAttention.apply(a, b, offsets), leaves)


def test_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[1e4], [1e4], [-1e4]], device=DEVICE)
    values = torch.tensor([[1.0], [2.0], [7.0]], device=DEVICE)
    pooled, of_logits, of_values = results(logits, values, torch.tensor([0, 3], device=DEVICE))
    assert pooled.item() == pytest.approx(1.5)
    assert (of_logits[:, 0] / of_values[0, 0]).tolist() == pytest.approx([-0.5, 0.5, 0.0])
    assert (of_values[:, 0] / of_values[0, 0]).tolist() == pytest.approx([1.0, 1.0, 0.0])


def test_rows_beyond_all_sets_have_no_influence() -> None:
    logits, values, offsets = problem([5, 20], 2, 3, 2 * PIECE + 3)
    alone = results(logits[:25], values[:25], offsets)
    logits[25:], values[25:] = torch.nan, torch.inf
    together = results(logits, values, offsets)
    assert torch.equal(together[0], alone[0])
    for found, expected in zip(together[1:], alone[1:], strict=True):
        assert torch.equal(found[:25], expected)
        assert torch.equal(found[25:], torch.zeros_like(found[25:]))


def test_an_empty_set_is_zero() -> None:
    pooled, *_ = results(*problem([0, 3, 0], 2, 3))
    assert pooled.any(dim=-1).tolist() == [[False, False], [True, True], [False, False]]


@pytest.mark.parametrize("sizes", [[0, 0], []], ids=["no rows", "no sets"])
def test_empty_sets_have_averages_and_gradients_of_0(sizes: list[int]) -> None:
    tail = 0 if sizes else 5
    pooled, of_logits, of_values = results(*problem(sizes, 2, 3, tail))
    assert torch.equal(pooled.cpu(), torch.zeros(len(sizes), 2, 3, dtype=torch.float64))
    assert torch.equal(of_logits.cpu(), torch.zeros(tail, 2, dtype=torch.float64))
    assert torch.equal(of_values.cpu(), torch.zeros(tail, 3, dtype=torch.float64))


def test_a_piece_of_infinitely_small_logits() -> None:
    logits, values, offsets = problem([4 * PIECE, 3], 1, 3)
    logits[: 2 * PIECE] = -torch.inf
    assert_equals_tensors((logits, values, offsets))


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("value", [-torch.inf, torch.inf, torch.nan])
def test_nan_and_infinite_logits_stay_in_their_set(value: float) -> None:
    logits, values, offsets = problem([PIECE + 1, 3], 1, 3, 2)
    logits[slice(0, PIECE + 1) if value == -torch.inf else 2] = value
    assert_equals_tensors((logits, values, offsets), equal_nan=True)
    pooled, *_ = results(logits, values, offsets)
    assert pooled.isnan().all(dim=-1).tolist() == [[True], [False]]


def test_results_are_the_same_in_every_run_and_batch() -> None:
    logits, values, offsets = problem([5, 3 * PIECE + 2, 20], 2, 3, dtype=torch.float32)
    first, second = (results(logits, values, offsets) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    rows = slice(5, 3 * PIECE + 7)
    alone = SegmentAttention.apply(logits[rows].clone(), values[rows].clone(), offsets[1:3] - 5)
    assert torch.equal(alone[0], first[0][1])


def test_inputs_need_not_be_contiguous() -> None:
    logits, values, offsets = problem([5, 9], 2, 3)
    expected = SegmentAttention.apply(logits, values, offsets)
    logits, values = logits.T.contiguous().T, values.T.contiguous().T.requires_grad_()
    pooled = SegmentAttention.apply(logits, values, offsets)
    assert torch.equal(pooled, expected)
    pooled.sum().backward()  # its gradient is an expanded number
    assert values.grad is not None
    assert values.grad.sum().item() == pytest.approx(2 * 2 * 3)  # weights of one set and head sum to 1


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a CUDA device")
def test_calls_can_be_captured_in_a_graph() -> None:
    arguments = problem([5, 40, 3], 2, 32, 4, torch.float32)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # autograd compiles and launches where the forward pass did
        logits, values = (t.requires_grad_() for t in arguments[:2])
        first = SegmentAttention.apply(logits, values, arguments[2])
        expected_gradients = torch.autograd.grad(first.square().sum(), [logits, values])
        expected = first.detach()
        del first  # a graph that is kept would tie the gradients to this stream, and torch warns about that
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pooled = SegmentAttention.apply(logits, values, arguments[2])
        gradients = torch.autograd.grad(pooled.square().sum(), [logits, values])
    graph.replay()
    assert torch.equal(pooled, expected)
    assert all(torch.equal(a, b) for a, b in zip(gradients, expected_gradients, strict=True))
