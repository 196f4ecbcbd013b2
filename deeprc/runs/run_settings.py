"""Settings of a run, `config.yaml`: the configuration, the targets, the options of the split, and the seed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from deeprc.calibration import IDENTITY
from deeprc.config import Config, config_from_mapping
from deeprc.documents import NOT_ALLOWED_IN_TEXT, abbreviate, check_format, read_yaml, to_plain, validate
from deeprc.errors import InputError
from deeprc.evaluation.splits import MAX_FOLDS, SplitOptions
from deeprc.tasks import LARGEST_NUMBER, Task
from deeprc.versions import package_version

__all__ = ["FORMAT", "VERSION", "RunSettings", "format_cohort_path", "read_settings"]

FORMAT = "deeprc-run"
VERSION = 2

_N_NAMED = 3  # number of runs that an error message names


@dataclass(frozen=True)
class RunSettings:
    """The content of `config.yaml`: everything that determines the result of a run, except the content of the cohort.

    Attributes
    ----------
    cohort, fingerprint
        Path of the container, and hash of the content that must not change while training is interrupted.
    targets
        Texts of the targets, as the user wrote them.
    tasks
        Tasks of the targets, with the mean and scale of the training fold.
    split_options
        Options of the split of the cohort.
    seed, device
        Arguments of `deeprc train`.
    config
        Configuration of network and training.
    split_columns
        Hash of each metadata column that the split or the training reads besides the targets, by name; empty for a run
        of an earlier version.
    """

    cohort: str
    fingerprint: str
    targets: tuple[str, ...]
    tasks: tuple[Task, ...]
    split_options: SplitOptions
    seed: int
    device: str
    config: Config
    split_columns: Mapping[str, str] = field(default_factory=dict)

    def to_yaml(self) -> str:
        """Return the text of `config.yaml`."""
        options = vars(self.split_options)
        flat = {
            "cohort": self.cohort,
            "fingerprint": self.fingerprint,
            **{name: value for name, value in options.items() if name != "adjust_for"},
            "seed": self.seed,
            "device": self.device,
            "targets": list(self.targets),
            "adjust_for": list(self.split_options.adjust_for),
            "split_columns": dict(self.split_columns),
            "tasks": [_describe_task(task) for task in self.tasks],
        }
        origin = {"format": FORMAT, "version": VERSION, "deeprc": package_version("deeprc")}
        body = {**origin, **flat, **self.config.to_mapping()}
        return yaml.safe_dump(to_plain(body), sort_keys=False, allow_unicode=True)


def _describe_task(task: Task) -> dict[str, Any]:
    """Return a task for `config.yaml`, without its calibration, which is in the file of the weights."""
    described = {**asdict(task), "classes": list(task.classes)}
    del described["calibration"]
    return described


def format_cohort_path(cohort: str | os.PathLike[str]) -> str:
    """Return the absolute path of a container as a text that `config.yaml` can hold.

    Raises
    ------
    InputError
        If the path is not UTF-8, or has control characters: a run whose file names it could not be read.
    """
    text = str(Path(cohort).absolute())
    if NOT_ALLOWED_IN_TEXT.search(text):
        raise InputError(
            f"{abbreviate(text)}: a run notes the path of its container; expected UTF-8 without control characters"
        )
    return text


def read_settings(path: Path) -> RunSettings:
    """Read the `config.yaml` of a run directory.

    Raises
    ------
    InputError
        If it is missing, damaged or of another version.
    """
    file = path / "config.yaml"
    if not file.exists():
        raise InputError(_explain_missing_settings(path))
    body = validate(read_yaml(file), dict[str, Any], str(file))
    check_format((body.get("format"), body.get("version")), FORMAT, VERSION, str(file))
    missing = [name for name in ("network", "training") if name not in body]
    if missing:
        raise InputError(f"{file}: {missing[0]}: is missing")
    settings = {name: validate(body[name], dict[str, Any], f"{file}: {name}") for name in ("network", "training")}
    config = config_from_mapping(settings, source=str(file))
    stored: _StoredSettings = validate({name: body[name] for name in _KEYS if name in body}, _StoredSettings, str(file))
    _check_tasks(stored.tasks, f"{file}: tasks")
    is_out_of_range = stored.fold >= stored.folds or (stored.validation_fold or 0) >= stored.folds
    has_test_fold = stored.test is None  # otherwise the test repertoires are those of a metadata value
    if is_out_of_range or (has_test_fold and stored.validation_fold == stored.fold):
        fold_numbers = f"{stored.fold} and {stored.validation_fold}"
        raise InputError(
            f"{file}: expected two folds of {stored.folds} to test and to validate on, found {fold_numbers}"
        )
    return stored.to_settings(config, str(file))


def find_runs(folder: Path) -> list[Path]:
    """Return the run directories in a folder, sorted by name; the training of some may not have ended."""
    return sorted(file.parent for file in folder.glob("*/config.yaml") if (file.parent / "splits.json").exists())


def _explain_missing_settings(path: Path) -> str:
    """Return a message for a folder without `config.yaml`: what it is, if it is another result of deeprc."""
    if not path.exists():
        return f"{path}: no such file or folder; expected a run made by `deeprc train`"
    if (path / "cv.yaml").exists():
        return f"{path}: is a cross-validation; its runs are the folders in {path / 'runs'}"
    if (path / "benchmark.yaml").exists():
        return f"{path}: is a benchmark, which keeps no trained run; train one with `deeprc train`"
    runs = [run.name for run in find_runs(path)]
    if runs:
        others = ", ..." if len(runs) > _N_NAMED else ""
        return f"{path}: is not a run directory; runs are in it: {', '.join(runs[:_N_NAMED])}{others}"
    return f"{path}: is not a run directory (no config.yaml); expected one made by `deeprc train`"


@dataclass(frozen=True)
class _StoredSettings:
    """The content of `config.yaml` except the configuration; see `RunSettings`."""

    cohort: str
    fingerprint: str
    targets: tuple[str, ...]
    tasks: tuple[Task, ...]
    folds: int = field(metadata={"low": 3, "high": MAX_FOLDS})
    fold: int = field(metadata={"low": 0, "high": 2**31})
    group_by: str | None
    seed: int = field(metadata={"low": 0, "high": 2**32 - 1})
    device: str
    validation_fold: int | None = field(default=None, metadata={"low": 0, "high": 2**31})  # earlier versions lack it
    test: str | None = None  # likewise
    adjust_for: tuple[str, ...] = ()  # likewise
    split_columns: dict[str, str] = field(default_factory=dict)  # likewise

    def to_settings(self, config: Config, source: str) -> RunSettings:
        """Return the settings of the run; InputError, which names the file `source`, if its split is not possible."""
        try:
            options = SplitOptions(**{field.name: getattr(self, field.name) for field in fields(SplitOptions)})
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
        return RunSettings(
            self.cohort,
            self.fingerprint,
            self.targets,
            self.tasks,
            options,
            self.seed,
            self.device,
            config,
            self.split_columns,
        )


_KEYS = tuple(field.name for field in fields(_StoredSettings))


def _check_tasks(tasks: Sequence[Task], source: str) -> None:
    """Raise InputError if tasks cannot be from a training: without classes, with a weight below 0, twice the same."""
    if not tasks or len({task.name for task in tasks}) < len(tasks):
        raise InputError(f"{source}: expected different targets, found {abbreviate([task.name for task in tasks])}")
    for task in tasks:
        n, is_number = len(task.classes), task.kind == "regression"
        has_several_classes = n >= 2 and len(set(task.classes)) == n
        has_expected_classes = n == 0 if is_number else has_several_classes
        if not has_expected_classes:
            expected = "no classes" if is_number else "different classes, at least 2"
            raise InputError(f"{source}: {task.kind} target {abbreviate(task.name)}: expected {expected}, found {n}")
        if task.calibration != IDENTITY:
            raise InputError(f"{source}: target {abbreviate(task.name)}: expected no calibration here")
        top = LARGEST_NUMBER
        if not (0 <= task.weight <= top and abs(task.mean) <= top and 1 / top <= task.scale <= top):
            numbers = f"weight {task.weight:g}, mean {task.mean:g}, scale {task.scale:g}"
            raise InputError(
                f"{source}: target {abbreviate(task.name)}: {numbers}: expected a weight of at least 0 and a scale "
                "above 0"
            )
