"""`CloneSet`: some clones by their content, and which of them a repertoire of any container carries.

Letters: J clones, N sequences, n some of either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequence_hash import are_equal, hash_row
from deeprc.datasets.sequences import SequenceArrays, Sequences
from deeprc.errors import InputError
from deeprc.progress import track

__all__ = ["CloneSet", "CloneTables"]

_AnyTable = TypeVar("_AnyTable")
_Result = TypeVar("_Result")
_HashTable = tuple[SequenceArrays, NDArray[np.int32]]
_ALL_BITS = 2**64 - 1
_SLOTS_PER_CLONE = 8
_MAX_TABLES = 8  # number of tables that are kept; one of 20,000 clones with their neighbours takes 10 MB


class CloneSet:
    """J different clones.

    Parameters
    ----------
    sequences
        Sequences of the clones, with the genes of the clone definition; their counts are not used.
    """

    def __init__(self, sequences: Sequences) -> None:
        self.sequences = sequences

    def __len__(self) -> int:
        return len(self.sequences)

    def take(self, rows: NDArray[np.int64]) -> CloneSet:
        """Return some of the clones, (n,), in this order."""
        return CloneSet(self.sequences.take(rows))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with AIRR field names: `junction_aa`, and the genes of the clone definition."""
        columns = {field: calls.names() for field, calls in self.sequences.genes.items()}
        return pd.DataFrame({"junction_aa": pd.Series(self.sequences.decode(), dtype=object), **columns})

    def find_in(self, dataset: RepertoireDataset, *, mask: int = _ALL_BITS) -> Iterator[NDArray[np.int64]]:
        """Yield the clones that each repertoire carries, as rising indices (n,), on all cores.

        Parameters
        ----------
        dataset
            Repertoires of any container; genes are compared by name.
        mask
            Bits of the hash that are used; the result does not depend on it.

        Raises
        ------
        InputError
            If the container lacks genes of the clone definition.
        """
        bits = uint64(mask)

        def find(sequences: SequenceArrays, table: _HashTable, start: int, stop: int) -> NDArray[np.int64]:
            return np.flatnonzero(_find_clones(sequences, start, stop, *table, bits))

        return self.search(dataset, partial(_make_table, mask=bits), find)

    def search(
        self,
        dataset: RepertoireDataset,
        make_table: Callable[[SequenceArrays, NDArray[np.bool_]], _AnyTable],
        find: Callable[[SequenceArrays, _AnyTable, int, int], _Result],
    ) -> Iterator[_Result]:
        """Yield the result of `find` for each repertoire, on all cores.

        Parameters
        ----------
        dataset
            Repertoires of any container; genes are compared by name.
        make_table
            Function that makes a table of the clones for a container. It gets the arrays of the clones, with the codes
            of the container's genes, and whether the container knows the genes of each clone, (J,).
        find
            Function of a container's sequences, the table, and the start and the stop of the repertoire.

        Raises
        ------
        InputError
            If the container lacks genes of the clone definition.
        """
        self.check_genes(dataset)
        tables = CloneTables(self, make_table)

        def search(repertoire: Repertoire) -> _Result:
            return find(*tables.get_sequences_and_table(repertoire), repertoire.start, repertoire.stop)

        yield from track(dataset.map_repertoires(search), "looking for clones in repertoires", len(dataset))

    def check_genes(self, dataset: RepertoireDataset) -> None:
        """Raise InputError if the dataset's container lacks genes of the clone definition."""
        if len(dataset):
            self._check_fields(dataset.gene_fields, dataset.container.path)

    def _check_fields(self, fields: Collection[str], path: Path) -> None:
        for field in self.sequences.genes:
            if field not in fields:
                raise InputError(f"{path}: has no {field}, with which the clones were learned")

    def encode_genes(self, vocabularies: dict[str, tuple[str, ...]]) -> tuple[SequenceArrays, NDArray[np.bool_]]:
        """Return the clones with the codes of their genes in the vocabularies, and whether these are known, (J,)."""
        genes, is_known = {}, np.ones(len(self), bool)
        for field, vocabulary in vocabularies.items():
            codes = self.sequences.genes[field].encode_with(vocabulary)
            is_known &= codes >= 0
            genes[field] = Categorical(codes.clip(0).astype(np.uint16), vocabulary)  # an unknown gene may get any code
        return self.sequences.with_genes(genes).arrays(list(genes)), is_known


class CloneTables(Generic[_AnyTable]):
    """Tables of the same clones for several containers, one table for each order of the genes in the vocabularies.

    The eight tables that were used last are kept, because a cohort of hundreds of parts may have as many orders. The
    repertoires of a part usually follow each other, so few tables are made twice.

    Parameters
    ----------
    clones
        Clones that are looked for.
    make_table
        See `CloneSet.search`.
    """

    def __init__(self, clones: CloneSet, make_table: Callable[[SequenceArrays, NDArray[np.bool_]], _AnyTable]) -> None:
        self._clones, self._make_table = clones, make_table
        self._tables: dict[tuple[tuple[str, ...], ...], _AnyTable] = {}
        self._lock = Lock()

    def get_sequences_and_table(self, repertoire: Repertoire) -> tuple[SequenceArrays, _AnyTable]:
        """Return the sequences of a repertoire's container with the genes of the clone definition, and their table.

        Raises
        ------
        InputError
            If the container lacks genes of the clone definition.
        """
        store = repertoire.container.sequences
        self._clones._check_fields(store.genes, repertoire.container.path)
        fields = list(self._clones.sequences.genes)
        vocabularies = tuple(store.genes[field].vocabulary for field in fields)
        with self._lock:
            if vocabularies in self._tables:
                table = self._tables.pop(vocabularies)
            else:
                table = self._make_table(*self._clones.encode_genes(dict(zip(fields, vocabularies, strict=True))))
            self._tables[vocabularies] = table  # at the end: it is the one that was used last
            if len(self._tables) > _MAX_TABLES:
                del self._tables[next(iter(self._tables))]
            return store.arrays(fields), table


def _make_table(clones: SequenceArrays, is_known: NDArray[np.bool_], *, mask: Any) -> _HashTable:
    """Return the clones, and a hash table of those whose genes are known."""
    slots = np.full(1 << (_SLOTS_PER_CLONE * len(is_known)).bit_length(), -1, np.int32)
    _insert_clones(clones, np.flatnonzero(is_known), slots, mask)
    return clones, slots


@njit(nogil=True)
def _insert_clones(clones: SequenceArrays, rows: NDArray[np.int64], slots: NDArray[np.int32], mask: Any) -> None:
    """Write the rows of clones into an open-addressed hash table; an empty slot holds -1."""
    for row in rows:
        slot = np.int64((hash_row(clones, row) & mask) % uint64(len(slots)))
        while slots[slot] >= 0:
            slot = (slot + 1) % len(slots)
        slots[slot] = row


@njit(nogil=True)
def _find_clones(
    sequences: SequenceArrays, start: int, stop: int, clones: SequenceArrays, slots: NDArray[np.int32], mask: Any
) -> NDArray[np.bool_]:
    """Return whether each clone of the hash table is among the sequences from `start` to `stop`, (J,)."""
    is_present = np.zeros(len(clones.offsets) - 1, np.bool_)
    for row in range(start, stop):
        slot = np.int64((hash_row(sequences, row) & mask) % uint64(len(slots)))
        while slots[slot] >= 0:
            if are_equal(clones, slots[slot], sequences, row):
                is_present[slots[slot]] = True
                break
            slot = (slot + 1) % len(slots)
    return is_present
