"""The outcomes of the jobs of `accuracy.py` in a folder, and the checkpoints of jobs that have not ended."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accuracy_cohorts import make_file_name

from deeprc.files import write_text

__all__ = ["FORMAT", "VERSION", "Outcome", "Results"]

FORMAT, VERSION = "deeprc-accuracy", 4

Outcome = dict[str, Any]


class Results:
    """Storage of outcomes: one small JSON file for each job that has ended, and checkpoints of those that have not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, place: Mapping[str, Any], key: str) -> Outcome | None:
        """Return the outcome of a job; None if there is no complete file."""
        try:
            body = json.loads(self._make_path(place, key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        found = body.get("outcome") if isinstance(body, dict) and body.get("key") == key else None
        return found if isinstance(found, dict) and "auc" in found else None

    def put(self, place: Mapping[str, Any], key: str, outcome: Outcome) -> None:
        """Store the outcome of a job, and remove its checkpoints."""
        path = self._make_path(place, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        body = {"format": FORMAT, "version": VERSION, "key": key, **place, "outcome": outcome}
        write_text(path, json.dumps(body, indent=1) + "\n")
        self.forget_checkpoints(place, key)

    def locate_checkpoints(self, place: Mapping[str, Any], key: str) -> Path:
        """Return the folder for the checkpoints of a job's trainings, so that a killed job continues."""
        return self._make_path(place, key).with_suffix(".checkpoints")

    def forget_checkpoints(self, place: Mapping[str, Any], key: str) -> None:
        """Remove the checkpoints of a job that has ended or failed."""
        shutil.rmtree(self.locate_checkpoints(place, key), ignore_errors=True)

    def _make_path(self, place: Mapping[str, Any], key: str) -> Path:
        name = f"{place['entry']}-seed-{place['seed']}-fold-{place['fold']}-{key}.json"
        return self.folder / make_file_name(str(place["cohort"])) / name
