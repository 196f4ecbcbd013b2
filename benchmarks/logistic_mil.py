"""Time of the training of `LogisticMIL`: its search for the highest 4-mer, compared with scoring all 4-mers.

python benchmarks/logistic_mil.py [--container FILE --target COLUMN] [--repertoires 60] [--sequences 100000]

A search finds the highest score of one repertoire with one set of weights. A training makes one search per repertoire,
epoch and restart. `all_us` is the time of numpy to score all 4-mers of a repertoire by a product with their features.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click
import numpy as np
from common import make_cohort, report
from torch import device

import deeprc
from deeprc.baselines.atchley import ATCHLEY_FACTORS
from deeprc.baselines.kmer_abundance import load_kmer_abundances
from deeprc.baselines.logistic_mil import LogisticMIL
from deeprc.datasets.dataset import RepertoireDataset

_ROUNDS = 20


@click.command()
@click.option(
    "--container", type=click.Path(path_type=Path), help="A container with two classes.  [default: random sequences]"
)
@click.option("--target", default="status", help="Metadata column of the container.")
@click.option("--repertoires", default=60, help="Number of repertoires of random sequences.")
@click.option("--sequences", default=100_000, help="Number of sequences of each of them.")
@click.option("--epochs", default=100, help="Number of epochs.")
@click.option("--restarts", default=32, help="Number of restarts for each class.")
def main(container: Path | None, target: str, repertoires: int, sequences: int, epochs: int, restarts: int) -> None:
    """Time both kinds of abundance, and some batch sizes and learning rates."""
    source: AbstractContextManager[RepertoireDataset] = (
        make_cohort(repertoires, sequences) if container is None else nullcontext(deeprc.open(container))
    )
    table = []
    with source as dataset:
        y = dataset.metadata[target].to_numpy()
        for abundance in ("4mer", "tcrb"):
            started = time.perf_counter()
            known = load_kmer_abundances(dataset, abundance)
            features = time.perf_counter() - started
            present = np.flatnonzero(known.highest[0] <= 0)
            factors = ATCHLEY_FACTORS[np.indices([20] * 4).reshape(4, -1).T].reshape(-1, 20)  # features of every 4-mer
            rows = np.hstack([factors[present], known.highest[0, present][:, None]])
            started = time.perf_counter()
            for _ in range(_ROUNDS):
                (rows @ np.ones(21)).max()
            everything = (time.perf_counter() - started) / _ROUNDS
            for size, rate in ((16, 1e-2), (4, 1e-2), (16, 1e-3)):
                model = LogisticMIL(abundance=abundance, batch_size=size, learning_rate=rate, n_restarts=restarts)
                model.set_params(n_epochs=1).fit(dataset[:4], np.arange(4) % 2)  # compilation
                started = time.perf_counter()
                model.set_params(n_epochs=epochs).fit(dataset, y)
                seconds = time.perf_counter() - started
                searches = len(dataset) * (epochs + 1) * len(model.training_loss_)
                table.append(
                    {
                        "abundance": abundance,
                        "batch_size": size,
                        "learning_rate": rate,
                        "distinct_4mers": len(present),
                        "features_s": features,
                        "seconds": seconds,
                        "search_us": 1e6 * seconds / searches,
                        "all_us": 1e6 * everything,
                        "training_loss": float(model.training_loss_.min()),
                    }
                )
                click.echo(" ".join(f"{key}={value}" for key, value in table[-1].items()), err=True)
    report("logistic_mil", table, device("cpu"))


if __name__ == "__main__":
    main()
