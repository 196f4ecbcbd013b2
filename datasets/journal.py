"""A journal of the finished steps of a writer, one line of JSON each, from which a stopped writer continues."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from deeprc.errors import InputError
from deeprc.files import check_links_stay_inside
from deeprc.locks import take_lock

__all__ = ["Journal"]

_NAME = "journal.jsonl"


class Journal:
    """The finished steps of a writer in a folder whose files only grow.

    Every entry holds the sizes that the folder's files had when its step ended, so that later data can be cut off. It
    also holds the inode of the journal, which nobody who sends a folder can choose. So entries from elsewhere are not
    used.

    Parameters
    ----------
    folder
        Folder of the files. Data there that fits no entry is cut off by `rewind`.

    Raises
    ------
    InputError
        If another process is writing there, or if the folder has files but no journal. Also if the folder is a link or
        holds one, because a folder from an unknown source must not choose where deeprc writes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[dict[str, Any]] = []
        self._ends: list[int] = []  # position in the journal's file at which each entry ends
        if folder.is_symlink():
            raise InputError(f"{folder}: expected a folder, found a link")
        check_links_stay_inside(folder)
        names = os.listdir(folder)
        if names and _NAME not in names:  # `rewind` and `close` would delete them
            raise InputError(f"{folder}: has files but no {_NAME}, such as {min(names)!r}; move it away, or delete it")
        self._file = (folder / _NAME).open("a+b")
        if take_lock(self._file, folder / _NAME) is False:
            self._file.close()
            raise InputError(f"{folder}: another process is writing here; wait until it has ended")
        self._inode = os.fstat(self._file.fileno()).st_ino
        self._read_entries()

    def _read_entries(self) -> None:
        """Read entries up to the first that is incomplete, from elsewhere, or has files that are shorter than noted."""
        self._file.seek(0)
        for line in self._file:
            try:
                entry = json.loads(line)
                fits = entry["inode"] == self._inode and line.endswith(b"\n")
                fits = fits and all(self._get_size(name) >= size for name, size in entry["sizes"].items())
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                fits = False
            if not fits:  # the process, or the machine, stopped while it wrote this
                break
            self._append_entry(entry, line)

    def add(self, entry: dict[str, Any]) -> None:
        """Note a step whose files are written."""
        with os.scandir(self.folder) as files:
            sizes = {file.name: file.stat().st_size for file in files if file.name != _NAME}
        entry = {**entry, "sizes": dict(sorted(sizes.items())), "inode": self._inode}
        line = json.dumps(entry).encode() + b"\n"
        self._file.write(line)
        self._file.flush()
        self._append_entry(entry, line)

    def rewind(self, n: int) -> None:
        """Keep the first n entries, and cut the files to their sizes at the end of the last of them."""
        self.entries, self._ends = self.entries[:n], self._ends[:n]
        sizes = self.entries[-1]["sizes"] if self.entries else {}
        for path in self.folder.iterdir():
            if path.name == _NAME:
                continue
            if path.name in sizes:
                os.truncate(path, sizes[path.name])
            else:
                path.unlink()
        self._file.truncate(self._ends[-1] if self._ends else 0)  # the kept lines stay: the process may end here

    def close(self, *, delete: bool = False) -> None:
        """Release the folder for other processes; delete it before, if it is not to be kept."""
        if delete and os.name != "nt":
            shutil.rmtree(self.folder, ignore_errors=True)  # while it is locked: soon it may be another process's
        self._file.close()
        if delete and os.name == "nt":  # which deletes no open files
            shutil.rmtree(self.folder, ignore_errors=True)

    def _append_entry(self, entry: dict[str, Any], line: bytes) -> None:
        self.entries.append(entry)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(line))

    def _get_size(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.exists() else -1
