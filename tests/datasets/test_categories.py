"""Categories and measurements in the metadata sheet."""

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.categories import is_category


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", "b", None, "c"], True),
        ([True, False, True], True),
        ([0.5, 1.5, np.nan, 0.5], True),  # two different numbers
        ([1, 2, 3] * 3, True),
        ([1, 2, 3] * 2 + [1, 2], False),  # three numbers in eight repertoires
        ([1.0, 2.0, np.nan, 3.0] * 3, True),  # whole numbers beside missing ones
        ([1.5, 2.0, 3.0] * 3, False),
        ([np.inf, 2.0, 3.0] * 3, False),
        ([*range(20)] * 3, True),
        ([*range(21)] * 3, False),
        ([np.nan, np.nan], True),
    ],
)
def test_texts_and_few_whole_numbers_are_categories(values: list[object], expected: bool) -> None:
    assert is_category(pd.Series(values)) is expected


def test_a_nullable_column_is_one_of_numbers() -> None:
    assert is_category(pd.Series([1, 2, 3, None] * 3, dtype="Int64"))
    assert not is_category(pd.Series([1, 2, 3, None] * 2, dtype="Int64"))


def test_donors_count_once() -> None:
    """Ages of eighteen donors with three repertoires each are measurements."""
    ages, donors = pd.Series(np.repeat(np.arange(30, 48), 3)), np.repeat(np.arange(18), 3)
    assert is_category(ages)
    assert not is_category(ages, donors)
    assert is_category(pd.Series(np.repeat(np.arange(18) % 6, 3)), donors)
