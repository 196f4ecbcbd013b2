"""Several processes search for motifs and count sequences as one process does, to the last digit."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.rank_calls import PackedFlags, compute_parts, compute_parts_with, count_parts, split_by_size
from tests.conftest import random_sequences, write_cohort
from tests.toys.rank_processes import start_ranks
from tests.training.searched_by_ranks import Found, search_all

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

PROGRAM = Path(__file__).with_name("searched_by_ranks.py")


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """50 repertoires: cases have WWHW or CYF in some sequences and half of ten public clones, site c has MNPQ."""
    rng = np.random.default_rng(0)
    public = random_sequences(rng, 10)
    repertoires = []
    for number in range(50):
        sequences = random_sequences(rng, 84 + int(rng.integers(0, 9)))
        if number % 2:
            sequences[::10] = [text[:2] + "WWHW" + text[2:] for text in sequences[::10]]
            sequences[5::20] = [text[:3] + "CYF" + text[3:] for text in sequences[5::20]]
            own = [text for text in public if rng.random() < 0.5]
            sequences[61 : 61 + len(own)] = own
            sequences[81:83] = own[:2]  # a clone may occur several times
        if number % 3 == 2:
            sequences[1::8] = [text[:1] + "MNPQ" + text[1:] for text in sequences[1::8]]
        repertoires.append(sequences)
    status = np.where(np.arange(50) % 2 == 1, "case", "healthy")
    site = np.array(["a", "b", "c"])[np.arange(50) % 3]
    metadata = pd.DataFrame({"status": status, "site": site})
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cohort.h5", repertoires, metadata, 0)


@pytest.fixture(scope="module")
def alone(cohort: RepertoireDataset) -> Found:
    """What one process finds."""
    return dict(json.loads(json.dumps(search_all(cohort))))


def search(n: int, cohort: RepertoireDataset, folder: Path) -> Found:
    """Return what n ranks find in a copy of the cohort, beside which no counts are cached."""
    shutil.copy(cohort.container.path, folder / "copy.h5")
    start_ranks(n, PROGRAM, folder / "copy.h5", folder / "found.json")
    return dict(json.loads((folder / "found.json").read_text()))


def test_one_process_finds_the_implanted_motifs_and_counts_enough_for_a_comparison(alone: Found) -> None:
    assert {(pattern, output) for pattern, output, *_ in alone["motifs"]} >= {("WWHW", 0), ("CYF", 0), ("MNPQ", 3)}
    assert {(pattern, output) for pattern, output, *_ in alone["common motifs"]} >= {("WWHW", 0), ("MNPQ", 3)}
    assert alone["branches"].keys() == {"composition", "clones"}
    assert len(alone["counts"]["carriers"]) > 20
    assert len(alone["counts"]["occurrences"][0]) > 20
    assert min(alone["gaps"][1:]) > 5


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.long)])
def test_ranks_find_what_one_process_finds(n: int, cohort: RepertoireDataset, alone: Found, tmp_path: Path) -> None:
    found = search(n, cohort, tmp_path)
    for name, expected in alone.items():
        assert found[name] == expected, name
    processes, given, parts = zip(*found["processes"], strict=True)
    assert len(set(processes)) == n
    assert [flags.index(True) for flags in given] == list(range(n))
    assert [len(flags) for flags in given] == [11] * n
    assert list(parts) == [1] * n  # a part of the work is not divided again
    assert found["is open"] == [True] * n
    assert found["errors"] == [["part 1 is damaged", "no room on rank 0", "no room for the result"]] * n


def test_one_process_computes_the_only_part(cohort: RepertoireDataset) -> None:
    assert count_parts() == 1
    with compute_parts_with(lambda function, parts: [function(part) + 1 for part in parts], 3):
        assert count_parts() == 3
        assert compute_parts(len, ["a", "bc", ""]) == [2, 3, 1]
    assert compute_parts(len, ["abc"]) == [3]


def test_split_by_size_gives_parts_of_about_equal_sizes() -> None:
    sizes = np.array([5, 1, 1, 1, 4, 0, 3, 9], np.int64)
    assert split_by_size(sizes, 1) == [slice(0, 8)]
    assert split_by_size(sizes, 2) == [slice(0, 5), slice(5, 8)]  # 12 of 24 each
    assert [part.stop - part.start for part in split_by_size(sizes[:2], 4)] == [0, 1, 0, 1]
    assert split_by_size(sizes[:0], 2) == [slice(0, 0), slice(0, 0)]


def test_flags_are_sent_as_bits() -> None:
    flags = PackedFlags(np.random.default_rng(0).random(80_003) < 0.5)
    sent = pickle.dumps(flags)
    assert len(sent) < 10_300
    np.testing.assert_array_equal(pickle.loads(sent).flags, flags.flags)
    assert pickle.loads(sent).flags.dtype == np.bool_
