"""Checks of an estimator's parameters, which are made before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from deeprc.documents import to_plain, validate
from deeprc.errors import InputError

__all__ = ["check_choice", "check_not_negative", "check_positive", "check_types", "check_whole_number"]


def check_types(estimator: Any) -> None:
    """Raise InputError if a parameter of an estimator is not of the type that its `__init__` states.

    Types that `deeprc.documents.validate` does not know, which a user's class may state, are not checked.
    """
    kind: Any = type(estimator)
    for name, hint in _list_parameter_types(kind).items():
        value = getattr(estimator, name, None)
        validate(list(value) if isinstance(value, range) else to_plain(value), hint, name)


@cache
def _list_parameter_types(kind: Any) -> Mapping[str, Any]:
    """Return the types of the parameters of `__init__`, by name, in a form that `validate` knows."""
    try:
        hints = get_type_hints(kind.__init__)
    except (NameError, AttributeError, TypeError):  # a user's class may name types that are imported nowhere
        return {}
    return {name: _convert_type(hint) for name, hint in hints.items() if name != "return"}


def _convert_type(hint: Any) -> Any:
    """Return a type as `validate` knows it: a sequence is a list, and a type that it does not know is Any."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = [argument for argument in arguments if argument is not NoneType]
        converted = _convert_type(kinds[0])
        return converted | None if len(kinds) == 1 and converted is not Any else Any
    if origin in (Sequence, list):
        return list[_convert_type(arguments[0])]  # type: ignore[misc]
    return hint if origin is Literal or hint in (bool, int, float, str, dict[str, Any]) else Any


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
