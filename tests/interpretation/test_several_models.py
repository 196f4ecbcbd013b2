"""Several models together: scores and attributions are the means of theirs, and the commands take several runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.cli import main
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.attention import attention_table, compute_attention
from deeprc.interpretation.attributions import attribute
from deeprc.interpretation.survey import survey_cohort
from deeprc.runs.ensemble import load_ensemble
from deeprc.runs.run import Run
from deeprc.training.model import Ensemble, TrainedModel

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

TARGETS = ("status=case", "grade:multiclass", "age:regression")
needs_figures = pytest.mark.skipif(importlib.util.find_spec("logomaker") is None, reason="logomaker is missing")


@pytest.fixture(scope="module")
def members(model_factory: Callable[..., TrainedModel], cohort: RepertoireDataset) -> list[TrainedModel]:
    """Two models with different heads, kernels, top fractions and units of the age."""
    settings = [("n_kernels=8",), ("n_kernels=6", "n_heads=2", "top_fraction=0.5")]
    first, second = (model_factory(cohort, *own, targets=TARGETS, stir=0.3) for own in settings)
    age = replace(second.tasks[2], mean=first.tasks[2].mean + 7, scale=first.tasks[2].scale * 1.5)
    return [first, replace(second, tasks=(*second.tasks[:2], age))]


@pytest.fixture(scope="module")
def ensemble(members: list[TrainedModel]) -> Ensemble:
    return Ensemble.of(members)


def test_contributions_sum_to_the_outputs_of_all_together(ensemble: Ensemble, cohort: RepertoireDataset) -> None:
    outputs = ensemble.compute_outputs(cohort).numpy()
    for position in (0, 4, 17):
        scores = ensemble.score_sequences(cohort, position)
        np.testing.assert_allclose(scores.contributions.sum(axis=0), outputs[position], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scores.outputs, outputs[position], rtol=1e-4, atol=1e-5)
        assert scores.weight.sum() == pytest.approx(1)


def test_scores_are_the_means_of_the_members(
    ensemble: Ensemble, members: list[TrainedModel], cohort: RepertoireDataset
) -> None:
    together = ensemble.score_sequences(cohort, 3)
    own = [member.score_sequences(cohort, 3) for member in members]
    np.testing.assert_allclose(together.weight, np.mean([each.weight for each in own], axis=0))
    np.testing.assert_allclose(together.logit, np.mean([each.logit for each in own], axis=0))
    np.testing.assert_array_equal(together.head_weights, np.hstack([each.head_weights for each in own]))
    for name in ("contributions", "responses"):  # log-odds and logits have the same units in all models
        mean = np.mean([getattr(each, name)[:, :4] for each in own], axis=0)
        np.testing.assert_allclose(getattr(together, name)[:, :4], mean)
    years = [each.responses[:, 4] * m.tasks[2].scale + m.tasks[2].mean for each, m in zip(own, members, strict=True)]
    age = ensemble.tasks[2]
    np.testing.assert_allclose(together.responses[:, 4] * age.scale + age.mean, np.mean(years, axis=0))


def test_the_table_of_several_has_the_heads_of_all(
    ensemble: Ensemble, members: list[TrainedModel], cohort: RepertoireDataset
) -> None:
    whole = attention_table(ensemble, cohort, 2)
    assert [name for name in whole if str(name).startswith("attention_weight_")] == [
        f"attention_weight_{head}" for head in (1, 2, 3)
    ]
    first, second = (attention_table(member, cohort, 2) for member in members)
    np.testing.assert_allclose(whole["attention_weight_1"], first["attention_weight"])
    np.testing.assert_allclose(whole["attention_weight_3"], second["attention_weight_2"])
    np.testing.assert_allclose(whole["attention_weight"], (first["attention_weight"] + second["attention_weight"]) / 2)
    top = attention_table(ensemble, cohort, 2, top=5)
    best = whole.nsmallest(5, "attention_rank").reset_index(drop=True)
    pd.testing.assert_frame_equal(top, best)
    assert len(compute_attention(ensemble, cohort, 2).heads) == 3


@pytest.mark.parametrize("output", [1, 4])
def test_residues_add_the_mean_of_what_they_add_in_each_model(
    ensemble: Ensemble, members: list[TrainedModel], cohort: RepertoireDataset, output: int
) -> None:
    rows = pd.DataFrame({"repertoire_id": ["rep.1"] * 3 + ["rep.4"], "sequence_id": [1, 6, 9, 2]})
    together = attribute(ensemble, cohort, rows, output=output, steps=200)
    assert together.kernels.shape == (4, 14)
    np.testing.assert_allclose(together.kernels.sum(axis=1), together.change, rtol=0.02, atol=2e-3)  # of the integral
    np.testing.assert_allclose(
        np.nansum(together.residues, axis=1), together.change, rtol=0.02, atol=2e-3
    )  # of the integral
    own = [attribute(member, cohort, rows, output=output, steps=200) for member in members]
    if output == 1:
        np.testing.assert_allclose(together.residues, np.mean([each.residues for each in own], axis=0))
        np.testing.assert_allclose(together.kernels[:, 8:], own[1].kernels / 2)


def test_a_survey_by_several_models_has_the_heads_of_all(ensemble: Ensemble, cohort: RepertoireDataset) -> None:
    found = survey_cohort(ensemble, cohort, top=10)
    np.testing.assert_allclose(found.outputs.outputs, ensemble.compute_outputs(cohort).numpy(), rtol=1e-4, atol=1e-5)
    assert len(found.heads) == 3 * len(cohort)
    assert all(len(top) == len(top.table) <= 10 for top in found.top.values())


@pytest.fixture(scope="module")
def runs(run_factory: Callable[..., Run], motif_cohort: RepertoireDataset, trained: Run) -> list[Path]:
    """Two runs of the same split, the first of which knows the motif."""
    other = run_factory(motif_cohort, "n_updates=60", "n_sequences=100", "n_kernels=8", "n_heads=2")
    return [trained.path, other.path]


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    return int(ended.value.code or 0)


def test_attention_of_several_runs(runs: list[Path], motif_cohort: RepertoireDataset, tmp_path: Path) -> None:
    container, file = motif_cohort.container.path, tmp_path / "a.tsv"
    assert call("attention", *runs, container, "-o", file, "--repertoire", "rep.3", "--device", "cpu") == 0
    found = pd.read_csv(file, sep="\t")
    expected = attention_table(load_ensemble(runs, device="cpu").model, motif_cohort, 3)
    np.testing.assert_allclose(found["contribution"], expected["contribution"], rtol=1e-5)
    np.testing.assert_allclose(found["attention_weight"], expected["attention_weight"], rtol=1e-5)


@needs_figures
@pytest.mark.usefixtures("no_figures")
def test_the_report_of_several_runs(runs: list[Path], motif_cohort: RepertoireDataset, tmp_path: Path) -> None:
    container, file = motif_cohort.container.path, tmp_path / "report.html"
    # with fewer sequences, more than a quarter of the background may carry the motif, which then is none
    assert call("report", *runs, container, "-o", file, "--top", 100, "--device", "cpu") == 0
    page = file.read_text()
    auc = load_ensemble(runs, device="cpu").evaluate(motif_cohort)["test"]["status=case"]["auc"]
    assert f"its AUC is {auc:.3f}" in page
    for run in runs:
        assert f"--output {run}" in page  # the command that trains it again
        assert f"Training history of {run}" in page
        assert f"Kernels of {run} for case" in page
    assert f"deeprc report {runs[0]} {runs[1]} {container} -o {file} --top 100" in page
    assert "WWHW" in page
    assert "number of models (of 2) with a kernel that has it" in page


@needs_figures
def test_figures_of_several_runs(
    runs: list[Path], motif_cohort: RepertoireDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container, file = motif_cohort.container.path, tmp_path / "figure.svg"
    for kind in ("roc", "metastable"):
        assert call("plot", kind, *runs, container, "-o", file, "--device", "cpu") == 0
    assert file.exists()
    for arguments, message in (
        (["kernels", *runs, container], "2 runs: each has kernels of its own; give one"),
        (["history", *runs], "2 runs: each has a history of its own; give one"),
        (["roc", *runs], "2 runs: their joint predictions are not stored: give a CONTAINER"),
    ):
        assert call("plot", *arguments, "-o", tmp_path / "other.svg") == 2
        assert message in capsys.readouterr().err
