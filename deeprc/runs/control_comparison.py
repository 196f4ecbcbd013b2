"""The comparison of a network with controls, estimators that read no receptor sequence, in numbers and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.evaluation.scoring import BINARY
from deeprc.evaluation.scoring_base import Scoring
from deeprc.evaluation.sheet_control import format_column_names
from deeprc.evaluation.significance import (
    SHEET_CONTROL_ADVICE,
    Relation,
    classify_difference,
    describe_difference,
    format_p_in_words,
)
from deeprc.runs.performance import PredictedQuantity

__all__ = ["NAMES", "TITLES", "ControlComparison"]

TITLES = {
    "network": "The network",
    "size": "Repertoire size",
    "v-genes": "V gene usage",
    "genes": "V and J gene usage",
    "sheet": "Sheet columns",
}
"""Titles of the network and the controls in tables."""

NAMES = {"size": "repertoire size", "v-genes": "V gene usage", "genes": "V and J gene usage", "sheet": "sheet columns"}
"""Names of the controls in sentences."""

_WHAT_IT_READS = {
    "size": "the size and diversity of a repertoire",
    "v-genes": "the usage of V genes",
    "genes": "the usage of V and J genes",
}


@dataclass(frozen=True)
class ControlComparison:
    """The network and the controls, compared by how well they predict one quantity.

    Attributes
    ----------
    quantity
        Contrast between classes, or number, that is predicted.
    table
        Result of `compare`, with a row for the network and for each control; empty if no control could be fitted.
    reasons
        Sentences that say why controls are missing.
    scoring
        Measure of the comparison.
    columns
        Columns of the metadata sheet that the control `sheet` reads.
    predictions
        Scores, or predicted numbers, of the network and the controls for the held-out repertoires, by name.
    is_of_class
        Whether the contrast is one of several classes, which are also compared together.
    """

    quantity: PredictedQuantity
    table: pd.DataFrame
    reasons: Sequence[str]
    scoring: Scoring = BINARY
    columns: Sequence[str] = field(default=())
    predictions: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    is_of_class: bool = False

    def classify(self, control: str) -> Relation:
        """Return whether a control is better or worse than the network, or equal, if no difference is shown."""
        row = self._rows[control]
        return classify_difference(float(row["difference"]), float(row["p_value"]))

    @property
    def not_worse(self) -> list[str]:
        """Names of the controls that are not shown to be worse than the network."""
        return [control for control in self._controls if self.classify(control) != "worse"]

    @property
    def worse(self) -> list[str]:
        """Names of the controls that are worse than the network."""
        return [control for control in self._controls if self.classify(control) == "worse"]

    @property
    def _controls(self) -> list[str]:
        return [name for name in self.measures if name != "network"]

    @property
    def measures(self) -> dict[str, float]:
        """AUC, or r2, of the network and of each control, by name."""
        if self.table.empty:
            return {}
        values = self.table[self.scoring.estimate_column].astype(float)
        return dict(zip(self.table["method"], values, strict=True))

    def is_above_chance(self, name: str) -> bool:
        """Return whether the network or a control is significantly better than chance."""
        return bool(self._rows[name]["ci_low"] > self.scoring.chance_level)  # no interval (NaN) shows nothing

    @cached_property
    def _rows(self) -> dict[str, Mapping[Any, Any]]:
        """Rows of the table by name; they are cached, because a report needs them many times."""
        return {row["method"]: row for row in self.table.to_dict("records")}

    def describe(self, control: str) -> str:
        """Return a sentence that says what follows from a control."""
        measure, for_target, relation = self.scoring.heading, self.quantity.for_target, self.classify(control)
        value, network_value = self.measures[control], self.measures["network"]
        is_above_chance, is_network_above_chance = self.is_above_chance(control), self.is_above_chance("network")
        numbers = (
            f"{measure} {value:.3f} against {network_value:.3f}, {format_p_in_words(self._rows[control]['p_value'])}"
        )
        plural = "s" if len(self.columns) != 1 else ""
        sees = _WHAT_IT_READS.get(control) or f"the sheet column{plural} {format_column_names(self.columns)}"
        method = f"control method that sees only {sees}"
        if relation == "worse":
            return f"The network{for_target} is significantly better than a {method} ({numbers})."
        if relation == "equal" and not is_above_chance and not is_network_above_chance:
            return (
                f"Neither the network{for_target} nor a {method} is significantly better than chance "
                f"({measure} {network_value:.3f} and {value:.3f})."
            )
        if relation == "equal" and not is_above_chance:
            return (
                f"There are too few tested repertoires to tell whether the network{for_target} is better than a "
                f"{method} ({numbers})."
            )
        verdict = describe_difference(relation, value - network_value, measure)
        motifs = ""
        if is_above_chance:
            differ = "values" if self.quantity.kind == "regression" else "classes"
            motifs = f", and the motifs may reflect this difference between the {differ} instead of the target"
        return (
            f"A {method} {verdict} the network{for_target} ({numbers}). These repertoires do not show that receptor "
            f"sequences add information{motifs}.{SHEET_CONTROL_ADVICE if control == 'sheet' else ''}"
        )

    def to_list(self) -> list[dict[str, Any]]:
        """Return the controls as values for JSON, for `metrics.json`."""
        entries = []
        for control in self._controls:
            row = self._rows[control]
            entry = {
                "control": control,
                **({"contrast": self.quantity.about} if self.quantity.about else {}),
                self.scoring.measure_name: _nan_to_none(row[self.scoring.estimate_column]),
                f"{self.scoring.measure_name}_ci": None if np.isnan(row["ci_low"]) else [row["ci_low"], row["ci_high"]],
                "difference": _nan_to_none(row["difference"]),
                "p_value": _nan_to_none(row["p_value"]),
                "relation": self.classify(control),
            }
            entries.append({**entry, **({"columns": list(self.columns)} if control == "sheet" else {})})
        return entries


def _nan_to_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
