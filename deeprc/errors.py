"""The exceptions that mean: what the user gave cannot be used, and: the system asks this process to end."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PARAMETER", "InputError", "Terminated", "WriteError", "group_errors", "quote"]

PARAMETER = re.compile(r"`([a-z]\w*)(?:=([^`]+))?`")
"""A parameter in a message: its name in backticks, with a value where one is meant: `locus`, `locus=TRB`."""

_QUOTED_LETTERS = 60


class InputError(ValueError):
    """A file, a row, a key or a parameter that cannot be used.

    The message is complete for a user: it names the file, the row or key, what was expected and what came. It names a
    parameter as Python does (see `PARAMETER`), and the command line shows the option in its place. The command line
    prints the message in one line and exits with 2; a program catches it as a `ValueError`.
    """


class WriteError(InputError):
    """A file or folder that cannot be written, because the disk is full, say.

    Attributes
    ----------
    path, reason
        What the message says: the file or folder, and why it cannot be written.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type[WriteError], tuple[Path, str]]:
        return type(self), (self.path, self.reason)


class Terminated(SystemExit):
    """Raised by the command line where the system asks the process to end, so that what was begun is cleaned up."""


def quote(value: str) -> str:
    """Return a value in quotes for a message, cut where it is too long to be read."""
    more = f"... ({len(value):,} letters)" if len(value) > _QUOTED_LETTERS else ""
    return f"{value[:_QUOTED_LETTERS]!r}{more}"


def group_errors(errors: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the different messages of files, each with the files that it concerns.

    Parameters
    ----------
    errors
        The messages by the file's path. A message that begins with its path and a colon is compared without it, so that
        the same fault of many files is one line: `109 files: FAULT (first: PATH)`.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for path, message in errors.items():
        files[message.removeprefix(f"{path}: ")].append(path)
    return {
        errors[paths[0]] if len(paths) == 1 else f"{len(paths):,} files: {fault} (first: {paths[0]})": tuple(paths)
        for fault, paths in files.items()
    }
