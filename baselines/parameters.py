"""Checks of an estimator's parameters, which `fit` makes before it computes anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deeprc.errors import InputError

__all__ = ["check_choice", "check_not_negative", "check_positive", "check_whole_number"]


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise InputError if a parameter is none of the choices."""
    if value not in choices:
        raise InputError(f"{name}: expected one of {', '.join(choices)}, found {value!r}")


def check_whole_number(name: str, value: Any, *, low: int = 1, high: int | None = None) -> int:
    """Return a parameter as an integer; raise InputError if it is not a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= (high or math.inf):
        limits = f"from {low} to {high}" if high else f"of at least {low}"
        raise InputError(f"{name}: expected a whole number {limits}, found {value!r}")
    return int(value)


def check_positive(name: str, value: Any) -> float:
    """Return a parameter as a number; raise InputError if it is not a finite number above 0."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise InputError(f"{name}: expected a number above 0, found {value!r}")
    return float(value)


def check_not_negative(name: str, value: Any) -> float:
    """Return a parameter as a number; raise InputError if it is not a finite number of at least 0."""
    if not _is_number(value) or not 0 <= value < math.inf:
        raise InputError(f"{name}: expected a number of at least 0, found {value!r}")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
