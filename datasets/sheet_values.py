"""The values of a metadata sheet's columns: integers, numbers or text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from deeprc.datasets.missing import MISSING_IN_SHEETS, is_missing

__all__ = [
    "has_commas_in_numbers",
    "has_decimal_commas",
    "has_large_integers",
    "parse_column",
    "replace_decimal_comma",
]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WITH_COMMA = re.compile(r"([+-]?\d*),(\d+)", re.ASCII)
_FORMATTED = re.compile(r"[+-]?(\d+([.,]\d+)?|[.,]\d+|\d{1,3}(,\d{3})+(\.\d+)?|\d{1,3}(\.\d{3})+(,\d+)?)", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_INT64 = range(-(2**63), 2**63)
_MAX_DIGITS = 20
_EXACT_IN_FLOAT = 2**53


def has_large_integers(values: pd.Series) -> bool:
    """Return whether a column has integers that float64 rounds, as it would if values were missing beside them."""
    if values.dtype.kind not in "iu" or values.empty:
        return False
    return max(abs(int(values.min())), abs(int(values.max()))) > _EXACT_IN_FLOAT


def has_decimal_commas(values: Sequence[str]) -> bool:
    """Return whether all values of a column are numbers, some of them with a decimal comma, as in `62,5`.

    If three digits follow every comma, as in `1,250`, they may be thousands: such a column has none.
    """
    given = [value for value in values if not is_missing(value, MISSING_IN_SHEETS)]
    with_comma = [_WITH_COMMA.fullmatch(value) for value in given]
    if any(match is None and not _INTEGER.fullmatch(value) for match, value in zip(with_comma, given, strict=True)):
        return False
    is_number = not any(_LEADING_ZERO.match(value) for value in given)
    return is_number and any(match is not None and len(match[2]) != 3 for match in with_comma)


def has_commas_in_numbers(values: Sequence[str]) -> bool:
    """Return whether all values of a column are numbers as people write them, some with commas: `62,5`, `1,040.5`."""
    given = [value for value in values if not is_missing(value, MISSING_IN_SHEETS)]
    if not any("," in value for value in given):
        return False
    return all(_FORMATTED.fullmatch(value) and not _LEADING_ZERO.match(value) for value in given)


def replace_decimal_comma(value: str) -> str:
    """Return a number with a decimal point in the place of a decimal comma; other values stay as they are."""
    return _WITH_COMMA.sub(r"\1.\2", value) if _WITH_COMMA.fullmatch(value) else value


def parse_column(values: Sequence[str]) -> pd.Series:
    """Return numbers, int64 or float64, if every value is one, otherwise text (object; missing is None).

    `007`, numbers too long to be exact and those too large for 64 bits are text.
    """
    given = [value for value in values if not is_missing(value, MISSING_IN_SHEETS)]
    numeric = all(_NUMBER.fullmatch(value) and not _LEADING_ZERO.match(value) for value in given)
    if not given or not numeric:
        return _clean_texts(values)
    if all(_INTEGER.fullmatch(value) for value in given):
        limit = _INT64 if len(given) == len(values) else range(-_EXACT_IN_FLOAT, _EXACT_IN_FLOAT + 1)
        if not all(len(value) <= _MAX_DIGITS and int(value) in limit for value in given):
            return _clean_texts(values)
        if len(given) == len(values):
            return pd.Series([int(value) for value in values], dtype=np.int64)
    numbers = pd.Series(
        [np.nan if is_missing(value, MISSING_IN_SHEETS) else float(value) for value in values], dtype=np.float64
    )
    return _clean_texts(values) if np.isinf(numbers).any() else numbers


def _clean_texts(values: Sequence[str]) -> pd.Series:
    return pd.Series([None if is_missing(value, MISSING_IN_SHEETS) else value for value in values], dtype=object)
