"""Warnings about a cohort, and about methods that a comparison leaves out, which are known before training.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.errors import format_count
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.donors import count_divided_donors
from deeprc.evaluation.significance import are_few_donors
from deeprc.evaluation.splits import PARTS, Split
from deeprc.tasks import TaskKind

__all__ = [
    "WHERE_APART",
    "find_divided_donor_cautions",
    "find_donor_cautions",
    "find_left_out_cautions",
    "index_split_parts",
]

WHERE_APART = {"folds": "in more than one fold", "parts": "in more than one part of the split"}
"""Where repertoires are that should be together, by the kind of the parts."""


def find_divided_donor_cautions(
    metadata: pd.DataFrame, part_of: NDArray[np.int64], *, apart: Literal["folds", "parts"]
) -> list[Caution]:
    """Return a warning if repertoires of one donor are both trained on and tested.

    There is one warning for the column with the fewest donors. Another column gets a second warning only where its
    values are no subdivisions of the first column's values.

    Parameters
    ----------
    metadata
        The metadata, with one row per repertoire.
    part_of
        Index of the fold, or of the part of the split, of each repertoire, (B,); -1 if it is in none.
    apart
        Kind of the parts: folds, or the parts of a split.
    """
    n_divided = count_divided_donors(metadata, part_of)
    reported: list[str] = []
    for column in sorted(n_divided, key=lambda name: metadata[name].nunique()):
        if not any(_is_subdivision(metadata, column, coarser) for coarser in reported):
            reported.append(column)
    return [_make_divided_donors_caution(column, n_divided[column], apart) for column in reported]


def _make_divided_donors_caution(column: str, n: int, apart: Literal["folds", "parts"]) -> Caution:
    text = (
        f"{n:,} {'value' if n == 1 else 'values'} of {column!r} {'has' if n == 1 else 'have'} repertoires "
        f"{WHERE_APART[apart]}: what was learned may be the donor, not the target, and every metric may be too good. "
        f"Use `group_by={column!r}`."
    )
    return Caution("warning", text, "setup", "subjects-apart", {"column": column, "n": n, "apart": apart})


def _is_subdivision(metadata: pd.DataFrame, column: str, coarser: str) -> bool:
    """Return whether every value of a column lies in one value of another."""
    filled = metadata[metadata[column].notna()]
    return bool(filled[coarser].notna().all() and len(filled.groupby([column, coarser])) == filled[column].nunique())


def find_donor_cautions(
    donors: NDArray[np.int64], column: str, classes: Mapping[str, NDArray[np.bool_]], *, kind: TaskKind, where: str
) -> list[Caution]:
    """Return a warning if the repertoires come from few donors, a note if some donors have several repertoires.

    Parameters
    ----------
    donors, column
        Index of the donor of each repertoire, (B,), and the column of the sheet that names the donors.
    classes
        Whether each repertoire belongs to a class, (B,), by the name of the class; for regression whether it has a
        number, by the name "".
    kind
        The kind of the target.
    where
        Beginning of the text, which names the part that the repertoires are from, such as "test ".
    """
    donors_of = {name: np.unique(donors[rows]) for name, rows in classes.items() if rows.any()}
    sizes = {name: (int(classes[name].sum()), len(found)) for name, found in donors_of.items()}
    if all(n_donors == n for n, n_donors in sizes.values()):
        return []
    few = any(are_few_donors(kind, n, n_donors) for n, n_donors in sizes.values())
    counted = ", ".join(
        f"{format_count(n, f'{name} repertoire' if name else 'repertoire')} {'are' if n != 1 else 'is'} of "
        f"{format_count(n_donors, 'donor')}"
        for name, (n, n_donors) in sizes.items()
    )
    text = f"{where}{counted} ({column!r})".strip()
    text = text[:1].upper() + text[1:]
    first, *others = donors_of.values()
    if few and others and all(np.array_equal(first, found) for found in others):  # donors cannot separate the classes
        text += ". The same few donors have all classes: the metrics are uncertain."
    elif few:
        achievement = "predicts the number" if kind == "regression" else "separates the classes"
        text += f". What {achievement} may be these few donors, not the target: the metrics are uncertain."
    else:
        text += ". Intervals and p-values take donors, not repertoires, as independent."
    by_class = {name: {"n_repertoires": n, "n_subjects": n_donors} for name, (n, n_donors) in sizes.items()}
    details = {"column": column, "classes": by_class}
    if few:
        return [Caution("warning", text, "performance", "repeated-subjects", details)]
    return [Caution("note", text, "setup", "repeated-subjects", details)]


def index_split_parts(split: Split, n: int) -> NDArray[np.int64]:
    """Return the index in `PARTS` of the part of each of n repertoires, (B,); -1 if it is in none."""
    part = np.full(n, -1, np.int64)
    for index, name in enumerate(PARTS):
        part[getattr(split, name)] = index
    return part


def find_left_out_cautions(skipped: Mapping[str, str]) -> list[Caution]:
    """Return a note for each method that a comparison leaves out, and why."""
    return [
        Caution("note", f"{name} is left out: {reason}", "table", "left-out", {"method": name, "reason": reason})
        for name, reason in skipped.items()
    ]
