"""Conversion of a value that is given for a setting to the type of its field, within the limits of the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from deeprc.documents import read_exponent, to_plain

__all__ = ["MAX_NUMBER", "convert_value"]

MAX_NUMBER = 2**50
"""Largest value of any number. No cohort has so many sequences, and every numeric type represents it exactly."""


def convert_value(value: Any, hint: Any, limits: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return a value in the type of its field, and None or a text that says which value was expected instead.

    Parameters
    ----------
    value
        The value as YAML or Python has it.
    hint
        Type of the field.
    limits
        Metadata of the field: `names`, a function that lists the choices, for text; `low`, `high` and `none`, a word
        for None, for a number.
    """
    value = to_plain(value)
    if hint is str or get_origin(hint) is Literal:
        choices = limits["names"]() if hint is str else get_args(hint)
        return value, None if value in choices else f"expected one of {', '.join(map(str, choices))}"
    kinds = set(get_args(hint)) or {hint}
    if type(None) in kinds and value in (None, limits.get("none")):
        return None, None
    if str in kinds:
        value = str(value) if isinstance(value, Path) else value
        return value, None if isinstance(value, str) else "expected the path of a file, or null"
    if bool in kinds:
        return value, None if isinstance(value, bool) else "expected true or false"
    return _convert_number(read_exponent(value), int in kinds, limits)


def _convert_number(value: Any, is_whole: bool, limits: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return a number of the wanted type and None; or the unchanged value and a text that says what was expected."""
    expected = "expected a number" + (f" or {limits['none']}" if limits["none"] else "")
    if isinstance(value, bool) or not isinstance(value, Real):
        return value, expected
    if isinstance(value, Integral):
        value = min(max(int(value), -MAX_NUMBER * 2), MAX_NUMBER * 2)  # beyond all limits, but exact in 64 bits
    if not math.isfinite(value):
        return value, expected
    value = float(value)
    if is_whole:
        if value != int(value):
            return value, "expected a whole number"
        value = int(value)
    low, high = limits["low"], limits["high"]
    if value < low:
        return value, f"expected at least {low:g}"
    if value > high:
        return value, f"expected at most {high:,}"
    return value, None
