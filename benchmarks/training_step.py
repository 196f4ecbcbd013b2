"""Time of a whole update, from the draw of sequences to the step of the optimiser, compared with two other ways.

`dense` is our update with the dense reference of the convolution; `published` is that of the published network, which
always keeps a tenth of the sequences, whatever `--top-fraction` is.

python benchmarks/training_step.py [--device cuda] [--kernels 32 --kernels 128]
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import click
import numpy as np
import torch
from common import (
    alternate,
    make_cohort,
    measure_copy_bandwidth,
    measure_launch_seconds,
    options,
    report,
    seconds_option,
)
from published import make_published_update

from deeprc.config import Config, load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.device import resolve_device
from deeprc.tasks import Task
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.trainer import Trainer

TASKS = [Task("status", "status", "binary", ("control", "case"))]


@click.command()
@options
@seconds_option
@click.option("--top-fraction", "fractions", multiple=True, default=(0.1, 1.0))
@click.option("--repertoires", default=16)
def main(
    device: str,
    kernels: tuple[int, ...],
    sequences: int,
    seconds: float,
    fractions: tuple[float, ...],
    repertoires: int,
) -> None:
    """Time updates with 4 repertoires x 10,000 sequences."""
    where = resolve_device(device)
    rows = []
    with make_cohort(repertoires, sequences) as dataset:
        for n_kernels in kernels:
            for fraction in fractions:
                config = load_config("deeprc", {"n_kernels": n_kernels, "top_fraction": fraction, "abundance": "log1p"})
                trainers = {name: make_trainer(dataset, config, where) for name in ("ours", "dense")}
                trainers["dense"].network.embedding.implementation = "reference"
                runs = {name: make_update(one, dense=name == "dense") for name, one in trainers.items()}
                runs["published"] = make_published_update(dataset, encode_status(dataset), n_kernels, where)
                median = alternate(runs, where, seconds=seconds)
                drawn = trainers["ours"].batches.draw(0).sequences.n_sequences
                rows.append(
                    {
                        "kernels": n_kernels,
                        "top_fraction": fraction,
                        "ours_ms": 1e3 * median["ours"],
                        "dense_ms": 1e3 * median["dense"],
                        "ratio": median["dense"] / median["ours"],
                        "published_ms": 1e3 * median["published"],
                        "to_published": median["published"] / median["ours"],
                        "million_sequences_per_s": drawn / median["ours"] / 1e6,
                        **({} if where.type == "cuda" else time_parts(trainers["ours"])),
                    }
                )
    limits = {"copy_gb_per_s": measure_copy_bandwidth(where) / 1e9}
    if where.type == "cuda":
        limits["launch_us"] = 1e6 * measure_launch_seconds(where)
    report("training_step", rows, where, **limits)


def make_trainer(dataset: RepertoireDataset, config: Config, device: torch.device) -> Trainer:
    """Return a trainer that is ready for its updates."""
    fold = LabelledRepertoires(dataset, encode_status(dataset).double().numpy()[:, None])
    made = Trainer(config, TASKS, fold, fold, seed=0, device=device)
    made.network.train()
    return made


def encode_status(dataset: RepertoireDataset) -> torch.Tensor:
    """Return whether each repertoire is a case, (B,) float32: 1 or 0."""
    return torch.from_numpy((dataset.metadata["status"] == "case").to_numpy(np.float32))


def make_update(one: Trainer, *, dense: bool = False) -> Callable[[], object]:
    """Return a function that makes the next update of a trainer, like `Trainer.fit`."""
    update, number = one.make_update_function(capture=not dense), count()
    return lambda: update(next(number))


def time_parts(one: Trainer) -> dict[str, float]:
    """Return the milliseconds of the parts of an update, measured separately."""
    network, settings = one.network, one.config.training
    numbers = count()
    batch = one.batches.draw(0)
    functions = {
        "draw_ms": lambda: one.batches.draw(next(numbers)),
        "convolve_ms": torch.no_grad()(lambda: network.embedding(batch.sequences)),
        "score_ms": lambda: network.compute_logits(batch),
        "optimiser_ms": lambda: one.step.optimizer.step(),
    }
    if settings.top_fraction == 1:
        del functions["score_ms"]
    cpu = torch.device("cpu")
    return {name: 1e3 * alternate({name: function}, cpu, seconds=0.5)[name] for name, function in functions.items()}


if __name__ == "__main__":
    main()
