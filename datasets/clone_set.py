"""`CloneSet`: some clones by their content, and which of them a repertoire of any container carries.

Letters: J clones, N sequences, n some of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numba
import numpy as np
import pandas as pd
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones import gene_fields
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequence_hash import are_equal, hash_row
from deeprc.datasets.sequences import SequenceArrays, Sequences
from deeprc.errors import InputError

__all__ = ["CloneSet"]

_T = TypeVar("_T")
_Result = TypeVar("_Result")
_Table = tuple[SequenceArrays, NDArray[np.int32]]
_ALL_BITS = 2**64 - 1
_SPARE = 8  # slots of the hash table for each clone


class CloneSet:
    """J different clones.

    Parameters
    ----------
    sequences
        The clones' sequences, with the genes that count; their counts mean nothing.
    """

    def __init__(self, sequences: Sequences) -> None:
        self.sequences = sequences

    def __len__(self) -> int:
        return len(self.sequences)

    def take(self, rows: NDArray[np.int64]) -> CloneSet:
        """Return some of the clones, (n,), in this order."""
        return CloneSet(self.sequences.take(rows))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with AIRR field names: `junction_aa`, and the genes that count."""
        columns = {field: calls.names() for field, calls in self.sequences.genes.items()}
        return pd.DataFrame({"junction_aa": pd.Series(self.sequences.decode(), dtype=object), **columns})

    def find_in(self, dataset: RepertoireDataset, *, mask: int = _ALL_BITS) -> Iterator[NDArray[np.int64]]:
        """Yield the clones that each repertoire carries, as rising indices (n,), on all cores.

        Parameters
        ----------
        dataset
            Repertoires of any container; genes are compared by name.
        mask
            The bits of the hash that are used; the result does not depend on it.

        Raises
        ------
        InputError
            If the container lacks genes that count.
        """
        bits = uint64(mask)

        def find(sequences: SequenceArrays, start: int, stop: int, table: _Table) -> NDArray[np.int64]:
            return np.flatnonzero(_find(sequences, start, stop, *table, bits))

        return self.search(dataset, partial(_make_table, mask=bits), find)

    def search(
        self,
        dataset: RepertoireDataset,
        make_table: Callable[[SequenceArrays, NDArray[np.bool_]], _T],
        find: Callable[[SequenceArrays, int, int, _T], _Result],
    ) -> Iterator[_Result]:
        """Yield what `find` returns for each repertoire, on all cores.

        Parameters
        ----------
        dataset
            Repertoires of any container; genes are compared by name.
        make_table
            Makes a table of the clones for a container, from their arrays with the codes of its genes and from which of
            them have genes that it knows, (J,).
        find
            Takes a container's sequences, where the repertoire begins and ends, and the table.

        Raises
        ------
        InputError
            If the container lacks genes that count.
        """
        self.check_genes(dataset)
        fields = list(self.sequences.genes)
        tables: dict[tuple[tuple[str, ...], ...], _T] = {}

        def search_one(repertoire: Repertoire) -> _Result:
            store = repertoire.container.sequences
            vocabularies = tuple(store.genes[field].vocabulary for field in fields)
            if vocabularies not in tables:
                tables[vocabularies] = make_table(*self.coded(dict(zip(fields, vocabularies, strict=True))))
            return find(store.arrays(fields), repertoire.start, repertoire.stop, tables[vocabularies])

        with ThreadPoolExecutor(numba.get_num_threads()) as threads:
            yield from threads.map(search_one, dataset)

    def check_genes(self, dataset: RepertoireDataset) -> None:
        """Raise InputError if the dataset's container lacks genes that count."""
        for field in self.sequences.genes:
            if len(dataset) and field not in gene_fields(dataset):
                raise InputError(f"{dataset.container.path}: has no {field}, with which the clones were learned")

    def coded(self, vocabularies: dict[str, tuple[str, ...]]) -> tuple[SequenceArrays, NDArray[np.bool_]]:
        """Return the clones with the codes that their genes have in a container, by field, and which it knows, (J,)."""
        genes, is_known = {}, np.ones(len(self), bool)
        for field, vocabulary in vocabularies.items():
            codes = self.sequences.genes[field].codes_in(vocabulary)
            is_known &= codes >= 0
            genes[field] = Categorical(codes.clip(0).astype(np.uint16), vocabulary)
        return self.sequences.with_genes(genes).arrays(list(genes)), is_known


def _make_table(clones: SequenceArrays, is_known: NDArray[np.bool_], *, mask: Any) -> _Table:
    """Return the clones, and a hash table of those whose genes are known."""
    slots = np.full(1 << (_SPARE * len(is_known)).bit_length(), -1, np.int32)
    _insert(clones, np.flatnonzero(is_known), slots, mask)
    return clones, slots


@njit(nogil=True)
def _insert(own: SequenceArrays, rows: NDArray[np.int64], slots: NDArray[np.int32], mask: Any) -> None:
    for row in rows:
        slot = np.int64((hash_row(own, row) & mask) % uint64(len(slots)))
        while slots[slot] >= 0:
            slot = (slot + 1) % len(slots)
        slots[slot] = row


@njit(nogil=True)
def _find(
    sequences: SequenceArrays, start: int, stop: int, own: SequenceArrays, slots: NDArray[np.int32], mask: Any
) -> NDArray[np.bool_]:
    """Return which of the clones in the hash table are among the sequences from `start` to `stop`, (J,)."""
    found = np.zeros(len(own.offsets) - 1, np.bool_)
    for row in range(start, stop):
        slot = np.int64((hash_row(sequences, row) & mask) % uint64(len(slots)))
        while slots[slot] >= 0:
            if are_equal(own, slots[slot], sequences, row):
                found[slots[slot]] = True
                break
            slot = (slot + 1) % len(slots)
    return found
