"""Predictions and attention that workers compute in shares are those of one process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets.container_file import update_checksum
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.interpretation.attention import iterate_attention
from deeprc.interpretation.attention_files import write_attention
from deeprc.interpretation.by_workers import iterate_attention_of_workers
from deeprc.interpretation.ranking import Ranking
from deeprc.jobs import HERE
from deeprc.runs import shares
from deeprc.runs.ensemble import RunEnsemble, load_ensemble
from deeprc.runs.experiment import train_run
from deeprc.runs.pack import pack_run
from deeprc.runs.shares import CohortShare, DividedCohort
from tests.datasets.test_hostile_containers import as_version_1
from tests.toys.dying_workers import kill_a_worker_that_computes
from tests.toys.repertoires import make_sequences, write_repertoires

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

SMALL = load_config("deeprc", ["n_updates=20", "evaluate_every=10", "n_kernels=6", "kernel_size=4", "n_sequences=40"])


@pytest.fixture(scope="module")
def folders(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs."""
    found = [tmp_path_factory.mktemp("runs") / name for name in ("one", "two")]
    for seed, folder in enumerate(found):
        split = SplitOptions(folds=3, fold=0, validation_fold=1 + seed)
        given = {"targets": "status=case", "config": SMALL, "device": "cpu", "seed": seed}
        train_run(cohort.container.path, folder, split=split, **given)
    return found


@pytest.fixture(scope="module")
def ensemble(folders: list[Path]) -> RunEnsemble:
    return load_ensemble(folders, device="cpu")


@pytest.mark.parametrize("rows", [slice(None), [7, 2, 2, 11], []])
def test_outputs_are_those_of_one_process(
    ensemble: RunEnsemble, cohort: RepertoireDataset, rows: slice | list[int]
) -> None:
    asked = cohort[rows]
    found = DividedCohort(ensemble, asked, HERE, "cpu").compute_outputs()
    assert torch.equal(found, ensemble.model.compute_outputs(asked))
    assert ensemble.predict(asked, outputs=found).equals(ensemble.predict(asked))


def test_shares_are_of_about_as_many_sequences_and_hold_all_repertoires_in_order(
    ensemble: RunEnsemble, cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[CohortShare] = []

    def note(share: CohortShare) -> tuple[int, ...]:
        seen.append(share)
        return share.repertoire_indices

    assert [*DividedCohort(ensemble, cohort, HERE).compute_in_shares(note)] == list(range(30))
    assert len(seen) == 15  # two repertoires of some 60 sequences exceed a sixteenth of all
    assert seen[0].name == "rep.0 to rep.1"
    monkeypatch.setattr(shares, "_MAX_SEQUENCES", 1)
    seen.clear()
    assert [*DividedCohort(ensemble, cohort[::-1], HERE).compute_in_shares(note)] == list(range(30))[::-1]
    assert len(seen) == 30
    assert seen[0].name == "rep.29"


@pytest.mark.parametrize(
    ("top", "ranking"), [(None, None), (3, None), (4, Ranking("attention")), (2, Ranking("response", 0, -1.0))]
)
def test_attention_is_that_of_one_process(
    ensemble: RunEnsemble, cohort: RepertoireDataset, tmp_path: Path, top: int | None, ranking: Ranking | None
) -> None:
    asked = cohort[[3, 0, 9, 10]]
    write_attention(tmp_path / "here.tsv", iterate_attention(ensemble.model, asked, top=top, ranking=ranking))
    there = iterate_attention_of_workers(DividedCohort(ensemble, asked, HERE, "cpu"), top=top, ranking=ranking)
    write_attention(tmp_path / "there.tsv", there)
    for name in ("{}.tsv", "{}.heads.tsv"):
        assert (tmp_path / name.format("there")).read_bytes() == (tmp_path / name.format("here")).read_bytes()


def test_a_packed_run_is_sent_as_its_file(folders: list[Path], cohort: RepertoireDataset, tmp_path: Path) -> None:
    pack_run(folders[0], tmp_path / "one.deeprc")
    packed = load_ensemble([tmp_path / "one.deeprc"], device="cpu")
    found = DividedCohort(packed, cohort, HERE, "cpu").compute_outputs()
    assert torch.equal(found, packed.model.compute_outputs(cohort))


def test_another_container_on_the_worker_is_refused(
    ensemble: RunEnsemble, cohort: RepertoireDataset, cohort_factory: object, tmp_path: Path
) -> None:
    path = tmp_path / "cohort.h5"
    shutil.copy(cohort.container.path, path)
    opened = open_dataset(path)
    shutil.copy(cohort_factory(n_repertoires=10).container.path, tmp_path / "other.h5")  # type: ignore[operator]
    (tmp_path / "other.h5").replace(path)
    expected, found = opened.container.checksum, open_dataset(path).container.checksum
    told = f"cohort.h5: the worker finds a different container there: expected the checksum {expected}, found {found}$"
    with pytest.raises(InputError, match=rf"^rep.10 to rep.11: .*{told}"):
        DividedCohort(ensemble, opened[10:], HERE, "cpu").compute_outputs()


def test_another_container_with_the_same_ids_is_refused(
    ensemble: RunEnsemble, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    path = tmp_path / "cohort.h5"
    shutil.copy(cohort.container.path, path)
    opened = open_dataset(path)
    shutil.copy(cohort.container.path, tmp_path / "other.h5")
    with h5py.File(tmp_path / "other.h5", "r+") as file:
        file["residues"][0] = (file["residues"][0] + 1) % 20
    update_checksum(tmp_path / "other.h5")
    (tmp_path / "other.h5").replace(path)
    with pytest.raises(
        InputError, match=r"^rep.0 to rep.1: .*the worker finds a different container there: expected the"
    ):
        DividedCohort(ensemble, opened, HERE, "cpu").compute_outputs()


def test_another_container_of_version_1_is_refused(
    ensemble: RunEnsemble, cohort: RepertoireDataset, cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    """It has no checksum, and the ids are the same."""
    path = as_version_1(cohort.container.path, tmp_path / "cohort.h5")
    opened = open_dataset(path)
    found = DividedCohort(ensemble, opened, HERE, "cpu").compute_outputs()
    assert torch.equal(found, ensemble.model.compute_outputs(cohort))
    as_version_1(cohort_factory(seed=5).container.path, tmp_path / "other.h5").replace(path)
    with pytest.raises(InputError, match=r"^rep.0 to rep.1: .*the worker finds a different container there: expected"):
        DividedCohort(ensemble, opened, HERE, "cpu").compute_outputs()


def test_another_run_on_the_worker_is_refused(folders: list[Path], cohort: RepertoireDataset, tmp_path: Path) -> None:
    for name, source in (("a", folders[0]), ("b", folders[1])):
        shutil.copytree(source, tmp_path / name)
    opened = load_ensemble([tmp_path / "a"], device="cpu")
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b").rename(tmp_path / "a")
    told = r"/a: the worker finds a different run there: expected weights [0-9a-f]{16}, found [0-9a-f]{16}$"
    with pytest.raises(InputError, match=rf"^rep.0 to rep.1: .*{told}"):
        DividedCohort(opened, cohort, HERE, "cpu").compute_outputs()


def test_a_share_that_fails_leaves_no_table(
    ensemble: RunEnsemble, cohort: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = CohortShare.load

    def fail_later(share: CohortShare) -> tuple[RunEnsemble, RepertoireDataset]:
        if share.repertoire_indices[0] >= 10:
            raise InputError("the disk is gone")
        return whole(share)

    monkeypatch.setattr(CohortShare, "load", fail_later)
    tables = iterate_attention_of_workers(DividedCohort(ensemble, cohort, HERE, "cpu"), top=2)
    with pytest.raises(InputError, match=r"^rep.10 to rep.11: the disk is gone$"):
        write_attention(tmp_path / "a.tsv", tables)
    assert [*tmp_path.iterdir()] == []


def test_empty_repertoires_are_one_share(ensemble: RunEnsemble, tmp_path: Path) -> None:
    dataset = write_repertoires(tmp_path / "empty.h5", [make_sequences([])] * 40, {"status": ["case"] * 40})
    assert [len(part) for part in shares._divide_into_shares(dataset)] == [40]


def test_without_a_scheduler_nothing_is_written(
    folders: list[Path], cohort: RepertoireDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    given = [str(folders[0]), str(cohort.container.path), "-o", str(tmp_path / "o.tsv"), "--scheduler"]
    for command in ("predict", "attention"):
        with pytest.raises(SystemExit) as end:
            main([command, *given, "tcp://127.0.0.1:1"])
        assert end.value.code == 2
        assert "--scheduler tcp://127.0.0.1:1: cannot be reached" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.long
@pytest.mark.parametrize("command", ["predict", "attention"])
def test_a_cluster_that_loses_a_worker_gives_the_same(
    folders: list[Path], cohort: RepertoireDataset, tmp_path: Path, cluster: str, command: str
) -> None:
    given = [*map(str, folders), str(cohort.container.path), "--device", "cpu", "-o"]
    with pytest.raises(SystemExit):
        main([command, *given, str(tmp_path / "here.tsv")])
    with kill_a_worker_that_computes(cluster), pytest.raises(SystemExit) as end:
        main([command, *given, str(tmp_path / "there.tsv"), "--scheduler", cluster])
    assert end.value.code == 0
    here, there = (pd.read_csv(tmp_path / f"{name}.tsv", sep="\t") for name in ("here", "there"))
    assert list(here) == list(there)
    assert len(here) == len(there) > 0
    for column in here:
        if here[column].dtype.kind == "f":  # the workers have another number of threads
            np.testing.assert_allclose(there[column], here[column], atol=1e-4)
        else:
            assert there[column].fillna("").tolist() == here[column].fillna("").tolist()
