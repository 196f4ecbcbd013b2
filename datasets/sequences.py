"""`Sequences`: the sequences of one repertoire, of a whole container, or of a set of clones, as arrays.

All code has sequences in this form: the readers' cleaned rows, the container, repertoires and clones.
Compiled code takes `SequenceArrays`, a view of it.

Letters: N sequences, R residues of all of them together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets, decode_many, encode_many, take
from deeprc.datasets.categorical import Categorical

__all__ = ["GENE_FIELDS", "SequenceArrays", "Sequences"]

GENE_FIELDS = ("v_call", "j_call")
"""The AIRR names of the columns of genes."""


class SequenceArrays(NamedTuple):
    """The arrays of N sequences that compiled code reads.

    Attributes
    ----------
    residues
        Amino acids of all sequences end to end, as indices of `AMINO_ACIDS`, (R,) uint8.
    offsets
        Offsets of the sequences, (N + 1,) int64: sequence n has the residues from offsets[n] to offsets[n + 1].
    v, j
        Codes of the V and of the J genes, (N,) each; (0,) if genes do not belong to the clone definition.
    """

    residues: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    v: NDArray[np.integer[Any]]
    j: NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Sequences:
    """N receptor sequences with their abundances and, where they are known, their genes.

    Attributes
    ----------
    residues
        Amino acids of all sequences end to end, as indices of `AMINO_ACIDS`, (R,) uint8.
    offsets
        Offsets of the sequences, (N + 1,) int64: sequence n has the residues from offsets[n] to offsets[n + 1];
        offsets[0] is 0.
    counts
        Abundance of each sequence, AIRR's `duplicate_count`, (N,) uint32.
    v_call, j_call
        Names of the V and of the J genes, N each; None if they are not known.
    witness
        Index of the implanted signal that each sequence carries, 0 for none, (N,) uint8; None if it is not known.
    """

    residues: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    counts: NDArray[np.uint32]
    v_call: Categorical | None = None
    j_call: Categorical | None = None
    witness: NDArray[np.uint8] | None = None

    @classmethod
    def counted_once(cls, residues: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Sequences:
        """Return sequences whose counts are all 1."""
        return cls(residues, offsets, np.ones(len(offsets) - 1, np.uint32))

    @classmethod
    def encode(cls, texts: Sequence[str]) -> Sequences:
        """Return sequences that are given as text, each with a count of 1."""
        return cls.counted_once(*encode_many(texts))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The lengths of the sequences in residues, (N,) int64."""
        return np.diff(self.offsets)

    @property
    def genes(self) -> dict[str, Categorical]:
        """The genes that are known, by field: `v_call`, `j_call`."""
        return {name: calls for name in GENE_FIELDS if (calls := getattr(self, name)) is not None}

    def with_genes(self, genes: Mapping[str, Categorical]) -> Sequences:
        """Return the same sequences with these genes, by field, and no others."""
        return replace(self, v_call=genes.get("v_call"), j_call=genes.get("j_call"))

    def decode(self) -> list[str]:
        """Return the N sequences as text, AIRR's `junction_aa`."""
        return decode_many(self.residues, self.offsets)

    def slice(self, start: int, stop: int) -> Sequences:
        """Return the sequences from `start` to `stop`, all columns but the offsets as views."""
        bounds = self.offsets[start : stop + 1]
        rows = slice(start, stop)
        genes = {name: calls.take(rows) for name, calls in self.genes.items()}
        witness = None if self.witness is None else self.witness[rows]
        residues = self.residues[bounds[0] : bounds[-1]]
        offsets = np.asarray(bounds - bounds[0])
        return Sequences(residues, offsets, self.counts[rows], witness=witness).with_genes(genes)

    def take(self, rows: NDArray[np.int64]) -> Sequences:
        """Return the sequences at some rows, (n,), in this order; rows may repeat."""
        genes = {name: calls.take(rows) for name, calls in self.genes.items()}
        witness = None if self.witness is None else self.witness[rows]
        residues, offsets = take(self.residues, self.offsets, rows)
        return Sequences(residues, offsets, self.counts[rows], witness=witness).with_genes(genes)

    def drop(self, rows: NDArray[np.int64]) -> Sequences:
        """Return copies of all sequences except those at `rows`, (n,), which must be in ascending order."""
        starts, stops = [0, *self.offsets[rows + 1].tolist()], [*self.offsets[rows].tolist(), len(self.residues)]
        genes = {
            name: Categorical(np.delete(calls.codes, rows), calls.vocabulary) for name, calls in self.genes.items()
        }
        return Sequences(
            np.concatenate([self.residues[start:stop] for start, stop in zip(starts, stops, strict=True)]),
            compute_offsets(np.delete(self.lengths, rows)),
            np.delete(self.counts, rows),
            witness=None if self.witness is None else np.delete(self.witness, rows),
        ).with_genes(genes)

    @staticmethod
    def concatenate(several: Sequence[Sequences]) -> Sequences:
        """Return all sequences, one set after the other; with genes and witnesses if all sets have them.

        Each set may have its own vocabularies of genes.
        """
        genes = {
            name: Categorical.concatenate([sequences.genes[name] for sequences in several])
            for name in GENE_FIELDS
            if several and all(name in sequences.genes for sequences in several)
        }
        witness = [sequences.witness for sequences in several if sequences.witness is not None]
        return Sequences(
            np.concatenate([np.zeros(0, np.uint8), *(sequences.residues for sequences in several)]),
            compute_offsets(np.concatenate([np.zeros(0, np.int64), *(sequences.lengths for sequences in several)])),
            np.concatenate([np.zeros(0, np.uint32), *(sequences.counts for sequences in several)]),
            witness=np.concatenate(witness) if witness and len(witness) == len(several) else None,
        ).with_genes(genes)

    def arrays(self, gene_fields: Collection[str] = ()) -> SequenceArrays:
        """Return the arrays for compiled code: the residues, and the codes of the genes that `gene_fields` names."""
        v, j = (
            np.asarray(self.genes[name].codes) if name in gene_fields else np.zeros(0, np.uint16)
            for name in GENE_FIELDS
        )
        return SequenceArrays(np.asarray(self.residues), np.asarray(self.offsets), v, j)

    def digest(self) -> str:
        """Return a hash of the residues, lengths and counts, as hexadecimal text: equal content, equal digest."""
        content = hashlib.blake2b(digest_size=16)
        for values in (self.residues, self.lengths, self.counts):
            content.update(np.ascontiguousarray(values).data)
        return content.hexdigest()
