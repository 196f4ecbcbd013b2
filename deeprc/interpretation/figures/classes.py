"""Classes of repertoires in texts and figures: their names and their index, which determines the colour.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.tasks import Task

__all__ = [
    "ALL_REPERTOIRES",
    "MOST_CLASSES",
    "choose_drawn_classes",
    "format_class_names",
    "index_classes",
    "index_drawn_classes",
]

MOST_CLASSES = 6
"""Largest number of classes in a figure. If there are more, all repertoires are drawn as one class."""

ALL_REPERTOIRES = "all repertoires"
"""Name of the only class in a figure that does not divide the repertoires into classes."""


def format_class_names(task: Task, labels: NDArray[np.float64]) -> list[str]:
    """Return the labels of a target, (B,), as text: the class or the number; "" if not known."""
    if task.kind == "regression":
        return ["" if np.isnan(value) else f"{value:g}" for value in labels.tolist()]
    return ["" if np.isnan(code) else task.class_names[int(code)] for code in labels.tolist()]


def index_classes(tasks: Sequence[Task]) -> dict[str, dict[str, int]]:
    """Return the index of each class among the classes of all targets, by target and class, for its colour.

    A number has the classes "lower" and "higher".
    """
    colours: dict[str, dict[str, int]] = {}
    for task in tasks:
        first = sum(map(len, colours.values()))
        names = ("lower", "higher") if task.kind == "regression" else task.class_names
        colours[task.name] = {name: first + i for i, name in enumerate(names)}
    return colours


def index_drawn_classes(tasks: Sequence[Task], task: Task, labels: NDArray[np.float64]) -> dict[str, int]:
    """Return the index of each class that `choose_drawn_classes` names; empty if all repertoires are one class.

    Parameters
    ----------
    tasks, task
        Tasks of all targets, and the task that is drawn.
    labels
        Labels of the repertoires, (B,).
    """
    colours = list(index_classes(tasks)[task.name].values())
    return {name: colours[number] for name, number in _assign_drawn_classes(task, labels) if name != ALL_REPERTOIRES}


def choose_drawn_classes(task: Task, ids: Sequence[str], labels: NDArray[np.float64]) -> dict[str, str]:
    """Return the class of each repertoire for figures, by its id, sorted by class.

    For a number, the classes are the lower and the higher half of the cohort. Repertoires without a label are left out.
    If no label is known, or if there are more than `MOST_CLASSES`, all repertoires are one class.

    Parameters
    ----------
    task
        Task of the target.
    ids, labels
        Ids and labels of the repertoires, (B,) each; NaN if a label is not known.
    """
    drawn = _assign_drawn_classes(task, labels)
    drawn_ids = [(number, str(name), text) for name, (text, number) in zip(ids, drawn, strict=True) if text]
    return {name: text for _, name, text in sorted(drawn_ids, key=lambda entry: entry[0])}


def _assign_drawn_classes(task: Task, labels: NDArray[np.float64]) -> list[tuple[str, int]]:
    """Return the name of each repertoire's class, "" if it is not drawn, and the index of the class."""
    known = ~np.isnan(labels)
    numbers = np.where(known, labels, 0)
    texts = format_class_names(task, labels)
    if task.kind == "regression" and known.any():
        middle = float(np.median(labels[known]))
        numbers = np.where(known, labels > middle, 0)
        halves = (f"{task.column} up to {middle:g}", f"{task.column} above {middle:g}")
        texts = [halves[int(above)] if is_known else "" for above, is_known in zip(numbers, known, strict=True)]
    if not 1 <= len({text for text in texts if text}) <= MOST_CLASSES:
        return [(ALL_REPERTOIRES, 0)] * len(labels)
    return list(zip(texts, numbers.astype(int).tolist(), strict=True))
