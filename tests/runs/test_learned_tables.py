"""The table of stored clones that a run writes, from a branch with several kinds of clones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from deeprc.branches.clones import CloneBranch
from deeprc.branches.clones_evidence import EvidenceDirection, EvidenceLevel
from deeprc.branches.clones_memory import CLUSTER, Memory
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.sequences import Sequences
from deeprc.runs import learned_tables
from deeprc.runs.learned_tables import find_cluster_members, make_clones_table
from deeprc.tasks import Task


def make_memory(
    output: int,
    direction: EvidenceDirection,
    junctions: list[str],
    matches: list[int],
    tests: list[tuple[float, float]],
) -> Memory:
    levels = [EvidenceLevel(2.0, 1.0, np.array([0.5, 40.0, 2.0, 30.0]))]
    clones, carriers = CloneSet(Sequences.encode(junctions)), np.ones((len(junctions), 2), np.int64)
    return Memory(output, direction, "odds", levels, clones, np.array(matches), carriers, np.array(tests))


def test_equal_clones_have_one_row_and_rows_are_ordered_by_p_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """CASF is stored three times with an exact match, and once with a substitution."""
    memories = [
        make_memory(0, "up", ["CAWF", "CAYF"], [CLUSTER, CLUSTER], [(0.02, 0.2)] * 2),
        make_memory(0, "up", ["CASF", "CAGF"], [0, 0], [(0.01, 0.1), (0.3, 0.9)]),
        make_memory(0, "up", ["CASF", "CASF"], [0, 1], [(0.01, 0.5), (0.03, 0.6)]),
        make_memory(0, "down", ["CASF"], [0], [(0.001, 0.1)]),
        make_memory(1, "up", ["CADF"], [0], [(1e-5, 0.1)]),
    ]
    branch = CloneBranch.of(memories, 2)
    monkeypatch.setattr(learned_tables, "iterate_branches", lambda _: [(branch, [1.0])])
    tasks = [Task("b", "b", "binary", ("0", "1")), Task("a", "a", "binary", ("0", "1"))]
    model = SimpleNamespace(network=SimpleNamespace(branches=None), tasks=tasks)
    table = make_clones_table(cast(Any, model))
    columns = ["junction_aa", "direction", "match", "p_value", "q_value"]
    assert list(table[columns].itertuples(index=False, name=None)) == [
        ("CASF", "up", "exact", 0.01, 0.1),
        ("CAWF", "up", "cluster 1", 0.02, 0.2),
        ("CAYF", "up", "cluster 1", 0.02, 0.2),
        ("CASF", "up", "one substitution", 0.03, 0.6),
        ("CAGF", "up", "exact", 0.3, 0.9),
        ("CASF", "down", "exact", 0.001, 0.1),
        ("CADF", "up", "exact", 1e-5, 0.1),
    ]
    assert table["output"].tolist() == [*["b"] * 6, "a"]
    assert table.index.tolist() == list(range(7))
    assert find_cluster_members(table).tolist() == [False, True, True, False, False, False, False]
