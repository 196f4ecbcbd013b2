"""Sheets that a stranger may send: pipes and devices, sizes that are not true, bombs, numbers without end."""

import gzip
import io
import os
import socket
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pytest

from deeprc.datasets import metadata as metadata_module
from deeprc.datasets import workbook as workbook_module
from deeprc.datasets.emerson2017 import read_associated_sequences
from deeprc.datasets.matching import find_files
from deeprc.datasets.metadata import read_metadata
from deeprc.datasets.readers.text import MAX_LINE_BYTES
from deeprc.errors import InputError
from deeprc.files import check_regular_file
from tests.toys.repertoire_tables import read_repertoire

ROWS = [["ID", "status"], ["a", "x"], ["b", "y"]]
SHEET = "xl/worksheets/sheet1.xml"


def workbook(path, edit=None, xml=None, extra=()):
    """Write an XLSX file; `edit` changes the sheet, `xml` its text, `extra` are further parts."""
    book, stream = openpyxl.Workbook(), io.BytesIO()
    for row in ROWS:
        book.active.append(row)
    if edit is not None:
        edit(book.active)
    book.save(stream)
    with zipfile.ZipFile(stream) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            data = source.read(name).decode()
            archive.writestr(name, xml(data) if xml is not None and name == SHEET else data)
        for name, data in extra:
            archive.writestr(name, data)
    return path


def with_row(cells, number=4):
    return lambda text: text.replace("</sheetData>", f'<row r="{number}">{cells}</row></sheetData>')


# --- what is no regular file ----------------------------------------------------------------------------


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # in the working folder: the path of a socket is short


@pytest.mark.parametrize(("make", "kind"), [(make_pipe, "a pipe"), (make_socket, "a socket")])
@pytest.mark.parametrize(
    "read",
    [read_metadata, read_repertoire, read_associated_sequences, lambda path: find_files([path]), check_regular_file],
    ids=["sheet", "repertoire", "workbook", "source", "helper"],
)
def test_pipes_and_sockets_are_refused_without_opening_them(tmp_path, monkeypatch, hangs, make, kind, read):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "p")
    with pytest.raises(InputError, match=rf"p: is {kind}; expected a"):
        read(tmp_path / "p")


@pytest.mark.parametrize("read", [read_metadata, read_repertoire, lambda path: find_files([path])])
def test_devices_are_refused(hangs, tmp_path, read):
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"link: is a device; expected a.*; write its content to a file first"):
        read(tmp_path / "link")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that cannot be read at its start, of Linux")
@pytest.mark.parametrize("read", [read_metadata, read_repertoire])
def test_a_file_of_a_disk_that_cannot_be_read_is_named(tmp_path, read):
    (tmp_path / "link").symlink_to("/proc/self/mem")
    with pytest.raises(InputError, match=r"link: cannot be read: Input/output error"):
        read(tmp_path / "link")


def test_a_pipe_in_a_folder_is_left_aside(tmp_path):
    os.mkfifo(tmp_path / "p.tsv")
    (tmp_path / "a.tsv").touch()
    assert find_files([tmp_path]).tables == (tmp_path / "a.tsv",)


def test_links_in_a_circle(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.tsv").touch()
    (tmp_path / "sheet.tsv").symlink_to("sheet.tsv")
    (tmp_path / "files" / "again").symlink_to(tmp_path / "files")
    assert find_files([tmp_path / "files"], exclude=tmp_path / "sheet.tsv").tables == (tmp_path / "files" / "a.tsv",)
    with pytest.raises(InputError, match=r"sheet\.tsv: cannot be read: Too many levels of symbolic links"):
        read_metadata(tmp_path / "sheet.tsv")


def test_a_regular_file_and_a_link_to_it_are_accepted(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    check_regular_file(tmp_path / "b")
    with pytest.raises(InputError, match="c: no such file"):
        check_regular_file(tmp_path / "c")
    with pytest.raises(InputError, match="is a folder; expected a container"):
        check_regular_file(tmp_path, expected="a container")


# --- workbooks ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cell_in_the_last_place(tmp_path):
    path = workbook(tmp_path / "m.xlsx", lambda sheet: sheet.__setitem__("XFD1048576", "x"))
    with pytest.raises(InputError, match=r"m\.xlsx: row 1048576 has 16384 fields where the header has 2"):
        read_metadata(path)


def test_blank_cells_and_sizes_that_are_not_true(tmp_path):
    def format_only(sheet):
        sheet["XFD3000"].number_format = "0.00"

    assert read_metadata(workbook(tmp_path / "m.xlsx", format_only)).repertoire_ids == ("a", "b")
    path = workbook(tmp_path / "m.xlsx", xml=lambda text: text.replace('ref="A1:B3"', 'ref="A1:XFD1048576"'))
    assert read_metadata(path).table.shape == (2, 2)
    path = workbook(tmp_path / "m.xlsx", xml=lambda text: text.replace('ref="A1:B3"', 'ref="A1:A1"'))
    assert read_metadata(path).table.shape == (2, 2)


@pytest.mark.slow
def test_a_row_that_no_sheet_has(tmp_path):
    path = workbook(tmp_path / "m.xlsx", xml=with_row('<c r="A4"/>', number=10**11))
    with pytest.raises(InputError, match=r"m\.xlsx: too large; expected at most 1,000,000 rows"):
        read_metadata(path)


@pytest.mark.parametrize("limit", ["MAX_ROWS", "MAX_CELLS", "_MAX_FORMATTED_CELLS"])
def test_too_many_rows_and_cells(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(workbook_module, limit, 2)
    with pytest.raises(InputError, match=r"m\.xlsx: too large; expected at most"):
        read_metadata(workbook(tmp_path / "m.xlsx"))


def test_a_workbook_that_unpacks_to_too_much(tmp_path):
    path = workbook(tmp_path / "m.xlsx", extra=[("xl/media/zeros.bin", bytes(workbook_module.MAX_SHEET_BYTES))])
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match=r"m\.xlsx: more than 128 MiB unpacked"):
        read_metadata(path)


XML_OF_MANY_TAGS = {
    "formats": ("xl/styles.xml", b"<styleSheet><cellXfs>" + b"<xf/>" * 11 + b"</cellXfs></styleSheet>"),
    "cells": (
        "xl/worksheets/sheet1.xml",
        b"<worksheet><sheetData><row>" + b"<c/>" * 11 + b"</row></sheetData></worksheet>",
    ),
    "texts": ("xl/sharedStrings.xml", b"<sst>" + b"<si/>" * 21 + b"</sst>"),
}


@pytest.mark.parametrize("part", XML_OF_MANY_TAGS)
def test_a_workbook_with_more_tags_than_any_sheet_needs(tmp_path, monkeypatch, part):
    """A file of 100 KB with 20 million empty formats takes minutes, and 30 GB, if openpyxl reads it."""
    name, xml = XML_OF_MANY_TAGS[part]
    with zipfile.ZipFile(tmp_path / "m.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", b"<Types/>")
        archive.writestr(name, xml)
    monkeypatch.setattr(workbook_module, "_MAX_TAGS", 10)
    monkeypatch.setattr(workbook_module, "_MAX_ROWS_AND_STRINGS", 20)
    with pytest.raises(InputError, match=rf"m\.xlsx: too large; part '{name}' has more XML tags than .* or as CSV"):
        read_metadata(tmp_path / "m.xlsx")


def test_many_tags_in_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(workbook_module, "_MAX_TAGS", 300)
    book = openpyxl.Workbook()
    for row in [["ID", "x"], *([f"r{i}", i] for i in range(100))]:
        book.active.append(row)
    book.save(tmp_path / "m.xlsx")
    with workbook_module.open_sheet(tmp_path / "m.xlsx") as sheet:
        assert sum(1 for _ in sheet.iterate_rows()) == 101


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_that_multiply(tmp_path, encoding):
    entities = "".join(f'<!ENTITY e{i + 1} "{10 * f"&e{i};"}">' for i in range(12))
    cell = '<c r="A4" t="inlineStr"><is><t>&e12;</t></is></c>'
    doctype = f'<!DOCTYPE x [<!ENTITY e0 "{"ha" * 10}">{entities}]>'

    def add(text):
        text = f'<?xml version="1.0" encoding="{encoding}"?><!-- {"-x" * 50_000} -->{doctype}{with_row(cell)(text)}'
        return text.encode(encoding)

    with pytest.raises(InputError, match=r"m\.xlsx: part 'xl/worksheets/sheet1\.xml' has a document type"):
        read_metadata(workbook(tmp_path / "m.xlsx", xml=add))


def test_a_number_of_4301_digits_in_a_workbook(tmp_path):
    path = workbook(tmp_path / "m.xlsx", xml=with_row(f'<c r="A4"><v>{"9" * 4301}</v></c>'))
    with pytest.raises(InputError, match=r"m\.xlsx: cannot be read as XLSX after row 3: .*4301 digits$"):
        read_metadata(path)


@pytest.mark.parametrize("value", ["1e400", "-1e400", "1e308"])
def test_odd_numbers_in_a_workbook(tmp_path, value):
    name = '<c r="A4" t="inlineStr"><is><t>c</t></is></c>'
    path = workbook(tmp_path / "m.xlsx", xml=with_row(f'{name}<c r="B4"><v>{value}</v></c>'))
    assert read_metadata(path).table["status"].tolist()[:2] == ["x", "y"]


def test_a_number_format_without_end(tmp_path):
    def edit(sheet):
        sheet["A2"] = 7
        sheet["A2"].number_format = "0" * 100_000

    assert read_metadata(workbook(tmp_path / "m.xlsx", edit)).repertoire_ids == ("7", "b")


def test_comments_above_a_workbooks_header(tmp_path):
    book = openpyxl.Workbook()
    for row in [["## made by a tool", None, "x"], ["# note"], [], ["#ID", "y"], ["a", 1], ["b", 2]]:
        book.active.append(row)
    book.save(tmp_path / "m.xlsx")
    sheet = read_metadata(tmp_path / "m.xlsx")
    assert (sheet.id_column, sheet.repertoire_ids) == ("ID", ("a", "b"))


# --- text -----------------------------------------------------------------------------------------------


def read_text_sheet(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_metadata(path)


@pytest.mark.parametrize(
    "value", ["9" * 4301, "-" + "9" * 4301, "1e400", "-1e400", f"1e{'9' * 4301}", "9" * 400 + ".5", "inf", "007"]
)
@pytest.mark.parametrize("other", ["1", "1.5", ""])
def test_numbers_too_large_are_text(tmp_path, value, other):
    sheet = read_text_sheet(tmp_path / "m.tsv", f"ID\tn\na\t{value}\nb\t{other}\n")
    assert sheet.table["n"].tolist() == [value, other or None]


def test_numbers_that_are_small_stay_numbers(tmp_path):
    sheet = read_text_sheet(tmp_path / "m.tsv", "ID\tn\tm\na\t1e-400\t9223372036854775807\nb\t1.5\t-5\n")
    assert sheet.table["n"].tolist() == [0.0, 1.5]
    assert sheet.table["m"].dtype == np.int64


def test_comments_above_the_header(tmp_path):
    text = "####\n## made by a tool, 2024\n# note\n\nID,y\na,1\n\na,2\n"
    with pytest.raises(InputError, match=r"m\.csv: rows 6 and 8 have the same ID 'a'"):
        read_text_sheet(tmp_path / "m.csv", text)
    sheet = read_text_sheet(tmp_path / "m.csv", text.replace("a,2", "b,2"))
    assert sheet.repertoire_ids == ("a", "b")
    assert list(sheet.table) == ["ID", "y"]


def test_a_header_with_a_newline_in_a_name(tmp_path):
    sheet = read_text_sheet(tmp_path / "m.csv", 'ID,"age\n(years)"\na,1\n')
    assert list(sheet.table) == ["ID", "age (years)"]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ('a,"x\x1b]0;t\x07"', r"'x\\x1b\]0;t\\x07'"),
        ("a,\x9b1m", r"'\\x9b1m'"),
        ("a,x\x7f", r"'x\\x7f'"),
        ("a,\u202eesac", r"'\\u202eesac'"),
        ("a,\u2067x", r"'\\u2067x'"),
    ],
)
def test_a_cell_does_not_steer_the_terminal(tmp_path, row, found):
    message = rf"m\.csv: row 3, column 'y': expected no control characters, found {found}"
    with pytest.raises(InputError, match=message):
        read_text_sheet(tmp_path / "m.csv", f"ID,y\nb,1\n{row}\n")


def test_an_id_does_not_reverse_the_text_of_a_page(tmp_path):
    with pytest.raises(InputError, match=r"m\.csv: row 2, column 'ID': expected no control characters, found 'a\\u202"):
        read_text_sheet(tmp_path / "m.csv", "ID,y\na\u202eb,1\n")


def test_a_workbooks_cells_of_several_lines(tmp_path):
    sheet = read_metadata(workbook(tmp_path / "m.xlsx", lambda sheet: sheet.__setitem__("B2", "x \n\ty")))
    assert sheet.table["status"].tolist() == ["x y", "y"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ID\tx\na\0b\t1\0\n", r"not a text table \("),
        (b"\x89HDF\r\n\x1a\n\0\0ab\ncd\te\tf\n", "is an HDF5 file, either damaged or not a container"),
    ],
    ids=["nul", "hdf5"],
)
def test_a_binary_file_as_a_sheet(tmp_path, data, message):
    with pytest.raises(InputError, match=rf"m\.tsv: {message}"):
        read_text_sheet(tmp_path / "m.tsv", data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ID\tx\na\t" + b"A" * (2 * MAX_LINE_BYTES), "a line or a field in quotes is longer than 16 MiB"),
        (b"ID\tx\n" + b"a\tb\n" * (workbook_module.MAX_SHEET_BYTES // 4), "more than 128 MiB of text"),
        (bytes(1 << 25), r"not a text table \(no header in its first 4 MiB\)"),
        (b"\t".join(b"c%d" % i for i in range(100_000)) + b"\na\n", "100,000 columns; expected at most 16,384"),
        (b"ID\tx\na\t" + b"\t" * 20_000 + b"\n", "row 2: too large; expected at most"),
        (b"ID\tx\na\t1\t2\n", "row 2 has 3 fields where the header has 2"),
        (b'ID\tx\na\t"' + (b"b" * 1023 + b"\n") * ((1 << 14) + 1), "field larger than field limit"),
    ],
    ids=["line", "text", "zeros", "columns", "row", "field", "quote"],
)
def test_packed_sheets_without_end(tmp_path, data, message):
    with pytest.raises(InputError, match=rf"m\.tsv: .*{message}"):
        read_text_sheet(tmp_path / "m.tsv", gzip.compress(data, 1))


@pytest.mark.parametrize("limit", ["MAX_ROWS", "MAX_CELLS"])
def test_too_many_rows_and_cells_of_text(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(metadata_module, limit, 2)
    with pytest.raises(InputError, match=r"m\.tsv: row \d: too large; expected at most"):
        read_text_sheet(tmp_path / "m.tsv", "ID\tx\na\t1\nb\t2\nc\t3\n")


@pytest.mark.parametrize(
    ("data", "ids"),
    [
        (b"ID\tx\na\xff\t1\n", ("a\xff",)),
        ("ID\tx\na\t1\n".encode("utf-16") + b"\0", ("a",)),
        (b"\xef\xbb\xbfID\tx\na\t1\n", ("a",)),
        (b'ID\tx\n"a ""b"" c"\t1\n', ('a "b" c',)),
    ],
    ids=["latin-1", "utf-16 cut short", "mark", "quotes"],
)
def test_odd_letters(tmp_path, data, ids):
    assert read_text_sheet(tmp_path / "m.tsv", data).repertoire_ids == ids


def test_a_cell_longer_than_a_spreadsheets(tmp_path):
    path = tmp_path / "m.tsv"
    path.write_text("ID\tnote\na\tshort\nb\t" + "x" * 32_768 + "\n")
    with pytest.raises(InputError, match=r"m\.tsv: row 3, column 'note': expected at most 32,767 letters"):
        read_metadata(path)


def test_long_names_and_ids_are_cut_in_messages(tmp_path):
    for text in ("ID\tx\n" + 2 * ("a" * 9_000 + "\t1\n"), "\t".join(["x" * 9_000, *"yz"]) + "\n1\t2\t3\n"):
        with pytest.raises(InputError) as error:
            read_text_sheet(tmp_path / "m.tsv", text)
        assert len(str(error.value).replace(str(tmp_path), "")) < 600
