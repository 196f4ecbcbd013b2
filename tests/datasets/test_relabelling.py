import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.relabelling import relabel
from deeprc.errors import InputError, WriteError
from tests.conftest import write_cohort
from tests.datasets.test_hostile_containers import as_version_1
from tests.test_files import full_disk


@pytest.fixture
def cohort(tmp_path: Path, cohort_factory: Callable[..., RepertoireDataset]) -> Path:
    """Return the path of a container with the repertoires rep.0 to rep.5 that may be changed."""
    path = tmp_path / "cohort.h5"
    path.write_bytes(cohort_factory(6, 20).container.path.read_bytes())
    return path


def sheet(path: Path, ids: list[str], **columns: list[object]) -> Path:
    pd.DataFrame({"repertoire_id": ids, **columns}).to_csv(path, sep="\t", index=False)
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_new_container_has_the_new_labels_and_the_old_sequences(cohort: Path, tmp_path: Path) -> None:
    ids = [f"rep.{i}" for i in (3, 1, 0, 5, 4, 2)]
    new = sheet(tmp_path / "new.tsv", ids, response=["yes", "no", "no", "yes", "no", "yes"], age=[3, 1, 0, 5, 4, 2])
    before = digest(cohort)
    done = relabel(cohort, new, tmp_path / "new.h5")
    assert digest(cohort) == before
    assert done.columns == ("repertoire_id", "response", "age")
    assert done.dropped_columns == ("status", "grade", "patient_id")
    old, relabelled = open_dataset(cohort), open_dataset(tmp_path / "new.h5")
    assert relabelled.repertoire_ids.tolist() == old.repertoire_ids.tolist()
    assert relabelled.metadata["repertoire_id"].tolist() == old.repertoire_ids.tolist()
    assert relabelled.metadata["age"].tolist() == [0, 1, 2, 3, 4, 5]
    assert relabelled.metadata["response"].tolist() == ["no", "no", "yes", "yes", "no", "yes"]
    assert [each.digest() for each in relabelled] == [each.digest() for each in old]
    np.testing.assert_array_equal(relabelled.container.sequences.v_call.codes, old.container.sequences.v_call.codes)
    assert relabelled.container.source == "a test; relabelled with the metadata sheet new.tsv"
    assert relabelled.container.preprocessing["relabelled"][0]["columns"] == list(done.columns)


def test_in_place_twice_keeps_the_history(cohort: Path, tmp_path: Path) -> None:
    ids = [f"rep.{i}" for i in range(6)]
    relabel(cohort, sheet(tmp_path / "a.tsv", ids, x=list("ababab")), drop_columns=True)
    relabel(cohort, sheet(tmp_path / "b.tsv", ids, y=list("cdcdcd")), keep_columns=True)
    container = open_dataset(cohort).container
    assert list(container.metadata) == ["repertoire_id", "y", "x"]
    assert container.metadata["x"].tolist() == list("ababab")
    assert container.source == "a test; relabelled with the metadata sheet b.tsv"
    assert [entry["metadata"] for entry in container.preprocessing["relabelled"]] == ["a.tsv", "b.tsv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv", "b.tsv", "cohort.h5"]


def test_rows_and_repertoires_without_a_match_are_an_error_or_missing(
    cohort: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = sheet(tmp_path / "new.tsv", ["rep.4", "rep.0", "who"], n=[4, 0, 9], label=["p", "q", "r"])
    before = digest(cohort)
    with pytest.raises(InputError) as caught:
        relabel(cohort, new)
    assert "no repertoire for 1 row: who (by column 'repertoire_id')" in str(caught.value)
    assert "no row for 4 repertoires: rep.1, rep.2, rep.3, rep.5" in str(caught.value)
    assert digest(cohort) == before
    with caplog.at_level(logging.WARNING):
        done = relabel(cohort, new, allow_missing=True, drop_columns=True)
    assert done.rows_without_repertoire == ("who",)
    assert "no row for 4 repertoires: rep.1, rep.2, rep.3, rep.5: labels are missing" in caplog.text
    metadata = open_dataset(cohort).metadata
    np.testing.assert_array_equal(metadata["n"], [0, np.nan, np.nan, np.nan, 4, np.nan])
    assert metadata["label"].tolist() == ["q", None, None, None, "p", None]
    assert metadata["repertoire_id"].tolist() == [f"rep.{i}" for i in range(6)]


def test_a_sheet_of_something_else(cohort: Path, tmp_path: Path) -> None:
    new = sheet(tmp_path / "new.tsv", ["x", "y"], label=["p", "q"])
    with pytest.raises(InputError, match=r"no row is of a repertoire of .* the sheet has 'x', the container 'rep\.0'"):
        relabel(cohort, new, allow_missing=True)
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="exists and is not a container"):
        relabel(cohort, new, tmp_path / "mine.txt")
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_of_several_id_columns_the_one_that_fits_is_taken(cohort: Path, tmp_path: Path) -> None:
    table = pd.DataFrame({"sample_id": [f"s{i}" for i in range(6)], "subject_id": [f"rep.{5 - i}" for i in range(6)]})
    table.assign(n=range(6)).to_csv(tmp_path / "new.csv", index=False)
    relabel(cohort, tmp_path / "new.csv", drop_columns=True)
    assert open_dataset(cohort).metadata["n"].tolist() == [5, 4, 3, 2, 1, 0]


def test_rows_find_their_repertoire_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name, sequence in (("one", "CASSLF"), ("two", "CASSQF")):
        (tmp_path / "files" / f"{name}.tsv").write_text(f"junction_aa\tduplicate_count\n{sequence}\t1\n")
    old = tmp_path / "old.tsv"
    old.write_text("sample_id\tfilename\tlabel\nA\tone.tsv\tx\nB\ttwo.tsv\ty\n")
    preprocess([tmp_path / "files"], old, tmp_path / "cohort.h5", jobs=1)
    new = tmp_path / "new.tsv"
    new.write_text("sample_id\tfilename\tlabel\nB2\ttwo.tsv.gz\tb\nA2\tone\ta\n")
    relabel(tmp_path / "cohort.h5", new)
    dataset = open_dataset(tmp_path / "cohort.h5")
    assert dataset.repertoire_ids.tolist() == ["A", "B"]
    assert dataset.metadata["label"].tolist() == ["a", "b"]


def test_a_failed_write_leaves_the_container_as_it_was(
    cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = sheet(tmp_path / "new.tsv", [f"rep.{i}" for i in range(6)], x=list("ababab"))
    before = digest(cohort)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deeprc.datasets.relabelling.rewrite_metadata", full)
    with pytest.raises(InputError, match=r"cohort\.h5: cannot be written: No space left on device"):
        relabel(cohort, new, drop_columns=True)
    assert digest(cohort) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cohort.h5", "new.tsv"]


def test_an_older_sheet_with_slashes_and_empty_text(cohort: Path, tmp_path: Path) -> None:
    new = sheet(tmp_path / "new.tsv", [f"rep.{i}" for i in range(6)], **{"a/b": list("uvuvuv"), "empty": [None] * 6})
    relabel(cohort, new, drop_columns=True)
    metadata = open_dataset(cohort).metadata
    assert metadata["a/b"].tolist() == list("uvuvuv")
    assert metadata["empty"].isna().all()
    with h5py.File(cohort) as file:
        assert json.loads(file.attrs["preprocessing"])["relabelled"][0]["metadata"] == "new.tsv"


def test_a_container_without_repertoires(tmp_path: Path) -> None:
    write_cohort(tmp_path / "c.h5", [], pd.DataFrame({"y": np.zeros(0)}))
    with pytest.raises(InputError, match=r"c\.h5: the container has no repertoires"):
        relabel(tmp_path / "c.h5", sheet(tmp_path / "new.tsv", ["a"], x=["b"]))


def test_relabel_leaves_out_unknown_content_of_a_container_of_version_1(cohort: Path, tmp_path: Path) -> None:
    old = as_version_1(cohort, tmp_path / "old.h5")
    with h5py.File(old, "r+") as file:
        file["further"] = np.arange(4).reshape(2, 2)
        file.create_group("group").create_group("inner")
        file.attrs["number"] = 2.5
        file["counts"].attrs["unit"] = 0.5
    relabel(old, sheet(tmp_path / "new.tsv", [f"rep.{i}" for i in range(6)], x=list("ababab")), tmp_path / "new.h5")
    relabelled, before = open_dataset(tmp_path / "new.h5"), open_dataset(cohort)
    assert relabelled.container.version == 2
    assert [each.digest() for each in relabelled] == [each.digest() for each in before]
    with h5py.File(tmp_path / "new.h5") as new, h5py.File(cohort) as whole:
        assert set(new) == set(whole)
        assert set(new.attrs) == set(whole.attrs)


def test_a_full_disk_names_the_output(cohort: Path, tmp_path: Path) -> None:
    new = sheet(tmp_path / "new.tsv", [f"rep.{i}" for i in range(6)], x=list("ababab"))
    with full_disk(), pytest.raises(WriteError, match=r"new\.h5: cannot be written: File too large"):
        relabel(cohort, new, tmp_path / "new.h5")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cohort.h5", "new.tsv"]


def test_a_container_that_changes_meanwhile(cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = sheet(tmp_path / "new.tsv", [f"rep.{i}" for i in range(6)], x=list("ababab"))
    copy = shutil.copyfile

    def copy_and_touch(source: Path, target: Path) -> None:
        copy(source, target)
        os.utime(source, (1, 1))

    monkeypatch.setattr(shutil, "copyfile", copy_and_touch)
    with pytest.raises(InputError, match=r"cohort\.h5: was changed while it was read"):
        relabel(cohort, new, tmp_path / "new.h5")
    monkeypatch.setattr(shutil, "copyfile", lambda source, _: Path(source, "no").read_bytes())
    with pytest.raises(InputError, match=r"cohort\.h5: cannot be read: Not a directory"):
        relabel(cohort, new, tmp_path / "new.h5")


def test_large_integers_stay_exact_if_a_repertoire_has_no_row(cohort: Path, tmp_path: Path) -> None:
    large = 2**60
    donors = [large, large + 1, -large - 1, 2**53 + 1, -(2**63)]
    new = sheet(tmp_path / "new.tsv", [f"rep.{i}" for i in range(5)], donor=donors, age=[1, 2, 3, 4, 2**53])
    relabel(cohort, new, tmp_path / "new.h5", allow_missing=True)
    metadata = open_dataset(tmp_path / "new.h5").metadata
    assert metadata["donor"].tolist() == [*map(str, donors), None]
    np.testing.assert_array_equal(metadata["age"], [1, 2, 3, 4, 2**53, np.nan])


def test_rows_find_repertoires_whose_files_have_one_name_in_several_folders(tmp_path: Path) -> None:
    for name, sequence in (("a", "CASSLF"), ("b", "CASSQF")):
        (tmp_path / "files" / name).mkdir(parents=True)
        (tmp_path / "files" / name / "x.tsv").write_text(f"junction_aa\tduplicate_count\n{sequence}\t1\n")
    old = tmp_path / "old.tsv"
    old.write_text("sample_id\tfilename\tlabel\nA\ta/x.tsv\tx\nB\tb/x.tsv\ty\n")
    preprocess([tmp_path / "files"], old, tmp_path / "cohort.h5", jobs=1)
    new = tmp_path / "new.tsv"
    new.write_text("sample_id\tfilename\tlabel\nB2\tfiles/b/x.tsv\tb\nA2\ta\\x.tsv\ta\n")
    relabel(tmp_path / "cohort.h5", new)
    assert open_dataset(tmp_path / "cohort.h5").metadata["label"].tolist() == ["a", "b"]
    new.write_text("sample_id\tfilename\tlabel\nB2\tx.tsv\tb\nA\t\ta\n")  # only b/x.tsv is left for the first row
    relabel(tmp_path / "cohort.h5", new)
    assert open_dataset(tmp_path / "cohort.h5").metadata["label"].tolist() == ["a", "b"]
    new.write_text("sample_id\tfilename\tlabel\nB2\tx.tsv\tb\nA2\tx.tsv\ta\n")
    with pytest.raises(InputError, match=r"two files match the repertoire 'B2': a/x\.tsv and b/x\.tsv"):
        relabel(tmp_path / "cohort.h5", new)


def test_no_column_is_lost_in_place_unless_it_is_asked_for(cohort: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.tsv"
    ids = [f"rep.{i}" for i in range(6)]
    pd.DataFrame({"sample": ids, "status": list("ababab"), "age": range(6)}).to_csv(new, sep="\t", index=False)
    before = digest(cohort)
    for output in (None, cohort, cohort.parent / "." / "cohort.h5"):
        with pytest.raises(InputError) as error:
            relabel(cohort, new, output)
        assert str(error.value) == (
            f"{cohort}: would lose the columns 'grade', 'patient_id', which {new} does not have; "
            "choose `keep_columns` or `drop_columns`, or another `output`"
        )
    with pytest.raises(InputError, match="`keep_columns` and `drop_columns` contradict each other; choose one"):
        relabel(cohort, new, keep_columns=True, drop_columns=True)
    assert digest(cohort) == before
    for drop in (False, True):
        done = relabel(cohort, new, tmp_path / "other.h5", drop_columns=drop)
        assert done.dropped_columns == ("grade", "patient_id")
    assert relabel(cohort, new, drop_columns=True).dropped_columns == ("grade", "patient_id")
    new.write_text(new.read_text().replace("sample", "ID"))  # the old column repeats the ids: nothing is lost
    assert relabel(cohort, new).dropped_columns == ("sample",)
    assert list(open_dataset(cohort).metadata) == ["ID", "status", "age"]


def test_an_id_column_of_any_name_is_found_by_its_values(
    cohort: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = pd.DataFrame({"Probe": [f"rep.{5 - i}" for i in range(6)], "Donor ID": list("aabbcc"), "n": range(6)})
    table.to_csv(tmp_path / "new.csv", index=False)
    with caplog.at_level(logging.INFO):
        done = relabel(cohort, tmp_path / "new.csv", tmp_path / "new.h5")
    assert open_dataset(tmp_path / "new.h5").metadata["n"].tolist() == [5, 4, 3, 2, 1, 0]
    assert done.matching == ""
    assert "new.csv: the ids are those of column 'Probe', because most of its values match" in caplog.text
    table.assign(filename=[f"{i}.tsv" for i in range(6)]).to_csv(tmp_path / "new.csv", index=False)
    assert relabel(cohort, tmp_path / "new.csv", tmp_path / "new.h5").columns[0] == "Probe"
    assert open_dataset(tmp_path / "new.h5").metadata["n"].tolist() == [5, 4, 3, 2, 1, 0]


def test_the_column_by_which_rows_matched_is_named(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name, sequence in (("one", "CASSLF"), ("two", "CASSQF")):
        (tmp_path / "files" / f"{name}.tsv").write_text(f"junction_aa\tduplicate_count\n{sequence}\t1\n")
    sheet = tmp_path / "sheet.tsv"
    sheet.write_text("sample_id\tfilename\nA\tone.tsv\nB\ttwo.tsv\n")
    container = tmp_path / "cohort.h5"
    preprocess([tmp_path / "files"], sheet, container, jobs=1)

    def match(*rows: str) -> str:
        sheet.write_text("Sample ID\tfilename\n" + "".join(f"{row}\n" for row in rows))
        done = relabel(container, sheet, tmp_path / "new.h5")
        assert done.matching in done.to_text()
        return done.matching

    assert match("A\tx.tsv", "B\t") == ""
    assert match("C\tone.tsv", "D\ttwo.tsv") == (
        "no value of 'Sample ID' is a repertoire of the container; "
        "2 rows were matched by the file names in column 'filename'"
    )
    assert match("A\t", "D\ttwo.tsv") == (
        "1 row was matched by column 'Sample ID'; 1 row was matched by the file names in column 'filename'"
    )
    assert match("one\t", "D\ttwo.tsv") == (
        "no value of 'Sample ID' is a repertoire of the container; "
        "2 rows were matched by the file names in columns 'filename' and 'Sample ID'"
    )


def test_ids_that_a_spreadsheet_program_changed(cohort: Path, tmp_path: Path) -> None:
    new = sheet(tmp_path / "new.tsv", [f"REP_{i}" for i in range(6)], x=list("ababab"))
    with pytest.raises(InputError, match=r"the container 'rep\.0' \(they would match if case, .*\)\. Is `id_column`"):
        relabel(cohort, new)
