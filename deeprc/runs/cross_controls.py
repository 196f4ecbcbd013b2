"""Controls of a cross-validation: estimators that read no sequence, and AUCs within batches.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.comparison import compare
from deeprc.evaluation.scoring import BINARY, RegressionScoring
from deeprc.evaluation.scoring_base import Scoring
from deeprc.evaluation.sheet_control import select_control_columns, warn_of_left_out_columns
from deeprc.evaluation.splits import index_donors_by_id, index_known_donors
from deeprc.evaluation.strata import StratifiedAuc, auc_within, find_strata_columns
from deeprc.outputs import output_slices
from deeprc.runs.controls import LABELS, Controls, fit_control, make_control_methods, make_controls
from deeprc.runs.cross_metrics import measure_folds
from deeprc.runs.out_of_fold import FoldPrediction
from deeprc.runs.performance import Contrast, Numbers
from deeprc.runs.run_cautions import find_control_cautions
from deeprc.tasks import Task, encode_labels

__all__ = ["compare_with_controls", "judge_folds", "measure_within"]


def judge_folds(
    folds: Sequence[FoldPrediction],
    dataset: RepertoireDataset,
    group_by: str | None,
    adjust_for: Sequence[str] = (),
) -> tuple[dict[str, dict[str, Any]], list[Caution]]:
    """Return the metrics of each target, with controls and AUCs within batches, and the warnings about them.

    Parameters
    ----------
    folds
        Predictions for the test folds of all repeats.
    dataset
        The cohort.
    group_by
        Metadata column of the donor.
    adjust_for
        Metadata columns for which the runs were adjusted.

    Returns
    -------
    The metrics of `measure_folds`; for two classes also `within`, a list with the AUC within the values of each column;
    and `controls`, a list with the measure of each control and its difference to the network.
    """
    metadata, tasks = dataset.metadata, folds[0].tasks
    known = index_known_donors(metadata, group_by)
    donors = np.arange(len(dataset)) if known is None else known
    metrics = measure_folds(folds, donors)
    within = measure_within(folds, metadata, donors)
    for target, strata in within.items():
        metrics[target]["within"] = [each.to_dict() for each in strata]
    columns = select_control_columns(metadata, tasks)
    by_id = index_donors_by_id(dataset.repertoire_ids, metadata, group_by)
    controls = compare_with_controls(folds, dataset, by_id, columns=columns.read)
    for each in controls:
        metrics[each.contrast.target]["controls"] = each.to_list()
    left_out = warn_of_left_out_columns(columns) if any(each.measures for each in controls) else []
    return metrics, [
        *_find_chance_cautions(metrics),
        *find_control_cautions(controls, within),
        *left_out,
        *_find_within_cautions(within, metrics, adjust_for),
    ]


def _find_chance_cautions(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[Caution]:
    """Yield a warning for each target that is not predicted better than by chance, or for numbers, than by the mean."""
    for target, values in metrics.items():
        measure, heading, chance = ("r2", "r²", 0.0) if "r2" in values else ("auc", "AUC", 0.5)
        value, limits = values.get(measure), values.get(f"{measure}_ci")
        if value is None or (limits[0] if limits else value) > chance:
            continue
        interval = f", with a 95% interval from {limits[0]:.3f} to {limits[1]:.3f}" if limits else ""
        text = (
            f"{target} is not shown to be predicted better than by chance: the {heading} is {value:.3f}{interval}; "
            f"{chance:g} is chance. What the networks have found then means nothing."
        )
        details = {"target": target, measure: value, "interval": list(limits or ())}
        yield Caution("warning", text, "performance", "chance", details)


def measure_within(
    folds: Sequence[FoldPrediction], metadata: pd.DataFrame, donors: NDArray[np.int64]
) -> dict[str, list[StratifiedAuc]]:
    """Return the AUC of each binary target within the values of columns, by the target's name.

    Only repertoires of the same value, test fold and repeat are compared.

    Parameters
    ----------
    folds
        Predictions for the test folds of all repeats.
    metadata, donors
        The metadata, and the index of the donor of each repertoire of the cohort.
    """
    rows = np.concatenate([each.rows for each in folds])
    place = [f"{each.repeat} {each.fold}" for each in folds for _ in each.rows]
    repeats = [each.repeat for each in folds for _ in each.rows]
    found: dict[str, list[StratifiedAuc]] = {}
    for index, task in enumerate(folds[0].tasks):
        if task.kind != "binary":
            continue
        label = np.concatenate([each.labels[:, index] for each in folds])
        column = output_slices(folds[0].tasks)[index].start
        score = np.concatenate([each.log_odds()[:, column] for each in folds])
        for name in find_strata_columns(metadata, task):
            values = metadata[name].iloc[rows].tolist()
            within = auc_within(
                name, values, label, score, donors[rows], folds=place, repertoires=rows, repeats=repeats
            )
            if within is not None:
                found.setdefault(task.name, []).append(within)
    return found


def _find_within_cautions(
    within: Mapping[str, Sequence[StratifiedAuc]],
    metrics: Mapping[str, Mapping[str, Any]],
    adjust_for: Sequence[str],
) -> list[Caution]:
    """Return a warning for each column if the AUC within its values is no better than chance; see `measure_within`."""
    found = []
    for target, strata in within.items():
        auc, limits = metrics[target]["auc"], metrics[target]["auc_ci"]
        for each in strata:
            if auc is not None and limits is not None and each.explains(auc, limits[0]):
                was_adjusted = each.column in adjust_for
                learned = f"the network may have learned {each.column!r} instead of the target"
                learned += (
                    ", although adjusted for it." if was_adjusted else f". `adjust_for={each.column}` prevents this."
                )
                text = (
                    f"{target}: among repertoires with the same {each.column!r}, the AUC is {each.auc:.3f} "
                    f"({each.low:.3f} to {each.high:.3f}), and {auc:.3f} over all: {learned}"
                )
                found.append(Caution("warning", text, "controls", "auc-within", {"target": target, **each.to_dict()}))
    return found


def compare_with_controls(
    folds: Sequence[FoldPrediction],
    dataset: RepertoireDataset,
    donors: Mapping[str, int] | None,
    *,
    columns: Sequence[str],
) -> list[Controls]:
    """Fit every control to the repertoires that the runs of a test fold have learned from, and test it on this fold.

    If the runs have learned from different repertoires, the predictions of the control are means over them. The folds
    are those of the first repeat. Only targets with two classes and numbers have controls.

    Parameters
    ----------
    folds
        Predictions for the test folds of all repeats.
    dataset
        The cohort.
    donors
        Index of the donor of each repertoire, by its id; None if every repertoire is from a different donor.
    columns
        Metadata columns that a control may read, see `select_control_columns`.
    """
    first = [each for each in folds if each.repeat == folds[0].repeat]
    return [
        _compare(first, index, dataset, donors, columns)
        for index, task in enumerate(first[0].tasks)
        if task.kind != "multiclass"
    ]


def _compare(
    folds: Sequence[FoldPrediction],
    index: int,
    dataset: RepertoireDataset,
    donors: Mapping[str, int] | None,
    columns: Sequence[str],
) -> Controls:
    """Return the controls for one target, by its index."""
    task, place = folds[0].tasks[index], output_slices(folds[0].tasks)[index].start
    about, none = task.name if len(folds[0].tasks) > 1 else "", np.zeros(0)
    contrast: Contrast | Numbers = Numbers(task.name, none, none, about=about)
    scoring: Scoring = RegressionScoring()
    if task.kind == "binary":
        scoring = BINARY
        contrast = Contrast(task.name, task.name, task.positive, task.negative, place, none, none, none, about=about)
    label = encode_labels([task], dataset.metadata)[:, 0]
    parts: list[pd.DataFrame] = []
    reasons: dict[str, None] = {}
    for each in folds:
        for name, answer in _predict_test_fold(each, task, place, label, dataset, columns).items():
            if isinstance(answer, str):
                reasons[f"{LABELS[name]} could not be compared{contrast.named}: {answer}."] = None
            else:
                parts.append(answer.assign(method=name))
    if not parts:
        none_told = (
            f"No control could be compared{contrast.named}: no fold has several labels for training and testing."
        )
        return Controls(contrast, pd.DataFrame(), [*reasons, none_told], scoring)
    table = pd.concat(parts, ignore_index=True)
    methods = make_control_methods(dict.fromkeys(table["method"]))
    comparison = compare(table, methods, n_folds=len(folds), scoring=scoring, donors=donors)
    return Controls(contrast, comparison, [*reasons], scoring, columns)


def _predict_test_fold(
    fold: FoldPrediction,
    task: Task,
    place: int,
    label: NDArray[np.float64],
    dataset: RepertoireDataset,
    columns: Sequence[str],
) -> dict[str, pd.DataFrame | str]:
    """Return the predictions of the network and the controls for a test fold, or why there are none, by name.

    Parameters
    ----------
    fold, task, place
        The fold, the target, and the index of its output.
    label
        Label of each repertoire of the cohort, (B,).
    dataset, columns
        Cohort, and metadata columns, as in `compare_with_controls`.
    """
    is_number = task.kind == "regression"
    tested, *learned = (rows[~np.isnan(label[rows])] for rows in (fold.rows, *fold.learned))
    if min(len(np.unique(label[rows])) for rows in (tested, *learned)) < 2:
        return {}
    network = (fold.outputs if is_number else fold.log_odds())[~np.isnan(label[fold.rows]), place]
    answers: dict[str, NDArray[np.float64] | str] = {"network": network}
    values = label if is_number else np.nan_to_num(label).astype(np.int64)
    for name, control in make_controls(is_number, columns, dataset.metadata).items():
        found = [fit_control(control(), dataset[rows], values[rows], dataset[tested]) for rows in learned]
        problem = next((each for each in found if isinstance(each, str)), None)
        answers[name] = problem or np.mean([each for each in found if not isinstance(each, str)], axis=0)
    known = {"fold": fold.fold, "repertoire_id": dataset.repertoire_ids[tested], "label": values[tested]}
    return {
        name: answer
        if isinstance(answer, str)
        else pd.DataFrame({**known, **({"prediction": answer} if is_number else {"score": answer, "probability": 0.5})})
        for name, answer in answers.items()
    }
