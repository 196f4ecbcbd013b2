"""Time to score whole repertoires, compared with the dense reference.

python benchmarks/inference.py [--device cuda] [--sequences 300000]
"""

from __future__ import annotations

from collections.abc import Callable

import click
import torch
from common import alternate, make_cohort, measure_copy_bandwidth, options, report, seconds_option

from deeprc.device import resolve_device
from deeprc.nn.batch import Collator
from deeprc.nn.inference import Inference
from deeprc.nn.motif_convolution import Implementation
from deeprc.nn.network import DeepRC


@click.command()
@options
@seconds_option
@click.option("--top-fraction", "fractions", multiple=True, default=(1.0, 0.1))
def main(device: str, kernels: tuple[int, ...], sequences: int, seconds: float, fractions: tuple[float, ...]) -> None:
    """Time the output of one repertoire, all sequences scored."""
    where = resolve_device(device)
    rows = []
    with make_cohort(1, sequences) as dataset:
        collator = Collator(dataset, "log1p")
        for n_kernels in kernels:
            for fraction in fractions:
                runs = {
                    name: _make_run(collator, n_kernels, fraction, implementation, where)
                    for name, implementation in (("ours", "compiled"), ("dense", "reference"))
                }
                median = alternate(runs, where, seconds=seconds)
                rows.append(
                    {
                        "kernels": n_kernels,
                        "top_fraction": fraction,
                        "ours_ms": 1e3 * median["ours"],
                        "dense_ms": 1e3 * median["dense"],
                        "ratio": median["dense"] / median["ours"],
                        "million_sequences_per_s": sequences / median["ours"] / 1e6,
                    }
                )
    report("inference", rows, where, copy_gb_per_s=measure_copy_bandwidth(where) / 1e9)


def _make_run(
    collator: Collator, n_kernels: int, fraction: float, implementation: Implementation, device: torch.device
) -> Callable[[], object]:
    """Return a function that computes the output of one repertoire."""
    torch.manual_seed(0)
    network = DeepRC(n_kernels=n_kernels, implementation=implementation).eval().to(device)
    inference = Inference(network, collator, fraction)
    return lambda: inference.compute_outputs([0])


if __name__ == "__main__":
    main()
