"""Digests of what a run has learned and found: they show whether a file was changed, or is of another run.

With the split of another run, repertoires from which the model has learned would count as test repertoires.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

from deeprc.documents import check_format, read_json, validate
from deeprc.errors import InputError
from deeprc.files import read_limited, write_text
from deeprc.shift.sketches import SKETCHES_FILE
from deeprc.shift.training_reference import REFERENCE_FILE

__all__ = ["describe_foreign_files", "find_foreign_files", "write_digests"]

_FORMAT, _VERSION = "deeprc-files", 1
_FILE = "files.json"  # in a run directory
_METRICS = "metrics.json"
_NAMES = ("model.safetensors", "splits.json", REFERENCE_FILE, SKETCHES_FILE, "predictions.tsv", _METRICS)
_EXPECTED = "a file of a run"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Digest:
    """The size and the hash of a file."""

    size: int = field(metadata={"low": 0, "high": 2**40})
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> _Digest:
        return cls(len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class _StoredDigests:
    """The content of `files.json`."""

    format: str
    version: int
    files: dict[str, _Digest]


def write_digests(folder: Path, metrics: str) -> None:
    """Write the digests of a run's files; `metrics` is the text of `metrics.json`, which is written last."""
    written = [name for name in _NAMES if name != _METRICS and (folder / name).exists()]  # sketches are optional
    digests = {name: _compute_digest(folder / name) for name in written}
    digests[_METRICS] = _Digest.of(metrics.encode())
    body = {"format": _FORMAT, "version": _VERSION, "files": {name: vars(each) for name, each in digests.items()}}
    write_text(folder / _FILE, json.dumps(body, indent=1) + "\n")


def describe_foreign_files(folder: Path) -> str:
    """Return a message that names the files of `find_foreign_files`; it is empty if there are none."""
    names = ", ".join(find_foreign_files(folder))
    if not names:
        return ""
    return f"{folder}: these files are not as this run wrote them (changed, or of another run): {names}"


def find_foreign_files(folder: Path) -> list[str]:
    """Return the names of files that are not those that the run wrote; missing files are not among them.

    A run of an earlier version has no digests, and a run whose training has not ended has none yet: nothing is known
    about their files. Nor is it if the file of the digests is damaged, which a warning says.
    """
    file = folder / _FILE
    if not (file.exists() and (folder / _METRICS).exists()):
        return []
    try:
        stored: _StoredDigests = validate(read_json(file), _StoredDigests, str(file))
        check_format((stored.format, stored.version), _FORMAT, _VERSION, str(file))
    except InputError as error:
        _logger.warning("%s; so it is not known whether results of this run were changed", error)
        return []
    existing = [name for name in _NAMES if name in stored.files and (folder / name).exists()]
    return [name for name in existing if not _is_unchanged(folder / name, stored.files[name])]


def _is_unchanged(path: Path, digest: _Digest) -> bool:
    """Return whether a file has the digest; a file of another size is not read."""
    return path.stat().st_size == digest.size and _compute_digest(path) == digest


def _compute_digest(path: Path) -> _Digest:
    return _Digest.of(read_limited(path, limit=path.stat().st_size, expected=_EXPECTED))
