"""What no one expects in a file or on a disk: each has one line, or a number that is right."""

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deeprc.datasets.cleaning import clean
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.plan import BAD_FILES_ADVICE
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.readers import match_reader, read_header, read_rows
from deeprc.errors import InputError

AIRR = ("junction_aa", "productive", "duplicate_count")


def rows_of(path):
    header = read_header(path)
    return read_rows(header, match_reader(header).layout)


def run(cohort):
    return preprocess([cohort / "files"], cohort / "metadata.tsv", cohort / "cohort.h5")


def message(cohort):
    """Return the error of a cohort, of which nothing is left."""
    before = sorted(cohort.rglob("*"))
    with pytest.raises(InputError) as error:
        run(cohort)
    assert sorted(cohort.rglob("*")) == before
    return str(error.value)


def refuse(monkeypatch, method, code, name):
    """Let a method of paths of this name fail as the operating system would."""
    real = getattr(Path, method)

    def refusing(self, *args, **kwargs):
        if self.name == name:
            raise OSError(code, "no")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, method, refusing)


def test_a_file_that_may_not_be_read(cohort, monkeypatch):
    refuse(monkeypatch, "open", errno.EACCES, "a.tsv.gz")
    expected = f"{cohort}/files/a.tsv.gz: cannot be read: no. {BAD_FILES_ADVICE}"
    assert message(cohort) == expected


def test_a_target_that_may_not_be_written(cohort, monkeypatch):
    refuse(monkeypatch, "mkdir", errno.EROFS, ".cohort.h5.partial")
    assert message(cohort) == f"{cohort}/cohort.h5: cannot be written: no"


def test_a_million_identical_rows(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"junction_aa\tduplicate_count\n" + b"CASSF\t3\n" * 1_000_000)
    cleaned = clean(rows_of(path))
    assert (cleaned.rows_read, cleaned.kept, cleaned.merged) == (1_000_000, 1, 999_999)
    assert cleaned.sequences.counts.tolist() == [3_000_000]


def test_sums_of_counts_that_are_too_large(tmp_path, write_table):
    rows = [("CASSF", 4_000_000_000), ("CASSF", 4_000_000_000), ("CAF", 4_294_967_295), ("CWF", 1), ("CWF", 1)]
    write_table(tmp_path / "files" / "a.tsv", ("junction_aa", "duplicate_count"), rows)
    write_table(tmp_path / "metadata.tsv", ("ID",), ["a"])
    report = run(tmp_path)
    assert report.counts_capped == 1
    assert RepertoireDataset(tmp_path / "cohort.h5")[0].counts.tolist() == [4_294_967_295, 4_294_967_295, 2]
    assert report.to_text().splitlines()[-1] == "sums of counts too large to be stored, set to 4,294,967,295: 1"


def test_sequences_of_one_and_of_two_thousand_residues(tmp_path, write_table):
    rows = [("C" * n, "T", 1) for n in (1, 50, 51, 2000)]
    cleaned = clean(rows_of(write_table(tmp_path / "a.tsv", AIRR, rows)))
    assert cleaned.sequences.lengths.tolist() == [1, 50]
    assert {reason: n for reason, n in cleaned.dropped.items() if n} == {"too_long": 2}


@pytest.mark.parametrize("blank", ["", "\n", "\n\n\n"])
def test_blank_lines_are_rows_of_a_spreadsheet(tmp_path, blank):
    path = tmp_path / "a.tsv"
    path.write_text(f"junction_aa\tduplicate_count\n{blank}CAF\t1\n{blank}CWF\tx\n")
    with pytest.raises(InputError, match=f"a.tsv: row {3 + 2 * len(blank)}, column 'duplicate_count'"):
        rows_of(path)
    path.write_text(f"junction_aa\tduplicate_count\n{blank}CAF\t1\n{blank}CWF\t1\t2\n")
    with pytest.raises(InputError, match=f"a.tsv: row {3 + 2 * len(blank)} has 3 fields, the header has 2"):
        rows_of(path)


def test_rows_are_numbered_behind_fields_of_several_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('junction_aa,remark,duplicate_count\nCAF,"two\nlines",1\nCWF,,x\n')
    with pytest.raises(InputError, match=r"a\.csv: row 3, column 'duplicate_count'"):
        rows_of(path)


def test_the_row_of_an_error_far_behind(tmp_path):
    path = tmp_path / "a.tsv"
    rows = [f"{'CAS' * 10}F\t1\n"] * 200_000
    rows[150_000] = "CAF\tx\n"
    path.write_text("junction_aa\tduplicate_count\n" + "".join(rows))
    with pytest.raises(InputError, match=r"a\.tsv: row 150002, column 'duplicate_count'"):
        rows_of(path)


@pytest.mark.parametrize("name", ["junction_aa", "duplicate_count", "v_call"])
def test_a_needed_column_that_is_there_twice(tmp_path, write_table, name):
    header = ("junction_aa", "duplicate_count", "v_call", "note", "note", name)
    path = write_table(tmp_path / "a.tsv", header, [("CAF", 1, "TRBV9", "", "", "CWF")])
    with pytest.raises(InputError) as error:
        rows_of(path)
    assert str(error.value) == f"{path}: 2 columns are named {name!r}; expected one, remove the others"


def test_scores_of_genes_do_not_make_them_different(tmp_path, write_table):
    scores = np.random.default_rng(0).uniform(200, 500, 1000).round(1)
    rows = [("CASSF", f"TRBV12-3*00({score}),TRBV12-4*00({score})", f"TRBJ1-1*00({score})") for score in scores]
    rows = rows_of(write_table(tmp_path / "a.tsv", ("aaSeqCDR3", "allVHitsWithScore", "allJHitsWithScore"), rows))
    assert rows.v_call.vocabulary == ("TRBV12-3*00,TRBV12-4*00",)
    assert rows.j_call.vocabulary == ("TRBJ1-1*00",)


def test_a_worker_does_without_pandas(cohort):
    """Its import takes as long as 100,000 rows; Arrow's ways to numpy would bring it in."""
    program = f"""
import sys
from pathlib import Path
from deeprc.datasets.cleaning import Cleaning
from deeprc.datasets.readers import match_reader, read_header
from deeprc.datasets.file_reading import FileToRead, read_file
header = read_header(Path({str(cohort / "files" / "a.tsv.gz")!r}))
reader, layout, _ = match_reader(header)
result = read_file(FileToRead(header.path, reader.name, {{"": "a"}}, Cleaning(), header, layout))
assert result.repertoires[0][1].kept == 2
print([name for name in ("pandas", "h5py", "torch", "numba", "openpyxl") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.long
def test_a_column_of_genes_that_is_none(tmp_path, write_table):
    rows = [("CASSF", f"gene {number}") for number in range(65_536 + 1)]
    write_table(tmp_path / "files" / "a.tsv", ("junction_aa", "v_call"), rows)
    write_table(tmp_path / "metadata.tsv", ("ID",), ["a"])
    assert message(tmp_path) == (
        f"{tmp_path}/files/a.tsv: a column of genes has more than 65,535 different names; does it really hold genes?"
    )


def test_too_many_names_of_genes_are_not_looked_up(tmp_path, write_table, monkeypatch):
    """A million names took minutes before the file was refused."""
    monkeypatch.setattr("deeprc.datasets.cleaning._MAX_FOUND_NAMES", 9)
    monkeypatch.setattr("deeprc.datasets.cleaning.normalise_genes", None)
    rows = [("CASSF", f"gene {number}") for number in range(10)]
    write_table(tmp_path / "files" / "a.tsv", ("junction_aa", "v_call"), rows)
    write_table(tmp_path / "metadata.tsv", ("ID",), ["a"])
    assert message(tmp_path) == (
        f"{tmp_path}/files/a.tsv: a column of genes has more than 65,535 different names; does it really hold genes?"
    )
