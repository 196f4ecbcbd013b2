"""Each format's layout, from headers and rows like the real exports'; and what no reader can use."""

import gzip
import re
from pathlib import Path

import pytest

from deeprc.datasets.readers import (
    FORMATS,
    READERS,
    GenericReader,
    Header,
    Status,
    choose_reader,
    find_reader,
    read_header,
    read_repertoire,
)
from deeprc.datasets.readers.text import read_columns
from deeprc.errors import InputError

IMMUNOSEQ_OLD = (
    "nucleotide aminoAcid COUNT frequencyCount_(%) cdr3Length vMaxResolved vGeneName jGeneName sequenceStatus"
)
HEADERS = {
    "airr": [
        "sequence_id sequence rev_comp productive v_call d_call j_call junction junction_aa duplicate_count",
        "cell_id productive v_call j_call junction_aa consensus_count umi_count is_cell",
        "junction_aa duplicate_count",
    ],
    "immunoseq": [
        IMMUNOSEQ_OLD.replace("COUNT", "count (templates/reads)"),
        IMMUNOSEQ_OLD.replace("COUNT", "count (templates)"),
        IMMUNOSEQ_OLD.replace("COUNT", "count (reads)"),
        IMMUNOSEQ_OLD.replace("COUNT", "count"),
        "rearrangement amino_acid frame_type rearrangement_type templates reads v_gene j_gene locus",
        "rearrangement bio_identity amino_acid templates frame_type v_gene j_gene v_resolved",
    ],
    "vdjtools": [
        "count freq cdr3nt cdr3aa v d j VEnd DStart DEnd JStart",
        "#count freq cdr3nt cdr3aa v d j",
        "count frequency CDR3nt CDR3aa V D J",
    ],
    "tcrex": [" count freq cdr3nt CDR3_beta TRBV_gene d TRBJ_gene VEnd", "TRBV_gene CDR3_beta TRBJ_gene"],
    "deeprc": ["amino_acid templates", "templates amino_acid"],
}
CASES = [(name, header) for name, headers in HEADERS.items() for header in headers]


def columns_of(header):
    """Split at blanks; `count (templates)` is one column."""
    return [name.replace("\0", " ") for name in header.replace("count (", "count\0(").split(" ")]


def read(write_table, tmp_path, header, *rows, name="r.tsv"):
    return read_repertoire(write_table(tmp_path / name, header.split(), [row.split("|") for row in rows]))


def statuses(table):
    return [Status(value).name for value in table["status"]]


@pytest.mark.parametrize(("name", "header"), CASES)
@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz"])
def test_the_header_alone_names_the_format(write_table, tmp_path, name, header, ending):
    path = write_table(tmp_path / f"r{ending}", columns_of(header), [])
    claims = [reader.name for reader in READERS if reader.layout(read_header(path)) is not None]
    assert claims == [name]
    assert read_repertoire(path).empty


def test_every_format_can_be_named():
    assert FORMATS == ("auto", "airr", "immunoseq", "vdjtools", "tcrex", "deeprc", "generic")
    for name in FORMATS[1:-1]:
        assert choose_reader(name).name == name
    assert choose_reader() is None


# --- AIRR -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("productive", "stop_codon", "vj_in_frame", "expected"),
    [
        ("T", "F", "T", "IN_FRAME"),
        ("true", "", "", "IN_FRAME"),
        ("TRUE", "", "", "IN_FRAME"),
        ("1", "", "", "IN_FRAME"),
        ("yes", "", "", "IN_FRAME"),
        ("F", "T", "T", "STOP_CODON"),
        ("False", "F", "F", "OUT_OF_FRAME"),
        ("0", "T", "F", "OUT_OF_FRAME"),
        ("no", "", "", "UNPRODUCTIVE"),
        ("f", "F", "T", "UNPRODUCTIVE"),
        ("", "", "", "UNKNOWN"),
        ("", "T", "", "STOP_CODON"),
        ("", "", "F", "OUT_OF_FRAME"),
        ("", "F", "T", "UNKNOWN"),
    ],
)
def test_airr_productive_and_its_reasons(write_table, tmp_path, productive, stop_codon, vj_in_frame, expected):
    row = f"CASSF|{productive}|{stop_codon}|{vj_in_frame}"
    table = read(write_table, tmp_path, "junction_aa productive stop_codon vj_in_frame", row)
    assert statuses(table) == [expected]


def test_airr_productive_of_another_kind_is_an_error(write_table, tmp_path):
    with pytest.raises(InputError) as error:
        read(write_table, tmp_path, "junction_aa productive", "CASSF|T", "CAF|maybe", "CAF|perhaps")
    assert str(error.value) == (
        f"{tmp_path}/r.tsv: row 3, column 'productive': "
        "expected T, F (also true/false, yes/no, 1/0) or nothing; found 'maybe'"
    )


def test_airr_counts_fall_back_row_by_row(write_table, tmp_path):
    header = "junction_aa consensus_count duplicate_count umi_count v_call j_call"
    rows = ["CA|9|5|7|V1|J1", "CC|9||7||", "CD|9||NA|V2|J1", "CE|||null|.|J2"]
    table = read(write_table, tmp_path, header, *rows)
    assert table["junction_aa"].tolist() == ["CA", "CC", "CD", "CE"]
    assert table["duplicate_count"].tolist() == [5, 7, 9, 1]
    assert table["count_source"].tolist() == ["duplicate_count", "umi_count", "consensus_count", "one"]
    assert table["v_call"].tolist() == ["V1", "", "V2", ""]
    assert table["j_call"].tolist() == ["J1", "", "J1", "J2"]
    assert statuses(table) == ["UNKNOWN"] * 4


def test_airr_quoted_fields(tmp_path):
    path = tmp_path / "r.tsv"
    path.write_text('"sequence_id"\t"productive"\t"junction_aa"\n"a\tb"\t"T"\t"CASSF"\n"two\nlines"\t"F"\t"CA*F"\n')
    table = read_repertoire(path)
    assert table["junction_aa"].tolist() == ["CASSF", "CA*F"]
    assert statuses(table) == ["IN_FRAME", "UNPRODUCTIVE"]


# --- the other formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", ["count (templates/reads)", "count (templates)", "count (reads)", "count"])
def test_immunoseq_old_layout(write_table, tmp_path, count):
    header = columns_of(IMMUNOSEQ_OLD.replace("COUNT", count))
    rows = [
        ("ACGT", "CASSF", 12, 0.1, 15, "TCRBV19-01*01", "TCRBV19-01", "TCRBJ01-01", "In"),
        ("ACGT", "", 3, 0.1, 28, "TCRBV06", "unresolved", "TCRBJ01-02", "Out"),
        ("ACGT", "CA*F", "null", 0.1, 12, "TCRBV06", "TCRBV06-01", "null", "Stop"),
        ("ACGT", "NA", "NA", 0.1, 12, "TCRBV06", "NA", "null", "NA"),
    ]
    table = read_repertoire(write_table(tmp_path / "r.tsv", header, rows))
    assert table["junction_aa"].tolist() == ["CASSF", "", "CA*F", ""]
    assert table["duplicate_count"].tolist() == [12, 3, 1, 1]
    assert table["count_source"].tolist() == [count, count, "one", "one"]
    assert table["v_call"].tolist() == ["TCRBV19-01", "", "TCRBV06-01", ""]
    assert table["j_call"].tolist() == ["TCRBJ01-01", "TCRBJ01-02", "", ""]
    assert statuses(table) == ["IN_FRAME", "OUT_OF_FRAME", "STOP_CODON", "UNKNOWN"]


def test_immunoseq_newer_layout_takes_reads_where_templates_are_missing(write_table, tmp_path):
    header = "rearrangement amino_acid frame_type templates reads v_gene j_gene"
    rows = ["A|CASSF|In|654|null|V1|J1", "A|CAF|In|null|40|unresolved|J1", "A|na|Out|na|no data|V1|J1"]
    table = read(write_table, tmp_path, header, *rows)
    assert table["junction_aa"].tolist() == ["CASSF", "CAF", ""]
    assert table["duplicate_count"].tolist() == [654, 40, 1]
    assert table["count_source"].tolist() == ["templates", "reads", "one"]
    assert table["v_call"].tolist() == ["V1", "", "V1"]
    assert statuses(table) == ["IN_FRAME", "IN_FRAME", "OUT_OF_FRAME"]


def test_immunoseq_unknown_frame_type_is_an_error(write_table, tmp_path):
    header = "rearrangement amino_acid frame_type templates"
    with pytest.raises(InputError, match="row 2, column 'frame_type': expected In, Out or Stop; found 'Up'"):
        read(write_table, tmp_path, header, "A|CASSF|Up|1")


def test_vdjtools(write_table, tmp_path):
    rows = ["38|0.12|TGT|CASSF|TRBV7-9|TRBD1|TRBJ2-1", "2|0.01|TGT|CA_SF|TRBV7-9|.|TRBJ2-2"]
    table = read(write_table, tmp_path, "#count freq cdr3nt cdr3aa v d j", *rows)
    assert table["junction_aa"].tolist() == ["CASSF", "CA_SF"]
    assert table["duplicate_count"].tolist() == [38, 2]
    assert table["v_call"].tolist() == ["TRBV7-9", "TRBV7-9"]
    assert table["j_call"].tolist() == ["TRBJ2-1", "TRBJ2-2"]


def test_tcrex_with_an_unnamed_index(write_table, tmp_path):
    header = ["", "count", "cdr3nt", "CDR3_beta", "TRBV_gene", "d", "TRBJ_gene"]
    path = write_table(tmp_path / "r.txt", header, [(0, 7, "TGT", "CASSF", "TRBV27", "TRBD1", "TRBJ2-1")])
    table = read_repertoire(path)
    assert table.drop(columns=["count_rounded", "status"]).to_dict("records") == [
        {
            "junction_aa": "CASSF",
            "duplicate_count": 7,
            "count_source": "count",
            "v_call": "TRBV27",
            "j_call": "TRBJ2-1",
        }
    ]


def test_tcrex_without_a_count(write_table, tmp_path):
    table = read(write_table, tmp_path, "TRBV_gene CDR3_beta TRBJ_gene", "V1|CASSF|J1")
    assert table["duplicate_count"].tolist() == [1]
    assert table["count_source"].tolist() == ["one"]


def test_original_deeprc(write_table, tmp_path):
    table = read(write_table, tmp_path, "amino_acid templates", "CASSF|3", "CAF|1.0")
    assert table["duplicate_count"].tolist() == [3, 1]
    assert "v_call" not in table


@pytest.mark.parametrize(("count_column", "counts"), [("n", [4, 2]), (None, [1, 1])])
def test_generic(write_table, tmp_path, count_column, counts):
    path = write_table(tmp_path / "r.csv", ["x", "seq, aa", "n"], [(1, "CASSF", 4), (2, "CAF", 2)], ";")
    table = read_repertoire(path, reader=GenericReader("seq, aa", count_column))
    assert table["junction_aa"].tolist() == ["CASSF", "CAF"]
    assert table["duplicate_count"].tolist() == counts


def test_generic_names_the_columns_that_there_are(write_table, tmp_path):
    path = write_table(tmp_path / "r.tsv", ["a", "b"], [])
    with pytest.raises(InputError, match=r"r\.tsv: no column 'seq'; the file's columns are a, b"):
        read_repertoire(path, reader=GenericReader("seq"))


# --- counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "count", "rounded"),
    [("12", 12, False), ("12.0", 12, False), ("1e3", 1000, False), (" 5 ", 5, False), ("2.6", 3, True)]
    + [("0.2", 1, True), ("0", 1, True), ("4294967295", 4294967295, False)]
    + [(word, 1, False) for word in ("", "null", "na", "NA", "no data", "NaN", "None", "n/a")],
)
def test_counts_that_can_be_used(write_table, tmp_path, value, count, rounded):
    path = write_table(tmp_path / "r.tsv", ["amino_acid", "templates"], [("CASSF", value)])
    table = read_repertoire(path)
    assert table["duplicate_count"].tolist() == [count]
    assert table["count_rounded"].tolist() == [rounded]


@pytest.mark.parametrize("value", ["abc", "-1", "-0.5", "4294967296", "inf", "1_000", "1,000", "12 3"])
def test_counts_that_cannot(write_table, tmp_path, value):
    path = write_table(tmp_path / "r.tsv", ["amino_acid", "templates"], [("CASSF", 2), ("CAF", value)])
    expected = "expected a number from 0 to 4294967295, or nothing"
    expected = f"{path}: row 3, column 'templates': {expected}; found {value!r}"
    with pytest.raises(InputError, match=re.escape(expected)):
        read_repertoire(path)


# --- text -----------------------------------------------------------------------------------------------

TEXT = "amino_acid{d}templates{d}note{n}CASSF{d}2{d}é{n}CAF{d}3{d}x{n}"


@pytest.mark.parametrize("delimiter", ["\t", ",", ";"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_delimiters_newlines_encodings_and_gzip(tmp_path, delimiter, newline, encoding, pack):
    path = tmp_path / "whatever"
    path.write_bytes(pack(TEXT.format(d=delimiter, n=newline).encode(encoding)))
    table = read_repertoire(path)
    assert table["junction_aa"].tolist() == ["CASSF", "CAF"]
    assert table["duplicate_count"].tolist() == [2, 3]


def test_no_newline_at_the_end_and_blank_lines(tmp_path):
    path = tmp_path / "r.tsv"
    path.write_bytes(b"amino_acid\ttemplates\r\n\r\nCASSF\t2\r\n\r\n\nCAF\t3")
    assert read_repertoire(path)["duplicate_count"].tolist() == [2, 3]


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(("row", "found"), [("CAF", "1 field,"), ("CAF\t1\t2", "3 fields,"), ("C", "1 field,")])
def test_ragged_rows_are_named(tmp_path, row, found, quote):
    path = tmp_path / "r.tsv"
    path.write_text(f"{quote}amino_acid{quote}\ttemplates\nCASSF\t2\n\n{row}\nCAF\t3\n")
    with pytest.raises(InputError, match=rf"r\.tsv: row 4 has {found} the header has 2; is the file cut short"):
        read_repertoire(path)


def test_a_ragged_row_far_down_a_long_file(tmp_path):
    rows = [b"CASSF\t2\n"] * 1_200_000
    rows[1_100_000] = b"CASSF\n"
    (tmp_path / "r.tsv").write_bytes(b"amino_acid\ttemplates\n" + b"".join(rows))
    with pytest.raises(InputError, match="row 1100002 has 1 field"):
        read_repertoire(tmp_path / "r.tsv")


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"no\.tsv: no such file"):
        read_repertoire(tmp_path / "no.tsv")


@pytest.mark.parametrize("data", [b"", b"\n\n", gzip.compress(b""), b"\xef\xbb\xbf"])
def test_an_empty_file(tmp_path, data):
    (tmp_path / "r.tsv").write_bytes(data)
    with pytest.raises(InputError, match=r"r\.tsv: the file is empty"):
        read_repertoire(tmp_path / "r.tsv")


@pytest.mark.parametrize("keep", [3, 15, 0.5, 0.99])
def test_a_truncated_gzip(tmp_path, keep):
    rows = "".join(f"CASS{'ACDEFGHIKL'[i % 10]}F\t{i * i}\n" for i in range(1, 50_000))
    data = gzip.compress(f"amino_acid\ttemplates\n{rows}".encode())
    path = tmp_path / "r.tsv.gz"
    path.write_bytes(data[: keep if keep > 1 else int(keep * len(data))])
    with pytest.raises(InputError, match=r"r\.tsv\.gz: the gzip file is damaged or cut short"):
        read_repertoire(path)


def test_a_damaged_gzip(tmp_path):
    data = bytearray(gzip.compress(b"amino_acid\ttemplates\n" + b"CASSF\t2\n" * 1000))
    data[-6] ^= 0xFF
    (tmp_path / "r.tsv.gz").write_bytes(bytes(data))
    with pytest.raises(InputError, match="damaged or cut short"):
        read_repertoire(tmp_path / "r.tsv.gz")


def test_a_binary_file(tmp_path):
    (tmp_path / "r.tsv").write_bytes(b"PK\x03\x04\n\x00\x00")
    with pytest.raises(InputError, match="not a text table"):
        read_repertoire(tmp_path / "r.tsv")
    (tmp_path / "r.tsv").write_bytes(b"junction_aa\tv_call\nCAF\tTRBV\0\n")
    with pytest.raises(InputError, match="not a text table"):
        read_repertoire(tmp_path / "r.tsv")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_repertoire(tmp_path)


def test_only_the_needed_columns_are_parsed(write_table, tmp_path):
    path = write_table(tmp_path / "r.tsv", ["a", "b", "a", "c"], [(1, 2, 3, 4)])
    table = read_columns(read_header(path), "c", ["a"])
    assert table.to_dict("records") == [{"a": "1", "c": "4"}]


# --- which reader ---------------------------------------------------------------------------------------


def test_a_header_that_no_reader_knows():
    header = Header(Path("x/r.tsv"), tuple(f"column{i}" for i in range(20)))
    with pytest.raises(InputError) as error:
        find_reader(header)
    message = str(error.value)
    assert message.startswith(
        "x/r.tsv: no reader knows this header; its first columns are column0, column1, column2, column3, "
        "column4, column5, column6, column7, .... Known formats: airr (junction_aa); immunoseq ("
    )
    assert message.endswith("Any other table is read with --sequence-column and --count-column.")
    for name in ("vdjtools", "tcrex", "deeprc"):
        assert f"; {name} (" in message


def test_a_header_that_two_readers_know():
    header = Header(Path("r.tsv"), ("junction_aa", "count", "cdr3aa"))
    with pytest.raises(InputError, match=r"r\.tsv: the header fits airr and vdjtools; choose one with --format"):
        find_reader(header)
    assert find_reader(header, choose_reader("vdjtools"))[1].junction_aa == "cdr3aa"


def test_the_chosen_format_must_fit():
    with pytest.raises(InputError, match=r"no reader knows this header.*Known formats: airr \(junction_aa\)\. "):
        find_reader(Header(Path("r.tsv"), ("amino_acid", "templates")), choose_reader("airr"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reader_format": "arr"}, "unknown format 'arr'; expected one of auto, airr"),
        ({"reader_format": "generic"}, "need --sequence-column"),
        ({"count_column": "n"}, "need --sequence-column"),
        ({"reader_format": "airr", "sequence_column": "s"}, "does not go with --format airr"),
        ({"sequence_column": "s", "count_column": "s"}, "both name 's'"),
    ],
)
def test_options_that_contradict_each_other(options, message):
    with pytest.raises(InputError, match=message):
        choose_reader(**options)


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("repertoire_id junction_aa", ["A|CASSF", "B|CATTF", "|CAF"]),
        ("amino_acid frame_type sample_name", ["CASSF|In|A", "CATTF|In|B"]),
    ],
)
def test_several_repertoires_in_one_file_are_never_made_one(write_table, tmp_path, header, rows):
    with pytest.raises(InputError, match=r"names 2 repertoires \(A, B\); expected one per file"):
        read(write_table, tmp_path, header, *rows)
