"""Which alternatives of the branch `clones` have a weight, and which is the best one."""

from __future__ import annotations

import numpy as np
import pytest

from deeprc.branches.clones_alternatives import ALTERNATIVES, HeldOutLosses, find_best_alternative, weigh_alternatives


def find_best(losses: np.ndarray, donors: np.ndarray, *, associated: bool = False) -> int:
    """Return the best alternative if the loss without evidence is 2."""
    baseline = np.full(losses.shape[1], 2.0)
    return find_best_alternative(HeldOutLosses(losses, baseline, donors), overshared_are_associated=associated)


def test_alternatives_are_weighted_by_their_losses() -> None:
    """Sums of losses of 4, 7 and 23: the second has exp(-3 / 6) of the weight of the first, the third below 5%."""
    losses = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 2.0, 2.0], [5.0, 6.0, 6.0, 6.0]])
    np.testing.assert_allclose(weigh_alternatives(losses, 4), np.array([1, np.exp(-0.5), 0]) / (1 + np.exp(-0.5)))


def test_a_donor_with_several_repertoires_does_not_weigh_alternatives_several_times() -> None:
    """Each of two donors has three repertoires: the mean losses 1 and 2.5 count twice, so their sums are 2 and 5."""
    losses = np.array([[1.0] * 6, [2.0, 2.0, 2.0, 3.0, 3.0, 3.0]])
    expected = np.array([1, np.exp(-3 / 6)]) / (1 + np.exp(-3 / 6))
    of_six_donors = np.array([1, np.exp(-9 / 6)]) / (1 + np.exp(-9 / 6))  # sums of 6 and 15
    np.testing.assert_allclose(weigh_alternatives(losses, 2), expected)
    np.testing.assert_allclose(weigh_alternatives(losses[:, ::3], 2), expected)  # one repertoire of each donor
    np.testing.assert_allclose(weigh_alternatives(losses, 6), of_six_donors)


def test_of_alternatives_with_equal_losses_the_first_has_a_weight() -> None:
    """The rows 0 and 1 have equal sums, but not equal losses."""
    losses = np.array([[1.0, 3.0], [2.0, 2.0], [1.0, 3.0], [2.0, 2.0]])
    np.testing.assert_allclose(weigh_alternatives(losses, 2), [0.5, 0.5, 0, 0])


def test_wildcard_clones_must_be_better_than_chance_makes_them() -> None:
    """A gain of 0.1 in the mean, once with a standard error of 0.09 and once of 0.29."""
    alternatives, donors = ALTERNATIVES, np.arange(4)
    exact, wildcard = alternatives.index(("exact", 1e-6)), alternatives.index(("wildcard", 3e-5))
    losses = np.full((len(alternatives), 4), 2.0)
    losses[exact], losses[wildcard] = 1.0, [0.75, 1.0, 0.75, 1.1]
    assert find_best(losses, donors) == wildcard
    assert find_best(np.repeat(losses, 9, axis=1), np.repeat(donors, 9)) == wildcard
    losses[wildcard] = [0.4, 1.4, 0.4, 1.4]
    assert find_best(losses, donors) == exact
    twins = np.repeat(losses, 9, axis=1)  # as 36 donors, the standard error is 0.08
    assert find_best(twins, np.repeat(donors, 9)) == exact
    assert find_best(twins, np.arange(36)) == wildcard


@pytest.mark.parametrize(
    ("earlier_way", "later_way"),
    [
        (("wildcard", 3e-5), ("cluster", 0.01)),
        (("overshared", 0.3), ("most frequent", 0.6)),
    ],
)
def test_a_later_way_must_be_better_than_an_earlier_one(
    earlier_way: tuple[str, float], later_way: tuple[str, float]
) -> None:
    exact, earlier, later = map(ALTERNATIVES.index, (("exact", 1e-6), earlier_way, later_way))
    losses = np.full((len(ALTERNATIVES), 4), 2.0)
    losses[exact], losses[earlier], losses[later] = 1.5, [1.1, 1.3] * 2, [0.7, 0.9] * 2
    assert find_best(losses, np.arange(4)) == later
    losses[later] = [0.7, 1.6] * 2  # better than the earlier one by 0.05, with a standard error of 0.2
    assert find_best(losses, np.arange(4)) == earlier


def test_associated_overshared_clones_need_not_exceed_a_standard_error() -> None:
    """The gain of overshared clones is 0.1 with a standard error of 0.17; wildcard clones have 0.05 (0.09) more."""
    exact, overshared = ALTERNATIVES.index(("exact", 1e-6)), ALTERNATIVES.index(("overshared", 0.3))
    wildcard = ALTERNATIVES.index(("wildcard", 3e-5))
    losses, donors = np.full((len(ALTERNATIVES), 4), 2.0), np.arange(4)
    # better than no evidence by 0.1, with a standard error of 0.23
    losses[exact], losses[overshared], losses[wildcard] = [1.5, 2.3] * 2, [1.1, 2.5] * 2, [0.9, 2.6] * 2
    assert find_best(losses, donors) == exact
    assert find_best(losses, donors, associated=True) == overshared
    losses[exact] = [1.9, 1.7, 1.9, 1.89]  # 0.1525 with a standard error of 0.048
    assert find_best(losses, donors, associated=True) == exact


def test_overshared_clones_must_be_better_than_others() -> None:
    exact, overshared = ALTERNATIVES.index(("exact", 1e-6)), ALTERNATIVES.index(("overshared", 0.3))
    losses = np.full((len(ALTERNATIVES), 4), 2.0)
    losses[exact], losses[overshared] = [1.5, 2.3] * 2, [1.5, 2.31] * 2
    assert find_best(losses, np.arange(4), associated=True) == exact
