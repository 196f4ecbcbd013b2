import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.dummy import DummyClassifier

from deeprc.benchmarking.jobs import Job
from deeprc.benchmarking.store import (
    BENCHMARK,
    FORMAT,
    POWER,
    VERSION,
    ResultStore,
    StoreKind,
    holds_benchmark,
    read_header,
)
from deeprc.errors import InputError
from deeprc.evaluation.splits import Split
from deeprc.tasks import Task

ROWS, LABELS = np.arange(3), np.array([0, 1, 1])
TASK = Task("t", "t", "binary", ("0", "1"))
JOB = Job("k1", "svm", 2, "search", "c.h5", DummyClassifier(), ({"C": 1},), Split(ROWS, ROWS, ROWS), LABELS, TASK)
FINAL = replace(JOB, key="k2", kind="final")
COSTS = {"seconds": 1.5, "cpu_seconds": 1.0, "peak_memory_mb": float("inf")}
SEARCHED: dict[str, Any] = {"validation": [{"setting": {"C": 1}, "auc": 0.123456789012345678}], **COSTS}
PREDICTED: dict[str, Any] = {
    "repertoire_id": ["ä", "b", "c"],
    "label": [0, 1, 1],
    "score": [float("inf"), 0.1, -3.0],
    "probability": [1.0, 0.5, 0.0],
    "cutoff": [0.4, 0.4, 0.4],
}
MEMBER: dict[str, Any] = {
    "member": "svm",
    "auc": 0.5,
    "weight": 2.0,
    "share": 1.0,
    "intercept": -0.5,
    "contributions": [0.1, 2.0, -1.0],
}
TESTED: dict[str, Any] = {
    "setting": {"C": 1},
    "validation_auc": 0.5,
    "refit_auc": 0.75,
    "test": PREDICTED,
    "members": [MEMBER],
    **COSTS,
}
HEADER: dict[str, Any] = {
    "target": "status",
    "group_by": None,
    "adjust_for": None,
    "asked": ["svm"],
    "content": "c0ffee",
    "n_folds": 5,
    "folds": "f01d5",
    "seed": 0,
    "preset": "quick",
    "methods": {"svm": {"label": "SVM", "kind": "method"}},
}


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_folder_that_was_deleted_meanwhile_is_not_made_again_without_its_settings(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results", HEADER)
    store.put(JOB, SEARCHED)
    shutil.rmtree(tmp_path / "results")
    with pytest.raises(InputError, match=r"results/benchmark\.yaml: was deleted while results were written beside it"):
        store.put(FINAL, TESTED)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["cohort", "preset"])
@pytest.mark.parametrize("path", ["a\udcff.h5", "a\x1b[0m.h5"])
def test_a_path_that_no_text_can_hold_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, path: str
) -> None:
    with pytest.raises(InputError, match=r"benchmark\.yaml holds this path; expected UTF-8 without control characters"):
        ResultStore(tmp_path / "a", {**HEADER, name: path})
    assert not (tmp_path / "a").exists()
    ResultStore(None, {**HEADER, name: path})


def test_outcomes_are_kept_exactly_in_one_file_each(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "a" / "b", HEADER)
    assert store.get(JOB) is None
    store.put(JOB, SEARCHED)
    store.put(FINAL, TESTED)
    assert (store.get(JOB), store.get(FINAL)) == (SEARCHED, TESTED)
    again = ResultStore(tmp_path / "a" / "b", HEADER, resume=True)
    assert (again.get(JOB), again.get(FINAL)) == (SEARCHED, TESTED)
    assert files(tmp_path / "a" / "b") == [
        "benchmark.yaml",
        "tasks/svm/fold-2/final-k2.json",
        "tasks/svm/fold-2/search-k1.json",
    ]
    assert again.get(replace(JOB, key="k3")) is None
    assert again.get(replace(JOB, fold=1)) is None
    assert again.get(replace(JOB, method="knn")) is None


def test_without_a_folder_outcomes_are_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = ResultStore(None, HEADER)
    store.put(JOB, SEARCHED)
    assert store.get(JOB) == SEARCHED
    assert store.get(FINAL) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", [True, False])
def test_failed_outcomes_are_not_stored(folder: bool, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "a" if folder else None, HEADER)
    store.put(JOB, {"error": "ValueError: no"})
    assert store.get(JOB) is None
    assert not (tmp_path / "a" / "tasks").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"key": "k1", "outcome": {"valid',
        "[]",
        "null",
        '"k1"',
        "\0\0\0",
        '{"key": "k1"}',
        '{"key": "k1", "outcome": null}',
        '{"key": "k1", "outcome": {}}',
        '{"key": "k1", "outcome": {"test": {}}}',
        '{"key": "other", "outcome": {"validation": []}}',
    ],
)
def test_a_damaged_file_is_no_outcome_and_is_replaced(text: str, tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "a", HEADER)
    store.put(JOB, SEARCHED)
    (path,) = (tmp_path / "a" / "tasks").rglob("*.json")
    path.write_text(text)
    assert store.get(JOB) is None
    path.write_bytes(b"\xff\xfe")
    assert store.get(JOB) is None
    store.put(JOB, SEARCHED)
    assert store.get(JOB) == SEARCHED


@pytest.mark.parametrize(
    ("changes", "predicted"),
    [
        ({"validation_auc": 1.5}, {}),
        ({"setting": {"C": 2}}, {}),
        ({"seconds": "1"}, {}),
        ({"more": 1}, {}),
        ({"members": None}, {}),
        ({"members": [{**MEMBER, "auc": float("nan")}]}, {}),
        ({"members": [{**MEMBER, "more": 1}]}, {}),
        ({"members": [{**MEMBER, "contributions": [0.1]}]}, {}),
        ({}, {"repertoire_id": ["a", "b"]}),
        ({}, {"repertoire_id": ["a", "b", "b"]}),
        ({}, {"label": [1, 1, 1]}),
        ({}, {"score": [0.1, 0.2, float("nan")]}),
        ({}, {"score": [0.1, 0.2]}),
        ({}, {"probability": [0.1, 0.2, 1.5]}),
        ({}, {"probability": [0.1, 0.2, None]}),
    ],
)
def test_predictions_that_do_not_fit_their_job_are_no_outcome(
    changes: dict[str, Any], predicted: dict[str, Any], tmp_path: Path
) -> None:
    store = ResultStore(tmp_path / "a", HEADER)
    store.put(FINAL, {**TESTED, **changes, "test": {**PREDICTED, **predicted}})
    assert store.get(FINAL) is None


def test_validation_aucs_of_other_settings_are_no_outcome(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "a", HEADER)
    for auc, value in ((0.5, 2), (2.0, 1)):
        store.put(JOB, {**SEARCHED, "validation": [{"setting": {"C": value}, "auc": auc}]})
        assert store.get(JOB) is None


def test_a_file_that_was_half_written_is_no_outcome(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "a", HEADER)
    store.put(JOB, SEARCHED)
    (path,) = (tmp_path / "a" / "tasks").rglob("*.json")
    left = path.with_name(f".{path.name}.abcdefgh.tmp")
    left.mkdir()
    (left / ".lock").touch()
    path.rename(left / path.name)
    assert store.get(JOB) is None
    store.put(JOB, SEARCHED)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_files_are_written_aside_and_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ResultStore(tmp_path / "a", HEADER)
    renamed = []
    replace_file = Path.replace

    def noted(self: Path, target: Path) -> Path:
        assert self.read_text().endswith("}\n")  # whole before it has its name
        renamed.append((self.parent.parent, self.name, Path(target)))
        return replace_file(self, target)

    monkeypatch.setattr(Path, "replace", noted)
    store.put(JOB, SEARCHED)
    (path,) = (tmp_path / "a" / "tasks").rglob("*.json")
    assert renamed == [(path.parent, "search-k1.json", path)]
    assert list(path.parent.iterdir()) == [path]


def test_methods_whose_names_are_no_file_names_are_stored(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "a", HEADER)
    for name in ("../../b", "a:B", "a b/c", "", ".."):
        store.put(replace(JOB, method=name), SEARCHED)
        assert store.get(replace(JOB, method=name)) == SEARCHED
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"benchmark.yaml", "tasks"}


@pytest.mark.parametrize("missing", ["asked", "methods", "preset", "content"])
def test_a_header_that_lacks_something_is_damaged(tmp_path: Path, missing: str) -> None:
    ResultStore(tmp_path / "a", {**HEADER, "asked": [], "methods": {}})
    file = tmp_path / "a" / "benchmark.yaml"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if not line.startswith(missing + ":")))
    with pytest.raises(InputError, match=rf"benchmark\.yaml: {missing}: is missing"):
        read_header(tmp_path / "a")


def test_the_header_of_a_folder_holds_the_options(tmp_path: Path) -> None:
    assert not holds_benchmark(tmp_path / "a")
    ResultStore(tmp_path / "a", HEADER)
    assert holds_benchmark(tmp_path / "a")
    assert read_header(tmp_path / "a") == {"format": FORMAT, "version": VERSION, **HEADER}


def test_resuming_adds_methods_and_keeps_the_others(tmp_path: Path) -> None:
    ResultStore(tmp_path / "a", HEADER)
    more = {**HEADER, "asked": ["knn"], "methods": {"knn": {"label": "KNN", "kind": "method"}}}
    ResultStore(tmp_path / "a", more, resume=True)
    header = read_header(tmp_path / "a")
    assert header["methods"] == {"svm": {"label": "SVM", "kind": "method"}, "knn": {"label": "KNN", "kind": "method"}}
    assert header["asked"] == ["knn"]
    changed = {**HEADER, "methods": {"svm": {"label": "other", "kind": "method"}}}
    ResultStore(tmp_path / "a", changed, resume=True)
    assert read_header(tmp_path / "a")["methods"]["svm"] == {"label": "other", "kind": "method"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "grade=low"}, "holds a benchmark in which target is 'status'; choose another `output`"),
        ({"group_by": "patient_id", "folds": "x"}, "holds a benchmark in which group_by is None; choose another"),
        ({"seed": 1, "folds": "x"}, "holds a benchmark in which seed is 0; choose another `output`"),
        ({"n_folds": 3, "folds": "x"}, "holds a benchmark in which the number of folds is 5; choose another `output`"),
        ({"folds": "x"}, "holds a benchmark in which the assignment to folds is another one; choose another"),
        ({"content": "x", "folds": "x"}, "holds a benchmark in which the cohort's content is another one; choose"),
    ],
)
def test_a_folder_of_another_benchmark_is_refused_and_stays(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    ResultStore(tmp_path / "a", HEADER).put(JOB, SEARCHED)
    before = {name: (tmp_path / "a" / name).read_text() for name in files(tmp_path / "a")}
    with pytest.raises(InputError, match=message) as error:
        ResultStore(tmp_path / "a", {**HEADER, **changes}, resume=True)
    assert str(error.value).startswith(f"{tmp_path / 'a'}: ")
    assert "\n" not in str(error.value)
    assert {name: (tmp_path / "a" / name).read_text() for name in files(tmp_path / "a")} == before


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    ResultStore(tmp_path / "a", HEADER)
    with pytest.raises(InputError, match=r"a: exists already; continue it with `resume`, or choose another `output`"):
        ResultStore(tmp_path / "a", HEADER)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("")
    for resume in (False, True):
        with pytest.raises(InputError, match=r"b: exists already; choose another `output`"):
            ResultStore(tmp_path / "b", HEADER, resume=resume)
    with pytest.raises(InputError, match=r"cannot be made, .*mine.txt is not a folder"):
        ResultStore(tmp_path / "b" / "mine.txt" / "c", HEADER)
    assert files(tmp_path / "b") == ["mine.txt"]


def test_resume_begins_in_an_empty_or_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in "ab":
        ResultStore(tmp_path / name, HEADER, resume=True)
        assert read_header(tmp_path / name)["target"] == "status"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "benchmark.yaml: is not YAML: "),
        ("", "benchmark.yaml: expected names and values, found None"),
        ("format: other\nversion: 1", f"benchmark.yaml: expected format '{FORMAT}' version 1, found 'other' version 1"),
        (yaml.safe_dump({"format": FORMAT, "version": 2}), f"benchmark.yaml: expected format '{FORMAT}' version 1"),
    ],
)
def test_an_invalid_header_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "benchmark.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        ResultStore(tmp_path, HEADER, resume=True)
    assert "\n" not in str(error.value)


def test_a_folder_without_a_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no benchmark \(no benchmark.yaml\); choose another `output`"):
        read_header(tmp_path)


@pytest.mark.parametrize("kind", [BENCHMARK, POWER])
def test_a_continuation_says_if_there_is_nothing_to_continue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: StoreKind
) -> None:
    with caplog.at_level("INFO"):
        ResultStore(tmp_path / "a", HEADER, kind=kind)
        ResultStore(tmp_path / "a", HEADER, resume=True, kind=kind)
        assert caplog.messages == []
        ResultStore(tmp_path / "b", HEADER, resume=True, kind=kind)
    assert caplog.messages == [f"{tmp_path / 'b'}: there is nothing to continue here, so all jobs are run"]
