"""The jobs of a benchmark: one fit or one path of fits each, run here, in processes, or on a Dask cluster.

Letters: B repertoires, V settings.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import roc_auc_score

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.search import Setting, with_setting
from deeprc.evaluation.splits import Split

__all__ = ["Job", "Outcome", "job_key", "run_job", "run_jobs", "seconds_left"]

Outcome = dict[str, Any]
"""What a job gives, as JSON can hold it; `error` where it failed."""

_PEAK = "VmHWM:"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One task of a benchmark: everything that its outcome depends on.

    Attributes
    ----------
    key
        A digest of all the rest and of the cohort's content; names the file that keeps the outcome.
    method, fold
        Where the outcome belongs.
    kind
        `search` measures settings on the validation fold; `final` predicts the test fold with one.
    cohort
        A container's path, or a cohort that is on no disk.
    estimator
        Unfitted.
    settings
        `search`: some that differ in the estimator's `path_parameter` only. `final`: one.
    split
        The repertoires of the three sides, positions in the cohort.
    positive
        The labels of the cohort's repertoires, (B,) int64; -1 where missing.
    """

    key: str
    method: str
    fold: int
    kind: Literal["search", "final"]
    cohort: str | RepertoireDataset
    estimator: BaseEstimator
    settings: tuple[Setting, ...]
    split: Split
    positive: NDArray[np.int64]


def job_key(*parts: Any) -> str:
    """Return a digest of what JSON can hold."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=12).hexdigest()


def run_job(job: Job) -> Outcome:
    """Run a job; what goes wrong in it is an outcome, too."""
    _reset_peak()
    started, cpu = time.perf_counter(), time.process_time()
    try:
        outcome = (_search if job.kind == "search" else _final)(job)
    except Exception as error:  # another method's or a user's own code: the others go on
        logger.debug("%s, fold %d: %s", job.method, job.fold, traceback.format_exc())
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())}
    cost = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    return {**outcome, **cost, "peak_memory_mb": _peak()}


def _search(job: Job) -> Outcome:
    """Return the validation AUC of each setting."""
    dataset = _opened(job.cohort)
    train, validation = job.split.train, job.split.validation
    X, y, X_new = dataset[train], job.positive[train], dataset[validation]
    path = getattr(job.estimator, "path_parameter", None)
    if len(job.settings) > 1:
        assert path is not None
        rest = {name: value for name, value in job.settings[0].items() if name != path}
        estimator = with_setting(job.estimator, rest)
        scores = estimator.decision_path(X, y, X_new, [setting[path] for setting in job.settings])
    else:
        scores = [_scores(_fitted(job, dataset), X_new)]
    truth = job.positive[validation]
    aucs = [float(roc_auc_score(truth, each)) for each in scores]
    return {"validation": [{"setting": s, "auc": auc} for s, auc in zip(job.settings, aucs, strict=True)]}


def _final(job: Job) -> Outcome:
    """Return the predictions for the test fold."""
    dataset = _opened(job.cohort)
    X = dataset[job.split.test]
    estimator = _fitted(job, dataset)
    scores, probability = _scores(estimator, X), _probabilities(estimator, X)
    validation = job.split.validation
    auc = float(roc_auc_score(job.positive[validation], _scores(estimator, dataset[validation])))
    return {
        "setting": job.settings[0],
        "validation_auc": auc,
        "test": {
            "repertoire_id": [str(each) for each in X.repertoire_ids],
            "label": job.positive[job.split.test].tolist(),
            "score": scores.tolist(),
            "probability": probability.tolist(),
        },
    }


def _fitted(job: Job, dataset: RepertoireDataset) -> BaseEstimator:
    """Fit on the training side; the validation side only stops early what asks for it."""
    estimator = with_setting(job.estimator, job.settings[0])
    sides = [(dataset[rows], job.positive[rows]) for rows in (job.split.train, job.split.validation)]
    (X, y), (X_validation, y_validation) = sides
    if getattr(estimator, "uses_validation", False):
        return estimator.fit(X, y, X_validation=X_validation, y_validation=y_validation)
    return estimator.fit(X, y)


def _scores(estimator: BaseEstimator, X: RepertoireDataset) -> NDArray[np.float64]:
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(X), np.float64)
    return _probabilities(estimator, X)


def _probabilities(estimator: BaseEstimator, X: RepertoireDataset) -> NDArray[np.float64]:
    return np.asarray(estimator.predict_proba(X), np.float64)[:, 1]


@lru_cache(maxsize=1)
def _container(path: str) -> RepertoireDataset:
    return open_dataset(path)


def _opened(cohort: str | RepertoireDataset) -> RepertoireDataset:
    """Open a container once per process."""
    return _container(cohort) if isinstance(cohort, str) else cohort


def _reset_peak() -> None:
    """Let Linux measure the peak of this process's memory anew."""
    if sys.platform == "linux" and os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """Return the peak of this process's memory in MB; on macOS since it began, on Windows NaN."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = [line for line in status.read_text().splitlines() if line.startswith(_PEAK)]
        if lines:
            return int(lines[0].split()[1]) / 1024
    if sys.platform == "win32":
        return float("nan")
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(used / (1 << 20 if sys.platform == "darwin" else 1 << 10))


def run_jobs(jobs: Sequence[Job], *, n_jobs: int = 1, scheduler: str | None = None) -> Iterator[tuple[Job, Outcome]]:
    """Run jobs and give each with its outcome, as they end.

    Parameters
    ----------
    jobs
        In the order in which they are begun.
    n_jobs
        Processes; 1 runs the jobs in this one.
    scheduler
        The address of a Dask scheduler whose workers can open the cohort by the same path; in the place of processes.

    Raises
    ------
    InputError
        If the scheduler cannot be reached, or Dask is not installed.
    """
    if scheduler is not None:
        yield from _on_cluster(jobs, scheduler)
    elif n_jobs == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, run_job(job)
    else:
        yield from _in_processes(jobs, n_jobs)


def _in_processes(jobs: Sequence[Job], n_jobs: int) -> Iterator[tuple[Job, Outcome]]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky import get_reusable_executor

    threads = max(1, (os.cpu_count() or 1) // n_jobs)
    finished = False
    try:
        with parallel_config("loky", n_jobs=n_jobs, inner_max_num_threads=threads):
            parallel = Parallel(return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1)
            for number, outcome in parallel(delayed(_numbered)(number, job) for number, job in enumerate(jobs)):
                yield jobs[number], outcome
        finished = True
    finally:
        if not finished:
            get_reusable_executor().shutdown(wait=False, kill_workers=True)


def _numbered(number: int, job: Job) -> tuple[int, Outcome]:
    return number, run_job(job)


def _on_cluster(jobs: Sequence[Job], scheduler: str) -> Iterator[tuple[Job, Outcome]]:
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise InputError("--scheduler needs Dask: pip install 'deeprc[dask]'") from error
    try:
        client = Client(scheduler, timeout="20s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"--scheduler {scheduler}: cannot be reached: {error}") from error
    with client:
        futures = {client.submit(run_job, job, pure=False): job for job in jobs}
        for future in as_completed(list(futures)):
            problem = future.exception()
            failed = {"error": f"{type(problem).__name__}: {problem}"}
            yield futures.pop(future), future.result() if problem is None else failed


def seconds_left(done: Iterable[tuple[Job, Outcome]], waiting: Sequence[Job], *, running: int) -> float | None:
    """Return about how long the waiting jobs take: each as long as those of its method and kind did, or else as all."""
    spent: dict[tuple[str, str], list[float]] = {}
    for job, outcome in done:
        spent.setdefault((job.method, job.kind), []).append(float(outcome.get("seconds", 0.0)))
    if not spent:
        return None
    mean = {key: float(np.mean(values)) for key, values in spent.items()}
    every = float(np.mean([value for values in spent.values() for value in values]))
    return sum(mean.get((job.method, job.kind), every) for job in waiting) / running
