"""Packed sequences: what is taken, sliced and put together is what the same does to lists of texts."""

import hashlib

import numpy as np
import pytest

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.sequences import Sequences

TEXTS = ["CASSF", "", "CAF", "CW", "CASSLGF"]
V_NAMES = ["TRBV9", "", "TRBV2", "TRBV9", "TRBV5-1"]


@pytest.fixture
def sequences() -> Sequences:
    packed = Sequences.encode(TEXTS)
    counts, witness = np.array([3, 1, 4, 1, 5], np.uint32), np.array([0, 0, 1, 0, 2], np.uint8)
    return Sequences(packed.residues, packed.offsets, counts, Categorical.encode(V_NAMES), witness=witness)


def test_texts_come_back(sequences: Sequences) -> None:
    assert len(sequences) == 5
    assert sequences.decode() == TEXTS
    assert sequences.lengths.tolist() == [5, 0, 3, 2, 7]
    assert (sequences.residues.dtype, sequences.offsets.dtype, sequences.lengths.dtype) == ("u1", "i8", "i8")
    assert Sequences.encode(TEXTS).counts.tolist() == [1] * 5
    assert list(sequences.genes) == ["v_call"]


def test_rows_are_taken_in_any_order(sequences: Sequences) -> None:
    some = sequences.take(np.array([4, 0, 0]))
    assert some.decode() == ["CASSLGF", "CASSF", "CASSF"]
    assert some.counts.tolist() == [5, 3, 3]
    assert some.genes["v_call"].names().tolist() == ["TRBV5-1", "TRBV9", "TRBV9"]
    assert some.j_call is None
    assert some.witness is not None
    assert some.witness.tolist() == [2, 0, 0]


@pytest.mark.parametrize("rows", [[0, 2], [1, 4], [], [0, 1, 2, 3, 4]])
def test_all_but_some_rows_keep_their_order(sequences: Sequences, rows: list[int]) -> None:
    found, kept = sequences.drop(np.array(rows, np.int64)), np.setdiff1d(np.arange(5), rows)
    expected = sequences.take(kept)
    assert found.decode() == expected.decode() == [TEXTS[i] for i in kept]
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert found.counts.tolist() == expected.counts.tolist()
    assert found.genes["v_call"].names().tolist() == [V_NAMES[i] for i in kept]
    assert found.witness is not None
    assert found.witness.tolist() == [[0, 0, 1, 0, 2][i] for i in kept]


def test_a_slice_shares_memory(sequences: Sequences) -> None:
    middle = sequences.slice(1, 4)
    assert middle.decode() == ["", "CAF", "CW"]
    assert middle.offsets.tolist() == [0, 0, 3, 5]
    assert middle.genes["v_call"].names().tolist() == ["", "TRBV2", "TRBV9"]
    assert np.shares_memory(middle.residues, sequences.residues)
    assert np.shares_memory(middle.counts, sequences.counts)
    assert len(sequences.slice(5, 5)) == 0


def test_parts_lie_one_after_the_other(sequences: Sequences) -> None:
    other = sequences.take(np.array([2])).with_genes({"v_call": Categorical.encode(["TRBV30"])})
    both = Sequences.concatenate([sequences, other])
    assert both.decode() == [*TEXTS, "CAF"]
    assert both.counts.tolist() == [3, 1, 4, 1, 5, 4]
    assert both.genes["v_call"].names().tolist() == [*V_NAMES, "TRBV30"]
    assert both.witness is not None
    assert both.witness.tolist() == [0, 0, 1, 0, 2, 1]


def test_genes_and_witnesses_that_one_part_lacks_are_dropped(sequences: Sequences) -> None:
    both = Sequences.concatenate([sequences, Sequences.encode(["CF"])])
    assert (both.genes, both.witness) == ({}, None)
    none = Sequences.concatenate([])
    assert (len(none), none.decode(), none.genes, none.witness) == (0, [], {}, None)


def test_compiled_code_gets_the_genes_that_count(sequences: Sequences) -> None:
    arrays = sequences.arrays(["v_call"])
    assert arrays.v.tolist() == [0, 1, 2, 0, 3]
    assert len(arrays.j) == 0
    assert len(sequences.arrays().v) == 0
    assert arrays.offsets.tolist() == [0, 5, 5, 8, 10, 17]


def test_the_digest_is_of_residues_lengths_and_counts(sequences: Sequences) -> None:
    parts = [sequences.residues, sequences.lengths, sequences.counts]
    expected = hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).hexdigest()
    assert sequences.digest() == expected == sequences.with_genes({}).digest()
    assert sequences.take(np.array([0, 1, 2, 4, 3])).digest() != expected
