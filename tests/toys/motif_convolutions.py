"""Random arguments of a motif convolution."""

import torch
from torch import Tensor


def draw_convolution(
    lengths: list[int], n_kernels: int, kernel_size: int, dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[Tensor]:
    """Return residues, starts, lengths, the two scales, weight and bias; the sequences lie apart and out of order."""
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
