"""Cohorts with clones that go with a label, whose carriers are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.branches.cohort import TrainingCohort
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.tasks import Task

Clone = tuple[str, str, str]
N_ASSOCIATED = 10
STATUS = Task("status", "status", "binary", ("0", "1"))


def write_repertoires(
    path: Path,
    repertoires: list[list[Clone]],
    fields: int = 2,
    *,
    metadata: pd.DataFrame | None = None,
    ids: Sequence[str] | None = None,
) -> RepertoireDataset:
    """Write clones of sequence, V gene and J gene, with the first `fields` of the genes; the ids are r0, r1 ..."""
    if metadata is None:
        metadata = pd.DataFrame({"number": np.arange(len(repertoires))})
    with ContainerWriter(path) as writer:
        for name, clones in zip(ids or [f"r{number}" for number in range(len(repertoires))], repertoires, strict=True):
            sequences = Sequences.encode([each[0] for each in clones])
            names = ("v_call", "j_call")[:fields]
            genes = {name: Categorical.encode([each[at + 1] for each in clones]) for at, name in enumerate(names)}
            writer.append(name, sequences.with_genes(genes))
        writer.finish(metadata, source="a test")
    return open_dataset(path)


def draw_repertoires(
    seed: int,
    labels: np.ndarray,
    *,
    rates: tuple[float, float] = (0.1, 0.6),
    n_associated: int = 10,
    variants: float = 0.0,
) -> list[list[Clone]]:
    """Return repertoires with private clones, a pool of public ones, and associated ones with these rates by label.

    A carrier of an associated clone has, with the probability `variants`, a variant with one substitution.
    """
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(99)
    letters = list("ACDEFGHIKLMNPQRSTVWY")
    pool = [("".join(fixed.choice(letters, 9)), f"TRBV{i % 3}", f"TRBJ{i % 2}") for i in range(60)]
    repertoires = []
    for label in labels:
        clones = [("".join(rng.choice(letters, 11)), "TRBV1", "TRBJ1") for _ in range(rng.integers(20, 60))]
        for i, (junction, v, j) in enumerate(pool):
            if rng.random() < (rates[int(label)] if i < N_ASSOCIATED else 0.2):
                if i < N_ASSOCIATED and rng.random() < variants:
                    at = int(rng.integers(9))
                    others = [letter for letter in letters if letter != junction[at]]
                    junction = junction[:at] + str(rng.choice(others)) + junction[at + 1 :]
                clones.append((junction, v, j))
        repertoires.append([clones[i] for i in rng.permutation(len(clones))])
    return repertoires


def draw_groups(seed: int, labels: np.ndarray) -> list[list[Clone]]:
    """Return repertoires with ten groups of sequences that differ in the fifth residue, each in 0.1 or 0.7 by label."""
    rng, letters = np.random.default_rng(seed), list("ACDEFGHIKLMNPQRSTVWY")
    repertoires = draw_repertoires(seed, labels, rates=(0.2, 0.2))
    for own, label in zip(repertoires, labels, strict=True):
        groups = np.flatnonzero(rng.random(10) < (0.7 if label else 0.1))
        own += [(f"CASS{rng.choice(letters)}{letters[group]}WHEQYF", "TRBV1", "TRBJ1") for group in groups]
    return repertoires


def draw_chains(seed: int, labels: np.ndarray) -> list[list[Clone]]:
    """Return repertoires with ten clusters, each in 0.1 or 0.6 of them by label, with three sequences of it.

    Sequences of a cluster have the sixth and seventh residue in common, and any of ten before and after these two.
    """
    rng, letters = np.random.default_rng(seed), list("ACDEFGHIKL")
    repertoires = draw_repertoires(seed, labels, rates=(0.2, 0.2))
    for own, label in zip(repertoires, labels, strict=True):
        for cluster in np.flatnonzero(rng.random(10) < (0.6 if label else 0.1)):
            for before, after in rng.choice(letters, (3, 2)):
                own.append((f"CASS{before}{letters[cluster] * 2}{after}HEQYF", "TRBV1", "TRBJ1"))
    return repertoires


def make_cohort(dataset: RepertoireDataset, labels: np.ndarray, *tasks: Task) -> TrainingCohort:
    """Return training repertoires with labels of a task each, (B,) or (B, tasks)."""
    values = np.asarray(labels, np.float64).reshape(len(dataset), -1)
    return TrainingCohort(dataset, values, tasks or (STATUS,))
