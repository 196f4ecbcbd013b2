"""Warnings about a cohort and what is left out of a comparison, known before anything is trained.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.evaluation.caution import Caution
from deeprc.evaluation.splits import SPLITS, Split, subject_columns, subjects_in_several

__all__ = ["left_out_cautions", "part_of_split", "subject_cautions"]

_WHERE = {"folds": "in more than one fold", "sides": "on more than one side of the split"}


def subject_cautions(
    metadata: pd.DataFrame, part_of: NDArray[np.int64], *, apart: Literal["folds", "sides"]
) -> list[Caution]:
    """Return warnings of subjects that are trained with and tested, and of several repertoires of one subject.

    Parameters
    ----------
    metadata
        One row per repertoire.
    part_of
        The fold or side of each, (B,); -1 where it takes no part.
    apart
        What the parts are.
    """
    found = []
    straddling = subjects_in_several(metadata, part_of)
    for column, n in straddling.items():
        text = (
            f"{n:,} {'value' if n == 1 else 'values'} of {column!r} {'has' if n == 1 else 'have'} repertoires "
            f"{_WHERE[apart]}: what was learned may be the person, not the target, and every figure may be too good. "
            f"Use --group-by {column!r}."
        )
        values = {"column": column, "n": n, "apart": apart}
        found.append(Caution("warning", text, "setup", "subjects-apart", values))
    known = metadata[part_of >= 0]
    sizes = {name: (len(known[name].dropna()), int(known[name].nunique())) for name in subject_columns(metadata)}
    repeated = [name for name, (n, n_different) in sizes.items() if name not in straddling and 0 < n_different < n]
    if repeated:
        column = min(repeated, key=lambda name: sizes[name][1])
        n, n_different = sizes[column]
        text = (
            f"{n:,} repertoires are of {n_different:,} values of {column!r}. Intervals and p-values take repertoires "
            "as independent: they are narrower, and smaller, than they should be."
        )
        values = {"column": column, "n_repertoires": n, "n_subjects": n_different}
        found.append(Caution("note", text, "setup", "repeated-subjects", values))
    return found


def part_of_split(split: Split, n: int) -> NDArray[np.int64]:
    """Return the number of each repertoire's side, (B,), -1 where it is on none."""
    part = np.full(n, -1, np.int64)
    for number, name in enumerate(SPLITS):
        part[getattr(split, name)] = number
    return part


def left_out_cautions(skipped: Mapping[str, str]) -> list[Caution]:
    """Return a note for each method that a comparison leaves out, and why."""
    return [
        Caution("note", f"{name} is left out: {reason}", "table", "left-out", {"method": name, "reason": reason})
        for name, reason in skipped.items()
    ]
