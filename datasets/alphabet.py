"""Amino acids as bytes: the alphabet of the container, encoding, decoding, and rows that lie end to end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AMINO_ACIDS",
    "INVALID",
    "MAX_LENGTH",
    "compute_offsets",
    "decode",
    "decode_many",
    "encode",
    "encode_letters",
    "encode_many",
    "invert_order",
    "take",
]

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
"""The 20 amino acids in the order of their indices, one-letter codes, alphabetical."""

INVALID = 255
"""The index of every character that is not one of the 20 amino acids in upper or lower case."""

MAX_LENGTH = 255
"""Number of residues of the longest sequence; tables of positions grow with its square."""

_ROWS_AT_ONCE = 1 << 16
_LETTERS = np.frombuffer(AMINO_ACIDS.encode(), dtype=np.uint8)
_INDEX = np.full(256, INVALID, dtype=np.uint8)
_INDEX[_LETTERS] = np.arange(20, dtype=np.uint8)
_INDEX[_LETTERS + 32] = np.arange(20, dtype=np.uint8)  # lower case


def encode(sequence: str) -> NDArray[np.uint8]:
    """Return the residues of one sequence as indices, (R,) uint8; `INVALID` for a letter that is not an amino acid."""
    return _INDEX[np.frombuffer(sequence.encode("ascii", "replace"), dtype=np.uint8)]


def encode_letters(letters: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return ASCII letters, (R,) uint8, as indices, (R,) uint8; `INVALID` for a letter that is not an amino acid."""
    return _INDEX[letters]


def compute_offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offsets of N rows that lie end to end, (N + 1,), from their lengths, (N,); the last is their end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def invert_order(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the inverse of a permutation, (n,): the position of each row in `order`, (n,)."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return position


def take(
    values: NDArray[np.uint8], offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the values of the chosen `rows`, (n,), end to end, and their offsets, (n + 1,).

    Beside the result, it takes some megabytes of memory, whatever the number of rows.
    """
    new = compute_offsets(offsets[rows + 1] - offsets[rows])
    result = np.empty(new[-1], values.dtype)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = rows[start : start + _ROWS_AT_ONCE]
        bounds = new[start : start + len(block) + 1]
        shift = np.repeat(offsets[block] - bounds[:-1], np.diff(bounds))
        shift += np.arange(bounds[0], bounds[-1])
        result[bounds[0] : bounds[-1]] = values[shift]
    return result, new


def encode_many(sequences: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the residues of N sequences end to end, (R,) uint8, and their offsets, (N + 1,) int64."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    return encode("".join(sequences)), compute_offsets(lengths)


def decode(residues: NDArray[np.uint8]) -> str:
    """Return one sequence's letters from its residue indices, (R,) uint8."""
    return _LETTERS[residues].tobytes().decode("ascii")


def decode_many(residues: NDArray[np.uint8], offsets: NDArray[np.int64]) -> list[str]:
    """Return the N sequences that lie end to end in `residues`; offsets, (N + 1,), count from its start."""
    letters = decode(residues)
    bounds = offsets.tolist()
    return [letters[start:stop] for start, stop in pairwise(bounds)]
