"""Multiple-instance data sets: AUC of `HopfieldPooling` on bags of images, molecules or patches.

    python benchmarks/mil.py --data FOLDER --dataset elephant|fox|tiger|musk1|musk2|ucsb

Architecture, search space and protocol are those of the paper (lines 6864-6932): 10-fold cross-validation, repeated 5
times with different splits; in every fold the settings are chosen on inner validation folds of its training part. The
paper searched by hand. Here every outer fold

1. draws 8 settings from that space at random; pruned, see `SPACE` and `MOST_WEIGHTS`;
2. trains each on the first two of five inner folds and keeps the three with the best mean AUC;
3. trains these on the other three inner folds and ranks them by the mean AUC of all five;
4. trains these three once more, on the whole training part. `auc_single` is that of the first, one model.
   `auc_ensemble` averages the logits of these three models and of the 15 that the search has trained with their
   settings.

Everything that is estimated from data, including the moments for scaling, comes from the bags with which a model is
trained.
Letters: N instances of all bags end to end, F features, B bags.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch
from common import describe_machine
from mil_data import DATASETS, Bags, read_bags
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn
from torch.nn import functional

from deeprc.errors import InputError
from deeprc.hopfield import HopfieldPooling


@dataclass(frozen=True)
class Setting:
    """Settings that are chosen on inner folds; comments have the names in the paper's table."""

    learning_rate: float = 1e-3  # learning rates
    decay: float = 0.98  # learning rate decay, per epoch
    layers: int = 1  # embedding layers
    width: int = 64  # layer widths
    heads: int = 8  # number of heads
    key_dim: int = 16  # head dimensions
    beta: float = 0.1  # scaling factors
    hidden: int = 64  # hidden dimensions
    bag_dropout: float = 0.75  # bag dropout
    batches: int = 2  # per epoch; the paper tried batch sizes, but does not say which


SPACE: dict[str, tuple[Any, ...]] = {
    "learning_rate": (1e-3, 2e-3),  # not 1e-5: its AUC on inner folds is 0.57 to 0.63
    "decay": (0.98, 0.96, 0.94),
    "layers": (1, 2, 3),
    "width": (32, 64, 256),  # not 1024, 2048: three times the time or more, and no better
    "heads": (8, 12, 16, 32),
    "key_dim": (16, 32, 64),
    "beta": (0.1, 1.0, 10.0),
    "hidden": (32, 64, 128),
    "bag_dropout": (0.75,) * 7 + (0.0,),
    "batches": (2,),
}
MOST_WEIGHTS = 1 << 16  # limit of the maps W_K and W_V, width x heads x key_dim; larger ones take most of the time
WEIGHT_DECAY = 0.01


class MilNetwork(nn.Module):
    """The network: linear and ReLU layers for instances, `HopfieldPooling` of each bag, linear layers to a logit."""

    def __init__(self, n_features: int, setting: Setting) -> None:
        super().__init__()
        dims = [n_features] + [setting.width] * setting.layers
        blocks = [nn.Sequential(nn.Linear(*pair), nn.ReLU()) for pair in pairwise(dims)]
        self.embedding = nn.Sequential(*blocks)
        self.pooling = HopfieldPooling(
            setting.width, n_heads=setting.heads, key_dim=setting.key_dim, beta=setting.beta, normalisation="inputs"
        )
        self.output = nn.Sequential(
            nn.ReLU(), nn.Linear(setting.width, setting.hidden), nn.ReLU(), nn.Linear(setting.hidden, 1)
        )

    def forward(self, features: Tensor, offsets: Tensor) -> Tensor:
        """Return one logit per bag, (B,), from instances end to end (N, F) and offsets (B + 1,)."""
        pooled = self.pooling(self.embedding(features), offsets=offsets)  # (B, 1, width)
        logits: Tensor = self.output(pooled).flatten()
        return logits


class Model:
    """A trained network, with the moments of its training bags for scaling."""

    def __init__(self, bags: Bags, setting: Setting) -> None:
        mean, deviation = bags.features.mean(axis=0), bags.features.std(axis=0)
        self.varies = deviation > 1e-6 * (1 + np.abs(mean))
        self.mean, self.deviation = mean[self.varies], deviation[self.varies]
        self.network = MilNetwork(int(self.varies.sum()), setting)

    def standardise(self, bags: Bags) -> Bags:
        """Return bags with standardised features; features that are constant in the training bags are left out."""
        features = (bags.features[:, self.varies] - self.mean) / self.deviation
        return Bags(features, bags.offsets, bags.labels)

    @torch.no_grad()
    def logits(self, bags: Bags) -> NDArray[np.float32]:
        """Return one logit per bag, (B,)."""
        scaled = self.standardise(bags)
        return self.network(torch.from_numpy(scaled.features), torch.from_numpy(scaled.offsets)).numpy()


def train(bags: Bags, setting: Setting, *, epochs: int, seed: int) -> Model:
    """Train a model on all bags for a number of epochs."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Model(bags, setting)
    scaled = model.standardise(bags)
    network = model.network
    optimiser = torch.optim.AdamW(network.parameters(), lr=setting.learning_rate, weight_decay=WEIGHT_DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, setting.decay)
    for _ in range(epochs):
        for features, offsets, labels in _iterate_batches(scaled, setting, rng):
            loss = functional.binary_cross_entropy_with_logits(network(features, offsets), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return model


def draw_kept_instances(offsets: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return whether each instance is kept, (N,): a share is left out at random, but never all instances of a bag."""
    numbers = rng.random(offsets[-1])
    largest = np.maximum.reduceat(numbers, offsets[:-1])  # (B,)
    return (numbers >= share) | (numbers == np.repeat(largest, np.diff(offsets)))


def _iterate_batches(bags: Bags, setting: Setting, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Shuffle the bags, drop instances, and yield features, offsets and labels of each batch."""
    keep = draw_kept_instances(bags.offsets, setting.bag_dropout, rng)
    shuffled = bags.select(rng.permutation(len(bags)), keep)
    features, offsets, labels = (
        torch.from_numpy(array) for array in (shuffled.features, shuffled.offsets, shuffled.labels)
    )
    parts = np.linspace(0, len(bags), setting.batches + 1).astype(int)
    for first, last in pairwise(parts):
        start, end = int(offsets[first]), int(offsets[last])
        yield features[start:end], offsets[first : last + 1] - start, labels[first:last]


def draw_settings(n_settings: int, rng: np.random.Generator) -> list[Setting]:
    """Draw settings from the space at random, without those with larger maps than `MOST_WEIGHTS`."""
    settings: list[Setting] = []
    while len(settings) < n_settings:
        setting = Setting(**{name: values[rng.integers(len(values))] for name, values in SPACE.items()})
        if setting.width * setting.heads * setting.key_dim <= MOST_WEIGHTS:
            settings.append(setting)
    return settings


@dataclass(frozen=True)
class Plan:
    """Numbers of repeats, folds, settings and epochs."""

    repeats: int = 5  # of the outer cross-validation, with different splits
    folds: int = 10  # outer
    settings: int = 8  # drawn per outer fold
    inner_folds: int = 5
    first_folds: int = 2  # inner folds that all settings are trained on
    survivors: int = 3  # settings that are trained on the other inner folds
    averaged: int = 3  # settings of the ensemble
    epochs: int = 160
    seed: int = 0


@dataclass
class Candidate:
    """A setting in the search: its models, and their AUCs on the inner folds."""

    setting: Setting
    models: list[Model]
    aucs: list[float]

    @property
    def mean_auc(self) -> float:
        """Mean AUC over the inner folds so far."""
        return float(np.mean(self.aucs))


def search(bags: Bags, plan: Plan, seed: Sequence[int]) -> list[Candidate]:
    """Choose settings by successive halving on inner folds, and return the survivors, best first."""
    settings = draw_settings(plan.settings, np.random.default_rng(seed))
    candidates = [Candidate(setting, [], []) for setting in settings]
    for number, (inner, validation) in enumerate(split_folds(bags.labels, plan.inner_folds, _derive_seed(*seed))):
        if number == plan.first_folds:
            candidates = sorted(candidates, key=lambda c: -c.mean_auc)[: plan.survivors]
        part, held_out = bags.select(inner), bags.select(validation)
        for candidate in candidates:
            model = train(part, candidate.setting, epochs=plan.epochs, seed=_derive_seed(*seed, number))
            candidate.models.append(model)
            candidate.aucs.append(float(roc_auc_score(held_out.labels, model.logits(held_out))))
    return sorted(candidates, key=lambda c: -c.mean_auc)


def split_folds(
    labels: NDArray[np.float32], n_folds: int, seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the training and test bags of each stratified fold."""
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    return list(folds.split(np.zeros(len(labels)), labels))


def _derive_seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


@dataclass(frozen=True)
class FoldResult:
    """The result of one outer fold."""

    repetition: int
    test: NDArray[np.int64]  # bags
    single: NDArray[np.float32]  # logits of the test bags
    ensemble: NDArray[np.float32]
    chosen: Setting
    inner_auc: float
    cpu_seconds: float


def run_fold(bags: Bags, plan: Plan, repetition: int, fold: int) -> FoldResult:
    """Choose settings on the training part of an outer fold, train with them, and score its test bags."""
    started = time.process_time()
    training, test = split_folds(bags.labels, plan.folds, _derive_seed(plan.seed, repetition))[fold]
    seed = (plan.seed, repetition, fold)
    part, held_out = bags.select(training), bags.select(test)
    best = search(part, plan, seed)[: plan.averaged]
    final = [train(part, c.setting, epochs=plan.epochs, seed=_derive_seed(*seed, plan.inner_folds)) for c in best]
    models = final + [model for candidate in best for model in candidate.models]
    return FoldResult(
        repetition=repetition,
        test=test,
        single=final[0].logits(held_out),
        ensemble=np.mean([model.logits(held_out) for model in models], axis=0),
        chosen=best[0].setting,
        inner_auc=best[0].mean_auc,
        cpu_seconds=time.process_time() - started,
    )


def run_folds(bags: Bags, plan: Plan, workers: int) -> list[FoldResult]:
    """Run all outer folds of all repetitions, in processes of one thread each."""
    jobs = [(bags, plan, repetition, fold) for repetition in range(plan.repeats) for fold in range(plan.folds)]
    context = multiprocessing.get_context("spawn")
    results = []
    with ProcessPoolExecutor(workers, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        futures = [pool.submit(run_fold, *job) for job in jobs]
        with click.progressbar(futures, label="Outer folds", file=sys.stderr) as bar:
            results.extend(future.result() for future in bar)
    return results


def tabulate(labels: NDArray[np.float32], results: Sequence[FoldResult]) -> list[dict[str, Any]]:
    """Return the AUCs of each repetition, their mean and their standard deviation.

    `auc_*` is the mean of the folds' AUCs. `pooled_*` ranks the test bags of all folds together, which also compares
    logits of different models with each other.
    """
    rows: list[dict[str, Any]] = []
    for repetition in sorted({result.repetition for result in results}):
        own = [result for result in results if result.repetition == repetition]
        row: dict[str, Any] = {"repetition": str(repetition + 1)}
        for kind in ("single", "ensemble"):
            logits, truth = [getattr(result, kind) for result in own], [labels[result.test] for result in own]
            row[f"auc_{kind}"] = float(np.mean([roc_auc_score(*pair) for pair in zip(truth, logits, strict=True)]))
            row[f"pooled_{kind}"] = float(roc_auc_score(np.concatenate(truth), np.concatenate(logits)))
        rows.append(row)
    values = pd.DataFrame(rows).drop(columns="repetition")
    summary = {"mean": values.mean(), "spread": values.std(ddof=1)}
    return rows + [{"repetition": name, **row.to_dict()} for name, row in summary.items()]


def count_choices(results: Sequence[FoldResult]) -> dict[str, dict[str, int]]:
    """Count, for each parameter, in how many outer folds each value was chosen."""
    return {
        field.name: {
            f"{value:g}": count
            for value, count in sorted(Counter(getattr(r.chosen, field.name) for r in results).items())
        }
        for field in fields(Setting)
    }


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of the data sets' files.")
@click.option("--dataset", type=click.Choice(list(DATASETS)), required=True)
@click.option(
    "--repeats", default=Plan.repeats, type=click.IntRange(1), help="Number of repeats of the cross-validation."
)
@click.option("--folds", default=Plan.folds, type=click.IntRange(2), help="Number of outer folds.")
@click.option(
    "--settings",
    default=Plan.settings,
    type=click.IntRange(1),
    help="Number of settings that are drawn per outer fold.",
)
@click.option("--epochs", default=Plan.epochs, type=click.IntRange(1))
@click.option("--seed", default=Plan.seed, type=click.IntRange(0))
@click.option("--workers", default=2, type=click.IntRange(1), help="Number of processes, of one thread each.")
def main(data: Path, dataset: str, workers: int, **options: int) -> None:
    """Measure the AUC by nested cross-validation."""
    plan = Plan(**options)
    try:
        bags = read_bags(data, dataset)
        smallest = int(min(bags.labels.sum(), len(bags) - bags.labels.sum()))
        if plan.folds > smallest:
            raise InputError(f"--folds: expected at most {smallest}, the bags of the smaller class, found {plan.folds}")
    except InputError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from None
    started = time.perf_counter()
    results = run_folds(bags, plan, workers)
    wall = time.perf_counter() - started
    report(dataset, bags, plan, results, wall_seconds=wall, workers=workers)


def report(dataset: str, bags: Bags, plan: Plan, results: Sequence[FoldResult], **measured: float) -> None:
    """Print the table of AUCs, the chosen settings, and then all of this again as one JSON line."""
    rows = tabulate(bags.labels, results)
    chosen = count_choices(results)
    measured["cpu_seconds"] = sum(result.cpu_seconds for result in results)
    measured["inner_auc"] = float(np.mean([result.inner_auc for result in results]))
    print(pd.DataFrame(rows).to_string(index=False, float_format=lambda value: f"{value:.4f}"))
    print(f"\nchosen by the inner folds, of {len(results)} outer folds:")
    for name, counts in chosen.items():
        print(f"  {name}: " + ", ".join(f"{value} ({count})" for value, count in counts.items()))
    for name, value in measured.items():
        print(f"{name.replace('_', ' ')}: {value:,.4g}")
    about = {"dataset": dataset, "bags": len(bags), "instances": len(bags.features)}
    content = {"rows": rows, "chosen": chosen, "plan": asdict(plan), **measured}
    print(json.dumps({"benchmark": "mil", "machine": describe_machine(torch.device("cpu")), **about, **content}))


if __name__ == "__main__":
    main()
