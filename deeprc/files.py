"""Files that a user keeps: written aside and renamed, and never put in the place of something else."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deeprc.errors import InputError

__all__ = ["check_new_folder", "check_table_output", "write_aside", "write_safetensors", "write_text"]


def check_new_folder(folder: Path, *, hint: str = "") -> None:
    """Refuse a folder that exists with anything in it, or that cannot be made.

    `hint` is put into the message: what to do instead with what is there.
    """
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise InputError(f"{folder}: exists already; {hint}choose another --output")
    existing = next(parent for parent in folder.absolute().parents if parent.exists())
    if not existing.is_dir():
        raise InputError(f"{folder}: cannot be made, {existing} is no folder")


@contextmanager
def write_aside(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path` to write to; it takes the name of `path` when the block ends well.

    Raises
    ------
    InputError
        If the folder does not exist or `path` is a folder.
    """
    _check_place(path)
    aside = path.with_name(f".{path.name}.partial")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; expected the name of a file to write")


def write_safetensors(path: Path, save: Callable[[Path], None]) -> None:
    """Write a safetensors file aside by `save` and rename it; with the mode of any other file, not its owner's only."""
    with write_aside(path) as aside:
        aside.touch()
        mode = aside.stat().st_mode
        save(aside)
        aside.chmod(mode)


def write_text(path: Path, text: str) -> None:
    """Write a text file aside and rename it, so that it is never seen half-written."""
    with write_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def check_table_output(path: Path, columns: Sequence[str]) -> None:
    """Refuse a path at which a table cannot be written, before anything is computed.

    An existing file is replaced only if it is a table of the same kind: one whose header has all of `columns`.

    Raises
    ------
    InputError
        If the folder does not exist, or there is anything else at `path`.
    """
    _check_place(path)
    if path.exists():
        opener = gzip.open if path.suffix == ".gz" else open
        try:
            with opener(path, "rt", encoding="utf-8") as file:
                header = file.readline().rstrip("\n").split("\t")
        except (OSError, EOFError, UnicodeDecodeError):
            header = []
        if not set(columns) <= set(header):
            raise InputError(f"{path}: exists and is no table of this kind; choose another --output")
