"""Warnings as data: what a reader must know before a result is believed, kept beside the result as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from deeprc.documents import abbreviate, read_json, validate
from deeprc.errors import InputError
from deeprc.files import write_text

__all__ = ["CAUTIONS_FILE", "Caution", "read_cautions", "write_cautions"]

CAUTIONS_FILE = "warnings.json"
"""Its name in the folder of a run or a benchmark."""

_FORMAT, _VERSION = "deeprc-warnings", 1


@dataclass(frozen=True)
class Caution:
    """Something to know before a result is believed.

    Attributes
    ----------
    level
        "warning" where it may change what a reader concludes, "note" otherwise.
    text
        In sentences.
    section
        The id of the report's section that shows more.
    name
        Its kind, as "subjects-apart".
    details
        The numbers and names in the text, for programs.
    """

    level: Literal["warning", "note"]
    text: str
    section: str = ""
    name: str = ""
    details: dict[str, Any] = field(default_factory=dict)


def write_cautions(folder: Path, cautions: Iterable[Caution]) -> None:
    """Write `warnings.json`, aside first, then renamed."""
    body = {"format": _FORMAT, "version": _VERSION, "warnings": [asdict(each) for each in cautions]}
    write_text(folder / CAUTIONS_FILE, json.dumps(body, indent=1, ensure_ascii=False) + "\n")


def read_cautions(folder: Path) -> Sequence[Caution]:
    """Return what `write_cautions` wrote; nothing where a folder of an earlier version has no such file.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    file = folder / CAUTIONS_FILE
    if not file.exists():
        return []
    stored: _Stored = validate(read_json(file), _Stored, str(file))
    if (stored.format, stored.version) != (_FORMAT, _VERSION):
        seen = f"{abbreviate(stored.format)} version {stored.version}"
        raise InputError(f"{file}: expected format {_FORMAT!r} version {_VERSION}, found {seen}")
    return stored.warnings


@dataclass(frozen=True)
class _Stored:
    """What the file holds."""

    format: str
    version: int
    warnings: list[Caution]
