"""Metrics of a model: as a dictionary that a notebook shows as a table, and from the file of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
        rows = [
            (part, target, values)
            for part, by_target in self.items()
            if part != "warnings"
            for target, values in by_target.items()
        ]
        names = [name for name in _SHOWN if any(name in values for *_, values in rows)]
        columns = ["split", "target", "repertoires", *map(_SHOWN.__getitem__, names), "95% interval"]
        shown = [
            [
                part,
                target,
                f"{values['n']:,}",
                *(_format_number(values.get(name)) for name in names),
                _format_limits(values),
            ]
            for part, target, values in rows
        ]
        metrics_table = render_table(columns, shown, [_draw_interval(values) for *_, values in rows])
        controls = [(control, part) for part, _, values in rows for control in values.get("controls", [])]
        control_rows = [
            [control["control"], part, _format_number(control.get("auc", control.get("r2"))), _format_limits(control)]
            for control, part in controls
        ]
        heads = ["control method (sees no amino acids)", "split", "AUC or r2", "95% interval"]
        pictures = [_draw_interval(control) for control, _ in controls]
        warnings = [
            ("Warning" if caution["level"] == "warning" else "Note", show_parameters(caution["text"]))
            for caution in self.get("warnings", [])
        ]
        return render_details(
            "Metrics", warnings, metrics_table, *([render_table(heads, control_rows, pictures)] if control_rows else [])
        )


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
