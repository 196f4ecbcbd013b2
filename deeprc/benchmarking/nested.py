"""The plan of a nested cross-validation: the fold of each repertoire, and the jobs for each fold.

Letters: B repertoires.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.benchmarking.jobs import Job, make_job_key
from deeprc.benchmarking.methods import Method
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.search import Setting, remove_path_parameter
from deeprc.datasets.cache import digest_container, digest_repertoires
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.linked_container import StoredContainer
from deeprc.errors import InputError
from deeprc.evaluation.folds_file import read_folds
from deeprc.evaluation.folds_text import parse_left_out_column
from deeprc.evaluation.left_out import assign_left_out, list_left_out_values
from deeprc.evaluation.splits import N_FOLDS, Split, adjust_split, assign_folds
from deeprc.tasks import Task, encode_labels, parse_tasks
from deeprc.versions import package_version

__all__ = ["NestedPlan", "assign_labelled_folds", "digest_cohort"]

_MAX_PATH = 250  # largest number of settings in one job, which are lost by an interruption
_OTHER_FOLDS = "try fewer `folds`, another `seed`, or folds of your own"


def assign_labelled_folds(
    dataset: RepertoireDataset, target: str, options: BenchmarkOptions
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[Any], Task]:
    """Return the test fold and the validation folds of each repertoire, the labels, and the task.

    See `NestedPlan`.
    """
    source = str(dataset.container.path)
    (task,) = parse_tasks([target], dataset.metadata, source=source)
    if task.weight != 1:
        raise InputError(f"`target={target!r}`: a benchmark has one target, whose weight means nothing; leave out '@'")
    label = encode_labels([task], dataset.metadata)[:, 0]
    folds, group_by, seed = options.folds, options.group_by, options.seed
    validation_of, left_out = None, None
    if isinstance(folds, int | np.integer):
        n_folds = int(folds)
        fold_of = assign_folds(dataset.metadata, [task], n_folds=n_folds, group_by=group_by, seed=seed, source=source)
    elif (column := parse_left_out_column(folds)) is not None:
        fold_of = assign_left_out(dataset.metadata, [task], column, group_by=group_by, source=source)
        left_out = column, list_left_out_values(dataset.metadata, column, source)
        n_folds = len(left_out[1])
        validation_of = _assign_validation_folds(dataset, task, fold_of, n_folds, options)
    elif group_by is not None:
        raise InputError("`group_by`: the file of folds decides already which repertoires are together")
    else:
        fold_of_all = read_folds(Path(folds), dataset.repertoire_ids)
        n_folds = int(fold_of_all.max()) + 1  # also folds without any label
        fold_of = np.where(np.isnan(label), -1, fold_of_all)
    for fold in range(n_folds):
        n_different = len(np.unique(label[fold_of == fold]))
        where, advice = f"fold {fold}", _OTHER_FOLDS
        if left_out is not None:
            where = f"fold {fold} ({left_out[0]}={left_out[1][fold]})"
            advice = "join this value with another one, or remove its label to leave it out"
        if task.kind == "binary" and n_different < 2:
            raise InputError(f"{source}: {where} has one class of {task.name!r} only; {advice}")
        if task.kind == "multiclass" and n_different < len(task.classes):
            absent = next(c for c in range(len(task.classes)) if not (label[fold_of == fold] == c).any())
            raise InputError(f"{source}: {where} lacks the class {task.classes[absent]!r} of {task.name!r}; {advice}")
        if task.kind == "regression" and n_different < 2:
            raise InputError(f"{source}: {where} has fewer than 2 different values of {task.name!r}; {advice}")
    if task.kind == "regression":
        return fold_of, validation_of, np.where(fold_of < 0, np.nan, label), task
    return fold_of, validation_of, np.where(fold_of < 0, -1, np.nan_to_num(label, nan=-1)).astype(np.int64), task


def _assign_validation_folds(
    dataset: RepertoireDataset, task: Task, fold_of: NDArray[np.int64], n_folds: int, options: BenchmarkOptions
) -> NDArray[np.int64]:
    """Return the inner folds of the other repertoires for each test fold, (F, B), of which fold 0 is for validation.

    It is the first one that has every class, and leaves every class for training: few donors may not suffice for all.
    """
    source, metadata = str(dataset.container.path), dataset.metadata
    label = encode_labels([task], metadata)[:, 0]
    validation_of = np.full((n_folds, len(dataset)), -1)
    for fold, found in enumerate(validation_of):
        rest = np.flatnonzero((fold_of >= 0) & (fold_of != fold))
        where = f"{source}, without fold {fold}"
        inner = assign_folds(metadata.iloc[rest], [task], group_by=options.group_by, seed=options.seed, source=where)
        first = 0 if task.kind == "regression" else _find_fold_of_all_classes(inner, label[rest])
        if first is None:
            raise InputError(
                f"{source}: without fold {fold}, no validation fold leaves every class of {task.name!r} for both "
                f"validation and training; {_OTHER_FOLDS}"
            )
        found[rest] = (inner - first) % N_FOLDS
    return validation_of


def _find_fold_of_all_classes(fold_of: NDArray[np.int64], label: NDArray[np.float64]) -> int | None:
    """Return the first fold that has every class, as the others together do; None if there is none. Both are (B,)."""
    n_classes = len(np.unique(label))
    for fold in np.unique(fold_of).tolist():
        if len(np.unique(label[fold_of == fold])) == len(np.unique(label[fold_of != fold])) == n_classes:
            return int(fold)
    return None


def digest_cohort(dataset: RepertoireDataset) -> str:
    """Return a digest of the content of a cohort."""
    container = dataset.container
    rows = dataset.rows.tolist()
    if isinstance(container, StoredContainer):
        return make_job_key(digest_container(container), rows)
    from deeprc.datasets.simulation import SimulatedDataset
    from deeprc.datasets.simulation.recipe import cohort_to_mapping

    if isinstance(dataset, SimulatedDataset):
        return make_job_key(cohort_to_mapping(dataset.cohort), rows)
    return make_job_key(digest_repertoires(dataset))  # a table in memory


@dataclass(frozen=True)
class NestedPlan:
    """The plan of a benchmark: a cohort, its folds, and the methods.

    Attributes
    ----------
    dataset
        Repertoires, (B,).
    fold_of, labels
        Index of the fold of each repertoire, -1 if it is in none; and its label: the index of the class, int64, -1 if
        missing, or for regression the number, float64, NaN if missing. Both are (B,).
    task
        Task of the target.
    seed
        Seed of the drawn settings.
    content
        Digest of the cohort, see `digest_cohort`.
    methods
        Methods that are compared.
    groups
        Donor of each repertoire as an index, (B,) int64; None if every repertoire is from a different donor.
    validation_of
        Only if the values of a column are left out: inner folds of the other repertoires for each test fold, (F, B), of
        which the first is for validation. None: the fold after the test fold is for validation.
    adjust_for
        Metadata columns for which every fold is adjusted, see `adjust_split`.
    """

    dataset: RepertoireDataset
    fold_of: NDArray[np.int64]
    labels: NDArray[Any]
    task: Task
    seed: int
    content: str
    methods: tuple[Method, ...]
    groups: NDArray[np.int64] | None = None
    validation_of: NDArray[np.int64] | None = None
    adjust_for: tuple[str, ...] = ()

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return int(self.fold_of.max()) + 1

    @cached_property
    def splits(self) -> list[Split]:
        """Split for each test fold: the next fold is for validation, and the others are for training."""
        return [self._split(fold) for fold in range(self.n_folds)]

    def _split(self, fold: int) -> Split:
        test, rest = self.fold_of == fold, (self.fold_of >= 0) & (self.fold_of != fold)
        if self.validation_of is None:
            validation = self.fold_of == (fold + 1) % self.n_folds
        else:
            validation = self.validation_of[fold] == 0
        split = Split(*map(np.flatnonzero, (rest & ~validation, validation, test)))
        donors = np.arange(len(self.dataset)) if self.groups is None else self.groups
        source, metadata = f"{self.dataset.container.path}: fold {fold}", self.dataset.metadata
        seed = (self.seed, fold)
        return adjust_split(split, metadata, [self.task], self.adjust_for, donors, seed=seed, source=source)

    def settings(self, method: Method, fold: int) -> list[Setting]:
        """Return the settings to try for a method; every fold has its own random draws."""
        return method.search.settings([self.seed, fold])

    def search_jobs(self, method: Method, fold: int) -> list[Job]:
        """Return the jobs that measure the settings of a method; none if it has only one setting."""
        settings = self.settings(method, fold)
        if len(settings) < 2:
            return []
        groups: dict[str, list[Setting]] = {}
        for setting in settings:
            groups.setdefault(make_job_key(remove_path_parameter(method.estimator, setting)), []).append(setting)
        return [
            self._make_job(method, fold, "search", tuple(group[start : start + _MAX_PATH]))
            for group in groups.values()
            for start in range(0, len(group), _MAX_PATH)
        ]

    def make_final_job(self, method: Method, fold: int, setting: Setting) -> Job:
        """Return the job that predicts the test fold."""
        return self._make_job(method, fold, "final", (setting,))

    def _make_job(self, method: Method, fold: int, kind: Any, settings: tuple[Setting, ...]) -> Job:
        kind_of = type(method.estimator)
        what = (
            f"{kind_of.__module__}:{kind_of.__qualname__}",
            _get_source_code(kind_of),
            method.estimator.get_params(),
            settings,
        )
        groups = None if self.groups is None else self.groups.tolist()
        folds: tuple[Any, ...] = self.fold_of.tolist(), self.labels.tolist(), fold, self.task.kind, groups
        folds += () if self.validation_of is None else (self.validation_of.tolist(),)
        split = self.splits[fold]
        folds += (split.train, split.validation) if self.adjust_for else ()
        outcome = "with cutoff" if kind == "final" else kind  # older versions had no cutoff
        key = make_job_key(method.name, outcome, *what, folds, self.content, package_version("deeprc"))
        container = self.dataset.container
        whole = isinstance(container, StoredContainer) and np.array_equal(
            self.dataset.rows, np.arange(len(container.repertoire_ids))
        )
        cohort = str(self.dataset.container.path) if whole else self.dataset
        return Job(
            key=key,
            method=method.name,
            fold=fold,
            kind=kind,
            cohort=cohort,
            estimator=method.estimator,
            settings=settings,
            split=split,
            labels=self.labels,
            task=self.task,
            groups=self.groups,
        )


def _get_source_code(kind: type) -> str:
    """Return the source code of a user's class, which may change between two calls; "" for a class of deeprc."""
    if kind.__module__.partition(".")[0] == "deeprc":
        return ""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # a class that was defined at a prompt
        return ""
