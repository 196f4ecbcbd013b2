"""Clones are grouped exactly, whatever the hash, the size of a pass and the place of the sequences."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deeprc.datasets.clones import grouping as module
from deeprc.datasets.clones.distinct import count_distinct_clones
from deeprc.datasets.clones.grouping import group_clones
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.on_demand import OnDemandSequences
from deeprc.datasets.sequences import SequenceArrays
from deeprc.datasets.simulation import Cohort, IndependentBackground, SimulatedDataset, Sizes, write_container
from tests.toys.crowded import make_crowded

# short sequences of two letters, which meet often
COHORT = Cohort(7, Sizes(40, 30, minimum=2), IndependentBackground(4, 1.0, {"A": 1 << 14, "C": 3 << 14}))


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Short sequences of few letters."""
    return make_crowded(tmp_path_factory.mktemp("crowded"))


@pytest.mark.parametrize("genes", [False, True])
@pytest.mark.parametrize("mask", [0, 1, 0x3, 0xC000000000000001, 2**64 - 1])
@pytest.mark.parametrize("max_hashes", [1, 7, 50, 1 << 25])
def test_clones_do_not_depend_on_the_hash_or_the_size_of_a_pass(
    crowded: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, genes: bool, mask: int, max_hashes: int
) -> None:
    if max_hashes == 50:
        monkeypatch.setattr(module, "_BLOCK", 9)  # several hash ranges in a pass
    rows = crowded.container.sequences.arrays(crowded.gene_fields if genes else [])
    found = group_clones(rows, crowded.container.repertoire_offsets, max_hashes=max_hashes, mask=mask)
    expected = find_shared_clones(crowded, crowded.gene_fields if genes else [])
    for name, values in vars(found).items():
        np.testing.assert_array_equal(values, getattr(expected, name))


@pytest.mark.parametrize("mask", [0x3, 2**64 - 1])
def test_a_simulated_cohort_has_the_clones_of_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    write_container(COHORT, tmp_path / "cohort.h5")
    simulated, written = SimulatedDataset(COHORT), open_dataset(tmp_path / "cohort.h5")
    expected = find_shared_clones(written)
    assert len(expected) > 10
    monkeypatch.setattr(module, "_BLOCK", 9)
    for found in (
        find_shared_clones(simulated[:2]),
        group_clones(OnDemandSequences(simulated.container), simulated.container.repertoire_offsets, mask=mask),
    ):
        for name, values in vars(found).items():
            np.testing.assert_array_equal(values, getattr(expected, name))
    np.testing.assert_array_equal(count_distinct_clones(simulated), count_distinct_clones(written))
    np.testing.assert_array_equal(find_shared_clones(simulated).count_by_repertoire(), count_distinct_clones(simulated))
    rows = np.array([90, 3, 170, 4, 91, 90])
    assert simulated.take_clones(rows).decode() == written.take_clones(rows).decode()


@pytest.mark.parametrize("max_hashes", [1000, 40])
def test_a_simulated_cohort_is_made_twice_if_its_hashes_fit_the_memory(
    monkeypatch: pytest.MonkeyPatch, max_hashes: int
) -> None:
    monkeypatch.setattr(module, "_BLOCK", 9)
    made = 0
    view = OnDemandSequences.view

    def count(sequences: OnDemandSequences, start: int, stop: int) -> SequenceArrays:
        nonlocal made
        made += stop - start
        return view(sequences, start, stop)

    monkeypatch.setattr(OnDemandSequences, "view", count)
    sequences = OnDemandSequences(SimulatedDataset(COHORT).container)
    n = sequences.bounds[-1]
    assert n % 9
    group_clones(sequences, np.asarray(sequences.bounds), max_hashes=max_hashes)
    n_passes = 1 if max_hashes >= n else math.ceil(math.ceil(n / 9) / (max_hashes // 9))
    assert made == (1 + n_passes) * n


@pytest.mark.long
def test_simulated_sequences_are_made_in_threads_whatever_the_threading_layer() -> None:
    program = """
from deeprc.datasets.cache import digest_with_genes
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.simulation import Cohort, IndependentBackground, LstmBackground, SimulatedDataset, Sizes
for background in (IndependentBackground(), LstmBackground()):
    dataset = SimulatedDataset(Cohort(12, Sizes(300, minimum=300), background))
    digest_with_genes(dataset)
    find_shared_clones(dataset)
print("done")
"""
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "workqueue"}  # it kills processes whose threads use prange
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "done\n"), found.stderr
