"""Options of `deeprc.benchmark`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from deeprc.evaluation.adjustment import to_column_names
from deeprc.evaluation.splits import N_FOLDS
from deeprc.jobs import Workers

__all__ = ["BenchmarkOptions"]


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Options of a benchmark: search spaces, folds, and processes.

    Attributes
    ----------
    preset
        Search spaces: "paper", "quick", or a YAML file like those in `configs/benchmark`. None is "quick", or, for a
        resumed benchmark, its preset.
    folds
        Number of folds; or `leave-one-out:COLUMN`: each value of a metadata column, such as a batch, is left out for
        testing once, and a fifth of the others is for validation; or a TSV file with the columns `repertoire_id` and
        `fold`.
    group_by
        Metadata column; repertoires with the same value are in one fold.
    adjust_for
        Metadata columns, such as a batch: repertoires are left out of training and validation until these columns do
        not predict the label, see `deeprc.evaluation.adjustment`.
    seed
        Seed of every random choice: the folds, the drawn settings, and the estimators that have a parameter `seed`.
    jobs
        Number of processes.
    scheduler
        Address of a Dask scheduler. Then its workers run the jobs.

    Raises
    ------
    InputError
        If `jobs` is less than 1.
    """

    preset: str | os.PathLike[str] | None = None
    folds: int | str | os.PathLike[str] = N_FOLDS
    group_by: str | None = None
    adjust_for: Sequence[str] = ()
    seed: int = 0
    jobs: int = 1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjust_for", to_column_names(self.adjust_for))
        _ = self.workers

    @property
    def workers(self) -> Workers:
        """Processes that run the jobs."""
        return Workers(self.jobs, self.scheduler)
