"""Amino acids as bytes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deeprc.datasets.alphabet import (
    AMINO_ACIDS,
    INVALID,
    decode,
    decode_many,
    encode,
    encode_many,
    invert_order,
    take,
)

sequences = st.lists(st.text(AMINO_ACIDS, max_size=30), max_size=20)


def test_index_is_the_position_in_the_alphabet():
    assert encode("ACDEFGHIKLMNPQRSTVWY").tolist() == list(range(20))


def test_lower_case_is_upper_cased():
    assert decode(encode("cassf")) == "CASSF"


def test_everything_else_is_invalid():
    assert set(encode("BJOUXZ*_~#?-. 1bjouxzß\u2215").tolist()) == {INVALID}


def test_one_index_per_character_whatever_the_character():
    residues, offsets = encode_many(["Cß", "", "A\u2215F"])
    assert offsets.tolist() == [0, 2, 2, 5]
    assert residues.tolist() == [1, INVALID, 0, INVALID, 4]


@given(sequences)
def test_decode_many_inverts_encode_many(texts: list[str]):
    residues, offsets = encode_many(texts)
    assert residues.dtype == np.uint8
    assert decode_many(residues, offsets) == texts


def test_some_of_the_sequences_are_taken():
    residues, offsets = encode_many(["CASSF", "", "CAF", "W"])
    for rows in ([], [2], [3, 0, 1, 0], [1, 1]):
        found = decode_many(*take(residues, offsets, np.array(rows, np.int64)))
        assert found == [["CASSF", "", "CAF", "W"][row] for row in rows]


def test_sorted_rows_go_back_to_their_places():
    values = np.array([30, 10, 20, 10])
    order = np.argsort(values, kind="stable")
    assert invert_order(order).tolist() == [3, 0, 2, 1]
    assert values[order][invert_order(order)].tolist() == values.tolist()
    assert invert_order(np.zeros(0, np.int64)).tolist() == []
