"""A reader of any other table, of which the user names the columns."""

from __future__ import annotations

from dataclasses import dataclass

from deeprc.datasets.readers.layout import Header, Layout
from deeprc.errors import InputError

__all__ = ["GenericReader"]

_SHOWN_COLUMNS = 12


@dataclass(frozen=True)
class GenericReader:
    """A reader of tables that uses only the named columns; without a count column, every sequence counts once.

    Attributes
    ----------
    sequence_column
        Column of the amino-acid sequences, which are used as they are; it is needed.
    count_column, v_column, j_column
        Columns of the counts, and of the names of V and of J genes, if there are any.
    """

    sequence_column: str
    count_column: str | None = None
    v_column: str | None = None
    j_column: str | None = None

    name = "generic"
    recognised_by = "the columns given by `sequence_column`, `count_column`, `v_column` and `j_column`"

    def find_layout(self, header: Header) -> Layout:
        """Return the named columns.

        Raises
        ------
        InputError
            If the file lacks one of them.
        """
        given_columns = (self.sequence_column, self.count_column, self.v_column, self.j_column)
        missing = [column for column in given_columns if column is not None and column not in header.columns]
        if missing:
            columns = ", ".join(header.columns[:_SHOWN_COLUMNS])
            more = ", ..." if len(header.columns) > _SHOWN_COLUMNS else ""
            raise InputError(
                f"{header.path}: no column {' and '.join(map(repr, missing))}; the file's columns are {columns}{more}"
            )
        counts, v_call, j_call = (() if column is None else (column,) for column in given_columns[1:])
        return Layout(junction_aa=self.sequence_column, counts=counts, v_call=v_call, j_call=j_call)
