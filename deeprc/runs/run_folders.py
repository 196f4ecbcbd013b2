"""Folders of several runs that one command has trained: which runs predict together if such a folder is named."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeprc.errors import InputError, join_names
from deeprc.runs.cross_plan import RUNS, holds_cross_validation
from deeprc.runs.run_settings import find_runs, read_settings

__all__ = ["expand_run_folders"]

_OF_RUN = ("cohort", "fingerprint", "targets")
_OF_SPLIT = ("folds", "group_by", "adjust_for")
_N_NAMED = 5

_logger = logging.getLogger(__name__)


def expand_run_folders(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Replace each folder of runs, such as that of `deeprc cv`, by its runs, which predict together as an ensemble.

    A run directory, a file of `deeprc pack`, and any other path stay as they are.

    Raises
    ------
    InputError
        If the runs of a folder differ in more than their split and seed; then they may not be meant to predict
        together.
    """
    return [run for path in paths for run in _expand(Path(path))]


def _expand(path: Path) -> list[Path]:
    if not path.is_dir() or (path / "config.yaml").exists():
        return [path]
    runs = find_runs(path / RUNS if holds_cross_validation(path) else path)
    if not runs:
        return [path]
    first = _list_settings(runs[0])
    for run in runs[1:]:
        settings = _list_settings(run)
        differing = next((name for name in first if settings[name] != first[name]), None)
        if differing is not None:
            raise InputError(
                f"{path}: holds several runs, and {runs[0].name} and {run.name} were trained with a different "
                f"{differing}; give those of the runs that are to predict together, such as {runs[0]}"
            )
    if len(runs) > 1:
        names = join_names([run.name for run in runs], _N_NAMED)
        _logger.info("%s: its %d runs predict together, by the mean of their outputs: %s", path, len(runs), names)
    return runs


def _list_settings(run: Path) -> dict[str, Any]:
    """Return what runs of one command have in common: all settings but those of the split, and the seed."""
    settings = read_settings(run)
    of_config = {name: value for part in settings.config.to_mapping().values() for name, value in part.items()}
    of_run = {name: getattr(settings, name) for name in _OF_RUN}
    return of_run | {name: getattr(settings.split_options, name) for name in _OF_SPLIT} | of_config
