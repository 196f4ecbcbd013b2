"""What a container says of its origin, as JSON: what preprocessing did, and the recipe of a simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["read_preprocessing", "read_simulation"]

_PREPROCESSING: dict[str, type] = {
    "rows_read": int,
    "kept": int,
    "dropped": dict,
    "counts_from": dict,
    "counts_rounded": int,
    "rows_without_file": list,
    "files_without_row": list,
}
_SIMULATION: dict[str, type] = {"background": dict, "seed": int, "signals": list}
_SIGNAL: dict[str, type] = {"name": str, "status": str, "motifs": list, "witness_rate": float}


def read_preprocessing(text: str) -> dict[str, Any]:
    """Return what preprocessing kept and dropped; empty if nothing is known.

    Raises
    ------
    ValueError
        If the text is no such JSON.
    """
    report = _read_object(text, "preprocessing")
    _check_fields(report, {name: list for name in ("repertoires", "relabelled") if name in report}, "preprocessing")
    for each in report.get("repertoires", []):
        _check_fields(each, {"repertoire_id": str, "file": str}, "preprocessing, repertoires")
    for each in report.get("relabelled", []):
        _check_fields(each, {"metadata": str}, "preprocessing, relabelled")
    if "rows_read" in report:
        _check_fields(report, _PREPROCESSING, "preprocessing")
        for name in ("dropped", "counts_from"):
            _check_fields(report[name], dict.fromkeys(report[name], int), f"preprocessing, {name}")
        _check_fields(report, {"counts_capped": int} if "counts_capped" in report else {}, "preprocessing")
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
        _check_fields(signal, _SIGNAL, "simulation, signals")
        for motif in signal["motifs"]:
            _check_fields(motif, {"pattern": str}, "simulation, motifs")
    return recipe


def _read_object(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(f"{name}: expected JSON, found lists within lists too deep to read") from None
    except ValueError as error:
        raise ValueError(f"{name}: expected JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{name}: expected a JSON object, found {type(found).__name__}")
    return found


def _check_fields(found: Any, expected: Mapping[str, type], name: str) -> None:
    if not isinstance(found, dict):
        raise ValueError(f"{name}: expected a JSON object, found {type(found).__name__}")
    for key, kind in expected.items():
        value = found.get(key)
        kinds = (int, float) if kind is float else kind
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"{name}: {key}: expected {kind.__name__}, found {value!r:.60}")
