"""Metrics as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

__all__ = ["metrics_lines"]

_COLUMNS = ("n", "auc", "auc_ci", "f1", "balanced_accuracy", "accuracy", "r2", "mae", "loss")


def metrics_lines(metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return a table with one line per side and target from the content of `metrics.json`."""
    rows = [
        {"split": side, "target": target, **{name: _text(values[name]) for name in _COLUMNS if name in values}}
        for side, targets in metrics.items()
        for target, values in targets.items()
    ]
    columns = ["split", "target", *(name for name in _COLUMNS if any(name in row for row in rows))]
    return pd.DataFrame(rows, columns=columns).fillna("").to_string(index=False)


def _text(value: Any) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return "-".join(f"{limit:.3f}" for limit in value)
    return str(value) if isinstance(value, int) else f"{value:.3f}"
