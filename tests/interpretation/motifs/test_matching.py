"""Patterns as text and bits, and compiled matching against regular expressions."""

from __future__ import annotations

import math
import re

import numba
import numpy as np
import pytest

from deeprc.datasets.alphabet import AMINO_ACIDS, INVALID, decode, encode_many
from deeprc.errors import InputError
from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.interpretation.motifs.matching import (
    count_pattern_carriers,
    count_prefixes,
    count_residues,
    erase_matches,
    find_freed_residues,
)
from deeprc.interpretation.motifs.patterns import ANY, LONGEST, compute_pattern_cost, format_pattern, trim_pattern
from deeprc.interpretation.motifs.search import Candidate, improve_pattern
from tests.conftest import random_sequences
from tests.interpretation.motifs.parsing import pattern_of

TEXTS = ["A", "LD", "L.R", "[AC][DE]", "[^CDEFGHI]A", "W..[KR]", "A........A", "[^A]", "Y[ACDEFGHIKL]Y"]


def sequences() -> list[str]:
    return [*random_sequences(np.random.default_rng(3), 500, 1, 22), "", "LDRLDR", "A", "LA"]


@pytest.mark.parametrize("text", [*TEXTS, "LDR[WY]", ".", "A.", "C[^P]F"])
def test_a_pattern_is_read_as_it_is_written(text: str) -> None:
    assert format_pattern(pattern_of(text)) == text


def test_masks_by_hand() -> None:
    assert pattern_of("A[CD].[^A]").tolist() == [1, 0b110, ANY, ANY - 1]
    assert format_pattern(trim_pattern(pattern_of("..L.R."))) == "L.R"
    assert format_pattern(trim_pattern(pattern_of("..."))) == ""


def test_the_cost_by_hand_and_that_all_patterns_share_at_most_one() -> None:
    assert compute_pattern_cost(pattern_of("L.[RK]")) == pytest.approx(math.log(12 * (4 * 20) * 2 * (8 * 190)))
    of_one_position = 0.5 + sum(math.comb(20, s) / (2 ** (s + 1) * math.comb(20, s)) for s in range(1, 20))
    assert of_one_position <= 1
    assert sum(of_one_position**width / LONGEST for width in range(1, LONGEST + 1)) <= 1


def test_carriers_are_those_of_a_regular_expression() -> None:
    texts = [text for text in TEXTS for _ in range(4)]  # more than one word of 64 positions
    residues, offsets = encode_many(sequences())
    expected = np.array([[bool(re.search(text, sequence)) for text in texts] for sequence in sequences()])
    patterns = [pattern_of(text) for text in texts]
    each = [count_pattern_carriers(residues, offsets[i : i + 2], patterns) for i in range(0, len(expected), 10)]
    assert np.array_equal(each, expected[::10])
    assert np.array_equal(count_pattern_carriers(residues, offsets, patterns), expected.sum(axis=0))
    assert np.array_equal(count_pattern_carriers(residues, offsets[100:301], patterns), expected[100:300].sum(axis=0))


def test_counts_do_not_depend_on_the_number_of_threads() -> None:
    residues, offsets = encode_many(sequences())
    patterns, threads = [pattern_of(text) for text in TEXTS], numba.get_num_threads()
    every = count_pattern_carriers(residues, offsets, patterns)
    numba.set_num_threads(1)
    try:
        assert np.array_equal(count_pattern_carriers(residues, offsets, patterns), every)
    finally:
        numba.set_num_threads(threads)


def test_nothing_to_match() -> None:
    residues, offsets = encode_many([])
    assert count_pattern_carriers(residues, offsets, [pattern_of("A")]).tolist() == [0]
    assert count_pattern_carriers(*encode_many(["A"]), []).shape == (0,)
    with pytest.raises(InputError, match="65 positions; expected 1 to 64"):
        count_pattern_carriers(*encode_many(["A"]), [pattern_of("A" * 65)])
    assert count_pattern_carriers(*encode_many(["A" * 64, "A" * 63]), [pattern_of("A" * 64)]).tolist() == [1]


def test_freed_residues_are_what_a_pattern_with_one_position_open_finds() -> None:
    residues, offsets = encode_many(sequences())
    masks, flank = pattern_of("[LA][DEFG]."), 2
    rows, found_bits = find_freed_residues(residues, offsets, masks, flank)
    assert found_bits.any(axis=1).all()
    bits = np.zeros((len(offsets) - 1, len(masks) + 2 * flank), np.uint32)
    bits[rows] = found_bits
    for row, sequence in enumerate(sequences()):
        for position in range(len(masks) + 2 * flank):
            found = set()
            for start in range(len(sequence) - len(masks) + 1):
                at = start + position - flank
                tokens = ["[LA]", "[DEFG]", "."]
                if 0 <= position - flank < 3:
                    tokens[position - flank] = "."
                if 0 <= at < len(sequence) and re.fullmatch("".join(tokens), sequence[start : start + 3]):
                    found.add(sequence[at])
            assert {AMINO_ACIDS[r] for r in range(20) if bits[row, position] >> r & 1} == found


def test_rows_by_residue_and_by_the_first_residues_of_an_order() -> None:
    bits = np.array([[0b011], [0b100], [0b110], [0]], np.uint32)
    counts = count_residues(bits, 2)
    assert counts[0, :4].tolist() == [[1, 0], [1, 1], [1, 1], [0, 0]]
    order = np.array([[1, 2, 0, *range(3, 20)]])
    assert count_prefixes(bits, 2, order)[0, :4].tolist() == [[1, 1], [2, 1], [2, 1], [2, 1]]


def test_all_windows_that_match_are_erased() -> None:
    residues, offsets = encode_many(["LDRDR", "LRLDD", "DR"])
    remaining = erase_matches(residues, offsets, pattern_of("[LR]D"))
    left = "".join("-" if r == INVALID else decode(np.array([r], np.uint8)) for r in remaining)
    assert left == "----R" + "LR--D" + "DR"
    assert decode(residues) == "LDRDRLRLDDDR"


def test_threads_count_all_sequences_every_time() -> None:
    """Blocks that do not begin at multiples of their largest size have counts of their own."""
    n = 3 * 16_384 - 500
    residues, offsets = np.zeros(10 * n, np.uint8), np.arange(0, 10 * n + 1, 10)
    patterns = [np.array([1, 1], np.uint32)] * 20
    for _ in range(10):
        assert count_pattern_carriers(residues, offsets, patterns).tolist() == [n] * 20


def test_a_pattern_that_an_earlier_seed_passed_ends_where_that_one_did() -> None:
    attended = [f"{text[:4]}LDRW{text[4:]}" for text in random_sequences(np.random.default_rng(0), 100, 8, 12)]
    others = random_sequences(np.random.default_rng(1), 1_000, 12, 16)
    samples = ComparedSequences.of(attended, others)
    known = dict[bytes, Candidate]()
    for seed in map(pattern_of, ("LDR", "DRW", "LDRW", "LD.W")):
        alone, together = improve_pattern(samples, seed), improve_pattern(samples, seed, known)
        assert (together.masks.tolist(), together.score) == (alone.masks.tolist(), alone.score)
        assert improve_pattern(samples, seed, known) is known[seed.tobytes()]
