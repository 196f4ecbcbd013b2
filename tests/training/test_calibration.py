"""A model's calibration: what changes with it, what does not, and how it is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from deeprc import DeepRCClassifier
from deeprc.calibration import IDENTITY, Calibration, choose_cutoff, fit_calibration
from deeprc.config import config_from_mapping, load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.errors import InputError
from deeprc.evaluation.metrics import compute_task_metrics
from deeprc.outputs import activate, compute_log_odds
from deeprc.tasks import Task
from deeprc.training.calibration import average_calibrations, calibrate_tasks, restore_calibration
from deeprc.training.model import TrainedModel

TASKS = (
    Task("a", "a", "binary", ("0", "1")),
    Task("b", "b", "multiclass", ("x", "y", "z")),
    Task("c", "c", "regression", mean=3.0, scale=2.0),
)
OVERRIDES = {"n_updates": 20, "evaluate_every": 10, "n_kernels": 4, "key_units": 4, "n_sequences": 20,
             "composition": False}  # fmt: skip


@pytest.fixture(scope="module")
def model(cohort: RepertoireDataset) -> DeepRCClassifier:
    return DeepRCClassifier(overrides=OVERRIDES, device="cpu").fit(cohort, cohort.metadata["status"])


def test_predictions_by_hand() -> None:
    tasks = (
        replace(TASKS[0], calibration=Calibration(0.5, 1.0)),
        replace(TASKS[1], calibration=Calibration(2.0)),
        TASKS[2],
    )
    binary, several, number = activate(torch.tensor([[2.0, 0.0, 0.5, 1.0, -1.0]]), tasks)
    assert binary == pytest.approx([1 / (1 + np.exp(-2.0))])
    assert several[0] == pytest.approx(np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum())
    assert number == pytest.approx([1.0])


def test_log_odds_by_hand() -> None:
    tasks = (
        replace(TASKS[0], calibration=Calibration(0.5, 1.0)),
        replace(TASKS[1], calibration=Calibration(2.0)),
        TASKS[2],
    )
    (found,) = compute_log_odds(np.array([[2.0, 0.0, 0.5, 1.0, -1.0]], np.float32), tasks)
    p = np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
    assert found == pytest.approx([2.0, *np.log(p / (1 - p)), np.nan], nan_ok=True)


def test_tasks_learn_from_known_labels_only() -> None:
    rng = np.random.default_rng(0)
    outputs = rng.normal(0, 3, (40, 5))
    labels = np.stack([rng.integers(0, 2, 40), rng.integers(0, 3, 40), rng.normal(0, 1, 40)], axis=1).astype(float)
    labels[5:9, 0] = np.nan
    found = calibrate_tasks(TASKS, outputs, labels)
    rest = np.delete(np.arange(40), np.arange(5, 9))
    expected = fit_calibration(outputs[rest, 0], labels[rest, 0] == 1)
    cutoff = choose_cutoff(expected.slope * outputs[rest, 0] + expected.intercept)
    assert found[0].calibration == replace(expected, cutoff=cutoff)
    assert cutoff != 0
    assert found[1].calibration.slope < 1  # the labels know nothing of the logits
    assert found[1].calibration.intercept == 0
    assert found[1].calibration.cutoff == 0
    assert found[2] == TASKS[2]


def test_the_log_says_from_which_probability_a_class_is_called(caplog: pytest.LogCaptureFixture) -> None:
    outputs = np.linspace(-2, 2, 20)[:, None]
    with caplog.at_level("INFO"):
        calibrate_tasks(TASKS[:1], outputs, (outputs > 0).astype(float))
    (text,) = caplog.messages
    assert re.search(
        rf"; a repertoire is predicted as '{TASKS[0].positive}' if its probability is at least 0\.\d+$", text
    )


def test_the_loss_is_that_of_the_calibrated_probabilities_and_the_auc_stays() -> None:
    outputs, labels = torch.tensor([[2.0], [1.0], [-1.0], [0.5]]), torch.tensor([[1.0], [0.0], [1.0], [0.0]])
    plain = compute_task_metrics(outputs, labels, TASKS[:1])["a"]
    found = compute_task_metrics(outputs, labels, [replace(TASKS[0], calibration=Calibration(0.5, -0.1))])["a"]
    p = 1 / (1 + np.exp(-(0.5 * np.array([2.0, 1.0, -1.0, 0.5]) - 0.1)))
    assert found["loss"] == pytest.approx(-np.mean(np.log([p[0], 1 - p[1], p[2], 1 - p[3]])))
    assert found["auc"] == plain["auc"]


def test_a_classifier_is_calibrated_by_its_validation_repertoires(
    model: DeepRCClassifier, cohort: RepertoireDataset
) -> None:
    digests = identify_repertoires(cohort)
    rows = np.flatnonzero(np.isin(digests, model.validation_digests_))
    odds, y = model.decision_function(cohort), cohort.metadata["status"].to_numpy()
    expected = fit_calibration(odds[rows], y[rows] == "healthy")
    found = model.model_.tasks[0].calibration
    assert (found.slope, found.intercept) == pytest.approx((expected.slope, expected.intercept), rel=1e-4)
    assert found != IDENTITY
    expected_probability = 1 / (1 + np.exp(-(found.slope * odds + found.intercept)))
    np.testing.assert_allclose(model.predict_proba(cohort)[:, 1], expected_probability)


@pytest.mark.slow
def test_without_calibration_outputs_are_the_same_and_probabilities_their_logistic(
    model: DeepRCClassifier, cohort: RepertoireDataset
) -> None:
    plain = DeepRCClassifier(overrides={**OVERRIDES, "calibrate": False}, device="cpu")
    plain.fit(cohort, cohort.metadata["status"])
    odds = plain.decision_function(cohort)
    assert np.array_equal(odds, model.decision_function(cohort))
    np.testing.assert_allclose(plain.predict_proba(cohort)[:, 1], 1 / (1 + np.exp(-odds)))
    assert not load_config("paper").training.calibrate
    assert not config_from_mapping({"training": {}}, source="an old run").training.calibrate


def test_a_saved_classifier_predicts_the_same(
    model: DeepRCClassifier, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    again = DeepRCClassifier.load(tmp_path / "model")
    assert again.model_.tasks[0].calibration == model.model_.tasks[0].calibration
    assert np.array_equal(again.predict_proba(cohort), model.predict_proba(cohort))


def test_a_saved_calibration_is_read_and_a_wrong_one_is_refused(model: DeepRCClassifier, tmp_path: Path) -> None:
    path, trained = tmp_path / "model.safetensors", model.model_

    def load() -> TrainedModel:
        return TrainedModel.load(path, trained.config, trained.tasks, device=torch.device("cpu"))

    trained.save(path, update=3)
    assert load().tasks == trained.tasks
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in trained.network.state_dict()}
        state = json.loads(file.metadata()["state"])

    def write(change: Callable[[dict], object]) -> None:
        changed = json.loads(json.dumps(state))
        change(changed)
        save_file(tensors, path, metadata={"state": json.dumps(changed)})

    for calibration, problem in (
        ([{"slope": 0.0}], r"slope: expected 0.001 to 1000, found 0"),
        ([{"slope": -2.0}], r"slope: expected 0.001 to 1000"),
        ([{"slope": float("nan")}], "expected"),
        ([{"intercept": float("inf")}], "expected"),
        ([{"intercept": 1e9}], "intercept: expected -1000 to 1000"),
        ([{"cutoff": 1e9}], "cutoff: expected -1000 to 1000"),
        ([{"slope": "1"}], "expected a finite number"),
        ([{"factor": 1.0}], "no key 'factor' is known here"),
        ([], "expected 1, one for each target, found 0"),
        ({"slope": 1.0}, "expected a list"),
    ):
        write(lambda state, new=calibration: state.update(calibration=new))
        with pytest.raises(InputError, match=problem):
            load()
    write(lambda state: state.pop("calibration"))
    assert load().tasks[0].calibration == IDENTITY  # an earlier version's


def test_calibration_of_another_kind_of_target_is_refused() -> None:
    for described in (
        [{}, {"intercept": 1.0}, {}],
        [{}, {}, {"slope": 2.0}],
        [{}, {}, {"intercept": 2.0}],
        [{}, {"cutoff": 1.0}, {}],
        [{}, {}, {"cutoff": 1.0}],
    ):
        with pytest.raises(InputError, match="do not fit a"):
            restore_calibration(TASKS, {"calibration": described}, "file")


def test_models_that_agree_have_the_same_log_odds_together() -> None:
    calibrations = Calibration(0.25, 1.0, -1.5), Calibration(2.5, -2.0, 0.5)
    log_odds = np.array([-3.0, 0.5, 2.0])
    outputs = np.mean([(log_odds - each.intercept) / each.slope for each in calibrations], axis=0)
    together = average_calibrations([replace(TASKS[0], calibration=each) for each in calibrations])
    assert together.slope == pytest.approx(2 / (1 / 0.25 + 1 / 2.5))
    np.testing.assert_allclose(together.slope * outputs + together.intercept, log_odds)
    begin = np.mean([(each.cutoff - each.intercept) / each.slope for each in calibrations])
    assert together.slope * begin + together.intercept == pytest.approx(together.cutoff)
    assert average_calibrations([replace(TASKS[0], calibration=each) for each in calibrations[:1]]).cutoff == -1.5
