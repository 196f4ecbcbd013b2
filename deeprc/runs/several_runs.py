"""Training of several runs on one cohort, each with its own split and seed.

Each run is a job in this process, in a process of this machine, or on a Dask cluster. If a call is repeated, it
continues: runs that have ended stay, and those that have begun are resumed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.device import resolve_device
from deeprc.errors import InputError
from deeprc.evaluation.folds_from_column import list_left_out_values
from deeprc.evaluation.splits import SplitOptions, make_split
from deeprc.jobs import HERE, Workers, check_scheduler, get_result, run_jobs
from deeprc.labels import validate_sequences
from deeprc.progress import open_step
from deeprc.runs.experiment import TrainingProgress, resume_run, train_run
from deeprc.runs.planned_runs import PlannedRun, RunOptions, RunPlan, check_planned_runs
from deeprc.runs.repeated_messages import count_runs_of_messages, log_once
from deeprc.runs.run_settings import format_cohort_path, read_settings
from deeprc.runs.run_start import begin_run
from deeprc.tasks import Task, parse_tasks
from deeprc.training.branch_start import learn_branches
from deeprc.training.confirmation import find_confirmed_motifs
from deeprc.training.log_abundance import replace_log_abundance
from deeprc.training.loggers import check_logger
from deeprc.training.network_start import fit_branches_and_find_motifs

__all__ = ["RunOptions", "RunPlan", "plan_left_out", "plan_validations", "train_runs"]

_logger = logging.getLogger(__name__)

_WARN_OF_COHORT = tuple(f.__module__ for f in (train_run, begin_run, make_split, replace_log_abundance))
"""Loggers whose messages are about the cohort, so that they are the same for all runs."""

_DESCRIBE_STARTS = tuple(f.__module__ for f in (learn_branches, fit_branches_and_find_motifs, find_confirmed_motifs))
"""Loggers whose messages say from which branches and motifs a run starts, which are often the same for several runs."""


def plan_validations(*, folds: int, fold: int = 0, seed: int = 0, **others: Any) -> dict[str, RunPlan]:
    """Return a plan for each fold that can be the validation fold, by name: validation-1 and so on.

    Parameters
    ----------
    folds, fold
        Number of folds, and index of the test fold.
    seed
        Seed of all runs.
    others
        Other fields of `SplitOptions`.

    Raises
    ------
    InputError
        If the fields are not valid for `SplitOptions`.
    """
    options = SplitOptions(folds=folds, fold=fold, **others)  # checks the fields before `folds` is used here
    has_test_fold = options.test is None  # otherwise the test repertoires are not those of a fold
    return {
        f"validation-{validation_fold}": RunPlan(replace(options, validation_fold=validation_fold), seed)
        for validation_fold in range(folds)
        if not has_test_fold or validation_fold != fold
    }


def plan_left_out(cohort: str | os.PathLike[str], column: str, *, seed: int = 0, **others: Any) -> dict[str, RunPlan]:
    """Return a plan for each value of a metadata column, such as a batch, on which the run tests: fold-0 and so on.

    Parameters
    ----------
    cohort
        Path of the container.
    column
        Metadata column; the plans are in the sorted order of its values.
    seed
        Seed of all runs.
    others
        Fields of `SplitOptions` except `folds`, `fold` and `test`.

    Raises
    ------
    InputError
        If the column does not exist, or has fewer than two values.
    """
    values = list_left_out_values(open_dataset(cohort).metadata, column, str(cohort))
    options = [SplitOptions(test=f"{column}={value}", **others) for value in values]
    return {f"fold-{index}": RunPlan(option, seed) for index, option in enumerate(options)}


def train_runs(
    cohort: str | os.PathLike[str],
    output: str | os.PathLike[str],
    plans: Mapping[str, RunPlan],
    options: RunOptions,
    *,
    workers: Workers = HERE,
    progress: TrainingProgress | None = None,
    begin: Callable[[], None] | None = None,
) -> list[Path]:
    """Train several runs, and return their run directories, which are in one folder.

    Parameters
    ----------
    cohort
        Path of the container.
    output
        Folder of the runs. It must not exist, be empty, or have runs that a call with the same arguments has begun.
    plans
        Split and seed of each run, by the name of its directory.
    options
        Options that all runs share.
    workers
        Processes that train runs at the same time.
    progress
        Function that gets the progress of each run that is trained in this process, see `train_run`.
    begin
        Function that is called after all checks and before anything is written.

    Raises
    ------
    InputError
        If anything the user gave cannot be used, or the container is replaced by one with other repertoires or labels
        while the runs are trained. If a run fails on a cluster, the other runs end first.
    """
    if workers.scheduler is not None:
        check_scheduler(workers.scheduler)
    folder, container = Path(output).absolute(), Path(format_cohort_path(cohort))
    runs = [PlannedRun(name, folder / name, container, plan, options) for name, plan in plans.items()]
    with log_once(*_WARN_OF_COHORT):
        dataset, tasks = _open_cohort(container, options, is_here=workers.scheduler is None)
        fingerprint = check_planned_runs(Path(output), runs, dataset, tasks)
        runs = [replace(run, fingerprint=fingerprint) for run in runs]
        if begin is not None:
            begin()
        _train_all(runs, workers, progress if workers == HERE else None)
    return [Path(output) / run.name for run in runs]


def _train_all(runs: Sequence[PlannedRun], workers: Workers, progress: TrainingProgress | None) -> None:
    """Train all runs; if one fails, end the others, unless they are on a cluster."""
    failures = []
    train = partial(_train_or_continue, progress)
    unfinished = [planned for planned in runs if not planned.has_ended]
    n_finished = len(runs) - len(unfinished)
    if n_finished:
        _logger.info("%d of %d runs were finished already", n_finished, len(runs))
    if not unfinished:
        return  # a cluster would be connected to for nothing
    with (
        open_step("runs", len(runs), done=n_finished) as step,
        count_runs_of_messages(len(unfinished), *_DESCRIBE_STARTS),
        closing(run_jobs(train, unfinished, workers, hint="the same call continues")) as ended,
    ):
        for n_done, (run, future) in enumerate(ended, start=n_finished + 1):
            step.advance()
            failure = _find_failure(future, run.name)
            if failure is None:
                _logger.info("%s has ended (%d of %d runs)", run.name, n_done, len(runs))
                continue
            if workers.scheduler is None:
                raise failure
            failures.append(failure)
            _logger.warning("%s", failure)
    if failures:
        raise InputError(f"{len(failures)} of {len(runs)} runs failed; the first: {failures[0]}")


def _find_failure(future: Future[None], name: str) -> InputError | None:
    """Return the error of a run that has failed; None if it has not failed."""
    try:
        get_result(future, name)
    except InputError as error:
        return error
    return None


def _open_cohort(cohort: Path, options: RunOptions, *, is_here: bool) -> tuple[RepertoireDataset, list[Task]]:
    """Return the cohort and its targets; raise InputError if these or other options cannot be used.

    If the runs are trained on a cluster, not here, the device is one of its workers, and is not checked.
    """
    check_logger(options.logger)
    if is_here:
        resolve_device(options.device)
    dataset = open_dataset(cohort)
    validate_sequences(dataset)
    return dataset, parse_tasks(options.targets, dataset.metadata, source=str(cohort))


def _train_or_continue(progress: TrainingProgress | None, run: PlannedRun) -> None:
    """Train a run, continue it, or do nothing if it has ended.

    Raise InputError if it learned from other data than those of the call: the container was replaced meanwhile.
    """
    if run.has_ended:
        return
    options = run.options
    if run.has_begun:
        resume_run(run.folder, cohort=run.cohort, logger=options.logger, progress=progress)
        return
    train_run(
        run.cohort,
        run.folder,
        targets=options.targets,
        config=options.config,
        split=run.plan.split_options,
        seed=run.plan.seed,
        device=options.device,
        logger=options.logger,
        keep_sketches=options.keep_sketches,
        progress=progress,
    )
    if read_settings(run.folder).fingerprint != run.fingerprint:
        raise InputError(
            f"{run.cohort}: its repertoires or labels have changed since the start, and {run.folder} learned "
            "from the new ones; delete this folder and put the container of the start back, or choose another `output`"
        )
