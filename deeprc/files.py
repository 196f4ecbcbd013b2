"""Checks of paths before they are read or written, and writing of files so that nobody ever sees a half-written one.

A file is written into a hidden folder beside its final path, and renamed when it is complete. It never replaces a file
of another kind. A process that is killed leaves its hidden folder; the next process that writes to the same path
deletes it. If a file cannot be written, a `WriteError` names its final path.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from deeprc.errors import InputError, WriteError
from deeprc.hidden_folders import make_hidden_prefix, temporary_folder

__all__ = [
    "WRITE_ERROR_CODES",
    "FileStamp",
    "allow_open_files",
    "check_links_stay_inside",
    "check_new_folder",
    "check_output_path",
    "check_regular_file",
    "check_table_output",
    "name_write_errors",
    "read_limited",
    "replace_file",
    "write_atomically",
    "write_safetensors",
    "write_text",
]

_MAX_LINKS = 40
_OTHER_FILES = 256
"""Number of files that a process may open besides those that it has asked for, see `allow_open_files`."""
_MAX_HEADER = 1 << 20
_OTHER_ENDINGS = frozenset(
    [".csv", ".xls", ".xlsx", ".ods", ".json", ".html", ".h5", ".hdf5", ".parquet", ".pdf", ".png", ".svg", ".zip"]
)
"""Endings of files that are no tab-separated tables."""
WRITE_ERROR_CODES = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS})
"""Error codes of the system that only writing can cause."""

_NO_FSYNC_CODES = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""Error codes of file systems that do not support `fsync`."""


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class FileStamp(NamedTuple):
    """Properties that show whether a file has changed since it was read.

    Attributes
    ----------
    inode
        Number of the file in its file system.
    size
        Size in bytes.
    changed, status_changed
        Times when the content (mtime) and the status (ctime) last changed, in nanoseconds. A user cannot set the second
        one. (On Windows it is the time of creation.)
    """

    inode: int
    size: int
    changed: int
    status_changed: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """Return the present stamp of a file."""
        status = path.stat()
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def check_regular_file(path: Path, *, expected: str = "a regular file") -> None:
    """Check that a path is a regular file, without opening it.

    To open a pipe could take for ever, and a device may have no end. Links are followed. The message names the
    `expected` kind of file.

    Raises
    ------
    InputError
        If there is nothing at `path`, or if it is a folder, a pipe (also `/dev/stdin` and `<(...)` of a shell), a
        socket or a device.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected {expected}") from None
    except (OSError, ValueError) as error:  # ValueError: the name contains NUL
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        hint = "; write its content to a file first" if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) else ""
        raise InputError(f"{path}: is {kind}; expected {expected}{hint}")


def allow_open_files(n: int, what: str) -> None:
    """Raise this process's limit of open files, if it is too low to open `n` more.

    A memory map keeps its file open. Many systems let a process open 1,024 files, and more if it asks for them.

    Raises
    ------
    InputError
        If the system allows fewer; the message begins with `what`.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/dev/fd")) + n + _OTHER_FILES
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, highest))
    except (OSError, ValueError) as error:
        allowed = limit if highest == resource.RLIM_INFINITY else highest
        raise InputError(
            f"{what}: expected a limit of at least {needed:,} open files, found {allowed:,}; raise it (`ulimit -Hn`)"
        ) from error


def read_limited(path: Path, *, limit: int, expected: str) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    Raises
    ------
    InputError
        If the file is not regular, cannot be read, or is larger. The message names the `expected` kind of file.
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
    """Check that a folder is empty or can be created.

    Raises
    ------
    InputError
        If the folder is not empty, or if it cannot be created or written. The message contains `hint`, which says what
        to do with an existing folder.
    """
    if folder.is_dir() and not any(folder.iterdir()):
        _check_writable(folder, folder)
        return
    if folder.exists():
        raise InputError(f"{folder}: exists already; {hint}choose another `output`")
    existing = next(parent for parent in folder.absolute().parents if parent.exists())
    if not existing.is_dir():
        raise InputError(f"{folder}: cannot be made, {existing} is not a folder")
    _check_writable(existing, folder)


def check_links_stay_inside(folder: Path) -> None:
    """Check that no link in a folder leads out of it, before a command that continues there writes its files again.

    Raises
    ------
    InputError
        If one does: the folder may come from a stranger, and the file behind the link would be replaced.
    """
    real_folder = Path(os.path.realpath(folder))
    for parent, folders, files in os.walk(real_folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(real_folder):
                at = folder / path.relative_to(real_folder)
                raise InputError(f"{at}: is a link that leads out of {folder}; to continue there would write behind it")


@contextmanager
def write_atomically(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path to write to; if the block ends without an error, rename the file to `path`.

    Parameters
    ----------
    path
        Final path. If it is a link, its target is replaced, not the link.
    durable
        Whether to wait until the file is on the disk, see `replace_file`. This takes some milliseconds. It is not
        needed for files that can be computed again and whose damage is noticed.

    Raises
    ------
    InputError
        See `check_output_path`.
    WriteError
        If the file cannot be written. The old file is then still there.
    """
    check_output_path(path)
    real_path = Path(os.path.realpath(path))
    with name_write_errors(path), temporary_folder(real_path) as folder:
        yield folder / real_path.name
        replace_file(folder / real_path.name, real_path, durable=durable)


def replace_file(temporary_path: Path, path: Path, *, durable: bool = True) -> None:
    """Rename the complete file `temporary_path` to `path`, and replace an existing file.

    If the machine crashes, a durable file is either complete or not yet renamed. Without `durable` it may be empty.
    """
    if durable:
        with temporary_path.open("r+b") as file:
            _wait_for_disk(file.fileno())
    temporary_path.replace(path)
    if durable:
        with contextlib.suppress(OSError):  # Windows cannot open folders, and not every file system syncs them
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _wait_for_disk(file: int) -> None:
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _NO_FSYNC_CODES:
            raise


@contextmanager
def name_write_errors(path: Path) -> Iterator[None]:
    """Replace write errors in the block, such as a full disk, by errors that name `path`, the file or folder.

    Errors that name a file in another place stay as they are.

    Raises
    ------
    WriteError
        Instead of an `OSError` of writing, and instead of a `WriteError` that names a part of `path`.
    InputError
        Instead of an `OSError` that names no file and may come from reading.
    """
    try:
        yield
    except OSError as error:
        given = error.filename
        error_path = Path(os.path.realpath(os.fsdecode(given))) if isinstance(given, str | bytes) else None
        if error_path is not None and not _is_near(error_path, path):
            raise
        if error_path is None and _get_error_code(error) not in WRITE_ERROR_CODES:
            raise InputError(f"while writing {path}: {_describe_os_error(error)}") from error
        raise WriteError(path, _describe_os_error(error)) from error
    except WriteError as error:
        if error.path == path or not _is_near(Path(os.path.realpath(error.path)), path):
            raise
        raise WriteError(path, error.reason) from error


def _is_near(file: Path, path: Path) -> bool:
    """Return whether a file is `path`, in it, a folder above it, or in a hidden folder beside it."""
    real_path = Path(os.path.realpath(path))
    in_line = file.is_relative_to(real_path) or real_path.is_relative_to(file)
    return in_line or any(part.startswith(make_hidden_prefix(real_path)) for part in file.parts)


def _describe_os_error(error: OSError) -> str:
    """Return why a file could not be written, as the system says it, if the error code is known."""
    code = _get_error_code(error)
    return os.strerror(code) if code else " ".join(str(error).split())


def _get_error_code(error: OSError) -> int:
    """Return the error code of the system; 0 if it is not known."""
    known = re.search(r"(?:os error|errno =) (\d+)", str(error))  # messages of safetensors and HDF5
    return error.errno or int(known[1] if known else 0)


def check_output_path(path: Path) -> None:
    """Check that a file can be written at `path`, before anything is computed; an existing file may be replaced.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written, or if `path` is a folder, a device or a pipe.
    """
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; expected the name of a file to write")
    if _is_special(path):
        raise InputError(f"{path}: is a device or a pipe; expected the name of a file to write")
    _check_writable(Path(os.path.realpath(path)).parent, path)


def _is_special(path: Path) -> bool:
    """Return whether a path is a device, a pipe or similar, or an open file of a process, such as /dev/stdout."""
    if path.exists() and not path.is_file():
        return True
    for _ in range(_MAX_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        if path.is_relative_to("/proc") or path.is_relative_to("/dev/fd"):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / path.readlink()
    return True


def _check_writable(folder: Path, path: Path) -> None:
    """Raise InputError for `path` if no file can be created in a folder; to try it is safer than to read its mode."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{path}: the folder {folder} cannot be written to: {error.strerror or error}") from error


def write_safetensors(path: Path, save: Callable[[Path], None]) -> None:
    """Write a safetensors file by `save` under a temporary name, and rename it; see `write_atomically`.

    The file gets the default mode of new files; safetensors would let only the owner read it.

    Raises
    ------
    InputError, WriteError
        As in `write_atomically`.
    """
    from safetensors import SafetensorError  # not needed to write other files

    with write_atomically(path) as temporary_path:
        temporary_path.touch()
        mode = temporary_path.stat().st_mode
        try:
            save(temporary_path)
        except SafetensorError as error:  # for example, the disk is full
            raise OSError(str(error)) from error
        temporary_path.chmod(mode)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a text file, packed if its name ends in .gz; see `write_atomically`."""
    content = text.encode()
    with write_atomically(path, durable=durable) as temporary_path:
        temporary_path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def check_table_output(path: Path, columns: Sequence[str]) -> None:
    """Check that a table can be written at `path`, before anything is computed.

    An existing file may be replaced only if it is a table of the same kind: its header must have all of `columns`.

    Raises
    ------
    InputError
        As in `check_output_path`; or if the path is an existing file of another kind, or has the ending of one.
    """
    check_output_path(path)
    if path.exists():
        opener = gzip.open if path.suffix == ".gz" else open
        try:
            with opener(path, "rt", encoding="utf-8") as file:
                header = file.readline(_MAX_HEADER).rstrip("\n").split("\t")
        except (OSError, EOFError, UnicodeDecodeError, zlib.error):
            header = []
        if not set(columns) <= set(header):
            raise InputError(f"{path}: exists and is not a table of this kind; choose another `output`")
        return
    ending = Path(path.name.removesuffix(".gz")).suffix
    if ending.lower() in _OTHER_ENDINGS:
        raise InputError(f"{path}: `output` is a tab-separated table; expected a name that ends in .tsv, not {ending}")
