"""What spreadsheet programs do to tables, names and files, and how it is said."""

from pathlib import Path

import pytest

from deeprc.checks import check_cohort
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.plan import BAD_FILES_ADVICE
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.readers import match_reader, read_header, read_rows
from deeprc.datasets.unmatched import explain_different_names, explain_longer_names
from deeprc.errors import InputError

CHANGED = (
    "they would match if case, leading zeros and the difference of '-', '_' and blanks were ignored; "
    "a spreadsheet program may have changed them"
)


def read_counts(tmp_path: Path, text: str) -> list[int]:
    path = tmp_path / "a.csv"
    path.write_text(text)
    header = read_header(path)
    return read_rows(header, match_reader(header).layout).counts.tolist()


def fails(folder: Path) -> str:
    with pytest.raises(InputError) as error:
        preprocess([folder / "files"], folder / "sheet.tsv", folder / "cohort.h5")
    return str(error.value)


def write_files(folder: Path, *names: str) -> None:
    (folder / "files").mkdir(exist_ok=True)
    for number, name in enumerate(names):
        (folder / "files" / name).write_text(f"junction_aa\tduplicate_count\nCASS{'ACDEF'[number]}F\t1\n")


# -- counts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", ["1.319", "2.000"])
def test_a_point_for_thousands_beside_decimal_commas_is_refused(tmp_path: Path, count: str) -> None:
    with pytest.raises(InputError) as error:
        read_counts(tmp_path, f"junction_aa;duplicate_count;freq\nCASSF;874;0,0050\nCASWF;{count};0,0074\n")
    assert str(error.value) == (
        f"{tmp_path}/a.csv: row 3, column 'duplicate_count': the point in '{count}' looks like a thousands separator, "
        "because column 'freq' has a decimal comma (0,0050); write counts without separators, or the whole table with "
        "decimal points"
    )


def test_a_fraction_is_rounded_where_no_decimal_comma_is(tmp_path: Path) -> None:
    assert read_counts(tmp_path, "junction_aa;duplicate_count;freq\nCASSF;1.319;0.0050\nCASWF;2.5;0.0074\n") == [1, 2]
    assert read_counts(tmp_path, "junction_aa;duplicate_count;freq\nCASSF;7;0,0050\nCASWF;2.5;0,0074\n") == [7, 2]


@pytest.mark.parametrize(
    ("counts", "others", "expected"),
    [
        (("0.500", "7"), ("0,0050", "0,0074"), [1, 7]),  # no number with thousands begins with 0
        (("1.319", "7"), ("1,2", "x"), [1, 7]),  # a list beside text
        (("1.319", "7"), ("01,02", "01"), [1, 7]),  # allele ties
        (("1.319", "2.5"), ("0,0050", "0,0074"), [1, 2]),  # the column has decimal points
    ],
)
def test_counts_with_decimal_points_are_accepted(
    tmp_path: Path, counts: tuple[str, str], others: tuple[str, str], expected: list[int]
) -> None:
    rows = "".join(f"CASS{letter}F;{n};{x}\n" for letter, n, x in zip("AC", counts, others, strict=True))
    assert read_counts(tmp_path, f"junction_aa;duplicate_count;other\n{rows}") == expected


def test_a_count_that_is_not_used_may_have_any_form(tmp_path: Path) -> None:
    table = "junction_aa;duplicate_count;consensus_count;freq\nCASSF;7;1.319;0,0050\n"
    assert read_counts(tmp_path, table) == [7]


@pytest.mark.parametrize(
    ("count", "explanation"),
    [
        ("1.234.567", "it looks like a count with thousands separators: write counts without them"),
        ("1,234", "it looks like a count with thousands separators: write counts without them"),
        (
            "1,06E+04",
            "a spreadsheet program has shortened this count: take it from the original file, not from this one",
        ),
    ],
)
def test_a_count_that_a_spreadsheet_program_wrote(tmp_path: Path, count: str, explanation: str) -> None:
    with pytest.raises(InputError) as error:
        read_counts(tmp_path, f"junction_aa;duplicate_count\nCASSF;{count}\n")
    assert str(error.value) == (
        f"{tmp_path}/a.csv: row 2, column 'duplicate_count': expected a number from 0 to 4294967295, or nothing; "
        f"found {count!r}; {explanation}"
    )


# -- Excel files among the repertoires --------------------------------------------------------------------------------


def test_an_excel_file_with_the_name_of_a_row_is_named(tmp_path: Path) -> None:
    write_files(tmp_path, "a.tsv")
    (tmp_path / "files" / "b.XLSX").write_bytes(b"PK")
    (tmp_path / "files" / "notes.xlsx").write_bytes(b"PK")
    (tmp_path / "sheet.tsv").write_text("sample\tx\na\t1\nb\t2\n")
    message = (
        "no file for 1 row: b (by column 'sample'); found b.XLSX, an Excel file, which is not read; "
        "save it as tab-separated text"
    )
    assert message in fails(tmp_path)
    found = check_cohort(tmp_path / "files", tmp_path / "sheet.tsv").findings
    assert message in [each.message for each in found]
    for name in "ac":
        (tmp_path / "files" / f"{name}.xls").write_bytes(b"old")
    (tmp_path / "files" / "a.tsv").unlink()
    (tmp_path / "sheet.tsv").write_text("sample\tx\na\t1\nb\t2\nc\t2\n")
    assert fails(tmp_path).endswith(
        "found 4 Excel files, which are not read: a.xls, b.XLSX, c.xls and 1 more; save them as tab-separated text"
    )


def test_an_excel_file_that_the_sheet_names(tmp_path: Path) -> None:
    import openpyxl

    write_files(tmp_path, "a.tsv")
    openpyxl.Workbook().save(tmp_path / "files" / "b.xlsx")
    (tmp_path / "files" / "c.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1" + bytes(100))
    (tmp_path / "sheet.tsv").write_text("sample\tfile\na\ta.tsv\nb\tb.xlsx\nc\tc.xls\n")
    advice = "an Excel file, which is not read; save it as tab-separated text"
    message = f"2 files: {advice} (first: {tmp_path}/files/b.xlsx). {BAD_FILES_ADVICE}"
    assert fails(tmp_path) == message


# -- names that were changed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ids", "files"), [("12", ("001.tsv", "002.tsv")), ("AB", ("a.tsv", "b.tsv"))])
def test_ids_that_lost_zeros_or_case(tmp_path: Path, ids: str, files: tuple[str, str]) -> None:
    write_files(tmp_path, *files)
    (tmp_path / "sheet.tsv").write_text(f"sample\tx\n{ids[0]}\t1\n{ids[1]}\t2\n")
    message = f"no file for 2 rows: {ids[0]}, {ids[1]} (by column 'sample'); {CHANGED}"
    assert f"sheet.tsv: {message}; no row of " in fails(tmp_path)
    assert fails(tmp_path).endswith(". Not one file matches: is `id_column` right?")
    assert message in [each.message for each in check_cohort(tmp_path / "files", tmp_path / "sheet.tsv").findings]


def test_names_that_a_spreadsheet_program_changed_are_explained() -> None:
    assert explain_different_names([["P-01"], ["P-02"]], ["p_1", "p_2"]) == CHANGED
    assert explain_different_names([["P-01"], ["P-02"], ["P-03"]], ["p_1"]) == ""
    assert explain_different_names([["a"], ["b"]], ["x", "y"]) == ""
    for date in ("2026-03-01", "01.03.2026", "1-Mar", "Mar-01", "01. Mrz"):
        expected = f"{date!r} looks like a date; a spreadsheet program may have changed the ids"
        assert explain_different_names([[date], [date]], ["1-3", "2-3"]) == expected
    assert explain_different_names([["2026-03-01"]], ["2026-03-02"]) == ""
    assert explain_different_names([["2026-03-01"]], []) == ""
    for name in ("Sepsis-01", "Marrow-1", "Decoy-3", "Junior 4"):
        assert explain_different_names([[name]], ["x"]) == ""
    for name in ("Sept-01", "1-M\u00e4r", "3. Dezember", "June 4"):
        assert "looks like a date" in explain_different_names([[name]], ["x"])
    expected = CHANGED.replace("they", "2 of 3")
    assert explain_different_names([["P-01"], ["P-02"], ["P-03"]], ["p_1", "p_2"]) == expected


def test_files_whose_names_are_longer_than_the_ids(tmp_path: Path) -> None:
    write_files(tmp_path, "p1_a_TCRB.tsv", "p2_a_TCRB.tsv")
    (tmp_path / "sheet.tsv").write_text("sample\tx\nP1-A\t1\nP2-A\t2\n")
    message = (
        "no file for 2 rows: P1-A, P2-A (by column 'sample'); names of files have more letters, such as p1_a_TCRB.tsv "
        "for 'P1-A': name each file in a column 'file' of the sheet, with the same case of letters"
    )
    assert f"sheet.tsv: {message}; no row of " in fails(tmp_path)
    assert message in [each.message for each in check_cohort(tmp_path / "files", tmp_path / "sheet.tsv").findings]
    (tmp_path / "sheet.tsv").write_text("sample\tpath\nP1-A\t\nP2-A\t\n")
    assert "for 'P1-A': name each file in the column 'path' of the sheet, with the same" in fails(tmp_path)
    (tmp_path / "sheet.tsv").write_text("sample\tx\ntsv\t1\n")
    (tmp_path / "files" / "p2_a_TCRB.tsv").unlink()
    assert "names of files" not in fails(tmp_path)  # the ending of a file is no part of its name


def test_longer_names_must_be_those_of_single_rows() -> None:
    def explain(rows: list[str], *files: str) -> str:
        stem_of = {Path(file): file.removesuffix(".tsv") for file in files}
        return explain_longer_names([[row] for row in rows], stem_of, None)

    remark = "names of files have more letters, such as x_S1_L001.tsv for 'S1': name each file in a column 'file'"
    assert explain(["S1", "S2"], "x_S1_L001.tsv", "x_S10_L001.tsv").startswith(remark)
    assert explain(["S1", "S2", "S3"], "x_S1_L001.tsv") == ""  # fewer than half of the rows
    assert explain(["S1"], "a_S1.tsv", "b_S1.tsv") == ""  # two files have it
    assert explain(["S1", "L1"], "S1_L1.tsv") == ""  # two rows have one file
    assert explain(["S"], "S1.tsv") == ""  # no whole part


# -- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_row", ["0\t6021\t0.039\tTGC", "7\t8", "1.\t.5\tx", "x\tCSAHSYGGLDYYEQYF\tTRBV20-1"])
def test_a_table_without_a_header(tmp_path: Path, first_row: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"{first_row}\n")
    with pytest.raises(InputError, match=r"\. The first row looks like data: is the header missing\? Known formats"):
        match_reader(read_header(path))
    for header in ("name\tTRBV20-1\t7\n", "2019\t2020\tcdr3 of x\n"):
        path.write_text(header)
        with pytest.raises(InputError) as error:
            match_reader(read_header(path))
        assert "is the header missing" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("My study,,,\n,,,\nID,a,b,c,d\n1,2,3,4,5\n", "has 5 fields where the header has 4; is there a title above"),
        ("My study,,\nID,a,b\n1,2,3\n", "has 3 fields where the header has 1; is there a title above the header?"),
    ],
)
def test_a_sheet_with_a_title(tmp_path: Path, text: str, end: str) -> None:
    write_files(tmp_path, "1.tsv")
    (tmp_path / "sheet.tsv").write_text(text)
    assert end in fails(tmp_path)


def test_files_of_other_endings_and_names_of_folders_are_told(tmp_path: Path) -> None:
    write_files(tmp_path, "a.tsv", "b.zip", "c.tsv.zst", "notes.pdf")
    (tmp_path / "sheet.tsv").write_text("sample\na\nb\nc\n")
    assert (
        "; found 2 files, which are left out because of their endings: b.zip, c.tsv.zst; give their paths, or name "
        "them in the sheet in a column 'file'. Give what is missing"
    ) in fails(tmp_path)
    (tmp_path / "files" / "a.tsv").unlink()
    assert "; found 3 files, which are left out because of their endings: " in fails(tmp_path)
    for name in ("b.zip", "c.tsv.zst", "notes.pdf"):
        (tmp_path / "files" / name).unlink()
    for name in "abc":
        folder = tmp_path / "files" / name / "outs"
        folder.mkdir(parents=True)
        (folder / "contigs.tsv").write_text("junction_aa\nCASSF\n")
    told = "; folders have these names, but files do not: name each file in a column 'file' of the sheet, such as "
    assert f"{told}a/outs/contigs.tsv; no row of " in fails(tmp_path)
    (tmp_path / "sheet.tsv").write_text("sample\tpath\na\t\nb\t\nc\t\n")
    assert "name each file in the column 'path' of the sheet, such as a/outs/contigs.tsv; no row of " in fails(tmp_path)
    (tmp_path / "sheet.tsv").write_text("sample\nx\nfiles\nz\n")  # one of three
    assert told not in fails(tmp_path)
    (tmp_path / "sheet.tsv").write_text("sample\tfile\n" + "".join(f"{i}\t{i}/outs/contigs.tsv\n" for i in "abc"))
    assert len(preprocess([tmp_path / "files"], tmp_path / "sheet.tsv", tmp_path / "c.h5").repertoires) == 3


# -- the end of the report --------------------------------------------------------------------------------------------


def test_the_result_says_what_was_left_out(tmp_path: Path) -> None:
    write_files(tmp_path, "a.tsv", "b.tsv", "c.tsv", "extra.tsv")
    (tmp_path / "files" / "b.tsv").write_text("junction_aa\tduplicate_count\nCAS*F\t1\n")
    (tmp_path / "files" / "c.tsv").write_text("x\ty\n1\t2\n")
    (tmp_path / "sheet.tsv").write_text("sample\tx\na\t1\nb\t2\nc\t3\nd\t4\n")
    report = preprocess(
        [tmp_path / "files"],
        tmp_path / "sheet.tsv",
        tmp_path / "cohort.h5",
        options=ReadingOptions(allow_missing=True),
        skip_bad_files=True,
    )
    assert report.describe_result() == (
        "1 repertoire (left out: 1 without a kept sequence, 1 unreadable file, 1 row without a file, "
        "1 file without a row)"
    )
    assert "skipped 1 file that cannot be read:" in report.to_text()
