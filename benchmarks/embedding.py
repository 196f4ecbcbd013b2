"""Time of the motif convolution alone, compared with the dense reference.

python benchmarks/embedding.py [--device cuda] [--kernels 32 --kernels 128]
"""

from __future__ import annotations

from collections.abc import Callable

import click
import numpy as np
import torch
from common import (
    alternate,
    make_cohort,
    measure_launch_seconds,
    measure_multiply_adds,
    options,
    report,
    seconds_option,
)
from torch import Tensor

from deeprc.device import resolve_device
from deeprc.nn.batch import Collator
from deeprc.nn.motif_convolution import Implementation, motif_convolution
from deeprc.nn.sequences import SequenceBatch


@click.command()
@options
@seconds_option
@click.option("--kernel-size", default=9)
@click.option("--drawn", default=40_000, help="Number of sequences of a batch.")
def main(device: str, kernels: tuple[int, ...], sequences: int, seconds: float, kernel_size: int, drawn: int) -> None:
    """Time the forward pass, and forward and backward together."""
    where = resolve_device(device)
    rows = []
    with make_cohort(1, sequences) as dataset:
        collator = Collator(dataset, "log1p", device=where)
        batch = collator.sample(np.array([0]), drawn, np.random.default_rng(0)).sequences
        table_rows = _count_table_rows(batch.lengths, kernel_size)
        for n_kernels in kernels:
            torch.manual_seed(0)
            weight = (torch.randn(n_kernels, 23, kernel_size, device=where) / 14).requires_grad_()
            bias = torch.zeros(n_kernels, device=where, requires_grad=True)
            for passes in ("forward", "forward + backward"):
                runs = {
                    name: _make_pass(batch, weight, bias, implementation, backward="backward" in passes)
                    for name, implementation in (("ours", "compiled"), ("dense", "reference"))
                }
                median = alternate(runs, where, seconds=seconds)
                rows.append(
                    {
                        "kernels": n_kernels,
                        "passes": passes,
                        "ours_ms": 1e3 * median["ours"],
                        "dense_ms": 1e3 * median["dense"],
                        "ratio": median["dense"] / median["ours"],
                        "million_sequences_per_s": batch.n_sequences / median["ours"] / 1e6,
                        "billion_additions_per_s": table_rows * n_kernels / median["ours"] / 1e9,
                    }
                )
    limits = {"matrix_product_billion_multiply_adds_per_s": measure_multiply_adds(where) / 1e9}
    if where.type == "cuda":
        limits["launch_us"] = 1e6 * measure_launch_seconds(where)
    report("embedding", rows, where, **limits)


def _make_pass(
    batch: SequenceBatch, weight: Tensor, bias: Tensor, implementation: Implementation, *, backward: bool
) -> Callable[[], object]:
    """Return a function that computes the convolution, with its gradients if `backward`."""

    def run() -> object:
        with torch.set_grad_enabled(backward):
            maximum = motif_convolution(batch, weight, bias, implementation=implementation)
        return torch.autograd.grad(maximum, [weight, bias], maximum.detach()) if backward else maximum

    return run


def _count_table_rows(lengths: Tensor, kernel_size: int) -> int:
    """Return the number of table rows that the forward pass reads per kernel, for residues and for positions."""
    longest = int(lengths.max())
    of_length = [sum(min(kernel_size, n - p) + 1 for p in range(n)) for n in range(longest + 1)]
    return int(torch.tensor(of_length)[lengths.cpu()].sum())


if __name__ == "__main__":
    main()
