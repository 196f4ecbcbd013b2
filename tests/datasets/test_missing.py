"""Words for a missing value: each list has the words of its writers."""

import pytest

from deeprc.datasets.missing import MISSING_GENES, MISSING_IN_SHEETS, MISSING_IN_TABLES, is_missing


@pytest.mark.parametrize("value", ["", " ", "NA", "n/a", "NaN", "null", "No data", "unknown"])
def test_words_that_are_missing_everywhere(value: str) -> None:
    assert all(is_missing(value, words) for words in (MISSING_GENES, MISSING_IN_SHEETS, MISSING_IN_TABLES))


@pytest.mark.parametrize(
    ("value", "sheet", "table", "gene"),
    [
        ("none", False, True, True),
        ("unresolved", False, True, True),
        (".", False, True, True),
        ("-", False, False, True),
        ("?", True, False, False),
        ("#N/A", True, False, False),
        ("Missing", True, False, False),
        ("0", False, False, False),
    ],
)
def test_words_that_depend_on_who_writes(value: str, sheet: bool, table: bool, gene: bool) -> None:
    found = [is_missing(value, words) for words in (MISSING_IN_SHEETS, MISSING_IN_TABLES, MISSING_GENES)]
    assert found == [sheet, table, gene]
