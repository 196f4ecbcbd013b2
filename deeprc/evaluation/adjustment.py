"""Adjust the training for columns of the sheet, such as a batch, by leaving out some repertoires.

For example, batch 1 has 30 cases and 10 controls, and batch 2 has 10 cases and 30 controls. A method would learn the
batch. So random repertoires of the class that is common in a batch are left out of training and validation: 20 cases of
batch 1, and 20 controls of batch 2. Then the batch and the label are no longer associated.

This is frequency matching of cases and controls. It works for every method. Test repertoires are not changed, and new
repertoires need no columns.

With classes y and columns c, a repertoire is kept with the probability min_k(p(k|c) / p(k)) p(y) / p(y|c). Among the
kept repertoires, each class is then as frequent at every c as it is among all. p(y|c) is a logistic regression on the
training and validation repertoires together. Whether a column is a number or a category is decided once, from all
repertoires: a small part may have so few different ages that they look like categories.

Letters: B repertoires, U units, C classes, P features.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from deeprc.arrays import Floats
from deeprc.datasets.categories import is_category
from deeprc.errors import InputError, describe_missing_column
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.significance import are_few_repertoires
from deeprc.targets import format_labels
from deeprc.tasks import Task

__all__ = ["check_adjusted_columns", "choose_comparable_rows", "find_adjustment_cautions", "to_column_names"]

_DRAWS = 100  # number of random choices that are tried until enough repertoires of each class are kept
_INVERSE_PENALTY = 100.0  # C of the logistic regression: nearly no penalty, because it has few parameters


def to_column_names(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return column names as a tuple; one name may be given as a text."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def check_adjusted_columns(columns: Sequence[str], metadata: pd.DataFrame, tasks: Sequence[Task], source: str) -> None:
    """Raise InputError unless the training can be adjusted for these columns of the sheet.

    Parameters
    ----------
    columns
        Names of the columns to adjust for; if it is empty, nothing is adjusted or checked.
    metadata, tasks, source
        The metadata sheet, the targets and the name of the cohort, as in `make_split`.
    """
    missing = [name for name in columns if name not in metadata]
    if missing:
        raise InputError(f"{source}: {describe_missing_column(missing[0], metadata.columns, 'for `adjust_for`')}")
    for name in columns:
        if (
            pd.api.types.is_numeric_dtype(metadata[name])
            and np.isinf(metadata[name].to_numpy(np.float64, na_value=np.nan)).any()
        ):
            raise InputError(f"{source}: `adjust_for={name}`: expected finite numbers, found inf")
    if columns and len(tasks) > 1:
        names = ", ".join(task.name for task in tasks)
        raise InputError(f"`adjust_for`: expected one target, found {names}; train each of them alone")
    if any(task.column in columns for task in tasks):
        raise InputError(f"`adjust_for={tasks[0].column}`: is the target")


def choose_comparable_rows(
    parts: Mapping[str, NDArray[np.int64]],
    metadata: pd.DataFrame,
    label_strata: NDArray[np.int64],
    donors: NDArray[np.int64],
    columns: Sequence[str],
    *,
    rng: np.random.Generator,
    min_kept: Mapping[str, int],
    source: str,
) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each part of the split that are kept, so that columns are independent of the label.

    The frequency of each class at given values of the columns is estimated from all parts together: they have more
    repertoires than each part alone.

    Parameters
    ----------
    parts
        Row indices of the repertoires in each part of the split, by its name. Repertoires without a label are left out,
        too.
    metadata
        The metadata, with one row per repertoire of the cohort.
    label_strata
        Index of the class of each repertoire (regression: of the quarter of its number), (B,); -1 if the label is
        missing.
    donors
        Index of the donor of each repertoire, (B,). Repertoires of one donor are kept or left out together if their
        labels and columns are equal, and count once.
    columns
        Names of the columns to adjust for.
    rng
        Random generator that chooses which repertoires are left out.
    min_kept
        Smallest number of repertoires of each class that must be kept in each part; a class with fewer must be kept
        whole.
    source
        Name of the cohort, with which an error message begins.

    Raises
    ------
    InputError
        If the columns are so strongly associated with the label that too few repertoires of a class are left.
    """
    parts = {name: rows[label_strata[rows] >= 0] for name, rows in parts.items()}
    rows_of_parts = np.concatenate([*parts.values()])
    if columns and len(np.unique(label_strata[rows_of_parts])) == 1:
        raise InputError(
            f"{source}: `adjust_for={', '.join(columns)}`: expected training repertoires of two classes, or numbers of "
            "which at most three quarters are equal; found one class"
        )
    features = _encode_columns(metadata.iloc[rows_of_parts], columns, _find_numeric_columns(metadata, columns, donors))
    unit_of, first = _index_units(features, label_strata[rows_of_parts], donors[rows_of_parts])
    keep_probability = _compute_keep_probabilities(features[first], label_strata[rows_of_parts][first])[unit_of]
    kept_rows, start = {}, 0
    for name, rows in parts.items():
        in_part = slice(start, start + len(rows))
        strata = label_strata[rows]
        is_kept, shortage = _draw_units(unit_of[in_part], keep_probability[in_part], strata, min_kept[name], rng)
        if shortage is not None:
            comparable = f"about {keep_probability[in_part].sum():,.0f} of {len(rows):,} repertoires"
            raise InputError(f"{source}: {name}: {comparable} {_describe_shortage(shortage, columns)}")
        kept_rows[name], start = rows[is_kept], start + len(rows)
    return kept_rows


class _Shortage(NamedTuple):
    """Number of kept repertoires of a class, which is smaller than the number that must be kept."""

    n_kept: int
    n_required: int


def _describe_shortage(shortage: _Shortage, columns: Sequence[str]) -> str:
    """Return the end of a message that begins with the number of repertoires that can be compared."""
    return (
        f"can be compared with others of equal {', '.join(columns)}. In each class {shortage.n_required} must be left, "
        f"but the last of {_DRAWS} random choices left {shortage.n_kept} in one. Give fewer columns, or leave out "
        "whole values instead (`folds=leave-one-out:COLUMN`). If each value has one class only, a column cannot be "
        "distinguished from the target"
    )


def _draw_units(
    unit_of: NDArray[np.int64],
    keep_probability: Floats,
    label_strata: NDArray[np.int64],
    min_kept: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.bool_], _Shortage | None]:
    """Sample units until enough repertoires of each class are kept.

    Return whether each repertoire is kept, and the shortage of the last one of `_DRAWS` samples if all have one.
    """
    for _ in range(_DRAWS):
        is_kept = _sample_units(unit_of, keep_probability, label_strata, rng)
        shortage = _find_shortage(is_kept, label_strata, min_kept)
        if shortage is None:
            break
    return is_kept, shortage


def _find_shortage(is_kept: NDArray[np.bool_], label_strata: NDArray[np.int64], min_kept: int) -> _Shortage | None:
    """Return the first class of which too few repertoires are kept; None if enough are kept of each."""
    for stratum, size in zip(*np.unique(label_strata, return_counts=True), strict=True):
        n_kept, n_required = int((label_strata[is_kept] == stratum).sum()), min(min_kept, int(size))
        if n_kept < n_required:
            return _Shortage(n_kept, n_required)
    return None


def find_adjustment_cautions(
    columns: Sequence[str], kind: str, training: Sequence[NDArray[Any]], sizes: Sequence[int] | None = None
) -> list[Caution]:
    """Return a note that says what was adjusted for, or a warning if few repertoires are left.

    Parameters
    ----------
    columns
        Names of the columns; if it is empty, there is no note.
    kind
        The kind of the target.
    training
        Labels of the training repertoires that are left, one array for each fold or run; at least one array.
    sizes
        Number of these repertoires in each fold or run, if the labels of some are not known; None: all labels are
        known.
    """
    if not columns:
        return []
    n_labels = [len(labels) for labels in training]
    n_repertoires = list(sizes or n_labels)
    n_kept, are_labels_known = min(n_repertoires), n_repertoires == n_labels
    if kind == "regression":
        n_smallest = n_kept
    elif are_labels_known:
        n_smallest = min(int(np.unique(labels, return_counts=True)[1].min()) for labels in training)
    else:
        n_smallest = n_kept // 2  # at most
    few = are_few_repertoires(kind, n_smallest)
    n_left_text = f"{'At least ' if len(training) > 1 else ''}{n_kept:,} training repertoires are left"
    text = (
        f"Adjusted for {', '.join(columns)}: training and validation repertoires were left out until the label was no "
        f"longer associated with {'it' if len(columns) == 1 else 'them'}. {n_left_text}"
        f"{', which are few to learn from' if few else ''}. Test repertoires stay as they are."
    )
    details = {"columns": list(columns), "n_kept": n_kept, "n_smallest": n_smallest if are_labels_known else None}
    return [Caution("warning" if few else "note", text, "setup", "adjusted", details)]


def _index_units(
    features: Floats, label_strata: NDArray[np.int64], donors: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the index of the unit of each repertoire, (B,), and the first repertoire of each unit, (U,).

    Repertoires of one donor that have the same label and the same features are one unit.
    """
    keys = pd.DataFrame(features).assign(stratum=label_strata, donor=donors)
    unit_of = np.asarray(keys.groupby(list(keys.columns), sort=False).ngroup(), np.int64)
    return unit_of, np.asarray(np.unique(unit_of, return_index=True)[1], np.int64)


def _sample_units(
    unit_of: NDArray[np.int64], keep_probability: Floats, label_strata: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return whether each repertoire of one part is kept, with its `keep_probability`; units are kept as a whole.

    The sampling is systematic: among units of one class with equal probabilities, the number of kept units is not left
    to chance.
    """
    _, first, index_of_unit = np.unique(unit_of, return_index=True, return_inverse=True)
    keep_probability, label_strata = keep_probability[first], label_strata[first]
    order = np.lexsort((rng.random(len(keep_probability)), keep_probability.round(9), label_strata))
    total = np.cumsum(keep_probability[order]) + rng.random()
    kept = np.zeros(len(keep_probability), np.bool_)
    kept[order] = np.floor(total) > np.floor(total - keep_probability[order])
    return kept[index_of_unit]


def _compute_keep_probabilities(features: Floats, label_strata: NDArray[np.int64]) -> Floats:
    """Return the probability with which each unit is kept, (U,), from its features, (U, P), and class, (U,)."""
    classes, class_of = np.unique(label_strata, return_inverse=True)
    if len(classes) < 2 or features.shape[1] == 0:
        return np.ones(len(label_strata))
    model = LogisticRegression(C=_INVERSE_PENALTY, max_iter=1000).fit(features, class_of)
    relative = model.predict_proba(features) / (np.bincount(class_of) / len(class_of))  # (U, C)
    return np.asarray(relative.min(axis=1) / relative[np.arange(len(class_of)), class_of])


def _find_numeric_columns(sheet: pd.DataFrame, columns: Sequence[str], donors: NDArray[np.int64]) -> set[str]:
    """Return the names of the columns that hold numbers, not categories, of the whole cohort."""
    return {name for name in columns if not is_category(sheet[name], donors)}


def _encode_columns(sheet: pd.DataFrame, columns: Sequence[str], numbers: Collection[str]) -> Floats:
    """Return the columns as features, (B, P): one feature for each value of a category; a number and its square.

    A missing value is a value of its own. Numbers have mean 0 and variance 1.
    """
    features = [np.zeros((len(sheet), 0))]
    for name in columns:
        values, is_missing = sheet[name], sheet[name].isna().to_numpy()
        standard = _standardise_numbers(values) if name in numbers else None
        if standard is not None:
            features += [standard[:, None], (standard**2)[:, None]]
            if is_missing.any():
                features.append(is_missing[:, None].astype(np.float64))
        else:
            texts = pd.Series(format_labels(values), dtype=object).fillna("")
            features.append(pd.get_dummies(texts).to_numpy(np.float64))
    return np.concatenate(features, axis=1)


def _standardise_numbers(values: pd.Series[Any]) -> Floats | None:
    """Return numbers with mean 0 and variance 1, (B,), 0 where missing; None if all are equal as 64-bit floats."""
    numeric = values.to_numpy(np.float64, na_value=np.nan)
    known = numeric[~np.isnan(numeric)]
    if len(known) == 0 or known.min() == known.max():
        return None
    exponent = int(np.frexp(np.abs(known).max())[1])
    numeric = np.ldexp(numeric, -exponent)  # exact, and no square overflows
    return np.asarray(np.nan_to_num((numeric - np.nanmean(numeric)) / np.nanstd(numeric)))
