"""Measures of a ranked list of sequences against the true ones, computed by hand."""

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from deeprc.evaluation.found_sequences import (
    compute_average_precision,
    compute_jaccard_index,
    compute_precision_at_n_true,
)


def marks(text: str) -> np.ndarray:
    """Return a list's truth from one letter per place: T is true."""
    return np.array([letter == "T" for letter in text], bool)


@pytest.mark.parametrize(
    ("text", "n_true", "precision", "area", "jaccard"),
    [
        ("TTTff", 3, 1, 1, 1),
        ("TfTfT", 3, 2 / 3, (1 + 2 / 3 + 3 / 5) / 3, 2 / 4),
        ("ffTTT", 3, 1 / 3, (1 / 3 + 2 / 4 + 3 / 5) / 3, 1 / 5),
        ("fffff", 3, 0, 0, 0),
        ("TfT", 4, 2 / 4, (1 + 2 / 3) / 4, 2 / 5),  # the list is shorter than the number of true ones
        ("T", 2, 1 / 2, 1 / 2, 1 / 2),
        ("", 2, 0, 0, 0),
        ("fT", 1, 0, 1 / 2, 0),
    ],
)
def test_measures_of_short_lists(text: str, n_true: int, precision: float, area: float, jaccard: float) -> None:
    assert compute_precision_at_n_true(marks(text), n_true) == pytest.approx(precision)
    assert compute_average_precision(marks(text), n_true) == pytest.approx(area)
    assert compute_jaccard_index(marks(text), n_true) == pytest.approx(jaccard)


@pytest.mark.parametrize("text", ["", "fff"])
def test_without_a_true_sequence_nothing_is_measured(text: str) -> None:
    for measure in (compute_precision_at_n_true, compute_average_precision, compute_jaccard_index):
        assert math.isnan(measure(marks(text), 0))


def test_a_whole_list_has_the_average_precision_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random(500) < 0.1
    expected = average_precision_score(truth, -np.arange(500))
    assert compute_average_precision(truth, int(truth.sum())) == pytest.approx(expected)


def test_the_order_of_equal_scores_is_that_of_the_list() -> None:
    """A list has no ties: over all orders of four equal scores, the mean is the precision of a random order."""
    orders = ["TTff", "TfTf", "TffT", "fTTf", "fTfT", "ffTT"]
    assert np.mean([compute_precision_at_n_true(marks(text), 2) for text in orders]) == pytest.approx(1 / 2)
    assert [compute_precision_at_n_true(marks(text), 2) for text in orders] == [1, 0.5, 0.5, 0.5, 0.5, 0]
