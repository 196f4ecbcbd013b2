"""Warnings about a result, as data: reasons to doubt it, stored with the result as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from deeprc.documents import check_format, read_json, validate
from deeprc.files import write_text

__all__ = ["CAUTIONS_FILE", "Caution", "read_cautions", "write_cautions"]

CAUTIONS_FILE = "warnings.json"
"""The name of the file in the folder of a run or a benchmark."""

_FORMAT, _VERSION = "deeprc-warnings", 1


@dataclass(frozen=True)
class Caution:
    """A warning or note that a reader should know before believing a result.

    Attributes
    ----------
    level
        "warning" if it may change what a reader concludes, otherwise "note".
    text
        The warning in sentences.
    section
        The id of the section of the report that shows more.
    name
        The kind of the warning, such as "subjects-apart".
    details
        The numbers and names that the text mentions, for programs.
    """

    level: Literal["warning", "note"]
    text: str
    section: str = ""
    name: str = ""
    details: dict[str, Any] = field(default_factory=dict)


def write_cautions(folder: Path, cautions: Iterable[Caution]) -> None:
    """Write `warnings.json`; an earlier file stays until the new one is complete."""
    body = {"format": _FORMAT, "version": _VERSION, "warnings": [asdict(caution) for caution in cautions]}
    write_text(folder / CAUTIONS_FILE, json.dumps(body, indent=1, ensure_ascii=False) + "\n")


def read_cautions(folder: Path) -> Sequence[Caution]:
    """Read `warnings.json`; a folder of an earlier version without this file has no warnings.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    file = folder / CAUTIONS_FILE
    if not file.exists():
        return []
    stored: _StoredCautions = validate(read_json(file), _StoredCautions, str(file))
    check_format((stored.format, stored.version), _FORMAT, _VERSION, str(file))
    return stored.warnings


@dataclass(frozen=True)
class _StoredCautions:
    """The content of `warnings.json`."""

    format: str
    version: int
    warnings: list[Caution]
