"""Groups: repertoires of one donor."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import StratifiedGroupKFold

from deeprc.baselines.svm import SVM, SVMRegressor
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.groups import index_groups, pass_groups, shuffle_groups, validate_groups


def test_missing_values_are_groups_of_their_own() -> None:
    assert index_groups(np.array(["b", None, "a", "b", None], object)).tolist() == [0, 6, 1, 0, 9]
    assert index_groups([2.0, np.nan, 1.0, 2.0]).tolist() == [0, 5, 1, 0]


def test_groups_are_checked(cohort: RepertoireDataset) -> None:
    assert validate_groups(cohort, None) is None
    numbers = validate_groups(cohort[:4], ["x", "y", "x", "z"])
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 0, 2]
    with pytest.raises(ValueError, match="groups: expected 4 values, found"):
        validate_groups(cohort[:4], ["x", "y"])
    with pytest.raises(ValueError, match="groups: expected the donor of each of 4 repertoires, found the text 'donor'"):
        validate_groups(cohort[:4], "donor")
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


@pytest.mark.parametrize("seed", range(4))
def test_folds_of_shuffled_groups_are_stratified_with_any_version_of_scikit_learn(seed: int) -> None:
    """Twelve donors with two repertoires each; scikit-learn 1.7 alone makes folds of 2 to 8 positive repertoires."""
    donors = np.repeat(np.arange(12), 2)
    strata = donors % 2
    shuffled = shuffle_groups(donors, seed)
    assert all(len(np.unique(shuffled[donors == donor])) == 1 for donor in range(12))
    assert sorted(np.unique(shuffled)) == list(range(12))
    for _, rows in StratifiedGroupKFold(3).split(strata, strata, shuffled):
        assert strata[rows].sum() == 4
        assert len(rows) == 8


def test_seeds_shuffle_groups_differently() -> None:
    donors = np.array([7, 3, 7, 5, 9, 9])
    # the order of numpy.random.RandomState(0), [2, 3, 1, 0], has the groups 3, 5, 7, 9 at 3, 2, 0, 1
    assert shuffle_groups(donors, 0).tolist() == [0, 3, 0, 2, 1, 1]
    assert shuffle_groups(donors, 1).tolist() != [0, 3, 0, 2, 1, 1]


def test_missing_values_in_a_list_are_missing() -> None:
    """numpy would make them the text "nan"."""
    assert index_groups(["d1", "d1", float("nan"), float("nan"), "d2"]).tolist() == [0, 0, 7, 8, 1]
