"""Tasks, which are targets with their kind and classes, and their labels from the columns of the metadata.

Letters: B repertoires.
"""

from __future__ import annotations

import logging
import operator
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.calibration import IDENTITY, Calibration, compute_mean_and_scale
from deeprc.errors import InputError, quote
from deeprc.targets import (
    Comparison,
    Target,
    TaskKind,
    format_class_counts,
    format_labels,
    format_threshold,
    name_classes,
    name_target,
    read_target,
)

__all__ = [
    "LARGEST_NUMBER",
    "Task",
    "TaskKind",
    "describe_classes",
    "encode_labels",
    "parse_tasks",
    "set_label_scale",
]

LARGEST_NUMBER = 1e30
"""Largest number that can be predicted, and largest mean, scale and weight of a target."""

_logger = logging.getLogger(__name__)

_MAX_SHOWN_CLASSES = 6  # of a column that may be a target; only the number of more classes is shown
_NEGATIVE = {"0", "-", "false", "f", "no", "n", "neg", "negative", "control", "healthy"}
_POSITIVE = {"1", "+", "true", "t", "yes", "y", "pos", "positive"}

_COMPARE: Mapping[Comparison, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_OPPOSITE: Mapping[Comparison, Comparison] = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}


@dataclass(frozen=True)
class Task:
    """A target with its kind, classes and weight.

    Attributes
    ----------
    name
        Text of the target without kind and weight: `column`, `column=positive`, `column=a,b vs c` or `column>50`.
    column
        Metadata column.
    kind
        `binary`, `multiclass` or `regression`.
    classes
        Values of the column as text. For two classes: first the negative values, then the positive ones; with a
        threshold: the names of the negative and the positive class, such as `<=50` and `>50`. For regression: empty.
    weight
        Weight of the task's loss in the sum over tasks.
    mean, scale
        Mean and standard deviation of the labels of the training fold. A regression is trained with (label - mean) /
        scale.
    n_positive
        Number of positive values of a binary task; they are the last of `classes`.
    drops_others
        Whether repertoires with a value that is not in `classes` have no label, without a warning.
    comparison, threshold
        For a binary task over numbers: a number is positive if this comparison with the threshold is true.
    calibration
        Calibration of the outputs, fitted to the validation repertoires.
    """

    name: str
    column: str
    kind: TaskKind
    classes: tuple[str, ...] = ()
    weight: float = 1.0
    mean: float = 0.0
    scale: float = 1.0
    n_positive: int = 1
    drops_others: bool = False
    comparison: Comparison | None = None
    threshold: float = 0.0
    calibration: Calibration = IDENTITY

    @property
    def positive(self) -> str:
        """Name of a binary target's positive class: `severe`, `mild or moderate`, `>50`; "" for other targets."""
        if self.kind != "binary":
            return ""
        return " or ".join(self.classes[-self.n_positive :])

    @property
    def negative(self) -> str:
        """Name of a binary target's negative class; if this class is all other values, "not" and the positive class."""
        others, positive = self.classes[: -self.n_positive], self.classes[-self.n_positive :]
        if len(others) == 1 or self.drops_others:
            return " or ".join(others)
        return f"not {positive[0]}" if len(positive) == 1 else f"none of {', '.join(positive)}"

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the labels 0, 1, ...; empty for a regression target."""
        return (self.negative, self.positive) if self.kind == "binary" else self.classes

    @property
    def title(self) -> str:
        """Name of the target, to which `=` and the positive class are added if it lacks them: `age_group=young`."""
        is_complete = self.kind != "binary" or self.name != self.column
        return self.name if is_complete else f"{self.name}={self.positive}"

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs in columns: the target, or `target:class` for each class of a multiclass target."""
        return self._name_outputs(":")

    @property
    def predicted_names(self) -> tuple[str, ...]:
        """Names of the outputs in tables of predictions: the target, or `target=class` for each class."""
        return self._name_outputs("=")

    def _name_outputs(self, separator: str) -> tuple[str, ...]:
        if self.kind != "multiclass":
            return (self.name,)
        return tuple(f"{self.name}{separator}{class_name}" for class_name in self.classes)

    @property
    def n_outputs(self) -> int:
        """Number of network outputs of the task."""
        return len(self.classes) if self.kind == "multiclass" else 1


def parse_tasks(targets: Sequence[str], metadata: pd.DataFrame, *, source: str = "the cohort") -> list[Task]:
    """Return the tasks for the texts of targets, after checking them against the metadata.

    Parameters
    ----------
    targets
        Texts of the targets, see `deeprc.targets`. A column with two classes is binary if no kind is given; its
        positive class is the one with a name such as 1, +, yes or true, else the last in sorted order.
    metadata
        Metadata with one row per repertoire; missing labels are NaN or None.
    source
        Name of the cohort for error messages.

    Raises
    ------
    InputError
        If a column or class does not exist, a target has one class only, a column of text is to be predicted as
        numbers, a target contradicts itself, or tables could not distinguish two targets.
    """
    if not targets:
        raise InputError(f"no target was given; expected `target=COLUMN`, one of: {_describe_columns(metadata)}")
    tasks = [_parse_task(target, metadata, source) for target in targets]
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise InputError(f"a target was given twice: {', '.join(names)}")
    _refuse_equal_names(tasks)
    return tasks


def _refuse_equal_names(tasks: Sequence[Task]) -> None:
    """Raise InputError if outputs of two targets, such as a class of the first, have the same name in tables."""
    for names_by_task in ([task.predicted_names for task in tasks], [task.output_names for task in tasks]):
        task_of: dict[str, Task] = {}
        for task, names in zip(tasks, names_by_task, strict=True):
            for name in names:
                other = task_of.setdefault(name, task)
                if other is not task:
                    both = f"targets {other.name!r} and {task.name!r}"
                    raise InputError(f"{both}: tables would call an output of each {name!r}; leave out one of the two")


def _describe_columns(metadata: pd.DataFrame) -> str:
    """Return the columns that may be targets, with their classes; without names of repertoires and constant columns."""
    described = []
    for name, column in metadata.items():
        values = column.dropna()
        n_values, is_text = values.nunique(), not pd.api.types.is_numeric_dtype(values)
        if n_values < 2 or (is_text and n_values == len(values)):
            continue
        shown = format_class_counts(values) if n_values <= _MAX_SHOWN_CLASSES else f"{n_values} different values"
        described.append(f"{name}: {shown}")
    return "; ".join(described) or ", ".join(map(str, metadata.columns))


def _parse_task(text: str, metadata: pd.DataFrame, source: str) -> Task:
    """Return the task that the text of one target describes; raise InputError if it does not fit the metadata."""
    target = read_target(text, metadata, source=source)
    if target.weight > LARGEST_NUMBER:
        raise InputError(f"`target={text!r}`: expected a weight of at most {LARGEST_NUMBER:g}, found {target.weight:g}")
    cause = "a threshold makes" if target.comparison else "'=' makes" if target.positive else ""  # of two classes
    if cause and target.kind not in (None, "binary"):
        raise InputError(f"`target={text!r}`: {cause} two classes; leave out ':{target.kind}'")
    if target.kind == "regression":
        return _make_regression_task(target, metadata[target.column], source)
    if target.comparison is not None:
        return _make_threshold_task(target, target.comparison, metadata, source)
    return _make_class_task(target, metadata, source)


def _make_regression_task(target: Target, values: pd.Series[Any], source: str) -> Task:
    """Return the task of a number; raise InputError if the column has text or a single value."""
    _check_numbers(target.column, values, source, "regression")
    if values.nunique() < 2:
        found = f"{source}: target {quote(target.column)} has {values.nunique()} different values"
        raise InputError(f"{found}; expected at least 2")
    return Task(target.column, target.column, "regression", (), target.weight)


def _make_class_task(target: Target, metadata: pd.DataFrame, source: str) -> Task:
    """Return the task of classes that are values of the column; raise InputError if there are fewer than two."""
    values = metadata[target.column]
    class_names = sorted({value for value in format_labels(values) if value is not None})
    if len(class_names) < 2:
        raise InputError(
            f"{source}: target {quote(target.column)} has {len(class_names)} class{'es' * (len(class_names) != 1)}"
            f" ({', '.join(class_names) or 'all labels are missing'}); expected at least 2"
        )
    if target.kind == "multiclass":
        return Task(target.column, target.column, "multiclass", tuple(class_names), target.weight)
    if target.positive:
        return _make_named_classes_task(target, class_names, metadata, source)
    positive = _guess_positive(target.column, class_names, values, source)
    classes = (*(value for value in class_names if value != positive), positive)
    return Task(target.column, target.column, "binary", classes, target.weight)


def _make_named_classes_task(target: Target, class_names: Sequence[str], metadata: pd.DataFrame, source: str) -> Task:
    """Return the binary task of a target that names its positive classes, and perhaps its negative ones."""
    others = tuple(value for value in class_names if value not in target.positive)
    if not others:
        where = f"{source}: target {quote(target.column)}"
        raise InputError(f"{where}: all its classes are positive; expected at least one other class")
    return Task(
        name_target(target, metadata),
        target.column,
        "binary",
        (*(target.negative or others), *target.positive),
        target.weight,
        n_positive=len(target.positive),
        drops_others=bool(target.negative),
    )


def _make_threshold_task(target: Target, comparison: Comparison, metadata: pd.DataFrame, source: str) -> Task:
    """Return the binary task of a target such as `age>50`; raise InputError if all values are on one side."""
    values = metadata[target.column]
    _check_numbers(target.column, values, source, "a threshold")
    threshold = format_threshold(target.threshold)
    known = values.dropna()
    n_positive = int(_COMPARE[comparison](known, target.threshold).sum())
    if n_positive in (0, len(known)):
        limits = f", which are from {known.min():g} to {known.max():g}" if len(known) else ""
        raise InputError(
            f"{source}: target {quote(target.column)}: {'all' if n_positive else 'none'} of the {len(known)} known "
            f"values{limits}, {'are' if n_positive != 1 else 'is'} {comparison}{threshold}; expected some on each side"
        )
    return Task(
        name_target(target, metadata),
        target.column,
        "binary",
        (f"{_OPPOSITE[comparison]}{threshold}", f"{comparison}{threshold}"),
        target.weight,
        comparison=comparison,
        threshold=target.threshold,
    )


def _check_numbers(column: str, values: pd.Series[Any], source: str, purpose: str) -> None:
    known = values.dropna()
    if len(known) and not pd.api.types.is_numeric_dtype(known):
        example = known[pd.to_numeric(known, errors="coerce").isna()].head(1).tolist() or known.tolist()
        raise InputError(f"{source}: target {quote(column)}: {purpose} needs numbers, found for example {example[0]!r}")
    largest = float(known.astype(np.float64).abs().max()) if len(known) else 0.0
    if largest > LARGEST_NUMBER:
        raise InputError(
            f"{source}: target {quote(column)}: {purpose} needs numbers up to {LARGEST_NUMBER:g}, found {largest:g}"
        )


def _guess_positive(column: str, class_names: Sequence[str], values: pd.Series[Any], source: str) -> str:
    """Return the positive one of two classes, guessed by their names."""
    if len(class_names) > 2:
        is_number = pd.api.types.is_numeric_dtype(values)
        forms = [f"{column}=CLASS", f"{column}=CLASS vs CLASS", *([f"{column}>NUMBER"] if is_number else [])]
        forms += [f"{column}:multiclass", *([f"{column}:regression"] if is_number else [])]
        advice = f"{', '.join(map(repr, forms[:-1]))} or {forms[-1]!r}"
        raise InputError(
            f"{source}: target {quote(column)} has {len(class_names)} classes ({format_class_counts(values)}); say "
            f"{advice}, in quotes"
        )
    likely = [value for value in class_names if value.lower() in _POSITIVE]
    unlikely = [value for value in class_names if value.lower() in _NEGATIVE]
    if len(likely) == 1:
        return likely[0]
    if len(unlikely) == 1:
        return next(value for value in class_names if value != unlikely[0])
    return class_names[-1]


def describe_classes(task: Task, metadata: pd.DataFrame) -> str:
    """Return a line that says which class of a binary target is positive, and how many repertoires each class has.

    If the negative class is all other values of the column, the line lists several of them: one may be a note such as
    `n.d.`. If the target does not name the class, the line also says how to choose the other class.
    """
    values = encode_labels([task], metadata)[:, 0]
    n_positive, n_negative, n_missing = (int(mask.sum()) for mask in (values == 1, values == 0, np.isnan(values)))
    line = (
        f"target {task.name!r}: positive is {task.positive!r} ({n_positive} repertoires), negative {task.negative!r} "
        f"({n_negative})"
    )
    if len(task.classes) - task.n_positive > 1 and not task.drops_others:
        line += f": {format_class_counts(metadata[task.column][values == 0])}"
    line += f"; {n_missing} have no label" if n_missing else ""
    if task.title == task.name:
        return line
    other = shlex.quote(f"{task.column}={task.negative}")
    return f"{line}; to exchange the two classes: `target={other}`"


def encode_labels(tasks: Sequence[Task], metadata: pd.DataFrame) -> NDArray[np.float64]:
    """Return the labels, (B, number of tasks) float64: 0 or 1, the index of the class, or the number; NaN if missing.

    A class that the task does not know, and text where it needs numbers, count as missing, with a warning.

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
            columns.append(_encode_numeric_labels(task, values))
        elif task.comparison is not None:
            numbers = _encode_numeric_labels(task, values)
            positive = _COMPARE[task.comparison](numbers, task.threshold)
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
            "target %r: the class %r is none of %s; repertoires of such classes have no label",
            *(task.name, min(unknown), ", ".join(task.classes)),
        )
    return np.array([index.get(value, np.nan) for value in text], np.float64)


def _encode_numeric_labels(task: Task, values: pd.Series[Any]) -> NDArray[np.float64]:
    numbers = pd.to_numeric(values, errors="coerce")
    unusable = values[numbers.isna() & values.notna()]
    if len(unusable):
        _logger.warning("target %r: %r is not a number; such repertoires have no label", task.name, unusable.iloc[0])
    return numbers.to_numpy(np.float64, na_value=np.nan)


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
