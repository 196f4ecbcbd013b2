"""From files and a sheet to a container, and every way in which that can fail."""

import gzip
import json
import logging

import h5py
import numpy as np
import pytest

from deeprc.datasets.container import Container, ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.preprocessing import preprocess
from deeprc.errors import InputError

AIRR = ("junction_aa", "productive", "duplicate_count")


def run(cohort, **options):
    return preprocess([cohort / "files"], cohort / "metadata.tsv", cohort / "cohort.h5", **options)


def fails(cohort, **options):
    """Return the message of the error, after checking that nothing was left behind."""
    before = sorted(cohort.rglob("*"))
    with pytest.raises(InputError) as error:
        run(cohort, **options)
    assert sorted(cohort.rglob("*")) == before
    return str(error.value)


def test_the_container_follows_the_sheet(cohort):
    run(cohort)
    dataset = RepertoireDataset(cohort / "cohort.h5")
    assert dataset.repertoire_ids.tolist() == ["c", "a", "b"]
    assert [repertoire.sequences() for repertoire in dataset] == [["CASK"], ["CAWWF", "CASSF"], ["CASSF"]]
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
    }
    assert report.rows_read == 7
    assert report.kept == 4
    assert {reason: n for reason, n in report.dropped.items() if n} == {**dropped, "stop_codon": 1}
    stored = Container(cohort / "cohort.h5").preprocessing
    assert stored == json.loads(json.dumps(report.to_dict()))
    assert stored["rows_read"] == stored["kept"] + sum(stored["dropped"].values())
    assert report.to_text().splitlines() == [
        "repertoire  format  rows read  kept  stop_codon  empty  ambiguous_residue",
        "c           airr            3     1           0      1                  1",
        "a           airr            2     2           0      0                  0",
        "b           airr            2     1           1      0                  0",
        "total                       7     4           1      1                  1",
        "counts from: duplicate_count (4)",
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
        "or nothing; found 'abc'"
    )
    assert fails(cohort) == fails(cohort, jobs=2) == expected


def test_progress(cohort):
    seen = []
    run(cohort, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_an_interrupt_leaves_the_old_container(cohort):
    run(cohort)
    old = (cohort / "cohort.h5").read_bytes()
    before = sorted(cohort.iterdir())

    def interrupt(done, total):
        raise KeyboardInterrupt

    for jobs in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            run(cohort, progress=interrupt, jobs=jobs)
        assert (cohort / "cohort.h5").read_bytes() == old
        assert sorted(cohort.iterdir()) == before


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
    assert report.counts_from == {"n": 1, "one": 1}


def test_length_limits(cohort):
    assert run(cohort, max_length=4, allow_missing=True).dropped["too_long"] == 3


def test_what_does_not_match_is_listed(cohort, write_table, caplog):
    write_table(cohort / "files" / "SOURCE.txt", ("no", "table"), [])
    rows = [(name, "sick", 1) for name in ["x", "a", "y", "b", "c"]]
    write_table(cohort / "metadata.tsv", ("repertoire_id", "status", "age"), rows)
    no_file = f"{cohort}/metadata.tsv: no file for 2 rows: x, y (by column 'repertoire_id')"
    no_row = f"no row of {cohort}/metadata.tsv for 1 file: SOURCE.txt"
    message = fails(cohort)
    assert message == f"{no_file}; {no_row}. Give what is missing, or leave these out with --allow-missing"
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
    assert message.endswith(". Not one file matches: is --id-column right?")
    assert "for 3 files: a.tsv.gz, b.tsv.gz, c.tsv.gz" in message


def test_a_repertoire_with_nothing_kept(cohort, write_table, caplog):
    write_table(cohort / "files" / "a.tsv.gz", AIRR, [("CAF", "F", 1), ("C*F", "T", 1), ("", "T", 1)])
    expected = (
        f"{cohort}/files/a.tsv.gz: none of the 3 rows of repertoire 'a' is kept (stop_codon 1, unproductive 1, empty 1)"
    )
    assert fails(cohort) == f"{expected}. --allow-missing leaves such repertoires out"
    report = run(cohort, allow_missing=True)
    assert caplog.messages == [f"{expected}: left out"]
    assert [each.kept for each in report.repertoires] == [1, 0, 1]
    dataset = RepertoireDataset(cohort / "cohort.h5")
    assert dataset.repertoire_ids.tolist() == dataset.metadata["repertoire_id"].tolist() == ["c", "b"]


def test_an_empty_sequence_column_gives_a_hint(cohort, write_table):
    write_table(cohort / "files" / "a.tsv.gz", AIRR, [("", "T", 1)])
    assert "(empty 1); are the sequences in another column? Name it with --sequence-column." in fails(cohort)


def test_a_header_and_no_rows(cohort, write_table):
    write_table(cohort / "files" / "a.tsv.gz", AIRR, [])
    assert "a.tsv.gz: none of the 0 rows of repertoire 'a' is kept." in fails(cohort)


def test_nothing_kept_anywhere(cohort):
    assert "none of its repertoires has a sequence that is kept" in fails(cohort, max_length=1, allow_missing=True)


def test_all_headers_that_no_reader_knows_are_named_at_once(cohort, write_table):
    for name in "ac":
        write_table(cohort / "files" / f"{name}.tsv.gz", ("x", "y"), [(1, 2)])
    (cohort / "files" / "b.tsv.gz").write_bytes(b"")
    lines = fails(cohort).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"{cohort}/files/c.tsv.gz: no reader knows this header; its first columns are x, y. ")
    assert lines[1].startswith(f"{cohort}/files/a.tsv.gz: no reader knows this header")
    assert lines[2] == f"{cohort}/files/b.tsv.gz: the file is empty"


def test_a_long_list_of_bad_files_is_cut(tmp_path, write_table):
    for i in range(13):
        write_table(tmp_path / "files" / f"{i}.tsv", ("x", "y"), [])
    write_table(tmp_path / "metadata.tsv", ("ID",), [(i,) for i in range(13)])
    lines = fails(tmp_path).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "and 3 more files with errors"


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
        ({"jobs": 0}, "--jobs: expected at least 1, found 0"),
        ({"min_length": 0}, "expected 1 <= --min-length <= --max-length <= 255, found 0 and 50"),
        ({"max_length": 256}, "expected 1 <= --min-length <= --max-length <= 255, found 1 and 256"),
        ({"min_length": 9, "max_length": 8}, "found 9 and 8"),
        ({"reader_format": "vdjtools"}, "no reader knows this header"),
        ({"id_column": "Status"}, "rows 2 and 4 have the same status 'sick'"),
    ],
)
def test_options_that_cannot_be_used(cohort, options, message):
    assert message in fails(cohort, **options)


def test_outputs_that_cannot_be_written(cohort):
    for output, message in (
        (cohort, "the output is a folder"),
        (cohort / "no" / "c.h5", "no does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            preprocess([cohort / "files"], cohort / "metadata.tsv", output)
