"""Read the origin of a container from JSON: what preprocessing did, and the recipe of a simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

from deeprc.documents import abbreviate, parse_json, validate
from deeprc.errors import InputError

__all__ = ["check_values", "read_preprocessing", "read_simulation"]

_PREPROCESSING = {
    "rows_read": int,
    "kept": int,
    "dropped": dict[str, int],
    "counts_from": dict[str, int],
    "counts_rounded": int,
    "rows_without_file": list[Any],
    "files_without_row": list[Any],
}
_OPTIONAL: dict[str, Any] = {
    "merged": int,
    "counts_capped": int,
    "repertoires_without_row": dict[str, list[Any]],
    "skipped_files": dict[str, Any],
}
_MAX_DEPTH = 50
_MAX_INTEGER = 2**63 - 1
_SIMULATION = {"background": dict[str, Any], "seed": int, "signals": list[Any]}
_SIGNALS: dict[str, dict[str, Any]] = {  # by the kind of signal: keys that readers of the recipe need
    "motifs": {"name": str, "status": str, "motifs": list[Any], "witness_rate": float},
    "clones": {"name": str, "status": str, "n_clones": int, "burden": float, "other_burden": float},
    "carriers": {"name": str, "path": str},
    "diffuse": {"name": str, "status": str, "k": int, "strength": float},
}


def read_preprocessing(text: str) -> dict[str, Any]:
    """Return the report of what preprocessing kept and dropped; empty if it is unknown.

    Raises
    ------
    ValueError
        If the text is no such JSON.
    """
    report = _read_object(text, "preprocessing")
    check_values(report, "preprocessing")
    lists = [name for name in ("repertoires", "relabelled", "joined") if name in report]
    _check_fields(report, dict.fromkeys(lists, list[Any]), "preprocessing")
    for entry in report.get("repertoires", []):
        _check_fields(entry, {"repertoire_id": str, "file": str}, "preprocessing, repertoires")
    for entry in report.get("relabelled", []):
        _check_fields(entry, {"metadata": str}, "preprocessing, relabelled")
    for entry in report.get("joined", []):
        _check_fields(entry, {"container": str, "n_repertoires": int, "source": str}, "preprocessing, joined")
    if "rows_read" in report:
        _check_fields(report, _PREPROCESSING, "preprocessing")
        optional = {name: hint for name, hint in _OPTIONAL.items() if name in report}
        _check_fields(report, optional, "preprocessing")
    return report


def read_simulation(text: str) -> dict[str, Any] | None:
    """Return the recipe of a simulated cohort; None if the cohort is not simulated.

    Raises
    ------
    ValueError
        If the text is no such JSON.
    """
    if text == "null":
        return None
    recipe = _read_object(text, "simulation")
    _check_fields(recipe, _SIMULATION, "simulation")
    _check_fields(recipe["background"], {"kind": str}, "simulation, background")
    for signal in recipe["signals"]:
        kind = signal.get("kind", "motifs") if isinstance(signal, dict) else "motifs"
        if not isinstance(kind, str) or kind not in _SIGNALS:
            raise ValueError(
                f"simulation, signals: kind: expected one of {', '.join(_SIGNALS)}, found {abbreviate(kind)}"
            )
        _check_fields(signal, _SIGNALS[kind], "simulation, signals")
        for motif in signal["motifs"] if kind == "motifs" else ():
            _check_fields(motif, {"pattern": str}, "simulation, motifs")
    check_values(recipe, "simulation")
    return recipe


def _read_object(text: str, name: str) -> dict[str, Any]:
    try:
        document = parse_json(text, source=name)
    except InputError as error:
        raise ValueError(str(error)) from error
    if not isinstance(document, dict):
        raise ValueError(f"{name}: expected names and values, found {abbreviate(document)}")
    return document


def check_values(document: Mapping[str, Any], name: str) -> None:
    """Refuse a document that is nested too deeply, or has numbers that JSON readers may reject, even in unknown fields.

    Raises
    ------
    ValueError
        If the document is such; the message begins with `name`.
    """
    level: list[Any] = [document]
    for _ in range(_MAX_DEPTH):
        parts = [
            entry.values() if isinstance(entry, dict) else entry for entry in level if isinstance(entry, dict | list)
        ]
        level = [*chain.from_iterable(parts)]
        for value in level:
            if isinstance(value, int) and abs(value) > _MAX_INTEGER:
                raise ValueError(f"{name}: expected whole numbers of 64 bits, found {abbreviate(value)}")
            if isinstance(value, float) and not math.isfinite(value):  # which JSON does not have
                raise ValueError(f"{name}: expected finite numbers, found {value}")
        if not level:
            return
    raise ValueError(f"{name}: is nested too deeply; expected at most {_MAX_DEPTH} levels")


def _check_fields(document: Any, expected: Mapping[str, Any], name: str) -> None:
    """Raise ValueError unless a document has values of the expected types under the expected keys."""
    if not isinstance(document, dict):
        raise ValueError(f"{name}: expected names and values, found {abbreviate(document)}")
    try:
        for key, hint in expected.items():
            validate(document.get(key), hint, f"{name}: {key}")
    except InputError as error:  # the caller knows the file's name
        raise ValueError(str(error)) from error
