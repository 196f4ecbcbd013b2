"""How surely scores go with values, if some repertoires are of one donor."""

from __future__ import annotations

import numpy as np
import pytest

from deeprc.branches.donors import compute_association_z, count_standard_errors


def test_single_repertoires_have_pearsons_correlation() -> None:
    rng = np.random.default_rng(0)
    scores, values = rng.normal(size=(2, 30)) + rng.normal(size=30)
    expected = np.corrcoef(scores, values)[0, 1] * np.sqrt(29)
    assert compute_association_z(scores, values, None) == pytest.approx(expected)
    assert compute_association_z(scores, values, rng.permutation(100)[:30]) == pytest.approx(expected)


def test_copies_of_a_repertoire_are_no_more_evidence() -> None:
    rng = np.random.default_rng(1)
    scores, values = rng.normal(size=(2, 25))
    groups = np.repeat(np.arange(25), 4)
    copied = compute_association_z(np.repeat(scores, 4), np.repeat(values, 4), groups)
    assert copied == pytest.approx(compute_association_z(scores, values, None))
    assert abs(compute_association_z(np.repeat(scores, 4), np.repeat(values, 4), None)) > 1.9 * abs(copied)


def test_a_donor_with_both_labels_is_compared_with_itself() -> None:
    """Scores of a donor are alike, which hides the difference of 1 between the donor's two samples."""
    rng = np.random.default_rng(2)
    values, groups = np.tile([0.0, 1.0], 20), np.repeat(np.arange(20), 2)
    scores = np.repeat(rng.normal(0, 5, 20), 2) + values
    assert compute_association_z(scores, values, groups) == pytest.approx(np.sqrt(20))
    assert abs(compute_association_z(scores, values, None)) < 1


@pytest.mark.parametrize("constant", ["scores", "values"])
def test_constant_scores_or_values_have_no_association(constant: str) -> None:
    varying, equal = np.arange(12.0), np.full(12, 0.1)
    scores, values = (equal, varying) if constant == "scores" else (varying, equal)
    for groups in (None, np.arange(12) // 3):
        assert compute_association_z(scores, values, groups) == 0


def test_random_labels_have_a_standard_deviation_of_one() -> None:
    """Donors of 1 to 6 repertoires, whose scores are alike; some donors have one label, some several."""
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(40), np.arange(40) % 6 + 1)
    z = []
    for _ in range(400):
        scores = rng.normal(size=40)[groups] + 0.3 * rng.normal(size=len(groups))
        label = (rng.permutation(40) % 2)[groups] ^ ((groups % 4 == 0) & (rng.random(len(groups)) < 0.5))
        z.append(compute_association_z(scores, label.astype(np.float64), groups))
    assert np.mean(z) == pytest.approx(0, abs=0.15)
    assert np.std(z) == pytest.approx(1, abs=0.12)


def test_standard_errors_by_hand() -> None:
    """The mean is 2. Its standard error is sqrt(4 / 3) / 2 of four repertoires, and 1 of two donors."""
    decreases = np.array([1.0, 1.0, 3.0, 3.0])
    assert count_standard_errors(decreases, None) == pytest.approx(2 / (4 / 3) ** 0.5 * 2)
    assert count_standard_errors(decreases, np.array([5, 5, 9, 9])) == pytest.approx(2.0)
    assert count_standard_errors(np.ones(3), None) == np.inf
    assert count_standard_errors(np.array([1.0, 2.0, 4.0]), np.zeros(3, np.int64)) == 0.0  # one donor
    assert count_standard_errors(np.zeros(3), None) == 0.0
