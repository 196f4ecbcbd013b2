"""The metadata sheet: ids stay text, missing is missing, and every mistake has a row."""

import logging
import re
import zipfile
from datetime import datetime
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

from deeprc.datasets.metadata import make_metadata, read_metadata
from deeprc.datasets.workbook import open_sheet
from deeprc.errors import InputError

SHEET = [["sample_name", "age", "cmv"], ["007", "41", "+"], [" HD.01 ", "na", "-"]]


def write(path, rows, delimiter="\t"):
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    return path


def write_xlsx(path, rows, formats=None):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for cell, number_format in (formats or {}).items():
        book.active[cell].number_format = number_format
    book.create_sheet("second").append(["repertoire_id"])
    book["second"].append(["only"])
    book.save(path)
    return path


@pytest.mark.parametrize("delimiter", ["\t", ",", ";"])
@pytest.mark.parametrize("name", ["sheet.tsv", "sheet.csv", "sheet.txt", "sheet"])
def test_the_delimiter_is_found_from_the_header(tmp_path, delimiter, name):
    sheet = read_metadata(write(tmp_path / name, SHEET, delimiter))
    assert sheet.id_column == "sample_name"
    assert sheet.repertoire_ids == ("007", "HD.01")
    assert sheet.table["sample_name"].tolist() == ["007", "HD.01"]
    assert sheet.table["age"].tolist()[0] == 41.0
    assert np.isnan(sheet.table["age"].tolist()[1])
    assert sheet.table["cmv"].tolist() == ["+", "-"]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "repertoire_id",
            "ID",
            "identifier",
            "sample_id",
            "Sample Name",
            "Subject ID",
            "subject_id",
            "SAMPLE",
        ),
        *("repertoire_identifier", "Sample-ID", "patient id", "#sample_id"),
    ],
)
def test_names_of_the_id_column(tmp_path, name):
    sheet = read_metadata(write(tmp_path / "m.tsv", [["age", name], ["1", "a"], ["2", "b"]]))
    assert sheet.repertoire_ids == ("a", "b")


def test_a_hash_before_the_header(tmp_path):
    sheet = read_metadata(write(tmp_path / "m.tsv", [["#sample_id", "x"], ["a", "1"]]))
    assert list(sheet.table) == ["sample_id", "x"]


def test_of_several_id_columns_the_one_that_fits_the_files(tmp_path):
    rows = [["repertoire_id", "sample_id", "subject_id"], ["1", "s.1", "p"], ["2", "s.2", "q"]]
    path = write(tmp_path / "m.tsv", rows)
    assert read_metadata(path).id_column == "repertoire_id"
    assert read_metadata(path, files=[Path("x/s.2.tsv.gz"), Path("s.1.tsv")]).id_column == "sample_id"
    assert read_metadata(path, files=[Path("p.tsv"), Path("q.tsv")]).id_column == "subject_id"


@pytest.mark.parametrize(("usual", "other"), [("subject_id", "age"), ("sample_id", "Run")])
def test_a_usual_id_column_goes_before_another_one_if_the_file_column_matches(
    tmp_path: Path, usual: str, other: str
) -> None:
    values = [f"{'SRR' if other == 'Run' else ''}{number}" for number in range(1, 9)]
    rows = [[usual, other, "filename"], *([f"P-{each}", each, f"{each}.tsv"] for each in values)]
    files = [Path(f"{each}.tsv") for each in values]
    assert read_metadata(write(tmp_path / "sheet.tsv", rows), files=files).id_column == usual
    without = write(tmp_path / "sheet.tsv", [row[:2] for row in rows])
    assert read_metadata(without, files=files).id_column == other
    rows = [[*row[:2], "other.tsv" if number else "filename"] for number, row in enumerate(rows)]
    expected = usual if other == "age" else other
    assert read_metadata(write(tmp_path / "sheet.tsv", rows), files=files).id_column == expected


def test_plain_numbers_are_no_ids_if_a_usual_column_matches(tmp_path: Path) -> None:
    rows = [["sample", "age"], ["a", "1"], ["b", "2"], ["x", "3"]]
    files = [Path(f"{name}.tsv") for name in ("a", "1", "2", "3")]
    assert read_metadata(write(tmp_path / "sheet.tsv", rows), files=files).id_column == "sample"


def test_of_several_id_columns_one_without_repetitions(tmp_path):
    rows = [["sample", "subject_id", "file"], ["blood", "p", "1.tsv"], ["blood", "q", "2.tsv"]]
    assert read_metadata(write(tmp_path / "m.tsv", rows)).repertoire_ids == ("p", "q")


def test_the_id_column_can_be_named(tmp_path):
    path = write(tmp_path / "m.tsv", [["sample_id", "Barcode X"], ["a", "x1"], ["a", "x2"]])
    assert read_metadata(path, id_column="barcode_x").repertoire_ids == ("x1", "x2")
    with pytest.raises(InputError, match=r"no column 'sampleid0'; did you mean 'sample_id'\? Columns: "):
        read_metadata(path, id_column="sampleid0")


def test_without_an_id_column_the_file_names_are_the_ids(tmp_path):
    sheet = read_metadata(write(tmp_path / "m.tsv", [["Filename", "y"], ["d/HD.01.tsv.gz", "1"], ["b.tsv", "0"]]))
    assert sheet.repertoire_ids == ("HD.01", "b")
    assert sheet.files == ("d/HD.01.tsv.gz", "b.tsv")


def test_no_id_column(tmp_path):
    with pytest.raises(InputError, match=r"m\.tsv: no column of repertoire ids among age, y; .*`id_column`"):
        read_metadata(write(tmp_path / "m.tsv", [["age", "y"], ["1", "2"]]))


def test_a_duplicate_id_names_both_rows(tmp_path):
    rows = [["ID", "y"], ["a", "1"], ["", ""], ["b", "1"], ["a ", "0"]]
    with pytest.raises(InputError, match=r"m\.tsv: rows 2 and 5 have the same ID 'a'; ids must be unique"):
        read_metadata(write(tmp_path / "m.tsv", rows))


def test_a_row_without_an_id(tmp_path):
    with pytest.raises(InputError, match=r"m\.tsv: row 3, column 'ID': the repertoire has no id"):
        read_metadata(write(tmp_path / "m.tsv", [["ID", "y"], ["a", "1"], ["", "0"]]))


def test_an_id_is_never_missing_and_never_a_number(tmp_path):
    sheet = read_metadata(write(tmp_path / "m.tsv", [["ID"], ["NA"], ["1"], ["none"], ["1.0"]]))
    assert sheet.repertoire_ids == ("NA", "1", "none", "1.0")
    assert sheet.table["ID"].tolist() == ["NA", "1", "none", "1.0"]


MISSING = [
    "",
    "na",
    "NA",
    "n/a",
    "NaN",
    "null",
    "<NA>",
    "#N/A",
    "No Data",
    "Unknown",
    "missing",
    "not available",
    "?",
]


@pytest.mark.parametrize("word", MISSING)
def test_words_for_missing(tmp_path, word):
    rows = [["ID", "text", "number"], ["1", word, word], ["2", "none", "3"], ["3", "x", "4"]]
    table = read_metadata(write(tmp_path / "m.tsv", rows)).table
    assert table["text"].tolist() == [None, "none", "x"]
    assert np.isnan(table["number"].tolist()[0])


@pytest.mark.parametrize(
    ("values", "expected", "dtype"),
    [
        (["1", "-2"], [1, -2], "int64"),
        (["0", "10"], [0, 10], "int64"),
        (["1", "2.5"], [1.0, 2.5], "float64"),
        (["1e-3", ".5"], [0.001, 0.5], "float64"),
        (["007", "8"], ["007", "8"], "object"),
        (["0.5", "00.5"], ["0.5", "00.5"], "object"),
        (["1_0", "2"], ["1_0", "2"], "object"),
        (["inf", "2"], ["inf", "2"], "object"),
        (["True", "False"], ["True", "False"], "object"),
        (["99999999999999999999", "1"], ["99999999999999999999", "1"], "object"),
        (["9007199254740993", "na"], ["9007199254740993", None], "object"),
        (["9007199254740993", "1"], [9007199254740993, 1], "int64"),
        (["na", ""], [None, None], "object"),
    ],
)
def test_types_of_columns(tmp_path, values, expected, dtype):
    table = read_metadata(write(tmp_path / "m.tsv", [["ID", "x"], *zip("ab", values, strict=True)])).table
    assert table["x"].tolist() == expected
    assert table["x"].dtype == dtype


def test_columns_without_a_name_are_dropped_and_short_rows_filled(tmp_path):
    (tmp_path / "m.csv").write_text("ID,,y\na,9,1\nb,9\n,,\n")
    sheet = read_metadata(tmp_path / "m.csv")
    assert list(sheet.table) == ["ID", "y"]
    assert sheet.table["y"].tolist()[0] == 1.0
    assert sheet.repertoire_ids == ("a", "b")


def test_two_columns_of_one_name(tmp_path):
    with pytest.raises(InputError, match="two columns are called 'y'"):
        read_metadata(write(tmp_path / "m.tsv", [["ID", "y", "y"], ["a", "1", "2"]]))


def test_a_row_with_too_many_fields(tmp_path):
    with pytest.raises(InputError, match="row 3 has 3 fields where the header has 2"):
        read_metadata(write(tmp_path / "m.tsv", [["ID", "y"], ["a", "1"], ["b", "1", "2"]]))


def test_quotes_and_windows(tmp_path):
    (tmp_path / "m.csv").write_bytes('\ufeffID,"note, long"\r\na,"x, y"\r\nb,"two\r\nlines"\r\n'.encode())
    table = read_metadata(tmp_path / "m.csv").table
    assert table["note, long"].tolist() == ["x, y", "two lines"]


def test_xlsx(tmp_path):
    rows = [
        ["Sample ID", "age", None, "dose", "flag"],
        [7, 41, "x", 0.5, True],
        [None] * 5,
        [12, None, None, 2.0, False],
    ]
    path = write_xlsx(tmp_path / "sheet.tsv", rows, {"A2": "000", "A4": "000"})
    sheet = read_metadata(path)
    assert sheet.repertoire_ids == ("007", "012")
    assert list(sheet.table) == ["Sample ID", "age", "dose", "flag"]
    assert sheet.table["dose"].tolist() == [0.5, 2.0]
    assert sheet.table["flag"].tolist() == ["TRUE", "FALSE"]
    assert read_metadata(path, sheet="second").repertoire_ids == ("only",)
    with pytest.raises(InputError, match="no sheet 'third'; the file has Sheet, second"):
        read_metadata(path, sheet="third")


def test_xlsx_duplicate_ids_name_the_rows_of_the_sheet(tmp_path):
    path = write_xlsx(tmp_path / "m.xlsx", [["ID"], ["a"], [None], ["a"]])
    with pytest.raises(InputError, match="rows 2 and 4 have the same ID 'a'"):
        read_metadata(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"ID\ty\n", "a header and no rows"),
        (b"PK\x03\x04 damaged", "cannot be read as XLSX"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old binary Excel format"),
        (b"\x1f\x8b\x08\x00damaged", "gzip file is damaged"),
    ],
)
def test_sheets_that_cannot_be_read(tmp_path, data, message):
    (tmp_path / "m.tsv").write_bytes(data)
    with pytest.raises(InputError, match=rf"m\.tsv: .*{message}"):
        read_metadata(tmp_path / "m.tsv")


def test_no_sheet(tmp_path):
    with pytest.raises(InputError, match=r"m\.tsv: no such file"):
        read_metadata(tmp_path / "m.tsv")


def test_a_stray_quote_joins_no_rows(tmp_path):
    """Two quotes for inches: the rows between them would become one cell, and a would get the label of c."""
    rows = [
        ["sample", "note", "y"],
        ["a", '"5 nail', "0"],
        ["b", "x", "0"],
        ["c", '"6 nail', "1"],
        ["d", '"x ""y"""', "0"],
    ]
    found = read_metadata(write(tmp_path / "s.tsv", rows)).table
    assert found["sample"].tolist() == ["a", "b", "c", "d"]
    assert found["note"].tolist() == ['"5 nail', "x", '"6 nail', 'x "y"']
    assert found["y"].tolist() == [0, 0, 1, 0]


def test_cells_in_quotes_may_hold_delimiters_and_lines(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text('sample,note\na,"5, nail"\nb,"x"\n')
    assert read_metadata(path).table["note"].tolist() == ["5, nail", "x"]
    path.write_text('sample,note\na,"two\nlines"\nb,x\n')
    assert read_metadata(path).table["note"].tolist() == ["two lines", "x"]


def test_a_name_of_two_lines_in_the_header_makes_no_row(tmp_path):
    """Each line has as many tabs as the first one, as if the quotes were stray."""
    path = tmp_path / "s.tsv"
    path.write_text('sample\t"age\n(years)"\ty\n')
    with pytest.raises(InputError, match=r"s\.tsv: a header and no rows"):
        read_metadata(path)
    path.write_text('sample\t"age\n(years)"\ty\na\t3\n')
    found = read_metadata(path)
    assert found.repertoire_ids == ("a",)
    assert list(found.table) == ["sample", "age (years)", "y"]
    assert found.table["age (years)"].tolist() == [3]


def test_a_quote_that_does_not_end_is_refused(tmp_path):
    path = tmp_path / "s.tsv"
    path.write_text('sample\tnote\ty\na\t"5 nail\t0\nb\tx\n')
    with pytest.raises(InputError, match=r"row 2: a cell in quotes never ends; is there a stray quote\?"):
        read_metadata(path)


def test_a_name_in_quotes_may_hold_other_delimiters(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text('"ID";"Diagnosis (RA, SLE, none)"\na;RA\nb;SLE\n')
    assert read_metadata(path).table.columns.tolist() == ["ID", "Diagnosis (RA, SLE, none)"]


def test_errors_of_formulas_are_missing_and_windows_letters_are_read(tmp_path):
    path = tmp_path / "s.csv"
    path.write_bytes("sample,age,dx\na,3.5,Sj\u00f6gren\u2019s\nb,#DIV/0!,x\n".encode("cp1252"))
    found = read_metadata(path).table
    np.testing.assert_array_equal(found["age"], [3.5, np.nan])
    assert found["dx"].tolist() == ["Sj\u00f6gren\u2019s", "x"]


def test_a_blank_after_a_quote_is_no_stray_quote(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text('sample,note,y\na,"x, y" ,1\n')
    assert read_metadata(path).table["note"].tolist() == ["x, y"]


def test_decimal_commas_of_a_sheet_with_semicolons(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "m.csv"
    path.write_text("ID;age;titre;hla;n\na;62,5;1,25;A*02,A*24;3\nb;70;NA;A*01;4\nc;;-0,5;A*03;5\n")
    with caplog.at_level(logging.WARNING):
        table = read_metadata(path).table
    assert table["age"].tolist()[:2] == [62.5, 70.0]
    assert np.isnan(table["age"][2])
    assert [table["titre"][0], table["titre"][2]] == [1.25, -0.5]
    assert table["hla"].tolist() == ["A*02,A*24", "A*01", "A*03"]
    assert table["n"].tolist() == [3, 4, 5]
    assert f"{path}: commas are read as decimal commas in: age, titre" in caplog.text


def test_ids_files_thousands_and_codes_keep_their_commas(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("ID;filename;reads;code\n1,5;1,5;1,000;007,5\n2,5;2,5;2,500;008,5\n")
    found = read_metadata(path)
    assert found.repertoire_ids == ("1,5", "2,5")
    assert found.files == ("1,5", "2,5")
    assert found.table["reads"].tolist() == ["1,000", "2,500"]
    assert found.table["code"].tolist() == ["007,5", "008,5"]


def test_commas_of_other_sheets_are_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "m.tsv"
    path.write_text("ID\tloci\tnote\tage\n1,5\t2,24\ta,b\t3\n2,5\t1,3\t\t4\n")  # loci: such as alleles
    with caplog.at_level(logging.WARNING):
        table = read_metadata(path, id_column="ID").table
    assert table["loci"].tolist() == ["2,24", "1,3"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: these columns are text, because their numbers have commas: loci; if they are numbers, write decimal "
        "points and no commas"
    ]
    book = openpyxl.Workbook()
    for row in (["ID", "loci"], ["1", "2,24"], ["2", "1,3"]):
        book.active.append(row)
    book.save(tmp_path / "m.xlsx")
    caplog.clear()
    read_metadata(tmp_path / "m.xlsx", id_column="ID")
    assert caplog.text.endswith(
        "write decimal points and no commas, or in a spreadsheet program turn these cells from text into numbers\n"
    )


@pytest.mark.parametrize(
    ("values", "warned"),
    [
        (("40,5", "41.5"), True),  # two notations
        (("1,040.5", "900"), True),
        (("1.040,5", "900"), True),
        (("007,5", "008.5"), False),  # codes
        (("1,a", "2,5"), False),
    ],
)
def test_numbers_of_several_notations_are_text_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, values: tuple[str, str], warned: bool
) -> None:
    path = tmp_path / "m.csv"
    path.write_text("ID;age\na;{}\nb;{}\n".format(*values))
    assert read_metadata(path).table["age"].tolist() == list(values)
    assert ("are text, because their numbers have commas: age;" in caplog.text) == warned


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("ID,,y,\na,1,2,\nb,,3,7\n", "column 2, 4"),
        ("ID,,y,\na,,2,\nb,,3,\n", None),
        ("ID,,y,\na,NA,2,\nb,n/a,3,\n", None),
        (",ID,y\n0,a,2\n2,b,3\n", None),  # the index of a table of pandas
        (",ID,y\nx,a,2\n,b,3\n", "column 1"),
    ],
)
def test_columns_with_values_and_without_a_name_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, warned: str | None
) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    found = read_metadata(path)
    assert found.repertoire_ids == ("a", "b")
    assert found.table.columns.tolist() == ["ID", "y"]
    assert caplog.messages == (
        [
            f"{path}: columns without a name are left out, though they have values: {warned}; give each a name; if the "
            "names are in several rows, write all into one row and delete the rows above it"
        ]
        if warned
        else []
    )


@pytest.mark.parametrize("title", ["My study;;;", "My study;2020;;;", "My study;;2020;;"])
def test_a_header_of_few_names_is_a_title(tmp_path: Path, title: str) -> None:
    path = tmp_path / "m.csv"
    n = title.count(";") + 1
    names, values = ";".join(["ID", *"abcd"][:n]), ";".join("12345"[:n])
    path.write_text(f"{title}\n{';' * (n - 1)}\n{names}\n{values}\n")
    told = f"row 3 has {n} fields where the header has {sum(map(bool, title.split(';')))}; is there a title above"
    with pytest.raises(InputError, match=told):
        read_metadata(path, files=[Path("1.tsv")])


def test_a_sheet_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "m.tsv"
    path.write_text("a\t+\nb\t-\nc\t+\n")
    files = [Path(f"{name}.tsv") for name in "abc"]
    with pytest.raises(InputError) as error:
        read_metadata(path, files=files)
    assert str(error.value) == f"{path}: expected the names of the columns in row 1, found 'a', an id"
    assert read_metadata(path, files=files, id_column="a").repertoire_ids == ("b", "c")


def test_a_workbook_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened, load = write_xlsx(tmp_path / "m.xlsx", SHEET), [], openpyxl.load_workbook
    monkeypatch.setattr(openpyxl, "load_workbook", lambda *args, **options: opened.append(1) or load(*args, **options))
    assert read_metadata(path).repertoire_ids == ("007", "HD.01")
    assert len(opened) == 1


def test_merged_cells_and_formulas_without_values_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_xlsx(tmp_path / "m.xlsx", [["ID", "y", "z", "n"], ["a", 1, "=B2", "x"], ["b", 2, "=B3*2", "y"]])
    book = openpyxl.load_workbook(path)
    book.active.merge_cells("B2:B3")
    book.active.merge_cells("F1:G1")  # of one row
    book.save(path)
    found = read_metadata(path)
    assert found.table["z"].tolist() == [None, None]
    assert found.table["y"].tolist()[0] == 1.0
    assert np.isnan(found.table["y"][1])
    assert caplog.messages == [
        f"{path}: merged cells have their value in the first row only, the other rows are empty: B2:B3; if the value "
        "is that of all rows, write it into each of them",
        f"{path}: formulas without a computed value are read as empty: C2, C3; open the file in a spreadsheet program "
        "and save it",
    ]


@pytest.mark.parametrize(
    ("cell", "formulas"),
    [
        ('<c r="B2"><f>A2</f><v>3</v></c>', ()),
        ('<c r="B2" t="str"><f>A2</f><v></v></c>', ()),  # an empty text
        ('<c r="B2"><f t="shared" si="0"/><v/></c>', ("B2",)),
        ('<c r="B2"><f>A2</f></c>', ("B2",)),
    ],
)
def test_formulas_with_and_without_saved_values(tmp_path: Path, cell: str, formulas: tuple[str, ...]) -> None:
    path = write_xlsx(tmp_path / "m.xlsx", [["ID", "y"], ["a", "MARK"]])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = parts["xl/worksheets/sheet1.xml"].decode()
    (old,) = re.findall(r'<c r="B2".*?</c>', sheet)
    parts["xl/worksheets/sheet1.xml"] = sheet.replace(old, cell).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with open_sheet(path) as opened:
        assert opened.find_cells_without_value().formulas == formulas


def test_dates_of_a_workbook_and_of_a_table_are_those_of_a_csv_file(tmp_path: Path) -> None:
    days = [datetime(2020, 1, 5), datetime(2021, 12, 31, 8, 30)]
    path = write_xlsx(tmp_path / "m.xlsx", [["ID", "date"], ["a", days[0]], ["b", days[1]]])
    expected = ["2020-01-05", "2021-12-31 08:30:00"]
    assert read_metadata(path).table["date"].tolist() == expected
    made = make_metadata({"ID": ["a", "b"], "date": pd.to_datetime(days).tolist()})
    assert made.table["date"].tolist() == expected


def test_the_sheet_that_is_read_is_named_if_there_are_several(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_xlsx(tmp_path / "m.xlsx", [["ID", "y"], ["a", 1]])
    with caplog.at_level(logging.INFO):
        read_metadata(path)
    assert f"{path}: read the sheet 'Sheet', the first of 2" in caplog.text
