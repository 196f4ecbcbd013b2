"""The plan of a nested cross-validation: the fold of each repertoire, and the jobs for each fold.

Letters: B repertoires.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.benchmarking.cohort_digest import (
    collect_read_columns,
    digest_read_content,
    digest_values,
    is_class_of_deeprc,
)
from deeprc.benchmarking.jobs import Job, Outcome, can_be_refitted
from deeprc.benchmarking.labelled_folds import LabelledFolds
from deeprc.benchmarking.methods import Method
from deeprc.benchmarking.search import Setting, group_by_path, stops_early
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.linked_container import StoredContainer
from deeprc.evaluation.scoring import choose_scoring
from deeprc.evaluation.splits import Split, adjust_split
from deeprc.versions import package_version

__all__ = ["NestedPlan"]

_MAX_PATH = 250  # largest number of settings in one job, which are lost by an interruption


@dataclass(frozen=True, kw_only=True)
class NestedPlan:
    """The plan of a benchmark: a cohort, its folds, and the methods.

    Attributes
    ----------
    dataset
        Repertoires, (B,).
    folds
        Label and fold of each repertoire.
    seed
        Seed of the drawn settings.
    content
        Digest of the cohort, see `digest_cohort`.
    methods
        Methods that are compared.
    groups
        Donor of each repertoire as an index, (B,) int64; None if every repertoire is from a different donor.
    adjust_for
        Metadata columns for which every fold is adjusted, see `adjust_split`.
    refits
        Whether a method is also fitted to the training and validation folds together.
    """

    dataset: RepertoireDataset
    folds: LabelledFolds
    seed: int
    content: str
    methods: tuple[Method, ...]
    groups: NDArray[np.int64] | None = None
    adjust_for: tuple[str, ...] = ()
    refits: bool = True

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return self.folds.n_folds

    @cached_property
    def splits(self) -> list[Split]:
        """Split for each test fold; repertoires that are neither for testing nor for validation are for training."""
        return [self._split(fold) for fold in range(self.n_folds)]

    def _split(self, fold: int) -> Split:
        test, validation = self.folds.fold_of == fold, self.folds.is_for_validation(fold)
        train = (self.folds.fold_of >= 0) & ~test & ~validation
        split = Split(*map(np.flatnonzero, (train, validation, test)))
        donors = np.arange(len(self.dataset)) if self.groups is None else self.groups
        source, metadata = f"{self.dataset.container.path}: fold {fold}", self.dataset.metadata
        seed = (self.seed, fold)
        return adjust_split(split, metadata, [self.folds.task], self.adjust_for, donors, seed=seed, source=source)

    def list_settings(self, method: Method, fold: int) -> list[Setting]:
        """Return the settings to try for a method when `fold` is the test fold; each fold has its own random draws."""
        return method.search.list_settings([self.seed, fold])

    def make_search_jobs(self, method: Method, fold: int) -> list[Job]:
        """Return the jobs that measure the settings of a method on the validation fold, when `fold` is the test fold.

        The list is empty if the method has only one setting.
        """
        settings = self.list_settings(method, fold)
        if len(settings) < 2:
            return []
        return [
            self._make_job(method, fold, "search", tuple(settings[i] for i in path[start : start + _MAX_PATH]))
            for path in group_by_path(method.estimator, settings)
            for start in range(0, len(path), _MAX_PATH)
        ]

    def choose_setting(self, method: Method, fold: int, outcomes: Sequence[Outcome]) -> Setting:
        """Return the setting that is best on the validation fold, the first of equally good ones.

        `outcomes` are those of the jobs of `make_search_jobs`.
        """
        settings = self.list_settings(method, fold)
        if len(settings) == 1:
            return settings[0]
        measure = choose_scoring(self.folds.task.kind).measure_name
        measured = [measurement for outcome in outcomes for measurement in outcome["validation"]]
        value_of = {digest_values(measurement["setting"]): measurement[measure] for measurement in measured}
        return max(settings, key=lambda setting: value_of[digest_values(setting)])

    def make_final_job(self, method: Method, fold: int, setting: Setting) -> Job:
        """Return the job that fits a method with a setting and predicts `fold`, the test fold."""
        return self._make_job(method, fold, "final", (setting,))

    def _is_whole_file(self) -> bool:
        """Return whether a process that opens the container's file has the whole dataset, metadata included."""
        container, indices = self.dataset.container, self.dataset.repertoire_indices
        is_whole = np.array_equal(indices, np.arange(len(container.repertoire_ids)))
        return isinstance(container, StoredContainer) and is_whole and not self.dataset.has_other_metadata

    def _make_job(self, method: Method, fold: int, kind: Any, settings: tuple[Setting, ...]) -> Job:
        is_whole_file = self._is_whole_file()
        return Job(
            key=self._digest_job(method, fold, kind, settings),
            method=method.name,
            fold=fold,
            kind=kind,
            cohort=str(self.dataset.container.path) if is_whole_file else self.dataset,
            estimator=method.estimator,
            settings=settings,
            split=self.splits[fold],
            labels=self.folds.labels,
            task=self.folds.task,
            groups=self.groups,
            content=digest_read_content(self.dataset, method.estimator) if is_whole_file else "",
            refits=self.refits,
        )

    def _digest_job(self, method: Method, fold: int, kind: str, settings: tuple[Setting, ...]) -> str:
        """Return a digest of everything on which the outcome of a job depends.

        What earlier versions did not know is left out where it is not used, so their outcomes stay valid.
        """
        estimator_class = type(method.estimator)
        estimator_parts = (
            f"{estimator_class.__module__}:{estimator_class.__qualname__}",
            _get_source_code(estimator_class),
            method.estimator.get_params(),
            settings,
        )
        groups = None if self.groups is None else self.groups.tolist()
        folds, split = self.folds, self.splits[fold]
        data_parts: list[Any] = [folds.fold_of.tolist(), folds.labels.tolist(), fold, folds.task.kind, groups]
        if folds.inner_fold_of is not None:
            data_parts.append(folds.inner_fold_of.tolist())
        if self.adjust_for:
            data_parts += [split.train, split.validation]
        read_columns = collect_read_columns(method.estimator, self.dataset.metadata)
        if read_columns:
            data_parts.append(read_columns)
        outcome = kind
        if kind == "final":  # older versions had no cutoff, and no refit of what stops early
            is_refitted = self.refits and stops_early(method.estimator) and can_be_refitted(method.estimator)
            outcome = "with cutoff and refit" if is_refitted else "with cutoff"
        version = package_version("deeprc")
        return digest_values(method.name, outcome, *estimator_parts, data_parts, self.content, version)


def _get_source_code(estimator_class: type) -> str:
    """Return the source code of a user's class, which may change between two calls; "" for a class of deeprc."""
    if is_class_of_deeprc(estimator_class):
        return ""
    try:
        return inspect.getsource(estimator_class)
    except (OSError, TypeError):  # a class that was defined at a prompt
        return ""
