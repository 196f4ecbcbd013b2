"""The execution of a benchmark: its jobs, and the tables of their outcomes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd

from deeprc.benchmarking.cohort_digest import digest_values
from deeprc.benchmarking.fit_notes import FitNote, show_fit_notes_once
from deeprc.benchmarking.jobs import Job, Outcome, RemainingTime, run_benchmark_jobs
from deeprc.benchmarking.methods import Method
from deeprc.benchmarking.nested_plan import NestedPlan
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.result import MEMBER_COLUMNS, BenchmarkResult
from deeprc.benchmarking.search import apply_setting, remove_path_parameter
from deeprc.benchmarking.store import ResultStore
from deeprc.errors import InputError
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.scoring import choose_scoring
from deeprc.evaluation.scoring_base import Scoring
from deeprc.evaluation.strata import find_strata_columns
from deeprc.jobs import HERE, Workers

__all__ = ["Execution", "JobProgress", "JobRunner"]

JobProgress = Callable[[int, int, float | None], None]
"""Function of the number of jobs that have ended, the number of all jobs, and an estimate of the seconds left."""

_logger = logging.getLogger(__name__)


class JobRunner:
    """A runner of the jobs that have no outcome yet. A job that fails ends the call, unless a subclass notes it.

    Attributes
    ----------
    done
        The jobs that have an outcome, each with it, by their keys.
    n_total
        The number of all jobs, for the progress.
    later
        The method and kind of each job of later calls of `run`, for the time that is left.
    """

    def __init__(self, store: ResultStore, workers: Workers, progress: JobProgress | None) -> None:
        self.store, self.workers, self.progress = store, workers, progress
        self.remaining_time = RemainingTime(workers)
        self.done: dict[str, tuple[Job, Outcome]] = {}
        self.n_total = 0
        self.later: list[tuple[str, str]] = []
        self._shown_notes: set[FitNote] = set()

    def run(self, jobs: Sequence[Job]) -> None:
        """Run the jobs that have no stored outcome, and store their outcomes."""
        waiting: dict[str, Job] = {}
        for job in jobs:
            stored = self.store.get(job)
            if stored is None or not self._is_usable(job, stored):
                waiting[job.key] = job
            else:
                self.done[job.key] = (job, stored)
        self._prepare(list(waiting.values()))
        self._report_progress(waiting)
        # closed at once if anything goes wrong here, so that no worker continues
        with (
            show_fit_notes_once(self._shown_notes),
            closing(run_benchmark_jobs(list(waiting.values()), self.workers)) as ended,
        ):
            for job, outcome in ended:
                self.remaining_time.count_job()
                self.store.put(job, outcome)
                self.done[job.key] = (job, outcome)
                del waiting[job.key]
                if "error" in outcome:
                    self._note_failure(job, outcome["error"])
                self._report_progress(waiting)

    def _is_usable(self, job: Job, outcome: Outcome) -> bool:  # noqa: ARG002 (for subclasses)
        """Return whether a stored outcome can be used."""
        return True

    def _prepare(self, jobs: Sequence[Job]) -> None:
        """Do what is useful before jobs are run."""

    def _note_failure(self, job: Job, error: str) -> None:
        """Raise an error, or note that a job has failed."""
        raise InputError(f"{job.method}: fold {job.fold}: {error}")

    def _report_progress(self, waiting: Mapping[str, Job]) -> None:
        if self.progress is not None:
            missing = [*((job.method, job.kind) for job in waiting.values()), *self.later]
            left = self.remaining_time.estimate(self.done.values(), missing)
            self.progress(len(self.done), self.n_total, left)


class Execution(JobRunner):
    """The execution of a benchmark: it runs the jobs that have no outcome yet, and collects all outcomes."""

    def __init__(
        self, plan: NestedPlan, store: ResultStore, options: BenchmarkOptions, progress: JobProgress | None
    ) -> None:
        super().__init__(store, options.workers, progress)
        self.plan = plan
        self.scoring = choose_scoring(plan.folds.task.kind, plan.folds.task.classes)
        self.search_jobs = {(m.name, f): plan.make_search_jobs(m, f) for m in plan.methods for f in range(plan.n_folds)}
        self.n_total = sum(map(len, self.search_jobs.values())) + len(self.search_jobs)
        self._failed_methods: set[str] = set()

    def collect_result(
        self, title: str, cautions: Sequence[Caution], donors: Mapping[str, int] | None
    ) -> BenchmarkResult:
        """Run the jobs that have no outcome yet, and return the tables of all outcomes.

        `cautions` are what is known of the cohort, and `donors` has the index of each repertoire's donor by its id.
        """
        without_search = [method for method in self.plan.methods if not self.search_jobs[method.name, 0]]
        early_jobs = self._plan_final_jobs(without_search)
        self.later = [(name, "final") for (name, _), jobs in self.search_jobs.items() if jobs]
        first_jobs = _order_jobs([*([job] for job in early_jobs), *self.search_jobs.values()])
        self.run(first_jobs)
        final_jobs = self._plan_final_jobs(self.plan.methods)
        self.n_total -= len(self.search_jobs) - len(final_jobs)  # a method whose search failed has no final job
        self.later = []
        self.run([job for job in final_jobs if job.key not in self.done])
        finished = [self.done[job.key] for job in final_jobs if "error" not in self.done[job.key][1]]
        return BenchmarkResult(
            methods=[MethodInfo(m.name, m.label, m.kind) for m in self.plan.methods],
            predictions=_make_predictions_table(finished, self.scoring),
            choices=_make_choices_table(finished, self.scoring),
            costs=_make_costs_table(self.done.values()),
            members=_make_members_table(finished),
            failures=self._collect_failures([*first_jobs, *final_jobs]),
            n_folds=self.plan.n_folds,
            title=title,
            scoring=self.scoring,
            known=cautions,
            donors=donors,
            shortcuts=self._collect_shortcut_columns(cautions),
        )

    def _collect_shortcut_columns(self, cautions: Sequence[Caution]) -> dict[str, dict[str, Any]]:
        """Return the columns in warnings, with the value of each repertoire by its id."""
        metadata, ids = self.plan.dataset.metadata, [str(name) for name in self.plan.dataset.repertoire_ids]
        names = [str(caution.details["column"]) for caution in cautions if caution.name == "label-from-column"]
        categories = find_strata_columns(metadata, self.plan.folds.task)
        return {name: dict(zip(ids, metadata[name], strict=True)) for name in names if name in categories}

    def _plan_final_jobs(self, methods: Sequence[Method]) -> list[Job]:
        """Return the jobs that test the chosen settings, except where a search job of the method and fold failed."""
        jobs = []
        for method in methods:
            for fold in range(self.plan.n_folds):
                outcomes = [self.done[job.key][1] for job in self.search_jobs[method.name, fold]]
                if not any("error" in outcome for outcome in outcomes):
                    setting = self.plan.choose_setting(method, fold, outcomes)
                    jobs.append(self.plan.make_final_job(method, fold, setting))
        return jobs

    def _collect_failures(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Return the error of the first of the jobs that failed, by method."""
        failures: dict[str, str] = {}
        for job in jobs:
            outcome = self.done[job.key][1]
            if "error" in outcome:
                failures.setdefault(job.method, f"fold {job.fold}: {outcome['error']}")
        return failures

    def _is_usable(self, job: Job, outcome: Outcome) -> bool:
        """Return whether stored predictions are for the repertoires of the cohort."""
        ids = self.plan.dataset.repertoire_ids[job.split.test]
        return job.kind == "search" or outcome["test"]["repertoire_id"] == [str(repertoire_id) for repertoire_id in ids]

    def _prepare(self, jobs: Sequence[Job]) -> None:
        """Compute the shared cache with all cores, before several processes need it."""
        if self.workers == HERE:
            return
        seen = set()
        for job in jobs:
            setting = remove_path_parameter(job.estimator, job.settings[0])
            key = digest_values(job.method, setting)
            if key not in seen and hasattr(job.estimator, "prepare"):
                seen.add(key)
                try:
                    apply_setting(job.estimator, setting).prepare(self.plan.dataset)
                except Exception as error:  # the job will raise and report it again
                    _logger.debug("%s: cannot be prepared: %s", job.method, error)

    def _note_failure(self, job: Job, error: str) -> None:
        if job.method not in self._failed_methods:
            self._failed_methods.add(job.method)
            _logger.warning("%s failed: fold %d: %s", job.method, job.fold, error)


def _order_jobs(groups: Iterable[Sequence[Job]]) -> list[Job]:
    """Return one job of each method, so that the time left is known early; then the others.

    These are the first jobs of all groups, then their second jobs, and so on.
    """
    jobs = [job for jobs in zip_longest(*groups) for job in jobs if job is not None]
    first = {job.method: job for job in reversed(jobs)}
    return sorted(jobs, key=lambda job: job is not first[job.method])


def _make_predictions_table(finished: Sequence[tuple[Job, Outcome]], scoring: Scoring) -> pd.DataFrame:
    """Return the test predictions of all finished jobs, one row per method, fold and repertoire."""
    parts = [pd.DataFrame({"method": job.method, "fold": job.fold, **outcome["test"]}) for job, outcome in finished]
    columns = list(scoring.columns)
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _make_choices_table(finished: Sequence[tuple[Job, Outcome]], scoring: Scoring) -> pd.DataFrame:
    names = [f"{part}_{scoring.measure_name}" for part in ("validation", "refit")]
    rows = [
        (job.method, job.fold, *(outcome[name] for name in names), json.dumps(outcome["setting"]))
        for job, outcome in finished
    ]
    return pd.DataFrame(rows, columns=["method", "fold", *names, "settings"]).astype({names[1]: np.float64})


def _make_members_table(finished: Sequence[tuple[Job, Outcome]]) -> pd.DataFrame:
    """Return the table of what each member of a stack adds to the log-odds of each test repertoire, by fold."""
    parts = [
        pd.DataFrame(
            {
                "method": job.method,
                "fold": job.fold,
                **{name: member[name] for name in ("member", "auc", "weight", "share", "intercept")},
                "repertoire_id": outcome["test"]["repertoire_id"],
                "contribution": member["contributions"],
            }
        )
        for job, outcome in finished
        for member in outcome["members"]
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=MEMBER_COLUMNS)


def _make_costs_table(ended: Iterable[tuple[Job, Outcome]]) -> pd.DataFrame:
    names = ["seconds", "cpu_seconds", "peak_memory_mb"]
    rows = [
        (job.method, job.fold, job.kind, *(outcome[name] for name in names))
        for job, outcome in ended
        if "error" not in outcome
    ]
    return pd.DataFrame(rows, columns=["method", "fold", "task", *names])
