"""Hash sequences with their genes, and compare two sequences; compiled code finds clones in this way.

If two hashes are equal, the sequences are compared; only the ranking of `deeprc airr-ml` takes sequences with equal
hashes as one. The hash is Zobrist's: the exclusive or of random bits of each residue at its position, and of the length
and the genes. So a hash without one residue, or of every second residue, costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.random_numbers import GOLDEN, MIX_1, MIX_2, draw_words
from deeprc.datasets.sequences import SequenceArrays

if TYPE_CHECKING:
    from deeprc.datasets.dataset import RepertoireDataset

__all__ = [
    "NO_POSITION",
    "are_equal",
    "count_mismatches",
    "differ_only_at",
    "hash_halves",
    "hash_length_and_genes",
    "hash_lengths_and_genes",
    "hash_row",
    "hash_rows",
    "hash_sequences",
    "leave_out",
    "leave_out_of_each",
]

NO_POSITION = -1
"""For `differ_only_at`: the sequences differ at no position."""

_POSITIONS, _CODES = 256, 32  # powers of 2; positions and codes beyond them share the bits of others
_LEFT_OUT = _CODES - 1  # stands for a residue that is left out
_BITS = draw_words(0, np.arange(_POSITIONS * _CODES)).reshape(_POSITIONS, _CODES)


@njit(inline="always")
def _hash_residue(position: Any, residue: Any) -> Any:
    return _BITS[position & uint64(_POSITIONS - 1), uint64(residue) & uint64(_CODES - 1)]


@njit(inline="always")
def hash_length_and_genes(sequences: SequenceArrays, row: Any) -> Any:
    """Return the hash of a sequence's length and of its genes' codes; for compiled code."""
    length = uint64(sequences.offsets[row + 1]) - uint64(sequences.offsets[row])
    v = uint64(sequences.v[row]) if len(sequences.v) > 0 else uint64(0)
    j = uint64(sequences.j[row]) if len(sequences.j) > 0 else uint64(0)
    z = (length << uint64(32) | v << uint64(16) | j) * uint64(GOLDEN)  # below: splitmix64, as in `random_numbers`
    z = (z ^ (z >> uint64(30))) * uint64(MIX_1)
    z = (z ^ (z >> uint64(27))) * uint64(MIX_2)
    return z ^ (z >> uint64(31))


@njit(inline="always")
def hash_halves(sequences: SequenceArrays, row: Any) -> tuple[Any, Any]:
    """Return two hashes of residues: of the last residue and every second one before it, and of the others.

    For compiled code. Unsigned numbers save the test for negative ones.
    """
    first = uint64(sequences.offsets[row])
    half, other = uint64(0), uint64(0)
    for i in range(uint64(sequences.offsets[row + 1]) - first):
        half, other = other ^ _hash_residue(i, sequences.residues[first + i]), half
    return half, other


@njit(inline="always")
def leave_out(full_hash: Any, position: Any, residue: Any) -> Any:
    """Return the hash of a sequence without one residue, from that of the whole sequence; for compiled code."""
    return full_hash ^ _hash_residue(position, residue) ^ _hash_residue(position, _LEFT_OUT)


def leave_out_of_each(hashes: NDArray[np.uint64], position: int, residues: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return `leave_out` of sequences, (n,), from their hashes and their residues at the position, (n,) each."""
    bits = _BITS[position & (_POSITIONS - 1)]
    return np.asarray(hashes ^ bits[residues] ^ bits[_LEFT_OUT])


@njit(nogil=True)
def hash_row(sequences: SequenceArrays, row: int) -> Any:
    """Return the hash of one sequence and of its genes' codes, 64 bits without a sign; for compiled code."""
    half, other = hash_halves(sequences, row)
    return hash_length_and_genes(sequences, row) ^ half ^ other


@njit(nogil=True)
def differ_only_at(a: SequenceArrays, i: int, b: SequenceArrays, k: int, position: int) -> Any:
    """Return whether sequence i of a and sequence k of b are equal but for the residue at one position, which differs.

    Equal are their lengths, their genes and all other residues. For `NO_POSITION`, return whether the sequences are
    equal. For compiled code.
    """
    n = a.offsets[i + 1] - a.offsets[i]
    if n != b.offsets[k + 1] - b.offsets[k]:
        return False
    if len(a.v) > 0 and a.v[i] != b.v[k]:
        return False
    if len(a.j) > 0 and a.j[i] != b.j[k]:
        return False
    first, second = a.offsets[i], b.offsets[k]
    for at in range(n):  # noqa: SIM110 (compiled)
        if (a.residues[first + at] != b.residues[second + at]) != (at == position):
            return False
    return True


@njit(nogil=True)
def are_equal(a: SequenceArrays, i: int, b: SequenceArrays, k: int) -> Any:
    """Return whether sequence i of a and sequence k of b have the same residues and gene codes; for compiled code."""
    return differ_only_at(a, i, b, k, NO_POSITION)


@njit(nogil=True)
def count_mismatches(a: SequenceArrays, i: int, b: SequenceArrays, k: int, limit: int) -> int:
    """Return the number of positions at which sequence i of a and sequence k of b differ, or any number above a limit.

    It is above the limit, too, if the lengths or the genes of the two differ. For compiled code.
    """
    n = a.offsets[i + 1] - a.offsets[i]
    if n != b.offsets[k + 1] - b.offsets[k]:
        return limit + 1
    if len(a.v) > 0 and a.v[i] != b.v[k]:
        return limit + 1
    if len(a.j) > 0 and a.j[i] != b.j[k]:
        return limit + 1
    first, second, n_mismatches = a.offsets[i], b.offsets[k], 0
    for at in range(n):
        n_mismatches += a.residues[first + at] != b.residues[second + at]
        if n_mismatches > limit:
            break
    return n_mismatches


@njit(nogil=True)
def hash_lengths_and_genes(sequences: SequenceArrays, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hashes of the lengths and genes, (n,), of the sequences at some rows, (n,)."""
    hashes = np.empty(len(rows), np.uint64)
    for i in range(len(rows)):
        hashes[i] = hash_length_and_genes(sequences, rows[i])
    return hashes


@njit(nogil=True)
def hash_rows(sequences: SequenceArrays, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hashes, (n,), of the sequences at some rows, (n,)."""
    hashes = np.empty(len(rows), np.uint64)
    for i in range(len(rows)):
        hashes[i] = hash_row(sequences, rows[i])
    return hashes


def hash_sequences(
    dataset: RepertoireDataset, rows: NDArray[np.int64], gene_fields: Collection[str] = ()
) -> NDArray[np.uint64]:
    """Return hashes of the residues, and of the genes in `gene_fields`, of some sequences of a container, (n,).

    Hashes of residues alone give an arbitrary, but stable order; genes are hashed by their codes in the container.

    Parameters
    ----------
    dataset
        A view of the container; which repertoires it shows does not matter.
    rows
        Indices of the sequences among all sequences of the container, (n,), in any order.
    gene_fields
        Genes that are hashed: `v_call`, `j_call`.
    """
    return np.asarray(hash_rows(*dataset.container.get_arrays_at(rows, gene_fields)))
