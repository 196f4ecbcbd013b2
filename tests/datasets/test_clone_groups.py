"""Clones are grouped exactly, whatever the hash, the size of a pass and the place of the sequences."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deeprc.datasets import clone_groups as module
from deeprc.datasets.clone_groups import group_clones
from deeprc.datasets.clones import count_distinct_clones, find_shared_clones, list_gene_fields, take_sequences
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import SequenceArrays
from deeprc.datasets.simulation import Cohort, IndependentBackground, SimulatedDataset, Sizes, write_container
from deeprc.datasets.simulation.dataset import VirtualSequences
from tests.toys.crowded import make_crowded

# short sequences of two letters, which meet often
COHORT = Cohort(7, Sizes(40, 30, minimum=2), IndependentBackground(4, 1.0, {"A": 1 << 14, "C": 3 << 14}))


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Short sequences of few letters."""
    return make_crowded(tmp_path_factory.mktemp("crowded"))


@pytest.mark.parametrize("genes", [False, True])
@pytest.mark.parametrize("mask", [0, 1, 0x3, 0xC000000000000001, 2**64 - 1])
@pytest.mark.parametrize("at_once", [1, 7, 50, 1 << 25])
def test_neither_a_bad_hash_nor_the_size_of_a_pass_changes_anything(
    crowded: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, genes: bool, mask: int, at_once: int
) -> None:
    if at_once == 50:
        monkeypatch.setattr(module, "_PIECE", 9)  # several pieces in a pass
    rows = crowded.container.sequences.arrays(list_gene_fields(crowded) if genes else [])
    found = group_clones(rows, crowded.container.repertoire_offsets, at_once=at_once, mask=mask)
    expected = find_shared_clones(crowded, list_gene_fields(crowded) if genes else [])
    for name, values in vars(found).items():
        np.testing.assert_array_equal(values, getattr(expected, name))


@pytest.mark.parametrize("mask", [0x3, 2**64 - 1])
def test_a_cohort_on_no_disk_has_the_clones_of_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    write_container(COHORT, tmp_path / "cohort.h5")
    virtual, written = SimulatedDataset(COHORT), open_dataset(tmp_path / "cohort.h5")
    expected = find_shared_clones(written)
    assert len(expected) > 10
    monkeypatch.setattr(module, "_PIECE", 9)
    for found in (
        find_shared_clones(virtual[:2]),
        group_clones(VirtualSequences(virtual.container), virtual.container.repertoire_offsets, mask=mask),
    ):
        for name, values in vars(found).items():
            np.testing.assert_array_equal(values, getattr(expected, name))
    np.testing.assert_array_equal(count_distinct_clones(virtual), count_distinct_clones(written))
    np.testing.assert_array_equal(find_shared_clones(virtual).count_by_repertoire(), count_distinct_clones(virtual))
    rows = np.array([90, 3, 170, 4, 91, 90])
    assert take_sequences(virtual, rows).decode() == take_sequences(written, rows).decode()


@pytest.mark.parametrize("at_once", [1000, 40])
def test_a_cohort_on_no_disk_is_made_twice_if_its_hashes_fit_the_memory(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(module, "_PIECE", 9)
    made = 0
    view = VirtualSequences.view

    def count(sequences: VirtualSequences, start: int, stop: int) -> SequenceArrays:
        nonlocal made
        made += stop - start
        return view(sequences, start, stop)

    monkeypatch.setattr(VirtualSequences, "view", count)
    sequences = VirtualSequences(SimulatedDataset(COHORT).container)
    n = sequences.bounds[-1]
    assert n % 9
    group_clones(sequences, np.asarray(sequences.bounds), at_once=at_once)
    n_passes = 1 if at_once >= n else math.ceil(math.ceil(n / 9) / (at_once // 9))
    assert made == (1 + n_passes) * n


@pytest.mark.long
def test_simulated_sequences_are_made_in_threads_whatever_the_threading_layer() -> None:
    program = """
from deeprc.datasets.cache import digest_repertoires
from deeprc.datasets.clones import find_shared_clones
from deeprc.datasets.simulation import Cohort, IndependentBackground, LstmBackground, SimulatedDataset, Sizes
for background in (IndependentBackground(), LstmBackground()):
    dataset = SimulatedDataset(Cohort(12, Sizes(300, minimum=300), background))
    digest_repertoires(dataset)
    find_shared_clones(dataset)
print("done")
"""
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "workqueue"}  # it kills processes whose threads use prange
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "done\n"), found.stderr
