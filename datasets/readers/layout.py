"""What a file format says about itself: the protocol of the readers and the words that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol

__all__ = ["Header", "InvalidValueError", "Layout", "Reader", "Status", "is_missing"]

_MISSING = frozenset({"", "null", "na", "n/a", "nan", "none", "no data", "unresolved", "unknown", "."})


class Status(IntEnum):
    """What a file says about one rearrangement, before its residues are looked at."""

    UNKNOWN = 0
    IN_FRAME = 1
    OUT_OF_FRAME = 2
    STOP_CODON = 3
    UNPRODUCTIVE = 4


@dataclass(frozen=True)
class Header:
    """The first line of a repertoire file: its column names in order, and how the fields are separated."""

    path: Path
    columns: tuple[str, ...]
    delimiter: str = "\t"

    def find(self, *names: str) -> str | None:
        """Return the column that bears the first of these names that is there, in any case."""
        lower = {column.lower(): column for column in reversed(self.columns)}
        for name in names:
            if name in self.columns:
                return name
            if name.lower() in lower:
                return lower[name.lower()]
        return None

    def find_all(self, *names: str) -> tuple[str, ...]:
        """Return the columns of these names that are there, in the order of the names."""
        return tuple(dict.fromkeys(found for name in names if (found := self.find(name)) is not None))


def _unknown(_: Mapping[str, str]) -> Status:
    return Status.UNKNOWN


@dataclass(frozen=True)
class Layout:
    """Which columns of a file hold what; only these are parsed.

    Attributes
    ----------
    junction_aa
        The amino-acid sequence.
    counts
        Columns of abundances; a row's count is the first of them that is not missing there, else 1.
    v_call, j_call
        Gene names, where the file has them.
    status
        The columns that say whether a row is productive, and `judge` what their values mean: it gets the
        values by column, is asked once for each combination that occurs, and may raise `InvalidValueError`. A
        module's function, so that it can be sent to a worker process.
    repertoire
        The column that names the repertoire; a file with several values is refused.
    """

    junction_aa: str
    counts: tuple[str, ...] = ()
    v_call: str | None = None
    j_call: str | None = None
    status: tuple[str, ...] = ()
    judge: Callable[[Mapping[str, str]], Status] = _unknown
    repertoire: str | None = None


class Reader(Protocol):
    """One file format. A new format is one module with such an object, named in `deeprc.datasets.readers`."""

    @property
    def name(self) -> str:
        """What `--format` calls it."""

    @property
    def recognised_by(self) -> str:
        """The columns that tell it from the others, in words for a message."""

    def layout(self, header: Header) -> Layout | None:
        """Return where this format keeps its values, or None if the header is not of this format."""


class InvalidValueError(Exception):
    """A value that its column cannot have; the caller, who knows the file and the row, reports it."""

    def __init__(self, column: str, value: str, expected: str) -> None:
        super().__init__(f"column {column!r}: expected {expected}; found {value!r}")


def is_missing(value: str) -> bool:
    """Tell whether a count, a gene or a sequence is one of the words that stand for a missing value."""
    return value.strip().lower() in _MISSING
