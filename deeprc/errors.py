"""Exceptions for input that cannot be used and for the end of the process, and helpers for messages."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MAX_FAULTS",
    "PARAMETER",
    "FaultGroup",
    "InputError",
    "LostRank",
    "SeveralErrors",
    "Terminated",
    "UnusableFiles",
    "WriteError",
    "add_advice",
    "cut_name",
    "describe_missing_column",
    "describe_names",
    "describe_texts",
    "end_sentence",
    "find_nearest",
    "format_count",
    "group_errors",
    "join_names",
    "join_texts",
    "number_faults",
    "quote",
    "show_parameters",
    "suggest_nearest",
    "use_parameter_renderer",
]

PARAMETER = re.compile(r"`([a-z]\w*)(?:=([^`]*))?`")
"""Pattern of a parameter in a message: its name in backticks, perhaps with a value: `locus` or `locus=TRB`."""

_MAX_QUOTED_LETTERS = 60
_SHOWN_NAMES = 10  # number of names that a message lists, unless it says how many
_SHOWN_COLUMNS = 20  # number of columns of a table that a message lists

MAX_FAULTS = 10
"""Number of faults that one message lists in full."""

_RENDERER: ContextVar[Callable[[str], str]] = ContextVar("_RENDERER", default=str)


class InputError(ValueError):
    """Raised if a file, a row, a key or a parameter cannot be used.

    The message is complete for a user: it names the file, the row or key, what was expected and what was found. It
    names a parameter as Python does (see `PARAMETER`); the command line replaces it by the option. The command line
    prints the message in one line (see also `SeveralErrors`) and ends with exit code 2. A program can catch the
    exception as a `ValueError`.
    """


class SeveralErrors(InputError):
    """Raised if several files or rows cannot be used; the command line prints each line of the message as a line.

    Attributes
    ----------
    lines
        Lines of the message. Line breaks within a line, which names of files may hold, become blanks.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(" ".join(line.split()) for line in lines)
        super().__init__("\n".join(self.lines))

    def __reduce__(self) -> tuple[type[SeveralErrors], tuple[tuple[str, ...]]]:
        return type(self), (self.lines,)


class UnusableFiles(SeveralErrors):
    """Raised if repertoire files cannot be used.

    Attributes
    ----------
    heading
        Lines before those of the faults.
    faults
        Lines that name the faults.
    advice
        Advice that ends the message; "" if there is none.
    """

    def __init__(self, faults: Iterable[str], advice: str = "", heading: Iterable[str] = ()) -> None:
        self.heading, self.faults, self.advice = tuple(heading), tuple(faults), advice
        super().__init__((*self.heading, *add_advice(self.faults, advice)))

    def __reduce__(self) -> tuple[type[UnusableFiles], tuple[tuple[str, ...], str, tuple[str, ...]]]:  # type: ignore[override]
        return type(self), (self.faults, self.advice, self.heading)

    def replace_advice(self, advice: str) -> UnusableFiles:
        """Return this error with other advice, for a caller without the options that it names."""
        return UnusableFiles(self.faults, advice if self.advice else "", self.heading)


class WriteError(InputError):
    """Raised if a file or folder cannot be written, for example because the disk is full.

    Attributes
    ----------
    path
        The file or folder.
    reason
        Why it cannot be written.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type[WriteError], tuple[Path, str]]:
        return type(self), (self.path, self.reason)


class LostRank(InputError):
    """Raised if another process of the same training (a *rank*) has ended while this one waits for it."""


class Terminated(SystemExit):
    """Raised by the command line if the system ends the process (SIGTERM), so that unfinished files are deleted."""


@contextmanager
def use_parameter_renderer(renderer: Callable[[str], str]) -> Iterator[None]:
    """Let `show_parameters` call a renderer within this context; the command line uses it to name its options."""
    token = _RENDERER.set(renderer)
    try:
        yield
    finally:
        _RENDERER.reset(token)


def show_parameters(text: str) -> str:
    """Return a text with its parameters written as options in a command, and as in Python otherwise.

    Tables and reports, which people read, are written with this function; JSON files, which programs read, are not.
    """
    return _RENDERER.get()(text)


def quote(value: str) -> str:
    """Return a value in quotes for a message; a long value is cut."""
    more = f"... ({len(value):,} letters)" if len(value) > _MAX_QUOTED_LETTERS else ""
    return f"{value[:_MAX_QUOTED_LETTERS]!r}{more}"


def cut_name(name: str) -> str:
    """Return a name for a message; a long name is cut."""
    return f"{name[:_MAX_QUOTED_LETTERS]}{'...' if len(name) > _MAX_QUOTED_LETTERS else ''}"


def join_names(names: Sequence[str], shown: int) -> str:
    """Return the first names, the long ones cut, and how many more there are, as in "a, b, c and 9 more"."""
    return join_texts([cut_name(name) for name in names], shown)


def join_texts(texts: Sequence[str], shown: int) -> str:
    """Return the first texts as they are, and how many more there are; texts may hold names with what they mean."""
    more = f" and {len(texts) - shown:,} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more


def describe_names(names: Sequence[str], one: str, many: str, shown: int = _SHOWN_NAMES) -> str:
    """Return the number of names and the first of them, as in "12 files: a, b, c and 9 more"."""
    return describe_texts([cut_name(name) for name in names], one, many, shown)


def describe_texts(texts: Sequence[str], one: str, many: str, shown: int = _SHOWN_NAMES) -> str:
    """Return the number of texts and the first of them, uncut, as in "2 repertoires: a (12), b (25)"."""
    return f"{len(texts):,} {one if len(texts) == 1 else many}: {join_texts(texts, shown)}"


def format_count(n: int, noun: str) -> str:
    """Return a number with a noun, in the plural unless the number is 1, as in "1 donor" and "1,200 donors"."""
    return f"{n:,} {noun}{'s' if n != 1 else ''}"


def end_sentence(text: str) -> str:
    """Return a message with a full stop, unless it ends with one, or with a question or exclamation mark."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def find_nearest(name: str, known: Iterable[str], n: int = 1) -> list[str]:
    """Return the known names, at most n, that are similar to a name, the most similar first; case is ignored."""
    by_case = {known_name.casefold(): known_name for known_name in known}
    return [by_case[match] for match in difflib.get_close_matches(name.casefold(), by_case, n)]


def suggest_nearest(name: str, known: Iterable[str], n: int = 1) -> str:
    """Return "; did you mean 'NAME'?" with the most similar known names, at most n, or "" if none is similar."""
    near = find_nearest(name, known, n)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def describe_missing_column(name: str, columns: Iterable[object], use: str = "") -> str:
    """Return a message about a column that a table lacks, with the most similar column and the first of all columns.

    Parameters
    ----------
    name
        Name of the column that was asked for.
    columns
        Names of the columns that the table has.
    use
        Purpose of the column, such as "for `group_by`".
    """
    known = [str(column) for column in columns]
    near = suggest_nearest(name, known)
    listed = f"{near} Columns" if near else "; columns"
    return f"no column {quote(name)}{f' {use}' if use else ''}{listed}: {join_names(known, _SHOWN_COLUMNS) or 'none'}"


def add_advice(lines: Sequence[str], advice: str) -> tuple[str, ...]:
    """Return the lines of a message and an advice, unless it is empty, in a line of its own if there are several."""
    if not advice:
        return tuple(lines)
    *before, last = lines
    return (*before, end_sentence(last), advice) if before else (f"{end_sentence(last)} {advice}",)


@dataclass(frozen=True)
class FaultGroup:
    """Files or repertoires that have the same fault.

    Attributes
    ----------
    fault
        Description of the fault; the whole message if only one file has it.
    members
        Names of what has the fault, such as paths of files.
    unit
        Noun for the members, in the plural.
    """

    fault: str
    members: tuple[str, ...]
    unit: str = "files"

    def describe(self, subject: str = "") -> str:
        """Return a message, such as `109 files: FAULT (first: PATH)`; `subject` replaces the words `109 files`."""
        if len(self.members) == 1:
            return self.fault
        return f"{subject or f'{len(self.members):,} {self.unit}'}: {self.fault} (first: {self.members[0]})"


def group_errors(errors: Mapping[str, str]) -> list[FaultGroup]:
    """Group the errors of files by their message.

    Parameters
    ----------
    errors
        Message for each file, by its path. A path and a colon at the beginning of a message are ignored in the
        comparison.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for path, message in errors.items():
        files[message.removeprefix(f"{path}: ")].append(path)
    return [FaultGroup(errors[paths[0]] if len(paths) == 1 else fault, tuple(paths)) for fault, paths in files.items()]


def number_faults(heading: str, faults: Sequence[str]) -> tuple[str, ...]:
    """Return a heading, a numbered line for each of the first ten faults, and one with the number of the others.

    A single fault is the only line.
    """
    if len(faults) == 1:
        return (faults[0],)
    shown = [f"({number}) {fault.rstrip('.')}" for number, fault in enumerate(faults[:MAX_FAULTS], 1)]
    more = [f"and {len(faults) - MAX_FAULTS:,} more faults"] if len(faults) > MAX_FAULTS else []
    *before, last = [*shown, *more]
    return (f"{heading}:", *(f"{line};" for line in before), last)
