"""Which of several methods predicts best, and what the test folds can tell: AUC, interval, test, controls.

Letters: B repertoires of a fold, F folds, M methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from deeprc.errors import InputError
from deeprc.evaluation.metrics import auc_interval, binary_metrics
from deeprc.evaluation.paired_test import holm, midrank_aucs, paired_auc_test

__all__ = [
    "MethodInfo",
    "checked_predictions",
    "compare",
    "control_verdict",
    "fold_metrics",
    "p_text",
]

_COLUMNS = ("method", "fold", "repertoire_id", "label", "score", "probability")
_COMPARISON = (
    *("method", "kind", "best", "auc_mean", "auc_sd", "ci_low", "ci_high", "difference", "p_value", "p_holm", "test"),
    *("n_folds", "n_wanted", "complete", "n_positive", "n_negative"),
)
_LEVEL = 0.05
_FEW = 10  # repertoires of the smaller class, below which intervals and tests say little


@dataclass(frozen=True)
class MethodInfo:
    """A method as the tables know it.

    Attributes
    ----------
    name
        The key in the data frames, as "svm-minmax".
    label
        What tables print, as "SVM (MinMax)".
    kind
        "method"; "control" (reads no receptor sequence); or "truth" (uses the ground truth of a simulation). Only a
        "method" can be the best.
    """

    name: str
    label: str
    kind: Literal["method", "control", "truth"] = "method"


def checked_predictions(predictions: pd.DataFrame, methods: Sequence[MethodInfo] | None = None) -> pd.DataFrame:
    """Return the predictions sorted by method, fold and repertoire, with their columns' types set.

    Parameters
    ----------
    predictions
        The columns method, fold, repertoire_id, label (0 or 1), score (the higher, the likelier 1) and probability
        (of 1). Each repertoire is in one fold; a method may lack folds, but no repertoire of a fold that it has.
    methods
        All methods that may occur; any by default.

    Raises
    ------
    InputError
        If that is not so.
    """
    missing = [name for name in _COLUMNS if name not in predictions]
    if missing:
        raise InputError(f"predictions: expected the columns {', '.join(_COLUMNS)}; missing: {', '.join(missing)}")
    table = predictions[list(_COLUMNS)].astype({"method": str, "repertoire_id": str, "fold": np.int64})
    for column in ("label", "score", "probability"):
        table[column] = table[column].astype(np.float64)
    strangers = sorted(set(table["method"]) - {each.name for each in methods}) if methods is not None else []
    if strangers:
        raise InputError(f"predictions: of methods that are not in the list: {', '.join(strangers)}")
    _refuse(table, ~table["label"].isin([0, 1]), "expected a label of 0 or 1")
    _refuse(table, table["score"].isna(), "expected a score, found none")
    _refuse(table, ~table["probability"].between(0, 1), "expected a probability from 0 to 1")
    _refuse(table, table.duplicated(["method", "repertoire_id"]), "has two predictions")
    for column in ("label", "fold"):
        differs = table[column] != table.groupby("repertoire_id")[column].transform("first")
        _refuse(table, differs, f"has another {column} than with another method")
    in_fold = table.groupby("fold")["repertoire_id"].transform("nunique")
    short = table.groupby(["method", "fold"])["repertoire_id"].transform("size") < in_fold
    _refuse(table, short, "lacks repertoires of this one's fold that another method has")
    return table.astype({"label": np.int64}).sort_values(["method", "fold", "repertoire_id"], ignore_index=True)


def _refuse(table: pd.DataFrame, wrong: pd.Series[bool], problem: str) -> None:
    if wrong.any():
        method, repertoire = table.loc[wrong, ["method", "repertoire_id"]].iloc[0]
        raise InputError(f"predictions: method {method!r}, repertoire {repertoire!r}: {problem}")


def fold_metrics(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return method, fold, metric and value: see `binary_metrics`; NaN where undefined.

    Raises
    ------
    InputError
        As `checked_predictions`.
    """
    rows = []
    for (method, fold), part in checked_predictions(predictions).groupby(["method", "fold"]):
        # ranks, because a score may be infinite
        label, score = part["label"].to_numpy(), rankdata(part["score"])
        found = binary_metrics(label, part["probability"].to_numpy(), score=score)
        rows += [(method, fold, metric, value) for metric, value in found.items()]
    return pd.DataFrame(rows, columns=["method", "fold", "metric", "value"])


_Folds = dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]  # fold -> label, score, both (B,)


def _by_fold(part: pd.DataFrame) -> _Folds:
    """Return labels and scores of one method by fold, without the folds that have one class only."""
    folds = {}
    for fold, rows in part.groupby("fold"):
        label = rows["label"].to_numpy()
        if 0 < label.sum() < len(label):
            folds[int(str(fold))] = label, rows["score"].to_numpy()
    return folds


def compare(
    predictions: pd.DataFrame, methods: Sequence[MethodInfo], *, n_folds: int | None = None, seed: int = 0
) -> pd.DataFrame:
    """Return each method's AUC, and how it differs from the best method's.

    The best method is the one of kind "method" with the highest mean AUC, among those that have the most folds. It is
    chosen on the test folds themselves, so it looks a little better, and the others' p-values smaller, than they are.

    Parameters
    ----------
    predictions
        As `checked_predictions` describes.
    methods
        In the order of the rows.
    n_folds
        How many folds a complete method has; by default as many as occur.
    seed
        Of the permutation test.

    Returns
    -------
    One row per method:

    - `method`, `kind`, `best`;
    - `auc_mean`, and `auc_sd` with F - 1 in the denominator, over the folds that have both classes;
    - `ci_low`, `ci_high`: 95%, see `auc_interval`;
    - `difference` to the best method, `p_value` and `test`: see `paired_auc_test`; on the folds that both have;
    - `p_holm`: the p-value corrected for the number of methods and controls that are compared with the best;
    - `n_folds`: those that have both classes; `n_wanted`: of a complete method; `complete`: whether this one is;
    - `n_positive`, `n_negative`: repertoires in the counted folds.

    What does not exist, as the AUC of a method without predictions, is NaN.

    Raises
    ------
    InputError
        As `checked_predictions`.
    """
    table = checked_predictions(predictions, methods)
    wanted = table["fold"].nunique() if n_folds is None else n_folds
    folds = {each.name: _by_fold(table[table["method"] == each.name]) for each in methods}
    present = table.groupby("method")["fold"].nunique()
    rows = [{"method": each.name, "kind": each.kind, **_summary(folds[each.name])} for each in methods]
    best = _best(rows)
    against = {} if best is None else folds[best]
    for row in rows:
        row["best"] = row["method"] == best
        row["n_wanted"], row["complete"] = wanted, int(present.get(row["method"], 0)) >= max(wanted, 1)
        row.update(_against(folds[row["method"]], against, is_best=row["best"], seed=seed))
    comparison = pd.DataFrame(rows, columns=list(_COMPARISON))
    family = comparison["p_value"].notna() & (comparison["kind"] != "truth")
    comparison.loc[family, "p_holm"] = holm(comparison.loc[family, "p_value"].to_numpy(np.float64))
    return comparison.astype({"p_holm": np.float64})


def _summary(folds: _Folds) -> dict[str, Any]:
    labels = [label for label, _ in folds.values()]
    positives, negatives = [int(each.sum()) for each in labels], [int((1 - each).sum()) for each in labels]
    auc = np.array([midrank_aucs(label, score[None])[0] for label, score in folds.values()])
    mean = float(auc.mean()) if len(auc) else np.nan
    low, high = auc_interval(mean, positives, negatives) if len(auc) else (np.nan, np.nan)
    return {
        "auc_mean": mean,
        "auc_sd": float(auc.std(ddof=1)) if len(auc) > 1 else np.nan,
        "ci_low": low,
        "ci_high": high,
        "n_folds": len(auc),
        "n_positive": sum(positives),
        "n_negative": sum(negatives),
    }


def _best(rows: Sequence[Mapping[str, Any]]) -> str | None:
    able = [row for row in rows if row["kind"] == "method" and row["n_folds"] > 0]
    return max(able, key=lambda row: (row["n_folds"], row["auc_mean"]))["method"] if able else None


def _against(folds: _Folds, best: _Folds, *, is_best: bool, seed: int) -> dict[str, Any]:
    common = sorted(folds.keys() & best.keys())
    if is_best or not common:
        return {"difference": 0.0 if is_best else np.nan, "p_value": np.nan, "test": ""}
    labels, own, other = [folds[f][0] for f in common], [folds[f][1] for f in common], [best[f][1] for f in common]
    return paired_auc_test(labels, own, other, seed=seed)._asdict()


def p_text(p_value: float) -> str:
    """Return a p-value as a reader wants it, as "<0.001", "0.032" or "0.41"; "-" where there is none."""
    if np.isnan(p_value):
        return "-"
    if p_value < 0.001:
        return "<0.001"
    return f"{p_value:.3f}" if p_value < 0.1 else f"{p_value:.2f}"


def control_verdict(comparison: pd.DataFrame, methods: Sequence[MethodInfo]) -> list[str]:
    """Return what the controls say of the best method, and whether the cohort can tell anything, in plain sentences.

    A control reaches the best method if its AUC is as high, or is lower with p >= 0.05 (not corrected for their
    number: it is for the method to show that it is better).

    Parameters
    ----------
    comparison
        Of `compare`.
    methods
        As it was given them.
    """
    label = {each.name: each.label for each in methods}
    if not comparison["best"].any():
        only = "Only controls and known motifs were run" if comparison["n_folds"].any() else "No method has predictions"
        return [f"{only}: there is nothing to compare."]
    best = comparison[comparison["best"]].iloc[0]
    name = label[best["method"]]
    lines = []
    if best["ci_low"] <= 0.5:
        auc = f"AUC {best['auc_mean']:.3f}, 95% interval {best['ci_low']:.3f} to {best['ci_high']:.3f}"
        lines.append(f"No method is shown to be better than chance: the best, {name}, has {auc}.")
    controls = comparison[(comparison["kind"] == "control") & comparison["difference"].notna()]
    lines += _control_lines(controls, best, label)
    smaller = int(min(best["n_positive"], best["n_negative"]))
    if smaller < _FEW:
        lines.append(
            f"Caution: the smaller class has {smaller} repertoires in all test folds together: "
            "so few say little, and the p-values are rough."
        )
    return lines


def _control_lines(controls: pd.DataFrame, best: pd.Series[Any], label: Mapping[str, str]) -> list[str]:
    """Return one line for every control that reaches the best method, or one for all that do not."""
    if controls.empty:
        return ["No control was run: whether this AUC needs receptor sequences is not known."]
    name, lines, beaten = label[best["method"]], [], []
    for _, row in controls.iterrows():
        own, difference = label[row["method"]], float(row["difference"])
        where = "" if row["n_folds"] == best["n_folds"] else ", on the folds that both have"
        numbers = f"p = {p_text(row['p_value'])}{where}".replace("= <", "< ")
        aucs = f"AUC {row['auc_mean']:.3f} against {best['auc_mean']:.3f}"
        if difference < 0 and row["p_value"] < _LEVEL:
            beaten.append(f"{own} (AUC {row['auc_mean']:.3f}, difference {difference:.3f}, {numbers})")
            continue
        verdict = (
            "cannot be told from" if difference < 0 else "does as well as" if row["p_value"] >= _LEVEL else "beats"
        )
        lines.append(
            f"{own} (control), which reads no receptor sequence, {verdict} the best method, {name} "
            f"({aucs}, {numbers}): this cohort does not show that receptor sequences add anything to it."
        )
    beaten_line = f"No control reached the best method, {name} (AUC {best['auc_mean']:.3f}): {'; '.join(beaten)}."
    return lines or [beaten_line]
