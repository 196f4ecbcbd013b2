"""Tables that deeprc writes as AIRR Rearrangement files: the required fields, and their text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as arrow_csv

__all__ = ["add_required_fields", "format_tsv"]

_REQUIRED = (
    *("v_call", "j_call", "sequence", "rev_comp", "productive", "d_call", "sequence_alignment", "germline_alignment"),
    *("junction", "v_cigar", "d_cigar", "j_cigar"),
)


def add_required_fields(table: pa.Table) -> pa.Table:
    """Return a table with all fields that the AIRR schema requires; fields without a known value are empty."""
    for name in _REQUIRED:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(len(table), pa.string()))
    return table


def format_tsv(table: pa.Table, *, has_header: bool) -> pa.Buffer:
    """Return a table as tab-separated text; a null is empty.

    If any text has a quotation mark, a tab or a line break, all texts of the table are in quotation marks.
    """
    head = ("\t".join(table.column_names) + "\n").encode() if has_header else b""
    try:
        return _format_rows(table, head, "none")
    except pa.ArrowInvalid:  # for example, an id has a quotation mark
        return _format_rows(table, head, "needed")


def _format_rows(table: pa.Table, head: bytes, quoting: str) -> pa.Buffer:
    options = arrow_csv.WriteOptions(include_header=False, delimiter="\t", quoting_style=quoting)
    text = pa.BufferOutputStream()
    text.write(head)
    if len(table):
        arrow_csv.write_csv(table, text, options)
    return text.getvalue()
