"""Counter-based random numbers: each is a function of a key and a counter, not of the numbers drawn before it.

A number is the hash of a key and a counter by splitmix64 (Steele et al. 2014), which passes the usual test batteries. A
key is derived from a seed and from the purpose of the numbers, such as a repertoire and a stream. So any number can be
drawn alone, in any order and on any number of threads, and is always the same.
"""

from __future__ import annotations

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit

__all__ = [
    "GOLDEN",
    "MIX_1",
    "MIX_2",
    "derive_key",
    "draw_uniform",
    "draw_uniforms",
    "draw_word",
    "draw_words",
    "mix_words",
]

GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The constants of splitmix64."""

_ALL = (1 << 64) - 1


def derive_key(seed: int, *purpose: int) -> int:
    """Return the key, 64 bits, of a seed and of integers that name its purpose."""
    key = int(seed) & _ALL  # numpy's integers would overflow
    for number in purpose:
        key = _mix_bits((_mix_bits(key + GOLDEN & _ALL) ^ int(number)) + GOLDEN & _ALL)
    return key


def _mix_bits(z: int) -> int:
    z = (z ^ (z >> 30)) * MIX_1 & _ALL
    z = (z ^ (z >> 27)) * MIX_2 & _ALL
    return z ^ (z >> 31)


def draw_words(key: int | NDArray[np.uint64], counters: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return 64 random bits for each counter; there is one key for all, or one for each."""
    with np.errstate(over="ignore"):
        return mix_words(np.uint64(key) + (counters + 1).astype(np.uint64) * np.uint64(GOLDEN))


def mix_words(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers that are spread evenly over all 64 bits, one to one: the last step of splitmix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    return z ^ (z >> np.uint64(31))


def draw_uniforms(key: int | NDArray[np.uint64], counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return random numbers of 53 bits in [0, 1), one for each counter; see `draw_words`."""
    return (draw_words(key, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@njit()
def draw_word(key: int, counter: int) -> int:
    """Return one of `draw_words`, for compiled code; both are 64 bits without a sign."""
    z = uint64(key) + uint64(counter + 1) * uint64(GOLDEN)
    z = (z ^ (z >> uint64(30))) * uint64(MIX_1)
    z = (z ^ (z >> uint64(27))) * uint64(MIX_2)
    return z ^ (z >> uint64(31))  # type: ignore[no-any-return]


@njit()
def draw_uniform(key: int, counter: int) -> float:
    """Return a uniform random number in [0, 1) for a key and a counter; compiled code calls it, see `draw_uniforms`."""
    return float(draw_word(key, counter) >> uint64(11)) * 2.0**-53
