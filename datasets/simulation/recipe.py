"""Recipes: YAML files that describe simulated cohorts, both those of the package and those of users."""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from deeprc.datasets.simulation.background import Background, IndependentBackground
from deeprc.datasets.simulation.carrier_table import CarrierTable
from deeprc.datasets.simulation.clone_signal import CloneSignal
from deeprc.datasets.simulation.cohort import Cohort, Signal
from deeprc.datasets.simulation.diffuse_signal import DiffuseSignal
from deeprc.datasets.simulation.germline import GermlineBackground
from deeprc.datasets.simulation.lstm import LstmBackground
from deeprc.datasets.simulation.motif import Motif
from deeprc.datasets.simulation.motif_signal import MotifSignal
from deeprc.datasets.simulation.pool import SequencePool
from deeprc.datasets.simulation.recombination import RecombinationBackground
from deeprc.documents import parse_yaml, read_exponent, read_yaml, to_plain
from deeprc.errors import InputError, suggest_nearest

__all__ = [
    "BACKGROUNDS",
    "SIGNALS",
    "cohort_from_mapping",
    "cohort_to_mapping",
    "list_recipes",
    "load_recipe",
    "read_recipe",
]

BACKGROUNDS: Mapping[str, type[Any]] = {
    "independent": IndependentBackground,
    "germline": GermlineBackground,
    "lstm": LstmBackground,
    "sequences": SequencePool,
    "recombination": RecombinationBackground,
}
"""The kinds of background, by their names in a recipe."""

SIGNALS: Mapping[str, type[Any]] = {
    "motifs": MotifSignal,
    "clones": CloneSignal,
    "carriers": CarrierTable,
    "diffuse": DiffuseSignal,
}
"""The kinds of signal, by their names in a recipe; a signal without a kind is of the first kind."""

_FOLDER = "simulated"
_SUGGESTIONS = 3


def list_recipes() -> dict[str, str]:
    """Return the names and descriptions of the recipes that come with the package."""
    first_lines = {}
    for path in files("deeprc.configs").joinpath(_FOLDER).iterdir():
        if path.name.endswith(".yaml"):
            first = path.read_text(encoding="utf-8").partition("\n")[0]
            first_lines[path.name.removesuffix(".yaml")] = first.removeprefix("#").strip()
    return dict(sorted(first_lines.items(), key=lambda item: _sort_key(item[0])))


def load_recipe(
    name: str,
    overrides: Sequence[str] = (),
    *,
    seed: int | None = None,
    scale: float = 1.0,
    background: Path | None = None,
    carriers: Path | None = None,
) -> tuple[Cohort, dict[str, Any]]:
    """Return a cohort and the mapping that describes it completely.

    Parameters
    ----------
    name
        Name of a recipe of the package, or path of a YAML file.
    overrides
        Texts `key=value`, where the key is a path of names and numbers, such as `sizes.mean` or
        `signals.0.witness_rate`; with a single signal, `witness_rate` is enough.
    seed
        Seed of every random choice; None: the recipe's seed.
    scale
        Factor of the number of repertoires. The repertoires that remain are the same.
    background
        File of the real sequences that a recipe needs.
    carriers
        Table of the clones that each repertoire carries, if a recipe needs one.

    Raises
    ------
    InputError
        If the recipe or a value cannot be used; the message names the file and the key.
    """
    mapping = read_recipe(name)
    for override in overrides:
        _apply_override(mapping, override)
    if seed is not None:
        mapping["seed"] = seed
    if not 0 < scale < math.inf:
        raise InputError(f"`scale`: expected more than 0, found {scale:g}")
    if background is not None:
        mapping["background"] = {"kind": "sequences", "path": str(background)}
    if carriers is not None:
        _set_carrier_table(mapping, carriers)
    mapping.setdefault("name", Path(name).name.removesuffix(".yaml").removesuffix(".yml"))
    try:
        cohort = cohort_from_mapping(mapping)
    except InputError as error:
        if name in list_recipes():
            raise
        raise InputError(f"{name}: {error}") from error
    n = max(round(scale * cohort.n_repertoires), min(2, cohort.n_repertoires))
    cohort = replace(cohort, n_repertoires=n)
    return cohort, cohort_to_mapping(cohort)


def _set_carrier_table(mapping: dict[str, Any], path: Path) -> None:
    """Set the table of carriers, at `path`, in all signals of a recipe that read one."""
    signals = mapping.get("signals")
    tables = [signal for signal in signals or () if isinstance(signal, dict) and signal.get("kind") == "carriers"]
    if not tables:
        raise InputError("`carriers`: the recipe has no signal of kind carriers")
    for signal in tables:
        signal["path"] = str(path)


def read_recipe(name: str) -> dict[str, Any]:
    """Read a recipe's YAML.

    Raises
    ------
    InputError
        If there is no such recipe, or the file is not YAML mapping.
    """
    recipes = list_recipes()
    if name in recipes:
        text = files("deeprc.configs").joinpath(_FOLDER, f"{name}.yaml").read_text(encoding="utf-8")
        mapping = parse_yaml(text, source=name)
    elif name.endswith((".yaml", ".yml")):
        mapping = read_yaml(Path(name))
    else:
        near = suggest_nearest(name, recipes, _SUGGESTIONS)
        raise InputError(f"no recipe {name!r}{near}; `deeprc simulate --list` shows all")
    if not isinstance(mapping, dict):
        raise InputError(f"{name}: expected a mapping of names to values")
    return mapping


def cohort_from_mapping(mapping: Mapping[str, Any]) -> Cohort:
    """Return the cohort that a mapping from YAML describes.

    Raises
    ------
    InputError
        If a key is unknown or missing, or a value has another type than expected; the message lists all such keys.
    """
    cohort = _build_object(Cohort, mapping, "")
    assert isinstance(cohort, Cohort)
    return cohort


def cohort_to_mapping(cohort: Cohort) -> dict[str, Any]:
    """Return the mapping that describes a cohort completely, with its seed and all defaults."""
    mapping: dict[str, Any] = _convert_to_mapping(cohort)
    return mapping


def _convert_to_mapping(value: Any) -> Any:
    """Return a value in the types of YAML and JSON; backgrounds and signals get the key `kind`."""
    if is_dataclass(value):
        kinds = {recipe_class: name for name, recipe_class in (*BACKGROUNDS.items(), *SIGNALS.items())}
        kind = {"kind": kinds[type(value)]} if type(value) in kinds else {}
        return kind | {field.name: _convert_to_mapping(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_convert_to_mapping(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(name): _convert_to_mapping(entry) for name, entry in value.items()}
    return str(value) if isinstance(value, Path) else to_plain(value)


def _build_object(expected_type: Any, value: Any, key: str) -> Any:
    """Return an object of a type, made from a value of YAML; messages name the value's key."""
    if expected_type is Background:
        return _build_background(value, key)
    if expected_type == Signal:
        return _build_signal(value, key)
    if expected_type is Motif and isinstance(value, str):
        return Motif(value)
    if is_dataclass(expected_type):
        return _build_dataclass(expected_type, value, key)
    origin, arguments = get_origin(expected_type), get_args(expected_type)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _build_object(next(argument for argument in arguments if argument is not type(None)), value, key)
    if origin is Literal:
        if value not in arguments:
            raise InputError(f"{key}: expected one of {', '.join(arguments)}, found {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{key}: expected a list, found {value!r}")
        return tuple(_build_all((arguments[0], entry, f"{key}.{index}") for index, entry in enumerate(value)))
    if origin is not None:  # a mapping
        if not isinstance(value, Mapping):
            raise InputError(f"{key}: expected names and values, found {value!r}")
        names = [str(name) for name in value]
        built = _build_all((arguments[1], entry, f"{key}.{name}") for name, entry in value.items())
        return dict(zip(names, built, strict=True))
    return _convert_value(expected_type, value, key)


def _convert_value(expected_type: type, value: Any, key: str) -> Any:
    """Return a plain value in the type of its field; raise InputError if it does not fit."""
    value = to_plain(value)
    if expected_type is float:
        value = read_exponent(value)
    accepted: Any = {float: int | float, Path: str}.get(expected_type, expected_type)
    fits = isinstance(value, accepted) and (expected_type is bool or not isinstance(value, bool))
    if not fits:
        names = {float: "a number", int: "a whole number", str: "text", bool: "true or false", Path: "a file"}
        raise InputError(f"{key}: expected {names[expected_type]}, found {value!r}")
    return expected_type(value)


def _build_dataclass(dataclass_type: Any, value: Any, key: str) -> Any:
    """Return a dataclass from a mapping; one error names all unknown, missing and invalid fields."""
    if not isinstance(value, Mapping):
        raise InputError(f"{key or 'recipe'}: expected names and values, found {value!r}")
    types_of = get_type_hints(dataclass_type)
    field_of = {field.name: field for field in fields(dataclass_type)}
    # an override may be called witness_rate
    names = [*field_of, "witness_rate"] if dataclass_type is Cohort else list(field_of)
    problems = [
        f"{_join_keys(key, name)}: no such key{suggest_nearest(str(name), names, _SUGGESTIONS)}"
        for name in value
        if name not in field_of
    ]
    for name, field in field_of.items():
        if name not in value and field.default is MISSING and field.default_factory is MISSING:
            problems.append(f"{_join_keys(key, name)}: is missing")
    given = [name for name in value if name in field_of]
    built = _build_all(((types_of[name], value[name], _join_keys(key, name)) for name in given), problems)
    return dataclass_type(**dict(zip(given, built, strict=True)))


def _build_all(values: Iterable[tuple[Any, Any, str]], problems: Sequence[str] = ()) -> list[Any]:
    """Return the objects made from (expected type, value, key); one error lists their problems and all earlier ones."""
    built, messages = [], list(problems)
    for expected_type, value, key in values:
        try:
            built.append(_build_object(expected_type, value, key))
        except InputError as error:  # noqa: PERF203 (all problems are wanted, not the first)
            messages.append(str(error))
    if messages:
        raise InputError("; ".join(messages))
    return built


def _build_background(value: Any, key: str) -> Any:
    if not isinstance(value, Mapping) or value.get("kind") not in list(BACKGROUNDS):
        raise InputError(f"{key}.kind: expected one of {', '.join(BACKGROUNDS)}, found {value!r}")
    options = {name: entry for name, entry in value.items() if name != "kind"}
    if value["kind"] == "sequences" and options.get("path") is None:
        raise InputError(f"{key}.path: this recipe needs real sequences: `background=FILE`")
    return _build_dataclass(BACKGROUNDS[value["kind"]], options, key)


def _build_signal(value: Any, key: str) -> Any:
    if not isinstance(value, Mapping) or value.get("kind", "motifs") not in list(SIGNALS):
        raise InputError(f"{key}: expected names and values, with a kind of {', '.join(SIGNALS)}, found {value!r}")
    options = {name: entry for name, entry in value.items() if name != "kind"}
    if value.get("kind") == "carriers" and options.get("path") is None:
        raise InputError(f"{key}.path: this recipe needs a table of who carries which clone: `carriers=FILE`")
    return _build_dataclass(SIGNALS[value.get("kind", "motifs")], options, key)


def _apply_override(mapping: dict[str, Any], override: str) -> None:
    """Set one value of a recipe, in place, from a text such as `signals.0.witness_rate=0.01`."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InputError(f"{override!r}: expected key=value")
    signals = mapping.get("signals")
    names = key.strip().split(".")
    if names == ["witness_rate"]:
        if not isinstance(signals, list) or len(signals) != 1:
            raise InputError("witness_rate: expected a recipe with one signal; name the signal: signals.0.witness_rate")
        names = ["signals", "0", "witness_rate"]
    try:
        value = parse_yaml(text, source=key)
    except InputError as error:
        raise InputError(f"{override!r}: no YAML value") from error
    node: Any = mapping
    for name in names[:-1]:
        if isinstance(node, list) and name.isdigit() and int(name) < len(node):
            if isinstance(node[int(name)], str):
                node[int(name)] = {"pattern": node[int(name)]}  # a motif that is given as text
            node = node[int(name)]
        elif isinstance(node, dict):
            node = node.setdefault(name, {})
        else:
            raise InputError(f"{key}: there is no {name!r}")
    last = names[-1]
    if isinstance(node, list) and last.isdigit() and int(last) < len(node):
        node[int(last)] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise InputError(f"{key}: there is no {last!r}")


def _join_keys(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def _sort_key(name: str) -> list[tuple[int, str]]:
    return [(int(text), "") if text.isdigit() else (-1, text) for text in name.replace(".", "-").split("-")]
