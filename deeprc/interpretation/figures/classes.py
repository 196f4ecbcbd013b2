"""The classes of repertoires in texts and figures.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.tasks import Task

__all__ = ["MOST_CLASSES", "class_places", "class_texts", "drawn_classes", "drawn_places"]

MOST_CLASSES = 6
"""More are drawn as one."""

_EVERY = "all repertoires"


def class_texts(task: Task, labels: NDArray[np.float64]) -> list[str]:
    """Return the labels of a target, (B,), as text: the class, or the number; "" where it is not known."""
    if task.kind == "regression":
        return ["" if np.isnan(value) else f"{value:g}" for value in labels.tolist()]
    return ["" if np.isnan(code) else task.class_names[int(code)] for code in labels.tolist()]


def class_places(tasks: Sequence[Task]) -> dict[str, dict[str, int]]:
    """Return the place of each class among the classes of all targets, by target and class; it decides the colour.

    A number has the classes "lower" and "higher".
    """
    places: dict[str, dict[str, int]] = {}
    for task in tasks:
        first = sum(map(len, places.values()))
        names = ("lower", "higher") if task.kind == "regression" else task.class_names
        places[task.name] = {name: first + i for i, name in enumerate(names)}
    return places


def drawn_places(tasks: Sequence[Task], task: Task, labels: NDArray[np.float64]) -> dict[str, int]:
    """Return the places of the classes that `drawn_classes` names; none where all repertoires are one class.

    Parameters
    ----------
    tasks, task
        All targets, and the one that is drawn.
    labels
        The ids of the repertoires, (B,).
    """
    place = list(class_places(tasks)[task.name].values())
    return {name: place[number] for name, number in _drawn(task, labels) if name != _EVERY}


def drawn_classes(task: Task, ids: Sequence[str], labels: NDArray[np.float64]) -> dict[str, str]:
    """Return the classes for figures: of each repertoire by its id, the classes in their order.

    The class of a number is the half of the cohort that it is in. Repertoires without a label are left out. If no label
    is known, or there are more than `MOST_CLASSES`, all repertoires are one class.

    Parameters
    ----------
    task
        The target.
    ids, labels
        The labels of the repertoires, (B,); NaN where a label is not known.
    """
    drawn = _drawn(task, labels)
    named = [(number, str(name), text) for name, (text, number) in zip(ids, drawn, strict=True) if text]
    return {name: text for _, name, text in sorted(named, key=lambda each: each[0])}


def _drawn(task: Task, labels: NDArray[np.float64]) -> list[tuple[str, int]]:
    """Return of each repertoire what its class is called, "" where it is not drawn, and the class's number."""
    known = ~np.isnan(labels)
    numbers = np.where(known, labels, 0)
    texts = class_texts(task, labels)
    if task.kind == "regression" and known.any():
        middle = float(np.median(labels[known]))
        numbers = np.where(known, labels > middle, 0)
        halves = (f"{task.column} up to {middle:g}", f"{task.column} above {middle:g}")
        texts = [halves[int(above)] if is_known else "" for above, is_known in zip(numbers, known, strict=True)]
    if not 1 <= len({text for text in texts if text}) <= MOST_CLASSES:
        return [(_EVERY, 0)] * len(labels)
    return list(zip(texts, numbers.astype(int).tolist(), strict=True))
