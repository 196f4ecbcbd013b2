"""Which columns of the sheet a control may read: none that is the target in other words, or names single repertoires.

Letters: B repertoires.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.sheet import control_columns
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.splits import people, subject_column, subject_columns
from deeprc.tasks import Task, labels

__all__ = ["columns_for_control", "left_out_columns", "shown_columns"]

_SHOWN = 3  # names
_NAMES = ("repertoire_id", "sample_id", "filename", "file_name", "file", "sample_name")
_ID = re.compile(r"(?<![a-z])(id|code|number|no|nr|index|barcode)(?![a-z])", re.IGNORECASE)
_OWN_VALUE = 0.9  # different values per repertoire, or per person, from which a column names each


def columns_for_control(metadata: pd.DataFrame, tasks: Sequence[Task]) -> tuple[list[str], list[str]]:
    """Return the columns that a control reads, and those that it leaves out although it could read them.

    Left out are columns that determine a target among the labelled repertoires, value by value or by a threshold, and
    columns, of text or called an id, with a value of its own for nearly each repertoire or person.
    """
    able = control_columns(metadata, left_out={*(task.column for task in tasks), *_NAMES, *subject_columns(metadata)})
    known = [labels([task], metadata)[:, 0] for task in tasks if task.column in metadata]
    person = people(metadata, subject_column(metadata, None))
    left_out = [
        name
        for name in able
        if _names_each(metadata[name], person) or any(_says(metadata[name], label) for label in known)
    ]
    return [name for name in able if name not in left_out], left_out


def left_out_columns(columns: Sequence[str]) -> list[Caution]:
    """Return a note that names the columns that the control of the sheet leaves out."""
    if not columns:
        return []
    text = (
        f"The control of the sheet does not read {', '.join(columns)}: a value says what the target is, "
        "or nearly each repertoire or person has its own. If a column is not the target in other words, but a batch, "
        "nothing here can tell whether the network has learned the batch."
    )
    return [Caution("note", text, "controls", "columns-left-out", {"columns": list(columns)})]


def shown_columns(columns: Sequence[str]) -> str:
    """Return the names of columns in a few words."""
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return ", ".join(columns[:_SHOWN]) + more


def _says(values: pd.Series[Any], label: NDArray[np.float64]) -> bool:
    """Return whether a column determines the labels, (B,): value by value, or, of two classes, by a threshold."""
    pairs = pd.DataFrame({"value": values.to_numpy(), "label": label}).dropna()
    n_labels = len(np.unique(label[~np.isnan(label)]))
    if n_labels < 2 or pairs["label"].nunique() < n_labels:
        return False
    if len(pairs.drop_duplicates()) == pairs["value"].nunique() == n_labels:
        return True
    if n_labels > 2 or not pd.api.types.is_numeric_dtype(values):
        return False
    first, second = (part for _, part in pairs.groupby("label")["value"])
    return bool(first.max() < second.min() or second.max() < first.min())


def _names_each(values: pd.Series[Any], person: NDArray[np.int64]) -> bool:
    """Return whether nearly each repertoire, or person with several, has a value of its own.

    Numbers do so only in a column that is called an id: ages and measurements differ from person to person, too.
    """
    if pd.api.types.is_numeric_dtype(values) and not _ID.search(str(values.name)):
        return False
    known = values.notna().to_numpy()
    n_different = values[known].nunique()
    pairs = pd.DataFrame({"value": values.to_numpy(), "person": person})[known].drop_duplicates()
    n_people = pairs["person"].nunique()
    of_person = len(pairs) == n_people and n_different >= _OWN_VALUE * n_people  # one value for each of them
    return bool(n_different >= _OWN_VALUE * known.sum() or of_person)
