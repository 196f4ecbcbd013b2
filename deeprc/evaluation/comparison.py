"""Compare methods on the same test folds: AUC or r2, interval, paired test against the best method, controls.

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
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.reliability import MEASURES
from deeprc.evaluation.scoring import BINARY, BinaryScoring, MulticlassScoring
from deeprc.evaluation.scoring_base import DONOR, Estimate, Scoring, refuse
from deeprc.evaluation.significance import (
    SHEET_CONTROL_ADVICE,
    are_few_repertoires,
    classify_difference,
    describe_difference,
    format_p_in_words,
    format_p_value,
)

__all__ = [
    "MethodInfo",
    "compare",
    "compare_probabilities",
    "compute_fold_metrics",
    "find_comparison_cautions",
    "format_p_value",
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


def _split_by_fold(part: pd.DataFrame, scoring: Scoring) -> _Folds:
    """Return the predictions of one method by fold, without folds that cannot be measured (with one class only)."""
    return {int(str(fold)): rows for fold, rows in part.groupby("fold") if scoring.is_measured(rows)}


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


def find_comparison_cautions(
    comparison: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY, *, few_donors: bool = False
) -> list[Caution]:
    """Return warnings if the best method does not beat chance or the controls, or if repertoires are few.

    If every control is worse than the best method, or no control was run, a note says so. A method beats a control if
    it is better with a p-value below `SIGNIFICANCE_LEVEL`, which is not corrected for the number of controls. Warnings
    about the controls have the section "controls".

    Parameters
    ----------
    comparison
        The table that `compare` returns.
    methods, scoring
        The same as for `compare`.
    few_donors
        Whether the repertoires come from few donors with several repertoires each; a note about controls then says so.
    """
    if not comparison["best"].any():
        only = "Only control methods and known motifs were run"
        reason = only if comparison["n_folds"].any() else "No method has predictions"
        text = f"{reason}, so there is nothing to compare."
        return [Caution("warning", text, "controls", "nothing-to-compare")]
    label = {method.name: method.label for method in methods}
    best_row = comparison[comparison["best"]].iloc[0]
    best = _Result.of(best_row, label, scoring)
    controls = comparison[(comparison["kind"] == "control") & comparison["difference"].notna()]
    return [
        *_find_chance_cautions(best, best_row, scoring),
        *_make_control_cautions(controls, best, label, scoring, few_donors=few_donors),
        *_find_size_cautions(int(best_row["n_smallest"]), scoring),
    ]


@dataclass(frozen=True)
class _Result:
    """The result of a method: its name and label, its measure, and the number of folds that are measured."""

    method: str
    label: str
    value: float
    n_folds: int

    @classmethod
    def of(cls, row: pd.Series[Any], label: Mapping[str, str], scoring: Scoring) -> _Result:
        """Return the result in a row of the table that `compare` returns."""
        method = str(row["method"])
        return cls(method, label[method], float(row[scoring.estimate_column]), int(row["n_folds"]))


def _find_chance_cautions(best: _Result, row: pd.Series[Any], scoring: Scoring) -> list[Caution]:
    """Return a warning if the interval of the best method, in its row, includes chance or does not exist."""
    values = {"method": best.method, scoring.measure_name: best.value}
    low, high = float(row["ci_low"]), float(row["ci_high"])
    if np.isnan(low):
        text = f"The best method, {best.label}, has {scoring.heading} {best.value:.3f}, but this value has no interval."
        return [Caution("warning", text, "table", "no-interval", values)]
    if low > scoring.chance_level:
        return []
    text = (
        f"No method is significantly better than chance. The best one, {best.label}, has {scoring.heading} "
        f"{best.value:.3f}, 95% interval {low:.3f} to {high:.3f}."
    )
    return [Caution("warning", text, "controls", "chance", {**values, "low": low, "high": high})]


def _find_size_cautions(n_smallest: int, scoring: Scoring) -> list[Caution]:
    """Return a warning if the smallest class, or a cohort with numbers, has few repertoires."""
    if not are_few_repertoires(scoring.kind, n_smallest):
        return []
    smallest = "The smaller class has" if scoring.kind == "binary" else "The smallest class has"
    text = (
        f"{'There are' if scoring.kind == 'regression' else smallest} only {n_smallest} repertoires in all test folds "
        "together. With so few, the metrics are uncertain, and the p-values are rough."
    )
    return [Caution("warning", text, "table", "few-repertoires", {"n": n_smallest})]


def _begin_lower(label: str) -> str:
    """Return the label of a method as it is in the middle of a sentence; a letter such as V stays."""
    return label if label[1:2] in ("", " ") else label[0].lower() + label[1:]


def _make_control_cautions(
    controls: pd.DataFrame, best: _Result, label: Mapping[str, str], scoring: Scoring, *, few_donors: bool
) -> list[Caution]:
    """Return a warning for each control that is not worse than the best method, or one note where all are worse."""
    if controls.empty:
        text = f"No control method was run, so it is not known whether this {scoring.heading} needs receptor sequences."
        return [Caution("note", text, "controls", "no-control")]
    warnings, beaten = [], []
    for _, row in controls.iterrows():
        control, difference, p_value = _Result.of(row, label, scoring), float(row["difference"]), float(row["p_value"])
        where = "" if control.n_folds == best.n_folds else ", on the folds that both have"
        p_text = f"{format_p_in_words(p_value)}{where}"
        verdict = classify_difference(difference, p_value)
        if verdict == "worse":
            numbers = f"{scoring.heading} {control.value:.3f}, difference {difference:.3f}, {p_text}"
            beaten.append(f"{control.label} ({numbers})")
            continue
        compared = describe_difference(verdict, difference, scoring.heading)
        text = (
            f"{control.label}, a control method that sees no amino-acid sequence, {compared} the best of the other "
            f"methods, {best.label} ({scoring.heading} {control.value:.3f} against {best.value:.3f}, {p_text}). So "
            f"this cohort does not show that receptor sequences add information beyond {_begin_lower(control.label)}."
            f"{SHEET_CONTROL_ADVICE if control.method == 'sheet-columns' else ''}"
        )
        values = {
            "control": control.method,
            "method": best.method,
            "relation": verdict,
            scoring.measure_name: control.value,
            "difference": difference,
            "p_value": p_value,
        }
        warnings.append(Caution("warning", text, "controls", "control-not-worse", values))
    return warnings or [_make_controls_worse_note(beaten, best, scoring, few_donors=few_donors)]


def _make_controls_worse_note(beaten: Sequence[str], best: _Result, scoring: Scoring, *, few_donors: bool) -> Caution:
    best_one = f"the best method, {best.label} ({scoring.heading} {best.value:.3f})"
    text = f"Every control method is significantly worse than {best_one}: {'; '.join(beaten)}."
    if few_donors:
        text += " The repertoires come from few donors, so this may be chance."
    return Caution("note", text, "controls", "controls-worse")
