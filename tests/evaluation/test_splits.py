import logging

import numpy as np
import pandas as pd
import pytest

from deeprc.errors import InputError
from deeprc.evaluation.splits import make_split, straddling_subjects
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
        split = make_split(metadata, tasks, fold=fold)
        sides = np.concatenate([split.train, split.validation, split.test])
        assert sorted(sides) == list(range(60))
        assert (metadata["status"].iloc[split.test] == "pos").sum() == 4
        assert (metadata["status"].iloc[split.validation] == "pos").sum() == 4
        tested.append(split.test)
    assert sorted(np.concatenate(tested)) == list(range(60))
    np.testing.assert_array_equal(
        make_split(metadata, tasks, fold=0).validation, make_split(metadata, tasks, fold=1).test
    )


def test_groups_stay_together() -> None:
    metadata = cohort()
    tasks = parse_tasks(["status"], metadata)
    for fold in range(5):
        split = make_split(metadata, tasks, fold=fold, group_by="Patient ID", seed=3)
        patients = [set(metadata["Patient ID"].iloc[rows]) for rows in (split.train, split.validation, split.test)]
        assert not patients[0] & patients[1]
        assert not patients[0] & patients[2]
        assert not patients[1] & patients[2]
        assert straddling_subjects(metadata, split) == {}


def test_straddling_subjects_are_counted() -> None:
    metadata = cohort()
    split = make_split(metadata, parse_tasks(["status"], metadata))
    found = straddling_subjects(metadata, split)
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
        split = make_split(metadata, parse_tasks(["status"], metadata), group_by="Patient ID")
    held_out = set(metadata["Patient ID"].iloc[np.concatenate([split.test, split.validation])])
    assert not held_out & set(metadata["Patient ID"].iloc[split.train])
    assert "their group is held out" in caplog.text


def test_regression_is_stratified_by_quartile() -> None:
    metadata = cohort(80)
    split = make_split(metadata, parse_tasks(["age:regression"], metadata))
    assert np.bincount(split.test // 20).tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_folds": 2}, "expected at least 3 folds"),
        ({"fold": 5}, "a fold from 0 to folds - 1"),
        ({"group_by": "donor"}, "no column 'donor' for --group-by; columns: status, Patient ID, age"),
        ({"n_folds": 30}, "the smallest class has 20 repertoires; expected at least 30"),
        ({"group_by": "one"}, "makes 1 groups; expected at least --folds 5"),
    ],
)
def test_impossible_splits(arguments: dict[str, object], message: str) -> None:
    metadata = cohort()
    tasks = parse_tasks(["status"], metadata)
    if arguments.get("group_by") == "one":
        metadata["one"] = "same"
    with pytest.raises(InputError, match=message):
        make_split(metadata, tasks, **arguments)  # type: ignore[arg-type]
