"""What is remembered of one repertoire: figures, gene usage and fingerprints, never its sequences.

Letters: N sequences, R residues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.cleaning import CleanedTable
from deeprc.datasets.genes import LOCI, normalise_gene
from deeprc.datasets.reading import Reading
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
    "gene_factors",
    "hash_sequences",
    "is_contradicting",
    "locus_code",
    "mixed",
]

SKETCH_SIZE = 4096
"""How many of a repertoire's smallest hashes are kept: a random sample, of all repertoires at the same sequences."""

TOP_SIZE = 100
"""How many of its largest sequences are remembered by their hash."""

LARGEST_COUNT = int(np.iinfo(np.uint32).max)

N_LOCI = len(LOCI) + 1
"""The chains, and 0 for an unknown one."""

_LONGEST = 256
_DIFFERENT: NDArray[np.bool_] = ~np.eye(len(LOCI) + 1, dtype=np.bool_)  # by two loci's codes
_DIFFERENT[0] = _DIFFERENT[:, 0] = False  # unknown
_DIFFERENT[np.ix_(*[[LOCI.index(locus) + 1 for locus in ("TRA", "TRD")]] * 2)] = False  # these two share V genes

RESIDUE_HASHES = np.random.default_rng(20200716).integers(0, 2**64, (_LONGEST, 20), np.uint64)
"""A random number for each residue at each position; a sequence's hash is their sum."""

_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # of splitmix64
_V, _J, _COUNT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True)
class Fingerprints:
    """What tells whether two repertoires hold the same sequences.

    Attributes
    ----------
    digest
        Of all (residues, genes, counts) in any order; "" if there is none.
    sketch
        The `SKETCH_SIZE` smallest of the different hashes of (residues, genes), uint64, in order.
    is_sampled
        Whether there are more hashes than the sketch has.
    top
        The hashes of the `TOP_SIZE` sequences with the largest counts, in order.
    """

    digest: str
    sketch: NDArray[np.uint64]
    is_sampled: bool
    top: NDArray[np.uint64]

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], counts: NDArray[np.uint32]) -> Fingerprints:
        """Return the fingerprints of N sequences by their hashes, (N,), and counts, (N,)."""
        smallest = _distinct(_smallest(hashes, 2 * SKETCH_SIZE))
        if len(smallest) <= SKETCH_SIZE < len(hashes):  # one sequence many times
            smallest = _distinct(hashes)
        sketch, is_sampled = smallest[:SKETCH_SIZE].copy(), len(smallest) > SKETCH_SIZE
        return cls(_digest(hashes, counts), sketch, is_sampled, _distinct(_largest(hashes, counts)))


@dataclass(frozen=True)
class RepertoireProfile:
    """One repertoire without its sequences.

    Attributes
    ----------
    report
        Rows, kept and dropped.
    path
        Its file.
    total_count, largest_count
        The sum of its sequences' counts, and the largest.
    usage
        For `v_call` and `j_call` how many kept sequences have which name; "" is unknown. Empty without the column.
    unrecognised, of_mice
        Names among them that are not understood, and of these the names that only mouse genes have.
    contradicting
        How many kept sequences have a gene of another chain than their locus or their other gene.
    prints
        Of the kept sequences.
    """

    report: RepertoireReport
    path: Path
    total_count: int
    largest_count: int
    usage: Mapping[str, Mapping[str, int]]
    unrecognised: Mapping[str, int]
    of_mice: Mapping[str, int]
    contradicting: int
    prints: Fingerprints

    @classmethod
    def of(cls, cleaned: CleanedTable, report: RepertoireReport, reading: Reading) -> RepertoireProfile:
        """Return the profile of one cleaned repertoire of a reading."""
        table = cleaned.sequences
        usage = {
            name: _usage(calls)
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
            reading.path,
            total_count=int(table.counts.sum(dtype=np.int64)),
            largest_count=int(table.counts.max(initial=0)),
            usage=usage,
            unrecognised=unrecognised,
            of_mice={name: n for name, n in unrecognised.items() if name in mice},
            contradicting=_contradicting(table, report),
            prints=Fingerprints.of(hash_sequences(table), table.counts),
        )

    @property
    def repertoire_id(self) -> str:
        """Its id."""
        return self.report.repertoire_id

    @property
    def kept(self) -> int:
        """The number of sequences that are kept."""
        return self.report.kept

    def named(self, column: str) -> int:
        """Return how many kept sequences have a gene name in this column."""
        return sum(n for name, n in self.usage.get(column, {}).items() if name)


def hash_sequences(table: Sequences) -> NDArray[np.uint64]:
    """Return a number for each sequence, (N,) uint64: the same for the same residues and gene names, in any table."""
    n = len(table)
    if n == 0:
        return np.empty(0, np.uint64)
    starts = table.offsets[:-1]
    position = np.arange(len(table.residues)) - np.repeat(starts, table.lengths)
    hashes = np.add.reduceat(RESIDUE_HASHES[position, table.residues], starts)  # (R,) -> (N,); no sequence is empty
    for field, calls in table.genes.items():
        hashes += gene_factors(field, calls.vocabulary)[calls.codes]
    return mixed(hashes)


@lru_cache(maxsize=1 << 6)
def gene_factors(field: str, vocabulary: tuple[str, ...]) -> NDArray[np.uint64]:
    """Return what each gene name of `v_call` or `j_call` adds to a hash, 0 for an unknown gene, (G,) uint64."""
    return np.array([_hash_name(name) for name in vocabulary], np.uint64) * {"v_call": _V, "j_call": _J}[field]


def mixed(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread numbers evenly over all 64 bits (splitmix64's last step), one to one."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * _MIX[0]
    hashes = (hashes ^ (hashes >> np.uint64(27))) * _MIX[1]
    return hashes ^ (hashes >> np.uint64(31))


@lru_cache(maxsize=1 << 14)
def _hash_name(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") if name else 0


def _digest(hashes: NDArray[np.uint64], counts: NDArray[np.uint32]) -> str:
    if not len(hashes):
        return ""
    first = mixed(hashes + counts.astype(np.uint64) * _COUNT)
    sums = [int(each.sum(dtype=np.uint64)) for each in (first, mixed(first + _V))]  # sums know no order
    return f"{sums[0]:016x}{sums[1]:016x}-{len(hashes):x}"


def _distinct(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the different hashes in order; by sorting, which is several times as fast as `np.unique` here."""
    ordered = np.sort(hashes)
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    distinct: NDArray[np.uint64] = ordered[is_first]
    return distinct


def _smallest(values: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    return np.partition(values, n - 1)[:n] if n < len(values) else values


def _largest(hashes: NDArray[np.uint64], counts: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the hashes of the sequences with the largest counts; of equal counts, those with the smallest hashes."""
    if len(hashes) <= TOP_SIZE:
        return hashes
    last = np.partition(counts, len(counts) - TOP_SIZE)[len(counts) - TOP_SIZE]
    above = hashes[counts > last]
    return np.concatenate([above, _smallest(hashes[counts == last], TOP_SIZE - len(above))])


def _usage(calls: Categorical) -> dict[str, int]:
    return {name: n for name, n in zip(calls.vocabulary, calls.occurrences().tolist(), strict=True) if n}


def _contradicting(table: Sequences, report: RepertoireReport) -> int:
    """Count kept sequences whose genes are of two chains, or of another than the file says."""
    v, j = (
        np.zeros(len(table), np.int8)
        if calls is None
        else np.array([locus_code(normalise_gene(name).locus) for name in calls.vocabulary], np.int8)[calls.codes]
        for calls in (table.v_call, table.j_call)
    )
    return int(is_contradicting(v, j, report).sum())


def locus_code(locus: str) -> int:
    """Return the number of a chain, from 1; 0 is unknown."""
    return LOCI.index(locus) + 1 if locus else 0


def is_contradicting(v: NDArray[np.int8], j: NDArray[np.int8], report: RepertoireReport) -> NDArray[np.bool_]:
    """Tell where the chains of V and J genes, by `locus_code`, contradict each other or what the report says."""
    named = [name for name in report.loci if name]
    said = locus_code(report.locus or (named[0] if len(named) == 1 else ""))
    wrong_j = (j != 0) & (said != 0) & (j != said)
    contradicting: NDArray[np.bool_] = wrong_j | _differ(v, j) | _differ(v, np.full_like(v, said))
    return contradicting


def _differ(v: NDArray[np.int8], other: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Tell where the locus of a V gene is none that the other's can be; 0 is unknown."""
    return np.asarray(_DIFFERENT[v, other])
