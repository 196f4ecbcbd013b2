"""Cross-validations that learn from a part of the donors, and the run of their jobs.

Letters: B repertoires.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from deeprc.arrays import Integers
from deeprc.benchmarking.cohort_digest import digest_values
from deeprc.benchmarking.execution import JobProgress, JobRunner
from deeprc.benchmarking.jobs import Job, Outcome
from deeprc.benchmarking.methods import Method
from deeprc.benchmarking.nested_plan import NestedPlan
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.search import Setting
from deeprc.benchmarking.store import ResultStore
from deeprc.evaluation.splits import Split
from deeprc.jobs import HERE, Workers
from deeprc.versions import package_version

__all__ = ["Fit", "SubsampledPlan", "make_header", "run_fits"]


@dataclass(frozen=True)
class SubsampledPlan(NestedPlan):
    """A cross-validation with whole test folds, which learns from a share of the donors of each class in other folds.

    Attributes
    ----------
    groups
        Index of each repertoire's donor, (B,), if the folds keep donors together; None if they do not.
    share
        Share of the donors of each class that are kept, in the training and in the validation fold.
    draw
        Index of a random order of the donors. For the same order, the donors of a smaller share are among those of a
        larger one.
    known_donors
        Index of each repertoire's donor, (B,), if the metadata name it, also if the folds do not keep donors together;
        for intervals and permutations. None: the donors are `groups`.
    """

    share: float = 1.0
    draw: int = 0
    known_donors: Integers | None = None

    @property
    def donors(self) -> Integers:
        """Index of each repertoire's donor, (B,): repertoires of one donor are not independent."""
        donors = self.groups if self.known_donors is None else self.known_donors
        return np.arange(len(self.folds.labels)) if donors is None else donors

    def _split(self, fold: int) -> Split:
        split = super()._split(fold)
        if self.share == 1:
            return split
        return Split(self._keep_share(split.train), self._keep_share(split.validation), split.test)

    def n_learned(self, fold: int) -> int:
        """Return the number of repertoires for training and validation."""
        split = self.splits[fold]
        return len(split.train) + len(split.validation)

    def _keep_share(self, rows: Integers) -> Integers:
        """Return all repertoires of the first donors of each class; a donor's class is the first known label."""
        donors = np.arange(len(self.folds.labels)) if self.groups is None else self.groups
        label_of = self._find_first_labels(donors)
        donors_of_rows = set(donors[rows].tolist())
        candidates = [donor for donor in self._shuffle_donors(donors) if donor in donors_of_rows]
        kept: list[int] = []
        for label in {label_of[donor] for donor in candidates}:
            in_class = [donor for donor in candidates if label_of[donor] == label]
            kept += in_class[: max(1, round(self.share * len(in_class)))]
        return rows[np.isin(donors[rows], kept)]

    def _shuffle_donors(self, donors: Integers) -> list[int]:
        """Return the different donors in the random order of this draw."""
        different = np.unique(donors)
        order = np.random.default_rng([self.seed, self.draw]).permutation(len(different))
        shuffled: list[int] = different[order].tolist()
        return shuffled

    def _find_first_labels(self, donors: Integers) -> dict[int, int]:
        """Return the first known label of each donor."""
        labelled = np.flatnonzero(self.folds.labels >= 0)
        label_of: dict[int, int] = {}
        for donor, label in zip(donors[labelled].tolist(), self.folds.labels[labelled].tolist(), strict=True):
            label_of.setdefault(donor, label)
        return label_of

    def _make_job(self, method: Method, fold: int, kind: Any, settings: tuple[Setting, ...]) -> Job:
        job = super()._make_job(method, fold, kind, settings)
        return job if self.share == 1 else replace(job, key=digest_values(job.key, self.share, self.draw))


class Fit(NamedTuple):
    """The fit of a method for one fold of a plan, with its search of settings."""

    plan: NestedPlan
    method: Method
    fold: int


def run_fits(
    fits: Sequence[Fit], store: ResultStore, workers: Workers = HERE, progress: JobProgress | None = None
) -> list[Outcome]:
    """Run all fits and return the outcome of the last job of each: its predictions for the test fold.

    Jobs that the store knows are not run again.

    Raises
    ------
    InputError
        If a job fails.
    """
    runner = JobRunner(store, workers, progress)
    searches = [fit.plan.make_search_jobs(fit.method, fit.fold) for fit in fits]
    runner.n_total = len({job.key for jobs in searches for job in jobs}) + len(fits)
    runner.later = [(fit.method.name, "final") for fit in fits]
    runner.run([job for jobs in searches for job in jobs])
    runner.later = []
    finals = []
    for fit, jobs in zip(fits, searches, strict=True):
        setting = fit.plan.choose_setting(fit.method, fit.fold, [runner.done[job.key][1] for job in jobs])
        finals.append(fit.plan.make_final_job(fit.method, fit.fold, setting))
    runner.run(finals)
    return [runner.done[job.key][1] for job in finals]


def make_header(plan: NestedPlan, options: BenchmarkOptions, target: str) -> dict[str, Any]:
    """Return the header of the store of jobs, from the first plan."""
    methods = {method.name: {"label": method.label, "kind": method.kind} for method in plan.methods}
    return {
        "deeprc": package_version("deeprc"),
        "cohort": str(plan.dataset.container.path),
        "content": digest_values([plan.content]),
        "target": target,
        "group_by": options.group_by,
        "adjust_for": None,
        "preset": os.fspath(options.preset or "quick"),
        "asked": list(methods),
        "n_folds": plan.n_folds,
        "folds": digest_values([plan.folds.fold_of.tolist()]),
        "seed": options.seed,
        "methods": methods,
    }
