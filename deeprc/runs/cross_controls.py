"""Controls of a cross-validation: estimators that read no sequence, and AUCs within batches.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.scoring import choose_scoring
from deeprc.evaluation.sheet_control import find_target_like_cautions, select_control_columns
from deeprc.evaluation.strata import StratifiedAuc, compute_stratified_auc, find_strata_columns
from deeprc.outputs import get_output_slices
from deeprc.runs.control_comparison import ControlComparison
from deeprc.runs.controls import ControlFold, compare_on_folds
from deeprc.runs.cross_cautions import find_cross_validated_chance_cautions
from deeprc.runs.cross_metrics import measure_folds
from deeprc.runs.out_of_fold import FoldPrediction
from deeprc.runs.performance import PredictedQuantity
from deeprc.runs.run_cautions import find_control_cautions
from deeprc.runs.strata_cautions import find_cross_validated_strata_cautions
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task

__all__ = ["compare_with_controls", "judge_folds", "measure_stratified_aucs"]


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
    donor_column = DonorColumn.choose(metadata, group_by)
    donors = donor_column.index()
    metrics = measure_folds(folds, donors)
    stratified_aucs = measure_stratified_aucs(folds, metadata, donors)
    for target, aucs in stratified_aucs.items():
        metrics[target]["within"] = [stratified.to_dict() for stratified in aucs]
    columns = select_control_columns(metadata, tasks)
    donors_by_id = donor_column.index_by_id(dataset.repertoire_ids)
    controls = compare_with_controls(folds, dataset, donors_by_id, columns=columns.read)
    for comparison in controls:
        metrics[comparison.quantity.target]["controls"] = comparison.to_list()
    left_out = find_target_like_cautions(columns) if any(comparison.measures for comparison in controls) else []
    return metrics, [
        *find_cross_validated_chance_cautions(metrics),
        *find_control_cautions(controls, stratified_aucs),
        *left_out,
        *find_cross_validated_strata_cautions(stratified_aucs, metrics, adjust_for),
    ]


def measure_stratified_aucs(
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
    rows = np.concatenate([fold.rows for fold in folds])
    fold_names = [f"{fold.repeat} {fold.fold}" for fold in folds for _ in fold.rows]
    repeats = [fold.repeat for fold in folds for _ in fold.rows]
    stratified_aucs: dict[str, list[StratifiedAuc]] = {}
    for index, task in enumerate(folds[0].tasks):
        if task.kind != "binary":
            continue
        label = np.concatenate([fold.labels[:, index] for fold in folds])
        output = get_output_slices(folds[0].tasks)[index].start
        score = np.concatenate([fold.log_odds()[:, output] for fold in folds])
        for name in find_strata_columns(metadata, task):
            values = metadata[name].iloc[rows].tolist()
            stratified = compute_stratified_auc(
                name, values, label, score, donors[rows], folds=fold_names, repertoires=rows, repeats=repeats
            )
            if stratified is not None:
                stratified_aucs.setdefault(task.name, []).append(stratified)
    return stratified_aucs


def compare_with_controls(
    folds: Sequence[FoldPrediction],
    dataset: RepertoireDataset,
    donors: Mapping[str, int] | None,
    *,
    columns: Sequence[str],
) -> list[ControlComparison]:
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
    first_repeat = [fold for fold in folds if fold.repeat == folds[0].repeat]
    return [
        _compare_target(first_repeat, index, dataset, donors, columns)
        for index, task in enumerate(first_repeat[0].tasks)
        if task.kind != "multiclass"
    ]


def _compare_target(
    folds: Sequence[FoldPrediction],
    index: int,
    dataset: RepertoireDataset,
    donors: Mapping[str, int] | None,
    columns: Sequence[str],
) -> ControlComparison:
    """Return the comparison with the controls for one target, by its index."""
    tasks = folds[0].tasks
    task, output = tasks[index], get_output_slices(tasks)[index].start
    classes = (task.positive, task.negative) if task.kind == "binary" else ()
    quantity = PredictedQuantity(task.name, task.kind, task.name if len(tasks) > 1 else "", classes)
    label = encode_labels([task], dataset.metadata)[:, 0]
    control_folds = [
        control_fold
        for control_fold in (_make_control_fold(fold, task, output, label) for fold in folds)
        if all(len(np.unique(label[rows])) > 1 for rows in (control_fold.tested, *control_fold.training_sets))
    ]
    if not control_folds:
        none = f"No control method could be compared{quantity.for_target}"
        reason = f"{none}: no fold has several labels for training and testing."
        return ControlComparison(quantity, pd.DataFrame(), [reason], choose_scoring(quantity.kind))
    return compare_on_folds(quantity, control_folds, label, dataset, columns=columns, donors=donors, n_folds=len(folds))


def _make_control_fold(fold: FoldPrediction, task: Task, output: int, label: NDArray[np.float64]) -> ControlFold:
    """Return a test fold, without repertoires that lack a label, with the outputs of the network for a task.

    `output` is the index of the task's output, `label` the label of each repertoire of the cohort, (B,).
    """
    tested, *training_sets = (rows[~np.isnan(label[rows])] for rows in (fold.rows, *fold.training_sets))
    predictions = fold.outputs if task.kind == "regression" else fold.log_odds()
    return ControlFold(fold.fold, tested, training_sets, predictions[~np.isnan(label[fold.rows]), output])
