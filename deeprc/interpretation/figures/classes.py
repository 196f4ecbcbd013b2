"""The classes of repertoires in texts and figures.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.tasks import Task

__all__ = ["MOST_CLASSES", "class_texts", "drawn_classes"]

MOST_CLASSES = 6
"""More are drawn as one."""

_EVERY = "all repertoires"


def class_texts(task: Task, labels: NDArray[np.float64]) -> list[str]:
    """Return the labels of a target, (B,), as text: the class, or the number; "" where it is not known."""
    if task.kind == "regression":
        return ["" if np.isnan(value) else f"{value:g}" for value in labels.tolist()]
    return ["" if np.isnan(code) else task.class_names[int(code)] for code in labels.tolist()]


def drawn_classes(task: Task, ids: Sequence[str], labels: NDArray[np.float64]) -> dict[str, str]:
    """Return the classes for figures: of each repertoire by its id, the classes in the order of their names.

    Of a number, which half of the cohort it is in. Repertoires without a label are left out. Where no label is known,
    and where there are more than `MOST_CLASSES`, all repertoires are one class.

    Parameters
    ----------
    task
        The target.
    ids, labels
        Of the repertoires, (B,); NaN where a label is not known.
    """
    known = ~np.isnan(labels)
    texts = class_texts(task, labels)
    if task.kind == "regression" and known.any():
        middle = float(np.median(labels[known]))
        texts = [f"{task.column} {'above' if value > middle else 'up to'} {middle:g}" for value in labels.tolist()]
    named = {str(name): text for name, text, is_known in zip(ids, texts, known, strict=True) if is_known}
    if not 1 <= len(set(named.values())) <= MOST_CLASSES:
        return {str(name): _EVERY for name in ids}
    return dict(sorted(named.items(), key=lambda item: item[1]))
