"""Assign repertoires to folds, and to the parts train, validation and test: stratified, grouped, seeded.

Letters: B repertoires.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from deeprc.errors import InputError, describe_missing_column, format_count
from deeprc.evaluation.adjustment import check_adjusted_columns, choose_comparable_rows, to_column_names
from deeprc.evaluation.donors import DonorColumn
from deeprc.groups import shuffle_groups
from deeprc.targets import format_class_counts, format_labels
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task

__all__ = [
    "HELD_OUT",
    "MAX_FOLDS",
    "NEW",
    "N_FOLDS",
    "PARTS",
    "Split",
    "SplitOptions",
    "adjust_split",
    "assign_folds",
    "assign_label_strata",
    "make_split",
]

PARTS = ("train", "validation", "test")
"""Names of the parts of a split."""

N_FOLDS = 5
"""Default number of folds of a training or a benchmark."""

MAX_FOLDS = 100_000
"""Largest number of folds. A file may name any number, and all folds are listed."""

NEW = "new"
"""Name of the part of a repertoire that is in none of train, validation and test."""

HELD_OUT = ("test", NEW)
"""Parts from which a model has not learned, and by which it was not chosen."""

_REGRESSION_BINS = 4
_MIN_KEPT = 5  # training repertoires of each class that an adjustment must leave

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Split:
    """Row indices of the repertoires of train, validation and test; no repertoire is in two of them."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]

    def ids(self, repertoire_ids: NDArray[np.object_]) -> dict[str, list[str]]:
        """Return the repertoire ids of each part of the split, by its name."""
        return {part: [str(i) for i in repertoire_ids[getattr(self, part)]] for part in PARTS}


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Options of the split of a cohort into training, validation and test.

    Attributes
    ----------
    folds, fold
        The number of folds, 3 to `MAX_FOLDS`, and the index of the fold for testing.
    validation_fold
        The index of the fold for validation; None: the fold after `fold`. It does not change the folds.
    group_by
        Column of the metadata; repertoires with the same value stay in one part. Each missing value is a group of its
        own.
    test
        `COLUMN=VALUE`: the repertoires with this value are for testing, instead of a fold. The folds are made of the
        repertoires with another value; all folds but the one for validation are for training. Repertoires without a
        value are in no part, because they might belong to the test part.
    adjust_for
        A column of the metadata, such as a batch, or several: training and validation repertoires are left out until
        they are not associated with the label, see `deeprc.evaluation.adjustment`.

    Raises
    ------
    InputError
        If `test` has no `=`, the number of folds is out of range, or the folds for testing and validation are not two
        of them.
    """

    folds: int = N_FOLDS
    fold: int = 0
    validation_fold: int | None = None
    group_by: str | None = None
    test: str | None = None
    adjust_for: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjust_for", to_column_names(self.adjust_for))
        folds, fold, validation_fold = self.folds, self.fold, self.validation_fold
        if not (3 <= folds <= MAX_FOLDS and 0 <= fold < folds):
            raise InputError(
                f"`folds={folds}` `fold={fold}`: expected 3 to {MAX_FOLDS:,} folds and a fold from 0 to folds - 1"
            )
        if self.test is not None and "=" not in self.test:
            raise InputError(f"`test={self.test}`: expected COLUMN=VALUE")
        tested = fold if self.test is None else None
        if validation_fold is not None and (not 0 <= validation_fold < folds or validation_fold == tested):
            other = "" if tested is None else f" other than `fold={fold}`"
            raise InputError(f"`validation_fold={validation_fold}`: expected a fold from 0 to {folds - 1}{other}")


def make_split(
    metadata: pd.DataFrame,
    tasks: list[Task],
    options: SplitOptions | None = None,
    *,
    seed: int = 0,
    source: str = "the cohort",
) -> Split:
    """Split a cohort into folds: one fold is for testing, one for validation, the others for training.

    Folds are stratified by the first target (numbers by quartile). A repertoire without a label is for training, except
    in two cases: its group is for testing or validation; or `options` name a test part, and it is in this part or has
    no value that would tell.

    Parameters
    ----------
    metadata
        The metadata, with one row per repertoire.
    tasks
        The targets that are predicted.
    options
        Options of the split; None: the defaults.
    seed
        Seed of the shuffling.
    source
        Name of the cohort in error messages.

    Raises
    ------
    InputError
        If a column or the value of the test part does not exist; a group is inside and outside of the test part; there
        are too few groups or repertoires of a class; or `adjust_split` raises it.
    """
    options = options or SplitOptions()
    fold, group_by = options.fold, options.group_by
    validation_fold = (fold + 1) % options.folds if options.validation_fold is None else options.validation_fold
    test_part = _find_test_part(metadata, options.test, source)
    _log_unknown_values(test_part, options.test)
    is_test = test_part.is_test
    rest = np.flatnonzero(~is_test & test_part.has_value)
    fold_of = _assign_folds_of_rest(rest, metadata, tasks, options, seed=seed, source=source)
    label_strata = assign_label_strata(tasks[0], metadata)
    groups = DonorColumn.require(metadata, group_by, source).index()
    if group_by is not None and set(groups[is_test]) & set(groups[rest]):
        raise InputError(f"{source}: `test={options.test}` divides repertoires that {group_by!r} keeps together")
    test = np.flatnonzero(fold_of == fold if options.test is None else is_test & (label_strata >= 0))
    validation = np.flatnonzero(fold_of == validation_fold)
    others = np.setdiff1d(rest, np.concatenate([test, validation]))
    groups_held_out = set(groups[test]) | set(groups[validation]) if group_by is not None else set()
    train = _drop_unlabelled(others, label_strata, groups, groups_held_out)
    split = Split(train, validation, test)
    _warn_of_single_class_parts(split, label_strata, tasks[0], options.test)
    return adjust_split(
        split, metadata, tasks, options.adjust_for, groups, seed=(seed, fold, validation_fold), source=source
    )


def _assign_folds_of_rest(
    rest: NDArray[np.int64],
    metadata: pd.DataFrame,
    tasks: list[Task],
    options: SplitOptions,
    *,
    seed: int,
    source: str,
) -> NDArray[np.int64]:
    """Return the fold of each repertoire, (B,): -1 for those that are not among the rows `rest`, or have no label."""
    fold_of = np.full(len(metadata), -1)
    divided = source if options.test is None else f"{source}, without the repertoires of `test={options.test}`"
    fold_of[rest] = assign_folds(
        metadata.iloc[rest], tasks, n_folds=options.folds, group_by=options.group_by, seed=seed, source=divided
    )
    return fold_of


def _drop_unlabelled(
    rows: NDArray[np.int64], label_strata: NDArray[np.int64], groups: NDArray[np.int64], groups_held_out: set[int]
) -> NDArray[np.int64]:
    """Return the rows for training without those that have no label and whose group is for testing or validation."""
    train = np.array([i for i in rows if label_strata[i] >= 0 or groups[i] not in groups_held_out], np.int64)
    if len(train) < len(rows):
        left_out = format_count(len(rows) - len(train), "repertoire")
        _logger.warning(
            "left out of training: %s without a label, whose donors are for testing or validation", left_out
        )
    return train


def _warn_of_single_class_parts(split: Split, label_strata: NDArray[np.int64], task: Task, test: str | None) -> None:
    """Log a warning for each part of a split that has one class only, or no label at all in the test part."""
    for part, rows in (("test", split.test), ("validation", split.validation), ("training", split.train)):
        n_classes = len(np.unique(label_strata[rows][label_strata[rows] >= 0]))
        if n_classes == 0 and part == "test":
            _logger.warning("no test repertoire has a label of %r", task.name)
        elif task.kind != "regression" and n_classes < 2:
            is_given = part == "test" and test is not None
            advice = f"`test={test}` says so" if is_given else "try another `seed` or fewer `folds`"
            _logger.warning("the %s part has one class of %r only; %s", part, task.name, advice)


def adjust_split(
    split: Split,
    metadata: pd.DataFrame,
    tasks: Sequence[Task],
    columns: Sequence[str],
    donors: NDArray[np.int64],
    *,
    seed: Sequence[int],
    source: str,
) -> Split:
    """Return the split without some training and validation repertoires, so that columns are independent of the label.

    Parameters
    ----------
    split
        Split to adjust.
    metadata, tasks, source
        The metadata sheet, the targets and the name of the cohort, as in `make_split`.
    columns
        Names of the columns; if it is empty, the split stays as it is.
    donors
        Index of the donor of each repertoire, (B,).
    seed
        Seed of the choice of repertoires that are left out.

    Raises
    ------
    InputError
        If there are several targets, a column is the target or does not exist, or too few repertoires are left.
    """
    if not columns:
        return split
    check_adjusted_columns(columns, metadata, tasks, source)
    for column in columns:
        if n_missing := int(metadata[column].isna().sum()):
            _logger.info("%s is missing for %d repertoires: they count as having the same value", column, n_missing)
    kept = choose_comparable_rows(
        {"training": split.train, "validation": split.validation},
        metadata,
        assign_label_strata(tasks[0], metadata),
        donors,
        columns,
        rng=np.random.default_rng([*seed]),
        min_kept={"training": _MIN_KEPT, "validation": 1},
        source=source,
    )
    return Split(kept["training"], kept["validation"], split.test)


class _TestPart(NamedTuple):
    """Whether each repertoire is in the test part that `COLUMN=VALUE` names, and has any value there, (B,) each.

    `column` is the name of the column.
    """

    is_test: NDArray[np.bool_]
    has_value: NDArray[np.bool_]
    column: str = ""


def _find_test_part(metadata: pd.DataFrame, test: str | None, source: str) -> _TestPart:
    """Return the test part that the options name; without one, no repertoire is in it, and all can be used."""
    if test is None:
        return _TestPart(np.zeros(len(metadata), np.bool_), np.ones(len(metadata), np.bool_))
    columns = [column for column in metadata.columns if test.startswith(f"{column}=")]  # they may contain =
    if not columns:
        name = test.partition("=")[0]
        raise InputError(f"{source}: {describe_missing_column(name, metadata.columns, 'for `test`')}")
    parts = []
    for column in columns:
        value, texts = test.removeprefix(f"{column}="), format_labels(metadata[column])
        is_test = np.array([text == value for text in texts], np.bool_)
        parts.append(_TestPart(is_test, np.array([text is not None for text in texts], np.bool_), str(column)))
    found = [part for part in parts if part.is_test.any()]
    if len(found) > 1:
        names = " and ".join(repr(part.column) for part in found)
        raise InputError(f"{source}: `test={test}`: may be a value of {names}; rename one of these columns")
    if not found:
        column = columns[0]
        counted = format_class_counts(metadata[column])
        raise InputError(f"{source}: `test={test}`: no repertoire has this value; {column} has {counted or 'none'}")
    return found[0]


def _log_unknown_values(test_part: _TestPart, test: str | None) -> None:
    """Log how many repertoires are in no part of the split, because they have no value of the column of `test`."""
    n_unknown = int((~test_part.has_value).sum())
    if n_unknown:
        message = "%d repertoires have no value of %r (`test=%s`): they are in no part of the split"
        _logger.info(message, n_unknown, test_part.column, test)


def assign_folds(
    metadata: pd.DataFrame,
    tasks: list[Task],
    *,
    n_folds: int = N_FOLDS,
    group_by: str | None = None,
    seed: int = 0,
    source: str = "the cohort",
) -> NDArray[np.int64]:
    """Return the index of the fold of each repertoire, (B,); -1 where its label is missing.

    The number of folds and the column are those of `SplitOptions`, the other parameters those of `make_split`.

    Raises
    ------
    InputError
        If the column does not exist, or there are too few groups or repertoires of a class.
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"`seed={seed}`: expected 0 to {2**32 - 1}")
    if n_folds < 3:
        raise InputError(f"`folds={n_folds}`: expected at least 3")
    label_strata = assign_label_strata(tasks[0], metadata)
    labelled = np.flatnonzero(label_strata >= 0)
    smallest = int(np.bincount(label_strata[labelled]).min()) if len(labelled) else 0
    if smallest < n_folds:
        raise InputError(
            f"{source}: target {tasks[0].name!r}: the smallest class has {smallest} repertoires; "
            f"expected at least {n_folds}, one for each of the {n_folds} folds"
        )
    groups = DonorColumn.require(metadata, group_by, source).index()
    fold_of = np.full(len(metadata), -1)
    fold_of[labelled] = _assign_folds(
        label_strata[labelled], None if group_by is None else groups[labelled], n_folds, seed, source
    )
    return fold_of


def assign_label_strata(task: Task, metadata: pd.DataFrame) -> NDArray[np.int64]:
    """Return the index of the class of each repertoire, or of the quarter of its number, (B,); -1 where missing."""
    values = encode_labels([task], metadata)[:, 0]
    if task.kind == "regression":
        bins = pd.qcut(pd.Series(values), _REGRESSION_BINS, labels=False, duplicates="drop")
        return bins.fillna(-1).to_numpy(np.int64)
    return np.where(np.isnan(values), -1, values).astype(np.int64)


def _assign_folds(
    label_strata: NDArray[np.int64], groups: NDArray[np.int64] | None, n_folds: int, seed: int, source: str
) -> NDArray[np.int64]:
    """Return the fold of each repertoire, (B,), stratified; repertoires of one group are in the same fold."""
    if groups is not None and len(np.unique(groups)) < n_folds:
        raise InputError(
            f"{source}: `group_by` makes {len(np.unique(groups))} groups; expected at least `folds={n_folds}`"
        )
    if groups is None:
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(label_strata, label_strata)
    else:
        folds = StratifiedGroupKFold(n_folds).split(label_strata, label_strata, shuffle_groups(groups, seed))
    fold_of = np.zeros(len(label_strata), np.int64)
    for fold, (_, rows) in enumerate(folds):
        fold_of[rows] = fold
    return fold_of
