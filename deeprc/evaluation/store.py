"""The folder of a benchmark: what was asked, and one small file per job that has ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deeprc.errors import InputError
from deeprc.evaluation.jobs import Job, Outcome
from deeprc.files import check_new_folder, write_text

__all__ = ["FORMAT", "VERSION", "ResultStore", "holds_benchmark", "read_header"]

FORMAT, VERSION = "deeprc-benchmark", 1
_HEADER = "benchmark.yaml"
_SAME = ("content", "target", "group_by", "seed", "n_folds", "folds", "preset")
"""What must not change between the calls that fill one folder: causes before what they change."""
_RESULT = {"search": "validation", "final": "test"}
"""What an outcome of each kind of job holds."""


class ResultStore:
    """Outcomes of jobs by their keys: in files, or, without a folder, in memory.

    Parameters
    ----------
    folder
        Where to keep them; None keeps them in memory.
    header
        What was asked; written as `benchmark.yaml`.
    resume
        Whether the folder may hold outcomes already.

    Raises
    ------
    InputError
        If the folder holds anything and `resume` is not set, or holds the benchmark of something else.
    """

    def __init__(self, folder: Path | None, header: Mapping[str, Any], *, resume: bool = False) -> None:
        self.folder = folder
        self._memory: dict[str, Outcome] = {}
        if folder is None:
            return
        known = read_header(folder) if resume and holds_benchmark(folder) else None
        if known is None:
            check_new_folder(folder, hint="continue it with --resume, or " if holds_benchmark(folder) else "")
            folder.mkdir(parents=True, exist_ok=True)
        for name in _SAME if known else ():
            if known is not None and known.get(name) != header[name]:
                was = "another one" if name in ("content", "folds") else repr(known.get(name))
                what = {
                    "content": "the cohort's content",
                    "folds": "the assignment to folds",
                    "n_folds": "the number of folds",
                }.get(name, name)
                raise InputError(f"{folder}: holds a benchmark in which {what} is {was}; choose another --output")
        methods = {**(known or {}).get("methods", {}), **header["methods"]}
        text = yaml.safe_dump(
            {"format": FORMAT, "version": VERSION, **header, "methods": methods}, sort_keys=False, allow_unicode=True
        )
        write_text(folder / _HEADER, text)

    def get(self, job: Job) -> Outcome | None:
        """Return a job's outcome, None where there is none yet; a damaged file is none."""
        if self.folder is None:
            return self._memory.get(job.key)
        try:
            body = json.loads(self._path(job).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        outcome = body.get("outcome") if isinstance(body, dict) and body.get("key") == job.key else None
        return outcome if isinstance(outcome, dict) and _RESULT[job.kind] in outcome else None

    def put(self, job: Job, outcome: Outcome) -> None:
        """Keep a job's outcome; a failed job is not kept, so that it is tried again."""
        if "error" in outcome:
            return
        if self.folder is None:
            self._memory[job.key] = outcome
            return
        path = self._path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        body = {"key": job.key, "method": job.method, "fold": job.fold, "kind": job.kind, "outcome": outcome}
        write_text(path, json.dumps(body, indent=1) + "\n")

    def _path(self, job: Job) -> Path:
        assert self.folder is not None
        name = re.sub(r"[^\w+-]", "_", job.method) or "_"
        return self.folder / "tasks" / name / f"fold-{job.fold}" / f"{job.kind}-{job.key}.json"


def holds_benchmark(folder: Path) -> bool:
    """Return whether a folder has been begun as a benchmark's."""
    return (folder / _HEADER).is_file()


def read_header(folder: Path) -> dict[str, Any]:
    """Return what `benchmark.yaml` says.

    Raises
    ------
    InputError
        If the folder holds no benchmark, or one of another version.
    """
    file = folder / _HEADER
    try:
        body = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: holds no benchmark (no {_HEADER}); choose another --output") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{file}: is damaged: {' '.join(str(error).split())}") from error
    if not isinstance(body, dict) or (body.get("format"), body.get("version")) != (FORMAT, VERSION):
        raise InputError(f"{file}: expected format {FORMAT!r} version {VERSION}")
    missing = [name for name in (*_SAME, "asked", "methods") if name not in body]
    if missing or not isinstance(body["asked"], list) or not isinstance(body["methods"], dict):
        raise InputError(f"{file}: is damaged: {missing[0] if missing else 'asked or methods'!r} is missing or altered")
    return body
