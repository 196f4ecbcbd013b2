"""Adjust what is learned for columns of the sheet, such as a batch, by leaving out some repertoires.

A method that learns from repertoires among which a batch goes with the label learns the batch. So each side that is
learned from is thinned, until the columns say no more about the label than chance: the repertoires whose class is
common among repertoires with the same values are left out at random. This is frequency matching of cases and controls.
It needs nothing from a method, so it holds for all of them. Test repertoires stay as they are, and new ones need no
columns.

With classes y and columns c, a repertoire is kept with the probability min_k(p(k|c) / p(k)) p(y) / p(y|c). Among the
kept repertoires, each class is then as frequent at every c as it is on the whole side. p(y|c) is a logistic regression.

Letters: B repertoires of the cohort, U units of one side, C classes, P features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from deeprc.errors import InputError
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.trust import is_few
from deeprc.targets import class_texts
from deeprc.tasks import Task

__all__ = ["adjusted_cautions", "check_columns", "choose_comparable"]

_MAX_VALUES = 20  # a column of numbers with more different values is no category
_C = 100.0  # nearly no penalty: the logistic regression has few parameters

Floats = NDArray[np.float64]


def check_columns(columns: Sequence[str], metadata: pd.DataFrame, tasks: Sequence[Task], source: str) -> None:
    """Raise InputError unless what is learned can be adjusted for these columns of the sheet.

    Parameters
    ----------
    columns
        The columns; none is no adjustment.
    metadata, tasks, source
        As those of `make_split`.
    """
    missing = [name for name in columns if name not in metadata]
    if missing:
        names = ", ".join(map(str, metadata.columns))
        raise InputError(f"{source}: no column {missing[0]!r} for `adjust_for`; columns: {names}")
    if columns and len(tasks) > 1:
        names = ", ".join(task.name for task in tasks)
        raise InputError(f"`adjust_for` leaves out repertoires by the label of one target, found {names}; train each")
    if any(task.column in columns for task in tasks):
        raise InputError(f"`adjust_for={tasks[0].column}`: is the target")


def choose_comparable(
    rows: NDArray[np.int64],
    metadata: pd.DataFrame,
    strata: NDArray[np.int64],
    donors: NDArray[np.int64],
    columns: Sequence[str],
    *,
    rng: np.random.Generator,
    min_kept: int,
    where: str,
) -> NDArray[np.int64]:
    """Return the rows of one side without those that are left out, so that columns say nothing about the label.

    Parameters
    ----------
    rows
        The rows of the side; those without a label are left out, too.
    metadata
        The metadata, with one row per repertoire.
    strata
        The class of each repertoire, for numbers the quarter, (B,); -1 where it is missing.
    donors
        Repertoires with equal values are of one donor, (B,). They are kept or left out together if their labels and
        columns are equal, and count once.
    columns
        The columns.
    rng
        Decides which repertoires are left out.
    min_kept
        Number of repertoires of each class that must be left; where a class has fewer, all of these.
    where
        The cohort and the side, with which an error message begins.

    Raises
    ------
    InputError
        If the columns go with the label so closely that too few repertoires of a class are left.
    """
    rows = rows[strata[rows] >= 0]
    kept = rows[_choose_units(metadata.iloc[rows], strata[rows], donors[rows], columns, rng)]
    for each, size in zip(*np.unique(strata[rows], return_counts=True), strict=True):
        n = int((strata[kept] == each).sum())
        if n < min(min_kept, size):
            raise InputError(
                f"{where}: {len(kept):,} of {len(rows):,} repertoires can be compared with others of equal "
                f"{', '.join(columns)}, {n} of them in one class; this cohort cannot tell `adjust_for` from the target"
            )
    return kept


def adjusted_cautions(columns: Sequence[str], kind: str, sides: Sequence[NDArray[Any]]) -> list[Caution]:
    """Return a note that says what was adjusted for; a warning if few repertoires are left.

    Parameters
    ----------
    columns
        The columns; none gives no note.
    kind
        The kind of the target.
    sides
        The labels of the training repertoires that are left, for each fold or run; at least one.
    """
    if not columns:
        return []
    sizes = [len(side) if kind == "regression" else int(np.unique_counts(side).counts.min()) for side in sides]
    few = is_few(kind, min(sizes))
    left = f"{'At least ' * (len(sides) > 1)}{min(map(len, sides)):,} training repertoires are left"
    text = (
        f"Adjusted for {', '.join(columns)}: training and validation repertoires were left out until this says nothing "
        f"about the label. {left}{', which is little to learn from' * few}. Test repertoires stay as they are."
    )
    details = {"columns": list(columns), "n_kept": min(map(len, sides)), "n_smallest": min(sizes)}
    return [Caution("warning" if few else "note", text, "setup", "adjusted", details)]


def _choose_units(
    sheet: pd.DataFrame,
    strata: NDArray[np.int64],
    donors: NDArray[np.int64],
    columns: Sequence[str],
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return which repertoires of one side are kept; those of a donor with one label and one value are one unit."""
    features = _encode(sheet, columns)
    keys = pd.DataFrame(features).assign(stratum=strata, donor=donors)
    unit_of = keys.groupby(list(keys.columns), sort=False).ngroup().to_numpy()
    first = np.unique(unit_of, return_index=True)[1]
    share, stratum = _kept_shares(features[first], strata[first]), strata[first]
    # systematic sampling: of units of one class with equal shares, the number that is kept is not left to chance
    order = np.lexsort((rng.random(len(share)), share.round(9), stratum))
    total = np.cumsum(share[order]) + rng.random()
    kept = np.zeros(len(share), np.bool_)
    kept[order] = np.floor(total) > np.floor(total - share[order])
    return kept[unit_of]


def _kept_shares(features: Floats, strata: NDArray[np.int64]) -> Floats:
    """Return the probability with which each unit is kept, (U,), from its features, (U, P), and class, (U,)."""
    classes, own = np.unique(strata, return_inverse=True)
    if len(classes) < 2 or features.shape[1] == 0:
        return np.ones(len(strata))
    model = LogisticRegression(C=_C, max_iter=1000).fit(features, own)
    relative = model.predict_proba(features) / (np.bincount(own) / len(own))  # (U, C)
    return np.asarray(relative.min(axis=1) / relative[np.arange(len(own)), own])


def _encode(sheet: pd.DataFrame, columns: Sequence[str]) -> Floats:
    """Return the columns as features, (B, P): a category's values one by one, a number with its square.

    A missing value is a value of its own. Numbers have mean 0 and variance 1.
    """
    found = [np.zeros((len(sheet), 0))]
    for name in columns:
        values, is_missing = sheet[name], sheet[name].isna().to_numpy()
        if pd.api.types.is_numeric_dtype(values) and values.nunique() > _MAX_VALUES:
            numbers = values.to_numpy(np.float64, na_value=np.nan)
            standard = np.where(is_missing, 0.0, (numbers - np.nanmean(numbers)) / np.nanstd(numbers))
            found += [standard[:, None], (standard**2)[:, None]]
            found += [is_missing[:, None].astype(np.float64)] if is_missing.any() else []
        else:
            texts = pd.Series(class_texts(values), dtype=object).fillna("")
            found.append(pd.get_dummies(texts).to_numpy(np.float64))
    return np.concatenate(found, axis=1)
