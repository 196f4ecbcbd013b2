from __future__ import annotations

import pyarrow as pa
import pytest

from deeprc.datasets.airr_tables import add_required_fields, format_tsv


def text(table: pa.Table, *, has_header: bool = True) -> str:
    return bytes(format_tsv(table, has_header=has_header)).decode()


def test_values_are_separated_by_tabs_and_nulls_are_empty() -> None:
    table = pa.table({"junction_aa": ["CASF", "", None], "duplicate_count": [1, None, 3]})
    assert text(table) == "junction_aa\tduplicate_count\nCASF\t1\n\t\n\t3\n"
    assert text(table, has_header=False) == "CASF\t1\n\t\n\t3\n"
    assert text(table[:0]) == "junction_aa\tduplicate_count\n"
    assert text(table[:0], has_header=False) == ""


@pytest.mark.parametrize("wild", ['a "b"', "a\tb", "a\nb"])
def test_if_one_text_needs_quotation_marks_all_get_them(wild: str) -> None:
    table = pa.table({"signal": [wild, "c"], "duplicate_count": [1, 2]})
    quoted = wild.replace('"', '""')
    assert text(table) == f'signal\tduplicate_count\n"{quoted}"\t1\n"c"\t2\n'


def test_required_fields_are_added_once_and_are_empty() -> None:
    table = add_required_fields(pa.table({"v_call": ["TRBV1"], "junction_aa": ["CASF"]}))
    assert table.column_names[:3] == ["v_call", "junction_aa", "j_call"]
    assert len(table.column_names) == len(set(table.column_names)) == 13
    assert text(table).splitlines()[1] == "TRBV1\tCASF" + "\t" * 11
