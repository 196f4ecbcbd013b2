"""Look-up of given gapped k-mers in sequences, by compiled code.

Letters: n given k-mers, P spacings (tuples of offsets) with a given k-mer, K residues of the longest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import uint32, uint64
from numpy.typing import NDArray

from deeprc.arrays import Flags, Integers
from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.training.kmer_frequencies import count_kmers_of
from deeprc.training.kmer_sets import KmerSet

__all__ = ["Chunk", "KmerTables", "fill_chunk", "look_up", "make_chunk", "make_tables"]

_N_LETTERS = len(AMINO_ACIDS)
_CHUNK = 2048  # number of residues whose k-mers are looked up at a time; they stay in a processor's fastest cache


class KmerTables(NamedTuple):
    """The given k-mers, whose spacings have at least two residues, for compiled code.

    For example, the k-mer AC of the spacing (0, 2) has the code 20 * 0 + 1, the indices of its amino acids A and C. If
    this is spacing p, its index is kmer_of_code[starts[p] + 1], and -1 there means that it is not given.

    Attributes
    ----------
    kmer_of_code
        Index of the k-mer for each code of each spacing, or -1, end to end.
    is_given_bits
        Whether there is one for each code, a bit each: few bytes, which stay in a processor's fastest cache.
    offsets
        Offsets of the residues of each spacing, (P, K); the last one is repeated. Unsigned, see
        `deeprc.datasets.kmers.encode_kmer`.
    sizes
        Number of residues of each spacing, (P,).
    starts
        Start of each spacing in `kmer_of_code`, (P + 1,).
    """

    kmer_of_code: NDArray[np.int32]
    is_given_bits: NDArray[np.uint8]
    offsets: NDArray[np.uint64]
    sizes: Integers
    starts: NDArray[np.uint64]


def make_tables(kmers: KmerSet, included: Flags) -> KmerTables:
    """Return the tables of n different k-mers, without those that are not `included`, (n,).

    Raises
    ------
    ValueError
        If two of them are the same: only one would be found, and counts of k-mers decide how much memory they get.
    """
    used = np.unique(kmers.spacing_index[included])
    spacings = [kmers.spacings[index] for index in used]
    sizes = np.array([len(spacing) for spacing in spacings], np.int64)
    offsets = np.zeros((len(used), sizes.max(initial=2)), np.int64)
    for row, spacing in zip(offsets, spacings, strict=True):
        row[:] = [*spacing, *[spacing[-1]] * (len(row) - len(spacing))]
    starts = compute_offsets(np.array([count_kmers_of(spacing) for spacing in spacings], np.int64))
    kmer_of_code = np.full(starts[-1], -1, np.int32)
    for start, index in zip(starts[:-1], used, strict=True):
        is_of_spacing = (kmers.spacing_index == index) & included
        kmer_of_code[start + kmers.code[is_of_spacing]] = np.flatnonzero(is_of_spacing)
    is_given = kmer_of_code >= 0
    if np.count_nonzero(is_given) != np.count_nonzero(included):
        raise ValueError("expected different k-mers")
    is_given_bits = np.packbits(is_given, bitorder="little")
    return KmerTables(kmer_of_code, is_given_bits, offsets.astype(np.uint64), sizes, starts.astype(np.uint64))


class Chunk(NamedTuple):
    """Some sequences end to end, and the k-mers that are found in them; it is used again for other sequences.

    Attributes
    ----------
    residues
        Amino-acid indices.
    segments
        Index of the sequence of each residue among those of the chunk.
    ends
        End of each sequence in the residues.
    codes
        Index of the k-mer of one spacing that begins at each residue.
    sequence, kmer
        Sequence of each occurrence among those of the chunk, and its k-mer.
    """

    residues: NDArray[np.uint8]
    segments: NDArray[np.int32]
    ends: NDArray[np.int32]
    codes: NDArray[np.uint32]
    sequence: NDArray[np.int32]
    kmer: NDArray[np.int32]


@njit(nogil=True)
def make_chunk(longest: int, tables: KmerTables) -> Chunk:
    """Return a chunk with room for the longest sequence, of so many residues, and for all k-mers that can be in it."""
    size = max(_CHUNK, longest)
    max_occurrences = size * len(tables.sizes)
    return Chunk(
        np.empty(size, np.uint8),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.uint32),
        np.empty(max_occurrences, np.int32),
        np.empty(max_occurrences, np.int32),
    )


@njit(nogil=True)
def fill_chunk(
    chunk: Chunk, residues: NDArray[np.uint8], offsets: Integers, sequences: Integers, first: int, stop: int
) -> int:
    """Copy sequences from `first` on into the chunk, as many as fit; return the end of those that were copied.

    `sequences` lists the sequences to copy, and `first`, `stop` and the result are positions in it. If it is empty,
    every sequence is copied, and they are indices of sequences.
    """
    n, at = 0, first
    while at < stop:
        s = sequences[at] if len(sequences) > 0 else at
        length = offsets[s + 1] - offsets[s]
        if n + length > len(chunk.residues) or at - first == len(chunk.ends):
            break
        for i in range(uint64(length)):
            chunk.residues[uint64(n) + i] = residues[uint64(offsets[s]) + i]
            chunk.segments[uint64(n) + i] = at - first
        n += length
        chunk.ends[at - first] = n
        at += 1
    return at


@njit(nogil=True)
def look_up(chunk: Chunk, n_sequences: int, tables: KmerTables) -> int:
    """Write the k-mers in the sequences of a chunk; return their number.

    The codes of all k-mers of a spacing are computed together, which a processor does for several at a time.
    """
    residues, segments, ends, codes, sequence, kmer = chunk
    kmer_of_code, is_given_bits, offsets, sizes, starts = tables
    n, n_found = uint64(ends[n_sequences - 1]), uint64(0)
    for p in range(len(sizes)):
        last_offset = offsets[p, -1]
        if last_offset >= n:
            continue
        for i in range(n - last_offset):
            codes[i] = uint32(residues[i])
        for j in range(1, sizes[p]):
            offset = offsets[p, j]
            for i in range(n - last_offset):
                codes[i] = codes[i] * uint32(_N_LETTERS) + uint32(residues[i + offset])
        start = starts[p]
        for i in range(n - last_offset):
            code = start + codes[i]
            is_given = (is_given_bits[code >> uint64(3)] >> (code & uint64(7))) & uint64(1)
            if is_given and i + last_offset < uint64(ends[segments[i]]):
                sequence[n_found], kmer[n_found] = segments[i], kmer_of_code[code]
                n_found += uint64(1)
    return int(n_found)
