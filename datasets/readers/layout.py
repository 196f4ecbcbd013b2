"""The protocol of the readers of file formats, and the types that they share."""

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
    "parse_boolean",
]

_TRUE = frozenset({"t", "true", "1", "1.0", "yes", "y"})
_FALSE = frozenset({"f", "false", "0", "0.0", "no", "n"})

_REPERTOIRE_COLUMNS = ("repertoire_id", "sample_id", "sample_name", "sample")


class Status(IntEnum):
    """Status of one rearrangement by what the file says; its residues are checked later."""

    UNKNOWN = 0
    IN_FRAME = 1
    OUT_OF_FRAME = 2
    STOP_CODON = 3
    UNPRODUCTIVE = 4
    LOW_CONFIDENCE = 5
    """The row is not a cell, or a contig that the file itself does not trust."""


@dataclass(frozen=True)
class Header:
    """The header of a repertoire file: its column names in order, and how the fields are separated.

    `n_comments` is the number of lines before it, which are not read.
    """

    path: Path
    columns: tuple[str, ...]
    delimiter: str = "\t"
    n_comments: int = 0

    def find(self, *names: str) -> str | None:
        """Return the column with the first of these names that exists, in upper or lower case."""
        lower = {column.lower(): column for column in reversed(self.columns)}
        for name in names:
            if name in self.columns:
                return name
            if name.lower() in lower:
                return lower[name.lower()]
        return None

    def find_repertoire_columns(self, *others: str) -> tuple[str, ...]:
        """Return the columns that may name the repertoire of each row: the standard ones, and a format's own."""
        return self.find_all(*_REPERTOIRE_COLUMNS, *others)

    def find_all(self, *names: str) -> tuple[str, ...]:
        """Return the columns of these names that exist, in the order of the names."""
        return tuple(dict.fromkeys(column for name in names if (column := self.find(name)) is not None))


def _choose_unknown(_: Mapping[str, str]) -> Status:
    return Status.UNKNOWN


class SequenceKind(IntEnum):
    """The part of a receptor that a sequence was read from; in the container it is always the junction."""

    JUNCTION_AA = 0
    CDR3_AA = 1
    JUNCTION = 2


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The columns of a file by what they hold; only these are parsed.

    Attributes
    ----------
    junction_aa
        Column of the amino-acid sequence with the conserved residues at both ends, as the container keeps it.
    cdr3_aa, junction
        Columns for rows without `junction_aa`: the amino-acid sequence without the conserved residues, or the
        nucleotides, which are translated. One of the three columns is needed.
    counts
        Columns of abundances; the count of a row is the first of them that is not missing, otherwise 1.
    negative_is_one
        Whether this format writes a count of -1 if none was given; it becomes 1.
    v_call, j_call
        Columns of gene names; the name of a row is the first of them that is not missing. Families come after genes.
    status
        Columns that say whether a row is productive. `choose_status` returns the status for their values, which it gets
        by column. It is called once for each combination of values that occurs, and may raise `InvalidValueError`. It
        must be a function of a module, so that it can be sent to a worker process.
    repertoire
        Columns that may name the repertoire of each row; the first that is not empty is used.
    locus
        Column that names the chain.
    cell
        Column that names the cell of each row. If there is one, the count of a sequence is the number of its cells. A
        row without a name counts as a cell of its own.
    """

    junction_aa: str | None = None
    cdr3_aa: str | None = None
    junction: str | None = None
    counts: tuple[str, ...] = ()
    negative_is_one: bool = False
    v_call: tuple[str, ...] = ()
    j_call: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    # its repr has an address
    choose_status: Callable[[Mapping[str, str]], Status] = field(default=_choose_unknown, repr=False)
    repertoire: tuple[str, ...] = ()
    locus: str | None = None
    cell: str | None = None

    @property
    def sequences(self) -> dict[SequenceKind, str]:
        """The columns of sequences, in the order in which a row takes the first that it has."""
        columns = (self.junction_aa, self.cdr3_aa, self.junction)
        return {kind: name for kind, name in zip(SequenceKind, columns, strict=True) if name is not None}

    @property
    def coded_columns(self) -> tuple[str, ...]:
        """The columns whose values repeat, which are read as codes: all but the sequences."""
        several = (*self.counts, *self.v_call, *self.j_call, *self.status, *self.repertoire)
        return (*several, *(column for column in (self.locus, self.cell) if column is not None))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are needed, each once."""
        return tuple(dict.fromkeys((*self.sequences.values(), *self.coded_columns)))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of values that these columns hold, in words."""
        columns_of = {
            "sequence": self.sequences,
            "count": self.counts or self.cell,
            "V gene": self.v_call,
            "J gene": self.j_call,
            "productivity": self.status,
        }
        return tuple(kind for kind, columns in columns_of.items() if columns)


class Reader(Protocol):
    """A reader of one file format. `READERS` in `deeprc.datasets.readers` has one object of each."""

    @property
    def name(self) -> str:
        """The name of the format, a value of `reader_format`."""

    @property
    def recognised_by(self) -> str:
        """The columns by which the format is recognised, in words for a message."""

    def find_layout(self, header: Header) -> Layout | None:
        """Return the columns of this format, or None if the header is not of this format.

        Only one reader should know a header, because `deeprc` warns about each file that fits two formats.
        """


class NoTableError(InputError):
    """A file that is not a repertoire table of a known format; it need not be damaged."""


class InvalidValueError(Exception):
    """A value that its column cannot have; the caller, who knows the file and the row, reports it."""

    def __init__(self, column: str, value: str, expected: str) -> None:
        super().__init__(f"column {column!r}: expected {expected}; found {quote(value)}")


def parse_boolean(column: str, value: str) -> bool | None:
    """Return the value of a yes or no; None if it is missing.

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
