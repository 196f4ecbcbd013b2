from collections.abc import Mapping

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets, decode_many
from deeprc.datasets.random_numbers import derive_key
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import RESIDUE_WEIGHTS, IndependentBackground
from deeprc.errors import InputError

ROWS = np.arange(50_000)


def texts(drawn: Sequences) -> list[str]:
    return decode_many(drawn.residues, compute_offsets(drawn.lengths))


@pytest.fixture(scope="module")
def drawn() -> Sequences:
    return IndependentBackground().draw(derive_key(7), ROWS)


def assert_distributed(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Assert by chi-square, those expected less than 5 times together; what is impossible never occurs."""
    expected = probabilities * counts.sum()
    assert not counts[probabilities == 0].any()
    rare = expected < 5
    counts, expected = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > 1e-6


def normal_lengths(mean: float, sd: float) -> np.ndarray:
    """Return the probability of each rounded length from 0 to 64, what is beyond 1 or 64 added to them."""
    probabilities = np.array([stats.norm.cdf(n + 0.5, mean, sd) - stats.norm.cdf(n - 0.5, mean, sd) for n in range(65)])
    probabilities[0], probabilities[1] = 0, stats.norm.cdf(1.5, mean, sd)
    probabilities[64] = stats.norm.sf(63.5, mean, sd)
    return probabilities


def test_the_weights_are_of_all_amino_acids_and_sum_to_65536() -> None:
    assert "".join(RESIDUE_WEIGHTS) == AMINO_ACIDS
    assert sum(RESIDUE_WEIGHTS.values()) == 65_536


def test_residues_have_their_frequencies(drawn: Sequences) -> None:
    weights = np.array([RESIDUE_WEIGHTS[letter] for letter in AMINO_ACIDS]) / 65_536
    assert_distributed(np.bincount(drawn.residues, minlength=20), weights)


def test_residues_have_their_frequencies_at_every_position(drawn: Sequences) -> None:
    weights = np.array([RESIDUE_WEIGHTS[letter] for letter in AMINO_ACIDS]) / 65_536
    starts = compute_offsets(drawn.lengths)[:-1]
    for position in range(16):
        long = drawn.lengths > position
        assert_distributed(np.bincount(drawn.residues[starts[long] + position], minlength=20), weights)


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5])
def test_residues_are_independent_of_their_neighbours(drawn: Sequences, distance: int) -> None:
    owner = np.repeat(ROWS, drawn.lengths)
    same = owner[distance:] == owner[:-distance]
    pairs = drawn.residues[:-distance][same].astype(int) * 20 + drawn.residues[distance:][same]
    weights = np.array([RESIDUE_WEIGHTS[letter] for letter in AMINO_ACIDS]) / 65_536
    # Pairs that overlap would not be independent of each other: of those that do, one is taken.
    assert_distributed(np.bincount(pairs[:: 2 * distance + 1], minlength=400), np.outer(weights, weights).ravel())


@pytest.mark.parametrize(("mean", "sd"), [(14.5, 1.8), (3, 2.5), (62, 3), (1, 1), (20, 0.1)])
def test_lengths_are_rounded_normal(mean: float, sd: float) -> None:
    background = IndependentBackground(mean, sd)
    assert background.length_probabilities == pytest.approx(normal_lengths(mean, sd), abs=1e-12)
    lengths = background.draw(derive_key(3), ROWS).lengths
    assert_distributed(np.bincount(lengths, minlength=65), normal_lengths(mean, sd))


@pytest.mark.parametrize(("mean", "length"), [(14.5, 15), (14.4, 14), (1, 1), (64, 64), (63.6, 64)])
def test_without_a_deviation_all_have_the_mean_length(mean: float, length: int) -> None:
    assert set(IndependentBackground(mean, 0).draw(derive_key(1), ROWS[:1000]).lengths.tolist()) == {length}


def test_lengths_say_nothing_about_residues_or_the_next_length(drawn: Sequences) -> None:
    first = drawn.residues[compute_offsets(drawn.lengths)[:-1]]
    odd = drawn.lengths % 2
    table = np.array([np.bincount(first[odd == each], minlength=20) for each in (0, 1)])
    assert stats.chi2_contingency(table).pvalue > 1e-6
    table = np.histogram2d(np.clip(drawn.lengths[::2], 12, 17), np.clip(drawn.lengths[1::2], 12, 17), bins=6)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-6


@given(st.lists(st.integers(0, len(ROWS) - 1), max_size=60))
@settings(deadline=None, max_examples=30)
def test_rows_drawn_alone_are_those_drawn_together(rows: list[int]) -> None:
    background = IndependentBackground()
    everything = texts(background.draw(derive_key(7), ROWS[: max(rows, default=0) + 1]))
    assert texts(background.draw(derive_key(7), np.array(rows, np.int64))) == [everything[row] for row in rows]


def test_any_number_of_threads_draws_the_same(drawn: Sequences) -> None:
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = IndependentBackground().draw(derive_key(7), ROWS)
    finally:
        numba.set_num_threads(before)
    assert (alone.residues == drawn.residues).all()
    assert (alone.lengths == drawn.lengths).all()


def test_another_key_draws_others(drawn: Sequences) -> None:
    other = texts(IndependentBackground().draw(derive_key(8), ROWS[:1000]))
    assert not set(other) & set(texts(drawn))


def test_residues_have_the_weights_that_are_given() -> None:
    background = IndependentBackground(10, 0, {"A": 16_384, "W": 49_152})
    residues = background.draw(derive_key(1), ROWS).residues
    counts = np.bincount(residues, minlength=20)
    expected = np.zeros(20)
    expected[[AMINO_ACIDS.index("A"), AMINO_ACIDS.index("W")]] = 0.25, 0.75
    assert_distributed(counts, expected)


def test_no_rows_give_no_sequences() -> None:
    drawn = IndependentBackground().draw(derive_key(1), ROWS[:0])
    assert len(drawn.residues) == len(drawn.lengths) == 0
    assert drawn.v_call is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean_length": 0.5}, "expected a mean_length of 1 to 64 and an sd_length of 0 to 64, found 0.5 and 1.8"),
        ({"mean_length": 65}, "found 65 and 1.8"),
        ({"mean_length": float("nan")}, "found nan and 1.8"),
        ({"sd_length": -1}, "found 14.5 and -1"),
        ({"sd_length": float("inf")}, "found 14.5 and inf"),
        ({"weights": {"A": 1}}, "expected weights of amino acids that sum to 65536"),
        ({"weights": {"X": 65_536}}, "expected weights of amino acids that sum to 65536"),
        ({"weights": {}}, "expected weights of amino acids that sum to 65536"),
        ({"weights": {"A": 70_000, "C": -4464}}, "expected weights of amino acids"),
    ],
)
def test_an_invalid_background_is_refused(options: Mapping[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        IndependentBackground(**options)  # type: ignore[arg-type]
