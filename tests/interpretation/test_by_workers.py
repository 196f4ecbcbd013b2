"""A survey whose repertoires workers read is that of one process, and so is the report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.simulation import load_recipe
from deeprc.datasets.simulation.write import write_container
from deeprc.errors import InputError
from deeprc.interpretation.by_workers import survey_by_workers
from deeprc.interpretation.column_tables import take_rows
from deeprc.interpretation.false_sequences import HighestScores
from deeprc.interpretation.ranking import BestRows
from deeprc.interpretation.report import write_any_report
from deeprc.interpretation.survey import Survey, survey_cohort
from deeprc.jobs import HERE, Workers
from deeprc.runs import shares
from deeprc.runs.ensemble import RunEnsemble, load_ensemble
from deeprc.runs.experiment import train_run
from deeprc.runs.shares import DividedCohort
from tests.toys.dying_workers import kill_a_worker_that_computes

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

OVERRIDES = ["n_updates=20", "evaluate_every=10", "n_kernels=6", "kernel_size=4", "n_sequences=100", "n_heads=2"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """60 repertoires with genes, some of whose sequences are known to carry a motif."""
    path = tmp_path_factory.mktemp("cohort") / "cohort.h5"
    overrides = ["n_repertoires=60", "sizes.mean=150", "sizes.sd=20", "witness_rate=0.1"]
    simulated, mapping = load_recipe("quickstart", overrides, seed=0)
    write_container(simulated, path, recipe=mapping)
    return open_dataset(path)


@pytest.fixture(scope="module")
def folder(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that also reads the composition."""
    path = tmp_path_factory.mktemp("runs") / "run"
    train_run(cohort.container.path, path, targets="status", config=load_config("deeprc", OVERRIDES), device="cpu")
    return path


@pytest.fixture(scope="module")
def ensemble(folder: Path) -> RunEnsemble:
    return load_ensemble([folder], device="cpu")


def assert_same_tables(found: Survey, expected: Survey, check: Callable[[pd.DataFrame, pd.DataFrame], None]) -> None:
    check(found.heads, expected.heads)
    check(found.curves, expected.curves)
    check(found.genes, expected.genes)
    for own, others in ((found.top, expected.top), (found.by_residues, expected.by_residues)):
        assert list(own) == list(others)
        for name, best in own.items():
            check(best.table, others[name].table)
            assert best.index.positions.tolist() == others[name].index.positions.tolist()
            assert best.index.rows.tolist() == others[name].index.rows.tolist()
    assert len(found.witnesses) == len(expected.witnesses) == 2
    for table, other in zip(found.witnesses, expected.witnesses, strict=True):
        check(table, other)


def check_equal(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12, atol=0)


def check_close(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found, expected, rtol=1e-3, atol=1e-4)  # workers have another number of threads


@pytest.mark.parametrize(
    ("top", "size"),
    [
        (7, 700),
        (1000, 10**6),
        *(
            pytest.param(top, size, marks=pytest.mark.long)
            for top, size in ((1, 1), (7, 1), (1000, 1), (1, 700), (1000, 700), (1, 10**6), (7, 10**6))
        ),
    ],
)
def test_a_survey_in_shares_is_that_of_one_process(
    ensemble: RunEnsemble, cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, top: int, size: int
) -> None:
    monkeypatch.setattr(shares, "_MAX_SEQUENCES", size)
    asked = cohort[[*range(20, 60), *range(10)]]
    splits, among = ensemble.split_of(asked), [2, 3, 41]
    expected = survey_cohort(ensemble.model, asked, top=top, parts=splits, witnesses_among=among)
    found = survey_by_workers(DividedCohort(ensemble, asked, HERE, "cpu"), top=top, parts=splits, witnesses_among=among)
    assert ensemble.model.branch_names
    assert_same_tables(found, expected, check_equal)
    np.testing.assert_array_equal(found.outputs.outputs, expected.outputs.outputs)
    np.testing.assert_array_equal(found.residue_frequencies, expected.residue_frequencies)
    assert found.highest.keys() == expected.highest.keys()
    for name, highest in found.highest.items():
        for own, other in zip(highest.sort_scores(), expected.highest[name].sort_scores(), strict=True):
            np.testing.assert_array_equal(own, other)


def test_a_survey_with_a_share_for_each_repertoire(
    ensemble: RunEnsemble, cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "_MAX_SEQUENCES", 1)
    asked = cohort[[58, 3, 7, 12, 20, 41]]
    expected, found = (
        survey_cohort(ensemble.model, asked, top=1),
        survey_by_workers(DividedCohort(ensemble, asked, HERE, "cpu"), top=1),
    )
    for name, best in found.top.items():
        check_equal(best.table, expected.top[name].table)
    np.testing.assert_array_equal(found.outputs.outputs, expected.outputs.outputs)


def test_a_survey_without_splits_and_witnesses(ensemble: RunEnsemble, cohort: RepertoireDataset) -> None:
    expected = survey_cohort(ensemble.model, cohort)
    found = survey_by_workers(DividedCohort(ensemble, cohort, HERE, "cpu"))
    assert found.witnesses == expected.witnesses == []
    for name, best in found.top.items():
        check_equal(best.table, expected.top[name].table)
        assert "split" not in best.table


def test_highest_scores_that_are_joined_are_those_of_all() -> None:
    scores = np.random.default_rng(0).normal(size=(30, 50))
    whole, joined = HighestScores(100), HighestScores(100)
    for position, own in enumerate(scores):
        whole.add_candidates(position, own)
    for start in (0, 4, 25):
        part = HighestScores(100)
        for position, own in enumerate(scores[start : {0: 4, 4: 25, 25: 30}[start]]):
            part.add_candidates(position, own)
        joined.join(part, start)
    for own, other in zip(joined.sort_scores(), whole.sort_scores(), strict=True):
        np.testing.assert_array_equal(own, other)
    assert joined.limit == np.sort(scores.ravel())[-100]


def test_best_rows_that_are_joined_count_a_clone_once() -> None:
    def best(keys: list[float], names: list[str]) -> BestRows:
        found = BestRows(2, unique_by=("name",))
        columns = {"name": np.array(names), "key": np.array(keys)}
        found.add_candidates(columns["key"], partial(take_rows, columns))
        return found

    joined = best([5.0, 1.0], ["a", "b"])
    joined.join(best([3.0, 5.0, 4.0], ["c", "a", "c"]), lambda columns: {**columns, "key": columns["key"] + 100})
    assert joined.make_table().to_dict("list") == {"name": ["a", "c"], "key": [5.0, 104.0]}


def test_only_runs_are_sent_to_workers(
    folder: Path, cohort: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeprc.interpretation.report.any_report.check_scheduler", lambda address: None)
    (run,) = load_ensemble([folder], device="cpu").runs
    with pytest.raises(InputError, match=r"^`scheduler` needs runs and a container that workers can open: give their"):
        write_any_report(run, cohort, output=tmp_path / "r.html", scheduler="tcp://host:1")
    (tmp_path / "cv").mkdir()
    (tmp_path / "cv" / "cv.yaml").write_text("format: deeprc-cv\n")
    with pytest.raises(InputError, match="`scheduler` is only for the report of a run; leave it out"):
        write_any_report(tmp_path / "cv", output=tmp_path / "r.html", scheduler="tcp://host:1")
    assert [path.name for path in tmp_path.iterdir()] == ["cv"]


def test_without_a_scheduler_no_report_is_written(
    folder: Path, cohort: RepertoireDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    given = [str(folder), str(cohort.container.path), "-o", str(tmp_path / "r.html")]
    with pytest.raises(SystemExit) as end:
        main(["report", *given, "--scheduler", "tcp://127.0.0.1:1"])
    assert end.value.code == 2
    assert "--scheduler tcp://127.0.0.1:1: cannot be reached" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.long
def test_a_cluster_that_loses_a_worker_gives_the_same(
    folder: Path, ensemble: RunEnsemble, cohort: RepertoireDataset, tmp_path: Path, cluster: str
) -> None:
    given = {"top": 5, "parts": ensemble.split_of(cohort), "witnesses_among": [1, 2, 3, 4]}
    with kill_a_worker_that_computes(cluster):
        found = survey_by_workers(DividedCohort(ensemble, cohort, Workers(scheduler=cluster), "cpu"), **given)
    assert_same_tables(found, survey_cohort(ensemble.model, cohort, **given), check_close)
    given_files = [str(folder), str(cohort.container.path)]
    with pytest.raises(SystemExit) as end:
        main(["report", *given_files, "-o", str(tmp_path / "r.html"), "--device", "cpu", "--scheduler", cluster])
    assert end.value.code == 0
    best = next(iter(found.top.values())).table
    assert best["junction_aa"].iloc[0] in (tmp_path / "r.html").read_text()
