"""The profile of one repertoire: numbers, gene usage and fingerprints, but not its sequences.

Letters: N sequences, R residues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.cleaning import CleanedTable
from deeprc.datasets.file_reading import FileToRead
from deeprc.datasets.genes import LOCI, normalise_gene
from deeprc.datasets.random_numbers import GOLDEN, mix_words
from deeprc.datasets.report import RepertoireReport
from deeprc.datasets.sequences import Sequences

__all__ = [
    "LARGEST_COUNT",
    "N_LOCI",
    "RESIDUE_HASHES",
    "SKETCH_SIZE",
    "TOP_SIZE",
    "Fingerprints",
    "RepertoireProfile",
    "compute_gene_factors",
    "find_chain_codes",
    "hash_with_gene_names",
    "is_contradicting",
    "list_files",
    "sample_hashes",
]

SKETCH_SIZE = 4096
"""The number of smallest hashes that are kept: a random sample, which takes the same sequences in all repertoires."""

TOP_SIZE = 100
"""The number of sequences with the largest counts whose hashes are kept."""

LARGEST_COUNT = int(np.iinfo(np.uint32).max)

N_LOCI = len(LOCI) + 1
"""The number of chains, and one more for an unknown chain, whose code is 0."""

_LONGEST = 256
_DIFFERENT: NDArray[np.bool_] = ~np.eye(N_LOCI, dtype=np.bool_)  # whether two chains differ, by their codes
_DIFFERENT[0] = _DIFFERENT[:, 0] = False  # unknown
_TRA, _TRD = LOCI.index("TRA") + 1, LOCI.index("TRD") + 1
_DIFFERENT[_TRA, _TRD] = _DIFFERENT[_TRD, _TRA] = False  # these two share V genes

RESIDUE_HASHES = np.random.default_rng(20200716).integers(0, 2**64, (_LONGEST, 20), np.uint64)
"""A random number for each position and residue; the hash of a sequence begins as their sum."""

_V, _J, _COUNT = np.uint64(GOLDEN), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True)
class Fingerprints:
    """Hashes that tell whether two repertoires hold the same sequences.

    Attributes
    ----------
    digest
        Digest of all sequences with genes and counts, which does not depend on their order; "" for an empty repertoire.
    sketch
        The `SKETCH_SIZE` smallest of the different hashes of residues and genes, uint64, sorted.
    is_sampled
        Whether the repertoire has more hashes than the sketch.
    top
        The hashes of the `TOP_SIZE` sequences with the largest counts, sorted.
    """

    digest: str
    sketch: NDArray[np.uint64]
    is_sampled: bool
    top: NDArray[np.uint64]

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], counts: NDArray[np.uint32]) -> Fingerprints:
        """Return the fingerprints of N sequences from their hashes, (N,), and counts, (N,)."""
        sketch, is_sampled = sample_hashes(hashes, SKETCH_SIZE)
        return cls(
            _digest_hashes(hashes, counts), sketch, is_sampled, _sort_distinct(_select_most_abundant(hashes, counts))
        )


@dataclass(frozen=True)
class RepertoireProfile:
    """A description of one repertoire without its sequences.

    `of` makes it from a file. `deeprc.checks.container` makes it from a container, and caches it. So a new attribute
    needs code in both.

    Attributes
    ----------
    report
        The numbers of rows that were kept and dropped.
    path
        The file of the repertoire.
    total_count, largest_count
        The sum and the maximum of the counts of its sequences.
    usage
        For `v_call` and `j_call` the number of kept sequences by gene name; "" is an unknown gene. A column that the
        file lacks is missing here, too.
    unrecognised, of_mice
        The gene names in `usage` that are not understood, and those of them that only mouse genes have, with the number
        of sequences.
    contradicting
        The number of kept sequences with a gene of another chain than their locus or their other gene.
    fingerprints
        The fingerprints of the kept sequences.
    """

    report: RepertoireReport
    path: Path
    total_count: int
    largest_count: int
    usage: Mapping[str, Mapping[str, int]]
    unrecognised: Mapping[str, int]
    of_mice: Mapping[str, int]
    contradicting: int
    fingerprints: Fingerprints

    @classmethod
    def of(cls, cleaned: CleanedTable, report: RepertoireReport, file: FileToRead) -> RepertoireProfile:
        """Return the profile of one cleaned repertoire of a file."""
        table = cleaned.sequences
        usage = {
            name: _count_gene_usage(calls)
            for name, calls in (("v_call", table.v_call), ("j_call", table.j_call))
            if calls is not None
        }
        mice = {name.strip() for mapping in cleaned.genes.values() for name in mapping.mouse}
        unrecognised = {
            name: n
            for counts in usage.values()
            for name, n in counts.items()
            if normalise_gene(name).level == "unrecognised"
        }
        return cls(
            report,
            file.path,
            total_count=int(table.counts.sum(dtype=np.int64)),
            largest_count=int(table.counts.max(initial=0)),
            usage=usage,
            unrecognised=unrecognised,
            of_mice={name: n for name, n in unrecognised.items() if name in mice},
            contradicting=_count_contradicting(table, report),
            fingerprints=Fingerprints.of(hash_with_gene_names(table), table.counts),
        )

    @property
    def repertoire_id(self) -> str:
        """The id of the repertoire."""
        return self.report.repertoire_id

    @property
    def kept(self) -> int:
        """The number of sequences that are kept."""
        return self.report.kept

    def count_named(self, column: str) -> int:
        """Return the number of kept sequences with a gene name in a column."""
        return sum(n for name, n in self.usage.get(column, {}).items() if name)


def hash_with_gene_names(table: Sequences) -> NDArray[np.uint64]:
    """Return the hash of each sequence, (N,) uint64, which depends on its residues and gene names alone."""
    n = len(table)
    if n == 0:
        return np.empty(0, np.uint64)
    starts = table.offsets[:-1]
    position = np.arange(len(table.residues)) - np.repeat(starts, table.lengths)
    hashes = np.add.reduceat(RESIDUE_HASHES[position, table.residues], starts)  # (R,) -> (N,); no sequence is empty
    for field, calls in table.genes.items():
        hashes += compute_gene_factors(field, calls.vocabulary)[calls.codes]
    return mix_words(hashes)


@lru_cache(maxsize=1 << 6)
def compute_gene_factors(field: str, vocabulary: tuple[str, ...]) -> NDArray[np.uint64]:
    """Return the number that each name of a V or J gene adds to a hash, (G,) uint64; 0 for an unknown gene."""
    return np.array([_hash_name(name) for name in vocabulary], np.uint64) * {"v_call": _V, "j_call": _J}[field]


@lru_cache(maxsize=1 << 14)
def _hash_name(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") if name else 0


def _digest_hashes(hashes: NDArray[np.uint64], counts: NDArray[np.uint32]) -> str:
    """Return a text that is equal for repertoires with the same sequences and counts, in any order; "" without any."""
    if not len(hashes):
        return ""
    first = mix_words(hashes + counts.astype(np.uint64) * _COUNT)
    # Sums do not depend on the order of the sequences.
    sums = [int(mixed.sum(dtype=np.uint64)) for mixed in (first, mix_words(first + _V))]
    return f"{sums[0]:016x}{sums[1]:016x}-{len(hashes):x}"


def sample_hashes(hashes: NDArray[np.uint64], size: int) -> tuple[NDArray[np.uint64], bool]:
    """Return the smallest of the different hashes, sorted, at most `size`, and whether there are more."""
    smallest = _sort_distinct(_select_smallest(hashes, 2 * size))
    if len(smallest) <= size < len(hashes):  # many hashes are equal
        smallest = _sort_distinct(hashes)
    return smallest[:size].copy(), len(smallest) > size


def _sort_distinct(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the different hashes, sorted; this is several times as fast as `np.unique`."""
    ordered = np.sort(hashes)
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    distinct: NDArray[np.uint64] = ordered[is_first]
    return distinct


def _select_smallest(values: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    return np.partition(values, n - 1)[:n] if n < len(values) else values


def _select_most_abundant(hashes: NDArray[np.uint64], counts: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the hashes of the sequences with the largest counts; among equal counts the smallest hashes."""
    if len(hashes) <= TOP_SIZE:
        return hashes
    last = np.partition(counts, len(counts) - TOP_SIZE)[len(counts) - TOP_SIZE]
    above = hashes[counts > last]
    return np.concatenate([above, _select_smallest(hashes[counts == last], TOP_SIZE - len(above))])


def _count_gene_usage(calls: Categorical) -> dict[str, int]:
    return {name: n for name, n in zip(calls.vocabulary, calls.count_occurrences().tolist(), strict=True) if n}


def _count_contradicting(table: Sequences, report: RepertoireReport) -> int:
    """Return the number of kept sequences whose genes belong to two chains, or to another chain than the file says."""
    v, j = (
        np.zeros(len(table), np.int8) if calls is None else find_chain_codes(calls.vocabulary)[calls.codes]
        for calls in (table.v_call, table.j_call)
    )
    return int(is_contradicting(v, j, report).sum())


def _encode_locus(locus: str) -> int:
    """Return the code of a chain: its index in `LOCI` plus 1; 0 is unknown."""
    return LOCI.index(locus) + 1 if locus else 0


def list_files(profiles: Iterable[RepertoireProfile]) -> tuple[str, ...]:
    """Return the different files of some repertoires; a repertoire may have none, for example a simulated one."""
    return tuple(dict.fromkeys(str(profile.path) for profile in profiles if profile.report.file))


@lru_cache(maxsize=1 << 6)
def find_chain_codes(vocabulary: tuple[str, ...]) -> NDArray[np.int8]:
    """Return the code of the chain of each gene of a vocabulary, (G,); TRA is 1, and 0 is unknown."""
    return np.array([_encode_locus(normalise_gene(name).locus) for name in vocabulary], np.int8)


def is_contradicting(v: NDArray[np.int8], j: NDArray[np.int8], report: RepertoireReport) -> NDArray[np.bool_]:
    """Return whether the chains of V and J genes contradict each other or the chain in the report, (N,).

    `v` and `j` are codes of `find_chain_codes`, (N,).
    """
    loci = [name for name in report.loci if name]
    stated_locus = _encode_locus(report.locus or (loci[0] if len(loci) == 1 else ""))
    wrong_j = (j != 0) & (stated_locus != 0) & (j != stated_locus)
    contradicting: NDArray[np.bool_] = wrong_j | _DIFFERENT[v, j] | _DIFFERENT[v, stated_locus]
    return contradicting
