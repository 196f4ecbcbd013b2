"""Grouping rows: the same by a dictionary, in one part and in many."""

import numpy as np
import pytest

from deeprc.datasets import alphabet, merging
from deeprc.datasets.alphabet import encode_many, take
from deeprc.datasets.merging import group_rows
from deeprc.datasets.sequences import Sequences

LETTERS = np.array(list("ACDE"))


@pytest.mark.parametrize("at_once", [7, 100, 1 << 19])
@pytest.mark.parametrize("n_codes", [0, 1, 2])
def test_groups_are_those_of_a_dictionary(monkeypatch: pytest.MonkeyPatch, at_once: int, n_codes: int) -> None:
    monkeypatch.setattr(merging, "_ROWS_AT_ONCE", at_once)
    rng = np.random.default_rng(at_once + n_codes)
    texts = [
        "".join(rng.choice(LETTERS, rng.integers(1, 4))) for _ in range(2000)
    ]  # anagrams of each other, many twice
    rows = np.flatnonzero(rng.random(len(texts)) < 0.7)
    by = [rng.integers(0, 3, len(rows)) for _ in range(n_codes)]
    counts = rng.integers(1, 2**32, len(rows), dtype=np.uint32)
    expected: dict[tuple[object, ...], tuple[int, int]] = {}
    for place, row in enumerate(rows.tolist()):
        key = (texts[row], *(int(codes[place]) for codes in by))
        first, total = expected.get(key, (place, 0))
        expected[key] = (first, total + int(counts[place]))
    first, total = group_rows(Sequences.encode(texts), rows, by, counts)
    assert list(zip(first.tolist(), total.tolist(), strict=True)) == list(expected.values())
    assert len(first) < len(rows)


def test_equal_rows_are_in_one_part_and_parts_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_ROWS_AT_ONCE", 500)
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list(alphabet.AMINO_ACIDS), 12)) for _ in range(4500)]
    parts = list(merging._split_by_hash(Sequences.encode(texts + texts[:500]), np.arange(5000)))
    part_of = np.empty(5000, int)
    for number, part in enumerate(parts):
        assert (np.diff(part) > 0).all()
        part_of[part] = number
    assert sorted(np.concatenate(parts).tolist()) == list(range(5000))
    assert (part_of[4500:] == part_of[:500]).all()
    assert len(parts) == 10
    assert max(map(len, parts)) < 700  # 500 on average


def test_rows_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alphabet, "_ROWS_AT_ONCE", 3)
    texts = ["CASS", "", "A", "CDEF", "GHI", "KL", "M"]
    rows = np.array([6, 0, 0, 3, 1, 5, 2, 4])
    residues, offsets = take(*encode_many(texts), rows)
    assert alphabet.decode_many(residues, offsets) == [texts[row] for row in rows]
