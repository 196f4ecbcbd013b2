"""Numbers for the figure of a cohort: sizes, lengths, genes and maps of its repertoires, with their classes.

Letters: B repertoires, L lengths.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import count_genes
from deeprc.errors import InputError
from deeprc.interpretation.cohort_maps import map_by_clones, map_by_kmers
from deeprc.interpretation.figures.classes import ALL_REPERTOIRES, choose_drawn_classes, index_drawn_classes
from deeprc.interpretation.figures.cohort import CohortNumbers
from deeprc.task_labels import encode_labels
from deeprc.tasks import parse_tasks

__all__ = ["compute_cohort_numbers"]


def compute_cohort_numbers(
    dataset: RepertoireDataset, target: str | None = None
) -> tuple[CohortNumbers, dict[str, int]]:
    """Return the numbers for the figure of a cohort, and the index of each class; see `draw_cohort_figure`.

    Parameters
    ----------
    dataset
        The cohort.
    target
        Text of the target that defines the classes, as for `deeprc train`; None puts all repertoires into one class.

    Raises
    ------
    InputError
        If the cohort has no sequences, or the target cannot be read, or no repertoire has a label for it.
    """
    if not dataset.n_sequences.any():
        raise InputError(f"{dataset.container.path}: has no sequences, so there is nothing to draw")
    classes, colour_of_class = _index_classes(dataset, target)
    points, variance = map_by_kmers(dataset)
    cohort_numbers = CohortNumbers(
        classes=classes,
        sizes=dataset.n_sequences,
        lengths=_compute_length_shares(dataset),
        genes={field: _compute_gene_shares(dataset, field) for field in dataset.gene_fields},
        by_clones=map_by_clones(dataset),
        by_kmers=points,
        variance=variance,
    )
    return cohort_numbers, colour_of_class


def _index_classes(dataset: RepertoireDataset, target: str | None) -> tuple[list[str], dict[str, int]]:
    """Return the class of each repertoire, and the index of each class in their order."""
    if target is None:
        return [ALL_REPERTOIRES] * len(dataset), {ALL_REPERTOIRES: 0}
    tasks = parse_tasks([target], dataset.metadata, source=str(dataset.container.path))
    known = encode_labels(tasks, dataset.metadata)[:, 0]
    if np.isnan(known).all():
        raise InputError(f"{dataset.container.path}: no repertoire has a label for {target}")
    ids = dataset.repertoire_ids.tolist()
    class_of_id = choose_drawn_classes(tasks[0], ids, known)
    classes = [class_of_id.get(str(repertoire_id), "") for repertoire_id in ids]
    colours = index_drawn_classes(tasks, tasks[0], known)
    return classes, {name: colours.get(name, 0) for name in dict.fromkeys(class_of_id.values())}


def _compute_length_shares(dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Return the share of sequences with each length in each repertoire, (B, L)."""
    counts = [np.bincount(repertoire.lengths) for repertoire in dataset]
    shares = np.zeros((len(counts), max(map(len, counts))))
    for row, n_by_length in zip(shares, counts, strict=True):
        row[: len(n_by_length)] = n_by_length / max(n_by_length.sum(), 1)
    return shares


def _compute_gene_shares(dataset: RepertoireDataset, field: str) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    counts, names = count_genes(dataset, field)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), names
