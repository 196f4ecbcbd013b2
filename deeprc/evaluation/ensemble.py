"""Several runs that predict together: the mean of their outputs.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.predictor import NEW, Predictor
from deeprc.evaluation.run import Run, load_run
from deeprc.evaluation.splits import SPLITS
from deeprc.tasks import Task

__all__ = ["Ensemble", "load_ensemble"]


@dataclass(frozen=True)
class Ensemble(Predictor):
    """Runs that predict the same targets; log-odds, logits and numbers are the means of theirs.

    Attributes
    ----------
    runs
        At least one.
    """

    runs: tuple[Run, ...]

    @property
    def tasks(self) -> list[Task]:
        """What is predicted; numbers in the units of the first run's outputs."""
        return self.runs[0].tasks

    def output_of(self, dataset: RepertoireDataset) -> Callable[[int], Tensor]:
        """Return the function of a position that gives a repertoire's outputs before their activation, (T,)."""
        members = [(run.output_of(dataset), *_units(run.tasks, self.tasks)) for run in self.runs]

        def output(position: int) -> Tensor:
            return torch.stack([own(position) * scale + shift for own, scale, shift in members]).mean(dim=0)

        return output

    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the side each repertoire was on, (B,): "train" if any run learned from it, and so on.

        So "test" and "new" are what no run has looked at in training.
        """
        sides = zip(*(run.split_of(dataset) for run in self.runs), strict=True)
        return [next(side for side in (*SPLITS, NEW) if side in found) for found in sides]


def load_ensemble(paths: Sequence[str | os.PathLike[str]], *, device: str = "auto") -> Ensemble:
    """Open run directories that predict the same targets; one is enough.

    Raises
    ------
    InputError
        See `load_run`; or if a folder is given twice, or the targets differ.
    """
    folders = [Path(path) for path in paths]
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
    return ", ".join(f"{task.name} ({', '.join(task.classes) or task.kind})" for task in run.tasks)
