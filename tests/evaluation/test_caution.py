"""Warnings as data: written, read, and refused where they are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.errors import InputError
from deeprc.evaluation.caution import CAUTIONS_FILE, Caution, read_cautions, write_cautions
from deeprc.evaluation.cohort_cautions import left_out_cautions, subject_cautions


def test_what_is_written_is_read(tmp_path: Path) -> None:
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


def test_subjects_in_several_folds_and_several_of_one() -> None:
    table = pd.DataFrame({"subject_id": ["a", "a", "b", "c", "c", None], "donor": list("uvwxyz")})
    (apart,) = subject_cautions(table, np.array([0, 1, 0, 1, -1, 0]), apart="folds")
    assert apart.level == "warning"
    assert apart.details == {"column": "subject_id", "n": 1, "apart": "folds"}
    assert apart.text.startswith("1 value of 'subject_id' has repertoires in more than one fold")
    (repeated,) = subject_cautions(table, np.array([0, 0, 0, 1, 1, 0]), apart="folds")
    assert repeated.name == "repeated-subjects"
    assert repeated.details == {"column": "subject_id", "n_repertoires": 5, "n_subjects": 3}
    assert subject_cautions(table[["donor"]], np.zeros(6, np.int64), apart="folds") == []


def test_what_is_left_out_is_said() -> None:
    (one,) = left_out_cautions({"burden-test": "it tells classes apart"})
    assert (one.level, one.text) == ("note", "burden-test is left out: it tells classes apart")
