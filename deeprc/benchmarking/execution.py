"""The execution of a benchmark: its jobs, and the tables of their outcomes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd

from deeprc.benchmarking.cohort_digest import digest_values
from deeprc.benchmarking.jobs import Job, Outcome, RemainingTime, run_benchmark_jobs
from deeprc.benchmarking.nested_plan import NestedPlan
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.result import MEMBER_COLUMNS, BenchmarkResult
from deeprc.benchmarking.search import apply_setting, remove_path_parameter
from deeprc.benchmarking.store import ResultStore
from deeprc.errors import InputError
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.scoring import choose_scoring
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
    """

    def __init__(self, store: ResultStore, workers: Workers, progress: JobProgress | None) -> None:
        self.store, self.workers, self.progress = store, workers, progress
        self.remaining_time = RemainingTime(workers)
        self.done: dict[str, tuple[Job, Outcome]] = {}
        self.n_total = 0

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
        with closing(run_benchmark_jobs(list(waiting.values()), self.workers)) as ended:
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
            left = self.remaining_time.estimate(self.done.values(), list(waiting.values()))
            self.progress(len(self.done), self.n_total, left)


class Execution(JobRunner):
    """The execution of a benchmark: it runs the jobs that have no outcome yet, and collects all outcomes."""

    def __init__(
        self, plan: NestedPlan, store: ResultStore, options: BenchmarkOptions, progress: JobProgress | None
    ) -> None:
        super().__init__(store, options.workers, progress)
        self.plan = plan
        self.scoring = choose_scoring(plan.folds.task.kind, plan.folds.task.classes)
        self.failures: dict[str, str] = {}
        self.failed_methods: set[str] = set()
        searches = {(m.name, f): plan.make_search_jobs(m, f) for m in plan.methods for f in range(plan.n_folds)}
        self.searches = searches
        self.n_total = sum(map(len, searches.values())) + len(searches)

    def collect_result(
        self, title: str, cautions: Sequence[Caution], donors: Mapping[str, int] | None
    ) -> BenchmarkResult:
        """Run the jobs that have no outcome yet, and return the tables of all outcomes.

        `cautions` are what is known of the cohort, and `donors` has the index of each repertoire's donor by its id.
        """
        self._run_jobs([job for jobs in _interleave_jobs(self.searches.values()) for job in jobs])
        finals = {(name, fold): self._find_final_job(name, fold) for name, fold in self.searches}
        without_search = {name for name, _ in self.searches} - {job.method for job, _ in self.done.values()}
        jobs = [job for job in finals.values() if job is not None]
        self.n_total -= len(finals) - len(jobs)  # a method whose search failed has no last job
        # Jobs of methods without a search are first, so that the time left is known early.
        self._run_jobs(sorted(jobs, key=lambda job: job.method not in without_search))
        return BenchmarkResult(
            methods=[MethodInfo(m.name, m.label, m.kind) for m in self.plan.methods],
            predictions=self._make_predictions_table(finals),
            choices=self._make_choices_table(finals),
            costs=self._make_costs_table(),
            members=self._make_members_table(finals),
            failures=self.failures,
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

    def _run_jobs(self, jobs: Sequence[Job]) -> None:
        """Run the jobs that have no stored outcome, and note the first failure of each method."""
        self.run(jobs)
        for job in jobs:  # in the order of the jobs, not in that in which they ended
            if "error" in self.done[job.key][1]:
                self.failures.setdefault(job.method, f"fold {job.fold}: {self.done[job.key][1]['error']}")

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
        if job.method not in self.failed_methods:
            self.failed_methods.add(job.method)
            _logger.warning("%s failed: fold %d: %s", job.method, job.fold, error)

    def _find_final_job(self, name: str, fold: int) -> Job | None:
        """Return the job that tests the best setting, the first of equally good ones; None if a search job failed."""
        method = next(method for method in self.plan.methods if method.name == name)
        jobs = self.searches[name, fold]
        if not jobs:
            return self.plan.make_final_job(method, fold, (self.plan.list_settings(method, fold) or [{}])[0])
        outcomes = [self.done[job.key][1] for job in jobs]
        if any("error" in outcome for outcome in outcomes):
            return None
        measure = self.scoring.measure_name
        validated = [validation for outcome in outcomes for validation in outcome["validation"]]
        value_of = {digest_values(validation["setting"]): validation[measure] for validation in validated}
        settings = self.plan.list_settings(method, fold)
        best = max(settings, key=lambda setting: value_of[digest_values(setting)])
        return self.plan.make_final_job(method, fold, best)

    def _iterate_outcomes(self, finals: Mapping[tuple[str, int], Job | None]) -> Iterable[tuple[Job, Outcome]]:
        for job in finals.values():
            if job is not None and "error" not in self.done[job.key][1]:
                yield job, self.done[job.key][1]

    def _make_predictions_table(self, finals: Mapping[tuple[str, int], Job | None]) -> pd.DataFrame:
        """Return the test predictions of all finished jobs, one row per method, fold and repertoire."""
        parts = [
            pd.DataFrame({"method": job.method, "fold": job.fold, **outcome["test"]})
            for job, outcome in self._iterate_outcomes(finals)
        ]
        columns = list(self.scoring.columns)
        return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)

    def _make_choices_table(self, finals: Mapping[tuple[str, int], Job | None]) -> pd.DataFrame:
        names = [f"{part}_{self.scoring.measure_name}" for part in ("validation", "refit")]
        rows = [
            (job.method, job.fold, *(outcome[name] for name in names), json.dumps(outcome["setting"]))
            for job, outcome in self._iterate_outcomes(finals)
        ]
        return pd.DataFrame(rows, columns=["method", "fold", *names, "settings"]).astype({names[1]: np.float64})

    def _make_members_table(self, finals: Mapping[tuple[str, int], Job | None]) -> pd.DataFrame:
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
            for job, outcome in self._iterate_outcomes(finals)
            for member in outcome["members"]
        ]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=MEMBER_COLUMNS)

    def _make_costs_table(self) -> pd.DataFrame:
        names = ["seconds", "cpu_seconds", "peak_memory_mb"]
        rows = [
            (job.method, job.fold, job.kind, *(outcome[name] for name in names))
            for job, outcome in self.done.values()
            if "error" not in outcome
        ]
        return pd.DataFrame(rows, columns=["method", "fold", "task", *names])


def _interleave_jobs(groups: Iterable[Sequence[Job]]) -> list[list[Job]]:
    """Return the first jobs of all groups, then their second jobs, and so on: the time left is known early."""
    job_lists = [list(group) for group in groups]
    longest = max(map(len, job_lists), default=0)
    return [[jobs[index] for jobs in job_lists if index < len(jobs)] for index in range(longest)]
