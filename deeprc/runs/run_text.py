"""Short descriptions of a run, or of an ensemble of runs, for a Python prompt and for notebooks."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeprc.documents import read_json
from deeprc.errors import format_count
from deeprc.evaluation.splits import PARTS
from deeprc.notebook_html import render_details, render_interval
from deeprc.settings import format_setting
from deeprc.tasks import Task

if TYPE_CHECKING:
    from deeprc.runs.run import Run

__all__ = ["describe_ensemble", "describe_metrics", "describe_run", "describe_task", "show_ensemble", "show_run"]

_WIDTH = 100
_LABEL = 10  # width of the label before the text of a line
_MAX_CLASSES = 6
_SHOWN = {"auc": "AUC", "balanced_accuracy": "balanced accuracy", "r2": "r2", "mae": "MAE"}
_METRICS_BY_KIND = {"binary": ("auc",), "multiclass": ("auc", "balanced_accuracy"), "regression": ("r2", "mae")}


def describe_run(run: Run) -> str:
    """Return lines with path, targets, changed settings, repertoires per part of the split, and metrics on test."""
    return _wrap_lines(f"Run({run.model.name!r})", _list_lines(run))


def show_run(run: Run) -> str:
    """Return the text of `describe_run` as HTML, with pictures of the intervals of the AUCs or r2 on test."""
    pictures = []
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # no metrics, or damaged ones
        metrics = read_json(run.path / "metrics.json")["test"]
        for task in run.tasks:
            values = metrics.get(task.name, {})
            measure, chance = ("r2", None) if task.kind == "regression" else ("auc", 0.5)
            if values.get(measure) is not None and values.get(f"{measure}_ci") is not None:
                low, high = values[f"{measure}_ci"]
                drawn = render_interval(float(low), float(values[measure]), float(high), chance=chance)
                pictures.append(f"<div>{escape(task.name) if len(run.tasks) > 1 else ''} {drawn}</div>")
    return render_details(f"Run {run.model.name}", _list_lines(run), *pictures)


def show_ensemble(runs: Sequence[Run]) -> str:
    """Return the text of `describe_ensemble` as HTML."""
    names = ", ".join(run.model.name for run in runs)
    return render_details(
        f"Ensemble of {format_count(len(runs), 'run')}", [("runs", names), *_list_targets(runs[0].tasks)]
    )


def _list_lines(run: Run) -> list[tuple[str, str]]:
    changes = run.settings.config.changes()
    settings = " ".join(f"{name}={format_setting(value)}" for name, value in changes.items()) or "the defaults"
    lines = [*_list_targets(run.tasks), ("settings", settings)]
    if run.bundle is None:  # a packed run has no ids of repertoires
        sizes = ", ".join(f"{part} {len(run.splits[part]):,}" for part in PARTS)
        lines.append(("split", f"{sizes} repertoires"))
    if adjust_for := run.settings.split_options.adjust_for:
        lines.append(("adjusted", f"for {', '.join(adjust_for)}"))
    return [*lines, *_list_test_metrics(run.path, run.tasks)]


def describe_ensemble(runs: Sequence[Run]) -> str:
    """Return lines with the paths and targets of runs that predict together."""
    paths = ", ".join(run.model.name for run in runs)
    heading = f"Ensemble of {format_count(len(runs), 'run')}"
    return _wrap_lines(
        heading, [("runs", textwrap.shorten(paths, 5 * _WIDTH, placeholder=" ...")), *_list_targets(runs[0].tasks)]
    )


def _wrap_lines(heading: str, lines: Sequence[tuple[str, str]]) -> str:
    wrapped = [
        line
        for label, text in lines
        for line in textwrap.wrap(
            text, _WIDTH, initial_indent=f"  {label:<{_LABEL}}", subsequent_indent=" " * (_LABEL + 2)
        )
    ]
    return "\n".join([heading, *wrapped])


def _list_targets(tasks: Sequence[Task]) -> list[tuple[str, str]]:
    return [("target" if i == 0 else "", describe_task(task)) for i, task in enumerate(tasks)]


def describe_task(task: Task) -> str:
    """Return the name, kind and classes of a target as text."""
    return f"{task.name}, {task.kind}{_format_classes(task)}"


def _format_classes(task: Task) -> str:
    if task.kind == "regression":
        return ""
    if task.kind == "binary":
        return f": {task.positive} against {task.negative}"
    more = f" and {len(task.classes) - _MAX_CLASSES} more" if len(task.classes) > _MAX_CLASSES else ""
    return f": {', '.join(task.classes[:_MAX_CLASSES])}{more}"


def _list_test_metrics(path: Path, tasks: Sequence[Task]) -> list[tuple[str, str]]:
    """Return lines with the metrics of the test repertoires; none if `metrics.json` is missing or damaged."""
    try:
        metrics = read_json(path / "metrics.json")["test"]
    except (ValueError, KeyError, TypeError):
        return []
    return [("test" if i == 0 else "", line) for i, line in enumerate(describe_metrics(metrics, tasks))]


def describe_metrics(metrics: Any, tasks: Sequence[Task]) -> list[str]:
    """Return a line for each target from the metrics of one part of the split; none if they are damaged."""
    try:
        return [_format_metrics(task, metrics[task.name]) for task in tasks if metrics.get(task.name, {}).get("n")]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return []


def _format_metrics(task: Task, values: Mapping[str, Any]) -> str:
    parts = [
        f"{_SHOWN[name]} {values[name]:.3f}" for name in _METRICS_BY_KIND[task.kind] if values.get(name) is not None
    ]
    limits = values.get("auc_ci") or values.get("r2_ci")
    if parts and limits:
        low, high = limits
        parts[0] += f" (95% interval {low:.3f} to {high:.3f})"
    return f"{task.name}: {', '.join(parts) or 'no metric is defined'}, on {values['n']:,} repertoires"
