"""The files of a cross-validation, read for its report.

The metrics, folds and predictions of a target must agree, because a report of files that do not would mislead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from deeprc.documents import read_json, validate
from deeprc.errors import InputError
from deeprc.evaluation.caution import Caution, read_cautions
from deeprc.evaluation.significance import Relation
from deeprc.evaluation.stored_tables import read_fold_metrics, read_motif_counts, read_out_of_fold
from deeprc.runs.cross_plan import CrossValidationHeader, holds_cross_validation, read_header

__all__ = ["StoredCrossValidation", "TargetMetrics", "list_classes", "read_cross_validation"]


@dataclass(frozen=True)
class StoredStratifiedAuc:
    """The AUC within the values of a column, from `metrics.json`; see `StratifiedAuc`."""

    column: str
    auc: float
    n: int
    n_strata: int
    auc_ci: tuple[float, float]


@dataclass(frozen=True)
class ControlMetrics:
    """A control, from `metrics.json`; see `ControlComparison.to_list`."""

    control: str
    relation: Relation
    contrast: str = ""
    auc: float | None = None
    auc_ci: tuple[float, float] | None = None
    r2: float | None = None
    r2_ci: tuple[float, float] | None = None
    difference: float | None = None
    p_value: float | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class TargetMetrics:
    """The metrics of a target, from `metrics.json`; see `deeprc.runs.cross_metrics.measure_folds`."""

    n: int
    n_repeats: int
    n_folds: int | None = None
    n_positive: int | None = None
    positive_class: str | None = None
    auc: float | None = None
    auc_ci: tuple[float, float] | None = None
    auc_sd: float | None = None
    auc_by_repeat: tuple[float, ...] = ()
    auc_by_class: tuple[float | None, ...] = ()
    f1: float | None = None
    balanced_accuracy: float | None = None
    accuracy: float | None = None
    loss: float | None = None
    loss_base_rate: float | None = None
    brier: float | None = None
    brier_base_rate: float | None = None
    calibration_error: float | None = None
    r2: float | None = None
    r2_ci: tuple[float, float] | None = None
    spearman: float | None = None
    spearman_ci: tuple[float, float] | None = None
    mae: float | None = None
    mae_ci: tuple[float, float] | None = None
    within: tuple[StoredStratifiedAuc, ...] = ()
    controls: tuple[ControlMetrics, ...] = ()


@dataclass(frozen=True)
class StoredCrossValidation:
    """The content of the folder of a cross-validation."""

    header: CrossValidationHeader
    metrics: dict[str, TargetMetrics]
    folds: pd.DataFrame
    predictions: pd.DataFrame
    motifs: pd.DataFrame | None
    cautions: Sequence[Caution]

    def is_regression(self, target: str) -> bool:
        """Return whether a target is a number."""
        return self.metrics[target].mae is not None


def read_cross_validation(folder: Path) -> StoredCrossValidation:
    """Read the folder of a cross-validation that has ended.

    Raises
    ------
    InputError
        If the folder has none, or if a file is damaged or does not agree with the others.
    """
    if not holds_cross_validation(folder):
        raise InputError(f"{folder}: holds no cross-validation (no cv.yaml); expected one made by `deeprc cv`")
    header = read_header(folder)
    for name in ("metrics.json", "folds.tsv", "predictions.tsv"):
        if not (folder / name).exists():
            raise InputError(f"{folder}: the cross-validation has not ended (no {name})")
    file = folder / "metrics.json"
    metrics: dict[str, TargetMetrics] = validate(read_json(file), dict[str, TargetMetrics], str(file))
    if not metrics:
        raise InputError(f"{file}: expected the metrics of at least one target, found none")
    folds, predictions = read_fold_metrics(folder / "folds.tsv"), read_out_of_fold(folder / "predictions.tsv")
    ended = replace(header, repeats=max((metric.n_repeats for metric in metrics.values()), default=header.repeats))
    file = folder / "motifs.tsv"
    motifs = read_motif_counts(file) if file.exists() else None  # earlier versions lack it
    result = StoredCrossValidation(ended, metrics, folds, predictions, motifs, read_cautions(folder))
    for name, metric in metrics.items():
        _check_fit(result, name, metric, folder)
    return result


def _check_fit(result: StoredCrossValidation, name: str, metrics: TargetMetrics, folder: Path) -> None:
    """Raise InputError if the predictions and folds of a target do not agree with its metrics."""
    target_folds = result.folds[result.folds["target"] == name]
    _check_repeats(target_folds, name, metrics, folder / "folds.tsv")
    file = folder / "predictions.tsv"
    targets = [name, *(f"{name}={class_name}" for class_name in list_classes(result.predictions, name))]
    parts = [result.predictions[result.predictions["target"] == target] for target in targets]
    parts = [part for part in parts if len(part)]
    if not parts:
        raise InputError(f"{file}: no predictions of {name!r}, which metrics.json has")
    needed = ["prediction"] if result.is_regression(name) else ["log_odds", "probability"]
    for part in parts:
        _check_repeats(part, name, metrics, file)
        labelled = part[part["label"].notna()]
        n = len(labelled) // metrics.n_repeats
        if n != metrics.n:
            raise InputError(
                f"{file}: {name}: expected {metrics.n} repertoires with a label as in metrics.json, found {n}"
            )
        for column in needed:
            if column not in labelled or labelled[column].isna().any():
                raise InputError(f"{file}: {name}: column {column!r}: a value is missing")


def _check_repeats(table: pd.DataFrame, name: str, metrics: TargetMetrics, file: Path) -> None:
    n = table["repeat"].nunique()
    if n != metrics.n_repeats:
        raise InputError(f"{file}: {name}: expected {metrics.n_repeats} repeats as in metrics.json, found {n}")


def list_classes(predictions: pd.DataFrame, name: str) -> list[str]:
    """Return the classes of a target with several classes, in the order of the predictions; else an empty list."""
    given, targets = predictions["positive_class"].dropna().unique(), set(predictions["target"])
    return [str(class_name) for class_name in given if f"{name}={class_name}" in targets]
