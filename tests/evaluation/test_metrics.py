import math

import numpy as np
import pytest
import torch

from deeprc.calibration import Calibration
from deeprc.evaluation.metrics import compute_task_metrics
from deeprc.tasks import Task


def test_binary_metrics_by_hand() -> None:
    outputs = torch.tensor([[2.0], [1.0], [-1.0], [0.5], [9.0]])
    labels = torch.tensor([[1.0], [0.0], [1.0], [1.0], [math.nan]])
    found = compute_task_metrics(outputs, labels, [Task("t", "t", "binary", ("0", "1"))])["t"]
    assert found["n"] == 4
    assert found["n_positive"] == 3
    assert found["auc"] == pytest.approx(1 / 3)  # of the pairs (2, 1), (-1, 1), (0.5, 1) one is in order
    assert found["accuracy"] == 0.5
    assert found["balanced_accuracy"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["f1"] == pytest.approx(2 * 2 / (3 + 3))
    expected = sum(math.log1p(math.exp(-m)) for m in (2.0, -1.0, -1.0, 0.5)) / 4
    assert found["loss"] == pytest.approx(expected, rel=1e-6)
    p = 1 / (1 + np.exp(-np.array([2.0, 1.0, -1.0, 0.5])))
    assert found["brier"] == pytest.approx(np.mean((p - [1, 0, 1, 1]) ** 2))
    assert found["brier_base_rate"] == pytest.approx(3 / 16)
    assert found["loss_base_rate"] == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert found["calibration_error"] is None  # of 4 repertoires


def test_calls_of_a_binary_target_begin_at_its_cutoff() -> None:
    outputs = torch.tensor([[2.0], [1.0], [-1.0], [0.5]])
    task = Task("t", "t", "binary", ("0", "1"), calibration=Calibration(cutoff=0.75))
    found = compute_task_metrics(outputs, torch.tensor([[1.0], [0.0], [1.0], [1.0]]), [task])["t"]
    assert found["cutoff"] == pytest.approx(1 / (1 + math.exp(-0.75)))
    assert found["accuracy"] == 0.25  # 2 and 1 are called positive
    assert found["balanced_accuracy"] == pytest.approx((1 / 3 + 0) / 2)
    assert found["f1"] == pytest.approx(2 * 1 / (2 + 3))


def test_one_class_leaves_the_auc_undefined() -> None:
    found = compute_task_metrics(torch.zeros(2, 1), torch.ones(2, 1), [Task("t", "t", "binary", ("0", "1"))])["t"]
    assert found["auc"] is None
    assert found["auc_ci"] is None
    assert found["balanced_accuracy"] is None
    assert found["accuracy"] == 1.0
    assert found["f1"] == pytest.approx(1.0)
    negative = compute_task_metrics(torch.zeros(2, 1), torch.zeros(2, 1), [Task("t", "t", "binary", ("0", "1"))])["t"]
    assert negative["f1"] is None  # without a positive repertoire there is no recall


def test_multiclass_metrics_by_hand() -> None:
    outputs = torch.tensor([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [3.0, -1.0, 0.0], [0.0, 0.0, 3.0]])
    labels = torch.tensor([[0.0], [1.0], [1.0], [2.0]])
    found = compute_task_metrics(outputs, labels, [Task("t", "t", "multiclass", ("a", "b", "c"))])["t"]
    assert found["accuracy"] == 0.75
    assert found["balanced_accuracy"] == pytest.approx((1 + 0.5 + 1) / 3)
    # a: above two of the rest, below one; b: one member above both of the rest, one below both
    assert found["auc_by_class"] == pytest.approx([2 / 3, 0.5, 1.0])
    assert found["auc"] == pytest.approx((2 / 3 + 0.5 + 1.0) / 3)
    p = np.exp(outputs.numpy()) / np.exp(outputs.numpy()).sum(axis=1, keepdims=True)
    assert found["brier"] == pytest.approx(((p - np.eye(3)[[0, 1, 1, 2]]) ** 2).sum() / 4)
    assert found["brier_base_rate"] == pytest.approx(1 - (1 + 4 + 1) / 16)


def test_regression_metrics_by_hand() -> None:
    task = Task("t", "t", "regression", mean=10.0, scale=2.0)
    found = compute_task_metrics(torch.tensor([[0.0], [1.0]]), torch.tensor([[10.0], [14.0]]), [task])["t"]
    assert found["mae"] == 1.0  # predicted 10 and 12
    assert "brier" not in found
    assert found["r2"] == pytest.approx(1 - 4 / 8)
    assert found["loss"] == pytest.approx(0.5 * (0 + 1) / 2)


def test_without_labels_there_are_no_metrics() -> None:
    found = compute_task_metrics(
        torch.zeros(2, 1), torch.full((2, 1), math.nan), [Task("t", "t", "binary", ("0", "1"))]
    )
    assert found == {"t": {"n": 0}}
