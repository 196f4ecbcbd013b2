"""A model that was fitted in Python is explained and reported like one that was trained on the command line."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

import deeprc
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.datasets.simulation import Cohort, IndependentBackground, Motif, MotifSignal, SimulatedDataset, Sizes
from deeprc.errors import InputError
from deeprc.interpretation.attributions import attribute
from deeprc.interpretation.motifs import find_motifs
from deeprc.interpretation.survey import survey_cohort
from deeprc.runs.fitted import FittedModel, set_labels
from deeprc.training.estimator import DeepRCClassifier, DeepRCRegressor
from deeprc.training.model import Ensemble
from tests.toys.gene_repertoires import write_genes
from tests.toys.saved_files import change_description

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

SETTINGS = {
    "seeded_start": 0.0,
    "n_updates": 300,
    "n_sequences": 100,
    "n_kernels": 16,
    "batch_size": 8,
    "evaluate_every": 20,
    "composition": False,
    "clones": False,
}
needs_figures = pytest.mark.skipif(importlib.util.find_spec("logomaker") is None, reason="logomaker is missing")


@pytest.fixture(scope="module")
def status(motif_cohort: RepertoireDataset) -> np.ndarray:
    return motif_cohort.metadata["status"].to_numpy()


@pytest.fixture(scope="module")
def fitted(motif_cohort: RepertoireDataset, status: np.ndarray) -> DeepRCClassifier:
    return DeepRCClassifier(overrides=SETTINGS, device="cpu").fit(motif_cohort[:70], status[:70])


def test_contributions_sum_to_the_decision(fitted: DeepRCClassifier, motif_cohort: RepertoireDataset) -> None:
    decision = fitted.decision_function(motif_cohort[80:83])
    for place, position in enumerate(range(80, 83)):
        table = deeprc.attention_table(fitted.model_, motif_cohort, position)
        assert table["attention_weight"].sum() == pytest.approx(1)
        assert table["contribution"].sum() == pytest.approx(decision[place], abs=1e-4)


def test_motifs_of_a_fitted_model(fitted: DeepRCClassifier, motif_cohort: RepertoireDataset) -> None:
    """`classes_` are sorted, so the sequences that raise the output contribute to "healthy"."""
    assert fitted.classes_.tolist() == ["case", "healthy"]
    top = survey_cohort(fitted.model_, motif_cohort, top=100).top["case"]
    found = attribute(fitted.model_, motif_cohort, top.index, steps=16)
    np.testing.assert_allclose(found.kernels.sum(axis=1), found.change, rtol=0.05, atol=0.02)
    motifs = find_motifs(fitted.model_, motif_cohort, found, background=4000)
    assert "WWHW" in motifs[0].pattern


def test_the_split_is_known_by_the_content(
    fitted: DeepRCClassifier, motif_cohort: RepertoireDataset, cohort_factory: Callable[..., RepertoireDataset]
) -> None:
    splits = FittedModel.of(fitted).split_of(motif_cohort)
    assert [splits.count(name) for name in ("train", "validation", "new")] == [56, 14, 30]
    assert set(splits[70:]) == {"new"}
    another = cohort_factory(100, 20, seed=5)
    assert another.repertoire_ids[:70].tolist() == motif_cohort.repertoire_ids[:70].tolist()
    assert set(FittedModel.of(fitted).split_of(another)) == {"new"}


def test_genes_tell_the_split_where_training_repertoires_differ_in_nothing_else(
    fitted: DeepRCClassifier, tmp_path: Path
) -> None:
    """The first two training repertoires differ in genes alone; all others are also known with other genes."""
    junctions = [["CASSW"]] * 2 + [["CAWF"], ["CASSF"], ["CASSY"], ["CASSV"]]
    known = write_genes(tmp_path / "known.h5", junctions, [[f"V{number}"] for number in range(6)])
    other = write_genes(tmp_path / "other.h5", junctions, [["V1"], ["V9"], ["V9"], ["V3"], ["V9"], [""]])
    estimator = copy(fitted)
    estimator.train_digests_, estimator.validation_digests_ = np.split(np.array(identify_repertoires(known)), [4])
    model = FittedModel.of(estimator)
    assert model.split_of(known) == ["train"] * 4 + ["validation"] * 2
    assert model.split_of(other) == ["train", "new", "train", "train", "validation", "validation"]


def test_an_estimator_keeps_its_split_when_it_is_saved(
    fitted: DeepRCClassifier, motif_cohort: RepertoireDataset, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        text = file.metadata()["deeprc"]
    assert not [name for name in motif_cohort.repertoire_ids if f'"{name}"' in text]
    again = DeepRCClassifier.load(tmp_path / "model.safetensors")
    assert FittedModel.of(again).part_of == FittedModel.of(fitted).part_of
    np.testing.assert_array_equal(again.decision_function(motif_cohort[:3]), fitted.decision_function(motif_cohort[:3]))


@needs_figures
@pytest.mark.usefixtures("no_figures")
def test_an_estimator_of_a_version_without_digests(
    fitted: DeepRCClassifier,
    motif_cohort: RepertoireDataset,
    status: np.ndarray,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fitted.save(tmp_path / "new.safetensors")
    without_digests = change_description(
        tmp_path / "new.safetensors",
        lambda body: [body["values"].pop(name) for name in ("train_digests_", "validation_digests_")],
    )
    old = DeepRCClassifier.load(without_digests)
    np.testing.assert_array_equal(old.decision_function(motif_cohort[:3]), fitted.decision_function(motif_cohort[:3]))
    deeprc.report(old, motif_cohort, output=tmp_path / "report.html", labels=status, target="status", top=10)
    assert "on 100 new repertoires, " in (tmp_path / "report.html").read_text()
    assert "does not say which repertoires it was fitted with: all count as new" in caplog.text


def test_outputs_that_overflow_are_refused(fitted: DeepRCClassifier, motif_cohort: RepertoireDataset) -> None:
    """The weights are finite, and so are the attention weights; only their sum is not."""
    network = deepcopy(fitted.model_.network)
    with torch.no_grad():
        for name, parameter in network.output_network.named_parameters():
            if name.endswith("weight"):
                parameter.fill_(3e38)
    model = replace(fitted.model_, network=network)
    refusal = "the model: the network's weights give no finite numbers for"
    with pytest.raises(InputError, match=refusal):
        model.compute_outputs(motif_cohort[:2])
    with pytest.raises(InputError, match=refusal):
        model.score_sequences(motif_cohort, 0)
    with pytest.raises(InputError, match=refusal):
        deeprc.attention_table(model, motif_cohort, 0)
    with pytest.raises(InputError, match=refusal):
        deeprc.attention_table(Ensemble.of([fitted.model_, model]), motif_cohort, 0, top=5)
    with pytest.raises(InputError, match=refusal):
        survey_cohort(model, motif_cohort[:2], top=10)


def test_numbers_that_are_infinite_in_32_bits_are_refused(fitted: DeepRCClassifier) -> None:
    """A branch computes in 64 bits; a table would have `inf`."""
    fitted.model_.check_finite(np.array([3e38, -3e38]), "r1")
    with pytest.raises(InputError, match="the model: the network's weights give no finite numbers for 'r1'"):
        fitted.model_.check_finite(np.array([0.0, -1e39]), "r1")


@needs_figures
@pytest.mark.usefixtures("no_figures")
def test_the_report_of_a_fitted_model(
    fitted: DeepRCClassifier, motif_cohort: RepertoireDataset, status: np.ndarray, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    deeprc.report(fitted, motif_cohort, output=file, labels=status, target="status", top=30)
    page = file.read_text()
    from sklearn.metrics import roc_auc_score

    auc = roc_auc_score(status[70:] == "healthy", fitted.decision_function(motif_cohort[70:]))
    assert f"its AUC is {auc:.3f}" in page
    assert "on 30 new repertoires, " in page
    assert "had not seen" not in page
    assert "whether “status” is healthy rather than case?" in page
    assert "The network was fitted in Python" in page
    assert "deeprc train" not in page
    assert "WWHW" in page
    by_column = tmp_path / "by_column.html"
    deeprc.report(fitted, motif_cohort.container.path, output=by_column, target="status", top=30)
    assert by_column.read_text() == page  # the labels are those of the sheet


@needs_figures
@pytest.mark.usefixtures("no_figures")
def test_the_report_of_a_regressor(motif_cohort: RepertoireDataset, tmp_path: Path) -> None:
    known = motif_cohort.metadata["age"].notna().to_numpy()
    ages = motif_cohort.metadata["age"].to_numpy(float)
    some = motif_cohort[np.flatnonzero(known)]
    model = DeepRCRegressor(overrides={**SETTINGS, "n_updates": 20}, device="cpu").fit(some[:60], ages[known][:60])
    deeprc.report(model, some, output=tmp_path / "report.html", labels=ages[known], target="age", top=10)
    assert "Can receptor sequences predict the value of “age”?" in (tmp_path / "report.html").read_text()


def test_labels_take_the_place_of_a_column(motif_cohort: RepertoireDataset) -> None:
    some = motif_cohort[[3, 1]]
    view = set_labels(some, "status", [True, None])
    assert view.metadata["status"][0] == "True"
    assert pd.isna(view.metadata["status"][1])
    assert some.metadata["status"].tolist() == motif_cohort.metadata["status"].iloc[[3, 1]].tolist()
    assert view.repertoire_ids.tolist() == some.repertoire_ids.tolist()
    numbers = set_labels(some, "score", [1.5, np.nan]).metadata["score"]
    pd.testing.assert_series_equal(numbers, pd.Series([1.5, np.nan], name="score"))
    with pytest.raises(InputError, match=r"labels: expected 2, one for each repertoire, found \(3,\)"):
        set_labels(some, "status", [1, 2, 3])


def test_labels_that_are_floats_name_the_classes_as_a_sheet_does(motif_cohort: RepertoireDataset) -> None:
    labels = (np.arange(20) % 2).astype(float)
    settings = {**SETTINGS, "n_updates": 1}
    model = DeepRCClassifier(overrides=settings, device="cpu").fit(motif_cohort[:20], labels)
    fitted = FittedModel.of(model, "cmv")
    view = set_labels(motif_cohort[:20], "cmv", labels)
    assert fitted.model.tasks[0].class_names == ("0", "1")
    assert fitted.model.encode_labels(view)[:, 0].tolist() == labels.tolist()


def test_a_simulated_cohort(fitted: DeepRCClassifier, tmp_path: Path) -> None:
    cohort = Cohort(6, Sizes(20), IndependentBackground(), (MotifSignal((Motif("WWHW"),), 0.2),), seed=1)
    simulated = SimulatedDataset(cohort)
    view = set_labels(simulated[:3], "status", ["case", "healthy", "case"])
    assert view.metadata["status"].tolist() == ["case", "healthy", "case"]
    assert simulated.metadata["status"][0] in ("positive", "negative")
    assert view[1].digest() == simulated[1].digest()
    assert len({simulated[0].container, simulated[1].container}) == 2
    output = tmp_path / "report.html"
    with pytest.raises(InputError, match="the report needs a container"):
        deeprc.report(fitted, simulated, output=output, labels=["case"] * 3 + ["healthy"] * 3, target="status")
    assert not output.exists()


def test_report_refuses_a_missing_cohort_and_labels_for_a_run(
    fitted: DeepRCClassifier, motif_cohort: RepertoireDataset, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="expected a cohort to report on, found None"):
        deeprc.report(fitted, output=tmp_path / "report.html")
    with pytest.raises(InputError, match="`target` and `labels` are only for a model that was fitted in Python"):
        deeprc.report(tmp_path, motif_cohort, output=tmp_path / "report.html", target="status")
