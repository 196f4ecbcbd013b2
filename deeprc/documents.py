"""Reading of YAML, JSON and safetensors files that may come from other people, with limits on size and type.

Nothing that a document names is imported or executed. If a document is too large, nested too deeply, or has a value of
another type than expected, an `InputError` of one line is raised.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from deeprc.errors import InputError
from deeprc.files import check_regular_file, read_limited

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CONTROL_CHARACTERS",
    "MAX_JSON_BYTES",
    "MAX_YAML_BYTES",
    "NOT_ALLOWED_IN_TEXT",
    "AnyFloat",
    "abbreviate",
    "check_format",
    "parse_json",
    "parse_yaml",
    "read_arrays",
    "read_exponent",
    "read_json",
    "read_text",
    "read_yaml",
    "shorten_message",
    "to_plain",
    "validate",
]

MAX_JSON_BYTES = 64 << 20
"""Maximum size of a JSON file in bytes: enough for the ids and digests of half a million repertoires."""

MAX_YAML_BYTES = 1 << 20
"""Maximum size of a YAML file in bytes. PyYAML needs some seconds to read so many."""

AnyFloat = Annotated[float, "any"]
"""A number that may be infinite or NaN, for `validate`; a plain `float` must be finite."""

_MAX_NODES = 200_000  # limit for one YAML document; a node counts again for each alias that repeats it
_MAX_INTEGER = 2**63 - 1
# PyYAML raises these for values such as `!!int ""`.
_YAML_ERRORS = (ValueError, LookupError, TypeError, AttributeError, OverflowError)

# Numbers of both YAML 1.2 and 1.1; PyYAML writes all other texts without quotation marks.
_YAML_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(r"[+-]?(0|[1-9][0-9_]*)$"),
    "tag:yaml.org,2002:float": re.compile(
        r"[+-]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][+-][0-9]+)?$|[+-]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
    ),
}
_EXPONENT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)e[+-]?\d+", re.IGNORECASE)

CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")
"""Characters that control a terminal, end a line, or reverse the direction of text, and the two others that no figure
(XML) may contain. No name may contain them."""

NOT_ALLOWED_IN_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters that a text may not contain. Unlike a name, a text may have several lines."""


class _Loader(yaml.SafeLoader):
    """PyYAML's loader without numbers of base 2, 8, 16 and 60."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the base class declares it without `ClassVar`)
        first: [(tag, _YAML_NUMBERS.get(tag, pattern)) for tag, pattern in resolvers]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class _ShortRepr(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to print more than 4,300 digits; what `Repr` says then depends on Python's version.
        return "an integer of over 3,000 digits" if x.bit_length() > 10_000 else super().repr_int(x, level)


_SHORT = _ShortRepr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict = 2, 3, 3


def to_plain(value: Any) -> Any:
    """Convert numpy's numbers, booleans and arrays in a value, at any depth, to Python's, for YAML and JSON."""
    import numpy as np  # imported here, because the help of the command line reads presets and must not wait for numpy

    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {to_plain(name): to_plain(entry) for name, entry in value.items()}
    return [to_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def abbreviate(value: object) -> str:
    """Return a short `repr` of a value for messages, at most some hundred characters."""
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


def check_format(stated: tuple[object, object], name: str, version: int, where: str) -> None:
    """Refuse a document that states another format, or another version of it, than those expected.

    Raises
    ------
    InputError
        If they differ; the message begins with `where`.
    """
    if stated != (name, version):
        found = f"{abbreviate(stated[0])} version {abbreviate(stated[1])}"
        raise InputError(f"{where}: expected format {name!r} version {version}, found {found}")


def read_exponent(value: Any) -> Any:
    """Convert text such as 1e-3, which is not a number in YAML 1.1, to a number; return any other value unchanged."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def read_arrays(path: Path, *, expected: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays of a safetensors file by name, and the texts of its header.

    Raises
    ------
    InputError
        If the file is not regular, is damaged, or has numbers of a type that numpy lacks. The message names the
        `expected` kind of file.
    """
    from safetensors import SafetensorError, safe_open  # as in `to_plain`

    check_regular_file(path, expected=expected)
    try:
        with safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        # numpy has no bfloat16 (TypeError) and no float8 (AttributeError)
        raise InputError(f"{path}: is damaged or not a safetensors file: {shorten_message(error)}") from error


def read_text(path: Path, *, limit: int = MAX_JSON_BYTES) -> str:
    """Return the text of a regular file of at most `limit` bytes.

    Raises
    ------
    InputError
        If the file is missing, unreadable, not regular, too large, or not UTF-8 text.
    """
    try:
        return read_limited(path, limit=limit, expected="a text").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text: byte {error.start}") from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Errors are those of `read_text` and `parse_json`."""
    return parse_json(read_text(path), source=str(path))


def parse_json(text: str, *, source: str) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    InputError
        If the text is not JSON, is nested too deeply, or has a key twice. The message begins with `source`.
    """
    try:
        return json.loads(text, object_pairs_hook=_make_object)
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    except ValueError as error:
        raise InputError(f"{source}: is not JSON: {shorten_message(error)}") from error


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON as a dictionary; raise InputError if a key is repeated, of which the last would win."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        raise InputError(f"expected each key once, found {abbreviate(keys.most_common(1)[0][0])} again")
    return entries


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file. Errors are those of `read_text` and `parse_yaml`."""
    return parse_yaml(read_text(path, limit=MAX_YAML_BYTES), source=str(path))


def parse_yaml(text: str, *, source: str) -> Any:
    """Return the value of a YAML text: only numbers, texts, lists and mappings, no Python objects.

    Numbers are decimal, as in YAML 1.2: 0100 and 1:30, which are 64 and 90 in YAML 1.1, are texts.

    Raises
    ------
    InputError
        If the text is not YAML, is nested too deeply, has a key twice in a mapping, or has more than `_MAX_NODES`
        values, where aliases count as often as they are used. The message begins with `source`.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _count_nodes(node, {}) > _MAX_NODES:
            raise InputError(f"{source}: is too large: more than {_MAX_NODES:,} values, aliases repeated")
        if repeated := _find_repeated_key(node):
            line = repeated.start_mark.line + 1
            raise InputError(f"{source}: line {line}: expected each key once, found {abbreviate(repeated.value)} again")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise InputError(f"{source}: is not YAML: {shorten_message(error)}") from error
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None
    except _YAML_ERRORS as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: is not YAML: {type(error).__name__}: {shorten_message(error)}") from error


def shorten_message(error: Exception) -> str:
    """Return the message of an error as one line of at most 200 characters."""
    return " ".join(str(error).split())[:200]


def _count_nodes(node: yaml.Node, known: dict[int, float]) -> float:
    """Count the values of a document, with aliases repeated; infinity if the document contains itself."""
    if id(node) not in known:
        known[id(node)] = math.inf  # until its parts are counted
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        children = (child for part in parts for child in (part if isinstance(part, tuple) else (part,)))
        known[id(node)] = 1 + sum(_count_nodes(child, known) for child in children)
    return known[id(node)]


def _find_repeated_key(node: yaml.Node) -> yaml.ScalarNode | None:
    """Return a key that a mapping of the document has for the second time, or None. Without this, the last one wins."""
    waiting, seen = [node], {id(node)}
    while waiting:
        parts = waiting.pop().value
        if not isinstance(parts, list):  # a single value
            continue
        pairs = [part for part in parts if isinstance(part, tuple)]
        texts = set[tuple[str, str]]()
        for key, _ in pairs:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in texts:
                    return key
                texts.add((key.tag, key.value))
        children = [child for pair in pairs for child in pair] if pairs else parts
        waiting += [child for child in children if id(child) not in seen]
        seen |= {id(child) for child in children}
    return None


def validate(value: Any, hint: Any, where: str) -> Any:
    """Check that a value from JSON or YAML has the type of a hint, and return it in this type.

    Parameters
    ----------
    value
        A number, text, list or mapping.
    hint
        bool, int (64 bits), float (finite, see `AnyFloat`), str, Any, `Literal`, `X | None`, `list[X]`,
        `tuple[X, ...]`, `tuple[X, X]` (exactly two values), `dict[str, X]`, or a dataclass. The fields of a dataclass
        must be there unless they have a default, and must be within the limits `low` and `high` of the field's
        metadata.
    where
        File and key of the value; error messages begin with them.

    Raises
    ------
    InputError
        If the value does not have this type.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Literal:
        if not isinstance(value, str) or value not in arguments:
            raise InputError(f"{where}: expected one of {', '.join(map(str, arguments))}, found {abbreviate(value)}")
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        return validate(value, next(argument for argument in arguments if argument is not NoneType), where)
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            raise InputError(f"{where}: expected a list, found {abbreviate(value)}")
        if origin is tuple and arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise InputError(f"{where}: expected {len(arguments)} values, found {abbreviate(value)}")
        return origin(validate(entry, arguments[0], f"{where}[{index}]") for index, entry in enumerate(value))
    if origin is dict:
        entries = _validate_mapping(value, where).items()
        return {
            _validate_text(name, where): validate(entry, arguments[1], f"{where}.{abbreviate(name)}")
            for name, entry in entries
        }
    if is_dataclass(hint):
        return _validate_dataclass(value, hint, where)
    if hint is str:
        return _validate_text(value, where)
    return _validate_number(value, hint, where)


def _validate_mapping(value: Any, where: str) -> Mapping[Any, Any]:
    """Return the value if it is a mapping; raise InputError if not."""
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected names and values, found {abbreviate(value)}")
    return value


def _validate_dataclass(value: Any, kind: Any, where: str) -> Any:
    """Build the dataclass `kind` from a mapping of its fields; raise InputError if one is unknown, missing or wrong."""
    entries, known = _validate_mapping(value, where), {field.name: field for field in fields(kind)}
    unknown = [name for name in entries if name not in known]
    if unknown:
        raise InputError(f"{where}: no key {abbreviate(unknown[0])} is known here; expected {', '.join(known)}")
    built = {}
    for name, field in known.items():
        if name in entries:
            built[name] = validate(entries[name], _resolve_hints(kind)[name], f"{where}: {name}")
            low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
            if built[name] is not None and (low, high) != (-math.inf, math.inf) and not low <= built[name] <= high:
                raise InputError(f"{where}: {name}: expected {low:g} to {high:g}, found {abbreviate(built[name])}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise InputError(f"{where}: {name}: is missing")
    return kind(**built)


@cache
def _resolve_hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _validate_text(value: Any, where: str) -> str:
    """Return the value if it is a text without control characters; raise InputError if not."""
    if not isinstance(value, str):
        raise InputError(f"{where}: expected text, found {abbreviate(value)}")
    if NOT_ALLOWED_IN_TEXT.search(value):
        raise InputError(f"{where}: expected text without control characters, found {abbreviate(value)}")
    return value


def _validate_number(value: Any, hint: Any, where: str) -> bool | int | float:
    """Return the value as a bool, int or float, as the hint says; raise InputError if it is of another type."""
    if hint is bool:
        if not isinstance(value, bool):
            raise InputError(f"{where}: expected true or false, found {abbreviate(value)}")
        return value
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, Integral) or abs(int(value)) > _MAX_INTEGER:
            raise InputError(f"{where}: expected a whole number of 64 bits, found {abbreviate(value)}")
        return int(value)
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and isinstance(value, Integral):
        is_number = abs(int(value)) <= _MAX_INTEGER
    if not is_number or not (hint is AnyFloat or math.isfinite(value)):
        raise InputError(f"{where}: expected a finite number, found {abbreviate(value)}")
    return float(value)
