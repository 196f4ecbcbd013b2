"""Assign repertoires to folds, and to the parts train, validation and test: stratified, grouped, seeded.

Letters: B repertoires.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from deeprc.errors import InputError
from deeprc.evaluation.adjustment import check_adjusted_columns, choose_comparable, to_column_names
from deeprc.groups import index_groups, shuffle_groups
from deeprc.targets import format_class_counts, format_labels
from deeprc.tasks import Task, encode_labels

__all__ = [
    "HELD_OUT",
    "NEW",
    "N_FOLDS",
    "SPLITS",
    "Split",
    "SplitOptions",
    "adjust_split",
    "assign_folds",
    "choose_subject_column",
    "count_subjects_in_several",
    "find_subject_columns",
    "index_donors",
    "index_donors_by_id",
    "index_given_donors",
    "index_given_groups",
    "index_known_donors",
    "label_strata",
    "make_split",
]

SPLITS = ("train", "validation", "test")
N_FOLDS = 5
"""Default number of folds of a training or a benchmark."""

NEW = "new"
"""Name of the split of a repertoire that is in none of train, validation and test."""

HELD_OUT = ("test", NEW)
"""Splits from which a model has not learned, and by which it was not chosen."""

_SUBJECT_COLUMNS = {"subject", "subjectid", "patient", "patientid", "donor", "donorid", "participant", "participantid"}
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
        return {part: [str(i) for i in repertoire_ids[getattr(self, part)]] for part in SPLITS}


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Options of the split of a cohort into training, validation and test.

    Attributes
    ----------
    folds, fold
        The number of folds, at least 3, and the index of the fold for testing.
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
        If `test` has no `=`, there are less than 3 folds, or the folds for testing and validation are not two of them.
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
        if not (folds >= 3 and 0 <= fold < folds):
            raise InputError(f"`folds={folds}` `fold={fold}`: expected at least 3 folds and a fold from 0 to folds - 1")
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

    Folds are stratified by the first target (numbers by quartile). Repertoires without a label are for training, unless
    their group is held out, or they belong, or might belong, to the test part that `options` names.

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
        If a column or the value of the test part does not exist, a group is inside and outside of the test part, there
        are too few groups or repertoires of a class, or `adjust_split` raises it.
    """
    options = options or SplitOptions()
    fold, group_by = options.fold, options.group_by
    validation_fold = (fold + 1) % options.folds if options.validation_fold is None else options.validation_fold
    is_test, is_known = _are_of_test_part(metadata, options.test, source)
    rest = np.flatnonzero(~is_test & is_known)
    if n_unknown := int((~is_known).sum()):
        column = str(options.test).partition("=")[0]
        _logger.info(
            "%d repertoires have no value of %r (`test=%s`): they are in no part of the split",
            n_unknown,
            column,
            options.test,
        )
    every = np.full(len(metadata), -1)
    divided = source if options.test is None else f"{source}, without the repertoires of `test={options.test}`"
    every[rest] = assign_folds(
        metadata.iloc[rest], tasks, n_folds=options.folds, group_by=group_by, seed=seed, source=divided
    )
    strata, groups = label_strata(tasks[0], metadata), index_given_groups(metadata, group_by, source)
    if group_by is not None and set(groups[is_test]) & set(groups[rest]):
        raise InputError(f"{source}: `test={options.test}` divides repertoires that {group_by!r} keeps together")
    test = np.flatnonzero(every == fold if options.test is None else is_test & (strata >= 0))
    validation = np.flatnonzero(every == validation_fold)
    held_out = set(groups[test]) | set(groups[validation]) if group_by is not None else set()
    elsewhere = np.setdiff1d(rest, np.concatenate([test, validation]))
    train = np.array([i for i in elsewhere if strata[i] >= 0 or groups[i] not in held_out], np.int64)
    if len(train) < len(elsewhere):
        _logger.warning(
            "%d repertoires without a label are left out: their group is held out", len(elsewhere) - len(train)
        )
    for part, rows in (("test", test), ("validation", validation), ("training", train)):
        n_classes = len(np.unique(strata[rows][strata[rows] >= 0]))
        if n_classes == 0 and part == "test":
            _logger.warning("no test repertoire has a label of %r", tasks[0].name)
        elif tasks[0].kind != "regression" and n_classes < 2:
            named = part == "test" and options.test is not None
            advice = f"`test={options.test}` says so" if named else "try another `seed` or fewer `folds`"
            _logger.warning("the %s part has one class of %r only; %s", part, tasks[0].name, advice)
    split = Split(train, validation, test)
    return adjust_split(
        split, metadata, tasks, options.adjust_for, groups, seed=(seed, fold, validation_fold), source=source
    )


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
            _logger.info("%s is missing for %d repertoires: they are compared with each other", column, n_missing)
    kept = choose_comparable(
        {"training": split.train, "validation": split.validation},
        metadata,
        label_strata(tasks[0], metadata),
        donors,
        columns,
        rng=np.random.default_rng([*seed]),
        min_kept={"training": _MIN_KEPT, "validation": 1},
        source=source,
    )
    return Split(kept["training"], kept["validation"], split.test)


def _are_of_test_part(
    metadata: pd.DataFrame, test: str | None, source: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether each repertoire has the value of `COLUMN=VALUE`, and whether it has any value, (B,) each.

    Without a test part, no repertoire is in it, and all can be used.
    """
    if test is None:
        return np.zeros(len(metadata), np.bool_), np.ones(len(metadata), np.bool_)
    column, _, value = test.partition("=")
    if column not in metadata:
        raise InputError(f"{source}: no column {column!r} for `test`; columns: {', '.join(map(str, metadata.columns))}")
    texts = format_labels(metadata[column])
    found = np.array([text == value for text in texts], np.bool_)
    if not found.any():
        counted = format_class_counts(metadata[column])
        raise InputError(f"{source}: `test={test}`: no repertoire has this value; {column} has {counted or 'none'}")
    return found, np.array([text is not None for text in texts], np.bool_)


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
    strata = label_strata(tasks[0], metadata)
    labelled = np.flatnonzero(strata >= 0)
    smallest = int(np.bincount(strata[labelled]).min()) if len(labelled) else 0
    if smallest < n_folds:
        raise InputError(
            f"{source}: target {tasks[0].name!r}: the smallest class has {smallest} repertoires; "
            f"expected at least {n_folds}, one for each of the {n_folds} folds"
        )
    groups = index_given_groups(metadata, group_by, source)
    fold_of = np.full(len(metadata), -1)
    fold_of[labelled] = _assign_folds(
        strata[labelled], None if group_by is None else groups[labelled], n_folds, seed, source
    )
    return fold_of


def label_strata(task: Task, metadata: pd.DataFrame) -> NDArray[np.int64]:
    """Return the index of the class of each repertoire, or of the quarter of its number, (B,); -1 where missing."""
    values = encode_labels([task], metadata)[:, 0]
    if task.kind == "regression":
        bins = pd.qcut(pd.Series(values), _REGRESSION_BINS, labels=False, duplicates="drop")
        return bins.fillna(-1).to_numpy(np.int64)
    return np.where(np.isnan(values), -1, values).astype(np.int64)


def index_given_donors(metadata: pd.DataFrame, group_by: str | None, source: str) -> NDArray[np.int64] | None:
    """Return the groups of `index_given_groups`; None without a column, if each repertoire has its own donor."""
    return None if group_by is None else index_given_groups(metadata, group_by, source)


def index_given_groups(metadata: pd.DataFrame, group_by: str | None, source: str) -> NDArray[np.int64]:
    """Return the index of the group of each repertoire, (B,): equal values of a column are one group.

    A missing value is a group of its own.

    Raises
    ------
    InputError
        If the column does not exist.
    """
    if group_by is None:
        return np.arange(len(metadata))
    if group_by not in metadata:
        raise InputError(
            f"{source}: no column {group_by!r} for `group_by`; columns: {', '.join(map(str, metadata.columns))}"
        )
    return index_groups(metadata[group_by])


def _assign_folds(
    strata: NDArray[np.int64], groups: NDArray[np.int64] | None, n_folds: int, seed: int, source: str
) -> NDArray[np.int64]:
    if groups is not None and len(np.unique(groups)) < n_folds:
        raise InputError(
            f"{source}: `group_by` makes {len(np.unique(groups))} groups; expected at least `folds={n_folds}`"
        )
    if groups is None:
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(strata, strata)
    else:
        folds = StratifiedGroupKFold(n_folds).split(strata, strata, shuffle_groups(groups, seed))
    fold_of = np.zeros(len(strata), np.int64)
    for fold, (_, rows) in enumerate(folds):
        fold_of[rows] = fold
    return fold_of


def count_subjects_in_several(metadata: pd.DataFrame, part_of: NDArray[np.int64]) -> dict[str, int]:
    """Return, for each column that names subjects, the number of subjects with repertoires in several parts.

    Parts are those of a split, or folds. `part_of` (B,) holds the index of the part of each repertoire, -1 if it is in
    none.
    """
    inside = part_of >= 0
    found = {}
    for column in find_subject_columns(metadata):
        parts = pd.Series(part_of[inside]).groupby(metadata[column].to_numpy()[inside]).nunique()
        if count := int((parts > 1).sum()):
            found[column] = count
    return found


def find_subject_columns(metadata: pd.DataFrame) -> list[str]:
    """Return the columns whose names say that they hold the subject, such as `subject_id`, `Patient ID` or `donor`."""
    names = {str(column): "".join(filter(str.isalnum, str(column).lower())) for column in metadata.columns}
    ends = ("subjectid", "patientid", "donorid")
    return [column for column, name in names.items() if name in _SUBJECT_COLUMNS or name.endswith(ends)]


def choose_subject_column(metadata: pd.DataFrame, group_by: str | None) -> str | None:
    """Return the column that names the subject: the given one, else the subject column with the fewest subjects."""
    if group_by is not None and group_by in metadata:
        return group_by
    known = [name for name in find_subject_columns(metadata) if metadata[name].notna().any()]
    return min(known, key=lambda name: metadata[name].nunique(), default=None)


def index_donors(metadata: pd.DataFrame, column: str | None) -> NDArray[np.int64]:
    """Return the index of the donor of each repertoire, (B,); an unknown donor counts as one of their own."""
    return np.arange(len(metadata)) if column is None else index_groups(metadata[column])


def index_known_donors(metadata: pd.DataFrame, group_by: str | None) -> NDArray[np.int64] | None:
    """Return the index of the donor of each repertoire, (B,); None if the sheet has no column of donors."""
    column = choose_subject_column(metadata, group_by)
    return None if column is None else index_donors(metadata, column)


def index_donors_by_id(
    repertoire_ids: NDArray[np.object_], metadata: pd.DataFrame, group_by: str | None
) -> dict[str, int] | None:
    """Return the index of the donor of each repertoire, by repertoire id; None if the sheet does not name donors."""
    donors = index_known_donors(metadata, group_by)
    return None if donors is None else dict(zip(repertoire_ids.tolist(), donors.tolist(), strict=True))
