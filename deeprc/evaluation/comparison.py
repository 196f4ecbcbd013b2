"""Compare methods on the same test folds: AUC or r2, interval, and paired test against the best method.

Letters: B repertoires of a fold, F folds, M methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from deeprc.errors import InputError
from deeprc.evaluation.auc_comparison import adjust_by_holm
from deeprc.evaluation.reliability import MEASURES
from deeprc.evaluation.scoring import BINARY, BinaryScoring, MulticlassScoring
from deeprc.evaluation.scoring_base import DONOR, Estimate, Scoring, refuse

__all__ = [
    "MethodInfo",
    "compare",
    "compare_probabilities",
    "compute_fold_metrics",
    "validate_predictions",
]


@dataclass(frozen=True)
class MethodInfo:
    """A method as it appears in tables.

    Attributes
    ----------
    name
        The name in data frames, such as "svm-minmax".
    label
        The name that tables print, such as "SVM (MinMax)".
    kind
        "method"; "control" (sees no amino-acid sequence); or "truth" (uses the ground truth of a simulation). Only a
        "method" can be the best.
    """

    name: str
    label: str
    kind: Literal["method", "control", "truth"] = "method"


def validate_predictions(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo] | None = None, scoring: Scoring = BINARY
) -> pd.DataFrame:
    """Return the predictions sorted by method, fold and repertoire, with their columns' types set.

    Parameters
    ----------
    predictions
        A table with the columns method, fold, repertoire_id, label and those of the target's kind, see
        `deeprc.evaluation.scoring`; for two classes they are score (higher for class 1), probability (of class 1) and,
        if it is not 0.5, cutoff (a missing one is 0.5). Each repertoire is in one fold. A method may lack folds, but it
        has all repertoires of a fold that it has.
    methods
        Methods that may occur; None: any.
    scoring
        Scoring of the kind of target.

    Raises
    ------
    InputError
        If the table is not as described.
    """
    absent = {name: value for name, value in scoring.optional.items() if name not in predictions}
    predictions = predictions.assign(**absent)
    predictions = predictions.fillna({name: value for name, value in scoring.optional.items() if name not in absent})
    missing = [name for name in scoring.columns if name not in predictions]
    if missing:
        expected = ", ".join(scoring.columns)
        raise InputError(f"predictions: expected the columns {expected}; missing: {', '.join(missing)}")
    table = predictions[list(scoring.columns)].astype({"method": str, "repertoire_id": str, "fold": np.int64})
    unknown = sorted(set(table["method"]) - {method.name for method in methods}) if methods is not None else []
    if unknown:
        raise InputError(f"predictions: these methods are not in the list: {', '.join(unknown)}")
    table = scoring.validate(table)
    refuse(table, table.duplicated(["method", "repertoire_id"]), "has two predictions")
    for column in ("label", "fold"):
        differs = table[column] != table.groupby("repertoire_id")[column].transform("first")
        refuse(table, differs, f"two methods give this repertoire different {column}s")
    in_fold = table.groupby("fold")["repertoire_id"].transform("nunique")
    short = table.groupby(["method", "fold"])["repertoire_id"].transform("size") < in_fold
    _refuse_incomplete_folds(table, short)
    return table.sort_values(["method", "fold", "repertoire_id"], ignore_index=True)


def _refuse_incomplete_folds(table: pd.DataFrame, is_incomplete: pd.Series[bool]) -> None:
    """Raise InputError that names a repertoire which the method of the first incomplete row does not predict."""
    if not is_incomplete.any():
        return
    method, fold = table.loc[is_incomplete, ["method", "fold"]].iloc[0]
    fold_table = table[table["fold"] == fold]
    missing = set(fold_table["repertoire_id"]) - set(fold_table.loc[fold_table["method"] == method, "repertoire_id"])
    raise InputError(
        f"predictions: method {method!r} has no prediction for some repertoires of fold {fold} that another method "
        f"predicts, such as {min(missing)!r}"
    )


def compute_fold_metrics(predictions: pd.DataFrame, scoring: Scoring = BINARY) -> pd.DataFrame:
    """Return a table of method, fold, metric and value, see `Scoring.measure_fold`; an undefined value is NaN.

    Raises
    ------
    InputError
        If the table is not what `validate_predictions` expects.
    """
    rows = []
    for (method, fold), part in validate_predictions(predictions, scoring=scoring).groupby(["method", "fold"]):
        rows += [(method, fold, metric, value) for metric, value in scoring.measure_fold(part).items()]
    return pd.DataFrame(rows, columns=["method", "fold", "metric", "value"])


def compare_probabilities(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY
) -> pd.DataFrame:
    """Return how good the probabilities of each method are, over all its test repertoires together.

    Returns
    -------
    One row per method that has predictions: method, kind, n_repertoires, and the measures of
    `deeprc.evaluation.reliability.judge_probabilities`, the lowest log loss first; no row if numbers are
    predicted.

    Raises
    ------
    InputError
        If the table is not what `validate_predictions` expects.
    """
    table = validate_predictions(predictions, methods, scoring)
    rows = []
    for method in methods:
        method_rows = table[table["method"] == method.name]
        if len(method_rows) and isinstance(scoring, BinaryScoring | MulticlassScoring):
            measures = scoring.judge_probabilities(method_rows)
            rows.append({"method": method.name, "kind": method.kind, "n_repertoires": len(method_rows), **measures})
    compared = pd.DataFrame(rows, columns=["method", "kind", "n_repertoires", *MEASURES])
    return compared.sort_values("log_loss", kind="stable", ignore_index=True)


_Folds = dict[int, pd.DataFrame]


def compare(
    predictions: pd.DataFrame,
    methods: Sequence[MethodInfo],
    *,
    n_folds: int | None = None,
    seed: int = 0,
    scoring: Scoring = BINARY,
    donors: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Return the measure of each method with its interval, and its difference to the best method with a p-value.

    The best method has the kind "method" and the highest AUC (or macro AUC, or r2) among those with the most folds. It
    is chosen on the test folds themselves; therefore its measure is a little too high, and the p-values of the others
    are a little too small.

    Parameters
    ----------
    predictions
        The predictions, as in `validate_predictions`.
    methods
        The methods, in the order of the rows.
    n_folds
        The number of folds of a complete method; by default the number that occurs.
    seed
        Seed of random permutations.
    scoring
        Scoring of the kind of target.
    donors
        Index of the donor of each repertoire, by repertoire id; None: each repertoire has its own donor.

    Returns
    -------
    One row per method:

    - `method`, `kind`, `best`;
    - the measure, `auc_mean` or `r2`, over the folds that have all classes, and its standard deviation over folds,
      `auc_sd` or `r2_sd`, with F - 1 in the denominator; the limits of its 95% interval, `ci_low` and `ci_high`, see
      `Scoring.estimate_over_folds`;
    - `difference` to the best method, `p_value` and `test`, see `Scoring.test`, on the folds that both methods have;
    - `p_holm`: the p-value corrected for the number of methods and controls that are compared with the best method;
    - `n_folds`: the number of folds that are measured; `n_wanted`: that of a complete method; `complete`: whether this
      method has all of them;
    - `n_repertoires` in the measured folds; `n_smallest`, those of the smallest class (for numbers: all); for two
      classes also `n_positive` and `n_negative`.

    A value that does not exist, such as the AUC of a method without predictions, is NaN.

    Raises
    ------
    InputError
        If the table is not what `validate_predictions` expects.
    """
    table = validate_predictions(predictions, methods, scoring)
    if donors is not None:
        table[DONOR] = table["repertoire_id"].map(donors).astype(np.int64)
    n_expected = table["fold"].nunique() if n_folds is None else n_folds
    folds = {method.name: _split_by_fold(table[table["method"] == method.name], scoring) for method in methods}
    present = table.groupby("method")["fold"].nunique()
    rows = [
        {"method": method.name, "kind": method.kind, **_summarise_folds(folds[method.name], scoring)}
        for method in methods
    ]
    best = _find_best_method(rows, scoring)
    against = {} if best is None else folds[best]
    for row in rows:
        row["best"] = row["method"] == best
        row["n_wanted"], row["complete"] = n_expected, int(present.get(row["method"], 0)) >= max(n_expected, 1)
        row.update(_test_against_best(folds[row["method"]], against, scoring, is_best=row["best"], seed=seed))
    sizes = list(scoring.count_repertoires([]))
    columns = [
        *("method", "kind", "best", scoring.estimate_column, scoring.sd_column, "ci_low", "ci_high"),
        *("difference", "p_value", "p_holm", "test", "n_folds", "n_wanted", "complete", *sizes),
    ]
    comparison = pd.DataFrame(rows, columns=columns)
    is_corrected = comparison["p_value"].notna() & (comparison["kind"] != "truth")
    p_values = comparison.loc[is_corrected, "p_value"].to_numpy(np.float64)
    comparison.loc[is_corrected, "p_holm"] = adjust_by_holm(p_values)
    return comparison.astype({"p_holm": np.float64})


def _split_by_fold(part: pd.DataFrame, scoring: Scoring) -> _Folds:
    """Return the predictions of one method by fold, without folds that cannot be measured (with one class only)."""
    return {int(str(fold)): rows for fold, rows in part.groupby("fold") if scoring.is_measured(rows)}


def _summarise_folds(folds: _Folds, scoring: Scoring) -> dict[str, Any]:
    """Return the measure of a method over its folds, with interval and numbers of repertoires."""
    parts = list(folds.values())
    estimate = scoring.estimate_over_folds(parts) if parts else Estimate(np.nan, np.nan, np.nan, np.nan)
    limits = {"ci_low": estimate.low, "ci_high": estimate.high}
    return {
        scoring.estimate_column: estimate.value,
        scoring.sd_column: estimate.sd,
        **limits,
        "n_folds": len(parts),
        **scoring.count_repertoires(parts),
    }


def _find_best_method(rows: Sequence[Mapping[str, Any]], scoring: Scoring) -> str | None:
    """Return the method with the most folds, and among these the highest measure; None if no method is measured."""
    measured = [row for row in rows if row["kind"] == "method" and not np.isnan(row[scoring.estimate_column])]
    return max(measured, key=lambda row: (row["n_folds"], row[scoring.estimate_column]))["method"] if measured else None


def _test_against_best(folds: _Folds, best: _Folds, scoring: Scoring, *, is_best: bool, seed: int) -> dict[str, Any]:
    """Return the difference of a method to the best one, with the p-value and the name of the test."""
    common = sorted(folds.keys() & best.keys())
    if is_best or not common:
        return {"difference": 0.0 if is_best else np.nan, "p_value": np.nan, "test": ""}
    return scoring.test([folds[fold] for fold in common], [best[fold] for fold in common], seed=seed)._asdict()
