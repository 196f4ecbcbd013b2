"""Files that a user keeps: written aside and renamed, and never put in the place of something else.

Whatever is not complete lies in a hidden folder beside its place. A process that is killed leaves it there; the next
one that writes to the same place deletes it. What cannot be written is a `WriteError` that names the place.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from deeprc.errors import InputError, WriteError
from deeprc.locks import is_at, take_lock

__all__ = [
    "NO_ROOM",
    "FileStamp",
    "check_new_folder",
    "check_place",
    "check_regular_file",
    "check_table_output",
    "folder_beside",
    "name_write_errors",
    "read_limited",
    "replace_file",
    "write_aside",
    "write_safetensors",
    "write_text",
]

_SUFFIX, _LOCK = ".tmp", ".lock"
_LONGEST_PREFIX = 60
"""Letters of a name that begin the hidden folder's: names of more than 255 bytes are not allowed."""

_MOST_LINKS = 40
_LONGEST_HEADER = 1 << 20
NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS})
"""Errors that only writing has."""

_UNSYNCED = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""Of file systems that cannot be told to write now."""


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class FileStamp(NamedTuple):
    """What tells whether a file is still the one that was looked at before.

    Attributes
    ----------
    inode
        The file's number in its file system.
    size
        In bytes.
    changed, status_changed
        Times of change of its content and of its entry, in nanoseconds; the second cannot be set by whoever made the
        file (on Windows it is the time of creation).
    """

    inode: int
    size: int
    changed: int
    status_changed: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """Return the stamp of a file as it is now."""
        status = path.stat()
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def check_regular_file(path: Path, *, expected: str = "a regular file") -> None:
    """Refuse what is no regular file, without opening it: to open a pipe waits for a writer, a device may never end.

    Links are followed. `expected` says in the message what should be there.

    Raises
    ------
    InputError
        If there is nothing at `path`, or a folder, a pipe (also `/dev/stdin` and `<(...)` of a shell), a socket or a
        device.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected {expected}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        hint = "; write its content to a file first" if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) else ""
        raise InputError(f"{path}: is {kind}; expected {expected}{hint}")


def read_limited(path: Path, *, limit: int, expected: str) -> bytes:
    """Return what a regular file of at most `limit` bytes holds.

    Raises
    ------
    InputError
        If it is no regular file, cannot be read, or is larger; `expected` says in the message what should be there.
    """
    check_regular_file(path, expected=expected)
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > limit:
        raise InputError(f"{path}: is too large; expected {expected} of at most {limit:,} bytes")
    return content


def check_new_folder(folder: Path, *, hint: str = "") -> None:
    """Refuse a folder that exists with anything in it, or that cannot be made.

    `hint` is put into the message: what to do instead with what is there.
    """
    if folder.is_dir() and not any(folder.iterdir()):
        _check_writable(folder, folder)
        return
    if folder.exists():
        raise InputError(f"{folder}: exists already; {hint}choose another `output`")
    existing = next(parent for parent in folder.absolute().parents if parent.exists())
    if not existing.is_dir():
        raise InputError(f"{folder}: cannot be made, {existing} is no folder")
    _check_writable(existing, folder)


@contextmanager
def write_aside(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Give a temporary name to write to; the file takes the name of `path` when the block ends well.

    Parameters
    ----------
    path
        The file; what a link stands for is replaced, not the link.
    durable
        Wait until the disk has the file, see `replace_file`: some milliseconds. Files that can be computed again, and
        of which a damaged one is found out, can do without.

    Raises
    ------
    InputError
        See `check_place`.
    WriteError
        If the file cannot be written; what was there before is there still.
    """
    check_place(path)
    place = Path(os.path.realpath(path))
    with name_write_errors(path), folder_beside(place) as folder:
        yield folder / place.name
        replace_file(folder / place.name, place, durable=durable)


@contextmanager
def folder_beside(place: Path) -> Iterator[Path]:
    """Give a new hidden folder beside `place` for what will get its name; it is deleted when the block ends.

    So are those that processes have left which were killed while they wrote to `place`: a process holds a lock on a
    file in its folder as long as it lives.

    Raises
    ------
    OSError
        If no folder can be made there.
    """
    prefix = _hidden(place)
    _delete_leftovers(place.parent, prefix)
    folder, lock = _make_locked(place.parent, prefix)
    try:
        yield folder
    finally:
        lock.close()  # first, because Windows deletes no open files
        shutil.rmtree(folder, ignore_errors=True)


def _make_locked(parent: Path, prefix: str) -> tuple[Path, IO[bytes]]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=parent))
        try:
            lock = (folder / _LOCK).open("wb")
        except FileNotFoundError:  # another process took the empty folder for a leftover
            continue
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if take_lock(lock) is not False and is_at(lock, folder / _LOCK):
            return folder, lock
        lock.close()


def _delete_leftovers(parent: Path, prefix: str) -> None:
    """Delete the hidden folders of a place whose processes have ended."""
    pattern = re.compile(re.escape(prefix) + "[a-z0-9_]{8}" + re.escape(_SUFFIX))  # tempfile's random names
    for folder in [parent / name for name in os.listdir(parent) if pattern.fullmatch(name)]:
        with contextlib.suppress(OSError):  # another process deletes it, or it is another user's
            if not os.listdir(folder):
                folder.rmdir()
                continue
            with (folder / _LOCK).open("r+b") as lock:
                if take_lock(lock):
                    shutil.rmtree(folder, ignore_errors=True)


def replace_file(aside: Path, path: Path, *, durable: bool = True) -> None:
    """Give a complete file the name `path`, in the place of what has it.

    Where the machine crashes, a durable one is there whole, or what was there before; else it may be empty.
    """
    if durable:
        with aside.open("r+b") as file:
            _wait_for_disk(file.fileno())
    aside.replace(path)
    if durable:
        with contextlib.suppress(OSError):  # Windows opens no folders, and not every file system syncs them
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _wait_for_disk(file: int) -> None:
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _UNSYNCED:
            raise


@contextmanager
def name_write_errors(path: Path) -> Iterator[None]:
    """Turn the error of a full disk and the like into one that names `path`, the file or folder that is written.

    Errors that name a file elsewhere stay as they are.

    Raises
    ------
    WriteError
        In the place of an `OSError` of writing, and of a `WriteError` that names a part of `path`.
    InputError
        In the place of an `OSError` that names no file and may be of one that is read.
    """
    try:
        yield
    except OSError as error:
        given = error.filename
        named = Path(os.path.realpath(os.fsdecode(given))) if isinstance(given, str | bytes) else None
        if named is not None and not _is_near(named, path):
            raise
        if named is None and _code(error) not in NO_ROOM:
            raise InputError(f"while writing {path}: {_reason(error)}") from error
        raise WriteError(path, _reason(error)) from error
    except WriteError as error:
        if error.path == path or not _is_near(Path(os.path.realpath(error.path)), path):
            raise
        raise WriteError(path, error.reason) from error


def _is_near(file: Path, path: Path) -> bool:
    """Return whether a file is `path`, in it, a folder above it, or in a hidden folder beside it."""
    place = Path(os.path.realpath(path))
    in_line = file.is_relative_to(place) or place.is_relative_to(file)
    return in_line or any(part.startswith(_hidden(place)) for part in file.parts)


def _hidden(place: Path) -> str:
    """Return how the names of the hidden folders beside a place begin."""
    return f".{place.name[:_LONGEST_PREFIX]}."


def _reason(error: OSError) -> str:
    """Return why something could not be written, in the system's words where they are known."""
    code = _code(error)
    return os.strerror(code) if code else " ".join(str(error).split())


def _code(error: OSError) -> int:
    """Return the system's number of an error, 0 where it is not known."""
    known = re.search(r"(?:os error|errno =) (\d+)", str(error))  # safetensors' and HDF5's way to say it
    return error.errno or int(known[1] if known else 0)


def check_place(path: Path) -> None:
    """Refuse a path at which no file can be written, before anything is computed; what is there may be replaced.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to, or `path` is a folder, a device or a pipe.
    """
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; expected the name of a file to write")
    if _is_special(path):
        raise InputError(f"{path}: is a device or a pipe; expected the name of a file to write")
    _check_writable(Path(os.path.realpath(path)).parent, path)


def _is_special(path: Path) -> bool:
    """Return whether a path is a device, a pipe or the like, or stands for what a process has open, as /dev/stdout."""
    if path.exists() and not path.is_file():
        return True
    for _ in range(_MOST_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        if path.is_relative_to("/proc") or path.is_relative_to("/dev/fd"):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / path.readlink()
    return True


def _check_writable(folder: Path, path: Path) -> None:
    """Refuse `path` unless a file can be made in a folder that exists; only trying tells, whatever the modes say."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{path}: the folder {folder} cannot be written to: {error.strerror or error}") from error


def write_safetensors(path: Path, save: Callable[[Path], None]) -> None:
    """Write a safetensors file aside by `save` and rename it; with the mode of any other file, not its owner's only.

    Raises
    ------
    WriteError
        As `write_aside`.
    """
    from safetensors import SafetensorError  # not needed to write other files

    with write_aside(path) as aside:
        aside.touch()
        mode = aside.stat().st_mode
        try:
            save(aside)
        except SafetensorError as error:  # the disk is full, say
            raise OSError(str(error)) from error
        aside.chmod(mode)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a text file aside and rename it, so that it is never seen half-written; see `write_aside`."""
    with write_aside(path, durable=durable) as aside:
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
                header = file.readline(_LONGEST_HEADER).rstrip("\n").split("\t")
        except (OSError, EOFError, UnicodeDecodeError, zlib.error):
            header = []
        if not set(columns) <= set(header):
            raise InputError(f"{path}: exists and is no table of this kind; choose another `output`")
