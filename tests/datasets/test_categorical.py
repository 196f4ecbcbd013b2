"""Categorical names: what is taken, put together and recoded is what the same does to the texts."""

import numpy as np

from deeprc.datasets.categorical import Categorical, extend_vocabulary

NAMES = ["TRBV9", "", "TRBV2", "TRBV9", "TRBV9", ""]


def test_names_are_coded_in_the_order_in_which_they_occur() -> None:
    calls = Categorical.encode(NAMES)
    assert calls.vocabulary == ("TRBV9", "", "TRBV2")
    assert calls.codes.tolist() == [0, 1, 2, 0, 0, 1]
    assert calls.codes.dtype == np.uint16
    assert calls.names().tolist() == NAMES
    assert [calls.get_name(row) for row in range(len(calls))] == NAMES
    assert calls.count_occurrences().tolist() == [3, 2, 1]


def test_some_rows_keep_the_vocabulary_until_unused_names_are_dropped() -> None:
    some = Categorical.encode(NAMES).take(np.array([5, 2]))
    assert some.names().tolist() == ["", "TRBV2"]
    assert some.vocabulary == ("TRBV9", "", "TRBV2")
    assert some.drop_unused().vocabulary == ("", "TRBV2")
    assert some.drop_unused().names().tolist() == ["", "TRBV2"]
    none = some.take(np.zeros(0, np.int64)).drop_unused()
    assert (len(none), none.vocabulary) == (0, ())


def test_a_slice_is_a_view() -> None:
    calls = Categorical.encode(NAMES)
    assert np.shares_memory(calls.take(slice(2, 4)).codes, calls.codes)
    assert calls.take(slice(2, 4)).names().tolist() == ["TRBV2", "TRBV9"]


def test_parts_get_one_vocabulary() -> None:
    parts = [Categorical.encode(["b", "a"]), Categorical.encode([]), Categorical.encode(["c", "a", "c"])]
    both = Categorical.concatenate(parts)
    assert both.vocabulary == ("b", "a", "c")
    assert both.names().tolist() == ["b", "a", "c", "a", "c"]
    assert both.codes.dtype == np.uint16
    assert Categorical.concatenate([]).vocabulary == ()


def test_a_vocabulary_that_outgrows_16_bits_gets_wider_codes() -> None:
    parts = [Categorical(np.array([part]), tuple(f"{part}.{n}" for n in range(2**15 + 1))) for part in (0, 1)]
    narrow = [Categorical(part.codes.astype(np.uint16), part.vocabulary) for part in parts]
    both = Categorical.concatenate(narrow)
    assert both.codes.dtype == np.uint32
    assert both.names().tolist() == ["0.0", "1.1"]


def test_codes_in_another_vocabulary() -> None:
    assert Categorical.encode(NAMES).encode_with(["", "TRBV9"]).tolist() == [1, 0, -1, 1, 1, 0]


def test_a_vocabulary_grows_at_its_end() -> None:
    known = {"a": 0}
    assert extend_vocabulary(known, ["b", "a", "b"]).tolist() == [1, 0, 1]
    assert known == {"a": 0, "b": 1}


def test_weights_are_summed_by_name() -> None:
    calls = Categorical(np.array([2, 0, 2], np.uint16), ("A", "unused", "B"))
    assert calls.sum_weights(np.array([0.5, 3.0, 0.25])).tolist() == [3.0, 0.0, 0.75]
    assert Categorical.unknown(0).sum_weights(np.zeros(0)).tolist() == [0.0]
