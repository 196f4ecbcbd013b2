"""Metrics of a model: as a dictionary that a notebook shows as a table, and from the file of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deeprc.documents import AnyFloat, read_json, validate
from deeprc.errors import InputError, show_parameters
from deeprc.notebook_html import render_details, render_interval, render_table

__all__ = ["Metrics", "read_metrics"]

_SHOWN = {
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "f1": "F1",
    "r2": "r2",
    "spearman": "rank correlation",
    "mae": "mean absolute error",
    "brier": "Brier score",
}

_LISTS: Mapping[str, tuple[str, ...]] = {
    "controls": ("control", "difference", "p_value"),
    "variation": ("output", "shares"),
    "within": ("column", "auc", "auc_ci"),
}
"""Lists in `metrics.json`, and what each of their entries must have."""

_NUMBERS = (
    *("auc", "cutoff", "f1", "balanced_accuracy", "accuracy", "r2", "spearman", "mae", "loss", "loss_base_rate"),
    *("brier", "brier_base_rate", "calibration_error", "difference", "p_value"),
)
_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("n", "n_positive"), int),
    **dict.fromkeys(("positive_class", "control", "contrast", "output", "column"), str),
    **dict.fromkeys(_NUMBERS, AnyFloat | None),
    **dict.fromkeys(("auc_ci", "r2_ci", "spearman_ci", "mae_ci"), tuple[AnyFloat, AnyFloat] | None),
    "shares": dict[str, AnyFloat],
}


class Metrics(dict[str, Any]):
    """Metrics by part of the split and target, and perhaps `warnings`.

    See `deeprc.evaluation.metrics.compute_task_metrics`.
    """

    def _repr_html_(self) -> str:
        """Return a row for each part of the split and target, a row for each control, and the warnings."""
        measured = [
            _Measured(part, target, values)
            for part, by_target in self.items()
            if part != "warnings"
            for target, values in by_target.items()
        ]
        warnings = [
            ("Warning" if caution["level"] == "warning" else "Note", show_parameters(caution["text"]))
            for caution in self.get("warnings", [])
        ]
        return render_details("Metrics", warnings, _render_metrics(measured), *_render_controls(measured))


class _Measured(NamedTuple):
    """The metrics of a target in a part of the split."""

    part: str
    target: str
    values: Mapping[str, Any]


def _render_metrics(measured: Sequence[_Measured]) -> str:
    """Return the table of metrics as HTML, with a picture of each interval."""
    names = [name for name in _SHOWN if any(name in values for _, _, values in measured)]
    rows = []
    for part, target, values in measured:
        numbers = [_format_number(values.get(name)) for name in names]
        rows.append([part, target, f"{values['n']:,}", *numbers, _format_limits(values)])
    headings = ["split", "target", "repertoires", *(_SHOWN[name] for name in names), "95% interval"]
    return render_table(headings, rows, [_draw_interval(values) for _, _, values in measured])


def _render_controls(measured: Sequence[_Measured]) -> list[str]:
    """Return the table of the control methods as HTML; an empty list without any."""
    rows, pictures = [], []
    for part, _, values in measured:
        for control in values.get("controls", []):
            value = _format_number(control.get("auc", control.get("r2")))
            rows.append([control["control"], part, value, _format_limits(control)])
            pictures.append(_draw_interval(control))
    headings = ["control method (sees no amino acids)", "split", "AUC or r2", "95% interval"]
    return [render_table(headings, rows, pictures)] if rows else []


def read_metrics(run: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the metrics of a run, from its `metrics.json`, by part of the split and target.

    Raises
    ------
    InputError
        If the file is missing, or if it is damaged where the values are shown.
    """
    file = run / "metrics.json"
    metrics: dict[str, dict[str, dict[str, Any]]] = validate(
        read_json(file), dict[str, dict[str, dict[str, Any]]], str(file)
    )
    for part, targets in metrics.items():
        for target, values in targets.items():
            _check_values(values, f"{file}: {part}: {target}")
    return metrics


def _check_values(values: Mapping[str, Any], where: str) -> None:
    """Raise InputError if a value, also within lists, is not of the type that its name has in `metrics.json`."""
    for name, value in values.items():
        if name in _TYPES:
            validate(value, _TYPES[name], f"{where}: {name}")
        elif name in _LISTS:
            for index, entry in enumerate(validate(value, list[dict[str, Any]], f"{where}: {name}")):
                for needed in _LISTS[name]:
                    if needed not in entry:
                        raise InputError(f"{where}: {name}[{index}]: {needed}: is missing")
                _check_values(entry, f"{where}: {name}[{index}]")


def _format_number(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.3f}"


def _format_limits(values: Mapping[str, Any]) -> str:
    limits = values.get("auc_ci") or values.get("r2_ci")
    return f"{limits[0]:.3f} to {limits[1]:.3f}" if limits else ""


def _draw_interval(values: Mapping[str, Any]) -> str:
    """Return a picture of an AUC with its interval; "" if it has no interval."""
    if values.get("auc") is None or not values.get("auc_ci"):
        return ""
    low, high = values["auc_ci"]
    return render_interval(low, values["auc"], high, chance=0.5)
