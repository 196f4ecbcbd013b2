"""Readers of repertoire files: one small module per format, one table with AIRR field names for all of them.

The format is recognised from the header alone. A new format is one module with a `Reader` (see
`deeprc.datasets.readers.layout`) and one line in `READERS`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from deeprc.datasets.readers.airr import AirrReader
from deeprc.datasets.readers.generic import GenericReader
from deeprc.datasets.readers.immunarch import ImmunarchReader
from deeprc.datasets.readers.immunoseq import ImmunoseqReader
from deeprc.datasets.readers.layout import Header, Layout, NoTableError, Reader, SequenceKind, Status
from deeprc.datasets.readers.mixcr import MixcrReader
from deeprc.datasets.readers.original_deeprc import OriginalDeepRCReader
from deeprc.datasets.readers.table import COUNT_CELLS, COUNT_ONE, Rows, read_rows, repertoire_names
from deeprc.datasets.readers.tcrex import TcrexReader
from deeprc.datasets.readers.tenx import TenxReader
from deeprc.datasets.readers.text import read_header
from deeprc.datasets.readers.vdjtools import VdjtoolsReader
from deeprc.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COUNT_CELLS",
    "COUNT_ONE",
    "FORMATS",
    "READERS",
    "GenericReader",
    "Header",
    "Layout",
    "NoTableError",
    "Reader",
    "Rows",
    "SequenceKind",
    "Status",
    "choose_reader",
    "find_reader",
    "read_header",
    "read_repertoire",
    "read_rows",
    "repertoire_names",
]

READERS: tuple[Reader, ...] = (
    AirrReader(),
    ImmunoseqReader(),
    MixcrReader(),
    TenxReader(),
    VdjtoolsReader(),
    ImmunarchReader(),
    TcrexReader(),
    OriginalDeepRCReader(),
)
"""Every format that is recognised by itself; no header is claimed by two of them."""

FORMATS: tuple[str, ...] = ("auto", *(reader.name for reader in READERS), GenericReader.name)
"""The values of `--format`."""

_SHOWN_COLUMNS = 8
_SHOWN_LETTERS = 40


def choose_reader(
    reader_format: str = "auto", *, sequence_column: str | None = None, count_column: str | None = None
) -> Reader | None:
    """Return the reader that the user's options name, or None if each file's header is to decide.

    Raises
    ------
    InputError
        If the options contradict each other.
    """
    if reader_format not in FORMATS:
        raise InputError(f"unknown format {reader_format!r}; expected one of {', '.join(FORMATS)}")
    if sequence_column is not None:
        if reader_format not in ("auto", GenericReader.name):
            raise InputError(f"--sequence-column reads any table and does not go with --format {reader_format}")
        if sequence_column == count_column:
            raise InputError(f"--sequence-column and --count-column both name {count_column!r}")
        return GenericReader(sequence_column, count_column)
    if reader_format == GenericReader.name or count_column is not None:
        raise InputError("--format generic and --count-column need --sequence-column, the column of the sequences")
    return next((reader for reader in READERS if reader.name == reader_format), None)


def find_reader(header: Header, reader: Reader | None = None) -> tuple[Reader, Layout]:
    """Return the reader of a file and where it finds its columns; `reader` is the only candidate if given.

    Raises
    ------
    InputError
        If no reader knows the header (`NoTableError`), or more than one does.
    """
    candidates = READERS if reader is None else (reader,)
    found = [(each, layout) for each in candidates if (layout := each.layout(header)) is not None]
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(each.name for each, _ in found)
        raise InputError(f"{header.path}: the header fits {names}; choose one with --format")
    shown = ", ".join(column[:_SHOWN_LETTERS] for column in header.columns[:_SHOWN_COLUMNS])
    more = ", ..." if len(header.columns) > _SHOWN_COLUMNS else ""
    known = "; ".join(f"{each.name} ({each.recognised_by})" for each in candidates)
    raise NoTableError(
        f"{header.path}: no reader knows this header; its first columns are "
        f"{shown}{more}. Known formats: {known}. "
        "Any other table is read with --sequence-column and --count-column."
    )


def read_repertoire(path: str | os.PathLike[str], *, reader: Reader | None = None) -> pd.DataFrame:
    """Read one repertoire file, whatever its format; see `to_frame` for the columns of the result."""
    from deeprc.datasets.readers.frame import to_frame  # pandas, which reading a cohort does not need

    header = read_header(Path(path))
    return to_frame(read_rows(header, find_reader(header, reader)[1]))
