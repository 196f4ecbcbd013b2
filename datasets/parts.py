"""Where the sequences of a cohort lie: in one store (a file or memory), or in several stores, the parts of the cohort.

Code that reads one repertoire after the other needs none of this, because each `Repertoire` knows its store. This
module is for code that reads the sequences of many repertoires at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.sequences import SequenceArrays, Sequences

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CohortContainer",
    "Part",
    "RepertoireInMemory",
    "RepertoireStore",
    "SequenceStore",
    "SequencesInParts",
    "SingleStoreContainer",
]


class SequencesInParts(Protocol):
    """Sequences that are not all in one array, with the genes of the clone definition, as compiled code reads them.

    Attributes
    ----------
    bounds
        First sequence of each part, counted through all parts, and the number of all sequences.
    """

    bounds: Sequence[int]

    def view(self, start: int, stop: int) -> SequenceArrays:
        """Return the sequences from `start` to `stop`, counted through all parts, which must lie in one of them."""

    def take(self, rows: NDArray[np.int64]) -> SequenceArrays:
        """Return some of the sequences, at rows (n,) counted through all parts, copied."""


class CohortContainer(Protocol):
    """The interface of all containers of B repertoires: on the disk, in memory, or simulated without stored sequences.

    Attributes
    ----------
    path
        Path of the file, or the name of a cohort that has no file.
    repertoire_ids, metadata
        Ids of the repertoires, (B,), and their metadata, a row each.
    repertoire_offsets
        Repertoire b has the sequences from `repertoire_offsets[b]`, (B + 1,).
    created_by, source
        The program that made the container, and of what, in words.
    preprocessing
        Report of what was kept and dropped; empty if it is not known.
    """

    path: Path
    repertoire_ids: NDArray[np.object_]
    repertoire_offsets: NDArray[np.int64]
    metadata: pd.DataFrame
    created_by: str
    source: str
    preprocessing: dict[str, Any]

    @property
    def simulation(self) -> dict[str, Any] | None:
        """The recipe of a simulated cohort; None for others."""

    @property
    def has_witness(self) -> bool:
        """Whether it is known which sequences carry an implanted signal."""

    @property
    def gene_fields(self) -> list[str]:
        """Those of `v_call` and `j_call` that the sequences have."""

    def take(self, rows: NDArray[np.int64]) -> Sequences:
        """Return some of the sequences, at rows (n,) counted through all repertoires, in this order."""

    def get_arrays_at(
        self, rows: NDArray[np.int64], gene_fields: Collection[str]
    ) -> tuple[SequenceArrays, NDArray[np.int64]]:
        """Return arrays that contain the sequences at `rows`, (n,), and the index of each in these arrays, (n,).

        The arrays have the codes of the genes that `gene_fields` names, `v_call` or `j_call` or both.
        """

    def arrays(self, gene_fields: Collection[str]) -> SequenceArrays | SequencesInParts:
        """Return all sequences as arrays for compiled code, in one piece or in parts.

        `gene_fields` names the genes whose codes they have, `v_call` or `j_call` or both.
        """

    def choose_max_hashes(self, gene_fields: Collection[str], minimum: int) -> int:
        """Return how many hashes of sequences, at least `minimum`, should be in memory at once.

        Code that compares all sequences, with these genes, must read (or make) all of them again for each such set of
        hashes.
        """


class SequenceStore(Protocol):
    """A store of the sequences of repertoires: a container, or memory.

    `digests` holds the digests that were computed, by a repertoire's first sequence and the one after its last.
    """

    path: Path
    digests: dict[tuple[int, int], str]
    sequences: Sequences


@dataclass(eq=False)
class RepertoireInMemory:
    """The sequences of one repertoire, in memory, as a `SequenceStore`."""

    path: Path
    sequences: Sequences
    digests: dict[tuple[int, int], str]


class RepertoireStore(SequenceStore, Protocol):
    """A store of several repertoires: repertoire b has the sequences from `repertoire_offsets[b]`, (B + 1,)."""

    repertoire_offsets: NDArray[np.int64]


class Part(NamedTuple):
    """One of the stores of a cohort.

    Attributes
    ----------
    store
        The sequences of the part. The vocabularies of genes of all parts have the same names, each in its own order.
    first_sequence
        Its first sequence, counted through all parts.
    """

    store: RepertoireStore
    first_sequence: int


class SingleStoreContainer:
    """A `CohortContainer` whose sequences lie in one store, which is its only part."""

    path: Path
    digests: dict[tuple[int, int], str]
    sequences: Sequences
    repertoire_ids: NDArray[np.object_]
    repertoire_offsets: NDArray[np.int64]
    metadata: pd.DataFrame

    @property
    def parts(self) -> tuple[Part, ...]:
        """The stores of the sequences, in the order of the repertoires."""
        return (Part(self, 0),)

    @property
    def gene_names(self) -> dict[str, tuple[str, ...]]:
        """The vocabularies of the genes that are known, by field: `v_call`, `j_call`."""
        return {field: calls.vocabulary for field, calls in self.sequences.genes.items()}

    @property
    def has_witness(self) -> bool:
        """Whether it is known which sequences carry an implanted signal."""
        return self.sequences.witness is not None

    @property
    def gene_fields(self) -> list[str]:
        """Those of `v_call` and `j_call` that the sequences have."""
        return list(self.sequences.genes)

    def find_part(self, repertoire: int) -> int:  # noqa: ARG002 (all repertoires lie in the only part)
        """Return the index of the part in which a repertoire lies, by its index in the container."""
        return 0

    def map_to_joint_codes(
        self,
        part: int,  # noqa: ARG002 (there is only one)
        field: str,  # noqa: ARG002 (the codes of any field are those of the only part)
        codes: NDArray[np.integer[Any]],
    ) -> NDArray[np.integer[Any]]:
        """Return the codes that genes of a part have in `gene_names`, (n,), from those that they have in the part."""
        return codes

    def take(self, rows: NDArray[np.int64]) -> Sequences:
        """Return some of the sequences, at rows (n,) counted through all repertoires, in this order."""
        return self.sequences.take(rows)

    def get_arrays_at(
        self, rows: NDArray[np.int64], gene_fields: Collection[str]
    ) -> tuple[SequenceArrays, NDArray[np.int64]]:
        """Return the arrays of all sequences, and `rows`, (n,), unchanged; see `CohortContainer`."""
        return self.sequences.arrays(gene_fields), rows

    def arrays(self, gene_fields: Collection[str]) -> SequenceArrays:
        """Return all sequences as arrays for compiled code, with the codes of the genes that `gene_fields` names."""
        return self.sequences.arrays(gene_fields)

    def choose_max_hashes(self, gene_fields: Collection[str], minimum: int) -> int:  # noqa: ARG002 (all is in memory)
        """Return how many hashes should be in memory at once; see `CohortContainer`."""
        return minimum
