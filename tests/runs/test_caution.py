"""Warnings as data: written, read, and refused where they are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.errors import InputError
from deeprc.evaluation.caution import CAUTIONS_FILE, Caution, read_cautions, write_cautions
from deeprc.evaluation.cohort_cautions import find_divided_donor_cautions, find_donor_cautions, find_left_out_cautions


def test_cautions_are_read_as_written(tmp_path: Path) -> None:
    found = [Caution("warning", "r² is low", "performance", "chance", {"r2": 0.1}), Caution("note", "t")]
    write_cautions(tmp_path, found)
    assert read_cautions(tmp_path) == found
    assert read_cautions(tmp_path / "of-an-earlier-version") == []


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"version": 2},
        {"warnings": 3},
        {"warnings": [{}]},
        {"warnings": [{"level": "loud", "text": "", "section": "", "name": "", "details": {}}]},
        {"warnings": [{"level": "note", "text": 3, "section": "", "name": "", "details": {}}]},
        {"warnings": [{"level": "note", "text": "", "section": "", "name": "", "details": []}]},
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    write_cautions(tmp_path, [])
    body = json.loads((tmp_path / CAUTIONS_FILE).read_text())
    (tmp_path / CAUTIONS_FILE).write_text(json.dumps({**body, **change}))
    with pytest.raises(InputError, match=r"warnings\.json: "):
        read_cautions(tmp_path)


def test_subjects_in_several_folds() -> None:
    table = pd.DataFrame({"subject_id": ["a", "a", "b", "c", "c", None], "donor": list("uvwxyz")})
    (apart,) = find_divided_donor_cautions(table, np.array([0, 1, 0, 1, -1, 0]), apart="folds")
    assert apart.level == "warning"
    assert apart.details == {"column": "subject_id", "n": 1, "apart": "folds"}
    assert apart.text.startswith("1 value of 'subject_id' has repertoires in more than one fold")
    assert find_divided_donor_cautions(table, np.array([0, 0, 0, 1, 1, 0]), apart="folds") == []
    assert find_divided_donor_cautions(table[["donor"]], np.zeros(6, np.int64), apart="folds") == []


def test_of_columns_within_each_other_the_coarsest_is_told() -> None:
    """A patient of a study, and the study's own number of the patient."""
    table = pd.DataFrame({"patient_id": ["a1", "a2", "b1", "b1"], "donor": ["a", "a", "b", "b"]})
    folds = np.array([0, 1, 0, 1])
    (caution,) = find_divided_donor_cautions(table, folds, apart="folds")
    assert caution.details["column"] == "donor"
    table["donor"] = ["a", "b", "b", "a"]  # neither lies within the other
    assert len(find_divided_donor_cautions(table, folds, apart="folds")) == 2


def test_few_donors_are_warned_of_and_several_repertoires_of_one_are_noted() -> None:
    donors = np.array([0, 0, 0, 1, 1, 2])
    classes = {"ill": donors > 0, "well": donors == 0}
    (found,) = find_donor_cautions(donors, "donor", classes, kind="binary", where="test repertoires: ")
    assert (found.level, found.name) == ("warning", "repeated-subjects")
    assert found.text.startswith(
        "Test repertoires: 3 ill repertoires are of 2 donors, 3 well repertoires are of 1 donor ('donor'). What "
        "separates the classes may be these few donors"
    )
    assert found.details["classes"]["well"] == {"n_repertoires": 3, "n_subjects": 1}
    classes |= {"asymptomatic": np.zeros(6, bool)}
    (same,) = find_donor_cautions(donors, "donor", classes, kind="multiclass", where="test repertoires: ")
    assert (same.text, same.details) == (found.text, found.details)  # a class without repertoires has no donors
    many = np.arange(80) // 2 * (np.arange(80) > 60) + 100 * np.arange(80) * (np.arange(80) <= 60)
    (found,) = find_donor_cautions(many, "donor", {"": np.ones(80, bool)}, kind="regression", where="")
    assert (found.level, found.text.split(". ")[0]) == ("note", "80 repertoires are of 71 donors ('donor')")
    assert find_donor_cautions(np.arange(6), "donor", classes, kind="binary", where="") == []


def test_donors_with_samples_of_all_classes_do_not_separate_them() -> None:
    donors, is_cd4 = np.array([0, 0, 1, 1, 1]), np.array([1, 0, 1, 0, 0], bool)
    (found,) = find_donor_cautions(donors, "donor", {"cd8": ~is_cd4, "cd4": is_cd4}, kind="binary", where="")
    assert found.text == (
        "3 cd8 repertoires are of 2 donors, 2 cd4 repertoires are of 2 donors ('donor'). The same few donors have all "
        "classes: the metrics are uncertain."
    )


def test_left_out_methods_are_noted() -> None:
    (one,) = find_left_out_cautions({"burden-test": "it tells classes apart"})
    assert (one.level, one.text) == ("note", "burden-test is left out: it tells classes apart")
