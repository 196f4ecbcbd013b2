"""Ensembles of runs, which predict together by the mean of their outputs.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd
from torch import Tensor

from deeprc.calibration import IDENTITY
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import NEW, PARTS
from deeprc.runs import predictor
from deeprc.runs.assess import Assessment, assess_predictor
from deeprc.runs.metrics import Metrics
from deeprc.runs.run import Run, load_run
from deeprc.runs.run_folders import find_cross_validation
from deeprc.runs.run_text import describe_ensemble, show_ensemble
from deeprc.shift.summary import TrainingSummary
from deeprc.tasks import Task
from deeprc.training.model import Ensemble, Model

__all__ = ["RunEnsemble", "assess_runs", "evaluate_runs", "load_ensemble"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class RunEnsemble:
    """Runs that predict the same targets together; see `deeprc.training.model.Ensemble`.

    Attributes
    ----------
    runs
        Runs of the ensemble, at least one.
    """

    runs: tuple[Run, ...]

    def __repr__(self) -> str:
        return describe_ensemble(self.runs)

    def _repr_html_(self) -> str:
        return show_ensemble(self.runs)

    @cached_property
    def model(self) -> Model:
        """Model that averages the models of the runs."""
        models = [run.model for run in self.runs]
        return models[0] if len(models) == 1 else Ensemble.of(models)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Tasks that are predicted."""
        return self.model.tasks

    @property
    def group_by(self) -> str | None:
        """Metadata column that the splits kept together; None if the runs have different ones."""
        columns = {run.group_by for run in self.runs}
        return columns.pop() if len(columns) == 1 else None

    def histories(self) -> dict[str, pd.DataFrame]:
        """Return the history of each run, by name."""
        return {run.model.name: run.history() for run in self.runs}

    def split_of(self, dataset: RepertoireDataset) -> list[str]:
        """Return the part of the split of each repertoire, (B,), over all runs.

        It is "train" if any run learned from the repertoire, otherwise "validation" if it was in the validation fold of
        any run. So no run was trained or chosen with repertoires of "test" and "new".
        """
        parts_by_run = [run.split_of(dataset) for run in self.runs]
        parts = [
            next(part for part in (*PARTS, NEW) if part in run_parts) for run_parts in zip(*parts_by_run, strict=True)
        ]
        if "test" not in parts and all("test" in run_parts for run_parts in parts_by_run):
            _logger.warning("no repertoire is a test repertoire of all runs%s", _advise_on_test_parts(self.runs))
        return parts

    def summaries(self) -> list[TrainingSummary]:
        """Return each run's summary of its training repertoires."""
        return [summary for run in self.runs for summary in run.summaries()]

    def predict(
        self,
        dataset: RepertoireDataset | str | os.PathLike[str],
        *,
        abstain: bool = False,
        outputs: Tensor | None = None,
    ) -> pd.DataFrame:
        """Return the predictions as a table; see `deeprc.runs.predictor.predict`."""
        return predictor.predict(self, dataset, abstain=abstain, outputs=outputs)

    def evaluate(self, dataset: RepertoireDataset | str | os.PathLike[str]) -> Metrics:
        """Return metrics by part of the split and target; see `deeprc.runs.predictor.evaluate`."""
        return predictor.evaluate(self, dataset)


def load_ensemble(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, device: str = "auto"
) -> RunEnsemble:
    """Open run directories that predict the same targets; one is enough.

    Raises
    ------
    InputError
        As in `load_run`; or if a folder is given twice, or the targets differ.
    """
    folders = [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    for i, folder in enumerate(folders):
        if os.path.realpath(folder) in map(os.path.realpath, folders[:i]):
            raise InputError(f"{folder}: is given twice; expected different runs")
    runs = [load_run(folder, device=device) for folder in folders]
    if not runs:
        raise InputError("no run was given; expected at least one")
    for run in runs[1:]:
        if _normalise_tasks(run) != _normalise_tasks(runs[0]):
            raise InputError(
                f"{run.source}: predicts {_describe_tasks(run)}; "
                f"expected {_describe_tasks(runs[0])}, as {runs[0].source} does"
            )
    return RunEnsemble(tuple(runs))


def evaluate_runs(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    cohort: str | os.PathLike[str] | RepertoireDataset,
    *,
    device: str = "auto",
) -> Metrics:
    """Return the metrics of one run, or of several that predict together, on a cohort; `deeprc.evaluate` is this.

    Parameters
    ----------
    runs
        Path of a run directory, or several paths.
    cohort
        Path of a container made by `deeprc preprocess`, or a dataset.
    device
        Name of the device: `auto`, `cpu`, `cuda` ...

    Returns
    -------
    Metrics by part of the split ("train", "validation", "test", "new") and target, see
    `deeprc.evaluation.metrics.compute_task_metrics`; and "warnings", a list of warnings about them, each with the
    fields of `deeprc.evaluation.caution.Caution`.

    Raises
    ------
    InputError
        As in `load_ensemble`; or if the cohort cannot be used, or none of its repertoires has a label.
    """
    return assess_runs(runs, cohort, device=device).to_dict()


def assess_runs(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    cohort: str | os.PathLike[str] | RepertoireDataset,
    *,
    device: str = "auto",
) -> Assessment:
    """Assess runs on a cohort, with controls; parameters and errors are those of `evaluate_runs`."""
    trained = load_ensemble(runs, device=device)
    dataset = cohort if isinstance(cohort, RepertoireDataset) else open_dataset(cohort)
    return assess_predictor(trained, dataset)


def _advise_on_test_parts(runs: Sequence[Run]) -> str:
    """Return how runs without a common test repertoire can be measured, as the end of a sentence."""
    folder = find_cross_validation([run.path for run in runs])
    if folder is not None:
        return (
            ", because each test fold of a cross-validation has other runs; `deeprc cv` measures the runs on their "
            f"test folds: see {folder / 'metrics.json'}"
        )
    if len({run.settings.split_options.test for run in runs}) > 1:
        return (
            "; train them with the same `test`, or use `deeprc cv --folds leave-one-out:COLUMN`, which measures all of "
            "them on their test repertoires"
        )
    return "; train them with the same `fold` and `seed`"


def _normalise_tasks(run: Run) -> list[Task]:
    """Return the tasks of a run without what may differ between runs that predict together."""
    return [replace(task, weight=1.0, mean=0.0, scale=1.0, calibration=IDENTITY) for task in run.tasks]


def _describe_tasks(run: Run) -> str:
    return ", ".join(f"{task.name}:{task.kind} ({', '.join(task.class_names) or 'numbers'})" for task in run.tasks)
