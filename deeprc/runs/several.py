"""Several runs of one cohort: a fold after the other for testing, or for validation.

Each run is a job, which runs here or on a Dask cluster. A call that is repeated continues: runs that have ended stay,
and those that have begun are resumed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from deeprc.config import Config, load_config
from deeprc.datasets.dataset import open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions, left_out_values
from deeprc.files import check_new_folder
from deeprc.jobs import HERE, Workers, check_scheduler, result_of, run_jobs
from deeprc.progress import open_step
from deeprc.runs.experiment import Progress, resume_run, train_run
from deeprc.runs.run import read_settings

__all__ = ["name_left_out_splits", "name_splits", "train_runs"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Training:
    """One training: the name of its run, the run directory, and the arguments of `train_run`."""

    name: str
    folder: Path
    cohort: Path
    targets: tuple[str, ...]
    config: Config
    split: SplitOptions
    seed: int
    device: str
    logger: str | None
    keep_sketches: bool


def name_splits(
    *, folds: int, fold: int | Literal["all"] = 0, validation_fold: int | Literal["all"] | None = None, **others: Any
) -> dict[str, SplitOptions]:
    """Return splits of a cohort by the name of their run, such as fold-0, validation-1 or fold-0-validation-1.

    Parameters
    ----------
    folds
        The number of folds.
    fold, validation_fold
        As those of `SplitOptions`; all: each fold is once for testing, or each other fold is once for validation.
    others
        The other fields of `SplitOptions`.

    Raises
    ------
    InputError
        If `SplitOptions` cannot be made, or each fold is to be tested on although `test` names the part for testing.
    """
    has_test = others.get("test") is not None
    if fold == "all" and has_test:
        raise InputError("`fold=all` tests on each fold, and `test` names the part for testing: give one of them")
    splits = {}
    for tested in range(folds) if fold == "all" else [fold]:
        rest = [each for each in range(folds) if each != tested or has_test]
        for validated in rest if validation_fold == "all" else [validation_fold]:
            names = [f"fold-{tested}"] * (fold == "all") + [f"validation-{validated}"] * (validation_fold == "all")
            options = SplitOptions(folds=folds, fold=tested, validation_fold=validated, **others)
            splits["-".join(names)] = options
    if not splits:
        raise InputError(f"`folds={folds}`: expected at least 3 folds")
    return splits


def name_left_out_splits(cohort: str | os.PathLike[str], column: str, **others: Any) -> dict[str, SplitOptions]:
    """Return the splits that test on each value of a column, such as a batch, by the name of their run: fold-0, ...

    Parameters
    ----------
    cohort
        The container.
    column
        A column of its metadata; the folds are in the sorted order of its values.
    others
        Fields of `SplitOptions` except `folds`, `fold` and `test`.

    Raises
    ------
    InputError
        If the column does not exist, or has fewer than two values.
    """
    values = left_out_values(open_dataset(cohort).metadata, column, str(cohort))
    return {f"fold-{index}": SplitOptions(test=f"{column}={value}", **others) for index, value in enumerate(values)}


def train_runs(
    cohort: str | os.PathLike[str],
    output: str | os.PathLike[str],
    splits: Mapping[str, SplitOptions],
    *,
    targets: Sequence[str] | str,
    config: Config | None = None,
    seed: int = 0,
    device: str = "auto",
    logger: str | None = None,
    keep_sketches: bool = True,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Train a run for each split and return the run directories, which are in one folder.

    Parameters
    ----------
    cohort, targets, config, seed, device, logger, keep_sketches
        As those of `train_run`.
    output
        The folder of the runs. It must not exist, be empty, or hold runs that an equal call has begun.
    splits
        The split of each run by the name of its directory, as `name_splits` gives them.
    scheduler
        The address of a Dask scheduler, whose workers train the runs; None: here, one after the other.
    progress
        As that of `train_run`, for each run that is trained here.

    Raises
    ------
    InputError
        If anything the user gave cannot be used. On a cluster, the other runs end first.
    """
    if scheduler is not None:
        check_scheduler(scheduler)
    folder = Path(output).absolute()
    given = (targets,) if isinstance(targets, str) else tuple(targets)
    common = (Path(cohort).absolute(), given, config or load_config())
    jobs = [
        _Training(name, folder / name, *common, split, seed, device, logger, keep_sketches)
        for name, split in splits.items()
    ]
    _check_folder(Path(output), jobs)
    failures = []
    workers, shown = (HERE, progress) if scheduler is None else (Workers(scheduler=scheduler), None)
    with (
        open_step("runs", len(jobs)) as step,
        closing(run_jobs(partial(_train, shown), jobs, workers, hint="the same call continues")) as ended,
    ):
        for n_done, (job, future) in enumerate(ended, start=1):
            step.advance()
            failure = _failure(future, job.name)
            if failure is None:
                _logger.info("%s has ended (%d of %d runs)", job.name, n_done, len(jobs))
                continue
            if scheduler is None:
                raise failure
            failures.append(failure)
            _logger.warning("%s", failure)
    if failures:
        raise InputError(f"{len(failures)} of {len(jobs)} runs failed; the first: {failures[0]}")
    return [Path(output) / job.name for job in jobs]


def _failure(future: Future[None], name: str) -> InputError | None:
    """Return why a run has failed; None if it has not."""
    try:
        result_of(future, name)
    except InputError as error:
        return error
    return None


def _check_folder(output: Path, jobs: Sequence[_Training]) -> None:
    """Raise InputError if the folder holds something else than these runs."""
    begun = [job for job in jobs if (job.folder / "config.yaml").exists()]
    if not begun:
        unfinished = tuple(f".{job.name}." for job in jobs)  # hidden folders of a first run that was killed at once
        if not (output.is_dir() and all(each.name.startswith(unfinished) for each in output.iterdir())):
            check_new_folder(output)
        return
    for job in begun:
        settings = read_settings(job.folder)
        wanted = {"cohort": str(job.cohort), "targets": job.targets, "seed": job.seed, **vars(job.split)}
        found = vars(settings)
        differing = [name for name, value in wanted.items() if found[name] != value]
        differing += [] if _is_same(settings.config, job.config) else ["config"]
        if differing:
            raise InputError(f"{job.folder}: was begun with another `{differing[0]}`; choose another `output`")


def _is_same(begun: Config, given: Config) -> bool:
    """Return whether a run has a configuration; `log` may have become `none` where no count is above 1."""
    if given.network.abundance == "log":
        begun = replace(begun, network=replace(begun.network, abundance="log"))
    return begun == given


def _train(progress: Progress | None, job: _Training) -> None:
    """Train a run, continue it, or leave it as it is if it has ended."""
    if (job.folder / "metrics.json").exists():
        return
    if (job.folder / "config.yaml").exists():
        resume_run(job.folder, logger=job.logger, progress=progress)
        return
    train_run(
        job.cohort,
        job.folder,
        targets=job.targets,
        config=job.config,
        split=job.split,
        seed=job.seed,
        device=job.device,
        logger=job.logger,
        keep_sketches=job.keep_sketches,
        progress=progress,
    )
