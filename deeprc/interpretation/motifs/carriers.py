"""Who carries a pattern: repertoires and sequences of a whole cohort, by class.

Letters: B repertoires, M patterns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.splits import people, subject_column
from deeprc.interpretation.motifs.enrichment import fisher_log_p, p_of
from deeprc.interpretation.motifs.matching import count_carriers
from deeprc.interpretation.motifs.patterns import Masks
from deeprc.progress import track
from deeprc.tasks import Task
from deeprc.training.model import Model

__all__ = ["carriers_by_class", "cohort_counts", "people_p_value"]


def cohort_counts(dataset: RepertoireDataset, patterns: Sequence[Masks]) -> NDArray[np.int64]:
    """Return how many sequences of each repertoire carry each pattern, (B, M); one repertoire is read at a time."""
    counts = np.zeros((len(dataset), len(patterns)), np.int64)
    if not patterns:
        return counts
    for position in track(range(len(dataset)), "who carries the motifs", len(dataset)):
        repertoire = dataset[position]
        counts[position] = count_carriers(repertoire.residues, repertoire.offsets, patterns)
    return counts


def carriers_by_class(
    model: Model, dataset: RepertoireDataset, counts: NDArray[np.int64], *, output: int, group_by: str | None
) -> list[pd.DataFrame]:
    """Return for each pattern the table of its carriers by class of the output's target.

    Parameters
    ----------
    model, dataset
        The trained model, which knows the targets, and the cohort.
    counts
        How many sequences of each repertoire carry each pattern, (B, M), see `cohort_counts`.
    output
        The output whose target's classes are told apart.
    group_by
        The metadata column that says whose a repertoire is; None looks for one.

    Returns
    -------
    Tables as in `AttendedMotif.carriers`.
    """
    targets = [i for i, task in enumerate(model.tasks) for _ in range(task.n_outputs)]
    target = targets[output]
    classes = _classes(model.tasks[target], model.labels(dataset)[:, target])
    person = people(dataset.metadata, subject_column(dataset.metadata, group_by))
    is_repeated = len(np.unique(person)) < len(person)
    sizes = dataset.n_sequences
    tables = []
    for of_pattern in counts.T:
        rows = []
        for name, members in classes.items():
            n_with, n = of_pattern[members], sizes[members]
            share = float((n_with / np.maximum(n, 1)).mean()) if len(n) else np.nan
            rows.append((name, len(n), int((n_with > 0).sum()), int(n.sum()), int(n_with.sum()), share))
        names = ["class", "n_repertoires", "n_repertoires_with", "n_sequences", "n_sequences_with", "mean_share"]
        table = pd.DataFrame(rows, columns=names)
        tables.append(table.assign(**_by_people(of_pattern > 0, person, classes)) if is_repeated else table)
    return tables


def _by_people(
    carries: NDArray[np.bool_], person: NDArray[np.int64], classes: dict[str, NDArray[np.bool_]]
) -> dict[str, list[int] | list[float]]:
    """Return, for each class, how many people have a repertoire of it, and one that carries a pattern, and the test.

    Parameters
    ----------
    carries, person
        Whether each repertoire carries the pattern, and whose it is, (B,).
    classes
        The repertoires of each class, (B,).
    """
    labelled = np.any(list(classes.values()), axis=0)
    counts: dict[str, list[int] | list[float]] = {
        "n_people": [len(np.unique(person[own])) for own in classes.values()],
        "n_people_with": [len(np.unique(person[own & carries])) for own in classes.values()],
        "p_people": [people_p_value(carries, person, own, labelled & ~own) for own in classes.values()],
    }
    return counts


def people_p_value(
    carries: NDArray[np.bool_], person: NDArray[np.int64], own: NDArray[np.bool_], other: NDArray[np.bool_]
) -> float:
    """Return the p-value of an exact one-sided test that people of a class carry a pattern more often than others.

    People are independent, their repertoires are not. Where most people have repertoires of the class and others, it is
    McNemar's exact test of those people; else Fisher's exact test of the people who have repertoires of one kind only.

    Parameters
    ----------
    carries, person
        Whether each repertoire carries the pattern, and whose it is, (B,).
    own, other
        Whether it is of the class, or of another one, (B,).

    Returns
    -------
    NaN where there is nobody to compare.
    """
    in_own, in_other = set(person[own].tolist()), set(person[other].tolist())
    with_own, with_other = set(person[own & carries].tolist()), set(person[other & carries].tolist())
    paired = in_own & in_other
    if 2 * len(paired) > len(in_own | in_other):
        own_only, other_only = len(paired & (with_own - with_other)), len(paired & (with_other - with_own))
        return float(binom.sf(own_only - 1, own_only + other_only, 0.5))
    n, n_others = len(in_own - paired), len(in_other - paired)
    if not (n and n_others):
        return float("nan")
    n_with, others_with = np.array([[len(with_own - paired)], [len(with_other - paired)]], np.int64)
    return p_of(float(fisher_log_p(n_with, n, others_with, n_others)[0]))


def _classes(task: Task, labels: NDArray[np.float64]) -> dict[str, NDArray[np.bool_]]:
    """Return the repertoires of each class, by its name; a binary target's classes but the last are one."""
    if task.kind == "regression":
        return {"all": ~np.isnan(labels)}
    return {name: labels == c for c, name in enumerate(task.class_names)}
