"""Cross-validation: ensembles for every test fold, perhaps repeated with other divisions and seeds, and one answer."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from deeprc.checks.cautions import duplicate_cautions, shortcut_cautions
from deeprc.checks.of_run import check_for_training, metadata_digest, read_checks
from deeprc.config import Config, load_config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.documents import abbreviate, read_yaml, to_plain, validate
from deeprc.errors import InputError
from deeprc.evaluation.adjustment import adjusted_cautions
from deeprc.evaluation.caution import Caution, write_cautions
from deeprc.evaluation.cohort_cautions import people_cautions, subject_cautions
from deeprc.evaluation.splits import N_FOLDS, SplitOptions, assign_folds, known_people, subject_column
from deeprc.evaluation.trust import is_few
from deeprc.files import check_new_folder, name_write_errors, write_text
from deeprc.jobs import Workers, check_scheduler, result_of, run_jobs
from deeprc.progress import open_step
from deeprc.rich import details, interval
from deeprc.runs.cross_metrics import folds_table, measure_folds
from deeprc.runs.experiment import Progress
from deeprc.runs.out_of_fold import FoldPrediction, FoldRuns, cross_calibrate, out_of_fold_table, predict_fold
from deeprc.runs.run import read_splits, save_predictions
from deeprc.runs.several import RunPlan, train_runs
from deeprc.tasks import Task, labels, parse_tasks
from deeprc.versions import package_version

__all__ = ["CrossValidation", "cross_validate", "holds_cross_validation", "plan_cross_validation", "read_header"]

FORMAT, VERSION = "deeprc-cv", 1
_HEADER = "cv.yaml"
_RUNS = "runs"
_MAX_SEED = 2**32 - 1

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CrossValidation:
    """What a cross-validation has found.

    Attributes
    ----------
    path
        Its folder, which holds everything below, and the runs in `runs/`.
    metrics
        The metrics by target, see `measure_folds`: `metrics.json`.
    predictions
        The out-of-fold predictions, see `out_of_fold_table`: `predictions.tsv`.
    folds
        The metrics of each fold, see `folds_table`: `folds.tsv`.
    cautions
        What to know before the metrics are believed: `warnings.json`.
    """

    path: Path
    metrics: Mapping[str, Mapping[str, Any]]
    predictions: pd.DataFrame
    folds: pd.DataFrame
    cautions: Sequence[Caution]

    def __repr__(self) -> str:
        return f"CrossValidation('{self.path}', {', '.join(map(str, self.metrics))}; its metrics say how good it is)"

    def _repr_html_(self) -> str:
        """Return the AUC of each target with its interval as a notebook shows it."""
        lines, pictures = [], []
        for target, found in self.metrics.items():
            if found.get("auc") is not None and found.get("auc_ci") is not None:
                low, high = found["auc_ci"]
                lines.append((str(target), f"AUC {found['auc']:.3f} (95% interval {low:.3f} to {high:.3f})"))
                pictures.append(interval(low, found["auc"], high, chance=0.5))
        return details(f"Cross-validation {self.path}", lines, *pictures)


@dataclass(frozen=True)
class Header:
    """What `cv.yaml` holds: the arguments of `cross_validate` that calls for one folder share.

    Attributes
    ----------
    cohort, targets, folds, members, group_by, adjust_for, seed
        As those of `cross_validate`; they are the same in all calls.
    repeats
        As that of `cross_validate`; a later call may have more.
    """

    cohort: str
    targets: tuple[str, ...]
    folds: int = field(metadata={"low": 3, "high": 2**31})
    repeats: int = field(metadata={"low": 1, "high": 2**31})
    members: int = field(metadata={"low": 1, "high": 2**31})
    group_by: str | None
    seed: int = field(metadata={"low": 0, "high": _MAX_SEED})
    adjust_for: tuple[str, ...] = ()  # earlier versions lack it


def cross_validate(
    cohort: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    targets: Sequence[str] | str,
    folds: int = N_FOLDS,
    repeats: int = 1,
    members: int | None = None,
    group_by: str | None = None,
    adjust_for: Sequence[str] = (),
    config: Config | None = None,
    seed: int = 0,
    device: str = "auto",
    keep_sketches: bool = True,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> CrossValidation:
    """Say how well a target can be predicted from a cohort; `deeprc.cv` is this function.

    Each fold is once the test fold, which an ensemble of runs predicts that has not seen it. The call trains `folds`
    times `members` times `repeats` runs. If it is interrupted, or repeated with more `repeats`, it continues.

    Parameters
    ----------
    cohort
        A container made by `deeprc preprocess`.
    output
        The folder to write. It must not exist, be empty, or be that of an equal call.
    targets
        What to predict, see `deeprc.tasks.parse_tasks`.
    folds
        Number of folds, at least 3.
    repeats
        How often the whole is done, each time with another division into folds and another seed.
    members
        Number of runs that predict a test fold together, each with another validation fold; None: one for each fold
        but the test fold. Then the ensemble has learned from all repertoires but those of the test fold.
    group_by
        A column of the metadata; repertoires with the same value stay in one fold.
    adjust_for
        As that of `SplitOptions`.
    config
        The default preset when None.
    seed
        The seed of the first repeat; that of each other repeat is larger by 1.
    device
        `auto`, `cpu`, `cuda` ...
    keep_sketches
        As that of `train_run`.
    jobs
        Number of processes of this machine that train at the same time.
    scheduler
        The address of a Dask scheduler, whose workers train in the place of processes.
    progress
        As that of `train_run`, for each run that is trained in this process.

    Raises
    ------
    InputError
        If anything the user gave cannot be used; nothing is written then.
    """
    folder, dataset = Path(output), open_dataset(cohort)
    given = (targets,) if isinstance(targets, str) else tuple(targets)
    place = str(Path(cohort).absolute())
    n_members = folds - 1 if members is None else members
    header = Header(place, given, folds, repeats, n_members, group_by, seed, tuple(adjust_for))
    plans = plan_cross_validation(header)
    tasks = parse_tasks(given, dataset.metadata, source=str(cohort))
    fold_of = [
        assign_folds(dataset.metadata, tasks, n_folds=folds, group_by=group_by, seed=seed + repeat, source=str(cohort))
        for repeat in range(repeats)
    ]
    if scheduler is not None:
        check_scheduler(scheduler)
    workers = Workers(processes=jobs, scheduler=scheduler)
    _check_folder(folder, header)
    train_runs(
        cohort,
        folder / _RUNS,
        plans,
        targets=given,
        config=config or load_config(),
        device=device,
        keep_sketches=keep_sketches,
        jobs=jobs,
        scheduler=scheduler,
        progress=progress,
        begin=partial(_begin, folder, header),
    )
    tested = _predict(folder, header, workers, device)
    if (config or load_config()).training.calibrate:
        tested = cross_calibrate(tested)
    cautions = [
        *_check_cautions(dataset, tasks, folder, header, fold_of),
        *_find_cautions(dataset, tasks, folder, header, fold_of[0]),
    ]
    return _write(folder, dataset, header, tested, cautions)


def plan_cross_validation(header: Header) -> dict[str, RunPlan]:
    """Return the runs of a cross-validation by their names, such as repeat-0-fold-0-validation-1.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    if header.folds < 3:
        raise InputError(f"`folds={header.folds}`: expected at least 3")
    if header.repeats < 1:
        raise InputError(f"`repeats={header.repeats}`: expected at least 1")
    if not 1 <= header.members < header.folds:
        raise InputError(f"`members={header.members}`: expected 1 to {header.folds - 1}, one for each validation fold")
    if not 0 <= header.seed <= _MAX_SEED - header.repeats + 1:
        raise InputError(f"`seed={header.seed}`: expected 0 to {_MAX_SEED - header.repeats + 1}")
    plans = {}
    for name, (repeat, fold, validated) in _name_runs(header).items():
        split = SplitOptions(
            folds=header.folds,
            fold=fold,
            validation_fold=validated,
            group_by=header.group_by,
            adjust_for=header.adjust_for,
        )
        plans[name] = RunPlan(split, header.seed + repeat)
    return plans


def _name_runs(header: Header) -> dict[str, tuple[int, int, int]]:
    """Return the repeat, the test fold and the validation fold of each run by its name."""
    places = [
        (repeat, fold, (fold + 1 + member) % header.folds)
        for repeat in range(header.repeats)
        for fold in range(header.folds)
        for member in range(header.members)
    ]
    return {
        f"repeat-{repeat}-fold-{fold}-validation-{validated}": (repeat, fold, validated)
        for repeat, fold, validated in places
    }


def holds_cross_validation(folder: Path) -> bool:
    """Return whether a folder is one of a cross-validation."""
    return (folder / _HEADER).is_file()


def read_header(folder: Path) -> Header:
    """Read `cv.yaml`.

    Raises
    ------
    InputError
        If it is damaged, or of another version.
    """
    file = folder / _HEADER
    body = validate(read_yaml(file), dict[str, Any], str(file))
    found = (body.get("format"), body.get("version"))
    if found != (FORMAT, VERSION):
        seen = f"found {abbreviate(found[0])} version {abbreviate(found[1])}"
        raise InputError(f"{file}: expected format {FORMAT!r} version {VERSION}, {seen}")
    known = {each.name: body[each.name] for each in fields(Header) if each.name in body}
    header: Header = validate(known, Header, str(file))
    return header


def _check_folder(folder: Path, header: Header) -> None:
    """Raise InputError unless the folder is new, or that of an equal call."""
    if holds_cross_validation(folder):
        begun = read_header(folder)
        differing = [each.name for each in fields(Header) if getattr(begun, each.name) != getattr(header, each.name)]
        if differing and (differing != ["repeats"] or begun.repeats > header.repeats):
            was = _show(getattr(begun, differing[0]))
            raise InputError(f"{folder}: was begun with `{differing[0]}={was}`; choose another `output`")
    else:
        check_new_folder(folder)


def _begin(folder: Path, header: Header) -> None:
    """Make the folder if need be, and write `cv.yaml`."""
    with name_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    body = {"format": FORMAT, "version": VERSION, "deeprc": package_version("deeprc"), **vars(header)}
    body |= {"targets": list(header.targets), "adjust_for": list(header.adjust_for)}
    write_text(folder / _HEADER, yaml.safe_dump(to_plain(body), sort_keys=False, allow_unicode=True))


def _show(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _predict(folder: Path, header: Header, workers: Workers, device: str) -> list[FoldPrediction]:
    """Return what the ensemble of each test fold predicts, by repeat and fold."""
    members: dict[tuple[int, int], list[Path]] = {}
    for name, (repeat, fold, _) in _name_runs(header).items():
        members.setdefault((repeat, fold), []).append(folder.absolute() / _RUNS / name)
    cohort = Path(header.cohort)
    jobs = [FoldRuns(repeat, fold, tuple(runs), cohort, device) for (repeat, fold), runs in members.items()]
    found = []
    with (
        open_step("test folds", len(jobs)) as step,
        closing(run_jobs(predict_fold, jobs, workers, in_order=True, hint="the same call continues")) as ended,
    ):
        for job, future in ended:
            found.append(result_of(future, f"fold {job.fold} of repeat {job.repeat}"))
            step.advance()
    return found


def _check_cautions(
    dataset: RepertoireDataset, tasks: list[Task], folder: Path, header: Header, fold_of: Sequence[NDArray[np.int64]]
) -> list[Caution]:
    """Return what a check of the cohort warns of: shortcuts to the label, and copies in several folds of a repeat."""
    checks = read_checks(folder / _RUNS / next(iter(_name_runs(header))))  # all runs have checked the same cohort
    if checks is None or checks.metadata != metadata_digest(dataset):
        checks = check_for_training(dataset, tasks, header.group_by)
    folds = np.stack(fold_of, axis=1)
    labelled = np.flatnonzero(folds[:, 0] >= 0)
    part_of = {str(dataset.repertoire_ids[row]): tuple(folds[row].tolist()) for row in labelled}
    return [*duplicate_cautions(checks.findings, part_of, apart="folds"), *shortcut_cautions(checks.findings)]


def _find_cautions(
    dataset: RepertoireDataset, tasks: Sequence[Task], folder: Path, header: Header, fold_of: NDArray[np.int64]
) -> list[Caution]:
    """Return what to know before the metrics are believed: donors in several folds, few donors, one repeat ..."""
    cautions = subject_cautions(dataset.metadata, fold_of, apart="folds")
    column, person = subject_column(dataset.metadata, header.group_by), known_people(dataset.metadata, header.group_by)
    known = labels(list(tasks), dataset.metadata)
    for task, label in zip(tasks, known.T, strict=True):
        tested = ~np.isnan(label) & (fold_of >= 0)
        classes = {name: tested & (label == c) for c, name in enumerate(task.class_names)} or {"": tested}
        if person is not None and column is not None:
            cautions += people_cautions(person, column, classes, kind=task.kind, where="")
        smallest = min(int(rows.sum()) for rows in classes.values())
        if is_few(task.kind, smallest):
            what = "with a number" if task.kind == "regression" else "in the smallest class"
            text = f"{task.name}: {smallest:,} repertoires {what}: the figures say little."
            cautions.append(Caution("warning", text, "performance", "few", {"target": task.name, "n": smallest}))
    if header.adjust_for:
        sides = [read_splits(folder / _RUNS / name)[0]["train"] for name in _name_runs(header)]
        kept = [known[np.isin(dataset.repertoire_ids.astype(str), ids), 0] for ids in sides]
        cautions += adjusted_cautions(header.adjust_for, tasks[0].kind, kept)
    if header.repeats == 1:
        text = (
            "One repeat: the intervals do not know how much other seeds and divisions into folds would change. The "
            "same call with `repeats=3` adds two repeats."
        )
        cautions.append(Caution("note", text, "performance", "one-repeat"))
    return cautions


def _write(
    folder: Path,
    dataset: RepertoireDataset,
    header: Header,
    tested: Sequence[FoldPrediction],
    cautions: Sequence[Caution],
) -> CrossValidation:
    """Write the results, each file whole; earlier metrics go first, the new ones come last."""
    person = known_people(dataset.metadata, header.group_by)
    metrics = measure_folds(tested, np.arange(len(dataset)) if person is None else person)
    predictions, folds = out_of_fold_table(tested, dataset), folds_table(tested)
    with name_write_errors(folder):
        (folder / "metrics.json").unlink(missing_ok=True)
    save_predictions(folder / "predictions.tsv", predictions)
    write_text(folder / "folds.tsv", folds.to_csv(sep="\t", index=False))
    write_cautions(folder, cautions)
    write_text(folder / "metrics.json", json.dumps(metrics, indent=1) + "\n")
    return CrossValidation(folder, metrics, predictions, folds, cautions)
