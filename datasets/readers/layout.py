"""What a file format says about itself: the protocol of the readers and the words that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from deeprc.datasets.missing import MISSING_IN_TABLES
from deeprc.errors import InputError, quote

__all__ = [
    "Header",
    "InvalidValueError",
    "Layout",
    "NoTableError",
    "Reader",
    "SequenceKind",
    "Status",
    "boolean",
]

_TRUE = frozenset({"t", "true", "1", "1.0", "yes", "y"})
_FALSE = frozenset({"f", "false", "0", "0.0", "no", "n"})


_REPERTOIRE_COLUMNS = ("repertoire_id", "sample_id", "sample_name", "sample")


class Status(IntEnum):
    """What a file says about one rearrangement, before its residues are looked at."""

    UNKNOWN = 0
    IN_FRAME = 1
    OUT_OF_FRAME = 2
    STOP_CODON = 3
    UNPRODUCTIVE = 4
    LOW_CONFIDENCE = 5
    """No cell, or a contig that the file itself does not trust."""


@dataclass(frozen=True)
class Header:
    """The header of a repertoire file: its column names in order, and how the fields are separated.

    `n_comments` lines stand before it, which are not read.
    """

    path: Path
    columns: tuple[str, ...]
    delimiter: str = "\t"
    n_comments: int = 0

    def find(self, *names: str) -> str | None:
        """Return the column that bears the first of these names that is there, in any case."""
        lower = {column.lower(): column for column in reversed(self.columns)}
        for name in names:
            if name in self.columns:
                return name
            if name.lower() in lower:
                return lower[name.lower()]
        return None

    def repertoires(self, *others: str) -> tuple[str, ...]:
        """Return the columns that may name the repertoire of each row: the standard ones, and a format's own."""
        return self.find_all(*_REPERTOIRE_COLUMNS, *others)

    def find_all(self, *names: str) -> tuple[str, ...]:
        """Return the columns of these names that are there, in the order of the names."""
        return tuple(dict.fromkeys(found for name in names if (found := self.find(name)) is not None))


def _unknown(_: Mapping[str, str]) -> Status:
    return Status.UNKNOWN


class SequenceKind(IntEnum):
    """Which part of a receptor a sequence was read from; the container's is always the junction."""

    JUNCTION_AA = 0
    CDR3_AA = 1
    JUNCTION = 2


@dataclass(frozen=True)
class Layout:
    """Which columns of a file hold what; only these are parsed.

    Attributes
    ----------
    junction_aa
        The amino-acid sequence with the conserved residues at both ends, as the container keeps it.
    cdr3_aa, junction
        Where the row has no `junction_aa`: the amino-acid sequence without them; or the nucleotides, to be translated.
        One of the three is needed.
    counts
        Columns of abundances; a row's count is the first of them that is not missing there, else 1.
    negative_is_one
        A count of -1 is this format's way to say that none was given; it becomes 1.
    v_call, j_call
        Columns of gene names; a row's is the first of them that is not missing there. A family stands behind the gene.
    status
        The columns that say whether a row is productive, and `judge` what their values mean: it gets the
        values by column, is asked once for each combination that occurs, and may raise `InvalidValueError`. A
        module's function, so that it can be sent to a worker process.
    repertoire
        The columns that may name the repertoire of each row: the first that is not empty does.
    locus
        The column that names the chain.
    cell
        The column that names the cell of each row; a sequence's count is then the number of its cells, and a row
        without a name is a cell of its own.
    """

    junction_aa: str | None = None
    cdr3_aa: str | None = None
    junction: str | None = None
    counts: tuple[str, ...] = ()
    negative_is_one: bool = False
    v_call: tuple[str, ...] = ()
    j_call: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    judge: Callable[[Mapping[str, str]], Status] = field(default=_unknown, repr=False)  # its repr holds an address
    repertoire: tuple[str, ...] = ()
    locus: str | None = None
    cell: str | None = None

    @property
    def sequences(self) -> dict[SequenceKind, str]:
        """Return the columns of sequences in the order in which a row is asked for them."""
        columns = (self.junction_aa, self.cdr3_aa, self.junction)
        return {kind: name for kind, name in zip(SequenceKind, columns, strict=True) if name is not None}

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns that are needed, each once."""
        one = (self.locus, self.cell)
        lists = (self.sequences.values(), self.counts, self.v_call, self.j_call, self.status, self.repertoire)
        return tuple(dict.fromkeys([*(name for names in lists for name in names), *filter(None, one)]))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return what these columns tell of a row, in words."""
        found = {
            "sequence": self.sequences,
            "count": self.counts or self.cell,
            "V gene": self.v_call,
            "J gene": self.j_call,
            "productivity": self.status,
        }
        return tuple(kind for kind, columns in found.items() if columns)


class Reader(Protocol):
    """One file format. A new format is one module with such an object, named in `deeprc.datasets.readers`."""

    @property
    def name(self) -> str:
        """The name of the format, a value of `reader_format`."""

    @property
    def recognised_by(self) -> str:
        """The columns that tell it from the others, in words for a message."""

    def layout(self, header: Header) -> Layout | None:
        """Return where this format keeps its values, or None if the header is not of this format."""


class NoTableError(InputError):
    """A file that is no repertoire table of a known format; it need not be damaged."""


class InvalidValueError(Exception):
    """A value that its column cannot have; the caller, who knows the file and the row, reports it."""

    def __init__(self, column: str, value: str, expected: str) -> None:
        super().__init__(f"column {column!r}: expected {expected}; found {quote(value)}")


def boolean(column: str, value: str) -> bool | None:
    """Return what a yes or no says, None where it is missing.

    Raises
    ------
    InvalidValueError
        If it is none of the known words.
    """
    word = value.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    if word in MISSING_IN_TABLES:
        return None
    raise InvalidValueError(column, value, "T, F (also true/false, yes/no, 1/0) or nothing")
