"""Digests of the files of a run: they show whether a file was changed, or is of another run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from deeprc.documents import check_format, read_json, validate
from deeprc.files import read_limited, write_text

__all__ = ["DIGESTS_FILE", "find_foreign_files", "write_digests"]

DIGESTS_FILE = "files.json"
"""The name of the file in a run directory."""

_FORMAT, _VERSION = "deeprc-files", 1
_METRICS = "metrics.json"
_NAMES = (
    *("config.yaml", "model.safetensors", "splits.json", "shift.json", "sketches.safetensors", "checks.json"),
    *("seeds.tsv", "clones.tsv", "composition.tsv", "history.tsv", "warnings.json", "predictions.tsv", _METRICS),
)
_EXPECTED = "a file of a run"


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
    contents = {
        name: read_limited(folder / name, limit=(folder / name).stat().st_size, expected=_EXPECTED)
        for name in _NAMES
        if name != _METRICS and (folder / name).exists()
    }
    digests = {name: vars(_Digest.of(content)) for name, content in {**contents, _METRICS: metrics.encode()}.items()}
    body = {"format": _FORMAT, "version": _VERSION, "files": digests}
    write_text(folder / DIGESTS_FILE, json.dumps(body, indent=1) + "\n")


def find_foreign_files(folder: Path) -> list[str]:
    """Return the names of files that are not those that the run wrote; missing files are not among them.

    A run of an earlier version has no digests, and a run whose training has not ended has none yet: nothing is known
    about their files.

    Raises
    ------
    InputError
        If the file of the digests is damaged, or another file cannot be read.
    """
    file = folder / DIGESTS_FILE
    if not (file.exists() and (folder / _METRICS).exists()):
        return []
    stored: _StoredDigests = validate(read_json(file), _StoredDigests, str(file))
    check_format((stored.format, stored.version), _FORMAT, _VERSION, str(file))
    existing = [name for name in _NAMES if name in stored.files and (folder / name).exists()]
    return [name for name in existing if not _is_unchanged(folder / name, stored.files[name])]


def _is_unchanged(path: Path, digest: _Digest) -> bool:
    """Return whether a file has the digest; a file of another size is not read."""
    if path.stat().st_size != digest.size:
        return False
    return _Digest.of(read_limited(path, limit=digest.size, expected=_EXPECTED)) == digest
