"""Readers of repertoire files: one small module per format, one table with AIRR field names for all of them.

The format is recognised from the header alone. A new format is a module with a `Reader` (see
`deeprc.datasets.readers.layout`), and an entry in `READERS`. `docs/architecture.md` ("Before you write a reader") says
when it is needed, and what else belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from deeprc.datasets.numeric_text import is_number
from deeprc.datasets.readers.airr import AirrReader
from deeprc.datasets.readers.bd_rhapsody import BdRhapsodyReader
from deeprc.datasets.readers.generic import GenericReader
from deeprc.datasets.readers.immunarch import ImmunarchReader
from deeprc.datasets.readers.immunoseq import ImmunoseqReader
from deeprc.datasets.readers.layout import Header, Layout, NoTableError, Reader, SequenceKind, Status
from deeprc.datasets.readers.missing_columns import fill_missing_columns
from deeprc.datasets.readers.mixcr import MixcrReader
from deeprc.datasets.readers.original_deeprc import OriginalDeepRCReader
from deeprc.datasets.readers.table import (
    COUNT_CELLS,
    COUNT_ONE,
    RawRows,
    find_repertoire_names,
    make_rows,
    read_rows,
)
from deeprc.datasets.readers.tcrex import TcrexReader
from deeprc.datasets.readers.tenx import TenxReader
from deeprc.datasets.readers.text import read_header
from deeprc.datasets.readers.vdjtools import VdjtoolsReader
from deeprc.errors import InputError

__all__ = [
    "COUNT_CELLS",
    "COUNT_ONE",
    "FORMATS",
    "READERS",
    "GenericReader",
    "Header",
    "Layout",
    "Match",
    "NoTableError",
    "RawRows",
    "Reader",
    "SequenceKind",
    "Status",
    "choose_reader",
    "find_repertoire_names",
    "make_rows",
    "match_reader",
    "read_header",
    "read_rows",
]

READERS: tuple[Reader, ...] = (
    AirrReader(),
    ImmunoseqReader(),
    MixcrReader(),
    TenxReader(),
    BdRhapsodyReader(),
    VdjtoolsReader(),
    ImmunarchReader(),
    TcrexReader(),
    OriginalDeepRCReader(),
)
"""The readers of all formats that are recognised by their header.

If a header fits several formats, the reader is taken that finds more of these five: sequence, count, V gene, J gene,
productivity. Of readers that find the same number, it is the first in this order.
"""

FORMATS: tuple[str, ...] = ("auto", *(reader.name for reader in READERS), GenericReader.name)
"""The values of `reader_format`: the names of the readers, and "auto"."""

_SHOWN_COLUMNS = 8
_SHOWN_LETTERS = 40
_JUNCTION = re.compile("C[ACDEFGHIKLMNPQRSTVWY]{4,}[FW]")
_KIND_OF_FIELD = {"counts": "count", "v_call": "V gene", "j_call": "J gene"}  # as in `Layout.kinds`


class Match(NamedTuple):
    """The reader of a file, the layout of its columns, and a remark about the choice for the user ("": none)."""

    reader: Reader
    layout: Layout
    remark: str


def choose_reader(
    reader_format: str = "auto",
    *,
    sequence_column: str | None = None,
    count_column: str | None = None,
    v_column: str | None = None,
    j_column: str | None = None,
) -> Reader | None:
    """Return the reader that the user's options name; None if the header of each file decides.

    Raises
    ------
    InputError
        If the options contradict each other.
    """
    if reader_format not in FORMATS:
        raise InputError(f"unknown format {reader_format!r}; expected one of {', '.join(FORMATS)}")
    columns = {"`count_column`": count_column, "`v_column`": v_column, "`j_column`": j_column}
    given = {option: column for option, column in columns.items() if column is not None}
    if sequence_column is not None:
        if reader_format not in ("auto", GenericReader.name):
            raise InputError(
                f"`sequence_column` reads any table and cannot be combined with `reader_format={reader_format}`"
            )
        options = {sequence_column: "`sequence_column`"}
        for option, column in given.items():
            if column in options:
                raise InputError(f"{options[column]} and {option} both name {column!r}")
            options[column] = option
        return GenericReader(sequence_column, count_column, v_column, j_column)
    if reader_format == GenericReader.name or given:
        parameter = next(iter(given), "`reader_format=generic`")
        raise InputError(f"{parameter} needs `sequence_column`, the column of the sequences of any other table")
    return next((reader for reader in READERS if reader.name == reader_format), None)


def match_reader(header: Header, reader: Reader | None = None) -> Match:
    """Return the reader of a file, the columns that it reads, and a remark; see `READERS` for the choice.

    If `reader` is given, no other reader is tried. If the format's own columns lack counts or genes, columns of other
    formats are read; see `deeprc.datasets.readers.missing_columns`.

    Raises
    ------
    NoTableError
        If no reader knows the header.
    """
    candidates = READERS if reader is None else (reader,)
    matching = [
        (candidate, layout) for candidate in candidates if (layout := candidate.find_layout(header)) is not None
    ]
    if not matching:
        raise _make_unknown_format_error(header, candidates)
    matching.sort(key=lambda pair: -len(pair[1].kinds))  # stable: the order of READERS decides where they read the same
    chosen, layout = matching[0]
    if isinstance(chosen, GenericReader):
        return Match(chosen, layout, "")
    completed, filled = fill_missing_columns(header, layout)
    absent = [] if reader is None else [kind for kind in _KIND_OF_FIELD.values() if kind not in completed.kinds]
    return Match(chosen, completed, _describe_match(matching, filled, absent))


def _describe_match(matching: Sequence[tuple[Reader, Layout]], filled: Mapping[str, str], absent: Sequence[str]) -> str:
    """Return a remark about what a user may not expect of the match of a header; "" without any.

    Parameters
    ----------
    matching
        Readers that know the header, each with its layout; the first one is chosen.
    filled
        Columns that were taken from other formats, see `fill_missing_columns`.
    absent
        Kinds of values that no column has.
    """
    remarks = []
    if len(matching) > 1:
        names = " and ".join(reader.name for reader, _ in matching)
        kinds = "; ".join(f"{reader.name} finds {', '.join(layout.kinds)}" for reader, layout in matching)
        remarks.append(f"the header fits {names} ({kinds})")
    if filled:
        remarks.append(", ".join(f"{_KIND_OF_FIELD[name]} from {column!r}" for name, column in filled.items()))
    if absent:
        remarks.append(f"no column of {', '.join(absent)} was found")
    return f"read as {matching[0][0].name}: {'; '.join(remarks)}" if remarks else ""


def _make_unknown_format_error(header: Header, candidates: Sequence[Reader]) -> NoTableError:
    shown = ", ".join(column[:_SHOWN_LETTERS] for column in header.columns[:_SHOWN_COLUMNS])
    more = ", ..." if len(header.columns) > _SHOWN_COLUMNS else ""
    formats = "; ".join(f"{candidate.name} ({candidate.recognised_by})" for candidate in candidates)
    remark = ". The first row looks like data: is the header missing?" if _is_data(header.columns) else "."
    any_table = ". Any other table is read with `sequence_column` and `count_column`."
    advice = any_table if len(candidates) > 1 else ""
    return NoTableError(
        f"{header.path}: no reader knows this header; its first columns are "
        f"{shown}{more}{remark} Known formats: {formats}{advice}"
    )


def _is_data(columns: Sequence[str]) -> bool:
    """Return whether the names of columns look like values: a junction, or numbers in more than half of them."""
    n_numbers = sum(map(is_number, columns))
    known = {"cdr3", "junction", "sequence", "count"}
    has_known = any(name in column.casefold() for column in columns for name in known)
    return any(map(_JUNCTION.fullmatch, columns)) or (2 * n_numbers > len(columns) and not has_known)
