"""Folds that are the values of a column, such as batches: each is left out for testing, one after the other.

Letters: B repertoires.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.errors import InputError, describe_missing_column
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.parse_folds import LEAVE_ONE_OUT
from deeprc.evaluation.splits import assign_label_strata
from deeprc.targets import format_labels
from deeprc.tasks import Task

__all__ = ["assign_folds_by_value", "list_left_out_values"]


def list_left_out_values(metadata: pd.DataFrame, column: str, source: str) -> list[str]:
    """Return the values of a column that are left out for testing, one after the other, as texts in sorted order.

    Raises
    ------
    InputError
        If the column does not exist, or has fewer than two values.
    """
    if column not in metadata:
        use = f"for `folds={LEAVE_ONE_OUT}{column}`"
        raise InputError(f"{source}: {describe_missing_column(column, metadata.columns, use)}")
    values = sorted({text for text in format_labels(metadata[column]) if isinstance(text, str)})
    if len(values) < 2:
        raise InputError(f"{source}: `folds={LEAVE_ONE_OUT}{column}`: expected at least 2 values, found {len(values)}")
    return values


def assign_folds_by_value(
    metadata: pd.DataFrame, tasks: list[Task], column: str, *, group_by: str | None = None, source: str = "the cohort"
) -> NDArray[np.int64]:
    """Return for each repertoire the index of its value of a column among `list_left_out_values`, (B,).

    It is -1 where the label of the first target, or the value, is missing.

    Raises
    ------
    InputError
        If `list_left_out_values` raises it, or a group has several values.
    """
    values = list_left_out_values(metadata, column, source)
    index_of = {value: index for index, value in enumerate(values)}
    fold_of = np.array([index_of.get(text or "", -1) for text in format_labels(metadata[column])], np.int64)
    if group_by is not None:
        groups = DonorColumn.require(metadata, group_by, source).index()
        pairs = pd.DataFrame({"group": groups, "fold": fold_of})[fold_of >= 0].drop_duplicates()
        if pairs["group"].duplicated().any():
            raise InputError(
                f"{source}: `folds={LEAVE_ONE_OUT}{column}` divides repertoires that {group_by!r} keeps together"
            )
    return np.where(assign_label_strata(tasks[0], metadata) >= 0, fold_of, -1)
