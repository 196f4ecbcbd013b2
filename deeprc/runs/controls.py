"""Controls: estimators that read no receptor sequence, fitted and tested on the same split as the network.

For example, the repertoire size alone may predict the label as well as the network. Then the sequences and motifs of
the network may only reflect how the samples were taken.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.controls import RepertoireSize, RepertoireSizeRidge, VGeneUsage, VGeneUsageRidge
from deeprc.baselines.sheet import SheetColumns, SheetColumnsRidge
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.comparison import MethodInfo, compare
from deeprc.evaluation.scoring import MulticlassScoring, choose_scoring
from deeprc.evaluation.sheet_control import find_categories
from deeprc.runs.control_comparison import NAMES, TITLES, ControlComparison
from deeprc.runs.performance import PART_NAMES, Contrast, NumericTarget, Performance, PredictedQuantity
from deeprc.tasks import Task

__all__ = ["ControlFold", "compare_controls", "compare_on_folds"]

_CONTROLS_OF_CLASSES = RepertoireSize, VGeneUsage, SheetColumns
_CONTROLS_OF_NUMBERS = RepertoireSizeRidge, VGeneUsageRidge, SheetColumnsRidge


@dataclass(frozen=True)
class ControlFold:
    """A test fold on which controls are compared with the network.

    Attributes
    ----------
    index
        Index of the fold.
    tested
        Positions in the cohort of the labelled repertoires of the fold.
    training_sets
        Positions of the labelled repertoires from which models have learned, one array for each different set.
    network
        Scores, or predicted numbers, of the network for the tested repertoires.
    """

    index: int
    tested: NDArray[np.int64]
    training_sets: Sequence[NDArray[np.int64]]
    network: NDArray[np.float64]


def compare_controls(
    dataset: RepertoireDataset, performance: Performance, tasks: Sequence[Task], *, columns: Sequence[str]
) -> list[ControlComparison]:
    """Fit all controls to the labelled training repertoires, and compare them with the network on the held-out ones.

    There is a comparison for each contrast and each number. That of several classes together precedes those of each
    class.

    Parameters
    ----------
    dataset, performance
        The cohort, and the performance of the network on it.
    tasks
        Tasks of all targets.
    columns
        Columns of the metadata sheet that a control may read, see `select_control_columns`.
    """
    predicted: list[Contrast | NumericTarget] = [*performance.contrasts, *performance.numeric_targets]
    comparisons = []
    for task in tasks:
        of_task = [_fit_controls(dataset, performance, each, columns) for each in predicted if each.target == task.name]
        if task.kind == "multiclass":
            of_task = [replace(comparison, is_of_class=True) for comparison in of_task]
            all_classes = PredictedQuantity(task.name, "multiclass", task.name if len(tasks) > 1 else "")
            of_task.insert(0, _combine_classes(performance, all_classes, of_task))
        comparisons += of_task
    return comparisons


def _combine_classes(
    performance: Performance, quantity: PredictedQuantity, by_class: Sequence[ControlComparison]
) -> ControlComparison:
    """Return the controls for all classes together; a control has one score per class, from its model of this class."""
    contrasts = [contrast for contrast in performance.contrasts if contrast.target == quantity.target]
    tested = np.flatnonzero(~np.isnan(contrasts[0].label) & performance.is_held_out)
    present = [i for i, contrast in enumerate(contrasts) if contrast.label[tested].any()]
    names = [name for name in NAMES if any(name in comparison.predictions for comparison in by_class)]
    if len(present) < 2 or not names:
        return ControlComparison(quantity, pd.DataFrame(), [by_class[0].reasons[0]])
    scoring = MulticlassScoring([contrasts[i].positive for i in present])
    label = np.stack([contrasts[i].label[tested] for i in present]).argmax(axis=0)

    def get_scores(name: str, i: int) -> NDArray[np.float64]:
        """Return the scores of a method for class i; they are 0 if no model could be fitted for this class."""
        if name == "network":
            return contrasts[i].score[tested]
        return by_class[i].predictions.get(name, np.zeros(len(tested)))

    parts = []
    for name in ("network", *names):
        scores = {f"score={contrasts[i].positive}": get_scores(name, i) for i in present}
        common = {"method": name, "fold": 0, "repertoire_id": performance.ids[tested]}
        parts.append(pd.DataFrame({**common, "label": np.array(scoring.classes, object)[label], **scores}))
    table = pd.concat(parts, ignore_index=True).assign(**{f"probability={name}": 0.5 for name in scoring.classes})
    compared = compare(
        table, _make_control_methods(["network", *names]), n_folds=1, scoring=scoring, donors=performance.donors_by_id
    )
    return ControlComparison(quantity, compared, [], scoring, by_class[0].columns)


def _make_control_methods(names: Iterable[str]) -> list[MethodInfo]:
    """Return descriptions of the network and the controls as methods of a comparison."""
    return [MethodInfo(name, TITLES[name], "method" if name == "network" else "control") for name in names]


def _make_controls(
    quantity: PredictedQuantity, columns: Sequence[str], metadata: pd.DataFrame
) -> dict[str, Callable[[], Any]]:
    """Return functions that make the controls, by name; J genes are included, because junctions end with them."""
    size, genes, sheet = _CONTROLS_OF_NUMBERS if quantity.kind == "regression" else _CONTROLS_OF_CLASSES
    controls: dict[str, Callable[[], Any]] = {"size": size, "v-genes": genes, "genes": lambda: genes(genes="both")}
    if columns:
        categories = find_categories(metadata, columns)
        controls["sheet"] = lambda: sheet(columns=columns, categories=categories)
    return controls


def _fit_controls(
    dataset: RepertoireDataset, performance: Performance, predicted: Contrast | NumericTarget, columns: Sequence[str]
) -> ControlComparison:
    """Fit the controls for a contrast, or a numeric target, on the split of the run."""
    quantity, is_known = predicted.quantity, ~np.isnan(predicted.label)
    training, tested = (np.flatnonzero(is_known & performance.is_in(part)) for part in ("train", performance.held_out))
    problem = _find_problem(predicted, training, tested, performance)
    if problem:
        return ControlComparison(quantity, pd.DataFrame(), [problem], choose_scoring(quantity.kind))
    predictions = predicted.predicted if isinstance(predicted, NumericTarget) else predicted.score
    fold = ControlFold(0, tested, [training], predictions[tested])
    return compare_on_folds(
        quantity, [fold], predicted.label, dataset, columns=columns, donors=performance.donors_by_id, n_folds=1
    )


def compare_on_folds(
    quantity: PredictedQuantity,
    folds: Sequence[ControlFold],
    label: NDArray[np.float64],
    dataset: RepertoireDataset,
    *,
    columns: Sequence[str],
    donors: Mapping[str, int] | None,
    n_folds: int,
) -> ControlComparison:
    """Fit every control for each fold, and compare them with the network over the folds.

    A control that cannot be fitted for a fold is missing there, with a reason.

    Parameters
    ----------
    quantity
        Contrast between classes, or number, that is predicted.
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
    is_number = quantity.kind == "regression"
    values = label if is_number else np.nan_to_num(label).astype(np.int64)
    tables: list[pd.DataFrame] = []
    reasons: dict[str, None] = {}
    for fold in folds:
        predictions = {"network": fold.network}
        for name, make_control in _make_controls(quantity, columns, dataset.metadata).items():
            attempt = _fit_and_predict(make_control, fold, values, dataset)
            if attempt.predictions is not None:
                predictions[name] = attempt.predictions
            else:
                reasons[f"{TITLES[name]} could not be compared{quantity.for_target}: {attempt.problem}."] = None
        ids = dataset.repertoire_ids[fold.tested]
        tables.append(_make_predictions_table(fold.index, ids, values[fold.tested], predictions, is_number=is_number))
    table = pd.concat(tables, ignore_index=True)
    methods = _make_control_methods(dict.fromkeys(table["method"]))
    scoring = choose_scoring(quantity.kind)
    compared = compare(table, methods, n_folds=n_folds, scoring=scoring, donors=donors)
    column = "prediction" if is_number else "score"
    by_method = {str(name): rows[column].to_numpy() for name, rows in table.groupby("method", sort=False)}
    return ControlComparison(quantity, compared, [*reasons], scoring, columns, by_method)


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
        for training in fold.training_sets:
            fitted = make_control().fit(dataset[training], values[training])
            predict = fitted.decision_function if hasattr(fitted, "decision_function") else fitted.predict
            predictions.append(predict(dataset[fold.tested]))
    except InputError as error:
        return _Attempt(None, str(error))
    return _Attempt(np.asarray(np.mean(predictions, axis=0)))


def _find_problem(
    predicted: Contrast | NumericTarget,
    training: NDArray[np.int64],
    tested: NDArray[np.int64],
    performance: Performance,
) -> str | None:
    """Return why no control can be fitted or tested; None if it can be."""
    none, part = f"No control method could be compared{predicted.for_target}", performance.held_out
    if performance.is_packed:
        return f"{none}: control methods need the training repertoires, which a packed model cannot recognise."
    sameness = "have one value" if predicted.quantity.kind == "regression" else "are of one class"
    for positions, name in ((training, "training"), (tested, PART_NAMES[part] if part else "test")):
        if len(positions) == 0:
            return f"{none}: the cohort has no labelled {name} repertoire of this run."
        if len(np.unique(predicted.label[positions])) < 2:
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
