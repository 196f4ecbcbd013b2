"""Comparison of methods on one cohort, with the same folds, search and metrics, in one table.

The comparison is a nested cross-validation as in the paper (lines 9037-9045). Each fold is the test fold once. The next
fold is the inner validation fold, on which the settings of a method are chosen by their AUC, and the other folds are
for training. Every fit is a job whose outcome is kept in a small file, so an interrupted benchmark can continue.
Letters: B repertoires.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from deeprc.benchmarking.cohort_digest import digest_cohort, digest_values
from deeprc.benchmarking.execution import Execution, JobProgress
from deeprc.benchmarking.import_paths import is_import_path
from deeprc.benchmarking.labelled_folds import LabelledFolds
from deeprc.benchmarking.methods import choose_methods, set_seed, split_names
from deeprc.benchmarking.nested_plan import NestedPlan
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.result import BenchmarkResult
from deeprc.benchmarking.store import ResultStore, holds_benchmark, read_header
from deeprc.checks.cautions import find_duplicate_cautions, find_shortcut_cautions
from deeprc.checks.run_checks import check_for_training
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.documents import to_plain
from deeprc.errors import InputError
from deeprc.evaluation.adjustment import find_adjustment_cautions
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.cohort_cautions import find_divided_donor_cautions, find_donor_cautions, find_left_out_cautions
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.parse_folds import parse_left_out_column
from deeprc.evaluation.sheet_control import find_target_like_cautions, select_control_columns
from deeprc.files import write_text
from deeprc.jobs import check_scheduler
from deeprc.targets import format_labels
from deeprc.task_labels import describe_classes
from deeprc.versions import package_version

__all__ = ["benchmark"]

_logger = logging.getLogger(__name__)


def benchmark(
    cohort: str | os.PathLike[str] | RepertoireDataset,
    *,
    target: str,
    methods: Sequence[str] | Mapping[str, BaseEstimator | None] = ("all",),
    output: str | os.PathLike[str] | None = None,
    options: BenchmarkOptions | None = None,
    resume: bool = False,
    progress: JobProgress | None = None,
) -> BenchmarkResult:
    """Compare methods by nested cross-validation.

    Parameters
    ----------
    cohort
        Path of a container made by `deeprc preprocess`, or a dataset.
    target
        Text of the target, for two classes, several classes or a number; see `deeprc.tasks.parse_tasks`. Repertoires
        without a label are left out.
    methods
        Names of methods, see `deeprc.benchmarking.registry.METHODS`; or a mapping of names to estimators of your own
        (scikit-learn's contract, over `RepertoireDataset`) and of names of deeprc's methods to None.
    output
        Folder for the results; None writes nothing. It must not exist, or be empty, or have the same benchmark
        (`resume`).
    options
        Search spaces, folds, and processes; None takes the defaults of `BenchmarkOptions`.
    resume
        Whether to continue the benchmark in the folder; methods may be added.
    progress
        Function that is called after every job.

    Raises
    ------
    InputError
        If an argument cannot be used; then nothing is written.
    """
    options = BenchmarkOptions() if options is None else options
    if options.scheduler is not None:
        check_scheduler(options.scheduler)
    dataset = cohort if isinstance(cohort, RepertoireDataset) else open_dataset(cohort)
    names, estimators = _split_methods(methods)
    folder, preset = None if output is None else Path(output), options.preset
    if resume and folder is not None and holds_benchmark(folder):
        header = read_header(folder)
        names = _merge_earlier_methods(header["asked"], names, folder)
        preset = preset or header["preset"]
    preset = os.fspath(preset or "quick")
    plan, skipped = _make_plan(dataset, target, names, estimators, preset, options)
    # divides all folds, which may fail, before anything is written
    adjustment_cautions = _find_adjustment_cautions(plan)
    store = ResultStore(folder, _make_header(plan, target, names, preset, options), resume=resume)
    cautions = [
        *_find_donor_cautions(plan, options.group_by),
        *_find_check_cautions(plan, options.group_by),
        *_find_column_cautions(plan),
        *adjustment_cautions,
        *find_left_out_cautions(skipped),
    ]
    for caution in cautions:
        _logger.warning("%s", caution.text)
    if folder is not None:
        _write_folds(folder, plan, parse_left_out_column(options.folds))
    task = plan.folds.task
    if task.kind == "binary":
        _logger.info("%s", describe_classes(task, dataset.metadata))
    title = f"{task.title} of {Path(dataset.container.path).name}, {plan.n_folds} folds, settings: {Path(preset).name}"
    donors = DonorColumn.choose(dataset.metadata, options.group_by).index_by_id(dataset.repertoire_ids)
    result = Execution(plan, store, options, progress).collect_result(title, cautions, donors)
    if folder is not None:
        result.write(folder)
    return result


def _split_methods(
    methods: Sequence[str] | Mapping[str, BaseEstimator | None],
) -> tuple[list[str], dict[str, BaseEstimator]]:
    """Return the names of deeprc's methods, and the estimators of the user by their names."""
    if isinstance(methods, str):
        methods = split_names([methods])
    if isinstance(methods, Mapping):
        estimators = {name: estimator for name, estimator in methods.items() if estimator is not None}
        return [name for name in methods if name not in estimators], estimators
    return list(methods), {}


def _merge_earlier_methods(asked: Sequence[str], names: Sequence[str], folder: Path) -> list[str]:
    """Return the methods with which a folder was begun, then the new ones.

    Raises
    ------
    InputError
        If the folder was begun with a class of the user that the call does not name again: a file never names code.
    """
    for name in asked:
        if is_import_path(name) and name not in names:
            raise InputError(
                f"{folder}: was started with `methods={name}`; code is run only where the call names it: give it again"
            )
    return list(dict.fromkeys([*asked, *names]))


def _make_plan(
    dataset: RepertoireDataset,
    target: str,
    names: Sequence[str],
    estimators: Mapping[str, BaseEstimator],
    preset: str,
    options: BenchmarkOptions,
) -> tuple[NestedPlan, dict[str, str]]:
    """Return the plan of the benchmark, and the reason for each method of `all` that cannot be used."""
    folds = LabelledFolds.assign(dataset, target, options)
    methods, skipped = choose_methods(names, preset=preset, dataset=dataset, estimators=estimators, task=folds.task)
    donors = DonorColumn.require(dataset.metadata, options.group_by, str(dataset.container.path))
    plan = NestedPlan(
        dataset=dataset,
        folds=folds,
        seed=options.seed,
        content=digest_cohort(dataset),
        methods=tuple(set_seed(method, options.seed) for method in methods),
        groups=donors.index_if_known(),
        adjust_for=tuple(options.adjust_for),
    )
    return plan, skipped


def _find_adjustment_cautions(plan: NestedPlan) -> list[Caution]:
    """Return notes and warnings about repertoires that `adjust_for` leaves out of training."""
    training_labels = [plan.folds.labels[split.train] for split in plan.splits]
    return find_adjustment_cautions(plan.adjust_for, plan.folds.task.kind, training_labels)


def _find_donor_cautions(plan: NestedPlan, group_by: str | None) -> list[Caution]:
    """Return the warnings about donors in several folds, and about few donors."""
    metadata, is_tested = plan.dataset.metadata, plan.folds.fold_of >= 0
    divided = find_divided_donor_cautions(metadata, plan.folds.fold_of, apart="folds")
    donors = DonorColumn.choose(metadata, group_by)
    if donors.name is None or donors.name in [caution.details["column"] for caution in divided]:
        return divided
    classes = {name: is_tested & (plan.folds.labels == c) for c, name in enumerate(plan.folds.task.class_names)}
    classes = classes or {"": is_tested}
    return [*divided, *find_donor_cautions(donors.index(), donors.name, classes, kind=plan.folds.task.kind, where="")]


def _find_check_cautions(plan: NestedPlan, group_by: str | None) -> list[Caution]:
    """Return warnings from a check of the cohort: shortcuts to the label, and copies in several folds."""
    findings = check_for_training(plan.dataset, [plan.folds.task], group_by).findings
    fold_of = {
        str(name): fold
        for name, fold in zip(plan.dataset.repertoire_ids, plan.folds.fold_of.tolist(), strict=True)
        if fold >= 0
    }
    return [*find_duplicate_cautions(findings, fold_of, apart="folds"), *find_shortcut_cautions(findings)]


def _find_column_cautions(plan: NestedPlan) -> list[Caution]:
    """Return the warning about columns that `sheet-columns` leaves out, unless the user named its columns."""
    columns = select_control_columns(plan.dataset.metadata, [plan.folds.task])
    read = [method.estimator.get_params()["columns"] for method in plan.methods if method.name == "sheet-columns"]
    return find_target_like_cautions(columns) if columns.read in read else []


def _write_folds(folder: Path, plan: NestedPlan, left_out: str | None) -> None:
    """Write the fold of each repertoire, in the form that the option `folds` reads.

    If the values of a column, `left_out`, are the folds, the table also has these values.
    """
    rows = np.flatnonzero(plan.folds.fold_of >= 0)
    labels = plan.folds.labels[rows].tolist()
    if plan.folds.task.kind == "multiclass":
        labels = [plan.folds.task.classes[index] for index in labels]
    ids = plan.dataset.repertoire_ids[rows]
    values = {} if left_out is None else {"left_out": format_labels(plan.dataset.metadata[left_out].iloc[rows])}
    table = pd.DataFrame({"repertoire_id": ids, "fold": plan.folds.fold_of[rows], **values, "label": labels})
    write_text(folder / "folds.tsv", table.to_csv(sep="\t", index=False))


def _make_header(
    plan: NestedPlan, target: str, names: Sequence[str], preset: str, options: BenchmarkOptions
) -> dict[str, Any]:
    """Return the content of `benchmark.yaml`."""
    left_out = parse_left_out_column(options.folds)
    is_folds_file = left_out is None and not isinstance(options.folds, int | np.integer)
    task = plan.folds.task
    return {
        "target": target,
        "group_by": options.group_by,
        "preset": preset,
        "asked": names,
        "left_out": left_out,
        "adjust_for": list(options.adjust_for) or None,
        **({"folds_file": True} if is_folds_file else {}),
        "deeprc": package_version("deeprc"),
        "cohort": str(plan.dataset.container.path),
        "content": plan.content,
        "kind": task.kind,
        "classes": list(task.classes),
        "n_repertoires": int((plan.folds.fold_of >= 0).sum()),
        **(_describe_positive_class(plan) if task.kind == "binary" else {}),
        "n_folds": plan.n_folds,
        "folds": digest_values(plan.folds.fold_of.tolist()),
        "seed": plan.seed,
        "methods": _describe_methods(plan),
    }


def _describe_methods(plan: NestedPlan) -> dict[str, Any]:
    """Return the methods as `benchmark.yaml` has them, by name."""
    return {
        method.name: {
            "label": method.label,
            "kind": method.kind,
            "estimator": f"{type(method.estimator).__module__}:{type(method.estimator).__qualname__}",
            "fixed": json.loads(json.dumps(to_plain(method.estimator.get_params()), default=str)),
            "search": {
                **{name: list(values) for name, values in method.search.lists.items()},
                **{name: {limits.kind: [limits.low, limits.high]} for name, limits in method.search.ranges.items()},
            },
            "trials": method.search.trials,
        }
        for method in plan.methods
    }


def _describe_positive_class(plan: NestedPlan) -> dict[str, Any]:
    return {"positive_class": plan.folds.task.positive, "n_positive": int((plan.folds.labels == 1).sum())}
