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
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deeprc.config import Config, load_config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.device import resolve_device
from deeprc.errors import InputError
from deeprc.evaluation.folds_from_column import list_left_out_values
from deeprc.evaluation.splits import SplitOptions, make_split
from deeprc.evaluation.stored_tables import read_history
from deeprc.files import check_new_folder, check_regular_file
from deeprc.jobs import HERE, Workers, check_scheduler, get_result, run_jobs
from deeprc.labels import validate_sequences
from deeprc.progress import open_step
from deeprc.runs.experiment import TrainingProgress, resume_run, train_run
from deeprc.runs.file_digests import describe_foreign_files
from deeprc.runs.metrics import read_metrics
from deeprc.runs.repeated_messages import count_runs_of_messages, log_once
from deeprc.runs.run import read_splits, read_stored_predictions
from deeprc.runs.run_settings import RunSettings, format_cohort_path, read_settings
from deeprc.runs.run_start import begin_run
from deeprc.runs.training_data import check_fingerprint, digest_training_data
from deeprc.shift.sketches import SKETCHES_FILE
from deeprc.task_labels import encode_labels
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


@dataclass(frozen=True)
class RunPlan:
    """Options of the split of a run, and the seed of every random choice, including the folds."""

    split_options: SplitOptions
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options that all runs of a folder share; they are arguments of `train_run`."""

    targets: tuple[str, ...]
    config: Config = field(default_factory=load_config)
    device: str = "auto"
    logger: str | None = None
    keep_sketches: bool = True


@dataclass(frozen=True)
class _Training:
    """A training: its name, run directory and cohort, arguments of `train_run`, and the digest of the data."""

    name: str
    folder: Path
    cohort: Path
    plan: RunPlan
    options: RunOptions
    fingerprint: str = ""

    @property
    def has_begun(self) -> bool:
        """Whether the run directory exists."""
        return (self.folder / "config.yaml").exists()

    @property
    def has_ended(self) -> bool:
        """Whether the run is complete."""
        return (self.folder / "metrics.json").exists()


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
    trainings = [_Training(name, folder / name, container, plan, options) for name, plan in plans.items()]
    with log_once(*_WARN_OF_COHORT):
        dataset, tasks = _open_cohort(container, options, is_here=workers.scheduler is None)
        fingerprint = _check_trainings(Path(output), trainings, dataset, tasks)
        trainings = [replace(training, fingerprint=fingerprint) for training in trainings]
        if begin is not None:
            begin()
        _train_all(trainings, workers, progress if workers == HERE else None)
    return [Path(output) / training.name for training in trainings]


def _train_all(trainings: Sequence[_Training], workers: Workers, progress: TrainingProgress | None) -> None:
    """Train all runs; if one fails, end the others, unless they are on a cluster."""
    failures = []
    train = partial(_train_or_continue, progress)
    unfinished = [planned for planned in trainings if not planned.has_ended]
    n_finished = len(trainings) - len(unfinished)
    if n_finished:
        _logger.info("%d of %d runs were finished already", n_finished, len(trainings))
    if not unfinished:
        return  # a cluster would be connected to for nothing
    with (
        open_step("runs", len(trainings), done=n_finished) as step,
        count_runs_of_messages(len(unfinished), *_DESCRIBE_STARTS),
        closing(run_jobs(train, unfinished, workers, hint="the same call continues")) as ended,
    ):
        for n_done, (training, future) in enumerate(ended, start=n_finished + 1):
            step.advance()
            failure = _find_failure(future, training.name)
            if failure is None:
                _logger.info("%s has ended (%d of %d runs)", training.name, n_done, len(trainings))
                continue
            if workers.scheduler is None:
                raise failure
            failures.append(failure)
            _logger.warning("%s", failure)
    if failures:
        raise InputError(f"{len(failures)} of {len(trainings)} runs failed; the first: {failures[0]}")


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


def _check_trainings(
    output: Path, trainings: Sequence[_Training], dataset: RepertoireDataset, tasks: list[Task]
) -> str:
    """Return the digest of the data from which the runs learn; raise InputError if any run cannot begin or continue.

    Nothing is written.
    """
    begun = [training for training in trainings if training.has_begun]
    fingerprint = _check_begun(begun, dataset) if begun else None
    if not begun and not _has_only_killed_runs(output, trainings):
        check_new_folder(output)
    for training in trainings:
        _check_split(training, dataset, tasks)
        if training.has_ended:
            _check_results(training.folder)
    return fingerprint or digest_training_data(dataset, tasks, trainings[0].options.config)


def _has_only_killed_runs(output: Path, trainings: Sequence[_Training]) -> bool:
    """Return whether the folder has only hidden folders of runs that were killed before their run directory existed."""
    hidden = tuple(f".{training.name}." for training in trainings)
    return output.is_dir() and all(path.name.startswith(hidden) for path in output.iterdir())


def _check_begun(begun: Sequence[_Training], dataset: RepertoireDataset) -> str:
    """Return the digest of the data from which runs that have begun learn.

    Raise InputError if they have other settings, or if the cohort has changed since then.
    """
    all_settings = [_check_same_settings(training) for training in begun]
    fingerprint = digest_training_data(dataset, all_settings[0].tasks, all_settings[0].config)
    for training, settings in zip(begun, all_settings, strict=True):
        check_fingerprint(fingerprint, dataset, settings, training.folder)
        sketches = training.folder / SKETCHES_FILE
        if not training.options.keep_sketches and sketches.exists():
            raise InputError(
                f"{sketches}: was written by an earlier call, but now `keep_sketches=False`; delete this file in every "
                "run, or choose another `output`"
            )
    return fingerprint


def _check_split(training: _Training, dataset: RepertoireDataset, tasks: list[Task]) -> None:
    """Raise InputError if the cohort cannot be split, or if the run was begun with a different split."""
    options = training.plan.split_options
    try:
        split = make_split(
            dataset.metadata, tasks, options, seed=training.plan.seed, source=str(dataset.container.path)
        )
    except InputError as error:
        raise InputError(f"{training.name}: {error}") from error
    labels = encode_labels(tasks[:1], dataset.metadata)[split.train, 0]
    if tasks[0].kind != "regression" and len(np.unique(labels[~np.isnan(labels)])) < 2:
        tested = "" if options.test is None else f" with `test={options.test}`"
        raise InputError(f"{training.name}: the training part has one class of {tasks[0].name!r} only{tested}")
    if training.has_begun and read_splits(training.folder)[0] != split.ids(dataset.repertoire_ids):
        raise InputError(
            f"{training.folder}: was started with a different split than {dataset.container.path} gives now: a column "
            "of its metadata has changed; choose another `output`"
        )


def _check_results(folder: Path) -> None:
    """Raise InputError if a file of a run that has ended is missing or damaged, because the run stays as it is."""
    try:
        check_regular_file(folder / "model.safetensors")
        read_metrics(folder)
        read_stored_predictions(folder)
        read_history(folder / "history.tsv")
        if foreign := describe_foreign_files(folder):
            raise InputError(foreign)
    except InputError as error:
        raise InputError(
            f"{error}; delete {folder / 'metrics.json'}, and the same call trains this run again"
        ) from error


def _check_same_settings(training: _Training) -> RunSettings:
    """Return the settings of a run that has begun; raise InputError if they are not those of the training.

    The container may have moved: its content is compared by `check_fingerprint`.
    """
    settings, plan, config = read_settings(training.folder), training.plan, training.options.config
    chosen = {"targets": training.options.targets, "seed": plan.seed, **vars(plan.split_options)}
    begun = {name: vars(settings)[name] for name in ("targets", "seed")} | vars(settings.split_options)
    differing = [name for name, value in chosen.items() if begun[name] != value]
    restored = _restore_log_abundance(settings.config, config)
    differing += [] if restored == config else ["config"]
    if differing == ["config"]:
        begun_settings, chosen_settings = restored.to_mapping(), config.to_mapping()
        names = [
            name
            for section in chosen_settings
            for name in chosen_settings[section]
            if begun_settings[section].get(name) != chosen_settings[section][name]
        ]
        raise InputError(
            f"{training.folder}: was started with other settings ({', '.join(names)}); give the same, or choose "
            "another `output`"
        )
    if differing:
        raise InputError(f"{training.folder}: was started with a different `{differing[0]}`; choose another `output`")
    return settings


def _restore_log_abundance(begun: Config, chosen: Config) -> Config:
    """Return the configuration of a begun run with `log` if `log` is chosen and had become `none`.

    This happens where no count is above 1 (`replace_log_abundance`).
    """
    if chosen.network.abundance != "log" or begun.network.abundance != "none":
        return begun
    return replace(begun, network=replace(begun.network, abundance="log"))


def _train_or_continue(progress: TrainingProgress | None, training: _Training) -> None:
    """Train a run, continue it, or do nothing if it has ended.

    Raise InputError if it learned from other data than those of the call: the container was replaced meanwhile.
    """
    if training.has_ended:
        return
    options = training.options
    if training.has_begun:
        resume_run(training.folder, cohort=training.cohort, logger=options.logger, progress=progress)
        return
    train_run(
        training.cohort,
        training.folder,
        targets=options.targets,
        config=options.config,
        split=training.plan.split_options,
        seed=training.plan.seed,
        device=options.device,
        logger=options.logger,
        keep_sketches=options.keep_sketches,
        progress=progress,
    )
    if read_settings(training.folder).fingerprint != training.fingerprint:
        raise InputError(
            f"{training.cohort}: its repertoires or labels have changed since the start, and {training.folder} learned "
            "from the new ones; delete this folder and put the container of the start back, or choose another `output`"
        )
