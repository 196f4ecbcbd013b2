"""Controls: estimators that read no receptor sequence, fitted and tested on the same split as the network.

If a control is as good as the network, sequences and motifs of the network may only reflect how the samples were taken.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

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
from deeprc.evaluation.significance import HOW_TO_LEAVE_OUT, Relation, classify_difference, format_p_in_words
from deeprc.runs.performance import PART_NAMES, AllClasses, Contrast, NumericTarget, Performance
from deeprc.tasks import Task

__all__ = [
    "NAMES",
    "TITLES",
    "ControlFold",
    "Controls",
    "choose_scoring",
    "compare_controls",
    "compare_on_folds",
]

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
    predictions
        Scores, or predicted numbers, of the network and the controls for the held-out repertoires, by name.
    is_of_class
        Whether the contrast is one of several classes, which are also compared together.
    """

    contrast: Contrast | NumericTarget | AllClasses
    comparison: pd.DataFrame
    reasons: Sequence[str]
    scoring: Scoring = BINARY
    columns: Sequence[str] = field(default=())
    predictions: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    is_of_class: bool = False

    def relation(self, name: str) -> Relation:
        """Return whether a control is better or worse than the network, or equal, if no difference is shown."""
        row = self._rows[name]
        return classify_difference(float(row["difference"]), float(row["p_value"]))

    @property
    def not_worse(self) -> list[str]:
        """Names of the controls that are not shown to be worse than the network."""
        return [name for name in self._names if self.relation(name) != "worse"]

    @property
    def worse(self) -> list[str]:
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
        values = self.comparison[self.scoring.estimate_column].astype(float)
        return dict(zip(self.comparison["method"], values, strict=True))

    def is_above_chance(self, name: str) -> bool:
        """Return whether the network or a control is significantly better than chance."""
        return bool(self._rows[name]["ci_low"] > self.scoring.chance_level)  # no interval (NaN) shows nothing

    @cached_property
    def _rows(self) -> dict[str, Mapping[Any, Any]]:
        """Rows of the comparison by name; they are cached, because a report needs them many times."""
        return {row["method"]: row for row in self.comparison.to_dict("records")}

    def sentence(self, name: str) -> str:
        """Return a sentence that says what follows from a control."""
        row, measure = self._rows[name], self.scoring.heading
        value, network = self.measures[name], self.measures["network"]
        numbers = f"{measure} {value:.3f} against {network:.3f}, {format_p_in_words(row['p_value'])}"
        sees = _WHAT_IT_READS.get(name) or f"columns of the sheet, {format_column_names(self.columns)},"
        control, relation = f"control method that sees only {sees}", self.relation(name)
        of_target = self.contrast.for_target
        if relation == "worse":
            return f"The network{of_target} is significantly better than a {control} ({numbers})."
        if relation == "equal" and not self.is_above_chance(name) and not self.is_above_chance("network"):
            return (
                f"Neither the network{of_target} nor a {control} is significantly better than chance "
                f"({measure} {network:.3f} and {value:.3f})."
            )
        if relation == "equal" and not self.is_above_chance(name):
            return (
                f"There are too few tested repertoires to tell whether the network{of_target} is better than a "
                f"{control.removesuffix(',')} ({numbers})."
            )
        verdict = {"better": "is significantly better than", "equal": "is not significantly worse than"}[relation]
        motifs, advice = "", HOW_TO_LEAVE_OUT if name == "sheet" else ""
        if self.is_above_chance(name):
            differ = "values" if isinstance(self.contrast, NumericTarget) else "classes"
            motifs = f", and the motifs may reflect this difference between the {differ} instead of the target"
        return (
            f"A {control} {verdict} the network{of_target} ({numbers}). These repertoires do not show that receptor "
            f"sequences add information{motifs}.{advice}"
        )

    def to_list(self) -> list[dict[str, Any]]:
        """Return the controls as values for JSON, for `metrics.json`."""
        entries = []
        for name in self._names:
            row = self._rows[name]
            entry = {
                "control": name,
                **({"contrast": self.contrast.about} if self.contrast.about else {}),
                self.scoring.measure_name: _nan_to_none(row[self.scoring.estimate_column]),
                f"{self.scoring.measure_name}_ci": None if np.isnan(row["ci_low"]) else [row["ci_low"], row["ci_high"]],
                "difference": _nan_to_none(row["difference"]),
                "p_value": _nan_to_none(row["p_value"]),
                "relation": self.relation(name),
            }
            entries.append({**entry, **({"columns": list(self.columns)} if name == "sheet" else {})})
        return entries


@dataclass(frozen=True)
class ControlFold:
    """A test fold on which controls are compared with the network.

    Attributes
    ----------
    index
        Index of the fold.
    tested
        Rows in the cohort of the labelled repertoires of the fold.
    learned
        Rows in the cohort of the labelled repertoires from which models have learned, one array for each different set.
    network
        Scores, or predicted numbers, of the network for the tested repertoires.
    """

    index: int
    tested: NDArray[np.int64]
    learned: Sequence[NDArray[np.int64]]
    network: NDArray[np.float64]


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
    contrasts: list[Contrast | NumericTarget] = [*performance.contrasts, *performance.numeric_targets]
    controls = []
    for task in tasks:
        target_contrasts = [contrast for contrast in contrasts if contrast.target == task.name]
        by_contrast = [_fit_controls(dataset, performance, contrast, columns) for contrast in target_contrasts]
        if task.kind == "multiclass":
            by_contrast = [replace(result, is_of_class=True) for result in by_contrast]
            all_classes = AllClasses(task.name, task.name if len(tasks) > 1 else "")
            by_contrast.insert(0, _combine_classes(performance, all_classes, by_contrast))
        controls += by_contrast
    return controls


def _combine_classes(performance: Performance, target: AllClasses, by_class: Sequence[Controls]) -> Controls:
    """Return the controls for all classes together; a control has one score per class, from its model of this class."""
    contrasts = [result.contrast for result in by_class if isinstance(result.contrast, Contrast)]
    tested = np.flatnonzero(~np.isnan(contrasts[0].label) & performance.is_held_out)
    present = [i for i, contrast in enumerate(contrasts) if contrast.label[tested].any()]
    names = [name for name in NAMES if any(name in result.predictions for result in by_class)]
    if len(present) < 2 or not names:
        return Controls(target, pd.DataFrame(), [by_class[0].reasons[0]])
    scoring = MulticlassScoring([contrasts[i].positive for i in present])
    label = np.stack([contrasts[i].label[tested] for i in present]).argmax(axis=0)
    parts = []
    for name in ("network", *names):
        scores = {
            f"score={contrasts[i].positive}": contrasts[i].score[tested]
            if name == "network"
            else by_class[i].predictions.get(name, np.zeros(len(tested)))  # no model could be fitted for this class
            for i in present
        }
        common = {"method": name, "fold": 0, "repertoire_id": performance.ids[tested]}
        parts.append(pd.DataFrame({**common, "label": np.array(scoring.classes, object)[label], **scores}))
    table = pd.concat(parts, ignore_index=True).assign(**{f"probability={name}": 0.5 for name in scoring.classes})
    comparison = compare(
        table, _make_control_methods(["network", *names]), n_folds=1, scoring=scoring, donors=performance.donors_by_id
    )
    return Controls(target, comparison, [], scoring, by_class[0].columns)


def _make_control_methods(names: Iterable[str]) -> list[MethodInfo]:
    """Return descriptions of the network and the controls as methods of a comparison."""
    return [MethodInfo(name, TITLES[name], "method" if name == "network" else "control") for name in names]


def _make_controls(is_number: bool, columns: Sequence[str], metadata: pd.DataFrame) -> dict[str, Callable[[], Any]]:
    """Return functions that make the controls, by name; J genes are included, because junctions end with them."""
    size, genes, sheet = (
        (RepertoireSizeRidge, VGeneUsageRidge, SheetColumnsRidge)
        if is_number
        else (RepertoireSize, VGeneUsage, SheetColumns)
    )
    controls: dict[str, Callable[[], Any]] = {"size": size, "v-genes": genes, "genes": lambda: genes(genes="both")}
    categories = find_categories(metadata, columns)
    return {**controls, **({"sheet": lambda: sheet(columns=columns, categories=categories)} if columns else {})}


def _fit_controls(
    dataset: RepertoireDataset, performance: Performance, contrast: Contrast | NumericTarget, columns: Sequence[str]
) -> Controls:
    """Fit the controls for a contrast, or a numeric target, on the split of the run."""
    is_known = ~np.isnan(contrast.label)
    training, tested = (np.flatnonzero(is_known & performance.is_in(part)) for part in ("train", performance.held_out))
    problem = _find_problem(contrast, training, tested, performance)
    if problem:
        return Controls(contrast, pd.DataFrame(), [problem], choose_scoring(contrast))
    predictions = contrast.predicted if isinstance(contrast, NumericTarget) else contrast.score
    fold = ControlFold(0, tested, [training], predictions[tested])
    return compare_on_folds(
        contrast, [fold], contrast.label, dataset, columns=columns, donors=performance.donors_by_id, n_folds=1
    )


def choose_scoring(contrast: Contrast | NumericTarget) -> Scoring:
    """Return the measure by which controls are compared with the network."""
    return RegressionScoring() if isinstance(contrast, NumericTarget) else BINARY


def compare_on_folds(
    contrast: Contrast | NumericTarget,
    folds: Sequence[ControlFold],
    label: NDArray[np.float64],
    dataset: RepertoireDataset,
    *,
    columns: Sequence[str],
    donors: Mapping[str, int] | None,
    n_folds: int,
) -> Controls:
    """Fit every control for each fold, and compare them with the network over the folds.

    A control that cannot be fitted for a fold is missing there, with a reason.

    Parameters
    ----------
    contrast
        Contrast between classes, or numeric target, that is predicted.
    folds
        Folds with several labels, at least one.
    label
        Label of each repertoire of the cohort, (B,); NaN if not known.
    dataset
        The cohort.
    columns
        Columns of the metadata sheet that a control may read.
    donors
        Index of the donor of each repertoire, by its id; None if every repertoire is from a different donor.
    n_folds
        Number of folds, with those that have too few labels for a comparison.
    """
    is_number = isinstance(contrast, NumericTarget)
    values = label if is_number else np.nan_to_num(label).astype(np.int64)
    tables: list[pd.DataFrame] = []
    reasons: dict[str, None] = {}
    for fold in folds:
        predictions = {"network": fold.network}
        for name, make_control in _make_controls(is_number, columns, dataset.metadata).items():
            attempt = _fit_and_predict(make_control, fold, values, dataset)
            if attempt.predictions is not None:
                predictions[name] = attempt.predictions
            else:
                reasons[f"{TITLES[name]} could not be compared{contrast.for_target}: {attempt.problem}."] = None
        ids = dataset.repertoire_ids[fold.tested]
        tables.append(_make_predictions_table(fold.index, ids, values[fold.tested], predictions, is_number=is_number))
    table = pd.concat(tables, ignore_index=True)
    methods = _make_control_methods(dict.fromkeys(table["method"]))
    scoring = choose_scoring(contrast)
    comparison = compare(table, methods, n_folds=n_folds, scoring=scoring, donors=donors)
    column = "prediction" if is_number else "score"
    by_method = {str(name): rows[column].to_numpy() for name, rows in table.groupby("method", sort=False)}
    return Controls(contrast, comparison, [*reasons], scoring, columns, by_method)


class _Attempt(NamedTuple):
    """Scores, or predicted numbers, of a control for the tested repertoires of a fold; or why there are none."""

    predictions: NDArray[np.float64] | None
    problem: str = ""


def _fit_and_predict(
    make_control: Callable[[], Any], fold: ControlFold, values: NDArray[Any], dataset: RepertoireDataset
) -> _Attempt:
    """Fit a control to each set of repertoires from which models have learned, and average its predictions."""
    predictions = []
    try:
        for rows in fold.learned:
            fitted = make_control().fit(dataset[rows], values[rows])
            predict = fitted.decision_function if hasattr(fitted, "decision_function") else fitted.predict
            predictions.append(predict(dataset[fold.tested]))
    except InputError as error:
        return _Attempt(None, str(error))
    return _Attempt(np.asarray(np.mean(predictions, axis=0)))


def _find_problem(
    contrast: Contrast | NumericTarget, training: NDArray[np.int64], tested: NDArray[np.int64], performance: Performance
) -> str | None:
    """Return why no control can be fitted or tested; None if it can be."""
    none, part = f"No control method could be compared{contrast.for_target}", performance.held_out
    if performance.is_packed:
        return f"{none}: control methods need the training repertoires, which a packed model cannot recognise."
    sameness = "have one value" if isinstance(contrast, NumericTarget) else "are of one class"
    for rows, name in ((training, "training"), (tested, PART_NAMES[part] if part else "test")):
        if len(rows) == 0:
            return f"{none}: the cohort has no labelled {name} repertoire of this run."
        if len(np.unique(contrast.label[rows])) < 2:
            return f"{none}: the {name} repertoires {sameness}."
    return None


def _make_predictions_table(
    fold: int,
    ids: NDArray[np.object_],
    label: NDArray[Any],
    predictions: Mapping[str, NDArray[np.float64]],
    *,
    is_number: bool,
) -> pd.DataFrame:
    """Return the table of the predictions of the network and the controls for a fold that `compare` takes."""
    common = {"fold": fold, "repertoire_id": ids, "label": label}
    column = "prediction" if is_number else "score"
    parts = [pd.DataFrame({"method": name, **common, column: values}) for name, values in predictions.items()]
    return pd.concat(parts, ignore_index=True).assign(**({} if is_number else {"probability": 0.5}))
