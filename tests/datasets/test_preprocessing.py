"""From files and a sheet to a container, and every way in which that can fail."""

import gzip
import json
import logging
import subprocess
import sys

import h5py
import numpy as np
import pytest

from deeprc.datasets import appending, container_writer, file_reading
from deeprc.datasets.cleaning import Cleaning
from deeprc.datasets.container import Container
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.preprocessing import preprocess
from deeprc.errors import InputError, SeveralErrors

AIRR = ("junction_aa", "productive", "duplicate_count")


def run(cohort, *, skip_bad_files=False, jobs=1, progress=None, **options):
    arguments = {"skip_bad_files": skip_bad_files, "jobs": jobs, "progress": progress}
    place = [cohort / "files"], cohort / "metadata.tsv", cohort / "cohort.h5"
    return preprocess(*place, options=ReadingOptions(**options), **arguments)


def fails(cohort, **options):
    """Return the message of the error, after checking that nothing was left behind."""
    before = sorted(cohort.rglob("*"))
    with pytest.raises(InputError) as error:
        run(cohort, **options)
    assert sorted(cohort.rglob("*")) == before
    return str(error.value)


def test_a_missing_result_is_an_error(cohort, monkeypatch):
    def too_few(branches, workers, read):
        yield from file_reading.read_files(branches[:-1], workers, read)

    monkeypatch.setattr(appending, "read_files", too_few)
    with pytest.raises(ValueError, match="shorter"):
        run(cohort)
    assert not (cohort / "cohort.h5").exists()


def test_the_container_follows_the_sheet(cohort):
    run(cohort)
    dataset = RepertoireDataset(cohort / "cohort.h5")
    assert dataset.repertoire_ids.tolist() == ["c", "a", "b"]
    assert [repertoire.sequences.decode() for repertoire in dataset] == [["CASK"], ["CAWWF", "CASSF"], ["CASSF"]]
    assert [repertoire.counts.tolist() for repertoire in dataset] == [[2], [1, 7], [3]]
    assert dataset[1].to_frame()["v_call"].tolist() == ["TRBV2", ""]
    assert dataset[2].to_frame()["j_call"].tolist() == ["TRBJ1"]
    assert dataset.metadata["repertoire_id"].tolist() == ["c", "a", "b"]
    assert dataset.metadata["status"].tolist() == ["sick", "well", "sick"]
    assert dataset.metadata["age"].tolist()[::2] == [41.0, 30.0]
    assert np.isnan(dataset.metadata["age"].tolist()[1])


def test_the_report(cohort):
    report = run(cohort)
    dropped = {"empty": 1, "ambiguous_residue": 1}
    assert [each.repertoire_id for each in report.repertoires] == ["c", "a", "b"]
    assert report.repertoires[0].to_dict() == {
        "repertoire_id": "c",
        "file": "c.tsv.gz",
        "format": "airr",
        "rows_read": 3,
        "kept": 1,
        "dropped": dropped,
        "counts_from": {"duplicate_count": 1},
        "counts_rounded": 0,
        "counts_capped": 0,
        "merged": 0,
        "sequences_from": {"junction_aa": 1},
        "loci": {"TRB": 1},
        "locus": None,
        "genes": {"v_call": {}, "j_call": {}},
    }
    assert report.rows_read == 7
    assert report.kept == 4
    assert {reason: n for reason, n in report.dropped.items() if n} == {**dropped, "stop_codon": 1}
    stored = Container(cohort / "cohort.h5").preprocessing
    assert stored == json.loads(json.dumps(report.to_dict()))
    assert stored["rows_read"] == stored["kept"] + stored["merged"] + sum(stored["dropped"].values())
    assert report.to_text().splitlines() == [
        "repertoire  format  rows read  kept  stop_codon  empty  ambiguous_residue",
        "c           airr            3     1           0      1                  1",
        "a           airr            2     2           0      0                  0",
        "b           airr            2     1           1      0                  0",
        "total                       7     4           1      1                  1",
        "counts from: duplicate_count (4)",
        "chains: TRB (4)",
    ]


def test_the_table_of_a_large_cohort_is_cut(tmp_path, write_table):
    ids = [f"r{i}" for i in range(30)]
    for repertoire_id in ids:
        write_table(tmp_path / "files" / f"{repertoire_id}.tsv", ("amino_acid", "templates"), [("CAF", 0.4)])
    write_table(tmp_path / "metadata.tsv", ("ID",), [(name,) for name in ids])
    lines = run(tmp_path).to_text().splitlines()
    assert len(lines) == 1 + 20 + 1 + 1 + 2
    assert lines[21] == "... 10 more"
    assert lines[-1] == "counts rounded to a whole number of at least 1: 30"


def test_two_workers_write_the_same_container_as_one(cohort):
    run(cohort)
    one = (cohort / "cohort.h5").read_bytes()
    run(cohort, jobs=2)
    assert (cohort / "cohort.h5").read_bytes() == one
    with h5py.File(cohort / "cohort.h5") as file:
        assert file["residues"].shape == (4 + 5 + 5 + 5,)


def test_an_error_in_a_worker_is_the_same_line(cohort, write_table):
    write_table(cohort / "files" / "a.tsv.gz", AIRR, [("CAF", "T", 1), ("CAF", "T", "abc")])
    expected = (
        f"{cohort}/files/a.tsv.gz: row 3, column 'duplicate_count': expected a number from 0 to 4294967295, "
        "or nothing; found 'abc'. `skip_bad_files` leaves out files with faults"
    )
    assert fails(cohort) == fails(cohort, jobs=2) == expected


BAD_COUNT = "column 'duplicate_count': expected a number from 0 to 4294967295, or nothing; found 'abc'"
SKIP = "`skip_bad_files` leaves out files with faults"


def write_files(folder, write_table, n, bad=(), bad_row=None):
    """Write n files r0, r1, ... and a sheet; the bad files have no number in the row of each, or in a given row."""
    for i in range(n):
        rows = [(f"CAS{'ACDEFGHIKLMNPQRSTVWY'[i % 20]}F", "T", i + 1, f"TRBV{i % 7 + 1}")] * 30
        if i in bad:
            rows[(i if bad_row is None else bad_row) - 2] = ("CAF", "T", "abc", "TRBV1")
        write_table(folder / "files" / f"r{i}.tsv", (*AIRR, "v_call"), rows)
    write_table(folder / "metadata.tsv", ("ID", "y"), [(f"r{i}", i) for i in range(n)])


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_faults_of_all_files_are_listed(tmp_path, write_table, jobs):
    write_files(tmp_path, write_table, 8, bad=(2, 5))
    write_table(tmp_path / "files" / "r7.tsv", AIRR, [("C*F", "T", 1)])
    assert fails(tmp_path, jobs=jobs) == (
        "3 of 8 files cannot be used:\n"
        f"(1) {tmp_path}/files/r2.tsv: row 2, {BAD_COUNT};\n"
        f"(2) {tmp_path}/files/r5.tsv: row 5, {BAD_COUNT};\n"
        f"(3) {tmp_path}/files/r7.tsv: none of the 1 rows of repertoire 'r7' is kept (stop_codon 1).\n"
        f"{SKIP}; `allow_missing` leaves such repertoires out"
    )


def test_ten_faults_are_listed_in_full_and_the_others_counted(tmp_path, write_table):
    write_files(tmp_path, write_table, 14, bad=range(2, 14))
    lines = fails(tmp_path).splitlines()
    assert lines[0] == "12 of 14 files cannot be used:"
    assert lines[10] == f"(10) {tmp_path}/files/r11.tsv: row 11, {BAD_COUNT};"
    assert lines[11:] == ["and 2 more faults.", f"`deeprc check` lists the faults of all files; {SKIP}"]


@pytest.mark.parametrize(("n", "which"), [(5, "all 5 files"), (20, "all 20 files")])
def test_one_fault_of_all_files_is_named_once(tmp_path, write_table, n, which):
    write_files(tmp_path, write_table, n, bad=range(n), bad_row=3)
    assert fails(tmp_path) == f"{which}: row 3, {BAD_COUNT} (first: {tmp_path}/files/r0.tsv)"


def test_up_to_ten_files_with_one_fault_are_named(tmp_path, write_table):
    write_files(tmp_path, write_table, 5, bad=(1, 3), bad_row=3)
    assert fails(tmp_path) == (
        f"2 of 5 files cannot be used:\n(1) {tmp_path}/files/r1.tsv: row 3, {BAD_COUNT};\n"
        f"(2) {tmp_path}/files/r3.tsv: row 3, {BAD_COUNT}.\n{SKIP}"
    )
    write_files(tmp_path, write_table, 14, bad=range(3, 14), bad_row=3)
    assert fails(tmp_path) == f"11 of 14 files: row 3, {BAD_COUNT} (first: {tmp_path}/files/r3.tsv). {SKIP}"


def test_a_wrong_chain_of_all_files_is_asked_for(tmp_path, write_table):
    write_files(tmp_path, write_table, 3)
    one = f"{tmp_path}/files/r0.tsv: none of the 30 rows of repertoire 'r0' is kept (other_locus 30); is `locus` right?"
    expected = f"all 3 files: no row is kept, most for the reason 'other_locus' (first: {one})"
    assert fails(tmp_path, locus="IGH") == expected
    write_files(tmp_path, write_table, 3, bad=(1,), bad_row=3)
    assert fails(tmp_path, locus="IGH").splitlines() == [
        "all 3 files cannot be used:",
        f"(1) {tmp_path}/files/r1.tsv: row 3, {BAD_COUNT};",
        f"(2) 2 repertoires: no row is kept, most for the reason 'other_locus' (first: {one})",
    ]
    for i in range(3):
        write_table(tmp_path / "files" / f"r{i}.tsv", AIRR, [])
    none = f"{tmp_path}/files/r0.tsv: has a header, but no rows (repertoire 'r0')"
    assert fails(tmp_path) == f"all 3 files: no row is kept (first: {none})"


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_more_files_are_read_if_the_first_twenty_all_have_faults(tmp_path, write_table, jobs):
    write_files(tmp_path, write_table, 23, bad=range(20), bad_row=3)
    seen = []
    assert fails(tmp_path, jobs=jobs, progress=lambda done, total: seen.append(done)) == (
        f"each of the first 20 of 23 files: row 3, {BAD_COUNT} (first: {tmp_path}/files/r0.tsv). The other files were "
        "not read; `deeprc check` reads all files, and lists their faults"
    )
    assert seen == list(range(1, 21))


def test_the_first_of_many_faults_is_logged_at_once(tmp_path, write_table, caplog):
    write_files(tmp_path, write_table, 30, bad=(4, 5, 9, 29))
    fails(tmp_path)
    advice = "The other files are read nevertheless, to list all faults at the end"
    assert caplog.messages == [f"{tmp_path}/files/r4.tsv: row 4, {BAD_COUNT}. {advice}"]


def test_a_first_fault_that_ends_with_a_question_has_no_full_stop_after_it(tmp_path, write_table, caplog):
    write_files(tmp_path, write_table, 30)
    write_table(tmp_path / "files" / "r4.tsv", AIRR, [("CF", "T", 1)])
    fails(tmp_path, min_length=3)
    assert caplog.messages == [
        f"{tmp_path}/files/r4.tsv: none of the 1 rows of repertoire 'r4' is kept (too_short 1); is `min_length` right? "
        "The other files are read nevertheless, to list all faults at the end"
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_files_read_after_a_fault_are_not_read_again(tmp_path, write_table, monkeypatch, caplog, jobs):
    write_files(tmp_path, write_table, 12)
    run(tmp_path)
    whole = (tmp_path / "cohort.h5").read_bytes()
    (tmp_path / "cohort.h5").unlink()
    good = {i: (tmp_path / "files" / f"r{i}.tsv").read_bytes() for i in (0, 4, 9)}
    for i in good:
        write_table(tmp_path / "files" / f"r{i}.tsv", AIRR, [("CAF", "T", "abc")])
    monkeypatch.setattr(container_writer, "_MIN_KEPT_BYTES", 60)
    with pytest.raises(SeveralErrors, match="3 of 12 files"):
        run(tmp_path, jobs=jobs)
    for i in (0, 9):
        (tmp_path / "files" / f"r{i}.tsv").write_bytes(good[i])
    seen = []
    with pytest.raises(InputError, match="found 'abc'"):
        run(tmp_path, jobs=jobs, progress=lambda done, total: seen.append(done))
    assert seen == [9, 10, 11, 12]
    (tmp_path / "files" / "r4.tsv").write_bytes(good[4])
    seen.clear()
    run(tmp_path, jobs=jobs, progress=lambda done, total: seen.append(done))
    assert seen == [11, 12]
    assert caplog.messages[-1].endswith("continues after 11 of 12 files or repertoires, which were read before")
    assert (tmp_path / "cohort.h5").read_bytes() == whole
    assert not (tmp_path / ".cohort.h5.partial").exists()


def test_a_full_disk_ends_at_once_although_a_file_has_a_fault(tmp_path, write_table, monkeypatch):
    def full(self, repertoire_id, table):
        raise OSError(28, "No space left on device")

    write_files(tmp_path, write_table, 5, bad=(0,), bad_row=3)
    monkeypatch.setattr(ContainerWriter, "append", full)
    seen = []
    message = fails(tmp_path, progress=lambda done, total: seen.append(done))
    assert message == f"{tmp_path}/cohort.h5: cannot be written: No space left on device"
    assert seen == [1]


def test_progress(cohort):
    seen = []
    run(cohort, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def interrupt(done, total):
    if done == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize("jobs", [1, 2])
def test_after_an_interrupt_the_next_call_goes_on(cohort, jobs, caplog):
    run(cohort)
    whole = (cohort / "cohort.h5").read_bytes()
    report = run(cohort).to_dict()
    (cohort / "cohort.h5").unlink()
    with pytest.raises(KeyboardInterrupt):
        run(cohort, progress=interrupt, jobs=jobs)
    assert not (cohort / "cohort.h5").exists()
    assert (cohort / ".cohort.h5.partial").is_dir()
    assert caplog.messages == [
        f"{cohort}/cohort.h5: not written. The same command continues from {cohort}/.cohort.h5.partial, with what was "
        "read; you may delete it"
    ]
    caplog.clear()
    seen = []
    again = run(cohort, progress=lambda done, total: seen.append(done), jobs=jobs)
    assert seen == [2, 3]
    assert caplog.messages == [
        f"{cohort}/cohort.h5: continues after 2 of 3 files or repertoires, which were read before"
    ]
    assert again.to_dict() == report
    assert (cohort / "cohort.h5").read_bytes() == whole
    assert not (cohort / ".cohort.h5.partial").exists()


def test_numbers_in_the_place_of_genes_are_warned_of_once(cohort, write_table, caplog):
    header = (*AIRR, "v_call", "j_call")
    rows = [("CASSF", "T", 1, "1.0", "TRBJ1"), ("CAWF", "T", 1, "1.0", ""), ("CATF", "T", 1, "2e1", "TRBJ1")]
    for name in "ab":  # the repertoires b and a are the last of the sheet
        (cohort / "files" / f"{name}.tsv.gz").unlink()
        write_table(cohort / "files" / f"{name}.tsv", header, rows)
    warning = (
        f"{cohort}/files/a.tsv and 1 more file: expected names of V and J genes, such as TRBV9, found 6 numbers, such "
        "as '1.0'. They are stored as they are; is the column right?"
    )
    run(cohort)
    assert caplog.messages == [warning]
    assert RepertoireDataset(cohort / "cohort.h5")[1].to_frame()["v_call"].tolist() == ["1.0", "1.0", "2e1"]
    caplog.clear()
    with pytest.raises(KeyboardInterrupt):
        run(cohort, progress=interrupt)
    run(cohort)  # the interrupted call read file a
    assert caplog.messages[-1] == warning


def test_after_a_late_error_the_next_call_goes_on(cohort, write_table, monkeypatch):
    run(cohort)
    whole = (cohort / "cohort.h5").read_bytes()
    (cohort / "cohort.h5").unlink()
    good = (cohort / "files" / "b.tsv.gz").read_bytes()
    write_table(cohort / "files" / "b.tsv.gz", AIRR, [("CAF", "T", "abc")])
    assert "found 'abc'" in fails(cohort)  # so little is not kept
    monkeypatch.setattr(container_writer, "_MIN_KEPT_BYTES", 60)
    with pytest.raises(InputError, match="found 'abc'"):
        run(cohort)
    assert not (cohort / "cohort.h5").exists()
    (cohort / "files" / "b.tsv.gz").write_bytes(good)
    seen = []
    run(cohort, progress=lambda done, total: seen.append(done))
    assert seen == [2, 3]
    assert (cohort / "cohort.h5").read_bytes() == whole
    assert not (cohort / ".cohort.h5.partial").exists()


def test_an_interrupt_leaves_the_old_container(cohort):
    run(cohort)
    old = (cohort / "cohort.h5").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run(cohort, progress=interrupt)
    assert (cohort / "cohort.h5").read_bytes() == old


@pytest.mark.parametrize("change", ["file", "options"])
def test_files_read_with_other_content_or_options_are_read_again(cohort, write_table, change):
    with pytest.raises(KeyboardInterrupt):
        run(cohort, progress=interrupt)
    if change == "file":
        write_table(cohort / "files" / "c.tsv.gz", AIRR, [("CWWW", "T", 9)])
    seen = []
    options = {} if change == "file" else {"max_length": 4}
    run(cohort, progress=lambda done, total: seen.append(done), allow_missing=True, **options)
    assert seen == [1, 2, 3]
    first = RepertoireDataset(cohort / "cohort.h5")[0]
    assert first.sequences.decode() == (["CWWW"] if change == "file" else ["CASK"])


@pytest.mark.slow
def test_a_killed_process_leaves_no_container_and_the_next_goes_on(cohort):
    program = (
        "import os, signal, sys\n"
        "from deeprc.datasets.preprocessing import preprocess\n"
        "def kill(done, total):\n"
        "    if done == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "preprocess(['files'], 'metadata.tsv', 'cohort.h5', progress=kill)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=cohort, check=False).returncode == -9
    assert not (cohort / "cohort.h5").exists()
    with (cohort / ".cohort.h5.partial" / "residues.bin").open("ab") as file:
        file.write(b"what came after the last step")
    with (cohort / ".cohort.h5.partial" / "journal.jsonl").open("ab") as file:
        file.write(b'{"note": {"cut')
    seen = []
    preprocess(
        [cohort / "files"], cohort / "metadata.tsv", cohort / "cohort.h5", progress=lambda done, _: seen.append(done)
    )
    resumed = (cohort / "cohort.h5").read_bytes()
    run(cohort)
    assert resumed == (cohort / "cohort.h5").read_bytes()


def test_two_at_once_do_not_write_into_each_other(cohort):
    def second(done, total):
        with pytest.raises(InputError, match=r"partial: another process is writing here; wait until it has ended"):
            run(cohort)

    run(cohort, progress=second)
    assert len(RepertoireDataset(cohort / "cohort.h5")) == 3


COLUMNS = ("repertoire_id", "junction_aa", "duplicate_count", "v_call")


def test_one_file_of_many_repertoires(tmp_path, write_table):
    rows = [("b", "CASSF", 3, "TRBV2"), ("a", "CAF", 1, "TRBV2"), ("b", "CATF", 2, ""), ("x", "CAWF", 2, "")]
    write_table(tmp_path / "files" / "all.tsv", COLUMNS, rows)
    write_table(tmp_path / "files" / "c.tsv", COLUMNS[1:], [("CWWF", 4, "TRBV3-1")])
    write_table(tmp_path / "metadata.tsv", ("ID", "y"), [("a", 1), ("c", 2), ("b", 3)])
    assert "metadata.tsv for 1 repertoire: x of all.tsv. Give what is missing" in fails(tmp_path)
    report = run(tmp_path, allow_missing=True)
    assert report.repertoires_without_row == {"all.tsv": ("x",)}
    dataset = RepertoireDataset(tmp_path / "cohort.h5")
    assert dataset.repertoire_ids.tolist() == dataset.metadata["ID"].tolist() == ["a", "b", "c"]
    assert [repertoire.sequences.decode() for repertoire in dataset] == [["CAF"], ["CASSF", "CATF"], ["CWWF"]]
    assert dataset.metadata["y"].tolist() == [1, 3, 2]
    assert [each.file for each in report.repertoires] == ["all.tsv", "all.tsv", "c.tsv"]


def test_a_repertoire_may_be_called_na(tmp_path, write_table):
    rows = [("NA", "CASSF", 3, ""), ("p", "CAF", 1, "")]
    write_table(tmp_path / "files" / "all.tsv", COLUMNS, rows)
    write_table(tmp_path / "metadata.tsv", ("ID", "y"), [("p", 1), ("NA", 2)])
    run(tmp_path)
    dataset = RepertoireDataset(tmp_path / "cohort.h5")
    assert {each.repertoire_id: each.sequences.decode() for each in dataset} == {"NA": ["CASSF"], "p": ["CAF"]}


@pytest.mark.parametrize("header", ["repertoire_id sample_id junction_aa", "count x sample_id cdr3aa"])
def test_repertoires_are_found_by_whichever_standard_column_is_filled(tmp_path, write_table, header):
    columns = header.split()
    rows = [
        [{"sample_id": name, "junction_aa": text, "cdr3aa": text, "count": 1}.get(column, "") for column in columns]
        for name, text in (("p", "CASSF"), ("q", "CAF"))
    ]
    write_table(tmp_path / "files" / "all.tsv", columns, rows)
    write_table(tmp_path / "metadata.tsv", ("ID", "y"), [("p", 1), ("q", 2)])
    run(tmp_path)
    dataset = RepertoireDataset(tmp_path / "cohort.h5")
    assert {each.repertoire_id: each.sequences.decode() for each in dataset} == {"p": ["CASSF"], "q": ["CAF"]}


def test_a_stray_quote_swallows_nothing(tmp_path, write_table):
    (tmp_path / "files").mkdir()
    text = 'junction_aa\tnote\nCASSF\t"x\n"CASSLF"\tq\nCASSQF\tw"\n'
    (tmp_path / "files" / "r.tsv").write_text(text)
    write_table(tmp_path / "metadata.tsv", ("ID",), ["r"])
    report = run(tmp_path)
    assert report.rows_read == 3
    assert RepertoireDataset(tmp_path / "cohort.h5")[0].sequences.decode() == ["CASSF", "CASSLF", "CASSQF"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['CASSF\t"x\ty', "CASSLF\tq"], "line 2 begins; line 2 has 3 fields, the header has 2"),
        (['CASSF\t"x', "CASSLF\tq\tr", "CAF\tq"], "line 2 begins; line 3 has 3 fields, the header has 2"),
        (['CAF\t"two', 'lines"'] * 3 + ['CAF\t5" x', "CAF"], "line 8 begins; line 9 has 1 field, the header has 2"),
        (["CAF\tx"] * 200_000 + ['CAF\t"x', "CAF"], "line 200002 begins; line 200003 has 1 field, the header has 2"),
    ],
)
def test_a_quoted_field_that_never_ends_is_an_error(tmp_path, write_table, rows, message):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "r.tsv").write_text("\n".join(["junction_aa\tnote", *rows]) + "\n")
    write_table(tmp_path / "metadata.tsv", ("ID",), ["r"])
    first, _, ragged = message.partition(" begins; ")
    never_ends = f"the field in quotes that begins in {first} never ends; is there a stray quote?"
    assert fails(tmp_path) == f"{tmp_path}/files/r.tsv: {never_ends} Without quotes, {ragged}"


def test_a_line_longer_than_csv_allows(tmp_path, write_table):
    rows = [("CASSF", "A" * 200_000)]
    write_table(tmp_path / "files" / "r.tsv", ("junction_aa", "x"), rows)
    write_table(tmp_path / "metadata.tsv", ("ID",), ["r"])
    assert run(tmp_path).kept == 1


def test_a_file_that_changes_while_it_is_read(cohort, monkeypatch):
    times = iter(range(100))
    monkeypatch.setattr(file_reading.FileToRead, "compute_key", lambda self: str(next(times)))
    assert fails(cohort) == f"all 3 files: changed while it was read (first: {cohort}/files/c.tsv.gz)"


def test_skipped_files_are_tried_again(cohort, write_table):
    write_table(cohort / "files" / "c.tsv.gz", AIRR, [("CAF", "T", "abc")])
    with pytest.raises(KeyboardInterrupt):
        run(cohort, skip_bad_files=True, progress=interrupt)
    with pytest.raises(InputError, match="row 2, column 'duplicate_count'"):
        run(cohort)


def test_skipped_files_do_not_stop_the_next_call_from_going_on(cohort, write_table):
    write_table(cohort / "files" / "c.tsv.gz", AIRR, [("CAF", "T", "abc")])
    with pytest.raises(KeyboardInterrupt):
        run(cohort, skip_bad_files=True, progress=interrupt)
    seen = []
    report = run(cohort, skip_bad_files=True, progress=lambda done, total: seen.append(done))
    assert seen == [2, 3]
    assert [each.repertoire_id for each in report.repertoires] == ["a", "b"]
    assert list(report.skipped_files) == [f"{cohort}/files/c.tsv.gz"]


def test_mouse_genes_of_one_repertoire_are_the_whole_files(tmp_path, write_table):
    columns = ("sample_name", "amino_acid", "v_gene", "templates")
    rows = [("p", "CASSF", "TCRBV13-01", 1), ("p", "CASSAF", "TRBV13-2", 1), ("q", "CASSF", "TCRBV13-01", 1)]
    write_table(tmp_path / "files" / "all.tsv", columns, rows)
    write_table(tmp_path / "metadata.tsv", ("ID",), ["p", "q"])
    run(tmp_path)
    genes = [each.to_frame()["v_call"].tolist() for each in RepertoireDataset(tmp_path / "cohort.h5")]
    assert genes == [["TCRBV13-01", "TRBV13-2"], ["TCRBV13-01"]]


def test_a_damaged_file_of_many_repertoires_is_named(tmp_path, write_table):
    rows = [("p", "CASSF", 3, ""), ("q", "CAF", 1, "")]
    path = write_table(tmp_path / "files" / "many.tsv.gz", COLUMNS, rows)
    path.write_bytes(path.read_bytes()[:40])
    write_table(tmp_path / "metadata.tsv", ("ID",), [("p",), ("q",)])
    assert fails(tmp_path).startswith(f"{path}: the gzip file is damaged or cut short")
    path.unlink()
    path = write_table(tmp_path / "files" / "many.tsv", (*COLUMNS, "junction_aa"), [(*row, "CF") for row in rows])
    assert fails(tmp_path) == f"{path}: 2 columns are named 'junction_aa'; expected one, remove the others"
    path = write_table(tmp_path / "files" / "many.tsv", ("donor", *COLUMNS, "donor"), [("p", *rows[0], "q")])
    double = f"{path}: 2 columns are named 'donor'; expected one, remove the others"
    assert fails(tmp_path, split_by="donor") == double


def test_two_columns_that_are_not_needed_may_have_one_name(tmp_path, write_table):
    columns = ("sample_name", "junction_aa", "sample_name")
    write_table(tmp_path / "files" / "a.tsv", columns, [("p", "CASSF", "q")])
    write_table(tmp_path / "metadata.tsv", ("ID",), ["a"])
    assert "2 columns are named 'sample_name'" in fails(tmp_path)
    assert run(tmp_path, split_by="none").kept == 1


def test_the_column_that_names_repertoires_is_the_one_that_is_named(tmp_path, write_table):
    columns = ("repertoire_id", "sample_name", "junction_aa")
    write_table(tmp_path / "files" / "a.tsv", columns, [("", "p", "CASSF"), ("", "q", "CAF")])
    write_table(tmp_path / "metadata.tsv", ("ID",), ["a"])
    assert "column 'sample_name' names 2 repertoires (p, q)" in fails(tmp_path)


def test_any_column_can_split(tmp_path, write_table):
    columns = ("donor", *COLUMNS[1:])
    write_table(tmp_path / "files" / "a.tsv", columns, [("p", "CASSF", 3, ""), ("q", "CAF", 1, "")])
    write_table(tmp_path / "metadata.tsv", ("ID",), ["q", "p"])
    run(tmp_path, split_by="Donor")
    dataset = RepertoireDataset(tmp_path / "cohort.h5")
    assert {each.repertoire_id: each.sequences.decode() for each in dataset} == {"p": ["CASSF"], "q": ["CAF"]}
    assert dataset.repertoire_ids.tolist() == dataset.metadata["ID"].tolist() == ["q", "p"]  # as in the sheet
    assert "a.tsv: no column 'sample' to split by; columns: donor, junction_aa" in fails(tmp_path, split_by="sample")


def test_a_file_of_many_is_never_made_one(tmp_path, write_table):
    write_table(tmp_path / "files" / "a.tsv", COLUMNS, [("p", "CASSF", 3, ""), ("q", "CAF", 1, "")])
    write_table(tmp_path / "metadata.tsv", ("ID",), ["a"])
    assert fails(tmp_path) == (
        f"{tmp_path}/files/a.tsv: column 'repertoire_id' names 2 repertoires (p, q); the sheet gives the whole file to "
        "'a'. `split_by=repertoire_id` separates them, `split_by=none` keeps them together"
    )
    run(tmp_path, split_by="none")
    dataset = RepertoireDataset(tmp_path / "cohort.h5")
    assert [(each.repertoire_id, each.sequences.decode()) for each in dataset] == [("a", ["CASSF", "CAF"])]


def test_files_of_many_are_left_alone_where_nothing_is_split(tmp_path, write_table):
    write_table(tmp_path / "files" / "all.tsv", COLUMNS, [("p", "CASSF", 3, ""), ("q", "CAF", 1, "")])
    write_table(tmp_path / "metadata.tsv", ("ID",), [("p",), ("q",)])
    run(tmp_path)
    (tmp_path / "cohort.h5").unlink()
    assert "Not one file matches" in fails(tmp_path, split_by="none")


def test_two_files_with_one_repertoire(tmp_path, write_table):
    for name in "ab":
        write_table(tmp_path / "files" / f"all_{name}.tsv", COLUMNS, [("p", "CASSF", 3, "")])
    write_table(tmp_path / "metadata.tsv", ("ID",), ["p"])
    assert "two files hold the repertoire 'p': " in fails(tmp_path)


def test_a_mixture_of_chains_asks_for_a_choice(cohort, write_table):
    rows = [("CAWF", "T", 1, "TRAV1-1"), ("CASF", "T", 1, "TRBV2")]
    write_table(cohort / "files" / "c.tsv.gz", (*AIRR, "v_call"), rows)
    assert fails(cohort) == (
        "the files hold several chains, TRA (repertoire 'c') and TRB (repertoire 'c'); choose one with `locus`"
    )
    write_table(cohort / "files" / "c.tsv.gz", (*AIRR, "v_call"), rows[:1])
    message = "the files hold several chains, TRA (repertoire 'c') and TRB (repertoire 'a'); choose one with `locus`"
    assert fails(cohort) == message
    report = run(cohort, locus="TRB", allow_missing=True)
    assert report.dropped["other_locus"] == 1
    assert RepertoireDataset(cohort / "cohort.h5").repertoire_ids.tolist() == ["a", "b"]


def test_faults_before_a_mixture_of_chains_are_named_with_it(tmp_path, write_table):
    write_files(tmp_path, write_table, 6, bad=(0, 2, 5), bad_row=3)
    write_table(tmp_path / "files" / "r1.tsv", AIRR, [("C*F", "T", 1)])
    write_table(tmp_path / "files" / "r4.tsv", (*AIRR, "v_call"), [("CAWF", "T", 1, "TRAV1-1")])
    chains = "the files hold several chains, TRA (repertoire 'r4') and TRB (repertoire 'r3'); choose one with `locus`"
    empty = f"{tmp_path}/files/r1.tsv: none of the 1 rows of repertoire 'r1' is kept (stop_codon 1)"
    seen = []
    assert fails(tmp_path, progress=lambda done, total: seen.append(done)) == (
        f"{chains}. The other files were not read.\n3 of 6 files cannot be used:\n"
        f"(1) {tmp_path}/files/r0.tsv: row 3, {BAD_COUNT};\n(2) {tmp_path}/files/r2.tsv: row 3, {BAD_COUNT};\n"
        f"(3) {empty}.\n{SKIP}; {EMPTY}"
    )
    assert seen == [1, 2, 3, 4, 5]
    (tmp_path / "files" / "r5.tsv").unlink()
    write_table(tmp_path / "metadata.tsv", ("ID",), [(f"r{i}",) for i in range(5)])
    assert fails(tmp_path, skip_bad_files=True) == f"{chains}.\n{empty}. {EMPTY}"


def test_bad_files_can_be_skipped(cohort, write_table, caplog):
    write_table(cohort / "files" / "c.tsv.gz", ("x", "y"), [(1, 2)])
    write_table(cohort / "files" / "a.tsv.gz", AIRR, [("CAF", "T", "abc")])
    report = run(cohort, skip_bad_files=True)
    assert [each.repertoire_id for each in report.repertoires] == ["b"]
    reasons = list(report.skipped_files.values())
    assert reasons[0].startswith(f"{cohort}/files/c.tsv.gz: no reader knows this header")
    assert reasons[1].startswith(f"{cohort}/files/a.tsv.gz: row 2, column 'duplicate_count'")
    assert sum("skipped" in message for message in caplog.messages) == 2
    lines = report.to_text().splitlines()
    assert lines[-3] == "skipped 2 files that cannot be read:"
    assert Container(cohort / "cohort.h5").preprocessing["skipped_files"] == dict(report.skipped_files)


def test_counts_of_one_sequence_are_added(cohort, write_table):
    rows = [("CAF", "T", 1), ("CAF", "T", 4), ("CWF", "T", 2)]
    write_table(cohort / "files" / "c.tsv.gz", AIRR, rows)
    report = run(cohort)
    assert report.merged == 1
    assert RepertoireDataset(cohort / "cohort.h5")[0].counts.tolist() == [5, 2]
    assert report.to_text().splitlines()[0].endswith("rows read  kept  merged  stop_codon")
    run(cohort, merge="none")
    assert RepertoireDataset(cohort / "cohort.h5")[0].counts.tolist() == [1, 4, 2]


def test_a_full_disk_is_one_line_and_leaves_nothing(cohort, monkeypatch):
    def full(self, repertoire_id, table):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ContainerWriter, "append", full)
    assert fails(cohort) == f"{cohort}/cohort.h5: cannot be written: No space left on device"


def test_the_sheet_inside_the_source_folder_is_no_repertoire(cohort):
    (cohort / "metadata.tsv").rename(cohort / "files" / "metadata.tsv")
    report = preprocess([cohort / "files"], cohort / "files" / "metadata.tsv", cohort / "cohort.h5")
    assert len(report.repertoires) == 3
    assert report.files_without_row == ()


def test_single_files_as_sources(cohort):
    files = [cohort / "files" / f"{name}.tsv.gz" for name in "abc"]
    assert preprocess(files, cohort / "metadata.tsv", cohort / "cohort.h5").kept == 4


def test_a_table_of_any_kind(tmp_path, write_table):
    write_table(tmp_path / "files" / "r.csv", ("cdr3", "n"), [("CASSF", 2), ("CAF", "")], ",")
    write_table(tmp_path / "metadata.tsv", ("ID", "y"), [("r", 1)])
    report = run(tmp_path, sequence_column="cdr3", count_column="n")
    assert report.repertoires[0].format == "generic"
    assert report.counts_from == {"n": 1, "(one)": 1}


def test_length_limits(cohort):
    assert run(cohort, max_length=4, allow_missing=True).dropped["too_long"] == 3


def test_rows_without_a_file_and_files_without_a_row_are_listed(cohort, write_table, caplog):
    write_table(cohort / "files" / "SOURCE.txt", ("no", "table"), [])
    rows = [(name, "sick", 1) for name in ["x", "a", "y", "b", "c"]]
    write_table(cohort / "metadata.tsv", ("repertoire_id", "status", "age"), rows)
    no_file = f"{cohort}/metadata.tsv: no file for 2 rows: x, y (by column 'repertoire_id')"
    no_row = f"no row of {cohort}/metadata.tsv for 1 file: SOURCE.txt"
    message = fails(cohort)
    assert message == f"{no_file}; {no_row}. Give what is missing, or leave these out with `allow_missing`"
    with caplog.at_level(logging.WARNING):
        report = run(cohort, allow_missing=True)
    assert caplog.messages == [f"{no_file}: left out", f"{no_row}: left out"]
    assert report.rows_without_file == ("x", "y")
    assert report.files_without_row == ("SOURCE.txt",)
    assert RepertoireDataset(cohort / "cohort.h5").repertoire_ids.tolist() == ["a", "b", "c"]


def test_long_lists_are_cut(cohort, write_table):
    write_table(cohort / "metadata.tsv", ("ID",), [*((f"x{i}",) for i in range(12)), *"abc"])
    assert "no file for 12 rows: x0, x1, x2, x3, x4, x5, x6, x7, x8, x9 and 2 more" in fails(cohort)


@pytest.mark.parametrize("allow_missing", [True, False])
def test_when_nothing_matches(cohort, write_table, allow_missing):
    write_table(cohort / "metadata.tsv", ("ID",), [("x",)])
    message = fails(cohort, allow_missing=allow_missing)
    assert message.endswith(". Not one file matches: is `id_column` right?")
    assert "for 3 files: a.tsv.gz, b.tsv.gz, c.tsv.gz" in message


def test_a_repertoire_with_nothing_kept(cohort, write_table, caplog):
    write_table(cohort / "files" / "a.tsv.gz", AIRR, [("CAF", "F", 1), ("C*F", "T", 1), ("", "T", 1)])
    expected = (
        f"{cohort}/files/a.tsv.gz: none of the 3 rows of repertoire 'a' is kept (stop_codon 1, unproductive 1, empty 1)"
    )
    assert fails(cohort) == f"{expected}. `allow_missing` leaves such repertoires out"
    report = run(cohort, allow_missing=True)
    assert caplog.messages == [f"{expected}: left out"]
    assert [each.kept for each in report.repertoires] == [1, 0, 1]
    dataset = RepertoireDataset(cohort / "cohort.h5")
    assert dataset.repertoire_ids.tolist() == dataset.metadata["repertoire_id"].tolist() == ["c", "b"]


def test_an_empty_sequence_column_gives_a_hint(cohort, write_table):
    write_table(cohort / "files" / "a.tsv.gz", AIRR, [("", "T", 1)])
    assert "(empty 1); are the sequences in another column? Name it with `sequence_column`." in fails(cohort)


def test_a_header_and_no_rows(cohort, write_table):
    write_table(cohort / "files" / "a.tsv.gz", AIRR, [])
    assert "a.tsv.gz: has a header, but no rows (repertoire 'a')." in fails(cohort)


def test_a_cohort_without_any_kept_sequence_is_refused(cohort):
    assert "none of its repertoires has a sequence that is kept" in fails(cohort, max_length=1, allow_missing=True)


def test_all_headers_that_no_reader_knows_are_named_at_once(cohort, write_table):
    for name in "ac":
        write_table(cohort / "files" / f"{name}.tsv.gz", ("x", "y"), [(1, 2)])
    (cohort / "files" / "b.tsv.gz").write_bytes(b"")
    lines = fails(cohort).splitlines()
    assert len(lines) == 3
    assert lines[0] == "3 files cannot be read:"
    assert lines[1].startswith("(1) 2 files: no reader knows this header; its first columns are x, y. ")
    assert lines[1].endswith(f" (first: {cohort}/files/c.tsv.gz);")
    assert lines[2] == f"(2) {cohort}/files/b.tsv.gz: the file is empty"


def test_a_long_list_of_bad_files_is_cut(tmp_path, write_table):
    for i in range(13):
        write_table(tmp_path / "files" / f"{i}.tsv", ("x", f"y{i}"), [])
    write_table(tmp_path / "metadata.tsv", ("ID",), [(i,) for i in range(13)])
    lines = fails(tmp_path).splitlines()
    assert len(lines) == 12
    assert lines[0] == "13 files cannot be read:"
    assert lines[-1] == "and 3 more faults"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_gzip_cut_short(cohort, jobs):
    rows = "".join(f"CASSF\tT\t{i}\n" for i in range(1, 200_000))
    data = gzip.compress(("\t".join(AIRR) + "\n" + rows).encode())
    (cohort / "files" / "b.tsv.gz").write_bytes(data[:-1000])
    assert fails(cohort, jobs=jobs).startswith(f"{cohort}/files/b.tsv.gz: the gzip file is damaged or cut short")


def test_a_missing_source(cohort):
    with pytest.raises(InputError, match="gone: no such file or folder"):
        preprocess([cohort / "gone"], cohort / "metadata.tsv", cohort / "cohort.h5")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "`jobs`: expected at least 1, found 0"),
        ({"min_length": 0}, "expected 1 <= `min_length` <= `max_length` <= 255, found 0 and 50"),
        ({"max_length": 256}, "expected 1 <= `min_length` <= `max_length` <= 255, found 1 and 256"),
        ({"min_length": 9, "max_length": 8}, "found 9 and 8"),
        ({"locus": "TRX"}, "`locus`: expected one of TRA, TRB, TRG, TRD, IGH, IGK, IGL, found 'TRX'"),
        ({"merge": "clone"}, "`merge`: expected one of genes, junction, none, found 'clone'"),
        ({"v_column": "v"}, "`v_column` needs `sequence_column`"),
        ({"reader_format": "vdjtools"}, "no reader knows this header"),
        ({"id_column": "Status"}, "rows 2 and 4 have the same status 'sick'"),
    ],
)
def test_options_that_cannot_be_used(cohort, options, message):
    assert message in fails(cohort, **options)


def test_outputs_that_cannot_be_written(cohort):
    for output, message in (
        (cohort, "is a folder; expected the name of a file to write"),
        (cohort / "no" / "c.h5", "no does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            preprocess([cohort / "files"], cohort / "metadata.tsv", output)


def test_an_original_container_is_a_source(tmp_path, write_table):
    path = tmp_path / "files" / "published.h5"
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file["metadata/aas"] = b"ACDEFGHIKLMNPQRSTVWY"
        file["metadata/sample_keys"] = np.array([b"p.tsv", b"q.tsv"])
        file["sampledata/amino_acid_sequences"] = np.array([[1, 0, 4, -1], [1, 0, 0, 4], [1, 4, -1, -1]], np.int8)
        file["sampledata/counts_per_sequence"] = np.array([3, 1, 2])
        file["sampledata/sample_sequences_start_end"] = np.array([[0, 2], [2, 3]])
    write_table(tmp_path / "metadata.tsv", ("ID", "y"), [("q", 1), ("p", 2)])
    report = preprocess([path], tmp_path / "metadata.tsv", tmp_path / "cohort.h5")
    assert report.repertoires[0].format == "deeprc-hdf5"
    dataset = RepertoireDataset(tmp_path / "cohort.h5")
    assert dataset.repertoire_ids.tolist() == ["q", "p"]
    assert {each.repertoire_id: each.sequences.decode() for each in dataset} == {"p": ["CAF", "CAAF"], "q": ["CF"]}
    assert {each.repertoire_id: each.counts.tolist() for each in dataset} == {"p": [3, 1], "q": [2]}
    labels = dict(zip(dataset.metadata["ID"], dataset.metadata["y"], strict=True))
    assert [labels[name] for name in dataset.repertoire_ids] == dataset.metadata["y"].tolist()


def published(path, names):
    """Write an original container of repertoires of one sequence each."""
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file["metadata/aas"] = b"ACDEFGHIKLMNPQRSTVWY"
        file["metadata/sample_keys"] = np.array([f"{name}.tsv".encode() for name in names])
        file["sampledata/sequences"] = np.tile(np.array([[1, 0, 4, -1]], np.int8), (len(names), 1))
        file["sampledata/sample_sequences_start_end"] = np.stack(
            [np.arange(len(names)), np.arange(1, len(names) + 1)], 1
        )
    return path


EMPTY = "`allow_missing` leaves such repertoires out"


def test_skipped_files_are_not_counted_as_faults(tmp_path, write_table):
    write_files(tmp_path, write_table, 25, bad=(1, 3, 5), bad_row=3)
    write_table(tmp_path / "files" / "r7.tsv", AIRR, [("C*F", "T", 1)])
    empty = f"{tmp_path}/files/r7.tsv: none of the 1 rows of repertoire 'r7' is kept (stop_codon 1)"
    assert fails(tmp_path, skip_bad_files=True) == f"{empty}. {EMPTY}"
    write_table(tmp_path / "files" / "r9.tsv", AIRR, [])
    assert fails(tmp_path, skip_bad_files=True) == (
        f"2 of 25 files cannot be used:\n(1) {empty};\n"
        f"(2) {tmp_path}/files/r9.tsv: has a header, but no rows (repertoire 'r9').\n{EMPTY}"
    )


def test_a_fault_of_all_files_that_are_not_skipped(tmp_path, write_table):
    write_files(tmp_path, write_table, 25, bad=range(5), bad_row=3)
    first = f"{tmp_path}/files/r5.tsv: none of the 30 rows of repertoire 'r5' is kept (too_short 30)"
    assert fails(tmp_path, skip_bad_files=True, min_length=9) == (
        f"20 of 25 files: no row is kept, most for the reason 'too_short' (first: {first}; is `min_length` right?)"
    )


def write_one_file(folder, write_table, n, empty=(), bad=()):
    """Write n repertoires p0, p1, ... into one table, and a sheet; some have no row to keep, some no number."""
    rows = [(f"p{i}", "C*F" if i in empty else "CASF", "abc" if i in bad else 1, "") for i in range(n)]
    write_table(folder / "metadata.tsv", ("ID",), [(f"p{i}",) for i in range(n)])
    return write_table(folder / "files" / "all.tsv", COLUMNS, rows)


def test_empty_repertoires_of_one_file_are_named(tmp_path, write_table):
    path = write_one_file(tmp_path, write_table, 30, empty=(4,))
    fourth = f"{path}: none of the 1 rows of repertoire 'p4' is kept (stop_codon 1)"
    assert fails(tmp_path) == f"{fourth}. {EMPTY}"
    write_one_file(tmp_path, write_table, 30, empty=(4, 5))
    assert fails(tmp_path) == (
        f"2 of 30 repertoires cannot be used:\n(1) {fourth};\n(2) {fourth.replace('p4', 'p5')}.\n{EMPTY}"
    )
    write_one_file(tmp_path, write_table, 30, empty=range(4, 15))
    reason = "no row is kept, most for the reason 'stop_codon'"
    assert fails(tmp_path) == f"11 of 30 repertoires: {reason} (first: {fourth}). {EMPTY}"
    write_one_file(tmp_path, write_table, 30, empty=range(30))
    assert fails(tmp_path) == f"all 30 repertoires: {reason} (first: {fourth.replace('p4', 'p0')})"


def test_a_fault_of_one_file_of_many_repertoires_is_the_message(tmp_path, write_table):
    path = write_one_file(tmp_path, write_table, 30, bad=(1,))
    assert fails(tmp_path) == f"{path}: row 3, {BAD_COUNT}"
    write_table(tmp_path / "files" / "q.tsv", AIRR, [("CAF", "T", 1)])
    write_table(tmp_path / "metadata.tsv", ("ID",), [("q",), *((f"p{i}",) for i in range(30))])
    assert fails(tmp_path) == f"{path}: row 3, {BAD_COUNT}. {SKIP}"


def test_one_fault_of_several_files_of_many_repertoires_names_the_number_of_files(tmp_path, write_table):
    for name in "ab":
        rows = [(f"{name}1", "CAF", 1, ""), (f"{name}2", "CAF", "abc", "")]
        write_table(tmp_path / "files" / f"all_{name}.tsv", COLUMNS, rows)
    write_table(tmp_path / "metadata.tsv", ("ID",), [("a1",), ("a2",), ("b1",), ("b2",)])
    assert fails(tmp_path) == f"2 files: row 3, {BAD_COUNT} (first: {tmp_path}/files/all_a.tsv)"


def test_files_with_usable_repertoires_do_not_stop_the_reading_of_others(tmp_path, write_table):
    for i in range(23):
        rows = [(f"p{i}", "C*F", 1, ""), (f"q{i}", "CAF", 1, "")]
        write_table(tmp_path / "files" / f"all{i}.tsv", COLUMNS, rows)
    write_table(tmp_path / "metadata.tsv", ("ID",), [(f"{name}{i}",) for i in range(23) for name in "pq"])
    seen = []
    assert fails(tmp_path, progress=lambda done, total: seen.append(done)) == (
        "23 of 46 repertoires: no row is kept, most for the reason 'stop_codon' (first: "
        f"{tmp_path}/files/all0.tsv: none of the 1 rows of repertoire 'p0' is kept (stop_codon 1)). {EMPTY}"
    )
    assert seen == list(range(1, 24))


def test_an_original_container_is_compared_by_its_repertoires(tmp_path, write_table):
    names = [f"r{i}" for i in range(23)]
    path = published(tmp_path / "files" / "o.h5", names)
    write_table(tmp_path / "metadata.tsv", ("ID",), [(name,) for name in names])
    one = f"{path}: none of the 1 rows of repertoire 'r0' is kept (too_long 1); is `max_length` right?"
    place = [path], tmp_path / "metadata.tsv", tmp_path / "cohort.h5"
    with pytest.raises(SeveralErrors) as error:
        preprocess(*place, options=ReadingOptions(max_length=2))
    assert str(error.value) == (
        f"each of the first 20 of 23 repertoires: no row is kept, most for the reason 'too_long' (first: {one}). "
        "The other repertoires were not read; `deeprc check` reads all files, and lists their faults"
    )
    with h5py.File(path, "r+") as file:
        file["sampledata/sequences"][1:3, 0] = 77
    problem = f"{path}: dataset /sampledata/sequences: expected indices from 0 to 19, then -1 up to the end; repertoire"
    with pytest.raises(SeveralErrors) as error:
        preprocess(*place)
    assert str(error.value) == (
        f"2 of 23 repertoires cannot be used:\n(1) {problem} 'r1.tsv';\n(2) {problem} 'r2.tsv'.\n{SKIP}"
    )


def test_damaged_repertoires_of_an_original_container_are_skipped_one_by_one(tmp_path, write_table, caplog):
    path = published(tmp_path / "files" / "o.h5", "abcd")
    with h5py.File(path, "r+") as file:
        file["sampledata/sequences"][1:3, 0] = 77
    write_table(tmp_path / "metadata.tsv", ("ID",), [(name,) for name in "abcd"])
    report = preprocess([path], tmp_path / "metadata.tsv", tmp_path / "cohort.h5", skip_bad_files=True)
    assert [each.repertoire_id for each in report.repertoires] == ["a", "d"]
    problem = f"{path}: dataset /sampledata/sequences: expected indices from 0 to 19, then -1 up to the end; repertoire"
    assert report.skipped_files == {str(path): f"{problem} 'b.tsv'", f"{path}: c.tsv": f"{problem} 'c.tsv'"}
    assert sum("skipped" in message for message in caplog.messages) == 2


def test_an_original_container_cut_short_is_one_bad_file(tmp_path, write_table):
    path = published(tmp_path / "files" / "o.h5", "ab")
    path.write_bytes(path.read_bytes()[:1000])
    good = write_table(tmp_path / "files" / "c.tsv", AIRR, [("CAF", "T", 1)])
    write_table(tmp_path / "metadata.tsv", ("ID",), [(name,) for name in "abc"])
    options = ReadingOptions(allow_missing=True)
    place = [path, good], tmp_path / "metadata.tsv", tmp_path / "cohort.h5"
    report = preprocess(*place, options=options, skip_bad_files=True)
    assert [each.repertoire_id for each in report.repertoires] == ["c"]
    assert list(report.skipped_files) == [str(path)]


def test_an_error_of_the_disk_is_the_files(cohort, monkeypatch):
    def failing(self):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_reading.FileToRead, "compute_key", failing)
    assert fails(cohort) == f"all 3 files: cannot be read: Input/output error (first: {cohort}/files/c.tsv.gz)"


def test_small_files_are_read_for_one_message(tmp_path, monkeypatch):
    monkeypatch.setattr(file_reading, "_MAX_BATCH_FILES", 3)
    monkeypatch.setattr(file_reading, "_MAX_BATCH_BYTES", 100)
    branches = []
    for number, size in enumerate((10, 10, 10, 10, 95, 10, 300, 10)):
        path = tmp_path / f"{number}.tsv"
        path.write_bytes(b"x" * size)
        branches.append(file_reading.FileToRead(path, "airr", {"": str(number)}, Cleaning()))
    found = [[each.repertoires[""] for each in some] for some in file_reading._batch_files(branches)]
    assert found == [["0", "1", "2"], ["3"], ["4"], ["5"], ["6"], ["7"]]


def test_many_small_files_are_worth_a_worker(monkeypatch, tmp_path):
    monkeypatch.setattr(file_reading, "_FILES_WORTH_A_WORKER", 4)
    monkeypatch.setattr(file_reading, "count_cores", lambda: 8)
    paths = [tmp_path / f"{number}.tsv" for number in range(9)]
    for path in paths:
        path.touch()
    branches = [file_reading.FileToRead(path, "airr", {"": path.name}, Cleaning()) for path in paths]
    assert [file_reading._count_useful_workers(branches[:n]) for n in (3, 4, 9)] == [0, 1, 2]


def write_two_folders(folder, write_table):
    """Write files of the same names in two folders: one repertoire each, and one table of several each."""
    header = ("repertoire_id", "junction_aa", "duplicate_count")
    for name in "ab":
        write_table(folder / "files" / name / "x.tsv", header[1:], [("CASSF", 1)])
        write_table(folder / "files" / name / "all.tsv", header, [(f"{name}1", "CAF", 1), (f"{name}2", "CAF", 1)])
    rows = [("r1", "a/x.tsv"), ("r2", "b/x.tsv"), ("a1", ""), ("b1", "")]
    write_table(folder / "metadata.tsv", ("repertoire_id", "filename"), rows)


def test_files_of_one_name_in_several_folders_are_told_apart_in_the_report(tmp_path, write_table):
    write_two_folders(tmp_path, write_table)
    write_table(tmp_path / "files" / "a" / "left.tsv", COLUMNS[1:], [("CWWF", 4, "")])
    message = fails(tmp_path)
    assert "1 file: a/left.tsv; " in message
    assert "1 repertoire: b2 of b/all.tsv" in message
    report = run(tmp_path, allow_missing=True)
    assert {each.repertoire_id: each.file for each in report.repertoires} == {
        "r1": "a/x.tsv", "r2": "b/x.tsv", "a1": "a/all.tsv", "b1": "b/all.tsv",
    }  # fmt: skip
    assert report.repertoires_without_row == {"a/all.tsv": ("a2",), "b/all.tsv": ("b2",)}
    assert report.files_without_row == ("a/left.tsv",)
    assert Container(tmp_path / "cohort.h5").preprocessing == json.loads(json.dumps(report.to_dict()))


def test_a_call_that_goes_on_with_more_files_names_all_of_them_in_the_same_way(cohort, write_table):
    with pytest.raises(KeyboardInterrupt):
        run(cohort, progress=interrupt)
    write_table(cohort / "files" / "more" / "left.tsv", COLUMNS[1:], [("CWWF", 4, "")])
    seen = []
    report = preprocess(
        [cohort / "files"], cohort / "metadata.tsv", cohort / "cohort.h5",
        options=ReadingOptions(allow_missing=True), progress=lambda done, _: seen.append(done),
    )  # fmt: skip
    assert seen == [2, 3]
    assert [each.file for each in report.repertoires] == ["c.tsv.gz", "a.tsv.gz", "b.tsv.gz"]
    assert report.files_without_row == ("more/left.tsv",)
