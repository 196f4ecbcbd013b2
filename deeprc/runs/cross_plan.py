"""Plan of a cross-validation: its header `cv.yaml`, its test folds, and its runs.

Letters: B repertoires.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import check_format, read_yaml, to_plain, validate
from deeprc.errors import InputError
from deeprc.evaluation.folds_from_column import assign_folds_by_value, list_left_out_values
from deeprc.evaluation.parse_folds import LEAVE_ONE_OUT, parse_left_out_column
from deeprc.evaluation.splits import N_FOLDS, SplitOptions, assign_folds
from deeprc.files import check_links_stay_inside, check_new_folder, name_write_errors, write_text
from deeprc.runs.several_runs import RunPlan
from deeprc.tasks import Task, parse_tasks
from deeprc.versions import package_version

__all__ = [
    "RUNS",
    "CrossValidationFolds",
    "CrossValidationHeader",
    "PreparedCrossValidation",
    "RunIndex",
    "assign_test_folds",
    "check_folder",
    "holds_cross_validation",
    "index_runs",
    "plan_cross_validation",
    "prepare_cross_validation",
    "read_header",
    "write_header",
]

RUNS = "runs"
"""Folder of the runs in the folder of a cross-validation."""

FORMAT, VERSION = "deeprc-cv", 1
_HEADER = "cv.yaml"
_MAX_SEED = 2**32 - 1
_MAX_RUNS = 100_000


@dataclass(frozen=True)
class CrossValidationHeader:
    """The content of `cv.yaml`: the arguments of `cross_validate` that all calls for one folder must share.

    Attributes
    ----------
    cohort, targets, members, group_by, adjust_for, seed
        Arguments of `cross_validate`, the same in all calls.
    folds
        Number of test folds.
    left_out
        Metadata column whose values are the test folds; None for random folds.
    repeats
        Number of repeats, see `cross_validate`; a later call may have more.
    """

    cohort: str
    targets: tuple[str, ...]
    folds: int = field(metadata={"low": 2, "high": 2**31})
    repeats: int = field(metadata={"low": 1, "high": 2**31})
    members: int = field(metadata={"low": 1, "high": 2**31})
    group_by: str | None
    seed: int = field(metadata={"low": 0, "high": _MAX_SEED})
    adjust_for: tuple[str, ...] = ()  # earlier versions lack it
    left_out: str | None = None  # likewise

    @property
    def test_folds(self) -> CrossValidationFolds:
        """Number of test folds, and the column whose values they are."""
        return CrossValidationFolds(self.folds, self.left_out)


@dataclass(frozen=True)
class PreparedCrossValidation:
    """What a cross-validation starts from.

    Attributes
    ----------
    folder, header
        Folder of the results, and content of its `cv.yaml`.
    dataset, tasks
        The cohort, and the tasks of the targets.
    test_folds
        Index of the test fold of each repertoire in each repeat, (B, number of repeats); -1 if it is in none.
    plans
        Split and seed of each run, by the name of its directory.
    """

    folder: Path
    header: CrossValidationHeader
    dataset: RepertoireDataset
    tasks: list[Task]
    test_folds: NDArray[np.int64]
    plans: dict[str, RunPlan]

    @property
    def run_folders(self) -> dict[Path, RunIndex]:
        """Repeat, test fold and validation fold of each run, by its directory."""
        return {self.folder / RUNS / name: run for name, run in index_runs(self.header).items()}


class RunIndex(NamedTuple):
    """Indices of the repeat, the test fold and the validation fold of a run."""

    repeat: int
    fold: int
    validation: int


class CrossValidationFolds(NamedTuple):
    """The number of test folds, and the metadata column whose values they are; None for random folds."""

    n: int
    left_out: str | None

    @classmethod
    def parse(cls, folds: int | str, metadata: pd.DataFrame, source: str) -> CrossValidationFolds:
        """Return the test folds for the argument `folds` of `cross_validate`.

        Raises
        ------
        InputError
            If it is not a number and names no column, or the column cannot be used.
        """
        column = parse_left_out_column(folds)
        if column is not None:
            return cls(len(list_left_out_values(metadata, column, source)), column)
        if not isinstance(folds, int | np.integer):  # np.unique and pandas give the latter
            raise InputError(f"`folds={folds}`: expected a number or {LEAVE_ONE_OUT}COLUMN")
        return cls(int(folds), None)

    @property
    def n_validation_folds(self) -> int:
        """Number of folds, without the test fold, each of which can be the validation fold."""
        return self.n - 1 if self.left_out is None else N_FOLDS


def prepare_cross_validation(
    folder: Path, header: CrossValidationHeader, dataset: RepertoireDataset, *, source: str
) -> PreparedCrossValidation:
    """Plan the runs of a cross-validation, and assign repertoires to test folds; nothing is written.

    Parameters
    ----------
    folder, header, dataset
        See `PreparedCrossValidation`.
    source
        Name of the cohort for error messages.

    Raises
    ------
    InputError
        If a number is out of range, or the targets or folds do not fit the cohort.
    """
    plans = plan_cross_validation(header, dataset)
    tasks = parse_tasks(header.targets, dataset.metadata, source=source)
    folds = [assign_test_folds(dataset, tasks, header, header.seed + repeat) for repeat in range(header.repeats)]
    return PreparedCrossValidation(folder, header, dataset, tasks, np.stack(folds, axis=1), plans)


def assign_test_folds(
    dataset: RepertoireDataset, tasks: list[Task], header: CrossValidationHeader, seed: int
) -> NDArray[np.int64]:
    """Return the index of the test fold of each repertoire, (B,); -1 if it is in none."""
    metadata, group_by, source = dataset.metadata, header.group_by, header.cohort
    if header.left_out is not None:
        return assign_folds_by_value(metadata, tasks, header.left_out, group_by=group_by, source=source)
    return assign_folds(metadata, tasks, n_folds=header.folds, group_by=group_by, seed=seed, source=source)


def plan_cross_validation(header: CrossValidationHeader, dataset: RepertoireDataset) -> dict[str, RunPlan]:
    """Return the runs of a cross-validation by name, such as repeat-0-fold-0-validation-1.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    n_members = header.test_folds.n_validation_folds
    if header.left_out is None and header.folds < 3:
        raise InputError(f"`folds={header.folds}`: expected at least 3")
    if header.repeats < 1:
        raise InputError(f"`repeats={header.repeats}`: expected at least 1")
    if not 1 <= header.members <= n_members:
        raise InputError(f"`members={header.members}`: expected 1 to {n_members}, one for each validation fold")
    _check_n_runs(header)
    if not 0 <= header.seed <= _MAX_SEED - header.repeats + 1:
        raise InputError(f"`seed={header.seed}`: expected 0 to {_MAX_SEED - header.repeats + 1}")
    column = header.left_out
    common: dict[str, Any] = {"group_by": header.group_by, "adjust_for": header.adjust_for}
    values = [] if column is None else list_left_out_values(dataset.metadata, column, header.cohort)
    plans = {}
    for name, run in index_runs(header).items():
        if column is None:
            options = SplitOptions(folds=header.folds, fold=run.fold, validation_fold=run.validation, **common)
        else:
            options = SplitOptions(test=f"{column}={values[run.fold]}", validation_fold=run.validation, **common)
        plans[name] = RunPlan(options, header.seed + run.repeat)
    return plans


def index_runs(header: CrossValidationHeader) -> dict[str, RunIndex]:
    """Return the repeat, the test fold and the validation fold of each run, by name."""
    runs = [
        RunIndex(repeat, fold, member if header.left_out is not None else (fold + 1 + member) % header.folds)
        for repeat in range(header.repeats)
        for fold in range(header.folds)
        for member in range(header.members)
    ]
    return {f"repeat-{run.repeat}-fold-{run.fold}-validation-{run.validation}": run for run in runs}


def holds_cross_validation(folder: Path) -> bool:
    """Return whether a folder is that of a cross-validation."""
    return (folder / _HEADER).is_file()


def read_header(folder: Path) -> CrossValidationHeader:
    """Read `cv.yaml`.

    Raises
    ------
    InputError
        If it is damaged, or of another version.
    """
    file = folder / _HEADER
    body = validate(read_yaml(file), dict[str, Any], str(file))
    check_format((body.get("format"), body.get("version")), FORMAT, VERSION, str(file))
    values = {field.name: body[field.name] for field in fields(CrossValidationHeader) if field.name in body}
    header: CrossValidationHeader = validate(values, CrossValidationHeader, str(file))
    try:
        _check_n_runs(header)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    return header


def _check_n_runs(header: CrossValidationHeader) -> None:
    """Raise InputError if a cross-validation has too many runs: a file may name any number, and all runs are listed."""
    n = header.folds * header.repeats * header.members
    if n > _MAX_RUNS:
        raise InputError(f"folds x repeats x members: expected at most {_MAX_RUNS:,} runs, found {n:,}")


def check_folder(folder: Path, header: CrossValidationHeader) -> None:
    """Raise InputError unless the folder is new, or was written by a call with the same arguments.

    The path of the cohort may differ, because folder and container may have moved: each run compares the content.
    """
    if holds_cross_validation(folder):
        begun = read_header(folder)
        differing = [
            field.name
            for field in fields(CrossValidationHeader)
            if field.name != "cohort" and getattr(begun, field.name) != getattr(header, field.name)
        ]
        if differing and (differing != ["repeats"] or begun.repeats > header.repeats):
            was = _format_value(getattr(begun, differing[0]))
            raise InputError(f"{folder}: was started with `{differing[0]}={was}`; choose another `output`")
        check_links_stay_inside(folder)
    else:
        check_new_folder(folder)


def write_header(folder: Path, header: CrossValidationHeader) -> None:
    """Write `cv.yaml`, and create its folder if needed."""
    with name_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    body = {"format": FORMAT, "version": VERSION, "deeprc": package_version("deeprc"), **vars(header)}
    body |= {"targets": list(header.targets), "adjust_for": list(header.adjust_for)}
    write_text(folder / _HEADER, yaml.safe_dump(to_plain(body), sort_keys=False, allow_unicode=True))


def _format_value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
