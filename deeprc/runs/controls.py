"""Controls: estimators that read no receptor sequence, fitted and tested on the same split as the network.

If a control is as good as the network, sequences and motifs of the network may only reflect how the samples were taken.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.controls import RepertoireSize, RepertoireSizeRidge, VGeneUsage, VGeneUsageRidge
from deeprc.baselines.sheet import SheetColumns, SheetColumnsRidge
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.comparison import MethodInfo, compare
from deeprc.evaluation.scoring import BINARY, MulticlassScoring, RegressionScoring
from deeprc.evaluation.scoring_base import Scoring
from deeprc.evaluation.sheet_control import find_categories, format_column_names
from deeprc.evaluation.trust import HOW_TO_LEAVE_OUT, Relation, classify_difference, p_in_words
from deeprc.runs.performance import SPLIT_NAMES, AllClasses, Contrast, Numbers, Performance
from deeprc.tasks import Task

__all__ = [
    "LABELS",
    "SHORT",
    "Controls",
    "compare_controls",
    "fit_control",
    "make_control_methods",
    "make_controls",
]

LABELS = {
    "network": "The network",
    "size": "Repertoire size",
    "v-genes": "V gene usage",
    "genes": "V and J gene usage",
    "sheet": "Sheet columns",
}
"""Names of the network and the controls in tables."""

SHORT = {"size": "repertoire size", "v-genes": "V gene usage", "genes": "V and J gene usage", "sheet": "sheet columns"}
"""Names of the controls in sentences."""

_SEES = {
    "size": "the size and diversity of a repertoire",
    "v-genes": "the usage of V genes",
    "genes": "the usage of V and J genes",
}


@dataclass(frozen=True)
class Controls:
    """The controls for one contrast, or for one predicted number, compared with the network.

    Attributes
    ----------
    contrast
        Contrast between classes, or number, that is predicted.
    comparison
        Comparison of the network and the controls, see `compare`; empty if no control could be fitted.
    reasons
        Sentences that say why controls are missing.
    scoring
        Measure of the comparison.
    columns
        Columns of the metadata sheet that the control `sheet` reads.
    answers
        Scores, or predicted numbers, of the network and the controls for the held-out repertoires, by name.
    is_of_class
        Whether the contrast is one of several classes, which are also compared together.
    """

    contrast: Contrast | Numbers | AllClasses
    comparison: pd.DataFrame
    reasons: Sequence[str]
    scoring: Scoring = BINARY
    columns: Sequence[str] = field(default=())
    answers: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    is_of_class: bool = False

    def relation(self, name: str) -> Relation:
        """Return whether a control is better or worse than the network, or equal, if no difference is shown."""
        row = self._rows[name]
        return classify_difference(float(row["difference"]), float(row["p_value"]))

    @property
    def reaching(self) -> list[str]:
        """Names of the controls that are not shown to be worse than the network."""
        return [name for name in self._names if self.relation(name) != "worse"]

    @property
    def others(self) -> list[str]:
        """Names of the controls that are worse than the network."""
        return [name for name in self._names if self.relation(name) == "worse"]

    @property
    def _names(self) -> list[str]:
        return [name for name in self.measures if name != "network"]

    @property
    def measures(self) -> dict[str, float]:
        """AUC, or r2, of the network and of each control, by name."""
        if self.comparison.empty:
            return {}
        values = self.comparison[self.scoring.estimate].astype(float)
        return dict(zip(self.comparison["method"], values, strict=True))

    @cached_property
    def _rows(self) -> dict[str, Mapping[Any, Any]]:
        """The rows of the comparison by name, made once, because a report asks for them many times."""
        return {row["method"]: row for row in self.comparison.to_dict("records")}

    def sentence(self, name: str) -> str:
        """Return a sentence that says what follows from a control."""
        row, what = self._rows[name], self.scoring.heading
        own, network = self.measures[name], self.measures["network"]
        numbers = f"{what} {own:.3f} against {network:.3f}, {p_in_words(row['p_value'])}"
        sees = _SEES.get(name) or f"columns of the sheet, {format_column_names(self.columns)},"
        named = self.contrast.named
        found = self.relation(name)
        if found == "worse":
            return f"The network{named} is better than a model that looks only at {sees} ({numbers})."
        how = {"better": "is better than", "equal": "cannot be told from"}[found]
        differ = "values" if isinstance(self.contrast, Numbers) else "classes"
        text = (
            f"A model that looks only at {sees} {how} the network{named} ({numbers}): these repertoires do not show "
            f"that receptor sequences add anything"
        )
        if own > self.scoring.chance_level:
            text += f", and the motifs may stand for that difference between the {differ}"
        text += "."
        if name == "sheet":
            text += HOW_TO_LEAVE_OUT
        return text

    def to_list(self) -> list[dict[str, Any]]:
        """Return the controls as values for JSON, for `metrics.json`."""
        found = []
        for name in self._names:
            row = self._rows[name]
            entry = {
                "control": name,
                **({"contrast": self.contrast.about} if self.contrast.about else {}),
                self.scoring.measure: _nan_to_none(row[self.scoring.estimate]),
                f"{self.scoring.measure}_ci": None if np.isnan(row["ci_low"]) else [row["ci_low"], row["ci_high"]],
                "difference": _nan_to_none(row["difference"]),
                "p_value": _nan_to_none(row["p_value"]),
                "relation": self.relation(name),
            }
            found.append({**entry, **({"columns": list(self.columns)} if name == "sheet" else {})})
        return found


def _nan_to_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def compare_controls(
    dataset: RepertoireDataset, performance: Performance, tasks: Sequence[Task], *, columns: Sequence[str]
) -> list[Controls]:
    """Fit all controls to the labelled training repertoires, and compare them with the network on the held-out ones.

    There are controls for each contrast and each number. Those of several classes together precede those of each class.

    Parameters
    ----------
    dataset, performance
        The cohort, and the performance of the network on it.
    tasks
        Tasks of all targets.
    columns
        Columns of the metadata sheet that a control may read, see `select_control_columns`.
    """
    every: list[Contrast | Numbers] = [*performance.contrasts, *performance.numbers]
    found = []
    for task in tasks:
        own = [_fit_controls(dataset, performance, each, columns) for each in every if each.target == task.name]
        if task.kind == "multiclass":
            own = [replace(each, is_of_class=True) for each in own]
            own.insert(
                0, _combine_classes(performance, AllClasses(task.name, task.name if len(tasks) > 1 else ""), own)
            )
        found += own
    return found


def _combine_classes(performance: Performance, target: AllClasses, of_classes: Sequence[Controls]) -> Controls:
    """Return the controls for all classes together; a control has one score per class, from its model of this class."""
    contrasts = [each.contrast for each in of_classes if isinstance(each.contrast, Contrast)]
    tested = np.flatnonzero(~np.isnan(contrasts[0].label) & performance.rows(performance.held_out))
    present = [i for i, each in enumerate(contrasts) if each.label[tested].any()]
    names = [name for name in SHORT if any(name in each.answers for each in of_classes)]
    if len(present) < 2 or not names:
        return Controls(target, pd.DataFrame(), [of_classes[0].reasons[0]])
    scoring = MulticlassScoring([contrasts[i].positive for i in present])
    label = np.stack([contrasts[i].label[tested] for i in present]).argmax(axis=0)
    parts = []
    for name in ("network", *names):
        scores = {
            f"score={contrasts[i].positive}": contrasts[i].score[tested]
            if name == "network"
            else of_classes[i].answers.get(name, np.zeros(len(tested)))  # no model could be fitted for this class
            for i in present
        }
        known = {"method": name, "fold": 0, "repertoire_id": performance.ids[tested]}
        parts.append(pd.DataFrame({**known, "label": np.array(scoring.classes, object)[label], **scores}))
    table = pd.concat(parts, ignore_index=True).assign(**{f"probability={name}": 0.5 for name in scoring.classes})
    comparison = compare(
        table, make_control_methods(["network", *names]), n_folds=1, scoring=scoring, donors=performance.donors_by_id
    )
    return Controls(target, comparison, [], scoring, of_classes[0].columns)


def make_control_methods(names: Iterable[str]) -> list[MethodInfo]:
    """Return descriptions of the network and the controls as methods of a comparison."""
    return [MethodInfo(name, LABELS[name], "method" if name == "network" else "control") for name in names]


def make_controls(is_number: bool, columns: Sequence[str], metadata: pd.DataFrame) -> dict[str, Callable[[], Any]]:
    """Return functions that make the controls, by name; J genes are included, because junctions end with them."""
    size, genes, sheet = (
        (RepertoireSizeRidge, VGeneUsageRidge, SheetColumnsRidge)
        if is_number
        else (RepertoireSize, VGeneUsage, SheetColumns)
    )
    made: dict[str, Callable[[], Any]] = {"size": size, "v-genes": genes, "genes": lambda: genes(genes="both")}
    categories = find_categories(metadata, columns)
    return {**made, **({"sheet": lambda: sheet(columns=columns, categories=categories)} if columns else {})}


def _fit_controls(
    dataset: RepertoireDataset, performance: Performance, contrast: Contrast | Numbers, columns: Sequence[str]
) -> Controls:
    is_number = isinstance(contrast, Numbers)
    scoring = RegressionScoring() if is_number else BINARY
    known = ~np.isnan(contrast.label)
    training, tested = (
        np.flatnonzero(known & performance.rows("train")),
        np.flatnonzero(known & performance.rows(performance.held_out)),
    )
    problem = _find_problem(contrast, training, tested, performance.held_out)
    if problem:
        return Controls(contrast, pd.DataFrame(), [problem], scoring)
    answers = {"network": contrast.predicted[tested] if isinstance(contrast, Numbers) else contrast.score[tested]}
    reasons = []
    labels = contrast.label if is_number else np.where(known, contrast.label, 0).astype(np.int64)
    for name, control in make_controls(is_number, columns, dataset.metadata).items():
        found = fit_control(control(), dataset[training], labels[training], dataset[tested])
        if isinstance(found, str):
            reasons.append(f"{LABELS[name]} could not be compared{contrast.named}: {found}.")
        else:
            answers[name] = found
    table = _make_predictions_table(performance.ids[tested], labels[tested], answers, is_number=is_number)
    comparison = compare(
        table, make_control_methods(answers), n_folds=1, scoring=scoring, donors=performance.donors_by_id
    )
    return Controls(contrast, comparison, reasons, scoring, columns, answers)


def fit_control(
    control: Any, training: RepertoireDataset, labels: NDArray[Any], tested: RepertoireDataset
) -> NDArray[np.float64] | str:
    """Fit a control, and return its scores or numbers for the tested repertoires, (B,), or why this is not possible."""
    try:
        fitted = control.fit(training, labels)
        answers: NDArray[np.float64] = (
            fitted.decision_function(tested) if hasattr(fitted, "decision_function") else fitted.predict(tested)
        )
    except InputError as error:
        return str(error)
    return answers


def _find_problem(
    contrast: Contrast | Numbers, training: NDArray[np.int64], tested: NDArray[np.int64], split: str | None
) -> str | None:
    """Return why no control can be fitted or tested; None if it can be."""
    none = f"No control could be compared{contrast.named}"
    one = "have one value" if isinstance(contrast, Numbers) else "are of one class"
    for rows, name in ((training, "training"), (tested, SPLIT_NAMES[split] if split else "test")):
        if len(rows) == 0:
            return f"{none}: the cohort has no labelled {name} repertoire of this run."
        if len(np.unique(contrast.label[rows])) < 2:
            return f"{none}: the {name} repertoires {one}."
    return None


def _make_predictions_table(
    ids: NDArray[np.object_], label: NDArray[Any], answers: Mapping[str, NDArray[np.float64]], *, is_number: bool
) -> pd.DataFrame:
    common = {"fold": 0, "repertoire_id": ids, "label": label}
    parts = [
        pd.DataFrame({"method": name, **common, **({"prediction": own} if is_number else {"score": own})})
        for name, own in answers.items()
    ]
    return pd.concat(parts, ignore_index=True).assign(**({} if is_number else {"probability": 0.5}))
