"""Bundles: trained models in one file, a zip that `pack.py` writes and `load_run` reads like a run directory.

Bundles may come from strangers. Their members have fixed names, so that no member is written outside the folder into
which the bundle is unpacked; sizes have limits; and the digest of each member is in `bundle.json`. Nothing in a bundle
is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deeprc.documents import abbreviate, check_format, parse_json, shorten_message, validate
from deeprc.errors import InputError
from deeprc.files import check_regular_file, write_atomically
from deeprc.versions import package_version

__all__ = ["CARD", "MAX_BYTES", "REQUIRED", "UnpackedBundle", "name_bundle_in_errors", "unpack_bundle", "write_bundle"]

FORMAT, VERSION = "deeprc-bundle", 1
CARD = "MODEL_CARD.md"
"""File name of the model card."""

_SAVED = ".safetensors"  # ending of files of `save`
_INDEX = "bundle.json"
_MIB = 1 << 20
MAX_BYTES = {
    "config.yaml": _MIB,
    "model.safetensors": 1024 * _MIB,
    "splits.json": _MIB,
    "metrics.json": 16 * _MIB,
    "clones.tsv": 256 * _MIB,
    "shift.json": 64 * _MIB,
    CARD: _MIB,
}
"""Files that a bundle may have, with the largest size of each in bytes."""

REQUIRED = ("config.yaml", "model.safetensors", "splits.json", CARD)
"""Files that every bundle has."""

_MAX_INDEX = _MAX_DIRECTORY = 1 << 16
_END = struct.Struct("<4s8xL6x")  # the last record of a zip without comment: its signature, and the directory's size
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1  # flag of an encrypted member
_PIECE = 1 << 20
_NEW_YEAR = (1980, 1, 1, 0, 0, 0)  # date of all members, so that the same contents give the same bytes
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


@dataclass(frozen=True)
class _Member:
    size: int
    sha256: str


@dataclass(frozen=True)
class _Index:
    """The content of `bundle.json`."""

    format: str
    version: int
    deeprc: str | None
    files: dict[str, _Member]


class UnpackedBundle:
    """A bundle that is unpacked in a private folder, which is deleted with this object or when the process ends.

    Parameters
    ----------
    source
        Path of the bundle.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.folder = Path(tempfile.mkdtemp(prefix="deeprc-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def delete(self) -> None:
        """Delete the folder at once."""
        shutil.rmtree(self.folder, ignore_errors=True)


def write_bundle(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write a bundle from the content of each file, by name; the same contents give the same bytes."""
    assert set(REQUIRED) <= set(contents) <= set(MAX_BYTES)
    files = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in contents.items()}
    index = {"format": FORMAT, "version": VERSION, "deeprc": package_version("deeprc"), "files": files}
    with (
        write_atomically(path) as temporary_path,
        zipfile.ZipFile(temporary_path, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, data in {_INDEX: json.dumps(index, indent=1).encode() + b"\n", **contents}.items():
            archive.writestr(zipfile.ZipInfo(name, _NEW_YEAR), data, zipfile.ZIP_DEFLATED)


def unpack_bundle(path: Path) -> UnpackedBundle:
    """Unpack a bundle into a private folder.

    Raises
    ------
    InputError
        If the file is not a bundle or is damaged, if a member has a name or size that a bundle may not have, or if the
        folder cannot be written.
    """
    check_regular_file(path, expected="a run directory or a file of `deeprc pack`")
    with _translate_write_errors(path):
        unpacked = UnpackedBundle(path)
    try:
        _check_directory_size(path)
        with zipfile.ZipFile(path) as archive:
            members = _list_members(archive)
            index = _read_index(archive, members)
            for name, member in index.files.items():
                _unpack_member(archive, members[name], member, unpacked.folder / name)
    except BaseException as error:
        unpacked.delete()
        if isinstance(error, InputError):
            raise InputError(f"{path}: {error}") from error
        if isinstance(error, _DAMAGED):
            problem = "is neither a run directory nor an intact file of `deeprc pack`"
            remark = (
                "; an estimator that was saved in Python has its own method `load`" if path.suffix == _SAVED else ""
            )
            raise InputError(f"{path}: {problem} ({shorten_message(error)}){remark}") from error
        raise
    return unpacked


@contextmanager
def _translate_write_errors(source: Path | str) -> Iterator[None]:
    """Replace errors of writing into the folder for temporary files by an InputError."""
    try:
        yield
    except OSError as error:
        folder = tempfile.gettempdir() if tempfile.tempdir else "the folder of temporary files"
        raise InputError(f"{source}: cannot be unpacked into {folder}: {error.strerror or error}") from error


def _check_directory_size(path: Path) -> None:
    """Raise BadZipFile unless the file ends with the record of a small directory: Python reads a directory at once."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _END.size, 0))
        record = file.read()
    signature, directory_size = _END.unpack(record) if len(record) == _END.size else (b"", 0)
    if signature != b"PK\5\6" or directory_size > _MAX_DIRECTORY:
        raise zipfile.BadZipFile(f"expected a zip file that ends with a directory of at most {_MAX_DIRECTORY:,} bytes")


def _list_members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name, after a check that a bundle may have them."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename
        if name != _INDEX and name not in MAX_BYTES:
            raise InputError(f"holds {abbreviate(name)}; a bundle has only {_INDEX}, {', '.join(MAX_BYTES)}")
        if name in members:
            raise InputError(f"holds {name} twice")
        if (info.external_attr >> 16) & 0o170000 not in (0, 0o100000):
            raise InputError(f"{name}: is not a regular file")
        if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
            raise InputError(f"{name}: is encrypted, or compressed with a method other than deflate")
        if info.file_size > MAX_BYTES.get(name, _MAX_INDEX):
            raise InputError(f"{name}: is too large; expected at most {MAX_BYTES.get(name, _MAX_INDEX):,} bytes")
        members[name] = info
    return members


def _read_index(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> _Index:
    if _INDEX not in members:
        raise InputError(f"has no {_INDEX}; expected a run directory or a file of `deeprc pack`")
    with archive.open(members[_INDEX]) as file:
        text = file.read(_MAX_INDEX + 1)
    index: _Index = validate(parse_json(text.decode(), source=_INDEX), _Index, _INDEX)
    check_format((index.format, index.version), FORMAT, VERSION, _INDEX)
    listed, held = set(index.files), set(members) - {_INDEX}
    if listed != held or not set(REQUIRED) <= held:
        differing = sorted((listed ^ held) | (set(REQUIRED) - held))
        raise InputError(f"{abbreviate(differing[0])}: is missing, in the bundle or in its {_INDEX}")
    return index


def _unpack_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, expected: _Member, target: Path) -> None:
    """Write one member, piece by piece, and compare its size and digest with the expected ones."""
    digest, size = hashlib.sha256(), 0
    with _translate_write_errors(target.name):
        target.touch()
    with archive.open(info) as source:
        while size <= MAX_BYTES[target.name] and (piece := source.read(_PIECE)):
            digest.update(piece)
            size += len(piece)
            with _translate_write_errors(target.name), target.open("ab") as copy:
                copy.write(piece)
    if (size, digest.hexdigest()) != (expected.size, expected.sha256):
        raise InputError(f"{target.name}: is damaged: its content is not what {_INDEX} says")


@contextmanager
def name_bundle_in_errors(bundle: UnpackedBundle | None) -> Iterator[None]:
    """Let messages name the bundle instead of the folder into which it was unpacked; None changes nothing."""
    try:
        yield
    except InputError as error:
        if bundle is None:
            raise
        raise InputError(str(error).replace(str(bundle.folder), str(bundle.source))) from error
