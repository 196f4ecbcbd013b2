"""Search a table for the row or the value that a message names; slow, because the table is read again, row by row."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import count, islice

from deeprc.datasets.readers.layout import Header
from deeprc.datasets.readers.text import make_too_long_error, read_line_blocks

__all__ = ["find_decimal_comma", "find_ragged_row", "find_row_number"]

_DECIMAL_COMMA = re.compile(r"[+-]?(0|[1-9]\d*),\d+([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_SEARCHED_ROWS = 1000


def find_ragged_row(header: Header) -> tuple[int, int] | None:
    """Return the number of the first row with more or fewer fields than the header, and how many it has."""
    rows = ((number, len(fields)) for number, fields in _number_rows(header))
    return next((row for row in rows if row[1] != len(header.columns)), None)


def find_row_number(header: Header, index: int) -> int:
    """Return the number that a row of data, by its index from 0, has in a spreadsheet, where the header is row 1."""
    return next(islice(_number_rows(header), index, None))[0]


def find_decimal_comma(header: Header, ignored: str) -> tuple[str, str] | None:
    """Return a column of numbers with decimal commas, such as 0,0074, and the first of these; None without any.

    It looks at the first thousand rows, in which every value of the column must be such a number, an integer or empty.
    The column `ignored` is not searched.
    """
    first: dict[int, str] = {}
    excluded = {index for index, name in enumerate(header.columns) if name == ignored}
    for _, fields in islice(_number_rows(header), _SEARCHED_ROWS):
        for index, value in enumerate(map(str.strip, fields[: len(header.columns)])):
            if _DECIMAL_COMMA.fullmatch(value):
                first.setdefault(index, value)
            elif value and not _INTEGER.fullmatch(value):
                excluded.add(index)
    return next(((header.columns[index], value) for index, value in first.items() if index not in excluded), None)


def _number_rows(header: Header) -> Iterator[tuple[int, list[str]]]:
    """Yield all rows that are not blank, with their numbers."""
    numbers = count(2 + header.n_comments)
    for block, quoted in read_line_blocks(header):
        lines = io.TextIOWrapper(io.BytesIO(block), "latin-1", newline="")
        try:
            for fields in csv.reader(
                lines, delimiter=header.delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
            ):
                number = next(numbers)
                if fields:
                    yield number, fields
        except csv.Error as error:  # a field is longer than the csv module's limit, which is set in `text`
            raise make_too_long_error(header.path) from error
