import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.benchmarking.labelled_folds import read_folds
from deeprc.errors import InputError
from deeprc.evaluation.cohort_cautions import index_split_parts
from deeprc.evaluation.donors import count_divided_donors
from deeprc.evaluation.splits import SplitOptions, assign_folds, make_split
from deeprc.tasks import parse_tasks


def cohort(n: int = 60) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "status": ["pos" if i % 3 == 0 else "neg" for i in range(n)],
            "Patient ID": [f"p{i // 2}" for i in range(n)],
            "age": np.linspace(20, 80, n),
        }
    )


def test_folds_partition_the_cohort_and_are_stratified() -> None:
    metadata = cohort()
    tasks = parse_tasks(["status=pos"], metadata)
    tested = []
    for fold in range(5):
        split = make_split(metadata, tasks, SplitOptions(fold=fold))
        sides = np.concatenate([split.train, split.validation, split.test])
        assert sorted(sides) == list(range(60))
        assert (metadata["status"].iloc[split.test] == "pos").sum() == 4
        assert (metadata["status"].iloc[split.validation] == "pos").sum() == 4
        tested.append(split.test)
    assert sorted(np.concatenate(tested)) == list(range(60))
    np.testing.assert_array_equal(
        make_split(metadata, tasks, SplitOptions(fold=0)).validation,
        make_split(metadata, tasks, SplitOptions(fold=1)).test,
    )


def test_another_fold_may_validate() -> None:
    metadata = cohort()
    tasks = parse_tasks(["status"], metadata)
    folds = [set(make_split(metadata, tasks, SplitOptions(fold=fold)).test) for fold in range(5)]
    for fold in (1, 2, 4):
        split = make_split(metadata, tasks, SplitOptions(fold=3, validation_fold=fold))
        assert (set(split.test), set(split.validation)) == (folds[3], folds[fold])
        assert set(split.train) == set(range(60)) - folds[3] - folds[fold]


def test_a_part_of_the_cohort_may_be_for_testing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deeprc")
    metadata = cohort().assign(part=["b" if i >= 45 else None if i == 0 else "a" for i in range(60)])
    metadata.loc[[1, 50], "status"] = None
    tasks = parse_tasks(["status=pos"], metadata)
    validated = []
    for fold in range(5):
        split = make_split(metadata, tasks, SplitOptions(test="part=b", validation_fold=fold, fold=(fold + 1) % 5))
        assert split.test.tolist() == [i for i in range(45, 60) if i != 50]  # the label of 50 is missing
        assert sorted([*split.train, *split.validation]) == list(range(1, 45))  # the part of 0 is missing
        assert 1 in split.train  # a missing label is never held out
        validated += split.validation.tolist()
    assert sorted(validated) == list(range(2, 45))
    assert "1 repertoires have no value of 'part' (`test=part=b`): they are in no part of the split" in caplog.messages


def test_a_test_part_without_labels_is_said(caplog: pytest.LogCaptureFixture) -> None:
    metadata = cohort().assign(part=["b" if i >= 45 else "a" for i in range(60)])
    metadata.loc[45:, "status"] = None
    split = make_split(metadata, parse_tasks(["status=pos"], metadata), SplitOptions(test="part=b"))
    assert len(split.test) == 0
    assert caplog.messages == ["no test repertoire has a label of 'status=pos'"]


def test_the_part_for_testing_is_named_by_a_whole_number_where_values_are_missing() -> None:
    metadata = cohort().assign(batch=[np.nan if i == 3 else 1 + (i >= 45) for i in range(60)])
    split = make_split(metadata, parse_tasks(["status=pos"], metadata), SplitOptions(test="batch=2", validation_fold=0))
    assert split.test.tolist() == list(range(45, 60))


def test_the_name_of_the_column_for_testing_may_contain_an_equals_sign() -> None:
    names = ["b" if i >= 45 else "c" for i in range(60)]
    metadata = cohort().assign(**{"part=1": names, "part": ["1=d"] * 60})
    tasks = parse_tasks(["status=pos"], metadata)
    assert make_split(metadata, tasks, SplitOptions(test="part=1=b")).test.tolist() == list(range(45, 60))
    both = metadata.assign(part=[f"1={name}" for name in names])
    with pytest.raises(InputError, match="`test=part=1=b`: may be a value of 'part' and 'part=1'; rename"):
        make_split(both[["status", "part", "part=1"]], tasks, SplitOptions(test="part=1=b"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "part"}, "`test=part`: expected COLUMN=VALUE"),
        ({"test": "site=b"}, "no column 'site' for `test`; columns: status, Patient ID, age, part"),
        ({"test": "part=c"}, "`test=part=c`: no repertoire has this value; part has a \\(45\\), b \\(15\\)"),
        ({"test": "part=b", "group_by": "Patient ID"}, "divides repertoires that 'Patient ID' keeps together"),
    ],
)
def test_parts_that_cannot_be_for_testing(options: dict[str, str], message: str) -> None:
    metadata = cohort().assign(part=["b" if i >= 45 else "a" for i in range(60)])
    with pytest.raises(InputError, match=message):
        make_split(metadata, parse_tasks(["status=pos"], metadata), SplitOptions(**options))  # type: ignore[arg-type]


def test_groups_stay_together() -> None:
    metadata = cohort()
    tasks = parse_tasks(["status"], metadata)
    for fold in range(5):
        split = make_split(metadata, tasks, SplitOptions(fold=fold, group_by="Patient ID"), seed=3)
        patients = [set(metadata["Patient ID"].iloc[rows]) for rows in (split.train, split.validation, split.test)]
        assert not patients[0] & patients[1]
        assert not patients[0] & patients[2]
        assert not patients[1] & patients[2]
        assert count_divided_donors(metadata, index_split_parts(split, len(metadata))) == {}


def test_straddling_subjects_are_counted() -> None:
    metadata = cohort()
    split = make_split(metadata, parse_tasks(["status"], metadata))
    found = count_divided_donors(metadata, index_split_parts(split, len(metadata)))
    assert set(found) == {"Patient ID"}
    side = np.zeros(60)
    side[split.validation], side[split.test] = 1, 2
    assert found["Patient ID"] == sum(side[2 * i] != side[2 * i + 1] for i in range(30))


def test_the_seed_decides() -> None:
    metadata = cohort()
    tasks = parse_tasks(["status"], metadata)
    np.testing.assert_array_equal(make_split(metadata, tasks, seed=1).test, make_split(metadata, tasks, seed=1).test)
    assert set(make_split(metadata, tasks, seed=1).test) != set(make_split(metadata, tasks, seed=2).test)


def test_missing_labels_are_never_held_out() -> None:
    metadata = cohort()
    metadata.loc[:9, "status"] = None
    split = make_split(metadata, parse_tasks(["status"], metadata))
    assert set(range(10)) <= set(split.train)


def test_missing_labels_of_a_held_out_group_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    metadata = cohort()
    metadata.loc[0:58:2, "status"] = None
    with caplog.at_level(logging.WARNING):
        split = make_split(metadata, parse_tasks(["status"], metadata), SplitOptions(group_by="Patient ID"))
    held_out = set(metadata["Patient ID"].iloc[np.concatenate([split.test, split.validation])])
    assert not held_out & set(metadata["Patient ID"].iloc[split.train])
    assert (
        "left out of training: 12 repertoires without a label, whose donors are for testing or validation"
        in caplog.text
    )


def test_regression_is_stratified_by_quartile() -> None:
    metadata = cohort(80)
    split = make_split(metadata, parse_tasks(["age:regression"], metadata))
    assert np.bincount(split.test // 20).tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"folds": 2}, "`folds=2` `fold=0`: expected 3 to 100,000 folds"),
        ({"validation_fold": 5}, "`validation_fold=5`: expected a fold from 0 to 4 other than `fold=0`"),
        ({"validation_fold": -1}, "`validation_fold=-1`: expected a fold from 0 to 4 other than `fold=0`"),
        ({"fold": 2, "validation_fold": 2}, "`validation_fold=2`: expected a fold from 0 to 4 other than `fold=2`"),
        ({"fold": 5}, "a fold from 0 to folds - 1"),
        ({"group_by": "donor"}, "no column 'donor' for `group_by`; columns: status, Patient ID, age"),
        ({"folds": 30}, "the smallest class has 20 repertoires; expected at least 30"),
        ({"group_by": "one"}, "makes 1 groups; expected at least `folds=5`"),
    ],
)
def test_impossible_splits_are_refused(arguments: dict[str, object], message: str) -> None:
    metadata = cohort()
    tasks = parse_tasks(["status"], metadata)
    if arguments.get("group_by") == "one":
        metadata["one"] = "same"
    with pytest.raises(InputError, match=message):
        make_split(metadata, tasks, SplitOptions(**arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize("group_by", [None, "Patient ID"])
def test_the_folds_are_those_of_the_splits(group_by: str | None) -> None:
    metadata = cohort()
    metadata.loc[40:45, "status"] = None
    tasks = parse_tasks(["status=pos"], metadata)
    fold_of = assign_folds(metadata, tasks, n_folds=4, group_by=group_by, seed=5)
    assert np.flatnonzero(fold_of < 0).tolist() == list(range(40, 46))
    for fold in range(4):
        split = make_split(metadata, tasks, SplitOptions(folds=4, fold=fold, group_by=group_by), seed=5)
        np.testing.assert_array_equal(split.test, np.flatnonzero(fold_of == fold))
        np.testing.assert_array_equal(split.validation, np.flatnonzero(fold_of == (fold + 1) % 4))
        labelled = metadata["status"].notna().to_numpy()
        others = np.flatnonzero(labelled & (fold_of != fold) & (fold_of != (fold + 1) % 4))
        np.testing.assert_array_equal(split.train[labelled[split.train]], others)


def test_folds_are_stratified_or_keep_groups_together() -> None:
    metadata = cohort()
    tasks = parse_tasks(["status=pos"], metadata)
    fold_of = assign_folds(metadata, tasks)
    assert np.bincount(fold_of).tolist() == [12] * 5
    assert np.bincount(fold_of[::3]).tolist() == [4] * 5  # the positive ones
    grouped = assign_folds(metadata, tasks, group_by="Patient ID")
    np.testing.assert_array_equal(grouped[::2], grouped[1::2])
    assert set(grouped) == set(range(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_folds": 2}, "^`folds=2`: expected at least 3$"),
        ({"seed": -1}, "^`seed=-1`: expected 0 to 4294967295$"),
        ({"seed": 2**32}, "^`seed=4294967296`: expected 0 to 4294967295$"),
        ({"n_folds": 21}, "^here: target 'status': the smallest class has 20 repertoires; expected at least 21, one"),
        ({"group_by": "donor"}, "^here: no column 'donor' for `group_by`; columns: status, Patient ID, age$"),
        ({"group_by": "status"}, "^here: `group_by` makes 2 groups; expected at least `folds=5`$"),
    ],
)
def test_folds_that_cannot_be_made(arguments: dict[str, object], message: str) -> None:
    metadata = cohort()
    with pytest.raises(InputError, match=message):
        assign_folds(metadata, parse_tasks(["status"], metadata), source="here", **arguments)  # type: ignore[arg-type]


IDS = np.array(["a", "b", "c", "d", "1"], object)


def test_folds_are_read_from_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "folds.tsv"
    path.write_text("site\tfold\trepertoire_id\nx\t2\td\ny\t0\ta\nz\t01\t1\n")
    assert read_folds(path, IDS).tolist() == [0, -1, -1, 2, 1]
    assert caplog.messages == [f"{path}: no fold for 2 repertoires: b, c: not used"]
    path.write_bytes("\ufeffrepertoire_id\tfold\r\na\t0\r\nb\t1\r\nc\t2\r\n".encode())
    assert read_folds(path, IDS).tolist() == [0, 1, 2, -1, -1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file; expected a table of folds, a number, or leave-one-out:COLUMN"),
        (b"", "cannot be read as a table: No columns"),
        (b"\xff\xfe\xff", "cannot be read as a table: 'utf-8' codec"),
        (b"repertoire_id\tfold\na\t0\nb\t1\t7\n", "cannot be read as a table: Error tokenizing data"),
        (b"repertoire_id,fold\na,0\n", "no column 'repertoire_id'; expected repertoire_id and fold, tab-separated"),
        (b"repertoire_id\tFold\na\t0\n", "no column 'fold'; expected repertoire_id and fold, tab-separated"),
        (b"repertoire_id\tfold\na\t0\ne\t1\n", "row 3: the cohort has no repertoire 'e'"),
        (b"repertoire_id\tfold\na\t0\nb\t1\na\t0\n", "row 4: repertoire 'a' is listed twice"),
        (
            b"repertoire_id\tfold\na\t-1\n",
            "row 2, column 'fold': expected a whole number from 0 to 999,999,999, found '-1'",
        ),
        (
            b"repertoire_id\tfold\na\t1.0\n",
            "row 2, column 'fold': expected a whole number from 0 to 999,999,999, found '1.0'",
        ),
        (
            b"repertoire_id\tfold\na\t\n",
            "row 2, column 'fold': expected a whole number from 0 to 999,999,999, found ''",
        ),
        (b"repertoire_id\tfold\na\n", "row 2, column 'fold': expected a whole number from 0 to 999,999,999, found ''"),
        (
            "repertoire_id\tfold\na\t²\n".encode(),
            "row 2, column 'fold': expected a whole number from 0 to 999,999,999, found '²'",
        ),
        (
            b"repertoire_id\tfold\na\t" + b"9" * 30,
            "row 2, column 'fold': expected a whole number from 0 to 999,999,999, found '999",
        ),
        (
            b"repertoire_id\tfold\nx" + b"x" * 100_000 + b"\t0\n",
            r"the cohort has no repertoire 'x+'\.\.\. \(100,001 letters",
        ),
        (b"repertoire_id\tfold\na\t" + b"0" * 100_000, r"found '0+'\.\.\. \(100,000 letters"),
        (b"repertoire_id\tfold\tfold\na\t0\t1\n", "expected one column 'fold', found 2"),
        (b"fold\trepertoire_id\trepertoire_id\n0\ta\tb\n", "expected one column 'repertoire_id', found 2"),
        (b"repertoire_id\tfold\na\t0\nb\t1\n", r"at least 3 folds, numbered from 0 without gaps, found \[0, 1\]"),
        (b"repertoire_id\tfold\na\t0\nb\t1\nc\t3\n", r"numbered from 0 without gaps, found \[0, 1, 3\]"),
        (b"repertoire_id\tfold\na\t1\nb\t2\nc\t3\n", r"numbered from 0 without gaps, found \[1, 2, 3\]"),
        (b"repertoire_id\tfold\n", r"at least 3 folds, numbered from 0 without gaps, found \[\]"),
        (b"repertoire_id\tfold" + b"\tx" * 1000 + b"\n", "has too many columns; expected at most 1000"),
    ],
)
def test_files_of_folds_that_cannot_be_used(text: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "folds.tsv"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(InputError, match=message) as error:
        read_folds(path, IDS)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < len(str(path)) + 300
