"""Compiled search for the sequences that carry a pattern, and for the residues in and around its positions.

Residues are indices, and sequences are end to end; an index of 20 or more matches nothing. Letters: R residues, N
sequences, M patterns, W positions of a pattern, P positions of a pattern with its flanks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import INVALID
from deeprc.errors import InputError
from deeprc.interpretation.motifs.patterns import Masks

__all__ = [
    "count_pattern_carriers",
    "count_prefixes",
    "count_residues",
    "erase_matches",
    "find_freed_residues",
]

_WORD = 64
_BLOCK = 16_384  # number of sequences that one thread reads at a time
_MAX_RESIDUES = 20


class _Automaton(NamedTuple):
    """Patterns side by side in 64-bit words; a bit of a word is one position of one pattern (shift-and algorithm).

    `letters` (words, 256): bits of the positions that accept a residue; `first`, `last` (words,): bits of the first and
    last positions of patterns; `bit` (M,): bit of the last position of each pattern; `members` (words + 1,): pattern m
    is in word w if members[w] <= m < members[w + 1].
    """

    letters: NDArray[np.uint64]
    first: NDArray[np.uint64]
    last: NDArray[np.uint64]
    bit: NDArray[np.uint64]
    members: NDArray[np.int64]


def _build_automaton(patterns: Sequence[Masks]) -> _Automaton:
    """Return the tables with which patterns are searched side by side."""
    places = _place_patterns(patterns)
    n_words = 1 + max((place.word for place in places), default=0)
    letters = np.zeros((n_words, 256), np.uint64)
    first, last = np.zeros((2, n_words), np.uint64)
    residues = np.arange(_MAX_RESIDUES, dtype=np.uint64)
    for masks, (word, first_bit, last_bit) in zip(patterns, places, strict=True):
        accepted = masks[:, None].astype(np.uint64) >> residues & np.uint64(1)  # (W, 20)
        bits = np.arange(first_bit, last_bit + 1, dtype=np.uint64)
        letters[word, :_MAX_RESIDUES] |= np.bitwise_or.reduce(accepted << bits[:, None], axis=0)
        first[word] |= np.uint64(1) << bits[0]
        last[word] |= np.uint64(1) << bits[-1]
    last_bits = np.array([place.last_bit for place in places], np.uint64)
    members = np.searchsorted([place.word for place in places], np.arange(n_words + 1))
    return _Automaton(letters, first, last, last_bits, members)


class _Place(NamedTuple):
    """The bits of a pattern: index of the word, and its first and last bit there."""

    word: int
    first_bit: int
    last_bit: int


def _place_patterns(patterns: Sequence[Masks]) -> list[_Place]:
    """Return the bits of each pattern, one after the other; no pattern is divided between words."""
    places = list[_Place]()
    word, n_used = 0, 0
    for masks in patterns:
        if not 0 < len(masks) <= _WORD:
            raise InputError(f"a pattern to match has {len(masks)} positions; expected 1 to {_WORD}")
        if n_used + len(masks) > _WORD:
            word, n_used = word + 1, 0
        places.append(_Place(word, n_used, n_used + len(masks) - 1))
        n_used += len(masks)
    return places


def count_pattern_carriers(
    residues: NDArray[np.uint8], offsets: NDArray[np.int64], patterns: Sequence[Masks]
) -> NDArray[np.int64]:
    """Return the number of sequences that carry each pattern anywhere, (M,), on all cores.

    Parameters
    ----------
    residues, offsets
        Residues of the sequences, (R,), and their offsets, (N + 1,).
    patterns
        Patterns, each with at most 64 positions.
    """
    n = len(offsets) - 1
    if not n or not patterns:
        return np.zeros(len(patterns), np.int64)
    arguments = np.asarray(residues), np.asarray(offsets), _build_automaton(patterns)
    return np.asarray(np.sum(run_in_blocks(_count_matches, n, _BLOCK, *arguments), axis=0))


@njit(nogil=True, inline="always")
def _match_patterns(residues, start, stop, letters, first, last):  # type: ignore[no-untyped-def]
    """Return the last bits of those patterns of one word that match anywhere in one sequence."""
    state, ends_reached = np.uint64(0), np.uint64(0)
    for at in range(uint64(start), uint64(stop)):  # unsigned, so that numba omits the code for negative indices
        state = ((state << np.uint64(1)) | first) & letters[residues[at]]
        ends_reached |= state
    return ends_reached & last


@njit(nogil=True)
def _count_matches(
    start: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    automaton: _Automaton,
) -> NDArray[np.int64]:
    """Return how many of the sequences from `start` to `stop` match each pattern, (M,)."""
    letters, first, last, bit, members = automaton
    counts = np.zeros(len(bit), np.int64)
    for row in range(start, stop):
        for w in range(len(first)):
            matches = _match_patterns(residues, offsets[row], offsets[row + 1], letters[w], first[w], last[w])
            if matches:
                for m in range(members[w], members[w + 1]):
                    if (matches >> bit[m]) & np.uint64(1):
                        counts[m] += 1
    return counts


def find_freed_residues(
    residues: NDArray[np.uint8], offsets: NDArray[np.int64], masks: Masks, flank: int
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return the residues that a sequence has at each position in and around a pattern if all other positions match.

    Returns
    -------
    The rows of the n sequences with any such residue, ascending, (n,); and their bits, (n, flank + W + flank) uint32:
    bit r of a position is set if a window of the sequence has residue r there, and every other position of the pattern
    matches.
    """
    rows = np.empty(len(offsets) - 1, np.int64)
    bits = np.zeros((len(rows), len(masks) + 2 * flank), np.uint32)  # memory that is not touched costs nothing
    n = _mark_freed_residues(residues, offsets, masks, flank, rows, bits)
    return rows[:n], bits[:n]


@njit(nogil=True)
def _mark_freed_residues(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    masks: NDArray[np.uint32],
    flank: int,
    rows: NDArray[np.int64],
    bits: NDArray[np.uint32],
) -> int:
    """Write what `find_freed_residues` returns, and return n: a window with one mismatch frees only this position."""
    width, n = len(masks), 0
    for row in range(len(offsets) - 1):
        first, stop, any_window = offsets[row], offsets[row + 1], False
        for start in range(first, stop - width + 1):
            misses, missed = 0, np.int64(0)
            for j in range(uint64(width)):  # unsigned, so that numba omits the code for negative indices
                r = residues[uint64(start) + j]
                if r >= _MAX_RESIDUES or not (masks[j] >> np.uint32(r)) & np.uint32(1):
                    misses += 1
                    missed = np.int64(j)
                    if misses > 1:
                        break
            if misses > 1:
                continue
            low, high = (missed, missed + 1) if misses else (-flank, width + flank)
            for j in range(max(low, first - start), min(high, stop - start)):
                r = residues[start + j]
                if r < _MAX_RESIDUES:
                    bits[n, flank + j] |= np.uint32(1) << np.uint32(r)
                    any_window = True
        if any_window:
            rows[n] = row
            n += 1
    return n


@njit(nogil=True)
def count_residues(bits: NDArray[np.uint32], n_first: int) -> NDArray[np.int64]:
    """Count the rows of bits, (N, P), with each residue, separately for the first rows and the others: (P, 20, 2)."""
    counts = np.zeros((bits.shape[1], _MAX_RESIDUES, 2), np.int64)
    for row in range(len(bits)):
        side = 0 if row < n_first else 1
        for position in range(bits.shape[1]):
            mask = bits[row, position]
            if mask:
                for r in range(_MAX_RESIDUES):
                    if (mask >> np.uint32(r)) & np.uint32(1):
                        counts[position, r, side] += 1
    return counts


@njit(nogil=True)
def count_prefixes(bits: NDArray[np.uint32], n_first: int, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the rows with any of the first s residues of `order`, (P, 20), in [:, s - 1], like `count_residues`."""
    counts = np.zeros((bits.shape[1], _MAX_RESIDUES, 2), np.int64)
    for row in range(len(bits)):
        side = 0 if row < n_first else 1
        for position in range(bits.shape[1]):
            mask = bits[row, position]
            if mask:
                for i in range(_MAX_RESIDUES):
                    if (mask >> np.uint32(order[position, i])) & np.uint32(1):
                        counts[position, i, side] += 1
                        break
    for position in range(bits.shape[1]):
        for i in range(1, _MAX_RESIDUES):
            for side in range(2):
                counts[position, i, side] += counts[position, i - 1, side]
    return counts


def erase_matches(residues: NDArray[np.uint8], offsets: NDArray[np.int64], masks: Masks) -> NDArray[np.uint8]:
    """Return the residues, (R,), with every window that matches a pattern replaced by `INVALID`."""
    remaining = np.array(residues)
    _erase_pattern(residues, offsets, masks, remaining)
    return remaining


@njit(nogil=True)
def _erase_pattern(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    masks: NDArray[np.uint32],
    remaining: NDArray[np.uint8],
) -> None:
    """Set the residues of all matches of a pattern to invalid in `remaining`."""
    width = len(masks)
    for row in range(len(offsets) - 1):
        for start in range(offsets[row], offsets[row + 1] - width + 1):
            matches = True
            for j in range(width):
                r = residues[start + j]
                if r >= _MAX_RESIDUES or not (masks[j] >> np.uint32(r)) & np.uint32(1):
                    matches = False
                    break
            if matches:
                for j in range(width):
                    remaining[start + j] = INVALID
