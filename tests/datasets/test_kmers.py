"""k-mer counts against a loop over texts."""

from collections import Counter

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprc.datasets.alphabet import AMINO_ACIDS, encode_many
from deeprc.datasets.kmers import count_kmers, list_kmers
from deeprc.errors import InputError

SEQUENCES = st.lists(st.text("ACDY", max_size=9), max_size=12)
PLACES = st.lists(st.integers(1, 3), max_size=3).map(lambda steps: tuple(np.cumsum([0, *steps]).tolist()))


def expected(sequences, places, weights):
    counter = Counter()
    for sequence, weight in zip(sequences, weights, strict=True):
        for start in range(len(sequence) - places[-1]):
            counter["".join(sequence[start + place] for place in places)] += weight
    return counter


def found(sequences, places, weights=None):
    residues, offsets = encode_many(sequences)
    counts = count_kmers(residues, np.diff(offsets), places, weights=weights)
    names = list_kmers(len(places))
    return {names[code]: int(counts[code]) for code in np.flatnonzero(counts)}


@settings(deadline=None, max_examples=60)
@given(SEQUENCES, PLACES, st.data())
def test_counts_are_those_of_a_loop(sequences, places, data):
    assert found(sequences, places) == expected(sequences, places, [1] * len(sequences))
    weights = data.draw(st.lists(st.integers(1, 2**32 - 1), min_size=len(sequences), max_size=len(sequences)))
    array = np.array(weights, np.uint32)
    assert found(sequences, places, array) == expected(sequences, places, weights)


def test_a_hand_counted_example():
    assert found(["CASS", "ASSA", "SS", "S"], (0, 1)) == {"AS": 2, "CA": 1, "SA": 1, "SS": 3}
    assert found(["CASSF"], (0, 2)) == {"CS": 1, "AS": 1, "SF": 1}
    assert found(["CASSF"], (0, 1, 4)) == {"CAF": 1}
    assert found([], (0, 1, 2, 3)) == found(["CAS"], (0, 1, 2, 3)) == {}


def test_names_are_in_the_order_of_letters():
    assert list_kmers(1) == list(AMINO_ACIDS)
    assert list_kmers(2)[:3] == ["AA", "AC", "AD"]
    assert list_kmers(3) == sorted(list_kmers(3))


def test_the_number_of_threads_changes_nothing():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 20, 5000)
    residues = rng.integers(0, 20, lengths.sum()).astype(np.uint8)
    whole = count_kmers(residues, lengths)
    assert whole.sum() == np.maximum(lengths - 3, 0).sum()
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        assert np.array_equal(count_kmers(residues, lengths), whole)
    finally:
        numba.set_num_threads(threads)


@pytest.mark.parametrize(
    "places", [(), (1, 2), (0, 0), (0, 2, 1), tuple(range(7)), "01", 3, None, (0, 1.5), (0, 10**30), ("0",)]
)
def test_places_must_rise_from_zero(places):
    with pytest.raises(InputError, match="kmer_offsets: expected 1 to 6 whole numbers that rise from 0"):
        count_kmers(np.zeros(3, np.uint8), np.array([3]), places)
