"""Choose the columns of the sheet for a control, without those that repeat the target or identify repertoires.

Letters: B repertoires.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.sheet import list_control_columns
from deeprc.datasets.categories import is_category
from deeprc.errors import join_names
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.intervals import compute_rank_correlation
from deeprc.groups import find_donor_columns
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task, TaskKind

__all__ = [
    "ControlColumns",
    "find_categories",
    "find_target_like_cautions",
    "format_column_names",
    "select_control_columns",
]

_SHOWN = 3  # number of names that a message shows
_NAMES = ("repertoire_id", "sample_id", "filename", "file_name", "file", "sample_name")
_ID = re.compile(r"(?<![a-z])(id|code|number|no|nr|index|barcode)(?![a-z])", re.IGNORECASE)
_MIN_DONORS_PER_VALUE = 4  # on average; values of fewer donors may be families, which have one label each
_ROUNDING = 1e-9
_OWN_VALUE = 0.9  # a column with at least so many different values per repertoire, or per donor, identifies them


class ControlColumns(NamedTuple):
    """The columns of a sheet that a control method reads, and those that it must not read.

    Attributes
    ----------
    read
        The columns that the control reads.
    target_like
        Columns that determine a target among the labelled repertoires, value by value or by a threshold.
    identifying
        Columns of text, or called an id, with a different value for nearly each repertoire or donor.
    """

    read: list[str]
    target_like: list[str]
    identifying: list[str]


def select_control_columns(metadata: pd.DataFrame, tasks: Sequence[Task]) -> ControlColumns:
    """Return the columns that a control reads, and the columns that it leaves out although it could read them."""
    eligible = list_control_columns(
        metadata, left_out={*(task.column for task in tasks), *_NAMES, *find_donor_columns(metadata)}
    )
    kinds_and_labels = [(task.kind, encode_labels([task], metadata)[:, 0]) for task in tasks if task.column in metadata]
    donors = DonorColumn.choose(metadata, None).index()
    columns = ControlColumns([], [], [])
    for name in eligible:
        values, value_index = metadata[name], pd.factorize(metadata[name])[0]
        if _identifies_each(values, value_index, donors):
            columns.identifying.append(name)
        elif any(_determines_label(values, value_index, label, kind, donors) for kind, label in kinds_and_labels):
            columns.target_like.append(name)
        else:
            columns.read.append(name)
    return columns


def find_categories(metadata: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return those of the columns that hold categories, see `is_category`."""
    donors = DonorColumn.choose(metadata, None).index_if_known()
    return [name for name in columns if is_category(metadata[name], donors)]


def find_target_like_cautions(columns: ControlColumns) -> list[Caution]:
    """Return a warning that names the columns that determine a target: copies of it, or confounders."""
    if not columns.target_like:
        return []
    names = format_column_names(columns.target_like)
    is_one = len(columns.target_like) == 1
    determined = f"Column {names} determines" if is_one else f"Columns {names} each determine"
    text = (
        f"{determined} the target, so no control method uses {'it' if is_one else 'them'}. If such a column is the "
        "target in other words, ignore this. If it is something else, such as a batch, this cohort cannot show which "
        "of the two a model learned."
    )
    return [Caution("warning", text, "controls", "columns-left-out", {"columns": columns.target_like})]


def format_column_names(columns: Sequence[str]) -> str:
    """Return the names of columns in a few words."""
    return join_names(columns, _SHOWN)


def _determines_label(
    values: pd.Series[Any],
    value_index: NDArray[np.int64],
    label: NDArray[np.float64],
    kind: TaskKind,
    donors: NDArray[np.int64],
) -> bool:
    """Return whether a column determines the labels, (B,).

    It does in three cases:

    - each of its values has one label, and there are as few values as classes, or several donors for each value on
      average;
    - for two classes, a threshold of its numbers separates them;
    - for a numeric target, its numbers have the order of the labels, or the reverse order.

    `value_index` has the index of each repertoire's value, (B,), -1 if it is missing. Repertoires of one donor, (B,),
    with the same value and label count once.
    """
    is_used = (value_index >= 0) & ~np.isnan(label)
    different_labels, label_index = np.unique(label[is_used], return_inverse=True)
    n_labels = len(different_labels)
    if n_labels < 2 or not _covers_labels(label, is_used, kind):
        return False
    n_values = len(np.unique(value_index[is_used]))
    pairs, first_rows, pair_index = np.unique(
        value_index[is_used] * n_labels + label_index, return_index=True, return_inverse=True
    )
    n_counted = _count_pairs(pair_index, donors[is_used])
    has_one_label_each, max_values = len(pairs) == n_values, n_counted / _MIN_DONORS_PER_VALUE
    if has_one_label_each and n_values <= (max_values if kind == "regression" else max(n_labels, max_values)):
        return True
    if not pd.api.types.is_numeric_dtype(values):
        return False
    numbers = values.to_numpy()[is_used]
    if kind == "regression":
        if not has_one_label_each or n_values != n_labels:
            return False
        correlation = compute_rank_correlation(numbers[first_rows].astype(np.float64), label[is_used][first_rows])
        return abs(correlation) > 1 - _ROUNDING
    return n_labels == 2 and _has_threshold(numbers[label_index == 0], numbers[label_index == 1])


def _covers_labels(label: NDArray[np.float64], is_used: NDArray[np.bool_], kind: TaskKind) -> bool:
    """Return whether a column has values for every class, or for at least half of the repertoires with a number.

    `is_used` says which repertoires, (B,), have a label and a value.
    """
    is_labelled = ~np.isnan(label)
    if kind == "regression":
        return bool(2 * is_used.sum() >= is_labelled.sum())
    return len(np.unique(label[is_used])) == len(np.unique(label[is_labelled]))


def _has_threshold(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Return whether all numbers of one label are below all numbers of the other one."""
    return bool(first.max() < second.min() or second.max() < first.min())


def _identifies_each(values: pd.Series[Any], value_index: NDArray[np.int64], donors: NDArray[np.int64]) -> bool:
    """Return whether nearly each repertoire, or each donor, has a different value in a column.

    A column of numbers counts only if it is called an id: ages and measurements differ between donors, too.
    """
    if pd.api.types.is_numeric_dtype(values) and not _ID.search(str(values.name)):
        return False
    has_value = value_index >= 0
    n_different, n_donors = len(np.unique(value_index[has_value])), len(np.unique(donors[has_value]))
    n_pairs = _count_pairs(value_index[has_value], donors[has_value])
    has_one_per_donor = n_pairs == n_donors and n_different >= _OWN_VALUE * n_donors  # one value for each of them
    return bool(n_different >= _OWN_VALUE * has_value.sum() or has_one_per_donor)


def _count_pairs(index: NDArray[np.int64], donors: NDArray[np.int64]) -> int:
    """Return the number of different pairs of an index and a donor."""
    return len(np.unique(index * (donors.max(initial=0) + 1) + donors))
