"""Files that a user keeps: written aside and renamed, and never put in the place of something else."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deeprc.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "check_new_folder",
    "check_place",
    "check_table_output",
    "read_table",
    "write_aside",
    "write_safetensors",
    "write_text",
]


def check_new_folder(folder: Path, *, hint: str = "") -> None:
    """Refuse a folder that exists with anything in it, or that cannot be made.

    `hint` is put into the message: what to do instead with what is there.
    """
    if folder.is_dir() and not any(folder.iterdir()):
        _check_writable(folder, folder)
        return
    if folder.exists():
        raise InputError(f"{folder}: exists already; {hint}choose another --output")
    existing = next(parent for parent in folder.absolute().parents if parent.exists())
    if not existing.is_dir():
        raise InputError(f"{folder}: cannot be made, {existing} is no folder")
    _check_writable(existing, folder)


@contextmanager
def write_aside(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path` to write to; it takes the name of `path` when the block ends well.

    Raises
    ------
    InputError
        See `check_place`.
    """
    check_place(path)
    aside = path.with_name(f".{path.name}.partial")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Refuse a path at which no file can be written, before anything is computed; what is there may be replaced.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to, or `path` is a folder.
    """
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; expected the name of a file to write")
    _check_writable(path.parent, path)


def _check_writable(folder: Path, path: Path) -> None:
    """Refuse `path` unless a file can be made in a folder that exists; only trying tells, whatever the modes say."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{path}: the folder {folder} cannot be written to: {error.strerror or error}") from error


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
        If `check_place` refuses the path, or there is anything else there.
    """
    check_place(path)
    if path.exists():
        opener = gzip.open if path.suffix == ".gz" else open
        try:
            with opener(path, "rt", encoding="utf-8") as file:
                header = file.readline().rstrip("\n").split("\t")
        except (OSError, EOFError, UnicodeDecodeError):
            header = []
        if not set(columns) <= set(header):
            raise InputError(f"{path}: exists and is no table of this kind; choose another --output")


def read_table(path: Path, types: Mapping[str, type] | None = None, *, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return a table of tab-separated values that a command has written; only an empty field is missing.

    Parameters
    ----------
    path
        The file.
    types
        Of columns that are not to be guessed.
    columns
        Those that it must have.

    Raises
    ------
    InputError
        If the file is missing, is no table, or has no such column.
    """
    import pandas as pd  # not needed to write files

    try:
        table = pd.read_csv(path, sep="\t", dtype=dict(types or {}), keep_default_na=False, na_values=[""])
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; what should make it has not ended") from None
    except (OSError, ValueError) as error:  # UnicodeDecodeError is a ValueError
        raise InputError(f"{path}: is no table: {' '.join(str(error).split())}") from error
    missing = [name for name in columns if name not in table]
    if missing:
        raise InputError(f"{path}: expected a column {missing[0]!r}, found {', '.join(map(str, table.columns))}")
    return table
