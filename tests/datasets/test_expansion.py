"""The smallest count of an expanded sequence."""

from __future__ import annotations

import numpy as np
import pytest

from deeprc.datasets.expansion import (
    MIN_EXPANSION_SCORE,
    compute_expansion_scores,
    find_smallest_expanded_count,
    has_known_expansion,
)


@pytest.mark.parametrize(
    ("counts", "smallest"),
    [
        # the scores of 20 different counts fall from 2.60 by 1, 1/2, 1/3 ...: 2.60, 1.60, 1.10
        (range(1, 21), 19),
        # a tie at the top: the mean of 2.60, 1.60 and 1.10 is 1.77; of the five highest scores 1.31, of six 1.15
        ([*range(1, 18), 50, 50, 50], 50),
        ([*range(1, 16), 50, 50, 50, 50, 50], 50),
        ([*range(1, 15), 50, 50, 50, 50, 50, 50], 1 << 32),
        ([1, 1, 1, 1, 1, 1, 1, 1, 2], 2),
        ([7] * 9, 1 << 32),
        ([], 1 << 32),
    ],
)
def test_the_smallest_expanded_count(counts: list[int], smallest: int) -> None:
    values = np.array(list(counts), np.uint32)
    assert find_smallest_expanded_count(values) == smallest
    assert find_smallest_expanded_count(values[::-1]) == smallest
    is_expanded = compute_expansion_scores(values) >= MIN_EXPANSION_SCORE
    np.testing.assert_array_equal(is_expanded, values >= smallest)
    assert has_known_expansion(values) == (len(set(counts)) > 1)


def test_about_a_tenth_is_expanded() -> None:
    counts = np.random.default_rng(1).permutation(10_000).astype(np.uint32)
    n_expanded = int((counts >= find_smallest_expanded_count(counts)).sum())
    assert 990 < n_expanded < 1010
    assert find_smallest_expanded_count(counts * 5) == 5 * find_smallest_expanded_count(counts)
