"""Any other table: the user names the column of the sequences and, if there is one, that of the counts."""

from __future__ import annotations

from dataclasses import dataclass

from deeprc.datasets.readers.layout import Header, Layout
from deeprc.errors import InputError

__all__ = ["GenericReader"]

_SHOWN_COLUMNS = 12


@dataclass(frozen=True)
class GenericReader:
    """A table of which only the named columns are used; without a count column every sequence counts once."""

    sequence_column: str
    count_column: str | None = None

    name = "generic"
    recognised_by = "the columns given by --sequence-column and --count-column"

    def layout(self, header: Header) -> Layout:
        """Return the named columns.

        Raises
        ------
        InputError
            If the file has no column of that name.
        """
        for column in (self.sequence_column, self.count_column):
            if column is not None and column not in header.columns:
                columns = ", ".join(header.columns[:_SHOWN_COLUMNS])
                raise InputError(f"{header.path}: no column {column!r}; the file's columns are {columns}")
        return Layout(self.sequence_column, counts=() if self.count_column is None else (self.count_column,))
