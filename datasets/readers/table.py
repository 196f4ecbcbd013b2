"""Read one repertoire file as columns with AIRR field names: the part of reading that all formats share.

Letters: N rows, R residues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.codons import translate
from deeprc.datasets.genes import select_best_hits
from deeprc.datasets.missing import MISSING_IN_TABLES, is_missing
from deeprc.datasets.raw_texts import RawTexts
from deeprc.datasets.readers.columns import factorize, find_first_rows, read_columns
from deeprc.datasets.readers.layout import Header, InvalidValueError, Layout, SequenceKind, Status
from deeprc.datasets.readers.row_search import find_decimal_comma, find_row_number
from deeprc.datasets.readers.text import decode_name
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.documents import CONTROL_CHARACTERS
from deeprc.errors import InputError

__all__ = [
    "COUNT_CELLS",
    "COUNT_ONE",
    "Locate",
    "RawRows",
    "find_repertoire_names",
    "make_rows",
    "read_rows",
]

Locate = Callable[[int], str]
"""Function that names a row in a message, from the row's index."""

COUNT_ONE = "(one)"
"""The source of a count that was missing everywhere and became 1."""

COUNT_CELLS = "(cells)"
"""The source of counts in a file of single cells."""

_MAX_COUNT = int(np.iinfo(np.uint32).max)
_NO_COUNT, _INVALID = -1.0, -2.0
_POINTS_FOR_THOUSANDS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+", re.ASCII)  # 1.319, which may also be a decimal number
_SEPARATORS = re.compile(r"\d{1,3}(\.\d{3}){2,}|\d{1,3}(,\d{3})+", re.ASCII)  # 1.319.000 or 1,319
_SHORTENED = re.compile(r"\d+([.,]\d+)?[eE][+-]?\d+", re.ASCII)  # 1.3E+06
_MAX_LETTERS = 1_000
"""Largest number of letters of a gene or a repertoire: in a container, all names take as many bytes as the longest."""

_MAX_MISSING_LETTERS = max(map(len, MISSING_IN_TABLES))
_WORDS_FOR_MISSING = [word for word in MISSING_IN_TABLES if word]
_FIRST_LETTERS_OF_MISSING = np.array(
    [ord(word[0]) for word in (*_WORDS_FOR_MISSING, *map(str.upper, _WORDS_FOR_MISSING))]
)
_SPACE = 32


@dataclass(frozen=True)
class RawRows:
    """The N rows of one file, in its order, before cleaning.

    Attributes
    ----------
    sequences
        The sequences as the file has them, or translated from its nucleotides; a missing one is empty.
    kinds
        Part of the receptor that each sequence was read from, a `SequenceKind`, (N,) uint8.
    counts
        Abundance of each row, at least 1, (N,) uint32.
    count_sources
        Columns from which counts may come; the last entry is `COUNT_ONE` or `COUNT_CELLS`.
    count_source
        Index in `count_sources` of the column from which the count of each row comes, (N,) int8.
    count_rounded
        Whether the file's count was not a whole number of at least 1, (N,) bool.
    status
        Status of each row by what the file says, a `Status`, (N,) uint8.
    v_call, j_call, repertoire, locus, cell
        Names as found, "" if missing; None if the file does not have them.
    repertoire_column
        Column that names the repertoires.
    """

    sequences: RawTexts
    kinds: NDArray[np.uint8]
    counts: NDArray[np.uint32]
    count_sources: tuple[str, ...]
    count_source: NDArray[np.int8]
    count_rounded: NDArray[np.bool_]
    status: NDArray[np.uint8]
    v_call: Categorical | None = None
    j_call: Categorical | None = None
    repertoire: Categorical | None = None
    repertoire_column: str = ""
    locus: Categorical | None = None
    cell: Categorical | None = None

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def genes(self) -> dict[str, Categorical]:
        """The columns of genes that the file has, by field: `v_call`, `j_call`."""
        return {name: calls for name in GENE_FIELDS if (calls := getattr(self, name)) is not None}

    def take(self, index: NDArray[np.int64]) -> RawRows:
        """Return some of the rows, (n,), in this order; the vocabularies of the columns have only names that occur."""
        changed: dict[str, Any] = {"sequences": self.sequences.take(index)}
        for name in ("kinds", "counts", "count_source", "count_rounded", "status"):
            changed[name] = getattr(self, name)[index]
        for name in (*GENE_FIELDS, "repertoire", "locus", "cell"):
            column = getattr(self, name)
            changed[name] = None if column is None else column.take(index).drop_unused()
        return replace(self, **changed)


def read_rows(header: Header, layout: Layout) -> RawRows:
    """Read the rows of one file, all of them, in the file's order.

    Raises
    ------
    InputError
        If a value cannot be used; the message names the file, the row (the header is row 1) and the column.
    """
    texts, coded = read_columns(header, list(layout.sequences.values()), layout.coded_columns)

    def locate(row: int) -> str:
        return f"{header.path}: row {find_row_number(header, row)}"

    rows = make_rows(texts, coded, layout, locate)
    _check_thousands(header, coded, rows, locate)
    return rows


def _check_thousands(header: Header, coded: Mapping[str, Categorical], rows: RawRows, locate: Locate) -> None:
    """Refuse counts such as 1.319 in a file with decimal commas: there, the point separates thousands.

    They are accepted if another count of the column, such as 2.5, shows that its points are decimal points.

    Raises
    ------
    InputError
        If there is such a count.
    """
    for index, name in enumerate(rows.count_sources[:-1]):
        column = coded[name]
        suspects = [
            code for code, value in enumerate(column.vocabulary) if _POINTS_FOR_THOUSANDS.fullmatch(value.strip())
        ]
        n_with_point = sum("." in value for value in column.vocabulary)
        if not suspects or n_with_point > len(suspects):
            continue
        suspect_rows = np.flatnonzero(np.isin(column.codes, suspects) & (rows.count_source == index))
        with_comma = find_decimal_comma(header, name) if len(suspect_rows) else None
        if with_comma is not None:
            row = int(suspect_rows[0])
            raise InputError(
                f"{locate(row)}, column {name!r}: the point in {column.get_name(row)!r} looks like a thousands "
                f"separator, because column {with_comma[0]!r} has a decimal comma ({with_comma[1]}); "
                "write counts without separators, or the whole table with decimal points"
            )


def make_rows(
    texts: Mapping[str, RawTexts], coded: Mapping[str, Categorical], layout: Layout, locate: Locate
) -> RawRows:
    """Return rows from the columns that a layout names: the sequences as texts, the others as codes.

    Raises
    ------
    InputError
        If a value cannot be used; the message names the row as `locate` does, and the column.
    """
    layout = _choose_counts_or_cells(coded, layout)
    sequences, kinds = _select_sequences({kind: texts[column] for kind, column in layout.sequences.items()})
    counts, count_source, count_rounded = _parse_counts(coded, layout, len(sequences), locate)
    locus, cell = (
        None if column is None else _choose_names([coded[column]], _clean_name)
        for column in (layout.locus, layout.cell)
    )
    v_call, j_call = (
        _choose_names([coded[column] for column in columns], _clean_gene) if columns else None
        for columns in (layout.v_call, layout.j_call)
    )
    repertoire_column, repertoire = find_repertoire_names(coded, layout.repertoire) if layout.repertoire else ("", None)
    _check_names(locus, locate, layout.locus or "")
    _check_names(v_call, locate, " or ".join(layout.v_call))
    _check_names(j_call, locate, " or ".join(layout.j_call))
    _check_names(repertoire, locate, repertoire_column)
    return RawRows(
        sequences=sequences,
        kinds=kinds,
        counts=counts,
        count_sources=(*layout.counts, COUNT_ONE if layout.cell is None else COUNT_CELLS),
        count_source=count_source,
        count_rounded=count_rounded,
        status=_choose_statuses(coded, layout, len(sequences), locate),
        v_call=v_call,
        j_call=j_call,
        repertoire=repertoire,
        repertoire_column=repertoire_column,
        locus=locus,
        cell=cell,
    )


def _choose_counts_or_cells(coded: Mapping[str, Categorical], layout: Layout) -> Layout:
    """Return a layout with a cell column without its counts if a row names a cell, otherwise without this column."""
    if layout.cell is None:
        return layout
    names_of_cells = _choose_names([coded[layout.cell]], _clean_name).vocabulary
    return replace(layout, counts=()) if any(names_of_cells) else replace(layout, cell=None)


def _check_names(names: Categorical | None, locate: Locate, column: str) -> None:
    """Raise InputError if a name of a row, in the column that a message calls `column`, cannot be stored."""
    if names is None:
        return
    for code, name in enumerate(names.vocabulary):
        if len(name) > _MAX_LETTERS or CONTROL_CHARACTERS.search(name):
            expected = f"at most {_MAX_LETTERS:,} letters, and no control characters"
            row = int(np.flatnonzero(names.codes == code)[0])
            raise _make_error(locate, row, InvalidValueError(column, name, expected))


def _select_sequences(columns: dict[SequenceKind, RawTexts]) -> tuple[RawTexts, NDArray[np.uint8]]:
    """Return each row's sequence, taken from the first column that has one, and the kind of that column, (N,)."""
    (first, texts), *others = columns.items()
    sequences = _convert_to_residues(texts, first)
    kinds = np.full(len(sequences), first, np.uint8)
    for kind, texts in others:
        empty = sequences.lengths == 0
        if not empty.any():
            break
        alternatives = _convert_to_residues(texts, kind)
        is_filled = empty & (alternatives.lengths > 0)
        sequences = _fill_empty(sequences, alternatives, is_filled)
        kinds[is_filled] = kind
    return sequences, kinds


def _convert_to_residues(texts: RawTexts, kind: SequenceKind) -> RawTexts:
    """Return sequences as amino acids: nucleotides are translated, and missing sequences become empty."""
    stripped = _strip_missing(texts)
    return translate(stripped) if kind == SequenceKind.JUNCTION else stripped


def _fill_empty(texts: RawTexts, others: RawTexts, is_filled: NDArray[np.bool_]) -> RawTexts:
    """Return texts in which the empty ones that `is_filled` marks, (N,), are replaced by the others."""
    lengths = np.where(is_filled, others.lengths, texts.lengths)
    merged = np.empty(lengths.sum(), np.uint8)
    is_of_others = np.repeat(is_filled, lengths)
    merged[~is_of_others] = texts.letters
    merged[is_of_others] = others.letters[np.repeat(is_filled, others.lengths)]
    return RawTexts(merged, compute_offsets(lengths))


def _strip_missing(texts: RawTexts) -> RawTexts:
    """Return sequences without blanks at their ends; words that mean a missing sequence become empty."""
    rows = _find_rows_to_strip(texts)
    if not len(rows):
        return texts
    letters, offsets, lengths = texts.letters, texts.offsets, texts.lengths
    keep = np.ones(len(letters), bool)
    for row in rows.tolist():
        start, stop = int(offsets[row]), int(offsets[row + 1])
        text = letters[start:stop].tobytes()
        stripped = text.strip()
        if is_missing(decode_name(stripped), MISSING_IN_TABLES):
            stripped = b""
        first = start + text.find(stripped)
        keep[start:first] = False
        keep[first + len(stripped) : stop] = False
        lengths[row] = len(stripped)
    return texts if keep.all() else RawTexts(letters[keep], compute_offsets(lengths))


def _find_rows_to_strip(texts: RawTexts) -> NDArray[np.int64]:
    """Return the rows that begin or end with a blank, or that may be a word for a missing sequence: mostly none."""
    letters, offsets, lengths = texts.letters, texts.offsets, texts.lengths
    if not len(letters):
        return np.zeros(0, np.int64)
    # an empty text has no first letter; any letter will do, because `lengths > 0` leaves these rows out
    first_letter = letters[np.minimum(offsets[:-1], len(letters) - 1)]
    last_letter = letters[offsets[1:] - 1]
    has_blank = (first_letter <= _SPACE) | (last_letter <= _SPACE)
    may_be_missing = np.isin(first_letter, _FIRST_LETTERS_OF_MISSING) & (lengths <= _MAX_MISSING_LETTERS)
    return np.flatnonzero((lengths > 0) & (has_blank | may_be_missing))


def find_repertoire_names(coded: Mapping[str, Categorical], columns: Sequence[str]) -> tuple[str, Categorical]:
    """Return the column that names the repertoires, and the name of each row in it.

    It is the first column that is not empty, otherwise the first. No word means a missing name: `NA` is a name.
    """
    column = next((name for name in columns if any(value.strip() for value in coded[name].vocabulary)), columns[0])
    return column, _choose_names([coded[column]], str.strip)


def _clean_name(value: str) -> str:
    return "" if is_missing(value, MISSING_IN_TABLES) else value.strip()


def _clean_gene(value: str) -> str:
    """Return the name of a gene; of genes with scores, those of the best ones, without scores."""
    return select_best_hits(_clean_name(value))


def _choose_names(columns: Sequence[Categorical], clean: Callable[[str], str]) -> Categorical:
    """Return the name of each row: the first value of the columns that `clean` does not make empty, otherwise ""."""
    cleaned = [list(map(clean, column.vocabulary)) for column in columns]
    vocabulary = tuple(sorted({"", *(name for names in cleaned for name in names)}))
    code_of = {name: code for code, name in enumerate(vocabulary)}  # that of "" is 0
    codes = np.zeros(len(columns[0]), np.int32)
    for column, names in zip(columns, cleaned, strict=True):
        if names:
            own_codes = np.array([code_of[name] for name in names], np.int32)
            codes = np.where(codes == 0, own_codes[column.codes], codes)
    return Categorical(codes, vocabulary).drop_unused()


def _parse_counts(
    coded: Mapping[str, Categorical], layout: Layout, n: int, locate: Locate
) -> tuple[NDArray[np.uint32], NDArray[np.int8], NDArray[np.bool_]]:
    """Return the count of each row, the column that it is from, and whether it was rounded; see `Layout.counts`."""
    exact = np.full(n, _NO_COUNT)
    source = np.full(n, len(layout.counts), np.int8)
    for index, name in enumerate(layout.counts):
        column = coded[name]
        count_of_value = [_parse_count(value, layout.negative_is_one) for value in column.vocabulary]
        if not count_of_value:
            continue
        parsed = np.array(count_of_value)[column.codes]
        is_used = (exact == _NO_COUNT) & (parsed != _NO_COUNT)
        invalid = np.flatnonzero(is_used & (parsed == _INVALID))
        if len(invalid):
            raise _make_count_error(name, column, int(invalid[0]), locate)
        exact[is_used], source[is_used] = parsed[is_used], index
    exact[exact == _NO_COUNT] = 1
    rounded = np.maximum(np.rint(exact), 1)
    return rounded.astype(np.uint32), source, rounded != exact


def _make_count_error(name: str, column: Categorical, row: int, locate: Locate) -> InputError:
    """Return the error for a row whose count, in a column with this name, cannot be used."""
    value, expected = column.get_name(row), f"a number from 0 to {_MAX_COUNT}, or nothing"
    error = _make_error(locate, row, InvalidValueError(name, value, expected))
    return InputError(f"{error}{_explain_invalid_count(value)}")


def _parse_count(value: str, negative_is_one: bool) -> float:
    """Return the count of a cell, or the codes for a missing and for an invalid count."""
    if is_missing(value, MISSING_IN_TABLES):
        return _NO_COUNT
    try:
        count = float(value)
    except ValueError:
        return _INVALID
    if negative_is_one and count == -1:
        return 1.0
    return count if 0 <= count <= _MAX_COUNT and "_" not in value else _INVALID


def _explain_invalid_count(value: str) -> str:
    """Return what a spreadsheet program probably did to a count, for the end of a message; "" if it is not known."""
    if _SEPARATORS.fullmatch(value.strip()):
        return "; it looks like a count with thousands separators: write counts without them"
    if _SHORTENED.fullmatch(value.strip()):
        return "; a spreadsheet program has shortened this count: take it from the original file, not from this one"
    return ""


def _choose_statuses(coded: Mapping[str, Categorical], layout: Layout, n: int, locate: Locate) -> NDArray[np.uint8]:
    """Return the status of each row, (N,); the layout judges each combination of values once."""
    if not layout.status or n == 0:
        return np.full(n, Status.UNKNOWN, np.uint8)
    combined = np.zeros(n, np.int64)
    for name in layout.status:  # one after the other, because all combinations could exceed 64 bits
        combined = factorize(combined * len(coded[name].vocabulary) + coded[name].codes)
    row = 0
    try:
        verdicts = []
        for row in find_first_rows(combined).tolist():
            verdicts.append(layout.choose_status({name: coded[name].get_name(row) for name in layout.status}))
    except InvalidValueError as error:
        raise _make_error(locate, row, error) from None
    return np.array(verdicts, np.uint8)[combined]


def _make_error(locate: Locate, row: int, invalid: InvalidValueError) -> InputError:
    return InputError(f"{locate(row)}, {invalid}")
