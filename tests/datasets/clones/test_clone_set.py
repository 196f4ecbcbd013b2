"""The tables of clones that are kept for containers with other orders of genes: few, and the right ones."""

from __future__ import annotations

import gc
import weakref
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.clones.clone_set import _MAX_TABLES, CloneSet, CloneTables
from deeprc.datasets.clones.neighbours import NeighbourSearch
from deeprc.datasets.dataset import Repertoire
from deeprc.datasets.sequences import SequenceArrays, Sequences

NAMES = ("TRBV1", "TRBV2", "TRBV3", "TRBV4")
ORDERS = list(permutations(NAMES))[:12]
JUNCTIONS = ["CASSF", "CASSY", "CAWWF", "CASTF"]


def part(order: tuple[str, ...]) -> Any:
    """Return a repertoire of a part whose genes have this order: each junction with the gene of its place in NAMES."""
    genes = Categorical(np.array([order.index(name) for name in NAMES], np.uint16), order)
    store = SimpleNamespace(sequences=Sequences.encode(JUNCTIONS).with_genes({"v_call": genes}), path=Path("part.h5"))
    return Repertoire("one", 0, len(JUNCTIONS), store, {})  # type: ignore[arg-type]


@pytest.fixture
def clones() -> CloneSet:
    """The junctions CASSF and CAWWF with the genes that they have in all parts, and CASSY with another one."""
    genes = Categorical(np.array([0, 2, 3], np.uint16), NAMES)
    return CloneSet(Sequences.encode(["CASSF", "CAWWF", "CASSY"]).with_genes({"v_call": genes}))


class Table:
    """A table that says with which codes it was made."""

    def __init__(self, arrays: SequenceArrays, is_known: NDArray[np.bool_]) -> None:
        assert is_known.all()
        self.codes = arrays.v.tolist()


@pytest.mark.slow
def test_a_few_tables_are_kept_whatever_the_number_of_orders(clones: CloneSet) -> None:
    made: list[weakref.ref[Table]] = []

    def make(arrays: SequenceArrays, is_known: NDArray[np.bool_]) -> Table:
        table = Table(arrays, is_known)
        made.append(weakref.ref(table))
        return table

    tables = CloneTables(clones, make)
    for order in ORDERS:
        for _ in range(2):  # the repertoires of a part follow each other
            arrays, table = tables.get_sequences_and_table(part(order))
            assert table.codes == [order.index(NAMES[gene]) for gene in (0, 2, 3)]
            assert arrays.v.tolist() == [order.index(name) for name in NAMES]
    del table
    gc.collect()
    assert len(made) == len(ORDERS) == 12
    assert [table() is not None for table in made] == [False] * 4 + [True] * _MAX_TABLES
    tables.get_sequences_and_table(part(ORDERS[4]))  # the oldest of those that are kept becomes the newest
    assert len(made) == 12
    tables.get_sequences_and_table(part(ORDERS[0]))
    assert len(made) == 13
    tables.get_sequences_and_table(part(ORDERS[4]))
    assert len(made) == 13
    tables.get_sequences_and_table(part(ORDERS[5]))
    assert len(made) == 14


def test_a_search_finds_the_same_in_all_parts_in_any_order(clones: CloneSet) -> None:
    search = NeighbourSearch(clones)
    for order in [*ORDERS, *ORDERS[::-1], *ORDERS[::3]]:
        found = search.find_in(part(order))
        pairs = list(zip(*(column.tolist() for column in found), strict=True))
        assert pairs == [(0, 0, 0), (2, 1, 0)]
    assert len(search._tables._tables) == _MAX_TABLES == 8
