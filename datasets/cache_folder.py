"""The folder `<container>.cache` beside a container: results that were computed from it, and notes about its file."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from deeprc.documents import parse_json, read_text
from deeprc.errors import InputError
from deeprc.files import write_text

__all__ = ["get_cache_folder", "make_cache_folder", "read_cached_json", "write_cached_json"]

_MAX_NOTE_BYTES = 1 << 20


def get_cache_folder(path: Path) -> Path:
    """Return the folder beside a container with the results that were computed from it; it may not exist."""
    return path.with_name(path.name + ".cache")


def make_cache_folder(path: Path) -> Path:
    """Return the folder beside a container; it is made if it does not exist.

    Raises
    ------
    OSError
        If it cannot be made. Also if there is a link, because a container from an unknown source must not choose where
        deeprc writes.
    """
    folder = get_cache_folder(path)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "expected a folder, found a link", str(folder))
    folder.mkdir(exist_ok=True)
    return folder


def read_cached_json(path: Path, name: str) -> Any:
    """Return the content of a JSON file in the folder beside a container; None if there is none that can be used."""
    folder = get_cache_folder(path)
    try:
        text = "null" if folder.is_symlink() else read_text(folder / name, limit=_MAX_NOTE_BYTES)
        return parse_json(text, source=name)
    except InputError:
        return None


def write_cached_json(path: Path, name: str, content: Any) -> None:
    """Write a JSON file into the folder beside a container; a link in its place is replaced, not the file behind it.

    Raises
    ------
    OSError, InputError
        If it cannot be written, or as in `make_cache_folder`.
    """
    file = make_cache_folder(path) / name
    if file.is_symlink():
        file.unlink()
    write_text(file, json.dumps(content) + "\n", durable=False)
