"""What is predicted: targets from metadata columns, and their labels.

Letters: B repertoires.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.errors import InputError

__all__ = [
    "Task",
    "TaskKind",
    "labels",
    "parse_tasks",
    "scaled_to",
]

logger = logging.getLogger(__name__)

TaskKind = Literal["binary", "multiclass", "regression"]

_SUFFIX = re.compile(r"^(?P<target>.*?)(?::(?P<kind>binary|multiclass|regression))?(?:@(?P<weight>[0-9.eE+-]+))?$")
_NEGATIVE = {"0", "-", "false", "f", "no", "n", "neg", "negative", "control", "healthy"}
_POSITIVE = {"1", "+", "true", "t", "yes", "y", "pos", "positive"}


@dataclass(frozen=True)
class Task:
    """One target: a metadata column and what is predicted of it.

    Attributes
    ----------
    name
        As the user wrote it, without kind and weight: `column` or `column=positive`.
    column
        The metadata column.
    kind
        `binary`, `multiclass` or `regression`.
    classes
        The classes as text. Binary: the negative ones, then the positive one. Regression: empty.
    weight
        Of the task's loss in the sum over tasks.
    mean, scale
        Regression targets are trained as (value - mean) / scale, in the training fold's units.
    """

    name: str
    column: str
    kind: TaskKind
    classes: tuple[str, ...] = ()
    weight: float = 1.0
    mean: float = 0.0
    scale: float = 1.0

    @property
    def negative(self) -> str:
        """What a binary target's other class is called: by its name, or where there are several, "not" the positive."""
        return self.classes[0] if len(self.classes) == 2 else f"not {self.classes[-1]}"

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the labels 0, 1, ... are called; empty for a regression target."""
        return (self.negative, self.classes[-1]) if self.kind == "binary" else self.classes

    @property
    def n_outputs(self) -> int:
        """The number of network outputs of the task."""
        return len(self.classes) if self.kind == "multiclass" else 1


def parse_tasks(targets: Sequence[str], metadata: pd.DataFrame, *, source: str = "the cohort") -> list[Task]:
    """Read the targets a user asked for and check them against the metadata.

    Parameters
    ----------
    targets
        `column`, `column=positive`, `column:regression`, `column:multiclass`; `@weight` may follow. Without a kind,
        a column with two classes is binary, its positive class the one that reads like it (1, +, yes, true, ...), else
        the last in sorted order.
    metadata
        One row per repertoire; missing labels are NaN or None.
    source
        Names the cohort in error messages.

    Raises
    ------
    InputError
        If a column or class does not exist, a target has one class, or classes were asked for as numbers.
    """
    if not targets:
        raise InputError(
            "no target was given; expected --target COLUMN, one of: " + ", ".join(map(str, metadata.columns))
        )
    tasks = [_parse_task(target, metadata, source) for target in targets]
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise InputError(f"a target was given twice: {', '.join(names)}")
    return tasks


def _parse_task(target: str, metadata: pd.DataFrame, source: str) -> Task:
    match = _SUFFIX.match(target)
    assert match is not None
    name, kind, weight = match["target"], match["kind"], 1.0
    if target in metadata:  # a column may be called like a target with kind and weight
        name, kind = target, None
    else:
        weight = _weight(match["weight"], target)
    column, positive = name, None
    if name not in metadata and "=" in name:
        column, positive = name.rsplit("=", 1)
    if column not in metadata:
        names = {str(c).casefold(): str(c) for c in metadata.columns}
        near = difflib.get_close_matches(column.casefold(), names, n=1)
        raise InputError(
            f"{source}: no metadata column {column!r} for --target {target!r}"
            + (f"; did you mean {names[near[0]]!r}?" if near else ".")
            + f" Columns: {', '.join(map(str, metadata.columns))}"
        )
    if kind == "regression":
        _check_numbers(column, metadata[column], source)
        different = metadata[column].nunique()
        if different < 2:
            raise InputError(f"{source}: target {column!r} has {different} different values; expected at least 2")
        return Task(name, column, "regression", (), weight)
    text = _as_text(metadata[column])
    found = sorted(value for value in set(text) if value is not None)
    if len(found) < 2:
        raise InputError(
            f"{source}: target {column!r} has {len(found)} class{'es' * (len(found) != 1)}"
            f" ({', '.join(found) or 'all labels are missing'}); expected at least 2"
        )
    if kind == "multiclass":
        return Task(name, column, "multiclass", tuple(found), weight)
    return Task(name, column, "binary", _binary_classes(column, positive, found, source), weight)


def _weight(text: str | None, target: str) -> float:
    try:
        weight = 1.0 if text is None else float(text)
    except ValueError:
        weight = -1.0
    if weight < 0:
        raise InputError(f"--target {target!r}: expected a weight of at least 0 after '@', found {text!r}")
    return weight


def _check_numbers(column: str, values: pd.Series[Any], source: str) -> None:
    known = values.dropna()
    if len(known) and not pd.api.types.is_numeric_dtype(known):
        raise InputError(f"{source}: target {column!r}: regression needs numbers, found for example {known.iloc[0]!r}")


def _binary_classes(column: str, positive: str | None, found: list[str], source: str) -> tuple[str, ...]:
    if positive is None:
        if len(found) > 2:
            raise InputError(
                f"{source}: target {column!r} has {len(found)} classes ({', '.join(found[:8])}"
                f"{', ...' * (len(found) > 8)}); say '{column}=CLASS', '{column}:multiclass' or '{column}:regression'"
            )
        likely = [value for value in found if value.lower() in _POSITIVE]
        unlikely = [value for value in found if value.lower() in _NEGATIVE]
        if len(likely) == 1:
            positive = likely[0]
        elif len(unlikely) == 1:
            positive = next(value for value in found if value != unlikely[0])
        else:
            positive = found[-1]
    if positive not in found:
        raise InputError(f"{source}: target {column!r} has no class {positive!r}; its classes: {', '.join(found[:20])}")
    return (*(value for value in found if value != positive), positive)


def _as_text(values: pd.Series[Any]) -> list[str | None]:
    """Return labels as text; whole numbers without their '.0', which a column with missing labels gets."""
    whole = pd.api.types.is_float_dtype(values) and bool((values.dropna() % 1 == 0).all())
    return [None if pd.isna(value) else str(int(value) if whole else value) for value in values]


def labels(tasks: Sequence[Task], metadata: pd.DataFrame) -> NDArray[np.float64]:
    """Return the labels, (B, number of tasks) float64: 0/1, the class's index or the number; NaN where missing.

    A class that the task was not made with, and text where it needs numbers, is no label: it is warned of, and missing.

    Raises
    ------
    InputError
        If the metadata lacks a column.
    """
    columns = []
    for task in tasks:
        if task.column not in metadata:
            raise InputError(f"no metadata column {task.column!r}, which the target {task.name!r} needs")
        values = metadata[task.column]
        if task.kind == "regression":
            columns.append(_number_labels(task, values))
        else:
            columns.append(_class_labels(task, _as_text(values)))
    return np.stack(columns, axis=1) if columns else np.zeros((len(metadata), 0))


def _class_labels(task: Task, text: list[str | None]) -> NDArray[np.float64]:
    index: dict[str | None, float] = {value: float(i) for i, value in enumerate(task.classes)}
    if task.kind == "binary":
        index = {value: float(value == task.classes[-1]) for value in task.classes}
    unknown = {value for value in text if value is not None} - index.keys()
    if unknown:
        logger.warning(
            "target %r: the class %r is none of %s; repertoires of such classes have no label",
            task.name,
            min(unknown),
            ", ".join(task.classes),
        )
    return np.array([index.get(value, np.nan) for value in text], np.float64)


def _number_labels(task: Task, values: pd.Series[Any]) -> NDArray[np.float64]:
    numbers = pd.to_numeric(values, errors="coerce")
    unusable = values[numbers.isna() & values.notna()]
    if len(unusable):
        logger.warning("target %r: %r is no number; such repertoires have no label", task.name, unusable.iloc[0])
    return numbers.to_numpy(np.float64, na_value=np.nan)


def scaled_to(tasks: Sequence[Task], training_labels: NDArray[np.float64]) -> list[Task]:
    """Return the tasks with the mean and scale of the training fold's labels, (B, number of tasks)."""
    scaled = []
    for task, values in zip(tasks, training_labels.T, strict=True):
        known = values[~np.isnan(values)]
        if task.kind == "regression" and len(known) > 1:
            task = replace(task, mean=float(known.mean()), scale=float(known.std()) or 1.0)
        scaled.append(task)
    return scaled
