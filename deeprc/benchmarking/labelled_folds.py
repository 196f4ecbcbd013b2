"""The label and the fold of each repertoire of a benchmark: a number of folds, values of a column, or a file of folds.

Letters: B repertoires, F folds.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import shorten_message
from deeprc.errors import InputError, describe_names, quote
from deeprc.evaluation.folds_from_column import assign_folds_by_value, list_left_out_values
from deeprc.evaluation.parse_folds import parse_left_out_column
from deeprc.evaluation.splits import N_FOLDS, assign_folds
from deeprc.files import read_limited
from deeprc.tables import check_width
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task, parse_tasks

__all__ = ["LabelledFolds", "read_folds"]

_OTHER_FOLDS = "try fewer `folds`, another `seed`, or folds of your own"
_MAX_FILE_BYTES = 64 << 20
_FILE_COLUMNS = ("repertoire_id", "fold")
_MAX_DIGITS = 9  # of the number of a fold in a file, with zeros before it

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LabelledFolds:
    """The label and the fold of each repertoire for one target.

    Attributes
    ----------
    task
        Task of the target.
    labels
        Label of each repertoire, (B,): the index of the class, int64, -1 if missing or in no fold; for regression the
        number, float64, NaN if missing or in no fold.
    fold_of
        Index of the fold of each repertoire, (B,); -1 if it is in none.
    inner_fold_of
        Only if the values of a column are left out: inner folds of the other repertoires for each test fold, (F, B), of
        which the first is for validation. None: the fold after the test fold is for validation.
    """

    task: Task
    labels: NDArray[Any]
    fold_of: NDArray[np.int64]
    inner_fold_of: NDArray[np.int64] | None = None

    @classmethod
    def assign(cls, dataset: RepertoireDataset, target: str, options: BenchmarkOptions) -> LabelledFolds:
        """Return the labels of a target and the folds that the options ask for.

        Raises
        ------
        InputError
            If the target or the folds cannot be used, or a fold lacks a class.
        """
        source = str(dataset.container.path)
        (task,) = parse_tasks([target], dataset.metadata, source=source)
        if task.weight != 1:
            raise InputError(
                f"`target={target!r}`: a benchmark has one target, so a weight has no effect; leave out '@'"
            )
        float_labels = encode_labels([task], dataset.metadata)[:, 0]
        if isinstance(options.folds, int | np.integer):
            folds = _Folds.draw(dataset, task, int(options.folds), options)
        elif (column := parse_left_out_column(options.folds)) is not None:
            folds = _Folds.from_column(dataset, task, column, options)
        else:
            folds = _Folds.from_file(dataset, float_labels, Path(options.folds), options)
        for fold in range(folds.n_folds):
            folds.check_labels(fold, task, float_labels, source)
        fold_of = folds.fold_of
        if task.kind == "regression":
            labels: NDArray[Any] = np.where(fold_of < 0, np.nan, float_labels)
        else:
            labels = np.where(fold_of < 0, -1, np.nan_to_num(float_labels, nan=-1)).astype(np.int64)
        return cls(task=task, labels=labels, fold_of=fold_of, inner_fold_of=folds.inner_fold_of)

    @property
    def n_folds(self) -> int:
        """Number of folds, F."""
        return int(self.fold_of.max()) + 1

    def is_for_validation(self, test_fold: int) -> NDArray[np.bool_]:
        """Return whether each repertoire is for validation if a fold is for testing, (B,)."""
        if self.inner_fold_of is None:
            return np.asarray(self.fold_of == (test_fold + 1) % self.n_folds)
        return np.asarray(self.inner_fold_of[test_fold] == 0)


@dataclass(frozen=True, kw_only=True)
class _Folds:
    """Folds before their labels are checked.

    Attributes
    ----------
    fold_of, inner_fold_of
        As in `LabelledFolds`.
    n_folds
        Number of folds, F, also of those without any label.
    describe
        Function that returns the words for a fold in messages, such as "fold 1".
    advice
        Advice that an error gives if a fold lacks a class.
    """

    fold_of: NDArray[np.int64]
    n_folds: int
    inner_fold_of: NDArray[np.int64] | None = None
    describe: Callable[[int], str] = "fold {}".format
    advice: str = _OTHER_FOLDS

    @classmethod
    def draw(cls, dataset: RepertoireDataset, task: Task, n_folds: int, options: BenchmarkOptions) -> _Folds:
        """Return random folds."""
        group_by, source = options.group_by, str(dataset.container.path)
        fold_of = assign_folds(
            dataset.metadata, [task], n_folds=n_folds, group_by=group_by, seed=options.seed, source=source
        )
        return cls(fold_of=fold_of, n_folds=n_folds)

    @classmethod
    def from_column(cls, dataset: RepertoireDataset, task: Task, column: str, options: BenchmarkOptions) -> _Folds:
        """Return folds that are the values of a column, with the inner folds of the other repertoires."""
        source = str(dataset.container.path)
        fold_of = assign_folds_by_value(dataset.metadata, [task], column, group_by=options.group_by, source=source)
        values = list_left_out_values(dataset.metadata, column, source)
        return cls(
            fold_of=fold_of,
            n_folds=len(values),
            inner_fold_of=_assign_inner_folds(dataset, task, fold_of, len(values), options),
            describe=lambda fold: f"fold {fold} ({column}={values[fold]})",
            advice="join this value with another one, or remove its label to leave it out",
        )

    @classmethod
    def from_file(
        cls, dataset: RepertoireDataset, labels: NDArray[np.float64], path: Path, options: BenchmarkOptions
    ) -> _Folds:
        """Return the folds of a file, for the repertoires that have a label, (B,)."""
        if options.group_by is not None:
            raise InputError("`group_by`: cannot be combined with a file of folds, which says what is together")
        fold_in_file = read_folds(path, dataset.repertoire_ids)
        return cls(fold_of=np.where(np.isnan(labels), -1, fold_in_file), n_folds=int(fold_in_file.max()) + 1)

    def check_labels(self, fold: int, task: Task, labels: NDArray[np.float64], source: str) -> None:
        """Raise InputError if a fold lacks a class, or different numbers, among the labels of all repertoires, (B,)."""
        where = self.describe(fold)
        fold_labels = labels[self.fold_of == fold]
        n_different = len(np.unique(fold_labels))
        if task.kind == "binary" and n_different < 2:
            raise InputError(f"{source}: {where} has one class of {task.name!r} only; {self.advice}")
        if task.kind == "multiclass" and n_different < len(task.classes):
            absent = next(c for c in range(len(task.classes)) if not (fold_labels == c).any())
            raise InputError(
                f"{source}: {where} lacks the class {task.classes[absent]!r} of {task.name!r}; {self.advice}"
            )
        if task.kind == "regression" and n_different < 2:
            raise InputError(f"{source}: {where} has fewer than 2 different values of {task.name!r}; {self.advice}")


def _assign_inner_folds(
    dataset: RepertoireDataset, task: Task, fold_of: NDArray[np.int64], n_folds: int, options: BenchmarkOptions
) -> NDArray[np.int64]:
    """Return the inner folds of the other repertoires for each test fold, (F, B), of which fold 0 is for validation.

    It is the first one that has every class, and leaves every class for training: few donors may not suffice for all.
    """
    source, metadata = str(dataset.container.path), dataset.metadata
    labels = encode_labels([task], metadata)[:, 0]
    inner_fold_of = np.full((n_folds, len(dataset)), -1)
    for fold in range(n_folds):
        rest = np.flatnonzero((fold_of >= 0) & (fold_of != fold))
        where = f"{source}, without fold {fold}"
        inner = assign_folds(metadata.iloc[rest], [task], group_by=options.group_by, seed=options.seed, source=where)
        first = 0 if task.kind == "regression" else _find_fold_of_all_classes(inner, labels[rest])
        if first is None:
            raise InputError(
                f"{source}: without fold {fold}, no validation fold leaves every class of {task.name!r} for both "
                f"validation and training; {_OTHER_FOLDS}"
            )
        inner_fold_of[fold, rest] = (inner - first) % N_FOLDS
    return inner_fold_of


def _find_fold_of_all_classes(fold_of: NDArray[np.int64], labels: NDArray[np.float64]) -> int | None:
    """Return the first fold that has every class, while the other folds together have every class, too; else None.

    The arguments are the fold and the label of each of B repertoires.
    """
    n_classes = len(np.unique(labels))
    for fold in np.unique(fold_of).tolist():
        inside, outside = labels[fold_of == fold], labels[fold_of != fold]
        if len(np.unique(inside)) == len(np.unique(outside)) == n_classes:
            return int(fold)
    return None


def read_folds(path: Path, repertoire_ids: NDArray[np.object_]) -> NDArray[np.int64]:
    """Return the index of the fold of each repertoire, (B,), from a TSV file with `repertoire_id` and `fold`.

    A repertoire that the file does not list has -1.

    Raises
    ------
    InputError
        If the file cannot be read, lists an id twice or one that the cohort lacks, or its folds are not 0, 1, 2, ...
    """
    try:
        content = read_limited(
            path, limit=_MAX_FILE_BYTES, expected="a table of folds, a number, or leave-one-out:COLUMN"
        )
        check_width(path, content)
        table = pd.read_csv(io.BytesIO(content), sep="\t", dtype=str, keep_default_na=False)
        header = pd.read_csv(io.BytesIO(content), sep="\t", dtype=str, keep_default_na=False, header=None, nrows=1)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: cannot be read as a table: {shorten_message(error)}") from error
    _check_columns(header.iloc[0].tolist(), path)
    fold_of = _parse_folds(table, path, [str(repertoire_id) for repertoire_id in repertoire_ids])
    folds = np.unique(fold_of[fold_of >= 0])
    if len(folds) < 3 or folds[-1] != len(folds) - 1:
        raise InputError(
            f"{path}: expected at least 3 folds, numbered from 0 without gaps, found {folds.tolist()[:10]}"
        )
    if (fold_of < 0).any():
        without = [str(repertoire_id) for repertoire_id in np.asarray(repertoire_ids)[fold_of < 0]]
        _logger.warning("%s: no fold for %s: not used", path, describe_names(without, "repertoire", "repertoires"))
    return fold_of


def _check_columns(names: Sequence[str], path: Path) -> None:
    """Raise InputError unless each of the columns that are needed is there once."""
    for name in _FILE_COLUMNS:
        if name not in names:
            raise InputError(f"{path}: no column {name!r}; expected repertoire_id and fold, tab-separated")
        if (n := names.count(name)) > 1:
            raise InputError(f"{path}: expected one column {name!r}, found {n}")


def _parse_folds(table: pd.DataFrame, path: Path, repertoire_ids: Sequence[str]) -> NDArray[np.int64]:
    """Return the index of the fold of each repertoire, (B,), from a table of texts; -1 if the table lacks it."""
    index_of = {name: index for index, name in enumerate(repertoire_ids)}
    fold_of = np.full(len(index_of), -1)
    for row_number, (name, fold) in enumerate(zip(table["repertoire_id"], table["fold"], strict=True), start=2):
        if name not in index_of:
            raise InputError(f"{path}: row {row_number}: the cohort has no repertoire {quote(name)}")
        if fold_of[index_of[name]] >= 0:
            raise InputError(f"{path}: row {row_number}: repertoire {quote(name)} is listed twice")
        if not (fold.isascii() and fold.isdigit() and len(fold) <= _MAX_DIGITS):
            expected = f"a whole number from 0 to {10**_MAX_DIGITS - 1:,}"
            raise InputError(f"{path}: row {row_number}, column 'fold': expected {expected}, found {quote(fold)}")
        fold_of[index_of[name]] = int(fold)
    return fold_of
