"""The labels of tasks, from the columns of the metadata.

Letters: B repertoires.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.calibration import compute_mean_and_scale
from deeprc.documents import abbreviate
from deeprc.errors import InputError, cut_name, join_names, quote
from deeprc.targets import format_class_counts, name_classes
from deeprc.tasks import COMPARE, LARGEST_NUMBER, Task

__all__ = ["describe_classes", "encode_labels", "set_label_scale"]

_logger = logging.getLogger(__name__)

_SHOWN_CLASSES = 20


def describe_classes(task: Task, metadata: pd.DataFrame) -> str:
    """Return a line that says which class of a binary target is positive, and how many repertoires each class has.

    If the negative class is all other values of the column, the line lists several of them: one may be a note such as
    `n.d.`. If the target does not name the class, the line also says how to choose the other class, unless its
    name is too long for a message.
    """
    values = encode_labels([task], metadata)[:, 0]
    n_positive, n_negative, n_missing = (int(mask.sum()) for mask in (values == 1, values == 0, np.isnan(values)))
    line = (
        f"target {quote(task.name)}: positive is {quote(task.positive)} ({n_positive} repertoires), negative "
        f"{quote(task.negative)} ({n_negative})"
    )
    if len(task.classes) - task.n_positive > 1 and not task.drops_others:
        line += f": {format_class_counts(metadata[task.column][values == 0])}"
    line += f"; {n_missing} have no label" if n_missing else ""
    other = f"{task.column}={task.negative}"
    if task.title == task.name or cut_name(other) != other:
        return line
    return f"{line}; to exchange the two classes: `target={shlex.quote(other)}`"


def encode_labels(tasks: Sequence[Task], metadata: pd.DataFrame) -> NDArray[np.float64]:
    """Return the labels, (B, number of tasks) float64: 0 or 1, the index of the class, or the number; NaN if missing.

    These count as missing, with a warning: a class that the task does not know; text, if the task needs numbers; in a
    regression, numbers whose size is above `LARGEST_NUMBER`.

    Raises
    ------
    InputError
        If the metadata lacks a column.
    """
    columns = []
    for task in tasks:
        if task.column not in metadata:
            raise InputError(f"no metadata column {quote(task.column)}, which the target {quote(task.name)} needs")
        values = metadata[task.column]
        if task.kind == "regression":
            columns.append(_encode_numeric_labels(task, values))
        elif task.comparison is not None:
            numbers = _encode_numeric_labels(task, values)
            positive = COMPARE[task.comparison](numbers, task.threshold)
            columns.append(np.where(np.isnan(numbers), np.nan, positive.astype(np.float64)))
        else:
            columns.append(_encode_class_labels(task, values))
    return np.stack(columns, axis=1) if columns else np.zeros((len(metadata), 0))


def _encode_class_labels(task: Task, values: pd.Series[Any]) -> NDArray[np.float64]:
    """Return the index of the class, or 1 and 0 for two classes, of each repertoire, (B,); NaN if it has no label."""
    text = name_classes(values, task.classes)
    index: dict[str | None, float] = {value: float(i) for i, value in enumerate(task.classes)}
    if task.kind == "binary":
        first_positive = len(task.classes) - task.n_positive
        index = {value: float(i >= first_positive) for i, value in enumerate(task.classes)}
    unknown = {value for value in text if value is not None} - index.keys()
    if unknown and not task.drops_others:
        _logger.warning(
            "target %s: the class %r is none of %s; repertoires of such classes have no label",
            *(quote(task.name), cut_name(min(unknown)), join_names(task.classes, _SHOWN_CLASSES)),
        )
    return np.array([index.get(value, np.nan) for value in text], np.float64)


def _encode_numeric_labels(task: Task, values: pd.Series[Any]) -> NDArray[np.float64]:
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    is_limited = task.kind == "regression"  # its labels have a mean; a comparison needs none
    usable = np.abs(numbers) <= (LARGEST_NUMBER if is_limited else np.inf)
    unusable = values[~usable & values.notna()]
    if len(unusable):
        _logger.warning(
            "target %s: %s is no number%s; such repertoires have no label",
            quote(task.name),
            abbreviate(unusable.tolist()[0]),
            f" from {-LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}" if is_limited else "",
        )
    return np.where(usable, numbers, np.nan)


def set_label_scale(tasks: Sequence[Task], training_labels: NDArray[np.float64]) -> list[Task]:
    """Return the tasks with the mean and scale of regression targets set from training labels, (B, number of tasks)."""
    scaled = []
    for task, values in zip(tasks, training_labels.T, strict=True):
        known = values[~np.isnan(values)]
        if task.kind == "regression" and len(known) > 1:
            mean, scale = compute_mean_and_scale(known)
            task = replace(task, mean=mean, scale=scale)
        scaled.append(task)
    return scaled
