"""Metrics and summaries as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from deeprc.hopfield.analysis import HeadSummary

__all__ = ["head_lines", "metrics_lines"]

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


def head_lines(heads: Sequence[HeadSummary]) -> Iterator[str]:
    """Say of each head, in a line, over how many sequences it averages."""
    for head in heads:
        size, low, high = (f"{value:,.0f}" for value in (head.median_size, head.lower_quartile, head.upper_quartile))
        yield (
            f"head {head.head}: averages over {size} sequences of a repertoire (median; quartiles {low} and {high}), "
            f"{head.median_fraction:.1%}: operating class {head.operating_class}"
        )


def _text(value: Any) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return "-".join(f"{limit:.3f}" for limit in value)
    return str(value) if isinstance(value, int) else f"{value:.3f}"
