"""Who carries a pattern: repertoires and sequences of a whole cohort, by class.

Letters: B repertoires, M patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.run import Run
from deeprc.interpretation.motifs.matching import count_carriers
from deeprc.interpretation.motifs.patterns import Masks
from deeprc.tasks import Task

__all__ = ["carriers_by_class", "cohort_counts"]


def cohort_counts(
    dataset: RepertoireDataset, patterns: Sequence[Masks], *, progress: Callable[[int], object] | None = None
) -> NDArray[np.int64]:
    """Return how many sequences of each repertoire carry each pattern, (B, M); one repertoire is read at a time."""
    counts = np.zeros((len(dataset), len(patterns)), np.int64)
    for position in range(len(dataset)) if patterns else ():
        repertoire = dataset[position]
        counts[position] = count_carriers(repertoire.residues, repertoire.offsets, patterns)
        if progress is not None:
            progress(1)
    return counts


def carriers_by_class(
    run: Run,
    dataset: RepertoireDataset,
    patterns: Sequence[Masks],
    *,
    output: int,
    progress: Callable[[int], object] | None = None,
) -> list[pd.DataFrame]:
    """Return for each pattern the table of its carriers by class of the output's target; see `Motif.carriers`."""
    owners = [number for number, task in enumerate(run.tasks) for _ in range(task.n_outputs)]
    number = owners[output]
    classes = _classes(run.tasks[number], run.labels(dataset)[:, number])
    counts, sizes = cohort_counts(dataset, patterns, progress=progress), dataset.n_sequences
    tables = []
    for of_pattern in counts.T:
        rows = []
        for name, members in classes.items():
            n_with, n = of_pattern[members], sizes[members]
            share = float((n_with / np.maximum(n, 1)).mean()) if len(n) else np.nan
            rows.append((name, len(n), int((n_with > 0).sum()), int(n.sum()), int(n_with.sum()), share))
        names = ["class", "n_repertoires", "n_repertoires_with", "n_sequences", "n_sequences_with", "mean_share"]
        tables.append(pd.DataFrame(rows, columns=names))
    return tables


def _classes(task: Task, labels: NDArray[np.float64]) -> dict[str, NDArray[np.bool_]]:
    """Return the repertoires of each class, by its name; a binary target's classes but the last are one."""
    if task.kind == "regression":
        return {"all": ~np.isnan(labels)}
    return {name: labels == number for number, name in enumerate(task.class_names)}
