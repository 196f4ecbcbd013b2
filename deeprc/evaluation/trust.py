"""When a result can be believed: the one place for thresholds, and for the words that a comparison deserves."""

from __future__ import annotations

from typing import Literal

import numpy as np

__all__ = [
    "FEW_IN_CLASS",
    "FEW_NUMBERS",
    "HOW_TO_LEAVE_OUT",
    "LEVEL",
    "Relation",
    "few_people",
    "is_few",
    "p_in_words",
    "p_text",
    "relation",
]

LEVEL = 0.05
"""A difference with a smaller p-value is told from chance."""

FEW_IN_CLASS = 15
"""Repertoires of the smaller class among those that judge, below which an AUC says little (width of its interval at 0.8
with 15 in each class: 0.3)."""

FEW_NUMBERS = 30
"""Repertoires among those that judge a predicted number, below which r2 says little (see `r2_interval`)."""

HOW_TO_LEAVE_OUT = (
    " If one of these columns says the same as the target in other words, it is no control: give the container a sheet "
    "without it (`deeprc relabel`)."
)
"""What to add where a control of the sheet does as well as a method."""

Relation = Literal["better", "worse", "equal"]


def relation(difference: float, p_value: float) -> Relation:
    """Return what a method is to another: better, worse, or equal where the two cannot be told apart.

    Parameters
    ----------
    difference
        Its measure less the other's; higher is better.
    p_value
        Of a two-sided paired test; NaN where there is none, so that nothing can be told.
    """
    if np.isnan(p_value) or p_value >= LEVEL or difference == 0:
        return "equal"
    return "better" if difference > 0 else "worse"


def is_few(kind: str, n_smallest: int) -> bool:
    """Return whether so many repertoires (of the smallest class, or with a known number) are too few to judge by."""
    return n_smallest < (FEW_NUMBERS if kind == "regression" else FEW_IN_CLASS)


def few_people(kind: str, n_repertoires: int, n_people: int) -> bool:
    """Return whether people with several repertoires are too few to judge by, or far fewer than their repertoires."""
    return n_people < n_repertoires and (is_few(kind, n_people) or 2 * n_people <= n_repertoires)


def p_text(p_value: float) -> str:
    """Return a p-value as a reader wants it, as "<0.001", "0.032" or "0.41"; "-" where there is none."""
    if np.isnan(p_value):
        return "-"
    if p_value < 0.001:
        return "<0.001"
    return f"{p_value:.3f}" if p_value < 0.1 else f"{p_value:.2f}"


def p_in_words(p_value: float) -> str:
    """Return "p = 0.032" or "p < 0.001"."""
    return f"p = {p_text(p_value)}".replace("= <", "< ")
