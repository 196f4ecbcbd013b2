"""Jobs of a benchmark, each of which is one fit or one path of fits.

Letters: B repertoires, V settings.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import time
import traceback
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from deeprc.benchmarking.cohort_digest import digest_read_content
from deeprc.benchmarking.fit_notes import name_fit_notes
from deeprc.benchmarking.predictions import (
    OneVsRest,
    Predictions,
    compute_path_scores,
    compute_ranking_scores,
    measure_scores,
    predict,
)
from deeprc.benchmarking.search import (
    Setting,
    apply_setting,
    find_path_parameter,
    remove_path_parameter,
    stops_early,
)
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError, Terminated
from deeprc.estimators import BinaryClassifier, RepertoireEstimator
from deeprc.evaluation.scoring import choose_scoring
from deeprc.evaluation.splits import Split
from deeprc.groups import pass_groups
from deeprc.jobs import HERE, Workers, run_jobs
from deeprc.progress import name_job_of_steps
from deeprc.tasks import Task

__all__ = [
    "Job",
    "Outcome",
    "RemainingTime",
    "can_be_refitted",
    "estimate_seconds_left",
    "run_benchmark_jobs",
    "run_job",
]

Outcome = dict[str, Any]
"""Result of a job as JSON values; a failed job has the key `error`.

`peak_memory_mb` is the largest amount of memory that the job added to its process.
"""

_PEAK, _NOW = "VmHWM:", "VmRSS:"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A job of a benchmark, with everything on which its outcome depends.

    Attributes
    ----------
    key
        Digest of all other fields and of the content of the cohort; it is the name of the file with the outcome.
    method, fold
        Method and fold to which the outcome belongs.
    kind
        `search` measures settings on the validation fold; `final` predicts the test fold with one setting.
    cohort
        Path of a container, or a dataset without a file.
    estimator
        Unfitted estimator.
    settings
        `search`: settings that differ only in the `path_parameter` of the estimator. `final`: one setting.
    split
        Rows of the repertoires of the three parts of the split in the cohort.
    labels
        Label of each repertoire of the cohort, (B,): the index of the class, int64, -1 if missing; for regression the
        number, float64, NaN if missing.
    task
        Task of the target.
    groups
        Donor of each repertoire of the cohort as an index, (B,) int64; None if every repertoire is from a different
        donor.
    content
        Digest of what the job reads of a container, see `digest_read_content`; "" if it is not checked.
    refits
        Whether a final job also measures a fit to the training and validation folds together.
    """

    key: str
    method: str
    fold: int
    kind: Literal["search", "final"]
    cohort: str | RepertoireDataset
    estimator: BaseEstimator
    settings: tuple[Setting, ...]
    split: Split
    labels: NDArray[Any]
    task: Task
    groups: NDArray[np.int64] | None = None
    content: str = ""
    refits: bool = True


def run_job(job: Job) -> Outcome:
    """Run a job and return its outcome; an error is an outcome, too."""
    memory = _reset_peak()
    started, cpu = time.perf_counter(), time.process_time()
    try:
        with name_fit_notes(job.method), name_job_of_steps(f"{job.method}, fold {job.fold}"):
            outcome = _measure_settings(job) if job.kind == "search" else _predict_test_fold(job)
    except Terminated:
        raise
    except (Exception, SystemExit) as error:  # code of others may raise anything; other jobs continue
        _logger.debug("%s, fold %d: %s", job.method, job.fold, traceback.format_exc())
        return {"error": _format_error(error)}
    cost = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    return {**outcome, **cost, "peak_memory_mb": _read_status_mb(_PEAK) - memory}


def _format_error(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _measure_settings(job: Job) -> Outcome:
    """Return the AUC (or macro AUC, or r2) of each setting on the validation fold."""
    dataset = _open_cohort(job)
    train, validation = job.split.train, job.split.validation
    X, y, X_new = dataset[train], job.labels[train], dataset[validation]
    path_parameter = find_path_parameter(job.estimator)
    if len(job.settings) > 1:
        assert path_parameter is not None
        estimator = apply_setting(job.estimator, remove_path_parameter(job.estimator, job.settings[0]))
        groups = None if job.groups is None else job.groups[train]
        path = [setting[path_parameter] for setting in job.settings]
        scores = compute_path_scores(estimator, job.task, X, y, X_new, path, groups)  # (V, B)
    else:
        scores = compute_ranking_scores(_fit_estimator(job, dataset, calibrate=False), job.task, X_new)[None]
    values = measure_scores(job.task, job.labels[validation], scores)
    measure = choose_scoring(job.task.kind).measure_name
    return {"validation": [{"setting": s, measure: value} for s, value in zip(job.settings, values, strict=True)]}


def _predict_test_fold(job: Job) -> Outcome:
    """Return the predictions for the test fold, with probabilities calibrated on the validation fold."""
    dataset = _open_cohort(job)
    X = dataset[job.split.test]
    estimator = _fit_estimator(job, dataset, calibrate=True)
    labels = job.labels[job.split.test].tolist()
    if job.task.kind == "multiclass":
        labels = [job.task.classes[index] for index in labels]
    test = {"repertoire_id": [str(repertoire_id) for repertoire_id in X.repertoire_ids], "label": labels}
    X_validation, y_validation = dataset[job.split.validation], job.labels[job.split.validation]
    predictions = predict(estimator, job.task, X)
    if stops_early(estimator):  # such an estimator calibrates itself
        validation = Predictions(compute_ranking_scores(estimator, job.task, X_validation))
    else:
        validation = predict(estimator, job.task, X_validation)
    calibration = None if validation.probability is None else (validation.probability, y_validation)
    value = measure_scores(job.task, y_validation, validation.scores[None])[0]
    measure = choose_scoring(job.task.kind).measure_name
    return {
        "setting": job.settings[0],
        f"validation_{measure}": value,
        f"refit_{measure}": _measure_refit(job, dataset),
        "test": {**test, **predictions.make_columns(job.task, calibration)},
        "members": predictions.members,
    }


def _measure_refit(job: Job, dataset: RepertoireDataset) -> float | None:
    """Return the measure on the test fold after a fit to training and validation folds together, with the same setting.

    An estimator that stops early then divides these repertoires itself. The result is None if it cannot, or if the job
    does not ask for it.
    """
    if not (job.refits and can_be_refitted(job.estimator)):
        return None
    learned = np.sort(np.concatenate([job.split.train, job.split.validation]))
    refit = replace(job, split=replace(job.split, train=learned, validation=np.zeros(0, np.int64)))
    if job.groups is None and stops_early(job.estimator):
        refit = replace(refit, groups=np.arange(len(dataset)))  # without groups, DeepRC would warn once more
    with name_job_of_steps(f"{job.method}, fold {job.fold}, refitted"):
        estimator = _fit_estimator(refit, dataset, calibrate=False)
    scores = compute_ranking_scores(estimator, job.task, dataset[job.split.test])
    return measure_scores(job.task, job.labels[job.split.test], scores[None])[0]


def can_be_refitted(estimator: BaseEstimator) -> bool:
    """Return whether an estimator can learn without separate validation repertoires.

    One that stops early can if it is a `RepertoireEstimator`, see there, whose `fit` does not require `X_validation`.
    """
    if not stops_early(estimator):
        return True
    parameter = inspect.signature(estimator.fit).parameters.get("X_validation")
    is_optional = parameter is not None and parameter.default is not inspect.Parameter.empty
    return is_optional and isinstance(estimator, RepertoireEstimator)


def _fit_estimator(job: Job, dataset: RepertoireDataset, *, calibrate: bool) -> BaseEstimator | OneVsRest:
    """Return the estimator, fitted to the training folds; estimators that stop early also get the validation fold.

    If the split has no validation fold, they get none. Without `calibrate`, deeprc's own classifiers of two classes
    omit the fits that only probabilities need.
    """
    estimator = apply_setting(job.estimator, job.settings[0])
    train, validation = job.split.train, job.split.validation
    X, y = dataset[train], job.labels[train]
    arguments: dict[str, Any] = {**pass_groups(estimator, None if job.groups is None else job.groups[train])}
    takes_groups = bool(arguments)
    if stops_early(estimator) and len(validation):
        arguments |= {"X_validation": dataset[validation], "y_validation": job.labels[validation]}
        if takes_groups:
            arguments["groups_validation"] = None if job.groups is None else job.groups[validation]
    if job.task.kind == "multiclass" and isinstance(estimator, BinaryClassifier):
        estimator = OneVsRest(estimator)
    if isinstance(estimator, BinaryClassifier | OneVsRest) and not calibrate:
        return estimator.fit_uncalibrated(X, y, **arguments)
    return estimator.fit(X, y, **arguments)


@lru_cache(maxsize=1)
def _open_cached_container(path: str, _: tuple[int, ...]) -> RepertoireDataset:
    return open_dataset(path)


def _open_cohort(job: Job) -> RepertoireDataset:
    """Return the dataset; a container is opened once per process, and again if its file has been replaced.

    Raises
    ------
    InputError
        If the file has other content than when the job was planned.
    """
    if not isinstance(job.cohort, str):
        return job.cohort
    status = os.stat(job.cohort)
    dataset = _open_cached_container(job.cohort, (status.st_ino, status.st_size, status.st_mtime_ns))
    if job.content and digest_read_content(dataset, job.estimator) != job.content:
        raise InputError(f"{job.cohort}: was changed after the start; expected its content of then")
    return dataset


def _reset_peak() -> float:
    """Reset the peak of this process's memory on Linux; return the present memory in MB."""
    if sys.platform == "linux" and os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5")
    return _read_status_mb(_NOW)


def _read_status_mb(name: str) -> float:
    """Return an entry of `/proc/self/status` in MB; NaN on systems other than Linux."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), float("nan"))


def run_benchmark_jobs(jobs: Sequence[Job], workers: Workers = HERE) -> Generator[tuple[Job, Outcome], None, None]:
    """Run jobs and yield each with its outcome, in the order in which they end; see `deeprc.jobs.run_jobs`."""
    with closing(run_jobs(run_job, jobs, workers, hint="continue with `resume`")) as ended:
        for job, future in ended:
            error = future.exception()
            yield job, future.result() if error is None else {"error": _format_error(error)}


def estimate_seconds_left(
    done: Iterable[tuple[Job, Outcome]], waiting: Sequence[tuple[str, str]], *, running: int
) -> float | None:
    """Estimate the seconds that jobs of these methods and kinds take.

    A job takes the mean of the ended jobs of its method and kind, or else of its method. None: no job of one of the
    methods has ended yet. Methods differ a thousandfold, so the others do not tell its time.
    """
    spent: dict[tuple[str, str], list[float]] = {}
    for job, outcome in done:
        if "error" not in outcome:  # a failed job has no seconds
            for key in ((job.method, job.kind), (job.method, "")):
                spent.setdefault(key, []).append(float(outcome["seconds"]))
    known = [spent.get((method, kind)) or spent.get((method, "")) for method, kind in waiting]
    means = [float(np.mean(seconds)) for seconds in known if seconds]
    if len(means) < len(known) or not spent:
        return None
    return sum(means) / max(min(running, len(means)), 1)


class RemainingTime:
    """An estimate of the time that the waiting jobs of a call take."""

    def __init__(self, workers: Workers) -> None:
        self._workers, self._started, self._n_ended = workers, time.monotonic(), 0

    def count_job(self) -> None:
        """Note that a job of this call has ended."""
        self._n_ended += 1

    def estimate(self, done: Iterable[tuple[Job, Outcome]], waiting: Sequence[tuple[str, str]]) -> float | None:
        """Return the seconds of the waiting jobs, given by method and kind; None if it is not known.

        The number of workers of a cluster is unknown, so the speed of this call so far counts there.
        """
        if self._workers.scheduler is None:
            return estimate_seconds_left(done, waiting, running=self._workers.processes)
        if not self._n_ended:
            return None
        return (time.monotonic() - self._started) / self._n_ended * len(waiting)
