"""Groups: repertoires of one donor."""

from __future__ import annotations

import numpy as np
import pytest

from deeprc.baselines.svm import SVM, SVMRegressor
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.groups import number_groups, pass_groups, validate_groups


def test_missing_values_are_groups_of_their_own() -> None:
    assert number_groups(np.array(["b", None, "a", "b", None], object)).tolist() == [0, 6, 1, 0, 9]
    assert number_groups([2.0, np.nan, 1.0, 2.0]).tolist() == [0, 5, 1, 0]


def test_groups_are_checked(cohort: RepertoireDataset) -> None:
    assert validate_groups(cohort, None) is None
    numbers = validate_groups(cohort[:4], ["x", "y", "x", "z"])
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 0, 2]
    with pytest.raises(ValueError, match="groups: expected 4 values, found"):
        validate_groups(cohort[:4], ["x", "y"])
    with pytest.raises(ValueError, match="groups: expected at least two donors, found one"):
        validate_groups(cohort[:4], ["x"] * 4)
    one = validate_groups(cohort[:4], ["x"] * 4, several=False)
    assert one is not None
    assert one.tolist() == [0] * 4


def test_groups_are_passed_to_estimators_that_take_them() -> None:
    groups = np.arange(3)
    assert pass_groups(SVM(), groups) == {"groups": groups}
    assert pass_groups(SVM(), None) == {}
    assert pass_groups(SVMRegressor(), groups) == {}
