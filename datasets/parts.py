"""Where the sequences of a cohort lie: in one store, a file or memory, or in several, the parts of a cohort.

Code that goes from repertoire to repertoire needs none of this: each `Repertoire` has its own store. It is for code
that reads the sequences of many repertoires at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.sequences import Sequences

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CohortContainer", "MadeSequences", "OneStore", "Part", "SequenceStore"]


class CohortContainer(Protocol):
    """What every container of B repertoires has: on the disk, in memory, or without sequences, if they are simulated.

    Attributes
    ----------
    path
        Path of the file, or the name of a cohort that is on no disk.
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


class SequenceStore(Protocol):
    """A store of the sequences of repertoires: a container, or memory.

    `digests` holds the digests that were computed, by a repertoire's first sequence and the one after its last.
    """

    path: Path
    digests: dict[tuple[int, int], str]
    sequences: Sequences


@dataclass(eq=False)
class MadeSequences:
    """The sequences of one repertoire in memory, as a `SequenceStore`."""

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
    first_repertoire, first_sequence
        Its first repertoire and sequence, counted through all parts.
    """

    store: RepertoireStore
    first_repertoire: int
    first_sequence: int


class OneStore:
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
        return (Part(self, 0, 0),)

    @property
    def gene_names(self) -> dict[str, tuple[str, ...]]:
        """The vocabularies of the genes that are known, by field: `v_call`, `j_call`."""
        return {field: calls.vocabulary for field, calls in self.sequences.genes.items()}

    @property
    def has_witness(self) -> bool:
        """Whether it is known which sequences carry an implanted signal."""
        return self.sequences.witness is not None

    def find_part(self, row: int) -> int:  # noqa: ARG002 (of any repertoire)
        """Return the index of the part in which a repertoire lies."""
        return 0

    def map_to_joint_codes(
        self,
        part: int,  # noqa: ARG002 (there is one)
        field: str,  # noqa: ARG002 (its codes are those of the part)
        codes: NDArray[np.integer[Any]],
    ) -> NDArray[np.integer[Any]]:
        """Return the codes that genes of a part have in `gene_names`, (n,), from those that they have in the part."""
        return codes

    def take(self, rows: NDArray[np.int64]) -> Sequences:
        """Return some of the sequences, at rows (n,) counted through all repertoires, in this order."""
        return self.sequences.take(rows)
