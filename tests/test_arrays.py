"""What `deeprc.arrays` adds to numpy."""

import numpy as np

from deeprc.arrays import find_first_occurrences


def test_first_occurrences_are_in_order() -> None:
    assert find_first_occurrences(np.array([5, 3, 5, 9, 3, 1])).tolist() == [0, 1, 3, 5]
    assert find_first_occurrences(np.zeros(0, np.uint64)).tolist() == []
