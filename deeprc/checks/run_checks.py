"""The check of the repertoires that a run is trained on: it is logged, and kept in the run directory as data.

Letters: B repertoires.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeprc.checks.container import check_dataset
from deeprc.checks.findings import Finding
from deeprc.checks.shortcuts import Shortcut
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import check_format, read_json, validate
from deeprc.evaluation.donors import DonorColumn
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task

__all__ = ["CHECKS_FILE", "RunChecks", "check_for_training", "read_checks"]

CHECKS_FILE = "checks.json"
"""The name of the file in a run directory."""

_FORMAT, _VERSION = "deeprc-checks", 1
_SAID_BY_TRAINING = frozenset({"repeated-subject"})  # training says more: whether they are in several parts


@dataclass(frozen=True)
class RunChecks:
    """The result of a check of the repertoires that have a label for one of a run's targets.

    Attributes
    ----------
    findings
        The findings, errors first.
    shortcuts
        Predictions of the labels by properties that need no receptor sequence, one `Shortcut` each.
    donor_column
        Column of the metadata that names the donor of each repertoire; None if there is none.
    metadata
        The digest of the metadata that was checked.
    """

    findings: tuple[Finding, ...]
    shortcuts: tuple[Shortcut, ...] = ()
    donor_column: str | None = None
    metadata: str | None = None

    @property
    def warnings(self) -> list[Finding]:
        """The findings that may change what a reader concludes from the run."""
        return [
            finding for finding in self.findings if finding.severity != "note" and finding.code not in _SAID_BY_TRAINING
        ]

    def is_current(self, dataset: RepertoireDataset) -> bool:
        """Return whether the metadata of a dataset are those that were checked."""
        return self.metadata == _digest_metadata(dataset)

    def log(self, logger: logging.Logger) -> None:
        """Log the warnings, one line each."""
        for finding in self.warnings:
            logger.warning("%s: %s", finding.code, finding.message)
        if self.warnings:
            logger.warning("`deeprc check` says what to do about these findings, and lists all names")

    def to_json(self) -> str:
        """Return the text of `checks.json`."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "subject_column": self.donor_column,
            "metadata": self.metadata,
            "findings": [finding.to_dict() for finding in self.findings],
            "shortcuts": [shortcut.to_dict() for shortcut in self.shortcuts],
        }
        return json.dumps(content, indent=1) + "\n"


def check_for_training(dataset: RepertoireDataset, tasks: Sequence[Task], group_by: str | None) -> RunChecks:
    """Check the repertoires of a dataset that have a label for any of the targets; see `check_dataset`.

    Other columns of the metadata that look like labels are not checked. Targets whose column a new cohort lacks are
    left out.
    """
    tasks = [task for task in tasks if task.column in dataset.metadata]
    labelled = dataset[np.flatnonzero(~np.isnan(encode_labels(tasks, dataset.metadata)).all(axis=1))]
    if group_by is not None and group_by not in dataset.metadata:
        group_by = None  # a run on another cohort
    check = check_dataset(labelled, tasks=tasks, group_by=group_by)
    column = DonorColumn.choose(dataset.metadata, group_by).name
    return RunChecks(check.findings, check.shortcuts, column, _digest_metadata(dataset))


def _digest_metadata(dataset: RepertoireDataset) -> str:
    """Return a digest of the metadata, which `deeprc relabel` changes."""
    return hashlib.sha256(dataset.metadata.to_csv(index=False).encode()).hexdigest()


def read_checks(run: Path) -> RunChecks | None:
    """Read `checks.json` of a run directory; None if it does not exist, as in runs of earlier versions.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    path = run / CHECKS_FILE
    if not path.exists():
        return None
    content: dict[str, Any] = validate(read_json(path), dict[str, Any], str(path))
    check_format((content.pop("format", None), content.pop("version", None)), _FORMAT, _VERSION, str(path))
    stored: _StoredChecks = validate(content, _StoredChecks, str(path))
    findings = tuple(
        Finding.from_dict(values, f"{path}: findings[{index}]") for index, values in enumerate(stored.findings)
    )
    return RunChecks(findings, stored.shortcuts, stored.subject_column, stored.metadata)


@dataclass(frozen=True)
class _StoredChecks:
    """The content of `checks.json` besides its format and version; see `RunChecks`."""

    subject_column: str | None
    findings: tuple[Any, ...]
    shortcuts: tuple[Shortcut, ...]
    metadata: str | None = None
