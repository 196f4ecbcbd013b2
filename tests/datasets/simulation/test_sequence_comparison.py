from __future__ import annotations

import math

import numpy as np
import pytest

from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.simulation.sequence_comparison import compare_sequences, compute_jensen_shannon_divergence


def sequences(*texts: str):
    residues, offsets = encode_many(texts)
    return residues, np.diff(offsets)


def test_divergence_of_hand_computed_counts():
    assert compute_jensen_shannon_divergence(np.array([3, 1]), np.array([6, 2])) == 0
    assert compute_jensen_shannon_divergence(np.array([5, 0]), np.array([0, 2])) == pytest.approx(1)
    # p = (1, 0), q = (1/2, 1/2), mean (3/4, 1/4): (log2(4/3) + log2(2/3) / 2 + log2(2) / 2) / 2
    expected = (math.log2(4 / 3) + math.log2(2 / 3) / 2 + 1 / 2) / 2
    assert compute_jensen_shannon_divergence(np.array([7, 0]), np.array([1, 1])) == pytest.approx(expected)


def test_divergence_has_the_bias_that_its_docstring_states():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 100, (2, 200_000))
    found = compute_jensen_shannon_divergence(np.bincount(a, minlength=100), np.bincount(b, minlength=100))
    expected = 99 * (2 / 200_000) / (8 * math.log(2))
    assert found == pytest.approx(expected, rel=4 * math.sqrt(2 / 99))  # a chi-square of 99 degrees, 4 deviations


def test_divergence_refuses_what_cannot_be_compared():
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\)"):
        compute_jensen_shannon_divergence(np.ones(2, np.int64), np.ones(3, np.int64))
    with pytest.raises(ValueError, match="at least one count"):
        compute_jensen_shannon_divergence(np.zeros(2, np.int64), np.ones(2, np.int64))


def test_comparison_of_hand_made_sets():
    a, b = sequences("AAAA", "AAAA"), sequences("AAAC", "AAAC", "AAAA", "AAAA")
    found = compare_sequences(a, b)
    half = (math.log2(4 / 3) + math.log2(2 / 3) / 2 + 1 / 2) / 2
    assert found["4-mers"] == pytest.approx(half)  # AAAA against half AAAA, half AAAC
    # AAA against 3/4 AAA, 1/4 AAC
    assert found["3-mers"] == pytest.approx((math.log2(8 / 7) + 3 / 4 * math.log2(6 / 7) + 1 / 4) / 2)
    assert found["lengths"] == 0
    assert found["positions"] == pytest.approx(half / 4)  # three like positions of four
    assert found["positions of length 4"] == found["positions"]


def test_positions_weigh_by_how_many_reach_them_and_lengths_differ():
    a, b = sequences("AAAA", "AAAA"), sequences("AAAA", "AAAAC")
    found = compare_sequences(a, b)
    assert found["lengths"] == pytest.approx((math.log2(4 / 3) + math.log2(2 / 3) / 2 + 1 / 2) / 2)
    assert found["positions"] == 0  # only one set reaches the fifth
    assert found["positions of length 4"] == 0


def test_a_set_has_no_distance_to_itself(cohort_factory):
    repertoire = cohort_factory()[0]
    own = (repertoire.residues, repertoire.lengths)
    assert all(value == 0 for value in compare_sequences(own, own).values())
