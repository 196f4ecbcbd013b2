"""Several runs that predict together: the mean of their outputs.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import NEW, SPLITS
from deeprc.runs import predictor
from deeprc.runs.assess import Assessment, assess
from deeprc.runs.run import Run, load_run
from deeprc.runs.run_text import describe_ensemble
from deeprc.tasks import Task

__all__ = ["Ensemble", "assess_runs", "evaluate_runs", "load_ensemble"]

Progress = Callable[[Iterable[int]], Iterable[int]]
"""Takes all positions of a dataset and gives them back, as a progress bar does."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Ensemble:
    """Runs that predict the same targets together: log-odds, logits and numbers are the means of theirs.

    Attributes
    ----------
    runs
        At least one.
    """

    runs: tuple[Run, ...]

    def __repr__(self) -> str:
        return describe_ensemble(self.runs)

    @property
    def tasks(self) -> list[Task]:
        """What is predicted; numbers are scaled by the mean of what the runs scale by."""
        return [
            replace(same[0], mean=fmean(task.mean for task in same), scale=fmean(task.scale for task in same))
            for same in zip(*(run.tasks for run in self.runs), strict=True)
        ]

    @property
    def group_by(self) -> str | None:
        """The metadata column by which the splits were made; None where they differ."""
        columns = {run.group_by for run in self.runs}
        return columns.pop() if len(columns) == 1 else None

    def output_of(self, dataset: RepertoireDataset) -> Callable[[int], Tensor]:
        """Return the function of a position that gives a repertoire's outputs before their activation, (T,)."""
        tasks = self.tasks
        members = [(run.output_of(dataset), *_units(run.tasks, tasks)) for run in self.runs]

        def output(position: int) -> Tensor:
            return torch.stack([own(position) * scale + shift for own, scale, shift in members]).mean(dim=0)

        return output

    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the side each repertoire was on, (B,): "train" if any run learned from it, else "validation" ...

        So "test" and "new" are what no run has looked at in training.
        """
        of_runs = [run.split_of(dataset) for run in self.runs]
        found = [next(side for side in (*SPLITS, NEW) if side in sides) for sides in zip(*of_runs, strict=True)]
        if "test" not in found and all("test" in sides for sides in of_runs):
            logger.warning("no repertoire is on the test side of all runs; train them with the same `fold` and `seed`")
        return found

    def outputs(self, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> Tensor:
        """Return the outputs before their activation, (B, T); see `deeprc.runs.predictor.outputs`."""
        return predictor.outputs(self, dataset, positions)

    def predict(self, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> pd.DataFrame:
        """Return the predictions as a table; see `deeprc.runs.predictor.predict`."""
        return predictor.predict(self, dataset, positions)

    def evaluate(self, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> dict[str, Any]:
        """Return metrics by side and target; see `deeprc.runs.predictor.evaluate`."""
        return predictor.evaluate(self, dataset, positions)


def load_ensemble(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, device: str = "auto"
) -> Ensemble:
    """Open run directories that predict the same targets; one is enough.

    Raises
    ------
    InputError
        See `load_run`; or if a folder is given twice, or the targets differ.
    """
    folders = [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    for number, folder in enumerate(folders):
        if folder.resolve() in [other.resolve() for other in folders[:number]]:
            raise InputError(f"{folder}: is given twice; expected different runs")
    runs = [load_run(folder, device=device) for folder in folders]
    if not runs:
        raise InputError("no run was given; expected at least one")
    for run in runs[1:]:
        if _meaning(run) != _meaning(runs[0]):
            raise InputError(f"{run.path}: predicts {_named(run)}; expected {_named(runs[0])}, as {runs[0].path} does")
    return Ensemble(tuple(runs))


def evaluate_runs(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    cohort: str | os.PathLike[str] | RepertoireDataset,
    *,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure one run, or several that predict together, on a cohort; `deeprc.evaluate` is this function.

    Parameters
    ----------
    runs
        A run directory, or several.
    cohort
        A container made by `deeprc preprocess`, or a dataset.
    device
        `auto`, `cpu`, `cuda` ...
    progress
        Takes the dataset's positions and gives them back, as a progress bar does.

    Returns
    -------
    Metrics by side ("train", "validation", "test", "new") and target, see `deeprc.evaluation.metrics.task_metrics`; and
    "warnings", a list of what to know before they are believed, each as `deeprc.evaluation.caution.Caution` has it.

    Raises
    ------
    InputError
        See `load_ensemble`; or if the cohort cannot be used, or no repertoire of it has a label.
    """
    return assess_runs(runs, cohort, device=device, progress=progress).to_dict()


def assess_runs(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    cohort: str | os.PathLike[str] | RepertoireDataset,
    *,
    device: str = "auto",
    progress: Progress | None = None,
) -> Assessment:
    """Measure as `evaluate_runs`, and compare with controls; raises as it does."""
    trained = load_ensemble(runs, device=device)
    dataset = cohort if isinstance(cohort, RepertoireDataset) else open_dataset(cohort)
    positions = range(len(dataset))
    return assess(trained, dataset, positions if progress is None else progress(positions))


def _units(own: Sequence[Task], common: Sequence[Task]) -> tuple[Tensor, Tensor]:
    """Return by what a run's outputs are multiplied, (T,), and what is added, (T,), to be in common units.

    Each run scales numbers as they are in its own training fold.
    """
    pairs = [pair for pair in zip(own, common, strict=True) for _ in range(pair[0].n_outputs)]
    scale = [mine.scale / ours.scale for mine, ours in pairs]
    shift = [(mine.mean - ours.mean) / ours.scale for mine, ours in pairs]
    return torch.tensor(scale), torch.tensor(shift)


def _meaning(run: Run) -> list[Task]:
    return [replace(task, weight=1.0, mean=0.0, scale=1.0) for task in run.tasks]


def _named(run: Run) -> str:
    return ", ".join(f"{task.name}:{task.kind} ({', '.join(task.class_names) or 'numbers'})" for task in run.tasks)
