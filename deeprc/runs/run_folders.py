"""Folders of several runs that were trained alike: which runs predict together if such a folder is named."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from deeprc.errors import InputError, join_names
from deeprc.runs.cross_plan import RUNS, holds_cross_validation, index_runs, read_header
from deeprc.runs.run_settings import RunSettings, find_runs, read_settings
from deeprc.runs.several_runs import RunPlan, plan_left_out, plan_validations

__all__ = ["expand_run_folders", "find_cross_validation"]

_N_NAMED = 5
_SHARED_OPTIONS = ("group_by", "adjust_for")  # fields of `SplitOptions`

_logger = logging.getLogger(__name__)


def expand_run_folders(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Replace each folder of runs, such as that of `deeprc cv`, by its runs, which predict together as an ensemble.

    The runs of a folder may have different test parts and validation folds, and different seeds. A run directory, a
    file of `deeprc pack`, and any other path stay as they are.

    Raises
    ------
    InputError
        If the runs of a folder differ in anything else; then they may not be meant to predict together. Or if some runs
        of `deeprc cv`, or of `train_runs` with all validation folds or all values of a column as test folds, have not
        been trained.
    """
    return [run for path in paths for run in _expand_folder(Path(path))]


def find_cross_validation(runs: Sequence[Path]) -> Path | None:
    """Return the folder of the cross-validation that has trained all these runs; None if there is none."""
    folders = {Path(os.path.realpath(run)).parent for run in runs}
    folder = folders.pop()
    is_found = not folders and folder.name == RUNS and holds_cross_validation(folder.parent)
    return folder.parent if is_found else None


def _expand_folder(path: Path) -> list[Path]:
    """Return the runs of a folder of runs; a run, or a path that is no such folder, is returned alone."""
    if not path.is_dir() or (path / "config.yaml").exists():
        return [path]
    is_cross_validation = holds_cross_validation(path)
    if is_cross_validation:
        planned = index_runs(read_header(path))
        runs = [run for run in find_runs(path / RUNS) if run.name in planned]
        _check_complete(path, runs, planned, "deeprc cv")
    else:
        runs = find_runs(path)
        if not runs:
            return [path]
    settings = [read_settings(run) for run in runs]
    if not is_cross_validation:
        _check_planned(path, runs, settings)
    for run, setting in zip(runs, settings, strict=True):
        difference = _describe_difference(settings[0], setting)
        if difference is not None:
            raise InputError(
                f"{path}: holds several runs, and {runs[0].name} and {run.name} were trained {difference}; give the "
                f"runs that are to predict together, such as {runs[0]}"
            )
    if len(runs) > 1:
        names = join_names([run.name for run in runs], _N_NAMED)
        _logger.info("%s: its %d runs predict together, by the mean of their outputs: %s", path, len(runs), names)
    return runs


def _check_planned(folder: Path, runs: Sequence[Path], settings: Sequence[RunSettings]) -> None:
    """Raise InputError if runs of `deeprc train` are some of those that belong together, and others are missing."""
    for plans in (_plan_validations(settings[0]), _plan_left_out(settings[0])):
        if all(plans.get(run.name) == _get_plan(setting) for run, setting in zip(runs, settings, strict=True)):
            _check_complete(folder, runs, plans, "deeprc train")


def _check_complete(folder: Path, runs: Sequence[Path], planned: Collection[str], command: str) -> None:
    """Raise InputError unless all planned runs of a command are there, and have been trained to the end."""
    trained = [run for run in runs if (run / "model.safetensors").exists()]
    if len(trained) < len(planned):
        other = f", or give the runs that are to predict together, such as {trained[0]}" if trained else ""
        raise InputError(
            f"{folder}: is not complete (trained runs: {len(trained)} of {len(planned)}); run the same `{command}` "
            f"command again to continue{other}"
        )


def _plan_validations(settings: RunSettings) -> dict[str, RunPlan]:
    """Return the runs of `deeprc train --validation-fold all` with the settings of one of them, by name."""
    options = {name: value for name, value in vars(settings.split_options).items() if name != "validation_fold"}
    return plan_validations(seed=settings.seed, **options)


def _plan_left_out(settings: RunSettings) -> dict[str, RunPlan]:
    """Return the runs of `deeprc train --folds leave-one-out:COLUMN` with the settings of one of them, by name.

    The container has the values of the column. Without it, or if the run has no such column, there are no runs.
    """
    options = {name: value for name, value in vars(settings.split_options).items() if name in _SHARED_OPTIONS}
    test = settings.split_options.test or ""
    for equals in re.finditer("=", test):  # the name of a column may contain one
        try:
            plans = plan_left_out(settings.cohort, test[: equals.start()], seed=settings.seed, **options)
        except InputError:
            continue
        if _get_plan(settings) in plans.values():
            return plans
    return {}


def _get_plan(settings: RunSettings) -> RunPlan:
    """Return the options of the split of a run, and its seed."""
    return RunPlan(settings.split_options, settings.seed)


def _describe_difference(settings: RunSettings, other: RunSettings) -> str | None:
    """Return how two runs were trained that are not alike, as in "for different targets"; None if they are alike.

    The fingerprint is compared last, because a different target or setting changes it, too. The path of the container
    may differ: runs of a cross-validation that went on in another place have another one.
    """
    if settings.targets != other.targets:
        return "for different targets"
    if settings.split_options.folds != other.split_options.folds:
        return "with different numbers of folds"
    for name in _SHARED_OPTIONS:
        if getattr(settings.split_options, name) != getattr(other.split_options, name):
            return f"with a different `{name}`"
    was, now = settings.config.to_mapping(), other.config.to_mapping()
    names = [name for part in was for name in was[part] if was[part][name] != now[part][name]]
    if names:
        return f"with different settings ({join_names(names, _N_NAMED)})"
    if settings.fingerprint == other.fingerprint:
        return None
    return "on different data" if settings.cohort == other.cohort else "on different containers"
