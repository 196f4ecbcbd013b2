"""A model that was fitted in Python is explained and reported like one that was trained on the command line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import deeprc
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.attributions import attribute
from deeprc.interpretation.motifs import find_motifs
from deeprc.interpretation.survey import survey
from deeprc.runs.fitted import FittedModel, with_labels
from deeprc.training.estimator import DeepRCClassifier, DeepRCRegressor

SETTINGS = {"n_updates": 300, "n_sequences": 100, "n_kernels": 16, "batch_size": 8, "evaluate_every": 20}
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
    """`classes_` are sorted, so the sequences that raise the output speak for "healthy"."""
    assert fitted.classes_.tolist() == ["case", "healthy"]
    top = survey(fitted.model_, motif_cohort, top=100).top["case"]
    found = attribute(fitted.model_, motif_cohort, top.index, steps=16)
    np.testing.assert_allclose(found.kernels.sum(axis=1), found.change, rtol=0.05, atol=0.02)
    motifs = find_motifs(fitted.model_, motif_cohort, found, background=4000)
    assert "WWHW" in motifs[0].pattern


def test_the_split_is_known_by_the_ids(fitted: DeepRCClassifier, motif_cohort: RepertoireDataset) -> None:
    splits = FittedModel.of(fitted).split_of(motif_cohort)
    assert [splits.count(name) for name in ("train", "validation", "new")] == [56, 14, 30]
    assert set(splits[70:]) == {"new"}


def test_an_estimator_keeps_its_split_when_it_is_saved(
    fitted: DeepRCClassifier, motif_cohort: RepertoireDataset, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model.safetensors")
    again = DeepRCClassifier.load(tmp_path / "model.safetensors")
    assert FittedModel.of(again).splits == FittedModel.of(fitted).splits
    np.testing.assert_array_equal(again.decision_function(motif_cohort[:3]), fitted.decision_function(motif_cohort[:3]))


@needs_figures
def test_the_report_of_a_fitted_model(
    fitted: DeepRCClassifier, motif_cohort: RepertoireDataset, status: np.ndarray, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    deeprc.report(fitted, motif_cohort, output=file, labels=status, target="status", top=30)
    page = file.read_text()
    from sklearn.metrics import roc_auc_score

    auc = roc_auc_score(status[70:] == "healthy", fitted.decision_function(motif_cohort[70:]))
    assert f"its AUC is {auc:.3f}" in page
    assert "on 30 new repertoires that it had not seen" in page
    assert "whether “status” is healthy rather than case?" in page
    assert "The network was fitted in Python" in page
    assert "deeprc train" not in page
    assert "WWHW" in page
    by_column = tmp_path / "by_column.html"
    deeprc.report(fitted, motif_cohort.container.path, output=by_column, target="status", top=30)
    assert by_column.read_text() == page  # the labels are those of the sheet


@needs_figures
def test_the_report_of_a_regressor(motif_cohort: RepertoireDataset, tmp_path: Path) -> None:
    known = motif_cohort.metadata["age"].notna().to_numpy()
    ages = motif_cohort.metadata["age"].to_numpy(float)
    some = motif_cohort[np.flatnonzero(known)]
    model = DeepRCRegressor(overrides={**SETTINGS, "n_updates": 20}, device="cpu").fit(some[:60], ages[known][:60])
    deeprc.report(model, some, output=tmp_path / "report.html", labels=ages[known], target="age", top=10)
    assert "Do receptor sequences tell the value of “age”?" in (tmp_path / "report.html").read_text()


def test_labels_take_the_place_of_a_column(motif_cohort: RepertoireDataset) -> None:
    some = motif_cohort[[3, 1]]
    view = with_labels(some, "status", [True, None])
    assert view.metadata["status"][0] == "True"
    assert pd.isna(view.metadata["status"][1])
    assert some.metadata["status"].tolist() == motif_cohort.metadata["status"].iloc[[3, 1]].tolist()
    assert view.repertoire_ids.tolist() == some.repertoire_ids.tolist()
    numbers = with_labels(some, "score", [1.5, np.nan]).metadata["score"]
    pd.testing.assert_series_equal(numbers, pd.Series([1.5, np.nan], name="score"))
    with pytest.raises(InputError, match=r"labels: expected 2, one for each repertoire, found \(3,\)"):
        with_labels(some, "status", [1, 2, 3])


def test_what_is_missing_is_said(fitted: DeepRCClassifier, motif_cohort: RepertoireDataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a cohort to report on, found None"):
        deeprc.report(fitted, output=tmp_path / "report.html")
    with pytest.raises(InputError, match="target and labels are those of a model that was fitted in Python"):
        deeprc.report(tmp_path, motif_cohort, output=tmp_path / "report.html", target="status")
