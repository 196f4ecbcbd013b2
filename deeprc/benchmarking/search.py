"""Search spaces: the settings to try and their order, and functions that give a setting to an estimator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone

from deeprc.benchmarking.cohort_digest import digest_values
from deeprc.documents import abbreviate, read_exponent
from deeprc.errors import InputError

__all__ = [
    "Range",
    "SearchSpace",
    "Setting",
    "apply_setting",
    "find_path_parameter",
    "group_by_path",
    "parse_search",
    "remove_path_parameter",
    "stops_early",
]

Setting = dict[str, Any]

_MAX_VALUES = 100_000
"""Largest number of values of a range, and of settings of a search space."""

_MAX_INTEGER = 2**63 - 1
_RANGES = ("log10", "integer")
_MAX_EXPONENT = 300  # largest exponent of 10 for a number of 64 bits


class Range(NamedTuple):
    """A range from which the values of a parameter are drawn at random.

    Attributes
    ----------
    kind
        "log10": the exponent of 10 is drawn uniformly from [low, high); "integer": an integer from low to high.
    low, high
        Limits of the range.
    """

    kind: str
    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float | int:
        """Return one value."""
        if self.kind == "log10":
            return float(10 ** rng.uniform(self.low, self.high))
        return int(rng.integers(int(self.low), int(self.high) + 1))


@dataclass(frozen=True)
class SearchSpace:
    """A search space: the settings to try for one method.

    Attributes
    ----------
    lists
        Values of each parameter. All combinations are tried; those with the first values come first.
    ranges
        Ranges of parameters that are drawn at random.
    trials
        Number of random draws for each combination of the lists.
    """

    lists: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    trials: int = 1

    def list_settings(self, seed: Sequence[int]) -> list[Setting]:
        """Return the different settings in their order of preference; the first of equally good ones is chosen.

        Parameters
        ----------
        seed
            Seed of the random draws; equal seeds give equal settings.
        """
        combinations = [
            dict(zip(self.lists, values, strict=True)) for values in itertools.product(*self.lists.values())
        ]
        rng = np.random.default_rng(seed)
        n_draws = self.trials if self.ranges else 1
        draws = [{name: limits.draw(rng) for name, limits in self.ranges.items()} for _ in range(n_draws)]
        settings = [{**combination, **draw} for combination in combinations for draw in draws]
        return list({repr(setting): setting for setting in settings}.values())  # integers may be drawn several times

    def list_extremes(self, limit: int) -> list[Setting]:
        """Return settings, at most `limit`, in which each listed value and both ends of each range occur.

        Parameters other than the one that varies have their first value. Of a list of consecutive numbers, only the
        first and the last occur.
        """
        values: dict[str, Sequence[Any]] = {
            name: [listed[0], listed[-1]] if isinstance(listed, range) else listed
            for name, listed in self.lists.items()
        }
        for name, (kind, low, high) in self.ranges.items():
            values[name] = [float(10**low), float(10**high)] if kind == "log10" else [int(low), int(high)]
        first = {name: listed[0] for name, listed in values.items()}
        others = ({**first, name: value} for name, listed in values.items() for value in listed[1:])
        return list(itertools.islice(itertools.chain([first], others), limit))


def parse_search(body: object, *, trials: object, source: str) -> SearchSpace:
    """Parse a search space from a YAML value: `name: [values]`, `{from: 1, to: 9}`, `{log10: [low, high]}`, ...

    Raises
    ------
    InputError
        If the value is anything else; the message begins with `source`.
    """
    if not isinstance(body, Mapping):
        raise InputError(f"{source}: expected names of parameters with values, found {abbreviate(body)}")
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise InputError(f"{source}: trials: expected a whole number of at least 1, found {abbreviate(trials)}")
    lists: dict[str, Sequence[Any]] = {}
    ranges: dict[str, Range] = {}
    for name, values in body.items():
        if isinstance(values, list) and values:
            lists[str(name)] = [read_exponent(value) for value in values]
            continue
        limits = _parse_limits(values, f"{source}: {name}")
        if limits.kind != "from":
            ranges[str(name)] = limits
            continue
        n_values = limits.high - limits.low + 1
        if n_values > _MAX_VALUES:
            raise InputError(f"{source}: {name}: expected at most {_MAX_VALUES} values, found {n_values}")
        lists[str(name)] = range(int(limits.low), int(limits.high) + 1)
    n_settings = math.prod(map(len, lists.values())) * (trials if ranges else 1)
    if n_settings > _MAX_VALUES:
        raise InputError(f"{source}: expected at most {_MAX_VALUES:,} settings, found {abbreviate(n_settings)}")
    return SearchSpace(lists, ranges, trials)


def _parse_limits(values: object, source: str) -> Range:
    """Return a range, also one of the kind "from", whose values are all tried; InputError if the value is no range."""
    expected = "expected a list of values, {from: 1, to: 9}, {log10: [-6, 6]} or {integer: [1, 32]}"
    if isinstance(values, Mapping):
        if set(values) == {"from", "to"}:
            kind, limits = "from", [values["from"], values["to"]]
        elif len(values) == 1 and next(iter(values)) in _RANGES:
            ((kind, limits),) = values.items()
        else:
            raise InputError(f"{source}: {expected}, found {abbreviate(dict(values))}")
        limits = [read_exponent(limit) for limit in limits] if isinstance(limits, list) else []
        if len(limits) == 2 and all(_is_allowed_limit(kind, limit) for limit in limits) and limits[0] <= limits[1]:
            return Range(str(kind), limits[0], limits[1])
    raise InputError(f"{source}: {expected}, found {abbreviate(values)}")


def _is_allowed_limit(kind: str, limit: object) -> bool:
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not abs(limit) <= _MAX_INTEGER:  # also NaN
        return False
    return abs(limit) <= _MAX_EXPONENT if kind == "log10" else limit == int(limit)


def stops_early(estimator: BaseEstimator) -> bool:
    """Return whether an estimator, also one of a user, takes validation repertoires to stop its training early."""
    return bool(getattr(estimator, "uses_validation", False))


def find_path_parameter(estimator: BaseEstimator) -> str | None:
    """Return the parameter whose values an estimator fits together in one path; None if each value needs a fit.

    A path gets no validation repertoires, so an estimator with early stopping has no path.
    """
    return None if stops_early(estimator) else getattr(estimator, "path_parameter", None)


def remove_path_parameter(estimator: BaseEstimator, setting: Mapping[str, Any]) -> Setting:
    """Return a setting without the parameter of the path; it is equal for all settings of one path."""
    path = find_path_parameter(estimator)
    return {name: value for name, value in setting.items() if name != path}


def group_by_path(estimator: BaseEstimator, settings: Sequence[Setting]) -> list[list[int]]:
    """Group the settings that one path fits together, and return the indices of each group's settings.

    They differ only in the path parameter. A setting without this parameter is alone in its group.
    """
    path_parameter = find_path_parameter(estimator)
    groups: dict[str, list[int]] = {}
    for index, setting in enumerate(settings):
        key = digest_values(remove_path_parameter(estimator, setting)) if path_parameter in setting else str(index)
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def apply_setting(estimator: BaseEstimator, setting: Mapping[str, Any]) -> BaseEstimator:
    """Return an unfitted copy of an estimator with the parameters of a setting.

    `overrides.n_kernels` sets the key `n_kernels` of the parameter `overrides`, which is a dictionary.

    Raises
    ------
    InputError
        If the estimator has no such parameter, or if the parameter is not a dictionary.
    """
    unfitted = clone(estimator)
    defaults = unfitted.get_params()
    parameters: dict[str, Any] = {}
    for name, value in setting.items():
        parameter, _, key = name.partition(".")
        if parameter not in defaults:
            class_name, names = type(estimator).__name__, ", ".join(sorted(defaults)) or "none"
            raise InputError(f"{class_name}: has no parameter {parameter!r}; it has {names}")
        if not key:
            parameters[parameter] = value
            continue
        held = parameters.get(parameter, defaults[parameter])
        if not (held is None or isinstance(held, Mapping)):
            raise InputError(
                f"{type(estimator).__name__}: {name}: the parameter {parameter!r} has no keys, it is {abbreviate(held)}"
            )
        parameters[parameter] = {**(held or {}), key: value}
    return unfitted.set_params(**parameters)
