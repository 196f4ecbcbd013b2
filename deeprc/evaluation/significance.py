"""The thresholds of significant results and of small samples, and the words for them, for the whole project."""

from __future__ import annotations

from typing import Literal

import numpy as np

__all__ = [
    "FEW_IN_CLASS",
    "SHEET_CONTROL_ADVICE",
    "SIGNIFICANCE_LEVEL",
    "Relation",
    "are_few_donors",
    "are_few_repertoires",
    "classify_difference",
    "describe_difference",
    "format_p_in_words",
    "format_p_value",
]

SIGNIFICANCE_LEVEL = 0.05
"""Significance level: a difference is significant if its p-value is smaller."""

FEW_IN_CLASS = 15
"""Number of repertoires in the smallest class below which an AUC says little: with 15 in each of two classes, the 95%
interval of an AUC of 0.8 is 0.3 wide."""

_FEW_NUMBERS = 30
"""Number of repertoires below which the r2 of a predicted number says little (see `compute_r2_interval`)."""

SHEET_CONTROL_ADVICE = (
    " If one of these columns says the same as the target in other words, it is not a control: give the container a "
    "sheet without it (`deeprc relabel`)."
)
"""Sentence that follows a result if the control that reads the sheet's columns does as well as a method."""

Relation = Literal["better", "worse", "equal"]


def classify_difference(difference: float, p_value: float) -> Relation:
    """Return whether a method is significantly better or worse than another; "equal" where it is neither.

    Parameters
    ----------
    difference
        The measure of the method minus that of the other; a higher measure is better.
    p_value
        The p-value of a two-sided paired test; NaN where there is none, which gives "equal".
    """
    if np.isnan(p_value) or p_value >= SIGNIFICANCE_LEVEL or difference == 0:
        return "equal"
    return "better" if difference > 0 else "worse"


def describe_difference(relation: Relation, difference: float, heading: str) -> str:
    """Return a verb that says how a control method that is not worse compares, as in "is significantly better than".

    Parameters
    ----------
    relation, difference
        Result and argument of `classify_difference`.
    heading
        Name of the measure, such as "AUC".
    """
    if relation == "better":
        return "is significantly better than"
    if difference > 0:
        return f"has a higher {heading} (not significantly) than"
    return "is not significantly worse than"


def are_few_repertoires(kind: str, n_smallest: int) -> bool:
    """Return whether repertoires are so few that a measure over them is uncertain.

    Parameters
    ----------
    kind
        The kind of the target.
    n_smallest
        Number of repertoires in the smallest class, or with a known number (regression).
    """
    return n_smallest < (_FEW_NUMBERS if kind == "regression" else FEW_IN_CLASS)


def are_few_donors(kind: str, n_repertoires: int, n_donors: int) -> bool:
    """Return whether donors have several repertoires, and are few or at most half as many as the repertoires."""
    return n_donors < n_repertoires and (are_few_repertoires(kind, n_donors) or 2 * n_donors <= n_repertoires)


def format_p_value(p_value: float) -> str:
    """Return a p-value as text, such as "<0.001", "0.032" or "0.41"; "-" where there is none."""
    if np.isnan(p_value):
        return "-"
    if p_value < 0.001:
        return "<0.001"
    return f"{p_value:.3f}" if p_value < 0.1 else f"{p_value:.2f}"


def format_p_in_words(p_value: float) -> str:
    """Return "p = 0.032" or "p < 0.001"."""
    return f"p = {format_p_value(p_value)}".replace("= <", "< ")
