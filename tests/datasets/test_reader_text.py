"""Tables as text: packing, encodings, delimiters, newlines, quotes, blocks; and what cannot be read."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile

import pandas as pd
import pytest

from deeprc.datasets.metadata import read_metadata
from deeprc.datasets.readers import columns as columns_module
from deeprc.datasets.readers import match_reader, read_header, unpacked_stream
from deeprc.datasets.readers import text as text_module
from deeprc.datasets.readers.columns import read_columns
from deeprc.datasets.readers.text import MAX_LINE_BYTES, read_text
from deeprc.errors import InputError
from tests.toys.repertoire_tables import read_repertoire


@pytest.fixture(params=["small", "large"], autouse=True)
def both_parsers(request, monkeypatch):
    """Read every file as a small one, whose lines Python takes apart, and as a large one, which Arrow parses."""
    monkeypatch.setattr(columns_module, "_SMALL_BYTES", 1 << 30 if request.param == "small" else -1)


def zipped(data, *names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("r.tsv",):
            archive.writestr(name, b"" if name.endswith("/") or "MACOSX" in name else data)
    return stream.getvalue()


TEXT = "amino_acid{d}templates{d}note{n}CASSF{d}2{d}é{n}CAF{d}3{d}x{n}"


@pytest.mark.parametrize("delimiter", ["\t", ",", ";"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zipped])
def test_delimiters_newlines_encodings_and_packing(tmp_path, delimiter, newline, encoding, pack):
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


@pytest.mark.long
def test_a_ragged_row_far_down_a_long_file(tmp_path):
    rows = [b"CASSF\t2\n"] * 1_200_000
    rows[1_100_000] = b"CASSF\n"
    (tmp_path / "r.tsv").write_bytes(b"amino_acid\ttemplates\n" + b"".join(rows))
    with pytest.raises(InputError, match="row 1100002 has 1 field"):
        read_repertoire(tmp_path / "r.tsv")


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"no\.tsv: no such file"):
        read_repertoire(tmp_path / "no.tsv")


@pytest.mark.parametrize("data", [b"", b"\n\n", gzip.compress(b"", mtime=0), b"\xef\xbb\xbf"])  # no time in the name
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
    for data in (b"\x7fELF\x02\n\x00\x00", b"junction_aa\tv_call\nCAF\tTRBV\0\n"):
        (tmp_path / "r.tsv").write_bytes(data)
        with pytest.raises(InputError, match="not a text table"):
            read_repertoire(tmp_path / "r.tsv")


@pytest.mark.parametrize(
    ("pack", "kind"), [(bz2.compress, "bzip2"), (lzma.compress, "xz"), (zipped, "zip")], ids=["bzip2", "xz", "zip"]
)
@pytest.mark.parametrize("keep", [10, 0.5, 0.99])
def test_other_packed_files_that_are_cut_short(tmp_path, pack, kind, keep):
    rows = "".join(f"CASS{'ACDEFGHIKL'[i % 10]}F\t{i * i}\n" for i in range(1, 20_000))
    data = pack(f"amino_acid\ttemplates\n{rows}".encode())
    (tmp_path / "r").write_bytes(data[: keep if keep > 1 else int(keep * len(data))])
    with pytest.raises(InputError, match=rf"r: the {kind} file is damaged or cut short"):
        read_repertoire(tmp_path / "r")


def test_a_damaged_bzip2(tmp_path):
    data = bytearray(bz2.compress(b"amino_acid\ttemplates\n" + b"CASSF\t2\n" * 100_000))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "r.tsv.bz2").write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"r\.tsv\.bz2: the bzip2 file is damaged or cut short"):
        read_repertoire(tmp_path / "r.tsv.bz2")


def test_a_zip_holds_one_file(tmp_path):
    path = tmp_path / "r.zip"
    text = "amino_acid\ttemplates\nCASSF\t2\n"
    path.write_bytes(zipped(text.encode(), "__MACOSX/._r.tsv", "folder/", "folder/r.tsv"))
    assert read_repertoire(path)["junction_aa"].tolist() == ["CASSF"]
    for members, n in ((["a.tsv", "b.tsv"], 2), ([], 0)):
        path.write_bytes(zipped(text.encode(), *members) if members else zipped(b"", "folder/"))
        with pytest.raises(InputError, match=rf"r\.zip: the zip file holds {n} files; expected one, unpack it first"):
            read_repertoire(path)


def test_the_start_of_a_zip_without_a_zip(tmp_path):
    (tmp_path / "r.tsv").write_bytes(b"PK\x03\x04\n\x00\x00")
    with pytest.raises(InputError, match=r"r\.tsv: the zip file is damaged or cut short"):
        read_repertoire(tmp_path / "r.tsv")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="is a folder; expected a table"):
        read_repertoire(tmp_path)


def test_only_the_needed_columns_are_parsed(write_table, tmp_path):
    path = write_table(tmp_path / "r.tsv", ["a", "b", "b", "c"], [(1, 2, 3, "x"), (4, 5, 6, ""), (1, 8, 9, "yz")])
    texts, coded = read_columns(read_header(path), ["c"], ["a"])
    assert list(texts) == ["c"]
    assert [texts["c"].get_bytes(row) for row in range(3)] == [b"x", b"", b"yz"]
    assert list(coded) == ["a"]
    assert coded["a"].vocabulary == ("1", "4")
    assert coded["a"].codes.tolist() == [0, 1, 0]


# --- blocks ---------------------------------------------------------------------------------------------

# format: header, and what the columns of one row may hold; quoted ones hold delimiters, quotes and newlines
AWKWARD = ["plain", "", 'a "b" c', "two\nlines", "tab\tcomma,semicolon;", '"', "\n\n", "é", "x" * 40, '","', "\r\n"]
FORMATS = {
    "airr": ("note junction_aa cdr3_aa junction v_call productive duplicate_count remark", "T F"),
    "immunoseq": ("note aminoAcid vGeneName vFamilyName count sequenceStatus remark", "In Out Stop"),
    "mixcr": ("note aaSeqCDR3 allVHitsWithScore cloneCount remark", ""),
    "10x": ("note barcode contig_id chain v_gene cdr3 productive remark", "True False None"),
    "vdjtools": ("note count cdr3aa v j remark", ""),
    "immunarch": ("note Clones CDR3.aa V.name remark", ""),
    "tcrex": ("note CDR3_beta TRBV_gene count remark", ""),
    "deeprc": ("note amino_acid templates remark", ""),
}
SEQUENCES = ["CASSF", "", "CASSLGQF", "C", "NA", "CA*F", "CASSPGQGNEQFF"]


def awkward_rows(header, statuses, n=40):
    rows = []
    for number in range(n):
        row = []
        for place, name in enumerate(header.split()):
            if name in ("note", "remark"):
                row.append(AWKWARD[(number * (place + 1)) % len(AWKWARD)])
            elif "count" in name.lower() or name in ("templates", "Clones"):
                row.append(str(number % 5 + 1))
            elif name in ("productive", "sequenceStatus"):
                row.append(statuses.split()[number % len(statuses.split())])
            elif name == "junction":
                row.append("TGTGCC"[: number % 7])
            elif name in ("junction_aa", "cdr3_aa", "aminoAcid", "aaSeqCDR3", "cdr3", "cdr3aa", "CDR3.aa", "CDR3_beta"):
                row.append(SEQUENCES[(number + 2 * place) % len(SEQUENCES)])
            elif name == "amino_acid":
                row.append(SEQUENCES[number % len(SEQUENCES)])
            else:
                row.append(f"{name[:1]}{number % 3}" if number % 4 else "")
        rows.append(row)
    return rows


def as_text(header, rows, delimiter, newline, quoting):
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator=newline, quoting=quoting)
    writer.writerows([header.split(), *rows])
    return stream.getvalue()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_the_size_of_a_block_changes_nothing(tmp_path, monkeypatch, name, size):
    header, statuses = FORMATS[name]
    rows = awkward_rows(header, statuses)
    path = tmp_path / "r.tsv"
    path.write_bytes(as_text(header, rows, "\t", "\n", csv.QUOTE_MINIMAL).encode())
    reader, layout, _ = match_reader(read_header(path))
    assert reader.name == name
    whole = read_repertoire(path)
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", size)
    assert len(list(text_module.read_line_blocks(read_header(path)))) >= 20
    pd.testing.assert_frame_equal(read_repertoire(path), whole)
    column = header.split().index(next(iter(layout.sequences.values())))
    missing = ("", "NA")
    if len(layout.sequences) == 1:
        assert whole["junction_aa"].tolist() == ["" if row[column] in missing else row[column] for row in rows]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL], ids=["some", "all"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("delimiter", ["\t", ",", ";"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("size", [3, 1 << 24])
def test_quoted_fields_are_read_as_the_csv_module_reads_them(
    tmp_path, monkeypatch, quoting, newline, delimiter, encoding, size
):
    header, statuses = FORMATS["airr"]
    rows = awkward_rows(header, statuses)
    path = tmp_path / "r.tsv"
    path.write_bytes(as_text(header, rows, delimiter, newline, quoting).encode(encoding))
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", size)
    texts, coded = read_columns(read_header(path), ["junction_aa"], ["note", "remark"])
    names = header.split()
    assert [texts["junction_aa"].get_bytes(row).decode() for row in range(len(rows))] == [
        row[names.index("junction_aa")] for row in rows
    ]
    for name in ("note", "remark"):
        assert [coded[name].get_name(row) for row in range(len(rows))] == [row[names.index(name)] for row in rows]


@pytest.mark.parametrize("size", [1, 5, 1 << 24])
def test_a_quote_inside_a_field_is_a_letter(tmp_path, monkeypatch, size):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", size)
    path = tmp_path / "r.tsv"
    path.write_text('amino_acid\ttemplates\tnote\nCAF\t1\t5" long\nCASSF\t2\tx\nCATF\t3\t7" long\nCAAF\t4\ty\n')
    table = read_repertoire(path)
    assert table["junction_aa"].tolist() == ["CAF", "CASSF", "CATF", "CAAF"]
    assert table["duplicate_count"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("size", [1, 5, 1 << 24])
def test_rows_are_numbered_across_blocks(tmp_path, monkeypatch, size):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", size)
    path = tmp_path / "r.tsv"
    path.write_text("amino_acid\ttemplates\n" + "CASSF\t2\n" * 20 + "CASSF\n")
    with pytest.raises(InputError, match="row 22 has 1 field, the header has 2"):
        read_repertoire(path)
    path.write_text("amino_acid\ttemplates\n" + "CASSF\t2\n" * 20 + "CASSF\tx\n")
    with pytest.raises(InputError, match="row 22, column 'templates'"):
        read_repertoire(path)


def test_a_quote_that_never_ends(tmp_path):
    path = tmp_path / "r.tsv"
    path.write_text('amino_acid\ttemplates\nCASSF\t2\n"CATF\t3\nCAF\t1\n')
    assert read_repertoire(path)["junction_aa"].tolist() == ["CASSF", '"CATF', "CAF"]  # the second is not a sequence


# --- comments -------------------------------------------------------------------------------------------

TABLE = "cdr3aa\tcount\nCASSF\t2\nCAF\t3\n"


@pytest.mark.parametrize(
    ("comments", "n"),
    [
        ("## made by a tool\n", 1),
        ("####\n## a\tb\n## c, d\n####\n", 4),
        ("# made by a tool\n", 1),
        ("#made by a tool, 2024\n#second\n\n", 3),
        ('"## quoted, by Excel"\t\n', 1),
        (70 * f"{1000 * '#'}\n", 70),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 1 << 24])
def test_comments_before_the_header_are_skipped(tmp_path, monkeypatch, comments, n, newline, size):
    if n > 10 and size == 1:
        pytest.skip("too many blocks")
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", size)
    path = tmp_path / "r.tsv"
    path.write_bytes((comments + TABLE).replace("\n", newline).encode("utf-8-sig"))
    assert read_header(path).n_comments == n
    assert read_repertoire(path)["duplicate_count"].tolist() == [2, 3]
    path.write_bytes((comments + TABLE + "CASF\tx\n").replace("\n", newline).encode())
    with pytest.raises(InputError, match=f"row {n + 4}, column 'count'"):
        read_repertoire(path)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("#count\tfreq\tcdr3aa\n2\t0.5\tCASSF\n", ("count", "freq", "cdr3aa")),
        ("# count\tcdr3aa\n2\tCASSF\n", ("count", "cdr3aa")),
        ("#count,cdr3aa\n2,CASSF\n", ("count", "cdr3aa")),
        ("## tool\n# note\n#count\tcdr3aa\n2\tCASSF\n", ("count", "cdr3aa")),
        ("#count\tcdr3aa\n", ("count", "cdr3aa")),
        ("#count\tcdr3aa", ("count", "cdr3aa")),
        ("#cdr3aa\nCASSF\n", ("cdr3aa",)),
        ("# made by a tool\ncdr3aa\nCASSF\n", ("cdr3aa",)),
        ("# exported, by a tool\ncount,cdr3aa\n2,CASSF\n", ("count", "cdr3aa")),
        ("## only\n## comments\n", ("# comments",)),
    ],
)
def test_the_header_may_begin_with_a_number_sign(tmp_path, text, columns):
    (tmp_path / "r.tsv").write_text(text)
    assert read_header(tmp_path / "r.tsv").columns == columns


# --- limits ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
@pytest.mark.parametrize(("start", "place"), [(b"CASSF\t1\n", ""), (b'CASSF\t"1\t2\n"', " that begins in line 2")])
def test_a_line_that_does_not_end(tmp_path, pack, start, place):
    path = tmp_path / "r.tsv"
    path.write_bytes(pack(b"amino_acid\ttemplates\n" + start + b"A" * (3 * text_module.MAX_LINE_BYTES)))
    with pytest.raises(InputError, match=rf"r\.tsv: a line or a field in quotes{place} is longer than 16 MiB"):
        read_repertoire(path)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zipped])
def test_a_small_file_that_unpacks_to_too_many_rows(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(unpacked_stream, "_ALWAYS_ALLOWED", 1 << 20)
    path = tmp_path / "r.tsv.gz"
    path.write_bytes(pack(b"amino_acid\ttemplates\n" + b"CASSF\t1\n" * 400_000))
    with pytest.raises(InputError, match=r"r\.tsv\.gz: unpacks to more than 100 times its size \(\d MiB so far\)"):
        read_repertoire(path)
    monkeypatch.setattr(unpacked_stream, "_ALWAYS_ALLOWED", 1 << 22)
    assert len(read_repertoire(path)) == 400_000


@pytest.mark.parametrize("data", [b"A", b"A\t", b"#", b"\xff\xfeA\0"])
def test_a_header_that_does_not_end(tmp_path, data):
    path = tmp_path / "r.tsv"
    path.write_bytes(gzip.compress(data * (1 << 23), 1))
    with pytest.raises(InputError, match=r"r\.tsv: not a text table \(no header in its first 4 MiB\)"):
        read_repertoire(path)


def test_too_many_columns(tmp_path):
    path = tmp_path / "r.tsv"
    path.write_text("\t".join(["amino_acid", "templates", *("x" * 100_000)]) + "\n")
    with pytest.raises(InputError, match=r"r\.tsv: 100,002 columns; expected at most 16,384"):
        read_repertoire(path)


def test_long_values_are_cut_in_messages(tmp_path):
    path = tmp_path / "r.tsv"
    path.write_text("amino_acid\ttemplates\nCASSF\t" + "9" * 4301 + "\n")
    with pytest.raises(InputError, match=r"row 2, column 'templates': .*found '9{60}'\.\.\. \(4,301 letters\)$"):
        read_repertoire(path)


def test_blocks_of_utf_16_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", 7)
    monkeypatch.setattr(text_module, "_START_BYTES", 31)
    path = tmp_path / "r.tsv"
    rows = "".join(f"CASSF\t{i}\té\U0001f600\n" for i in range(1, 50))
    path.write_bytes(f"amino_acid\ttemplates\tnote\n{rows}".encode("utf-16"))
    assert read_repertoire(path)["duplicate_count"].tolist() == list(range(1, 50))
    assert read_columns(read_header(path), [], ["note"])[1]["note"].vocabulary == ("é\U0001f600",)


@pytest.mark.parametrize("column", ["v_call", "repertoire_id"])
@pytest.mark.parametrize(("name", "found"), [("x" * 1_001, "'x{60}'"), ("x\x1b]0;t", r"'x\\x1b\]0;t'")])
def test_names_that_are_none(tmp_path, column, name, found):
    (tmp_path / "a.tsv").write_text(f"junction_aa\t{column}\nCASF\tx\nCAF\t{name}\nCAWF\ty\n")
    expected = rf"a\.tsv: row 3, column '{column}': expected at most 1,000 letters, and no .*; found {found}"
    with pytest.raises(InputError, match=expected):
        read_repertoire(tmp_path / "a.tsv")


def test_names_of_a_zips_members_that_are_no_text(tmp_path):
    path = tmp_path / "r.tsv"
    whole = zipped(b"amino_acid\ttemplates\nCASSF\t1\n", "é.tsv")
    local, central = whole.index(b"\xc3\xa9"), whole.rindex(b"\xc3\xa9")
    for at in (local, central):
        data = bytearray(whole)
        data[at] = 0xFF
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"r\.tsv: the zip file is damaged .*\(a name in it is not UTF-8"):
            read_repertoire(path)
        with pytest.raises(InputError, match=r"r\.tsv: "):
            read_metadata(path)
    empty = bytearray(zipped(b"amino_acid\ttemplates\nCASSF\t1\n", "é.tsv"))
    empty[local : local + 2] = empty[central : central + 2] = bytes(2)  # the name ends before its first letter
    path.write_bytes(empty)
    assert read_repertoire(path)["junction_aa"].tolist() == ["CASSF"]
    data = bytearray(zipped(b"amino_acid\ttemplates\nCASSF\t1\n", "x" * 50_000))
    data[30] = ord("y")
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"the zip file is damaged or cut short \(File name in directory") as error:
        read_repertoire(path)
    assert len(str(error.value)) < 500


def test_a_ragged_row_longer_than_the_longest_field(tmp_path):
    """The row ends within the block in which it becomes too long, so that only the csv module objects to it."""
    path = tmp_path / "r.tsv"
    path.write_bytes(b"amino_acid\ttemplates\n" + b"A" * (MAX_LINE_BYTES + 9) + b"\n")
    with pytest.raises(InputError, match=r"r\.tsv: a line or a field in quotes is longer than 16 MiB"):
        read_repertoire(path)


@pytest.mark.parametrize(("first", "n"), [("sep=;\n", 1), ('"sep=;"\r\n', 1), ("SEP=;\n# made by me\n", 2)])
def test_a_line_for_excel_before_the_header_is_skipped(tmp_path, first, n):
    path = tmp_path / "a.csv"
    path.write_bytes((first + "amino_acid;templates\nCASSF;1\n").encode("utf-8-sig"))
    header, text = read_text(path, 1 << 20)
    assert (header.columns, header.delimiter, header.n_comments) == (("amino_acid", "templates"), ";", n)
    assert text == "amino_acid;templates\nCASSF;1\n"


def test_a_file_with_nothing_but_a_line_for_excel_is_no_table(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("sep=;\n")
    with pytest.raises(InputError, match=r"a\.csv: the first line is empty"):
        read_header(path)


def test_many_comments_before_the_header(tmp_path):
    path = tmp_path / "r.tsv"
    path.write_bytes(b"#a\n" * 600_000 + b"amino_acid\ttemplates\nCASSF\t1\n")
    assert read_repertoire(path)["junction_aa"].tolist() == ["CASSF"]
    header, text = read_text(path, 1 << 24)
    assert (header.n_comments, text) == (600_000, "amino_acid\ttemplates\nCASSF\t1\n")


def test_rows_that_do_not_fit_into_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "r.tsv.gz"
    path.write_bytes(gzip.compress(b"amino_acid\ttemplates\n" + b"\t\n" * 100_000))
    monkeypatch.setattr(columns_module, "_UNCHECKED_BYTES", 1 << 20)
    for available in (None, 1 << 30):
        monkeypatch.setattr(columns_module, "count_available_bytes", lambda available=available: available)
        assert len(read_repertoire(path)) == 100_000
    monkeypatch.setattr(columns_module, "count_available_bytes", lambda: 1 << 20)
    with pytest.raises(
        InputError, match=r"r\.tsv\.gz: 32,757 rows or more, which need 0\.0 GiB of memory; 0\.0 GiB are available$"
    ):
        read_repertoire(path)
