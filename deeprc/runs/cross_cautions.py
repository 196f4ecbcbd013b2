"""Warnings about the metrics of a cross-validation: chance, its cohort, its donors, its folds, and its runs.

Letters: B repertoires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deeprc.checks.cautions import find_duplicate_cautions, find_shortcut_cautions
from deeprc.checks.run_checks import check_for_training, read_checks
from deeprc.evaluation.adjustment import find_adjustment_cautions
from deeprc.evaluation.caution import Caution, read_cautions
from deeprc.evaluation.cohort_cautions import find_divided_donor_cautions, find_donor_cautions
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.significance import are_few_repertoires
from deeprc.runs.cross_plan import PreparedCrossValidation
from deeprc.runs.model_cautions import DOUBTFUL_BRANCH
from deeprc.runs.run import read_splits
from deeprc.runs.run_cautions import ONE_CLASS_PART
from deeprc.task_labels import encode_labels

__all__ = ["find_cautions_of_runs", "find_cross_validated_chance_cautions", "find_cross_validation_cautions"]

_OF_RUNS = (ONE_CLASS_PART, DOUBTFUL_BRANCH)
"""Names of the warnings of runs that are also warnings of the cross-validation."""


def find_cross_validation_cautions(prepared: PreparedCrossValidation) -> list[Caution]:
    """Return the warnings about a cross-validation whose runs are trained, except those about its predictions."""
    cautions = [*_find_check_cautions(prepared), *_find_donor_cautions(prepared)]
    if prepared.header.adjust_for:
        cautions += _find_adjustment_cautions(prepared)
    if prepared.header.repeats == 1:
        text = (
            "There was only one repeat, so the intervals do not include the variation between seeds and divisions into "
            "folds. The same call with `repeats=3` adds two repeats."
        )
        cautions.append(Caution("note", text, "performance", "one-repeat"))
    return [*cautions, *find_cautions_of_runs(list(prepared.run_folders))]


def _find_check_cautions(prepared: PreparedCrossValidation) -> list[Caution]:
    """Return warnings from the check of the cohort: shortcuts to the label, and copies in several folds of a repeat."""
    dataset, test_folds = prepared.dataset, prepared.test_folds
    checks = read_checks(next(iter(prepared.run_folders)))  # the check is the same in all runs
    if checks is None or not checks.is_current(dataset):
        checks = check_for_training(dataset, prepared.tasks, prepared.header.group_by)
    labelled = np.flatnonzero(test_folds[:, 0] >= 0)
    folds_of = {str(dataset.repertoire_ids[row]): tuple(test_folds[row].tolist()) for row in labelled}
    return [
        *find_duplicate_cautions(checks.findings, folds_of, apart="folds"),
        *find_shortcut_cautions(checks.findings),
    ]


def _find_donor_cautions(prepared: PreparedCrossValidation) -> list[Caution]:
    """Return warnings about donors in several folds, few donors, and few repertoires."""
    metadata, fold_of = prepared.dataset.metadata, prepared.test_folds[:, 0]
    cautions = find_divided_donor_cautions(metadata, fold_of, apart="folds")
    donor_column = DonorColumn.choose(metadata, prepared.header.group_by)
    column, donors = donor_column.name, donor_column.index_if_known()
    for task, label in zip(prepared.tasks, encode_labels(prepared.tasks, metadata).T, strict=True):
        is_tested = ~np.isnan(label) & (fold_of >= 0)
        classes = {name: is_tested & (label == c) for c, name in enumerate(task.class_names)} or {"": is_tested}
        if donors is not None and column is not None:
            cautions += find_donor_cautions(donors, column, classes, kind=task.kind, where="")
        smallest = min(int(rows.sum()) for rows in classes.values())
        if are_few_repertoires(task.kind, smallest):
            phrase = "with a number" if task.kind == "regression" else "in the smallest class"
            text = f"{task.name}: {smallest:,} repertoires {phrase}: the metrics are uncertain."
            cautions.append(Caution("warning", text, "performance", "few", {"target": task.name, "n": smallest}))
    return cautions


def _find_adjustment_cautions(prepared: PreparedCrossValidation) -> list[Caution]:
    """Return a note that says for which columns the training was adjusted, or a warning if few repertoires are left."""
    ids = prepared.dataset.repertoire_ids.astype(str)
    labels = encode_labels(prepared.tasks[:1], prepared.dataset.metadata)[:, 0]
    training_labels = [labels[np.isin(ids, read_splits(run)[0]["train"])] for run in prepared.run_folders]
    return find_adjustment_cautions(prepared.header.adjust_for, prepared.tasks[0].kind, training_labels)


def find_cautions_of_runs(runs: Sequence[Path]) -> list[Caution]:
    """Return the warnings of runs about parts with one class and doubtful branches, with how many runs have each."""
    cautions = [caution for run in runs for caution in read_cautions(run) if caution.name in _OF_RUNS]
    counts = Counter(caution.text for caution in cautions)
    return [
        replace(caution, text=f"{counts[caution.text]} of {len(runs)} runs: {caution.text}")
        for caution in {caution.text: caution for caution in cautions}.values()
    ]


def find_cross_validated_chance_cautions(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[Caution]:
    """Yield a warning for each target whose cross-validated AUC, or r2, is not shown to be better than chance."""
    for target, values in metrics.items():
        measure, heading, chance = ("r2", "r²", 0.0) if "r2" in values else ("auc", "AUC", 0.5)
        value, limits = values.get(measure), values.get(f"{measure}_ci")
        if value is None or (limits[0] if limits else value) > chance:
            continue
        interval = f", with a 95% interval from {limits[0]:.3f} to {limits[1]:.3f}" if limits else ""
        text = (
            f"{target} is not predicted significantly better than by chance ({chance:g}): the {heading} is {value:.3f}"
            f"{interval}. Do not interpret the sequences and motifs of these networks."
        )
        details = {"target": target, measure: value, "interval": list(limits or ())}
        yield Caution("warning", text, "performance", "chance", details)
