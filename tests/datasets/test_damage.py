"""Valid files with random damage: `preprocess` reads them or says why not, and never leaves half a container."""

import bz2
import gzip
import io
import lzma
import tempfile
import zipfile
from pathlib import Path

import h5py
import numpy as np
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.preprocessing import preprocess
from deeprc.errors import InputError

TABLES = {
    "airr": (
        "sequence_id\tproductive\tvj_in_frame\tv_call\tj_call\tjunction\tjunction_aa\tcdr3_aa\tduplicate_count\n"
        'a\tT\tT\tTRBV6-2*01\tTRBJ1-1\t\tCASSF\t\t3\n"b ""2"""\tF\tF\tTRBV2\t\t\tCAS_F\t\t1\n'
        "c\tT\t\t\tTRBJ2-1\tTGTGCCTGG\t\t\t\nd\t\t\tTRBV2\t\t\t\tASSLG\t1e2\n"
    ),
    "immunoseq": (
        "rearrangement\tamino_acid\tframe_type\ttemplates\treads\tv_gene\tv_family\tj_gene\tsample_name\n"
        "ACGT\tCASSF\tIn\t2\t40\tTCRBV06-02\tTCRBV06\tTCRBJ01-01\tr\nACGT\t\tOut\t1\t3\tunresolved\tTCRBV05\t\tr\n"
        "ACGT\tCA*F\tStop\t-1\tnull\tTCRBV02-01\tTCRBV02\tTCRBJ02-07\tr\n"
    ),
    "10x": (
        "barcode,is_cell,contig_id,high_confidence,chain,v_gene,j_gene,productive,cdr3\r\n"
        "AA-1,True,c1,True,TRB,TRBV6-2,TRBJ1-1,True,CASSF\r\nAA-1,True,c2,False,TRA,TRAV1-1,TRAJ33,None,None\r\n"
    ),
    "mixcr": (
        "cloneId\tcloneCount\taaSeqCDR3\tallVHitsWithScore\tallJHitsWithScore\n"
        "0\t12.0\tCASSF\tTRBV6-2*00(90.5),TRBV6-3*00(88)\tTRBJ1-1*00(60)\n1\t2.0\tCAS_SF\tTRBV2*00(7)\tTRBJ2-1*00(9)\n"
    ),
    "vdjtools": (
        "#count\tfreq\tcdr3nt\tcdr3aa\tv\td\tj\n3\t0.75\tACGT\tCASSF\tTRBV2\t.\tTRBJ1-1\n1\t.\tAC\tca~f\t.\t.\t.\n"
    ),
}
SHEET = "repertoire_id\tstatus\tage\nr\tsick\t41\n"


def zipped(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/r.tsv", data)
    return file.getvalue()


def published():
    """Return a container of the original DeepRC."""
    file = io.BytesIO()
    with h5py.File(file, "w") as container:
        container["metadata/aas"] = b"ACDEFGHIKLMNPQRSTVWY"
        container["metadata/sample_keys"] = np.array([b"r.tsv", b"q.tsv"])
        container["sampledata/amino_acid_sequences"] = np.array([[1, 0, 4, -1], [1, 0, 0, 4], [1, 4, -1, -1]], np.int8)
        container["sampledata/counts_per_sequence"] = np.array([3, 1, 2])
        container["sampledata/sample_sequences_start_end"] = np.array([[0, 2], [2, 3]])
    return file.getvalue()


def workbook(data):
    """Return a table as an XLSX file."""
    book, file = openpyxl.Workbook(), io.BytesIO()
    for line in data.decode().splitlines():
        book.active.append(line.split("\t"))
    book.save(file)
    return file.getvalue()


PACKINGS = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zip": zipped}
SEPARATORS = [b"\t", b",", b"\n", b"\r", b'"', b"\0", b"\xff\xfe", b"\xef\xbb\xbf"]
VALUES = [b"-1", b"1e400", b"nan", b"9" * 400, b"C" * 300]
BLOBS = st.binary(max_size=12) | st.sampled_from([*SEPARATORS, *VALUES])
POSITIONS = st.floats(0, 1)
WAYS = st.tuples(st.sampled_from(["cut", "insert", "delete", "repeat", "overwrite"]), POSITIONS, POSITIONS, BLOBS)


def damaged(data, ways):
    """Return data after each way of damage; places are shares of its length, so that they shrink towards the start."""
    for way, first, second, blob in ways:
        start, stop = sorted((int(first * len(data)), int(second * len(data))))
        data = {
            "cut": data[:stop],
            "insert": data[:start] + blob + data[start:],
            "delete": data[:start] + data[min(stop, start + 40) :],
            "repeat": data[:stop] + data[start:],
            "overwrite": data[:start] + blob + data[start + len(blob) :],
        }[way]
    return data


def preprocess_or_say_why(files, sheet, **arguments):
    """Return the report and the repertoires, or None after an error that names what is bad and leaves nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, data in {**files, "sheet": sheet}.items():
            (folder / file).write_bytes(data)
        before = sorted(folder.iterdir())
        report, message = None, ""
        try:
            report = preprocess([folder / file for file in files], folder / "sheet", folder / "c.h5", **arguments)
        except InputError as error:
            message = str(error)
        left = [] if report is None else [folder / "c.h5"]
        assert sorted(folder.iterdir()) == sorted([*before, *left])
        if report is not None:
            return report, list(RepertoireDataset(folder / "c.h5"))
        assert str(folder) in message  # the file or the sheet is named
        return None


def agrees(report, repertoires):
    """Check that every row that was read is accounted for, and that what is stored is what is reported."""
    stored = {each.repertoire_id: len(each.sequences.decode()) for each in repertoires}
    assert stored == {each.repertoire_id: each.kept for each in report.repertoires if each.kept}
    assert all(count >= 1 for each in repertoires for count in each.counts.tolist())
    assert report.rows_read == report.kept + report.merged + sum(report.dropped.values())
    return True


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("packing", PACKINGS)
def test_without_damage_all_is_read(name, packing):
    report, repertoires = preprocess_or_say_why({"r.tsv": PACKINGS[packing](TABLES[name].encode())}, SHEET.encode())
    assert agrees(report, repertoires)
    assert report.repertoires[0].format == name
    assert report.rows_read == TABLES[name].count("\n") - 1
    assert "CASSF" in repertoires[0].sequences.decode()


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=30, deadline=None)
@given(ways=st.lists(WAYS, min_size=1, max_size=4))
def test_damaged_tables(name, ways):
    done = preprocess_or_say_why({"r.tsv": damaged(TABLES[name].encode(), ways)}, SHEET.encode())
    assert done is None or agrees(*done)


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz", "zip"])
@settings(max_examples=20, deadline=None)
@given(ways=st.lists(WAYS, min_size=1, max_size=2))
def test_damaged_packings(packing, ways):
    data = damaged(PACKINGS[packing](TABLES["airr"].encode()), ways)
    done = preprocess_or_say_why({"r.tsv": data}, SHEET.encode())
    assert done is None or agrees(*done)


@settings(max_examples=30, deadline=None)
@given(ways=st.lists(WAYS, min_size=1, max_size=2))
def test_damaged_containers_of_the_original(ways):
    files = {"published.h5": damaged(published(), ways)}
    done = preprocess_or_say_why(files, SHEET.encode())
    assert done is None or agrees(*done)


@pytest.mark.parametrize("packing", ["plain", "gzip", "zip", "workbook"])
@settings(max_examples=20, deadline=None)
@given(ways=st.lists(WAYS, min_size=1, max_size=3))
def test_damaged_sheets(packing, ways):
    sheet = damaged({**PACKINGS, "workbook": workbook}[packing](SHEET.encode()), ways)
    done = preprocess_or_say_why({"r.tsv": TABLES["airr"].encode()}, sheet)
    assert done is None or agrees(*done)


@settings(max_examples=20, deadline=None)
@given(ways=st.lists(WAYS, min_size=1, max_size=3))
def test_a_damaged_file_beside_a_good_one(ways):
    """With `skip_bad_files` the good one is read whatever the other has become."""
    files = {"q.tsv": TABLES["vdjtools"].encode(), "r.tsv": damaged(TABLES["vdjtools"].encode(), ways)}
    sheet = b"repertoire_id\nq\nr\n"
    done = preprocess_or_say_why(files, sheet, options=ReadingOptions(allow_missing=True), skip_bad_files=True)
    assert done is None or agrees(*done)
    if done is not None:
        assert done[1][0].repertoire_id == "q"
        assert done[1][0].sequences.decode() == ["CASSF"]
