"""Warnings about a comparison of methods: chance, controls that are not worse than the best method, few repertoires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from deeprc.evaluation.caution import Caution
from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.scoring import BINARY
from deeprc.evaluation.scoring_base import Scoring
from deeprc.evaluation.significance import (
    SHEET_CONTROL_ADVICE,
    are_few_repertoires,
    classify_difference,
    describe_difference,
    format_p_in_words,
)

__all__ = ["find_comparison_cautions"]


def find_comparison_cautions(
    comparison: pd.DataFrame, methods: Sequence[MethodInfo], scoring: Scoring = BINARY, *, few_donors: bool = False
) -> list[Caution]:
    """Return warnings if the best method does not beat chance or the controls, or if repertoires are few.

    If every control is worse than the best method, or no control was run, a note says so. A method beats a control if
    it is better with a p-value below `SIGNIFICANCE_LEVEL`, which is not corrected for the number of controls. Warnings
    about the controls have the section "controls". If no method is better than chance, only controls that are better
    than chance are compared.

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
    chance_cautions = _find_chance_cautions(best, best_row, scoring)
    informative = controls[controls["ci_low"] > scoring.chance_level] if chance_cautions else controls
    says_nothing = informative.empty and not controls.empty  # neither the best method nor a control beats chance
    return [
        *chance_cautions,
        *([] if says_nothing else _make_control_cautions(informative, best, label, scoring, few_donors=few_donors)),
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


def _begin_lower(label: str) -> str:
    """Return the label of a method as it is in the middle of a sentence; a letter such as V stays."""
    return label if label[1:2] in ("", " ") else label[0].lower() + label[1:]


def _make_controls_worse_note(beaten: Sequence[str], best: _Result, scoring: Scoring, *, few_donors: bool) -> Caution:
    best_one = f"the best method, {best.label} ({scoring.heading} {best.value:.3f})"
    text = f"Every control method is significantly worse than {best_one}: {'; '.join(beaten)}."
    if few_donors:
        text += " The repertoires come from few donors, so this may be chance."
    return Caution("note", text, "controls", "controls-worse")


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
