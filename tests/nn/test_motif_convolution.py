import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deeprc.nn.features import positional_features
from deeprc.nn.motif_convolution import motif_convolution


def problem(
    lengths: list[int], n_kernels: int, kernel_size: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> list[Tensor]:
    """Residues, starts, lengths, the two scales, weight and bias; the sequences lie apart and out of order."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor(lengths, dtype=torch.int64)
    order = torch.randperm(len(lengths), generator=generator)
    starts = torch.zeros(len(lengths), dtype=torch.int64)
    at = 3
    for i in order.tolist():
        starts[i], at = at, at + lengths[i] + 2
    residues = torch.randint(0, 20, (at + 1,), generator=generator).to(torch.uint8)
    scales = [torch.rand(len(lengths), generator=generator, dtype=dtype) + 0.5 for _ in range(2)]
    weight = torch.randn(n_kernels, 23, kernel_size, generator=generator, dtype=dtype)
    bias = torch.randn(n_kernels, generator=generator, dtype=dtype)
    return [residues, starts, sizes, *scales, weight, bias]


def by_loops(
    residues: Tensor, starts: Tensor, lengths: Tensor, rs: Tensor, ps: Tensor, weight: Tensor, bias: Tensor
) -> np.ndarray:
    """Independent of both implementations: the definition, in Python loops."""
    D, _, K = weight.shape
    result = np.empty((len(starts), D))
    for n in range(len(starts)):
        L = int(lengths[n])
        position = positional_features(L)[L]
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
def test_equals_the_definition(implementation: str, n_kernels: int, kernel_size: int) -> None:
    arguments = problem([1, 2, 3, 7, 9, 12, 20], n_kernels, kernel_size)
    found = motif_convolution(*arguments, implementation=implementation)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.numpy(), by_loops(*arguments), atol=1e-10)


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
        arguments = problem(lengths, n_kernels, kernel_size, torch.float32, seed)
        leaves = [tensor.requires_grad_() for tensor in arguments[3:]]
        output = motif_convolution(*arguments, implementation=implementation)  # type: ignore[arg-type]
        weights = torch.linspace(-1, 1, output.numel()).view_as(output)
        gradients = torch.autograd.grad((output * weights).sum(), leaves, allow_unused=True)
        known = [torch.zeros_like(a) if g is None else g for g, a in zip(gradients, leaves, strict=True)]
        results.append((output.detach(), known))
    (expected, expected_gradients), (found, found_gradients) = results
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    for g, e in zip(found_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(g, e, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("implementation", ["reference", "compiled"])
def test_gradcheck(implementation: str) -> None:
    residues, starts, lengths, *rest = problem([1, 4, 6, 11], 3, 4)
    leaves = [tensor.requires_grad_() for tensor in rest]

    def function(*tensors: Tensor) -> Tensor:
        return motif_convolution(residues, starts, lengths, *tensors, implementation=implementation)  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(function, leaves)


@pytest.mark.parametrize("implementation", ["reference", "compiled"])
def test_the_first_of_equal_windows_takes_the_gradient(implementation: str) -> None:
    residues = torch.zeros(4, dtype=torch.uint8)
    weight = torch.zeros(1, 23, 1, dtype=torch.float64)
    weight[0, 20] = 0.0  # only the residue counts, so all four windows are equal
    position_scale = torch.ones(1, dtype=torch.float64)
    arguments = (residues, torch.tensor([0]), torch.tensor([4]), position_scale, position_scale)
    weight.requires_grad_()
    output = motif_convolution(
        *arguments,
        weight,
        torch.zeros(1, dtype=torch.float64),
        implementation=implementation,  # type: ignore[arg-type]
    )
    (gradient,) = torch.autograd.grad(output.sum(), weight)
    np.testing.assert_allclose(gradient[0, 20:, 0], [1, 0, 0])  # position 0 is all start


def test_no_sequences() -> None:
    for implementation in ("reference", "compiled"):
        arguments = problem([], 4, 3, torch.float32)
        arguments[6].requires_grad_()
        output = motif_convolution(*arguments, implementation=implementation)  # type: ignore[arg-type]
        assert output.shape == (0, 4)
        output.sum().backward()


def test_compiled_is_the_same_for_any_number_of_threads() -> None:
    import numba

    arguments = problem(np.random.default_rng(0).integers(1, 30, 500).tolist(), 16, 9, torch.float32)
    gradients = []
    for threads in (1, numba.config.NUMBA_NUM_THREADS):
        numba.set_num_threads(threads)
        weight = arguments[5].clone().requires_grad_()
        motif_convolution(*arguments[:5], weight, arguments[6], implementation="compiled").sum().backward()
        gradients.append(weight.grad)
    assert torch.equal(gradients[0], gradients[1])
