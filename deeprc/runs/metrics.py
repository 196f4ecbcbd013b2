"""Metrics of a model, as a dictionary that a notebook shows as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from deeprc.errors import show_parameters
from deeprc.notebook_html import render_details, render_interval, render_table

__all__ = ["Metrics"]

_SHOWN = {
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "f1": "F1",
    "r2": "r2",
    "spearman": "rank correlation",
    "mae": "mean absolute error",
    "brier": "Brier score",
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
