"""Several processes train what one process trains, up to rounding."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from deeprc import ranks
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.torchrun import Launch, read_launch, share_cores
from tests.conftest import random_sequences, write_cohort
from tests.toys.rank_processes import start_ranks
from tests.training.trained_by_ranks import OPTIONS, finish, interrupt, make, train_all

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

PROGRAM = Path(__file__).with_name("trained_by_ranks.py")


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """60 repertoires; positive ones have a motif in a tenth of their sequences, and half of ten public clones."""
    rng = np.random.default_rng(0)
    public = random_sequences(rng, 10)
    repertoires = []
    for number in range(60):
        sequences = random_sequences(rng, 60 + int(rng.integers(0, 5)))
        if number % 2:
            sequences[::10] = [text[:2] + "WWHW" + text[2:] for text in sequences[::10]]
            sequences += [text for text in public if rng.random() < 0.5]
        repertoires.append(sequences)
    positive = np.arange(60) % 2 == 1
    status = np.where(positive, "case", "healthy")
    metadata = pd.DataFrame({"status": status, "age": 40.0 + 10 * positive})
    return write_cohort(tmp_path_factory.mktemp("cohort") / "cohort.h5", repertoires, metadata, 0)


@pytest.fixture(scope="module")
def alone(cohort: RepertoireDataset) -> dict[str, dict[str, Tensor]]:
    """What one process trains."""
    found: dict[str, dict[str, Tensor]] = {}
    train_all(cohort, found.__setitem__)
    return found


@pytest.fixture(scope="module")
def two(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which two ranks have written what they trained."""
    folder = tmp_path_factory.mktemp("two")
    start_ranks(2, PROGRAM, cohort.container.path, folder, "cpu")
    return folder


@pytest.fixture(scope="module")
def three(cohort: RepertoireDataset, two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of three ranks, which also continued what one process and two ranks began."""
    folder = tmp_path_factory.mktemp("three")
    interrupt(cohort, folder / "of one.safetensors")
    shutil.copy(two / "last.safetensors", folder / "of two.safetensors")
    begun = [folder / f"{name}.safetensors" for name in ("of one", "of two")]
    start_ranks(3, PROGRAM, cohort.container.path, folder, "cpu", *begun)
    return folder


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=2e-5, rtol=2e-4, msg=partial("{}: {}".format, name))


@pytest.mark.parametrize("name", OPTIONS)
def test_two_ranks_train_what_one_process_trains(alone: dict[str, dict[str, Tensor]], two: Path, name: str) -> None:
    assert_close(load_file(two / f"{name}.safetensors"), alone[name])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_two_ranks_with_nccl_train_what_one_process_trains_on_cuda(cohort: RepertoireDataset, tmp_path: Path) -> None:
    alone: dict[str, dict[str, Tensor]] = {}
    train_all(cohort, alone.__setitem__, "cuda")
    start_ranks(2, PROGRAM, cohort.container.path, tmp_path, "cuda", on_own_machines=True)
    for name, expected in alone.items():
        assert_close(load_file(tmp_path / f"{name}.safetensors"), expected)


@pytest.mark.long
@pytest.mark.parametrize("name", OPTIONS)
def test_three_ranks_train_what_one_process_trains(alone: dict[str, dict[str, Tensor]], three: Path, name: str) -> None:
    assert_close(load_file(three / f"{name}.safetensors"), alone[name])


def test_a_training_with_branches_has_both(alone: dict[str, dict[str, Tensor]]) -> None:
    found = alone["branches"]
    assert found["branches.gains"][:, 0].abs().min() > 0.1
    assert found["branches.members.composition.kmer_weights"][0].abs().max() > 0
    assert len(found["branches.members.clones.carriers"]) > 0
    assert found["motifs"] > 0  # of the sequences that match no stored clone


def test_in_some_updates_one_rank_alone_has_labels_of_the_second_target(cohort: RepertoireDataset) -> None:
    trainer = make(cohort, OPTIONS["missing labels"])
    known = [~np.isnan(trainer.train.labels[trainer.draws.choose_repertoires(update), 1]) for update in range(20)]
    first, second = (np.array([part[rows].any() for part in known]) for rows in (slice(0, 2), slice(2, 4)))
    assert (first & ~second).any()
    assert (second & ~first).any()
    assert (first & second).any()


@pytest.mark.long
@pytest.mark.parametrize("n", [0, 1])
def test_another_number_of_ranks_may_continue(alone: dict[str, dict[str, Tensor]], three: Path, n: int) -> None:
    assert_close(load_file(three / f"resumed {n}.safetensors"), alone["missing labels"])


def test_one_process_continues_what_ranks_began(
    cohort: RepertoireDataset, alone: dict[str, dict[str, Tensor]], two: Path
) -> None:
    resumed = make(cohort, OPTIONS["missing labels"], two / "last.safetensors")
    assert resumed.state.update == 10
    assert_close(finish(resumed, cohort), alone["missing labels"])


def test_shares_cover_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = np.array([5, 1, 1, 1, 4, 0, 3, 9], np.int64)
    for size in (1, 2, 3, 8, 11):
        by_number, by_size = [], []
        for rank in range(size):
            monkeypatch.setattr(ranks, "_group", ranks._Group(Launch(rank, size, 0, 1), None, 1))
            by_number += range(10)[ranks.take_share(10)]
            by_size += range(8)[ranks.take_share_by_size(sizes)]
        assert by_number == list(range(10))
        assert by_size == list(range(8))
    monkeypatch.setattr(ranks, "_group", ranks._Group(Launch(1, 2, 0, 1), None, 1))
    assert range(8)[ranks.take_share_by_size(sizes)] == range(5, 8)  # 12 of 24
    assert range(10)[ranks.take_share(10)] == range(5, 10)


def test_a_process_alone_needs_no_others() -> None:
    rows = torch.arange(6.0).reshape(3, 2)
    with ranks.join_ranks():
        assert ranks.count_ranks() == 1
        assert (ranks.is_main(), ranks.are_joined(), ranks.find_local_index()) == (True, False, None)
        assert ranks.compute_once(lambda: 3) == 3
        assert ranks.gather([1, 2]) == [1, 2]
        assert ranks.average_rows(rows).tolist() == [2.0, 3.0]
        assert ranks.may_report()


def test_cores_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_launch() is None
    names = {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4, "MASTER_PORT": 1, "MASTER_ADDR": "a"}
    for name, value in names.items():
        monkeypatch.setenv(name, str(value))
    assert read_launch() == Launch(5, 8, 1, 4)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(10), raising=False)
    for before, after in (("1", "2"), ("3", "3")):  # torchrun sets 1
        monkeypatch.setenv("OMP_NUM_THREADS", before)
        share_cores()
        assert os.environ["OMP_NUM_THREADS"] == after
