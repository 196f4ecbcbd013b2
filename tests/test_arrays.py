"""What `deeprc.arrays` adds to numpy."""

import numpy as np

from deeprc.arrays import find_first_occurrences, index_connected


def test_first_occurrences_are_in_order() -> None:
    assert find_first_occurrences(np.array([5, 3, 5, 9, 3, 1])).tolist() == [0, 1, 3, 5]
    assert find_first_occurrences(np.zeros(0, np.uint64)).tolist() == []


def test_nodes_that_are_connected_through_others_are_one_group() -> None:
    found = index_connected(np.array([[0, 4, 1], [4, 2, 1]]), 5)
    np.testing.assert_array_equal(found, [0, 1, 0, 2, 0])
    np.testing.assert_array_equal(index_connected(np.zeros((2, 0), np.int64), 2), [0, 1])
