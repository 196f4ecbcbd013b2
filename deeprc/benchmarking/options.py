"""How methods are compared: the options of `deeprc.benchmark`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from deeprc.evaluation.adjustment import one_or_several
from deeprc.evaluation.splits import N_FOLDS
from deeprc.jobs import Workers

__all__ = ["BenchmarkOptions"]


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Which settings are searched, how repertoires are assigned to folds, and where the jobs run.

    Attributes
    ----------
    preset
        The search spaces: "paper", "quick", or a YAML file like those in `configs/benchmark`. None: "quick", or, for a
        benchmark that is resumed, the preset that it began with.
    folds
        The number of folds; `leave-one-out:COLUMN`: each value of a column of the metadata, such as a batch, is left
        out for testing once, and a fifth of the others is for validation; or a TSV file with the columns
        `repertoire_id` and `fold`.
    group_by
        A column of the metadata; repertoires with the same value are in one fold.
    adjust_for
        A column of the metadata, such as a batch, or several: repertoires are left out of training and validation until
        they say nothing about the label, see `deeprc.evaluation.adjustment`.
    seed
        Decides every random choice: the folds, the settings that are drawn at random, and what the estimators with a
        parameter `seed` draw.
    jobs
        Number of processes.
    scheduler
        The address of a Dask scheduler, whose workers then run the jobs.

    Raises
    ------
    InputError
        If there is less than one job.
    """

    preset: str | os.PathLike[str] | None = None
    folds: int | str | os.PathLike[str] = N_FOLDS
    group_by: str | None = None
    adjust_for: Sequence[str] = ()
    seed: int = 0
    jobs: int = 1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjust_for", one_or_several(self.adjust_for))
        _ = self.workers

    @property
    def workers(self) -> Workers:
        """Where the jobs run."""
        return Workers(self.jobs, self.scheduler)
