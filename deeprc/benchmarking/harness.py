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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from deeprc.benchmarking.execution import Execution, Progress
from deeprc.benchmarking.jobs import make_job_key
from deeprc.benchmarking.methods import Method, choose_methods, names_code, split_names
from deeprc.benchmarking.nested import NestedPlan, assign_labelled_folds, digest_cohort
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.result import BenchmarkResult
from deeprc.benchmarking.search import apply_setting
from deeprc.benchmarking.store import ResultStore, holds_benchmark, read_header
from deeprc.checks.cautions import find_duplicate_cautions, find_shortcut_cautions
from deeprc.checks.of_run import check_for_training
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.documents import to_plain
from deeprc.errors import InputError
from deeprc.evaluation.adjustment import make_adjustment_cautions
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.cohort_cautions import find_donor_cautions, find_left_out_cautions, find_subject_cautions
from deeprc.evaluation.folds_text import parse_left_out_column
from deeprc.evaluation.sheet_control import select_control_columns, warn_of_left_out_columns
from deeprc.evaluation.splits import choose_subject_column, index_donors, index_donors_by_id, index_given_donors
from deeprc.files import write_text
from deeprc.jobs import check_scheduler
from deeprc.tasks import Task, describe_classes
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
    progress: Progress | None = None,
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
    names, own = _split_methods(methods)
    folder, preset = None if output is None else Path(output), options.preset
    if resume and folder is not None and holds_benchmark(folder):
        header = read_header(folder)
        names = _merge_earlier_methods(header["asked"], names, folder)
        preset = preset or header["preset"]
    preset = os.fspath(preset or "quick")
    fold_of, validation_of, labels, task = assign_labelled_folds(dataset, target, options)
    chosen, skipped = choose_methods(names, preset=preset, dataset=dataset, own=own, task=task)
    seeded = tuple(map(_make_seed_setter(options.seed), chosen))
    donors = index_given_donors(dataset.metadata, options.group_by, str(dataset.container.path))
    content = digest_cohort(dataset)
    parts, seed = (donors, validation_of, tuple(options.adjust_for)), options.seed
    plan = NestedPlan(dataset, fold_of, labels, task, seed, content, seeded, *parts)
    # divides all folds, which may fail, before anything is written
    adjusted = make_adjustment_cautions(plan.adjust_for, task.kind, [labels[split.train] for split in plan.splits])
    asked = {"target": target, "group_by": options.group_by, "preset": preset, "asked": names}
    left_out = parse_left_out_column(options.folds)
    asked |= {"left_out": left_out, "adjust_for": list(options.adjust_for) or None}
    of_file = {"folds_file": True} if left_out is None and not isinstance(options.folds, int | np.integer) else {}
    store = ResultStore(folder, {**asked, **of_file, **_make_header(plan, task)}, resume=resume)
    cautions = [
        *_find_subject_cautions(plan, options.group_by),
        *_check_cautions(plan, options.group_by),
        *_find_column_cautions(plan),
        *adjusted,
        *find_left_out_cautions(skipped),
    ]
    for caution in cautions:
        _logger.warning("%s", caution.text)
    if folder is not None:
        _write_folds(folder, plan)
    if task.kind == "binary":
        _logger.info("%s", describe_classes(task, dataset.metadata))
    title = f"{task.title} of {Path(dataset.container.path).name}, {plan.n_folds} folds, settings: {Path(preset).name}"
    result = Execution(plan, store, options, progress).collect_result(
        title, cautions, index_donors_by_id(dataset.repertoire_ids, dataset.metadata, options.group_by)
    )
    if folder is not None:
        result.write(folder)
    return result


def _split_methods(
    methods: Sequence[str] | Mapping[str, BaseEstimator | None],
) -> tuple[list[str], dict[str, BaseEstimator]]:
    if isinstance(methods, str):
        methods = split_names([methods])
    if isinstance(methods, Mapping):
        own = {name: estimator for name, estimator in methods.items() if estimator is not None}
        return [name for name in methods if name not in own], own
    return list(methods), {}


def _merge_earlier_methods(asked: Sequence[str], names: Sequence[str], folder: Path) -> list[str]:
    """Return the methods with which a folder was begun, then the new ones.

    Raises
    ------
    InputError
        If the folder was begun with a class of the user that the call does not name again: a file never names code.
    """
    for name in asked:
        if names_code(name) and name not in names:
            raise InputError(
                f"{folder}: was begun with `methods={name}`; code is run only where the call names it: give it again"
            )
    return list(dict.fromkeys([*asked, *names]))


def _make_seed_setter(seed: int) -> Callable[[Method], Method]:
    def with_seed(method: Method) -> Method:
        if "seed" not in method.estimator.get_params():
            return method
        return Method(
            method.name, method.label, apply_setting(method.estimator, {"seed": seed}), method.search, method.kind
        )

    return with_seed


def _find_subject_cautions(plan: NestedPlan, group_by: str | None) -> list[Caution]:
    """Return the warnings about donors in several folds, and about few donors."""
    metadata, tested = plan.dataset.metadata, plan.fold_of >= 0
    found = find_subject_cautions(metadata, plan.fold_of, apart="folds")
    column = choose_subject_column(metadata, group_by)
    if column is None or column in [each.details["column"] for each in found]:
        return found
    classes = {name: tested & (plan.labels == c) for c, name in enumerate(plan.task.class_names)} or {"": tested}
    return [
        *found,
        *find_donor_cautions(index_donors(metadata, column), column, classes, kind=plan.task.kind, where=""),
    ]


def _check_cautions(plan: NestedPlan, group_by: str | None) -> list[Caution]:
    """Return warnings from a check of the cohort: shortcuts to the label, and copies in several folds."""
    findings = check_for_training(plan.dataset, [plan.task], group_by).findings
    fold_of = {
        str(name): fold
        for name, fold in zip(plan.dataset.repertoire_ids, plan.fold_of.tolist(), strict=True)
        if fold >= 0
    }
    return [*find_duplicate_cautions(findings, fold_of, apart="folds"), *find_shortcut_cautions(findings)]


def _find_column_cautions(plan: NestedPlan) -> list[Caution]:
    """Return the warning about columns that the control `sheet` leaves out, unless the user named its columns."""
    columns = select_control_columns(plan.dataset.metadata, [plan.task])
    read = [each.estimator.get_params()["columns"] for each in plan.methods if each.name == "sheet-columns"]
    return warn_of_left_out_columns(columns) if columns.read in read else []


def _write_folds(folder: Path, plan: NestedPlan) -> None:
    """Write the fold of each repertoire, in the form that the option `folds` reads."""
    part = np.flatnonzero(plan.fold_of >= 0)
    ids = plan.dataset.repertoire_ids[part]
    labels = plan.labels[part].tolist()
    if plan.task.kind == "multiclass":
        labels = [plan.task.classes[index] for index in labels]
    table = pd.DataFrame({"repertoire_id": ids, "fold": plan.fold_of[part], "label": labels})
    write_text(folder / "folds.tsv", table.to_csv(sep="\t", index=False))


def _make_header(plan: NestedPlan, task: Task) -> dict[str, Any]:
    """Return the content of `benchmark.yaml` without the arguments of the call."""
    methods = {
        method.name: {
            "label": method.label,
            "kind": method.kind,
            "estimator": f"{type(method.estimator).__module__}:{type(method.estimator).__qualname__}",
            "fixed": json.loads(json.dumps(to_plain(method.estimator.get_params()), default=str)),
            "search": {
                **{name: list(values) for name, values in method.search.lists.items()},
                **{name: {limits[0]: list(limits[1:])} for name, limits in method.search.ranges.items()},
            },
            "trials": method.search.trials,
        }
        for method in plan.methods
    }
    return {
        "deeprc": package_version("deeprc"),
        "cohort": str(plan.dataset.container.path),
        "content": plan.content,
        "kind": task.kind,
        "classes": list(task.classes),
        "n_repertoires": int((plan.fold_of >= 0).sum()),
        **(_describe_positive_class(plan, task) if task.kind == "binary" else {}),
        "n_folds": plan.n_folds,
        "folds": make_job_key(plan.fold_of.tolist()),
        "seed": plan.seed,
        "methods": methods,
    }


def _describe_positive_class(plan: NestedPlan, task: Task) -> dict[str, Any]:
    return {"positive_class": task.positive, "n_positive": int((plan.labels == 1).sum())}
