"""Labels for the search for motifs, with one column for each output of the network.

Letters: B repertoires, n of them with a label, T' outputs of one task, P permutations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from deeprc.arrays import Floats
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.outputs import get_output_slices
from deeprc.permutations import permute_labels
from deeprc.tasks import Task
from deeprc.training.kmer_correlations import weigh_by_size
from deeprc.training.labelled_repertoires import LabelledRepertoires

__all__ = ["MIN_MEMBERS", "SearchOutputs", "iterate_search_outputs", "make_search_output", "make_search_outputs"]


MIN_MEMBERS = 6
"""Smallest number of donors of a class, and of the other classes together."""

_MAX_OUTPUTS = 4  # outputs whose correlations are computed together


@dataclass(frozen=True)
class SearchOutputs:
    """Some outputs of one task, with the labels that frequencies are correlated with.

    Attributes
    ----------
    dataset
        The n repertoires with a known label.
    donors
        Index of each repertoire's donor, (n,), from 0 in the order in which donors first occur.
    labels
        Labels, one column per output, (n, T').
    outputs
        Indices of the outputs among those of all tasks, (T',).
    """

    dataset: RepertoireDataset
    donors: NDArray[np.int64]
    labels: Floats
    outputs: list[int]

    @property
    def n_donors(self) -> int:
        """Number of donors."""
        return int(self.donors.max(initial=-1)) + 1

    def take(self, columns: Sequence[int]) -> SearchOutputs:
        """Return some of the outputs."""
        return SearchOutputs(self.dataset, self.donors, self.labels[:, columns], [self.outputs[i] for i in columns])

    def permute_labels(self, n_permutations: int, rng: np.random.Generator) -> Floats:
        """Return the true labels, and permutations of them between donors, (n, T', 1 + P)."""
        return permute_labels(self.labels, self.dataset.n_sequences, self.donors, n_permutations, rng)

    def compute_weights(self, n_counted: NDArray[np.int64] | None = None) -> Floats:
        """Return the weights of repertoires, (n,), for frequencies among `n_counted` of their sequences; None: all."""
        sizes = self.dataset.n_sequences
        return weigh_by_size(sizes if n_counted is None else n_counted, sizes, self.donors)


def _find_known(repertoires: LabelledRepertoires, column: Floats) -> NDArray[np.int64]:
    """Return the positions of the repertoires that have a label in `column`, (B,), and at least one sequence, (n,)."""
    return np.flatnonzero(~np.isnan(column) & (repertoires.dataset.n_sequences > 0))


def make_search_output(
    repertoires: LabelledRepertoires, tasks: Sequence[Task], output: int
) -> tuple[SearchOutputs, NDArray[np.int64]]:
    """Return one output with its known labels, and the positions of the repertoires with these labels, (n,).

    `output` is its index among those of all tasks. Other parameters are those of `iterate_search_outputs`.
    """
    slices = get_output_slices(tasks)
    index = next(i for i, outputs in enumerate(slices) if output < outputs.stop)
    column = repertoires.labels[:, index]
    outputs_of_task = make_search_outputs(repertoires, tasks[index], slices[index], column)
    return outputs_of_task.take([output - slices[index].start]), _find_known(repertoires, column)


def make_search_outputs(repertoires: LabelledRepertoires, task: Task, outputs: slice, column: Floats) -> SearchOutputs:
    """Return the outputs of a task with its known labels, without empty repertoires, which have no information.

    Parameters
    ----------
    repertoires
        B repertoires with their labels.
    task, outputs, column
        Task, slice of its outputs among those of all tasks, and its labels, (B,), NaN if missing.
    """
    known = _find_known(repertoires, column)
    part = repertoires.take(known)
    labels = _make_output_columns(task, column[known])
    return SearchOutputs(part.dataset, part.index_donors(), labels, list(range(outputs.start, outputs.stop)))


def iterate_search_outputs(
    repertoires: LabelledRepertoires, tasks: Sequence[Task], min_donors: int
) -> Iterator[SearchOutputs]:
    """Yield all outputs with labels that vary, a few outputs of a task at a time.

    Parameters
    ----------
    repertoires
        Repertoires with their labels.
    tasks
        Tasks of the labels.
    min_donors
        Smallest number of donors with a label: a task with fewer is left out. A class is also left out if fewer than 6
        donors belong to it, or fewer than 6 do not.
    """
    for task, outputs, column in zip(tasks, get_output_slices(tasks), repertoires.labels.T, strict=True):
        outputs_of_task = make_search_outputs(repertoires, task, outputs, column)
        if outputs_of_task.n_donors < min_donors:
            continue
        columns = _find_searched_columns(task, outputs_of_task)
        for first in range(0, len(columns), _MAX_OUTPUTS):
            yield outputs_of_task.take(columns[first : first + _MAX_OUTPUTS])


def _find_searched_columns(task: Task, outputs_of_task: SearchOutputs) -> list[int]:
    """Return the columns of labels that vary, and that have enough donors inside and outside of their class."""
    labels, donors = outputs_of_task.labels, outputs_of_task.donors
    is_searched = np.ptp(labels, axis=0) > 0
    if task.kind != "regression":
        n_members, n_others = _count_donors(donors, labels == 1), _count_donors(donors, labels == 0)
        is_searched &= np.minimum(n_members, n_others) >= MIN_MEMBERS
    return np.flatnonzero(is_searched).tolist()


def _count_donors(donors: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the number of donors with a chosen repertoire, for each column of `chosen`, (n, T'): (T',)."""
    return np.array([len(np.unique(donors[column])) for column in chosen.T], np.int64)


def _make_output_columns(task: Task, labels: Floats) -> Floats:
    """Return one column for each output of a task, (n, T'): 1 for members of its class and 0 for others, or ranks.

    Ranks prevent that a single extreme number dominates a correlation.
    """
    if task.kind == "multiclass":
        return np.asarray(labels[:, None] == np.arange(len(task.classes)), np.float64)
    return np.asarray(rankdata(labels) if task.kind == "regression" else labels)[:, None]
