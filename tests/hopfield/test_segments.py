import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprc.hopfield.segments import _attention_in_torch, segment_attention, segment_softmax, segment_sum


def test_segment_softmax_equals_softmax_of_each_segment() -> None:
    logits = 30 * torch.randn(11, 2, generator=torch.Generator().manual_seed(0))
    offsets = torch.tensor([0, 4, 4, 5, 11])
    weights = segment_softmax(logits, offsets)
    for start, stop in ((0, 4), (4, 5), (5, 11)):
        torch.testing.assert_close(weights[start:stop], torch.softmax(logits[start:stop], dim=0))


def test_segment_sum_of_an_empty_segment_is_zero() -> None:
    total = segment_sum(torch.arange(6.0).view(3, 2), torch.tensor([0, 2, 2, 3]))
    assert total.tolist() == [[2.0, 4.0], [0.0, 0.0], [4.0, 5.0]]


def test_the_average_of_a_set_does_not_depend_on_other_sets() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, values = torch.randn(7, 2, generator=generator), torch.randn(7, 4, generator=generator)
    alone = segment_attention(logits[:3], values[:3], torch.tensor([0, 3]))
    together = segment_attention(logits, values, torch.tensor([0, 3, 7]))
    assert torch.equal(alone[0], together[0])


def test_short_numbers_are_averaged_in_long_ones() -> None:
    logits = torch.zeros(4096, 1, dtype=torch.bfloat16)
    values = torch.ones(4096, 1, dtype=torch.bfloat16)
    pooled = segment_attention(logits, values, torch.tensor([0, 4096]))  # a sum of bfloat16 ones stops at 256
    assert pooled.dtype == torch.bfloat16
    assert pooled.item() == 1.0


@pytest.mark.slow
def test_gradients_are_the_same_in_every_run() -> None:
    """With several threads, additions in an order of chance would differ in the last bits."""
    generator = torch.Generator().manual_seed(0)
    n = 37_001
    logits = torch.randn(n, 1, generator=generator).requires_grad_()
    values = torch.randn(n, 8, generator=generator).requires_grad_()  # enough for several threads
    offsets = torch.tensor([0, 7000, 9000, 30_000, n])
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        runs = []
        for _ in range(40):
            loss = segment_attention(logits, values, offsets).square().sum()
            runs.append(torch.autograd.grad(loss, [logits, values]))
    finally:
        torch.set_num_threads(threads)
    for gradients in runs:
        assert torch.equal(gradients[0], runs[0][0])
        assert torch.equal(gradients[1], runs[0][1])


CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_a_piece_of_infinitely_small_logits_has_no_weight(device: str) -> None:
    """Compiled forms divide a set into pieces of up to 1,024 rows; the first piece here has no finite logit."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1028, 1, generator=generator).to(device)
    logits[:1024] = -torch.inf
    values = torch.randn(1028, 3, generator=generator).to(device)
    offsets = torch.tensor([0, 1028], device=device)
    leaves = [t.requires_grad_() for t in (logits, values)]
    pooled = segment_attention(*leaves, offsets)
    expected = torch.softmax(logits[1024:], dim=0).T @ values[1024:]
    torch.testing.assert_close(pooled[0], expected)
    found = torch.autograd.grad(pooled.square().sum(), leaves)
    for gradient, right in zip(found, torch.autograd.grad(expected.square().sum(), leaves), strict=True):
        torch.testing.assert_close(gradient, right)


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 1023, 1024, 1025, 3000]), min_size=1, max_size=5),
    heads=st.integers(1, 3),
    seed=st.integers(0, 1000),
    tail=st.integers(0, 4),
)
def test_both_forms_of_attention_are_equal(sizes: list[int], heads: int, seed: int, tail: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    n = sum(sizes) + tail  # patterns beyond the last offset belong to no set
    logits = (10 * torch.randn(n, heads, generator=generator, dtype=torch.float64)).requires_grad_()
    values = torch.randn(n, 3, generator=generator, dtype=torch.float64).requires_grad_()
    offsets = torch.tensor([0, *torch.tensor(sizes).cumsum(0).tolist()])
    direction = torch.randn(len(sizes), heads, 3, generator=generator, dtype=torch.float64)
    results = []
    for form in (segment_attention, _attention_in_torch):
        pooled = form(logits, values, offsets)
        results.append((pooled, *torch.autograd.grad((pooled * direction).sum(), [logits, values])))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-9)


def test_gradcheck_of_attention() -> None:
    torch.manual_seed(0)
    logits = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    values = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, 4, 4, 8])
    assert torch.autograd.gradcheck(lambda a, b: segment_attention(a, b, offsets), (logits, values))


def test_values_without_gradient_change_nothing_else() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 2, generator=generator).requires_grad_()
    values, offsets = torch.randn(9, 3, generator=generator), torch.tensor([0, 4, 4, 8])
    gradients = []
    for wanted in (True, False):
        own = values.clone().requires_grad_(wanted)
        segment_attention(logits, own, offsets).square().sum().backward()
        assert (own.grad is not None) == wanted
        gradients.append(logits.grad)
        logits.grad = None
    assert torch.equal(gradients[0], gradients[1])


def test_large_logits_do_not_overflow() -> None:
    values = torch.tensor([[1.0], [2.0]])
    pooled = segment_attention(torch.tensor([[1e4], [1e4]]), values, torch.tensor([0, 2]))
    assert pooled.item() == pytest.approx(1.5)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [100, 40_000])
def test_threads_are_torchs_and_stay_so(threads: int, n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, 1, generator=generator).requires_grad_()
    values = torch.randn(n, 8, generator=generator).requires_grad_()
    offsets = torch.tensor([0, n // 3, n])
    before = torch.get_num_threads()
    results = []
    try:
        for number in (threads, 1):
            torch.set_num_threads(number)
            pooled = segment_attention(logits, values, offsets)
            gradients = torch.autograd.grad(pooled.square().sum(), [logits, values])
            assert torch.get_num_threads() == number
            results.append([pooled, *gradients])
    finally:
        torch.set_num_threads(before)
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)


def test_second_derivatives_are_refused_and_never_zero_by_mistake() -> None:
    logits, values = torch.randn(5, 1, requires_grad=True), torch.randn(5, 2)
    pooled = segment_attention(logits, values, torch.tensor([0, 5]))
    (first,) = torch.autograd.grad(pooled.square().sum(), logits, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()


@pytest.mark.parametrize("bounds", [[0, 4000], [2, 6], [0, 4, 2, 6], [[0, 6]]])
def test_offsets_outside_the_patterns_are_refused(bounds: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets: expected"):
        segment_attention(torch.zeros(6, 1), torch.zeros(6, 4), torch.tensor(bounds))
