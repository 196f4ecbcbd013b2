"""The folder of a benchmark, with its settings and one small file for each job that has ended."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
import yaml

from deeprc.benchmarking.jobs import Job, Outcome
from deeprc.benchmarking.search import Setting
from deeprc.documents import (
    NOT_ALLOWED_IN_TEXT,
    AnyFloat,
    abbreviate,
    check_format,
    read_json,
    read_yaml,
    to_plain,
    validate,
)
from deeprc.errors import InputError
from deeprc.evaluation.scoring import choose_scoring
from deeprc.evaluation.scoring_base import Scoring
from deeprc.files import check_links_stay_inside, check_new_folder, name_write_errors, write_text

__all__ = ["BENCHMARK", "FORMAT", "POWER", "VERSION", "ResultStore", "StoreKind", "holds_benchmark", "read_header"]

FORMAT, VERSION = "deeprc-benchmark", 1


class StoreKind(NamedTuple):
    """A kind of folder with outcomes: its name in words, the file with the settings, and the format of this file."""

    words: str
    file_name: str
    format: str


BENCHMARK = StoreKind("benchmark", "benchmark.yaml", FORMAT)
POWER = StoreKind("power analysis", "power.yaml", "deeprc-power")
_SHARED_SETTINGS = {
    "content": "the cohort's content",
    "target": "target",
    "group_by": "group_by",
    "adjust_for": "adjust_for",
    "seed": "seed",
    "n_folds": "the number of folds",
    "folds": "the assignment to folds",
    "preset": "preset",
}
"""Settings that all calls for one folder must share, in words; a setting is listed before those that depend on it."""

_logger = logging.getLogger(__name__)


class ResultStore:
    """Storage for the outcomes of jobs by their keys, in files, or in memory if there is no folder.

    Parameters
    ----------
    folder
        Folder for the files; None keeps outcomes in memory.
    header
        Settings of the benchmark, which are written to `benchmark.yaml`.
    resume
        Whether the folder may already have outcomes.
    kind
        Kind of the folder: `BENCHMARK`, or a folder of such jobs for another purpose.

    Raises
    ------
    InputError
        If the folder is not empty and `resume` is not set, if it has a benchmark with other settings, if a link in it
        leads out of it, or if a path in `header` cannot be written as text.
    """

    def __init__(
        self, folder: Path | None, header: Mapping[str, Any], *, resume: bool = False, kind: StoreKind = BENCHMARK
    ) -> None:
        self.folder = folder
        self._memory: dict[str, Outcome] = {}
        if folder is None:
            return
        self._settings_path = folder / kind.file_name
        for name in ("cohort", "preset"):
            if NOT_ALLOWED_IN_TEXT.search(path := header.get(name, "")):
                expected = f"{kind.file_name} holds this path; expected UTF-8 without control characters"
                raise InputError(f"{abbreviate(path)}: {expected}")
        earlier = read_header(folder, kind) if resume and holds_benchmark(folder, kind) else None
        if earlier is None:
            check_new_folder(folder, hint="continue it with `resume`, or " if holds_benchmark(folder, kind) else "")
            with name_write_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            if resume:
                _logger.info("%s: there is nothing to continue here, so all jobs are run", folder)
        else:
            _check_shared_settings(folder, kind, earlier, header)
            check_links_stay_inside(folder)
        methods = {**(earlier or {}).get("methods", {}), **header["methods"]}
        text = yaml.safe_dump(
            to_plain({"format": kind.format, "version": VERSION, **header, "methods": methods}),
            sort_keys=False,
            allow_unicode=True,
        )
        write_text(self._settings_path, text)

    def get(self, job: Job) -> Outcome | None:
        """Return the outcome of a job; None if it has no file yet, or if the file does not fit the job."""
        if self.folder is None:
            return self._memory.get(job.key)
        path = self._make_path(job)
        try:
            body = validate(read_json(path), dict[str, Any], str(path))
            if body.get("key") != job.key:
                return None
            return _validate_outcome(job, validate(body.get("outcome"), dict[str, Any], str(path)), str(path))
        except InputError:
            return None

    def put(self, job: Job, outcome: Outcome) -> None:
        """Store the outcome of a job; a failed job is not stored, so that it is tried again.

        Raises
        ------
        InputError
            If the folder, or the settings in it, were deleted meanwhile.
        """
        if "error" in outcome:
            return
        if self.folder is None:
            self._memory[job.key] = outcome
            return
        if not self._settings_path.exists():  # without it, nothing can read or continue the results
            raise InputError(f"{self._settings_path}: was deleted while results were written beside it")
        path = self._make_path(job)
        with name_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        about = {"key": job.key, "method": job.method, "fold": job.fold, "kind": job.kind}
        body = to_plain({**about, "outcome": outcome})
        write_text(path, json.dumps(body, indent=1) + "\n", durable=False)  # a lost outcome is computed again

    def _make_path(self, job: Job) -> Path:
        assert self.folder is not None
        name = re.sub(r"[^\w+-]", "_", job.method) or "_"
        return self.folder / "tasks" / name / f"fold-{job.fold}" / f"{job.kind}-{job.key}.json"


def _check_shared_settings(
    folder: Path, kind: StoreKind, earlier: Mapping[str, Any], header: Mapping[str, Any]
) -> None:
    """Raise InputError if the folder was begun with other settings."""
    for name, words in _SHARED_SETTINGS.items():
        if earlier.get(name) != header[name]:
            was = "another one" if name in ("content", "folds") else repr(earlier.get(name))
            raise InputError(f"{folder}: holds a {kind.words} in which {words} is {was}; choose another `output`")


def holds_benchmark(folder: Path, kind: StoreKind = BENCHMARK) -> bool:
    """Return whether a folder has a benchmark, or is of another kind of folder with outcomes, finished or not."""
    return (folder / kind.file_name).is_file()


def read_header(folder: Path, kind: StoreKind = BENCHMARK) -> dict[str, Any]:
    """Return the content of `benchmark.yaml`, or of the settings file of another kind of folder.

    Raises
    ------
    InputError
        If the folder has no benchmark, or one of another version.
    """
    file = folder / kind.file_name
    if not file.exists():
        raise InputError(f"{folder}: holds no {kind.words} (no {kind.file_name}); choose another `output`")
    body: dict[str, Any] = validate(read_yaml(file), dict[str, Any], str(file))
    check_format((body.get("format"), body.get("version")), kind.format, VERSION, str(file))
    validate({name: value for name, value in body.items() if name in _KEYS}, _Header, str(file))
    return body


_COSTS = ("seconds", "cpu_seconds", "peak_memory_mb")
"""Names of the costs of a job; a cost is NaN if it could not be measured."""


def _validate_outcome(job: Job, body: dict[str, Any], where: str) -> Outcome:
    """Return the outcome in the file of a job; raise InputError if it is not an outcome of this job."""
    scoring = choose_scoring(job.task.kind, job.task.classes)
    validation, refit = f"validation_{scoring.measure_name}", f"refit_{scoring.measure_name}"
    names = {*_COSTS, *(("validation",) if job.kind == "search" else ("setting", validation, refit, "test", "members"))}
    if set(body) != names:
        raise InputError(f"{where}: expected {', '.join(sorted(names))}, found {abbreviate(sorted(body))}")
    costs = {name: validate(body[name], AnyFloat, f"{where}: {name}") for name in _COSTS}
    settings = _round_trip_settings(job.settings)
    if job.kind == "search":
        measurements = validate(body["validation"], list[dict[str, Any]], f"{where}: validation")
        if [measurement.get("setting") for measurement in measurements] != settings:
            raise InputError(f"{where}: expected the job's settings")
        values = [
            _validate_measure(measurement.get(scoring.measure_name), scoring, where) for measurement in measurements
        ]
        pairs = zip(settings, values, strict=True)
        return {"validation": [{"setting": setting, scoring.measure_name: value} for setting, value in pairs], **costs}
    if [body["setting"]] != settings:
        raise InputError(f"{where}: expected the job's setting")
    value = _validate_measure(body[validation], scoring, where)
    return {
        "setting": settings[0],
        validation: value,
        refit: None if body[refit] is None else _validate_measure(body[refit], scoring, where),
        "test": _validate_test_predictions(job, body["test"], scoring, where),
        "members": _validate_members(body["members"], len(job.split.test), f"{where}: members"),
        **costs,
    }


def _validate_measure(value: Any, scoring: Scoring, where: str) -> float:
    number: float = validate(value, float, f"{where}: {scoring.measure_name}")
    if number > 1 or (scoring.measure_name == "auc" and number < 0):
        raise InputError(f"{where}: {scoring.measure_name}: expected at most 1, found {number:g}")
    return number


def _validate_test_predictions(job: Job, body: Any, scoring: Scoring, where: str) -> dict[str, list[Any]]:
    """Return the predictions for the test fold; raise InputError if they do not fit the job."""
    numbers = [name for name in scoring.columns if name not in ("method", "fold", "repertoire_id", "label")]
    test = validate(body, dict[str, list[Any]], f"{where}: test")
    expected: list[Any] = job.labels[job.split.test].tolist()
    if job.task.kind == "multiclass":
        expected = [job.task.classes[index] for index in expected]
    if set(test) != {"repertoire_id", "label", *numbers} or test["label"] != expected:
        raise InputError(f"{where}: expected predictions of the job's test fold")
    ids = validate(test["repertoire_id"], list[str], f"{where}: repertoire_id")
    values = {name: validate(test[name], list[AnyFloat], f"{where}: {name}") for name in numbers}
    if any(len(column) != len(expected) for column in (ids, *values.values())) or len(set(ids)) != len(ids):
        raise InputError(f"{where}: expected one prediction for each repertoire of the job's test fold")
    columns = {"repertoire_id": ids, "label": expected, **values}
    scoring.validate(pd.DataFrame({"method": job.method, "fold": job.fold, **columns}))
    return columns


def _validate_members(body: Any, n: int, where: str) -> list[dict[str, Any]]:
    """Return the members of a stack, with n contributions each; raise InputError if they are not valid."""
    members: list[dict[str, Any]] = validate(body, list[dict[str, Any]], where)
    numbers = ("auc", "weight", "share", "intercept")
    for member in members:
        if set(member) != {"member", *numbers, "contributions"}:
            found = abbreviate(sorted(member))
            raise InputError(f"{where}: expected member, {', '.join(numbers)}, contributions, found {found}")
        validate(member["member"], str, where)
        for name in numbers:
            validate(member[name], float, f"{where}: {name}")
        if len(validate(member["contributions"], list[float], where)) != n:
            raise InputError(f"{where}: expected one contribution for each repertoire of the job's test fold")
    return members


def _round_trip_settings(settings: Sequence[Setting]) -> list[Setting]:
    """Return settings as they are after they were written to JSON and read again."""
    read: list[Setting] = json.loads(json.dumps(to_plain(settings)))
    return read


@dataclass(frozen=True)
class _StoredMethod:
    """The entry of a method in `benchmark.yaml`; `estimator` is only shown, and never imported."""

    label: str
    kind: Literal["method", "control", "truth"]
    estimator: str = ""
    fixed: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    trials: int = 1


@dataclass(frozen=True)
class _Header:
    """The content of `benchmark.yaml`; see `deeprc.benchmarking.harness.benchmark`."""

    target: str
    group_by: str | None
    preset: str
    asked: list[str]
    content: str
    folds: str
    n_folds: int = field(metadata={"low": 1, "high": 2**31})
    seed: int = field(metadata={"low": 0, "high": 2**32 - 1})
    methods: dict[str, _StoredMethod]
    deeprc: str = ""
    cohort: str = ""
    classes: list[str] = field(default_factory=list)
    n_repertoires: int = 0
    n_positive: int = 0
    positive_class: str = ""
    left_out: str | None = None
    adjust_for: list[str] | None = None


_KEYS = {field.name for field in fields(_Header)}
