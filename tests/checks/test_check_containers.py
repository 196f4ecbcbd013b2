"""A check of a container says what a check of its files says, is kept, and survives what a container may hold."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest

from deeprc.checks import CohortCheck, Finding, check_dataset
from deeprc.checks import container as checks_container
from deeprc.checks.container import hash_repertoire, profile_container
from deeprc.checks.folder import check_folder, write_check
from deeprc.checks.overlaps import find_overlaps
from deeprc.checks.profile import SKETCH_SIZE, TOP_SIZE, Fingerprints, hash_with_gene_names
from deeprc.checks.run_checks import check_for_training, read_checks
from deeprc.config import load_config
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_file import update_checksum
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.parts import RepertoireInMemory
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.splits import SplitOptions
from deeprc.groups import find_donor_columns
from deeprc.runs import run_text
from deeprc.runs.experiment import train_run
from deeprc.tasks import parse_tasks
from tests.checks.test_checks import Cohort, big, codes, only
from tests.conftest import random_sequences, write_cohort

FILE_CODES = {"row-without-file", "file-without-row", "unreadable-file"}


def suspicious() -> Cohort:
    """A cohort with a copy, contamination, a size that tells the label, and a tiny repertoire."""
    cohort = big()
    for name in cohort.cases():
        cohort.tables[name] = cohort.tables[name].iloc[:30]
    cohort.tables["hd3"] = cohort.tables["hd2"]
    cohort.tables["hd7"] = pd.concat([cohort.tables["hd7"], cohort.tables["hd6"].iloc[:30]])
    return cohort


def container_of(cohort: Cohort, folder: Path) -> RepertoireDataset:
    cohort.write(folder)
    preprocess([folder / "files"], folder / "sheet.tsv", folder / "cohort.h5")
    return open_dataset(folder / "cohort.h5")


@pytest.mark.slow
@pytest.mark.parametrize("with_subjects", [True, False])
def test_a_container_gives_what_its_files_give(tmp_path: Path, with_subjects: bool) -> None:
    cohort = suspicious() if with_subjects else suspicious().without_subjects()
    dataset = container_of(cohort, tmp_path)
    expected, found = cohort.check(), check_dataset(dataset, targets=["status"])
    assert {"same-content", "similar-content", "label-from-size"} <= set(codes(found))

    def without_files(check: object) -> list[object]:
        return [{**each.to_dict(), "files": None} for each in check.findings if each.code not in FILE_CODES]

    assert without_files(found) == without_files(expected)
    assert found.shortcuts == expected.shortcuts
    assert found.similar == expected.similar
    assert only(found, "same-content").files == ("hd2.tsv", "hd3.tsv")
    assert found.report is None


def test_the_compiled_hash_is_the_readable_one() -> None:
    rng = np.random.default_rng(1)
    letters = random_sequences(rng, 50)
    v = Categorical(rng.integers(0, 3, 50).astype(np.uint16), ("", "TRBV2", "TRBV9"))
    for genes in (v, None):
        sequences = Sequences.encode(letters).with_genes({} if genes is None else {"v_call": genes})
        repertoire = checks_container.Repertoire("r", 0, 50, RepertoireInMemory(Path("r"), sequences, {}), {})
        assert hash_repertoire(repertoire).tolist() == hash_with_gene_names(sequences).tolist()


def test_fingerprints_sample_the_smallest_hashes_and_the_largest_counts() -> None:
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, 20_000, np.uint64)
    counts = rng.geometric(0.01, 20_000).astype(np.uint32)
    fingerprints = Fingerprints.of(hashes, counts)
    assert fingerprints.is_sampled
    assert fingerprints.sketch.tolist() == np.unique(hashes)[:SKETCH_SIZE].tolist()
    largest = hashes[np.lexsort((hashes, -counts.astype(np.int64)))[:TOP_SIZE]]
    assert fingerprints.top.tolist() == np.unique(largest).tolist()
    order = rng.permutation(20_000)
    assert Fingerprints.of(hashes[order], counts[order]).digest == fingerprints.digest
    changed = counts.copy()
    changed[7] += 1
    assert Fingerprints.of(hashes, changed).digest != fingerprints.digest
    doubled = Fingerprints.of(np.repeat(hashes[:3000], 5), np.ones(15_000, np.uint32))
    assert (len(doubled.sketch), doubled.is_sampled) == (3000, False)
    assert Fingerprints.of(hashes[:0], counts[:0]).digest == ""


def test_every_pair_is_compared_where_it_is_asked_for() -> None:
    sketches = [np.array(values, np.uint64) for values in ([1, 2, 3], [2, 3, 9], [7, 8])]
    pairs = {
        (pair.first, pair.second): (pair.shared, pair.sizes)
        for pair in find_overlaps(sketches, [True] * 3, with_disjoint=True)
    }
    assert pairs == {(0, 1): (2, (3, 2)), (0, 2): (0, (3, 0)), (1, 2): (0, (2, 2))}


def test_profiles_are_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = profile_container(container_of(Cohort(n=4), tmp_path))
    monkeypatch.setattr(checks_container, "_make_profile_arrays", lambda whole: pytest.fail("computed again"))
    dataset = open_dataset(tmp_path / "cohort.h5")
    again = profile_container(dataset[[2, 0]])
    assert [each.repertoire_id for each in again] == ["hd2", "hd0"]
    assert [each.fingerprints.digest for each in again] == [first[2].fingerprints.digest, first[0].fingerprints.digest]
    assert again[0].usage == first[2].usage
    assert again[0].report.rows_read == first[2].report.rows_read > again[0].kept


@pytest.mark.parametrize(
    "preprocessing",
    ['{"repertoires": [{"repertoire_id": "hd0", "file": "hd0.tsv", "kept": "many"}]}', "{}"],
)
def test_a_report_that_makes_no_sense_is_left_out(tmp_path: Path, preprocessing: str) -> None:
    container_of(Cohort(n=12), tmp_path)
    with h5py.File(tmp_path / "cohort.h5", "r+") as file:
        file.attrs["preprocessing"] = np.bytes_(preprocessing.encode())
    update_checksum(tmp_path / "cohort.h5")
    found = check_dataset(open_dataset(tmp_path / "cohort.h5"), targets=["status"])
    assert set(codes(found)) <= {"small-class"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows_read": 0},
        {"merged": -1},
        {"dropped": {"stop_codon": 10**6}},
        {"loci": {"TRB": -1}},
        {"loci": {"TRX": 1}},
        {"locus": "TRX"},
        {"locus": ["TRB"]},
    ],
)
def test_a_report_whose_values_make_no_sense_is_left_out(tmp_path: Path, wrong: dict[str, object]) -> None:
    container_of(Cohort(n=12), tmp_path)
    with h5py.File(tmp_path / "cohort.h5", "r+") as file:
        preprocessing = json.loads(file.attrs["preprocessing"])
        preprocessing["repertoires"][0] |= wrong
        file.attrs["preprocessing"] = np.bytes_(json.dumps(preprocessing).encode())
    update_checksum(tmp_path / "cohort.h5")
    dataset = open_dataset(tmp_path / "cohort.h5")
    profiles = profile_container(dataset)
    assert [profile.report.format == "" for profile in profiles] == [True] + [False] * 11
    assert profiles[0].report.rows_read == profiles[0].kept > 0
    check_dataset(dataset, targets=["status"])


def test_a_cohort_without_reports_and_ids_is_checked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    metadata = pd.DataFrame({"status": ["a", "b"] * 15})
    dataset = write_cohort(tmp_path / "c.h5", [random_sequences(rng, 30 + i) for i in range(30)], metadata)
    found = check_dataset(dataset, targets=["status"])
    assert codes(found) == []
    assert {each.property for each in found.shortcuts} >= {"number of sequences", "V gene usage"}


def test_repertoires_without_a_file_are_of_no_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    repertoires = [random_sequences(rng, 1000 if i else 40) for i in range(10)]
    repertoires[2] = repertoires[1]
    dataset = write_cohort(tmp_path / "c.h5", repertoires, pd.DataFrame({"status": ["a", "b"] * 5}))
    found = check_dataset(dataset, targets=["status"])
    assert only(found, "small-repertoire").repertoires == ("rep.0",)
    assert only(found, "similar-content").repertoires == ("rep.1", "rep.2")
    assert [each.files for each in found.findings] == [()] * len(found.findings)


# -- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_training_logs_and_keeps_what_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = container_of(suspicious(), tmp_path)
    with caplog.at_level(logging.WARNING):
        run = train_run(
            dataset.container.path,
            tmp_path / "run",
            targets=["status"],
            config=load_config("deeprc", ["n_updates=2", "n_sequences=20", "evaluate_every=2", "seeded_start=0"]),
            split=SplitOptions(group_by="subject_id"),
            device="cpu",
        )
    lines = [record.getMessage() for record in caplog.records]
    assert all("\n" not in line for line in lines)
    assert any(line.startswith("similar-content: 2 repertoires of different donors share") for line in lines)
    assert any(line.startswith("label-from-size: target 'status': the number of sequences predicts") for line in lines)
    content = json.loads((run.path / "checks.json").read_text())
    assert content["subject_column"] == "subject_id"
    similar = next(each for each in content["findings"] if each["code"] == "similar-content")
    assert similar["groups"] == [["hd6", "hd7"]]
    assert similar["figures"]["pairs"] == 1
    kept = read_checks(run.path)
    assert kept is not None
    assert kept == check_for_training(dataset, run.tasks, "subject_id")


def test_only_findings_about_the_target_are_reported(tmp_path: Path) -> None:
    """The copies have no label, and the size tells another target."""
    cohort = suspicious()
    cohort.sheet["other"] = ["x", "y"] * 20
    cohort.sheet.loc[[2, 3], "other"] = None
    dataset = container_of(cohort, tmp_path)
    told = check_for_training(dataset, parse_tasks(["other"], dataset.metadata), None)
    assert "same-content" not in [each.code for each in told.findings]
    assert "label-from-size" not in [each.code for each in told.findings]
    assert {each.target for each in told.findings} <= {"other", None}
    assert "similar-content" in [each.code for each in told.warnings]


def test_repeated_subjects_are_told_by_the_split(cohort: RepertoireDataset) -> None:
    told = check_for_training(cohort, parse_tasks(["status"], cohort.metadata), None)
    assert "repeated-subject" in [each.code for each in told.findings]
    assert "repeated-subject" not in [each.code for each in told.warnings]


FINDING = {"severity": "note", "code": "no-counts", "message": "m", "advice": "a", "figures": {"pairs": 3}}
SHORTCUT = {
    "target": "t", "label": "'a' against 'b'", "property": "depth", "column": None, "code": "label-from-size",
    "measure": "auc", "value": 0.7, "interval": [0.6, 0.8], "verdict": "note", "detail": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"findings": None}, "findings: expected a list, found None"),
        ({"version": 9}, "expected format 'deeprc-checks' version 1, found 'deeprc-checks' version 9"),
        (
            {"findings": [FINDING, {"code": "nonsense"}]},
            "findings[1]: code: expected a code of a finding, found 'nonsense'",
        ),
        ({"findings": [{**FINDING, "code": {}}]}, "findings[0]: code: expected a code of a finding, found {}"),
        ({"findings": [{**FINDING, "files": "abc"}]}, "findings[0]: files: expected a list, found 'abc'"),
        ({"findings": [{**FINDING, "groups": [[7]]}]}, "findings[0]: groups[0][0]: expected text, found 7"),
        ({"shortcuts": [7]}, "shortcuts[0]: expected names and values, found 7"),
        ({"shortcuts": [{**SHORTCUT, "interval": [0.6]}]}, "shortcuts[0]: interval: expected 2 values, found [0.6]"),
        ({"shortcuts": [{**SHORTCUT, "value": "x"}]}, "shortcuts[0]: value: expected a finite number, found 'x'"),
        ({"subject_column": [1]}, "subject_column: expected text, found [1]"),
        ({"metadata": 7}, "metadata: expected text, found 7"),
    ],
)
def test_damaged_checks_of_a_run_are_one_line(tmp_path: Path, damage: dict[str, object], message: str) -> None:
    assert read_checks(tmp_path) is None
    content = {
        "format": "deeprc-checks", "version": 1, "subject_column": None, "findings": [FINDING], "shortcuts": [SHORTCUT],
    }  # fmt: skip
    path = tmp_path / "checks.json"
    path.write_text(json.dumps(content))
    kept = read_checks(tmp_path)
    assert kept is not None
    assert (kept.findings[0].numbers, kept.shortcuts[0].interval) == ({"pairs": 3}, (0.6, 0.8))
    path.write_text(json.dumps({**content, **damage}))
    with pytest.raises(InputError) as raised:
        read_checks(tmp_path)
    assert str(raised.value) == f"{path}: {message}"


def test_pipes_in_a_run_directory_are_not_read(tmp_path: Path) -> None:
    for name in ("checks.json", "metrics.json", "written.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=r"checks\.json: is a pipe"):
        read_checks(tmp_path)
    with pytest.raises(InputError, match=r"exists, and checks\.json was not written by `deeprc check`"):
        check_folder(tmp_path)
    assert run_text._list_test_metrics(tmp_path, []) == []
    (tmp_path / "metrics.json").unlink()
    (tmp_path / "metrics.json").write_text('{"test": ' + "[" * 100_000)
    assert run_text._list_test_metrics(tmp_path, []) == []


def test_the_folder_of_a_check_may_be_a_link_or_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = CohortCheck((Finding("note", "no-counts", "no file has counts", "Nothing."),))
    for name in ("target", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    monkeypatch.chdir(tmp_path / "here")
    for folder in (tmp_path / "link", tmp_path / "link", Path("."), Path(".")):
        write_check(check, folder)
    assert "findings.tsv" in os.listdir()  # of the working folder itself, not of another one in its place
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target" / "findings.tsv").read_bytes() == (tmp_path / "here" / "findings.tsv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "link", "target"]


def test_an_earlier_check_stays_if_a_file_of_the_new_one_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (CohortCheck((Finding("note", "no-counts", text, "Nothing."),)) for text in ("first", "second"))
    write_check(first, tmp_path / "check")
    before = {path.name: path.read_bytes() for path in (tmp_path / "check").iterdir()}
    rename = Path.rename

    def refuse_check_json(source: Path, target: Path) -> None:
        if source.name == "check.json" and source.parent.name == "new":
            raise OSError("no space")
        rename(source, target)

    monkeypatch.setattr(Path, "rename", refuse_check_json)
    with pytest.raises(InputError, match="cannot be written: no space"):
        write_check(second, tmp_path / "check")
    assert {path.name: path.read_bytes() for path in (tmp_path / "check").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["check"]


def test_the_donor_column_gives_the_donor_of_each_repertoire(cohort: RepertoireDataset) -> None:
    assert DonorColumn.choose(cohort.metadata, None).name == "patient_id"
    assert DonorColumn.choose(cohort.metadata, "grade").name == "grade"
    assert DonorColumn.choose(cohort.metadata, "gone").name == "patient_id"
    table = pd.DataFrame({"who": ["a", None, "b", "a", None]})
    assert DonorColumn(table, "who").index().tolist() == [0, 6, 1, 0, 9]
    assert DonorColumn(table, None).index().tolist() == [0, 1, 2, 3, 4]


def test_columns_of_donors_are_known_by_their_names() -> None:
    sure = ["subject_id", "study_patient_id", "DONOR", "Participant ID"]
    likely = [
        "Patient Nr.",
        "patient name",
        "Subject No",
        "Mouse ID",
        "pat-ID",
        "animal identifier",
        "individual number",
    ]
    others = ["animal", "patient age", "donor_type", "donor_code", "individual", "number", "id", "name", "sample no"]
    more = ["subject_group", "n donors", "patients"]
    empty = pd.DataFrame(columns=[*likely, *sure, *others, *more])
    assert find_donor_columns(empty) == [*sure, *likely]
    for known in (sure, likely):
        table = pd.DataFrame({name: ["a", "b"] for name in [*others, *more, *known]})
        assert find_donor_columns(table) == known


def test_a_sure_name_comes_before_a_likely_one() -> None:
    table = pd.DataFrame({"donor number": [1, 1, 1, 2], "subject_id": ["a", "b", "c", "c"]})
    assert DonorColumn.choose(table, None).name == "subject_id"
    assert DonorColumn.choose(table.assign(subject_id=None), None).name == "donor number"
