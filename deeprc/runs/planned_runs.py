"""Runs of one folder before they are trained: their plans, and checks whether each can begin, or continue.

A call may find runs in its folder that an earlier call has begun, or has finished. It continues the former and leaves
the latter as they are, if their settings, split and data are those of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from deeprc.config import Config, load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import Split, SplitOptions, make_split
from deeprc.evaluation.stored_tables import read_history
from deeprc.files import check_new_folder, check_regular_file
from deeprc.runs.file_digests import describe_foreign_files
from deeprc.runs.metrics import read_metrics
from deeprc.runs.run import read_splits, read_stored_predictions
from deeprc.runs.run_settings import RunSettings, read_settings
from deeprc.runs.training_data import check_fingerprint, digest_training_data
from deeprc.shift.sketches import SKETCHES_FILE
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task

__all__ = ["PlannedRun", "RunOptions", "RunPlan", "check_planned_runs"]


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
class PlannedRun:
    """One of the runs: its arguments, and how far an earlier call came with it.

    Attributes
    ----------
    name, folder
        Name of the run, and its run directory.
    cohort, plan, options
        Arguments of `train_run`.
    fingerprint
        Digest of the data from which the run learns, see `digest_training_data`; empty until it is known.
    """

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


def check_planned_runs(output: Path, runs: Sequence[PlannedRun], dataset: RepertoireDataset, tasks: list[Task]) -> str:
    """Return the digest of the data from which the runs learn; raise InputError if any run cannot begin or continue.

    Nothing is written. What an earlier call has left is checked first: settings and data of the runs that have begun,
    or, if none has, whether the folder is empty. Then follow the split of each run, and the files of those that have
    ended.
    """
    begun = [run for run in runs if run.has_begun]
    fingerprint = None
    if begun:
        fingerprint = _check_begun(begun, dataset)
    elif not _has_only_killed_runs(output, runs):
        check_new_folder(output)
    for run in runs:
        split = _split_cohort(run, dataset, tasks)
        _check_classes(run, split, dataset, tasks)
        if run.has_begun:
            _check_same_split(run, split, dataset)
        if run.has_ended:
            _check_results(run.folder)
    return fingerprint or digest_training_data(dataset, tasks, runs[0].options.config)


def _has_only_killed_runs(output: Path, runs: Sequence[PlannedRun]) -> bool:
    """Return whether the folder has only hidden folders of runs that were killed before their run directory existed."""
    hidden = tuple(f".{run.name}." for run in runs)
    return output.is_dir() and all(path.name.startswith(hidden) for path in output.iterdir())


def _check_begun(begun: Sequence[PlannedRun], dataset: RepertoireDataset) -> str:
    """Return the digest of the data from which runs that have begun learn.

    Raise InputError if they have other settings, or if the cohort has changed since then.
    """
    all_settings = [read_settings(run.folder) for run in begun]
    for run, settings in zip(begun, all_settings, strict=True):
        _check_same_settings(run, settings)
    fingerprint = digest_training_data(dataset, all_settings[0].tasks, all_settings[0].config)
    for run, settings in zip(begun, all_settings, strict=True):
        check_fingerprint(fingerprint, dataset, settings, run.folder)
        sketches = run.folder / SKETCHES_FILE
        if not run.options.keep_sketches and sketches.exists():
            raise InputError(
                f"{sketches}: was written by an earlier call, but now `keep_sketches=False`; delete this file in every "
                "run, or choose another `output`"
            )
    return fingerprint


def _split_cohort(run: PlannedRun, dataset: RepertoireDataset, tasks: list[Task]) -> Split:
    """Return the split of a run; raise InputError if the cohort cannot be split in this way."""
    source, plan = str(dataset.container.path), run.plan
    try:
        return make_split(dataset.metadata, tasks, plan.split_options, seed=plan.seed, source=source)
    except InputError as error:
        raise InputError(f"{run.name}: {error}") from error


def _check_classes(run: PlannedRun, split: Split, dataset: RepertoireDataset, tasks: list[Task]) -> None:
    """Raise InputError if the training repertoires have fewer than two classes of the first target."""
    labels = encode_labels(tasks[:1], dataset.metadata)[split.train, 0]
    if tasks[0].kind != "regression" and len(np.unique(labels[~np.isnan(labels)])) < 2:
        test = run.plan.split_options.test
        tested = "" if test is None else f" with `test={test}`"
        raise InputError(f"{run.name}: the training part has one class of {tasks[0].name!r} only{tested}")


def _check_same_split(run: PlannedRun, split: Split, dataset: RepertoireDataset) -> None:
    """Raise InputError if a run was begun with a different split."""
    if read_splits(run.folder)[0] != split.ids(dataset.repertoire_ids):
        raise InputError(
            f"{run.folder}: was started with a different split than {dataset.container.path} gives now: a column "
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


def _check_same_settings(run: PlannedRun, begun: RunSettings) -> None:
    """Raise InputError if the settings with which a run was begun are not those of the training.

    The container may have moved: its content is compared by `check_fingerprint`.
    """
    plan, options = run.plan, run.options
    begun_arguments = {"targets": begun.targets, "seed": begun.seed, **vars(begun.split_options)}
    for name, chosen in {"targets": options.targets, "seed": plan.seed, **vars(plan.split_options)}.items():
        if begun_arguments[name] != chosen:
            raise InputError(f"{run.folder}: was started with a different `{name}`; choose another `output`")
    begun_config = _restore_log_abundance(begun.config, options.config)
    if begun_config != options.config:
        names = ", ".join(_list_differing_settings(begun_config, options.config))
        raise InputError(
            f"{run.folder}: was started with other settings ({names}); give the same, or choose another `output`"
        )


def _list_differing_settings(begun: Config, chosen: Config) -> list[str]:
    """Return the names of the settings that two configurations have with different values."""
    begun_sections = begun.to_mapping()
    return [
        name
        for section, settings in chosen.to_mapping().items()
        for name, value in settings.items()
        if begun_sections[section].get(name) != value
    ]


def _restore_log_abundance(begun: Config, chosen: Config) -> Config:
    """Return the configuration of a begun run with `log` if `log` is chosen and had become `none`.

    This happens where no count is above 1 (`replace_log_abundance`).
    """
    if chosen.network.abundance != "log" or begun.network.abundance != "none":
        return begun
    return replace(begun, network=replace(begun.network, abundance="log"))
