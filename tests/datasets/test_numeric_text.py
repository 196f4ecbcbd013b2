"""Texts that are numbers, where a name is expected."""

from __future__ import annotations

import pytest

from deeprc.datasets.numeric_text import is_number


@pytest.mark.parametrize("text", ["7", "-0.5", "+3", ".5", "1.", "0,5", "1,", ",5", "2e-7", "1.E+5", "007"])
def test_numbers(text: str) -> None:
    assert is_number(text)


@pytest.mark.parametrize("text", ["", ".", "-", "e5", "1,234,567", "1.2.3", "inf", "TRBV9", "5a", " 7", "\uff17"])
def test_other_texts(text: str) -> None:
    assert not is_number(text)
