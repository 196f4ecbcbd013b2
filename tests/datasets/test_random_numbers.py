import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from deeprc.datasets.random_numbers import derive_key, draw_uniforms, draw_word, draw_words

# The first numbers of the published splitmix64 for the seed 1234567.
PUBLISHED = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]
key = st.integers(0, 2**64 - 1)


def test_words_are_those_of_splitmix64() -> None:
    assert draw_words(1234567, np.arange(5)).tolist() == PUBLISHED
    assert [int(draw_word(np.uint64(1234567), i)) for i in range(5)] == PUBLISHED


@given(key, st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
@settings(deadline=None, max_examples=50)
def test_alone_together_and_compiled_they_are_the_same(key: int, counters: list[int]) -> None:
    together = draw_words(key, np.array(counters))
    assert together.tolist() == [int(draw_words(key, np.array([counter]))[0]) for counter in counters]
    assert together.tolist() == [int(draw_word(np.uint64(key), counter)) for counter in counters]
    each_its_key = draw_words(np.full(len(counters), key, np.uint64), np.array(counters))
    assert together.tolist() == each_its_key.tolist()


def test_a_key_for_each_counter() -> None:
    keys = np.array([3, 2**64 - 1, 0], np.uint64)
    found = draw_words(keys, np.array([5, 0, 7]))
    assert found.tolist() == [int(draw_words(int(k), np.array([c]))[0]) for k, c in zip(keys, [5, 0, 7], strict=True)]


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**40), max_size=4))
@settings(deadline=None, max_examples=50)
def test_a_key_is_64_bits_and_depends_on_every_part(seed: int, parts: list[int]) -> None:
    key = derive_key(seed, *parts)
    assert 0 <= key < 2**64
    assert derive_key(seed + 2**64, *parts) == key
    assert derive_key((seed + 1) % 2**64, *parts) != key
    assert derive_key(seed, *parts, 0) != key
    for place, part in enumerate(parts):
        assert derive_key(seed, *parts[:place], part + 1, *parts[place + 1 :]) != key


def test_no_two_of_many_keys_are_the_same() -> None:
    keys = {derive_key(seed, stream, part) for seed in range(20) for stream in range(10) for part in range(50)}
    keys |= {derive_key(seed, part, stream) for seed in range(20) for stream in range(100, 110) for part in range(50)}
    assert len(keys) == 20_000
    assert derive_key(0, 1, 2) != derive_key(0, 2, 1)


def test_uniforms_are_the_upper_53_bits() -> None:
    counters = np.arange(100)
    found = draw_uniforms(9, counters)
    assert found.tolist() == [int(bits) // 2**11 / 2**53 for bits in draw_words(9, counters)]
    assert found.min() >= 0
    assert found.max() < 1


@pytest.mark.parametrize("counters", [np.arange(100_000), np.arange(100_000) << 20, np.arange(100_000) + (1 << 40)])
def test_uniforms_are_uniform_along_counters(counters: np.ndarray) -> None:
    drawn = draw_uniforms(derive_key(1, 2, 3), counters)
    assert stats.kstest(drawn, "uniform").pvalue > 1e-6
    pairs = np.histogram2d(drawn[::2], drawn[1::2], bins=16, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-6


def test_uniforms_are_uniform_along_seeds_and_parts() -> None:
    for keys in ([derive_key(i, 1, 2) for i in range(20_000)], [derive_key(0, 1, i) for i in range(20_000)]):
        drawn = draw_uniforms(np.array(keys, np.uint64), np.zeros(20_000, np.int64))
        assert stats.kstest(drawn, "uniform").pvalue > 1e-6
        assert stats.chisquare(np.histogram2d(drawn[::2], drawn[1::2], bins=8)[0].ravel()).pvalue > 1e-6
