"""YAML and JSON from files that somebody else may have made: read within limits, and each value checked by its type.

Nothing that a document says is imported or executed. A document that is too large, too deep or not of the expected
types is an `InputError` of one line.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import yaml

from deeprc.errors import InputError
from deeprc.files import read_limited

__all__ = [
    "CONTROL",
    "MOST_JSON_BYTES",
    "MOST_YAML_BYTES",
    "AnyFloat",
    "parse_json",
    "parse_yaml",
    "plain",
    "read_json",
    "read_text",
    "read_yaml",
    "shown",
    "typed",
]

MOST_JSON_BYTES = 64 << 20
"""Of a JSON file: the ids and digests of half a million repertoires."""

MOST_YAML_BYTES = 1 << 20
"""Of a YAML file; PyYAML reads about as much in some seconds."""

AnyFloat = Annotated[float, "any"]
"""A number that may be infinite or NaN, for `typed`; a plain `float` must be finite."""

_MOST_NODES = 200_000  # of a YAML document, a node counted as often as aliases repeat it
_LARGEST_INTEGER = 2**63 - 1
_NOT_READ = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
)  # PyYAML's, of values such as `!!int ""`

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What steers a terminal or ends a line, and so is part of no name."""

_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")  # a text may have lines

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel, _short.maxlist, _short.maxdict = 2, 3, 3


def plain(value: Any) -> Any:
    """Return a value as YAML and JSON can write it: numpy's numbers and truth values as Python's, at any depth."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {plain(name): plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def shown(value: object) -> str:
    """Return what a value looks like, in at most some hundred characters, for messages."""
    try:
        return _short.repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python prints
        return f"a {type(value).__name__}"


def read_text(path: Path, *, limit: int = MOST_JSON_BYTES) -> str:
    """Return the text of a regular file of at most `limit` bytes.

    Raises
    ------
    InputError
        If it is missing, cannot be read, is no regular file, is too large, or is no UTF-8 text.
    """
    try:
        return read_limited(path, limit=limit, expected="a text").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is no UTF-8 text: byte {error.start}") from error


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; raises as `read_text` and `parse_json` do."""
    return parse_json(read_text(path), source=str(path))


def parse_json(text: str, *, source: str) -> Any:
    """Return what a JSON text says.

    Raises
    ------
    InputError
        If it is no JSON, or nested too deeply; the message begins with `source`.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{source}: is not JSON: {_first_line(error)}") from error


def read_yaml(path: Path) -> Any:
    """Return what a YAML file holds; raises as `read_text` and `parse_yaml` do."""
    return parse_yaml(read_text(path, limit=MOST_YAML_BYTES), source=str(path))


def parse_yaml(text: str, *, source: str) -> Any:
    """Return what a YAML text says: plain values only, no Python objects.

    Raises
    ------
    InputError
        If it is no YAML, is nested too deeply, or repeats itself by aliases more than `_MOST_NODES` times in all; the
        message begins with `source`.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _n_nodes(node, {}) > _MOST_NODES:
            raise InputError(f"{source}: is too large: more than {_MOST_NODES:,} values, aliases repeated")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise InputError(f"{source}: is not YAML: {_first_line(error)}") from error
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None
    except _NOT_READ as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: is not YAML: {type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _n_nodes(node: yaml.Node, known: dict[int, float]) -> float:
    """Return how many values a document has with its aliases repeated; infinitely many if it holds itself."""
    if id(node) not in known:
        known[id(node)] = math.inf  # until all below it is counted
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        below = (each for part in parts for each in (part if isinstance(part, tuple) else (part,)))
        known[id(node)] = 1 + sum(_n_nodes(each, known) for each in below)
    return known[id(node)]


def typed(value: Any, hint: Any, where: str) -> Any:
    """Return a value of a type hint from what JSON or YAML gives for it.

    Parameters
    ----------
    value
        Numbers, texts, lists and mappings.
    hint
        bool, int (of 64 bits), float (finite, see `AnyFloat`), str, Any, `Literal`, `X | None`, `list[X]`,
        `tuple[X, ...]`, `dict[str, X]`, or a dataclass, whose fields must be there unless they have a default; the
        limits `low` and `high` in a field's metadata are kept.
    where
        The file and the key, with which messages begin.

    Raises
    ------
    InputError
        If the value is not of this type.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Literal:
        if not isinstance(value, str) or value not in arguments:
            raise InputError(f"{where}: expected one of {', '.join(map(str, arguments))}, found {shown(value)}")
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        return typed(value, next(each for each in arguments if each is not NoneType), where)
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            raise InputError(f"{where}: expected a list, found {shown(value)}")
        return origin(typed(each, arguments[0], f"{where}[{place}]") for place, each in enumerate(value))
    if origin is dict:
        entries = _mapping(value, where).items()
        return {_text(name, where): typed(each, arguments[1], f"{where}.{shown(name)}") for name, each in entries}
    if is_dataclass(hint):
        return _of_dataclass(value, hint, where)
    if hint is str:
        return _text(value, where)
    return _number(value, hint, where)


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected names and values, found {shown(value)}")
    return value


def _of_dataclass(value: Any, kind: Any, where: str) -> Any:
    entries, known = _mapping(value, where), {each.name: each for each in fields(kind)}
    unknown = [name for name in entries if name not in known]
    if unknown:
        raise InputError(f"{where}: no key {shown(unknown[0])} is known here; expected {', '.join(known)}")
    built = {}
    for name, each in known.items():
        if name in entries:
            built[name] = typed(entries[name], _hints(kind)[name], f"{where}: {name}")
            low, high = each.metadata.get("low", -math.inf), each.metadata.get("high", math.inf)
            if built[name] is not None and (low, high) != (-math.inf, math.inf) and not low <= built[name] <= high:
                raise InputError(f"{where}: {name}: expected {low:g} to {high:g}, found {shown(built[name])}")
        elif each.default is MISSING and each.default_factory is MISSING:
            raise InputError(f"{where}: {name}: is missing")
    return kind(**built)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: expected text, found {shown(value)}")
    if _NO_TEXT.search(value):
        raise InputError(f"{where}: expected text without control characters, found {shown(value)}")
    return value


def _number(value: Any, hint: Any, where: str) -> bool | int | float:
    if hint is bool:
        if not isinstance(value, bool):
            raise InputError(f"{where}: expected true or false, found {shown(value)}")
        return value
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, Integral) or abs(int(value)) > _LARGEST_INTEGER:
            raise InputError(f"{where}: expected a whole number of 64 bits, found {shown(value)}")
        return int(value)
    number = isinstance(value, Real) and not isinstance(value, bool)
    if number and isinstance(value, Integral):
        number = abs(int(value)) <= _LARGEST_INTEGER
    if not number or not (hint is AnyFloat or math.isfinite(value)):
        raise InputError(f"{where}: expected a finite number, found {shown(value)}")
    return float(value)
