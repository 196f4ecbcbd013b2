"""`CloneSet`: some clones by their content, and which of them a repertoire of any container carries.

Letters: J clones, R residues, N sequences, n some of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numba
import numpy as np
import pandas as pd
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.alphabet import decode_many, encode_many, take
from deeprc.datasets.clones import gene_fields, rows_of
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequence_hash import Rows, hash_of, same
from deeprc.errors import InputError

__all__ = ["CloneSet"]

_ALL_BITS = 2**64 - 1
_SPARE = 8  # slots of the hash table for each clone
_NO_GENES = np.zeros(0, np.uint16)


class CloneSet:
    """J different clones: sequences end to end, and their genes by name.

    Parameters
    ----------
    residues, offsets
        The sequences as amino-acid indices, (R,) uint8 and (J + 1,) int64.
    genes
        The `v_call` and `j_call` of each, (J,) text; a field that is not given does not count.
    """

    def __init__(
        self, residues: NDArray[np.uint8], offsets: NDArray[np.int64], genes: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        self.residues = residues
        self.offsets = offsets
        self.genes = dict(genes or {})

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of_container(cls, dataset: RepertoireDataset, numbers: NDArray[np.int64], fields: Iterable[str]) -> CloneSet:
        """Return the clones that some sequences of a container are; numbers (J,) as in `Clones.representative`."""
        bounds = dataset.container.repertoire_offsets
        owner = np.searchsorted(bounds, numbers, side="right") - 1
        every = dataset.whole()
        tables = []
        for row in np.unique(owner).tolist():
            chosen = np.flatnonzero(owner == row)
            tables.append(every[row].to_frame(numbers[chosen] - bounds[row]).set_index(chosen))
        if not tables:
            return cls(np.zeros(0, np.uint8), np.zeros(1, np.int64), {field: np.zeros(0, "<U1") for field in fields})
        table = pd.concat(tables).sort_index()
        names = {field: table[field].to_numpy().astype(str) for field in fields}
        return cls(*encode_many(table["junction_aa"].tolist()), names)

    def ordered(self, order: NDArray[np.int64]) -> CloneSet:
        """Return some of the clones, (n,), in this order."""
        genes = {field: names[order] for field, names in self.genes.items()}
        return CloneSet(*take(self.residues, self.offsets, order), genes)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with AIRR field names: `junction_aa`, and the genes that count."""
        columns = {field: names.astype(object) for field, names in self.genes.items()}
        return pd.DataFrame(
            {"junction_aa": pd.Series(decode_many(self.residues, self.offsets), dtype=object), **columns}
        )

    def carried(self, dataset: RepertoireDataset, *, mask: int = _ALL_BITS) -> Iterator[NDArray[np.int64]]:
        """Give the numbers of the clones that each repertoire carries, (n,), rising, on all cores.

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
        for field in self.genes:
            if len(dataset) and field not in gene_fields(dataset):
                raise InputError(f"{dataset.container.path}: has no {field}, with which the clones were learned")
        tables: dict[Any, _Table] = {}
        with ThreadPoolExecutor(numba.get_num_threads()) as threads:
            yield from threads.map(partial(self._carried, mask=uint64(mask), tables=tables), dataset)

    def _carried(self, repertoire: Repertoire, mask: Any, tables: dict[Any, _Table]) -> NDArray[np.int64]:
        calls = {field: getattr(repertoire.container, field) for field in self.genes}
        vocabularies = tuple(each.vocabulary for each in calls.values())
        if vocabularies not in tables:
            tables[vocabularies] = self._table(dict(zip(calls, vocabularies, strict=True)), mask)
        own, slots = tables[vocabularies]
        rows = rows_of(repertoire, list(self.genes))
        return np.flatnonzero(_find(rows, repertoire.start, repertoire.stop, own, slots, mask))

    def _table(self, vocabularies: dict[str, tuple[str, ...]], mask: Any) -> _Table:
        """Return the clones with the genes' numbers in a container, and a hash table of those whose genes it has."""
        codes, known = {}, np.ones(len(self), bool)
        for field, vocabulary in vocabularies.items():
            number = {name: code for code, name in enumerate(vocabulary)}
            code = np.array([number.get(name, -1) for name in self.genes[field].tolist()], np.int64)
            known &= code >= 0
            codes[field] = code.clip(0).astype(np.uint16)
        own = Rows(self.residues, self.offsets, codes.get("v_call", _NO_GENES), codes.get("j_call", _NO_GENES))
        slots = np.full(1 << (_SPARE * len(self)).bit_length(), -1, np.int32)
        _insert(own, np.flatnonzero(known), slots, mask)
        return own, slots


_Table = tuple[Rows, NDArray[np.int32]]


@njit(nogil=True)
def _insert(own: Rows, numbers: NDArray[np.int64], slots: NDArray[np.int32], mask: Any) -> None:
    for number in numbers:
        slot = np.int64((hash_of(own, number) & mask) % uint64(len(slots)))
        while slots[slot] >= 0:
            slot = (slot + 1) % len(slots)
        slots[slot] = number


@njit(nogil=True)
def _find(rows: Rows, start: int, stop: int, own: Rows, slots: NDArray[np.int32], mask: Any) -> NDArray[np.bool_]:
    found = np.zeros(len(own.offsets) - 1, np.bool_)
    for row in range(start, stop):
        slot = np.int64((hash_of(rows, row) & mask) % uint64(len(slots)))
        while slots[slot] >= 0:
            if same(own, slots[slot], rows, row):
                found[slots[slot]] = True
                break
            slot = (slot + 1) % len(slots)
    return found
