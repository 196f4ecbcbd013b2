"""Tasks, which are targets with their kind and classes, and how they are made from the texts of targets.

`deeprc.task_labels` computes their labels.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from deeprc.calibration import IDENTITY, Calibration
from deeprc.errors import InputError, join_names, quote
from deeprc.targets import (
    Comparison,
    ParsedTarget,
    TaskKind,
    format_class_counts,
    format_labels,
    format_threshold,
    name_target,
    parse_target,
)

__all__ = ["COMPARE", "LARGEST_NUMBER", "Task", "TaskKind", "parse_tasks"]

LARGEST_NUMBER = 1e30
"""Largest number that can be predicted, and largest mean, scale and weight of a target."""

COMPARE: Mapping[Comparison, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
"""Functions that compare numbers with a threshold."""

_MAX_SHOWN_CLASSES = 6  # of a column that may be a target; only the number of more classes is shown
_MAX_NUMERIC_CLASSES = 10  # a column with more different numbers is hardly meant to have classes
_NEGATIVE = {"0", "-", "false", "f", "no", "n", "neg", "negative", "control", "healthy"}
_POSITIVE = {"1", "+", "true", "t", "yes", "y", "pos", "positive"}

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
        Texts of the targets, see `deeprc.targets`. If no kind is given, a column with two classes is binary. Its
        positive class is the one with a name such as 1, +, yes or true; if there is none, the last in sorted order.
    metadata
        Metadata with one row per repertoire; missing labels are NaN or None.
    source
        Name of the cohort for error messages.

    Raises
    ------
    InputError
        If a column or class does not exist, if a target has one class only or contradicts itself, if a column of text
        is to be predicted as numbers, or if outputs of two targets would have the same name in tables.
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
    target = parse_target(text, metadata, source=source)
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


def _make_regression_task(target: ParsedTarget, values: pd.Series[Any], source: str) -> Task:
    """Return the task of a number; raise InputError if the column has text or a single value."""
    _check_numbers(target.column, values, source, "regression")
    largest = float(values.dropna().astype(np.float64).abs().max())  # NaN if all are missing
    if largest > LARGEST_NUMBER:
        raise InputError(
            f"{source}: target {quote(target.column)}: regression needs numbers from {-LARGEST_NUMBER:g} to "
            f"{LARGEST_NUMBER:g}, found one of size {largest:g}"
        )
    if values.nunique() < 2:
        found = f"{source}: target {quote(target.column)} has {values.nunique()} different values"
        raise InputError(f"{found}; expected at least 2")
    return Task(target.column, target.column, "regression", (), target.weight)


def _make_class_task(target: ParsedTarget, metadata: pd.DataFrame, source: str) -> Task:
    """Return the task of classes that are values of the column; raise InputError if there are fewer than two."""
    values = metadata[target.column]
    class_names = sorted({value for value in format_labels(values) if value is not None})
    if len(class_names) < 2:
        raise InputError(
            f"{source}: target {quote(target.column)} has {'1 class' if class_names else '0 classes'} "
            f"({join_names(class_names, 1) or 'all labels are missing'}); expected at least 2"
        )
    if target.kind == "multiclass":
        return Task(target.column, target.column, "multiclass", tuple(class_names), target.weight)
    if target.positive:
        return _make_named_classes_task(target, class_names, metadata, source)
    positive = _guess_positive(target.column, class_names, values, source)
    classes = (*(value for value in class_names if value != positive), positive)
    return Task(target.column, target.column, "binary", classes, target.weight)


def _make_named_classes_task(
    target: ParsedTarget, class_names: Sequence[str], metadata: pd.DataFrame, source: str
) -> Task:
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


def _make_threshold_task(target: ParsedTarget, comparison: Comparison, metadata: pd.DataFrame, source: str) -> Task:
    """Return the binary task of a target such as `age>50`; raise InputError if all values are on one side."""
    values = metadata[target.column]
    _check_numbers(target.column, values, source, "a threshold")
    threshold = format_threshold(target.threshold)
    known = values.dropna()
    n_positive = int(COMPARE[comparison](known, target.threshold).sum())
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


def _guess_positive(column: str, class_names: Sequence[str], values: pd.Series[Any], source: str) -> str:
    """Return the positive one of two classes, guessed by their names."""
    if len(class_names) > 2:
        is_number = pd.api.types.is_numeric_dtype(values)
        if is_number and len(class_names) > _MAX_NUMERIC_CLASSES:
            found = f"{len(class_names)} different numbers, from {values.min():g} to {values.max():g}"
            advice = f"'{column}:regression' to predict the number, or '{column}>NUMBER' for two classes, in quotes"
            raise InputError(f"{source}: target {quote(column)} has {found}; say {advice}")
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
