from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deeprc.nn.features import AbundanceMode, compute_abundance_scale, compute_positional_features
from deeprc.nn.motif_convolution import Implementation, Precision, motif_convolution
from deeprc.nn.motif_convolution.tables import find_rows_in_use
from deeprc.nn.sequences import SequenceBatch
from tests.toys.motif_convolutions import draw_convolution


def convolve(
    arguments: Sequence[Tensor],
    implementation: Implementation,
    *,
    max_length: int | None = None,
    precision: Precision = "float32",
) -> Tensor:
    """Call `motif_convolution` with what `draw_convolution` returns."""
    *columns, weight, bias = arguments
    if max_length is None:
        max_length = max(columns[2].tolist(), default=0)
    sequences = SequenceBatch(*columns, max_length)
    return motif_convolution(sequences, weight, bias, implementation=implementation, precision=precision)


def by_loops(
    residues: Tensor, starts: Tensor, lengths: Tensor, rs: Tensor, ps: Tensor, weight: Tensor, bias: Tensor
) -> np.ndarray:
    """Independent of both implementations: the definition, in Python loops."""
    D, _, K = weight.shape
    result = np.empty((len(starts), D))
    for n in range(len(starts)):
        L = int(lengths[n])
        position = compute_positional_features(L)[L]
        for d in range(D):
            windows = []
            for p in range(L):
                total = float(bias[d])
                for j in range(min(K, L - p)):
                    total += float(rs[n] * weight[d, int(residues[starts[n] + p + j]), j])
                    total += float(ps[n]) * float(position[p + j] @ weight[d, 20:, j].numpy())
                windows.append(total)
            result[n, d] = max(windows)
    return result


@pytest.mark.parametrize("implementation", ["reference", "compiled"])
@pytest.mark.parametrize(("n_kernels", "kernel_size"), [(1, 1), (8, 3), (5, 9), (3, 15)])
def test_both_forms_equal_the_definition_in_loops(
    implementation: Implementation, n_kernels: int, kernel_size: int
) -> None:
    arguments = draw_convolution([1, 2, 3, 7, 9, 12, 20], n_kernels, kernel_size, torch.float64)
    found = convolve(arguments, implementation)
    np.testing.assert_allclose(found.numpy(), by_loops(*arguments), atol=1e-10)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    lengths=st.lists(st.integers(1, 40), max_size=30),
    n_kernels=st.sampled_from([1, 8, 33]),
    kernel_size=st.integers(1, 15),
    seed=st.integers(0, 1000),
)
def test_compiled_equals_reference(lengths: list[int], n_kernels: int, kernel_size: int, seed: int) -> None:
    results = []
    for implementation in ("reference", "compiled"):
        arguments = draw_convolution(lengths, n_kernels, kernel_size, torch.float32, seed)
        leaves = [tensor.requires_grad_() for tensor in arguments[3:]]
        output = convolve(arguments, implementation)
        weights = torch.linspace(-1, 1, output.numel()).view_as(output)
        gradients = torch.autograd.grad((output * weights).sum(), leaves, allow_unused=True)
        known = [torch.zeros_like(a) if g is None else g for g, a in zip(gradients, leaves, strict=True)]
        results.append((output.detach(), known))
    (expected, expected_gradients), (found, found_gradients) = results
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    for g, e in zip(found_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(g, e, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["reference", "compiled"])
def test_gradcheck(implementation: Implementation) -> None:
    residues, starts, lengths, *rest = draw_convolution([1, 4, 6, 11], 3, 4, torch.float64)
    leaves = [tensor.requires_grad_() for tensor in rest]

    def function(*tensors: Tensor) -> Tensor:
        return convolve([residues, starts, lengths, *tensors], implementation)

    assert torch.autograd.gradcheck(function, leaves)


@pytest.mark.parametrize("implementation", ["reference", "compiled"])
def test_the_first_of_equal_windows_takes_the_gradient(implementation: Implementation) -> None:
    residues = torch.zeros(4, dtype=torch.uint8)
    weight = torch.zeros(1, 23, 1, dtype=torch.float64)
    weight[0, 20] = 0.0  # only the residue counts, so all four windows are equal
    position_scale = torch.ones(1, dtype=torch.float64)
    arguments = (residues, torch.tensor([0]), torch.tensor([4]), position_scale, position_scale)
    weight.requires_grad_()
    output = convolve([*arguments, weight, torch.zeros(1, dtype=torch.float64)], implementation)
    (gradient,) = torch.autograd.grad(output.sum(), weight)
    np.testing.assert_allclose(gradient[0, 20:, 0], [1, 0, 0])  # position 0 is all start


def test_no_sequences_give_no_maxima_and_gradients_of_0() -> None:
    for implementation in ("reference", "compiled"):
        arguments = draw_convolution([], 4, 3, torch.float32)
        arguments[6].requires_grad_()
        output = convolve(arguments, implementation)
        assert output.shape == (0, 4)
        output.sum().backward()


def test_compiled_is_the_same_for_any_number_of_threads() -> None:
    import numba

    arguments = draw_convolution(np.random.default_rng(0).integers(1, 30, 500).tolist(), 16, 9, torch.float32)
    gradients = []
    for threads in (1, numba.config.NUMBA_NUM_THREADS):
        numba.set_num_threads(threads)
        weight = arguments[5].clone().requires_grad_()
        convolve([*arguments[:5], weight, arguments[6]], "compiled").sum().backward()
        gradients.append(weight.grad)
    assert torch.equal(gradients[0], gradients[1])


def results(arguments: list[Tensor], implementation: Implementation, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
    """Return the output and the gradients of the scales, weight and bias for a random direction."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in arguments[3:]]
    output = convolve([*arguments[:3], *leaves], implementation)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed), dtype=output.dtype)
    return output.detach(), list(torch.autograd.grad((output * direction).sum(), leaves))


@pytest.mark.parametrize("kernel_size", [3, 9, 15])
@pytest.mark.parametrize("n_kernels", [8, 32, 100, 256])
def test_every_length_and_number_of_kernels(n_kernels: int, kernel_size: int) -> None:
    arguments = draw_convolution(list(range(1, 41)) * 2, n_kernels, kernel_size, torch.float32)
    arguments[5] = arguments[5] / (23 * kernel_size) ** 0.5  # as a network's kernels start
    expected, expected_gradients = results(arguments, "reference")
    found, gradients = results(arguments, "compiled")
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    for g, e in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(g, e, atol=2e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_batch_of_10_000_sequences_equals_the_reference() -> None:
    """As large as in use: gradients are sums over 10,000 sequences, so they are compared in 64 bits."""
    lengths = np.clip(np.random.default_rng(0).normal(14.5, 1.8, 10_000).round(), 5, 30).astype(int).tolist()
    arguments = draw_convolution(lengths, 32, 9, torch.float64)
    expected, expected_gradients = results(arguments, "reference")
    found, gradients = results(arguments, "compiled")
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    for g, e in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(g, e, atol=1e-8, rtol=1e-9)


@pytest.mark.parametrize("mode", ["log", "log1p", "none"])
def test_counts_of_zero_and_one(mode: AbundanceMode) -> None:
    arguments = draw_convolution([3, 9, 14, 20], 8, 5, torch.float32)
    arguments[3] = compute_abundance_scale(torch.tensor([0, 1, 2, 1000]), mode)
    if mode == "log":
        assert arguments[3].tolist()[:2] == [0, 0]  # only the positions of these sequences are seen
    expected, expected_gradients = results(arguments, "reference")
    found, gradients = results(arguments, "compiled")
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for g, e in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(g, e, atol=1e-4, rtol=1e-4)


@pytest.mark.long
def test_sequences_longer_than_a_byte_counts() -> None:
    arguments = draw_convolution([255, 256, 257, 400, 3], 5, 9, torch.float64)
    for f, e in zip(
        (results(arguments, "compiled")[0], *results(arguments, "compiled")[1]),
        (results(arguments, "reference")[0], *results(arguments, "reference")[1]),
        strict=True,
    ):
        torch.testing.assert_close(f, e, atol=1e-9, rtol=1e-9)


def test_windows_that_tie_are_the_first_of_the_reference() -> None:
    """Weights of few values make ties common; the gradient shows which window was taken."""
    arguments = draw_convolution([6, 11, 17, 24] * 20, 40, 3, torch.float64)
    arguments[5] = arguments[5].sign()
    arguments[5][:, 20:] = 0  # positions, which tell equal windows apart, have no say
    arguments[3], arguments[4], arguments[6] = (torch.ones(n).double() for n in (80, 80, 40))
    arguments[6] *= 0  # whole numbers only: no rounding breaks a tie
    _, expected = results(arguments, "reference")
    _, found = results(arguments, "compiled")
    torch.testing.assert_close(found[1], expected[1], atol=1e-10, rtol=0)
    torch.testing.assert_close(found[2], expected[2], atol=1e-10, rtol=0)


def test_a_weight_of_nan_makes_its_kernel_nan_and_no_other() -> None:
    arguments = draw_convolution([4, 9], 3, 3, torch.float64)
    arguments[5][1, 20] = float("nan")
    found = convolve(arguments, "compiled")
    assert torch.isnan(found).tolist() == [[False, True, False]] * 2


def test_sixteen_bits_round_the_weight_only() -> None:
    arguments = draw_convolution([4, 9, 30], 8, 5, torch.float32)
    rounded = [*arguments[:5], arguments[5].bfloat16().float(), arguments[6]]
    for implementation in ("reference", "compiled"):
        found = convolve(arguments, implementation, precision="bfloat16")
        assert torch.equal(found, convolve(rounded, implementation))
        assert not torch.equal(found, convolve(arguments, implementation))


def test_a_longer_table_changes_nothing() -> None:
    arguments = draw_convolution([4, 9, 30], 8, 5, torch.float32)
    found = convolve(arguments, "compiled", max_length=64)
    assert torch.equal(found, convolve(arguments, "compiled"))


def test_compiled_names_the_device_it_does_not_run_on() -> None:
    arguments = [tensor.to("meta") for tensor in draw_convolution([4], 2, 3, torch.float64)]
    with pytest.raises(ValueError, match="runs on the CPU, and on CUDA with triton; not here, on 'meta'"):
        convolve(arguments, "compiled", max_length=4)


def test_one_long_sequence_does_not_make_the_tables_long() -> None:
    rows, first_row_of_length = find_rows_in_use(torch.tensor([3, 200, 3, 1]), 208)
    assert rows.tolist() == [0, 3, 4, 5, *range(200 * 199 // 2, 201 * 200 // 2)]
    assert first_row_of_length[[1, 3, 200]].tolist() == [0, 1, 4]


def test_second_derivatives_of_the_compiled_form_are_refused() -> None:
    *sequences, weight, bias = draw_convolution([5, 7], 4, 3, torch.float64)
    maximum = convolve([*sequences, weight.requires_grad_(), bias], "compiled")
    (first,) = torch.autograd.grad(maximum.square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()
