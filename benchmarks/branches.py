"""Time and memory of branches: to learn them, and in addition to an update and to scoring.

python benchmarks/branches.py [--repertoires 100] [--sequences 25000] [--clones 1000]

The branches in updates and in scoring have the given size, which does not depend on the cohort: weights of all 4-mers
and genes, and stored clones, half of which also retrieve their neighbours. Scoring is timed twice: for a container in
which equal clones are merged, as `deeprc preprocess` writes it, and for one whose different clones have to be counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import torch
from common import alternate, report, seconds_option
from memory import measure_peak

from deeprc.branches.clones import CloneBranch
from deeprc.branches.clones_evidence import EvidenceLevel
from deeprc.branches.clones_fit import fit_clones
from deeprc.branches.clones_memory import Memory
from deeprc.branches.cohort import TrainingCohort
from deeprc.branches.composition import CompositionBranch
from deeprc.branches.composition_fit import fit_composition
from deeprc.config import load_config
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.distinct import count_distinct_clones
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.representations import compute_kmer_matrix
from deeprc.datasets.simulation import load_recipe
from deeprc.datasets.simulation.write import write_container
from deeprc.nn.branches import Branch
from deeprc.task_labels import encode_labels
from deeprc.tasks import parse_tasks
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.trainer import Trainer

CPU = torch.device("cpu")


@click.command()
@click.option("--repertoires", default=100)
@click.option("--sequences", default=25_000, help="Number of sequences of a repertoire.")
@click.option("--clones", default=1000, help="Number of clones in the branch that is timed.")
@seconds_option
def main(repertoires: int, sequences: int, clones: int, seconds: float) -> None:
    """Time learning, updates and scoring, and measure the memory of learning."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cohort.h5"
        changes = [f"n_repertoires={repertoires}", f"sizes.mean={sequences}", "background.kind=germline"]
        simulated, mapping = load_recipe("clones-100", changes)
        write_container(simulated, path, recipe=mapping)
        dataset = open_dataset(path)
        learning = _time_learning(dataset)
        trainers = {name: _make_trainer(dataset, clones, name == "with") for name in ("with", "without")}
        updates = {name: _make_updates(trainer) for name, trainer in trainers.items()}
        rows = [_compare_times("update", updates, seconds)]
        scoring = {name: _make_scoring(trainer, dataset) for name, trainer in trainers.items()}
        rows.append(_compare_times("scoring one repertoire, clones counted", scoring, seconds))
        dataset.container.preprocessing["merge"] = "genes"
        rows.append(_compare_times("scoring one repertoire, clones merged", scoring, seconds))
    report("branches", rows, CPU, **learning)


def _compare_times(case: str, functions: dict[str, Callable[[], object]], seconds: float) -> dict[str, object]:
    """Return a row with the times with and without branches, and their ratio."""
    median = {name: 1e3 * value for name, value in alternate(functions, CPU, seconds=seconds).items()}
    ratio = median["with"] / median["without"]
    return {"case": case, "with_ms": median["with"], "without_ms": median["without"], "ratio": ratio}


def _time_learning(dataset: RepertoireDataset) -> dict[str, float]:
    """Return the seconds of cached computations and of learning, and the megabytes of learning."""
    tasks = parse_tasks(["status"], dataset.metadata, source="the cohort")
    cohort = TrainingCohort(dataset, encode_labels(tasks, dataset.metadata), tasks)
    fields = dataset.gene_fields
    found: dict[str, float] = {}
    steps: dict[str, Callable[[], object]] = {
        "kmers": lambda: compute_kmer_matrix(dataset[:0]),
        "shared_clones": lambda: (find_shared_clones(dataset, fields), count_distinct_clones(dataset, fields)),
        "composition": lambda: fit_composition(cohort),
        "clones": lambda: fit_clones(cohort),
    }
    for name, step in steps.items():
        if name in ("composition", "clones"):
            step()  # compilation
        started = time.perf_counter()
        step()
        found[f"{name}_seconds"] = time.perf_counter() - started
        if name in ("composition", "clones"):
            found[f"{name}_mb"] = measure_peak(step, dataset, CPU) / 1e6
    return found


def _make_trainer(dataset: RepertoireDataset, n_clones: int, has_branches: bool) -> Trainer:
    """Return a trainer whose network has branches of the given size, or none."""
    tasks = parse_tasks(["status"], dataset.metadata, source="the cohort")
    fold = LabelledRepertoires(dataset, encode_labels(tasks, dataset.metadata))
    config = load_config("deeprc", {"composition": False, "clones": False})
    trainer = Trainer(config, tasks, fold, fold, seed=0, device=CPU)
    if has_branches:
        branches = [_make_composition_branch(dataset), _make_clone_branch(dataset, n_clones)]
        trainer.network.attach_branches(branches)
        trainer._use_branches()
        assert trainer._train_collator.branches is not None
        # as in a training, which has stored the scores of its training repertoires
        trainer._train_collator.branches.take(torch.arange(len(dataset)))
    trainer.network.train()
    return trainer


def _make_composition_branch(dataset: RepertoireDataset) -> Branch:
    """Return a branch with random weights of all 4-mers and genes."""
    genes = {name: calls.vocabulary for name, calls in dataset.container.sequences.genes.items()}
    branch = CompositionBranch(1, {name: tuple(filter(None, names)) for name, names in genes.items()})
    generator = torch.Generator().manual_seed(0)
    for buffer in branch.buffers():
        buffer.normal_(generator=generator)
    return branch


def _make_clone_branch(dataset: RepertoireDataset, n_clones: int) -> Branch:
    """Return a branch of stored clones of the cohort, half of which also retrieve their neighbours."""
    rows = np.random.default_rng(0).choice(len(dataset.container.sequences), n_clones, replace=False)
    clones = CloneSet(dataset.take_clones(np.sort(rows), dataset.gene_fields))
    memory = Memory(
        output=0,
        direction="up",
        kind="odds",
        levels=[EvidenceLevel(1.0, 1.0, np.array([1.0, 1000.0, 2.0, 1000.0]))],
        clones=clones,
        matches=np.arange(n_clones) % 2,  # EXACT and ONE_SUBSTITUTION
        carriers=np.ones((n_clones, 2), np.int64),
        tests=np.full((n_clones, 2), 0.01),
    )
    return CloneBranch.of([memory], 1)


def _make_updates(trainer: Trainer) -> Callable[[], object]:
    """Return a function that makes the next update of a trainer."""
    update, number = trainer.make_update_function(), iter(range(2**62))
    return lambda: update(next(number))


def _make_scoring(trainer: Trainer, dataset: RepertoireDataset) -> Callable[[], object]:
    """Return a function that computes the outputs of one whole repertoire."""
    model = replace(trainer.make_model(), pooled_value_cache=None)  # every call computes
    return lambda: model.make_inference(dataset[:1]).compute_outputs()


if __name__ == "__main__":
    main()
