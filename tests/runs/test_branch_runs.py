"""Runs of models with branches: honest numbers of the repertoires that these have learned from, and their clones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from deeprc.branches import fit
from deeprc.branches.cohort import FittedBranch, TrainingCohort
from deeprc.cli.evaluate import evaluate
from deeprc.config import NetworkConfig, load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.stored_tables import read_clones
from deeprc.runs.experiment import resume_run, train_run
from deeprc.runs.run import Run, load_run
from deeprc.training import branch_start
from tests.conftest import Killed, killing
from tests.toys.toy_branches import Clones, Composition

CONFIG = load_config("deeprc", ["n_updates=20", "evaluate_every=10", "n_kernels=8", "kernel_size=4", "seeded_start=0"])


def cross_fitted(dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Numbers that no branch gives, (B, 1)."""
    return np.array([[int(repertoire.digest()[:4], 16) / 2**16] for repertoire in dataset])


@pytest.fixture(scope="module")
def train(cohort: RepertoireDataset) -> Callable[..., Run]:
    """Train runs whose branches are toys."""

    def fit_branches(_: NetworkConfig, known: TrainingCohort) -> list[FittedBranch]:
        scores, loss_decreases = cross_fitted(known.dataset), np.array([0.2])
        return [
            FittedBranch(Composition("W", [3.0]), scores, loss_decreases),
            FittedBranch(Clones("WWHW", [0.5]), -2 * scores, loss_decreases),
        ]

    def run(folder: Path, **options: object) -> Run:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(branch_start, "fit_branches", fit_branches)
            patch.setattr(fit, "_TYPES", {"composition": Composition, "clones": Clones})
            if options.pop("resumed", False):
                return resume_run(folder)
            return train_run(
                cohort.container.path, folder, targets="status=case", config=CONFIG, device="cpu", **options
            )

    return run


@pytest.fixture(scope="module")
def trained(train: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("runs") / "run")


def test_repertoires_that_were_learned_from_have_cross_fitted_scores(trained: Run, cohort: RepertoireDataset) -> None:
    stored = pd.read_csv(trained.path / "predictions.tsv", sep="\t").set_index("repertoire_id")
    parts, split = trained.model.compute_output_parts(cohort), np.array(trained.split_of(cohort))
    branches = trained.model.network.branches
    assert branches is not None
    composition, clones = branches.gains[:, 0].tolist()
    found = stored.loc[cohort.repertoire_ids, "probability"].to_numpy()
    fitted = trained.tasks[0].calibration
    odds = fitted.slope * parts.outputs[:, 0] + fitted.intercept
    np.testing.assert_allclose(np.log(found / (1 - found)), odds, rtol=1e-4, atol=1e-5)
    learned = np.flatnonzero(split != "test")
    known = cross_fitted(cohort[learned])
    np.testing.assert_allclose(parts.by_source["composition"][learned], composition * known, rtol=1e-5)
    np.testing.assert_allclose(parts.by_source["clones"][learned], -2 * clones * known, rtol=1e-5)


def test_metrics_are_those_of_the_stored_predictions(trained: Run, cohort: RepertoireDataset) -> None:
    stored = pd.read_csv(trained.path / "predictions.tsv", sep="\t")
    metrics = json.loads((trained.path / "metrics.json").read_text())
    for split, own in stored.groupby("split"):
        loss = -np.log(np.where(own["label"] == 1, own["probability"], 1 - own["probability"])).mean()
        assert metrics[split]["status=case"]["loss"] == pytest.approx(loss, rel=1e-4)
    (varied,) = metrics["test"]["status=case"]["variation"]
    assert list(varied["shares"]) == ["attention", "composition", "clones"]
    assert sum(varied["shares"].values()) == pytest.approx(1)
    assert "variation" not in metrics["train"]["status=case"]
    again = trained.evaluate(cohort)
    assert again["test"]["status=case"]["loss"] == pytest.approx(metrics["test"]["status=case"]["loss"])
    assert again["train"]["status=case"]["loss"] == pytest.approx(metrics["train"]["status=case"]["loss"])


@pytest.mark.slow
def test_a_resumed_run_has_the_same_files(trained: Run, train: Callable[..., Run], tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(tmp_path / "run", progress=killing(12))
    assert train(tmp_path / "run", resumed=True).path == tmp_path / "run"
    for name in ("predictions.tsv", "metrics.json", "clones.tsv", "composition.tsv"):
        assert (tmp_path / "run" / name).read_text() == (trained.path / name).read_text()


def test_evaluate_says_through_what_outputs_vary(
    trained: Run, cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "_TYPES", {"composition": Composition, "clones": Clones})
    result = CliRunner().invoke(evaluate, [str(trained.path), str(cohort.container.path), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    shares = "Differences between the outputs of the test repertoires (status=case) come from: attention "
    assert shares in result.output


def test_clones_are_stored(trained: Run) -> None:
    table = trained.clones()
    assert table.to_dict("records") == [
        {
            "junction_aa": "WWHW",
            "v_call": "TRBV1",
            "j_call": np.nan,
            "output": "status=case",
            "direction": "up",
            "match": "exact",
            "carriers_positive": 5,
            "carriers_negative": 0,
            "p_value": 1e-4,
            "q_value": 0.01,
        }
    ]


@pytest.mark.slow
def test_a_run_without_clones(cohort: RepertoireDataset, tmp_path: Path) -> None:
    config = load_config("deeprc", ["n_updates=2", "n_kernels=8", "composition=false", "clones=false"])
    run = train_run(cohort.container.path, tmp_path / "run", targets="status=case", config=config, device="cpu")
    assert run.clones().empty
    assert list(run.clones()) == list(pd.read_csv(run.path / "clones.tsv", sep="\t"))
    assert run.composition().empty
    assert list(run.composition()) == list(pd.read_csv(run.path / "composition.tsv", sep="\t"))
    for name in ("clones.tsv", "composition.tsv"):
        (run.path / name).unlink()  # as of an earlier version
    assert load_run(run.path, device="cpu").clones().empty
    assert load_run(run.path, device="cpu").composition().empty


@pytest.mark.parametrize(
    "match", ["expanded", "up to 1 substitution", "up to 12 substitutions", "up to 0 substitutions"]
)
def test_every_match_is_read(trained: Run, tmp_path: Path, match: str) -> None:
    table = pd.read_csv(trained.path / "clones.tsv", sep="\t", dtype=str).assign(match=match)
    (tmp_path / "clones.tsv").write_text(table.to_csv(sep="\t", index=False))
    assert set(read_clones(tmp_path / "clones.tsv")["match"]) == {match}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("match", "up to some substitutions", "found 'up to some substitutions'"),
        ("p_value", "2", "expected a number from 0 to 1, found '2'"),
        (
            "match",
            "almost",
            "expected exact, one substitution, expanded, or such as any residue at position 7",
        ),
        ("direction", "left", "expected one of up, down, found 'left'"),
        ("carriers_positive", "-1", "expected a whole number"),
        ("junction_aa", "", "expected text without control characters, found nothing"),
    ],
)
def test_damaged_clones_are_refused(trained: Run, tmp_path: Path, column: str, value: str, message: str) -> None:
    table = pd.read_csv(trained.path / "clones.tsv", sep="\t", dtype=str)
    table[column] = value
    (tmp_path / "clones.tsv").write_text(table.to_csv(sep="\t", index=False))
    copy = Run(tmp_path, trained.settings, trained.splits, trained.identities, trained.model)
    with pytest.raises(InputError, match=message):
        copy.clones()
