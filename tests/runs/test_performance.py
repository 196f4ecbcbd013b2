from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.runs.performance import measure_performance
from deeprc.tasks import Calibration, Task


def test_each_class_of_several_is_ranked_by_calibrated_outputs(cohort: RepertoireDataset) -> None:
    """A temperature changes the ranks of one class against the others, so metrics and contrasts must share it."""
    n = len(cohort)
    rng = np.random.default_rng(1)
    label = rng.integers(0, 3, n).astype(float)
    outputs = (rng.normal(0, 3, (n, 3)) + np.eye(3)[label.astype(int)]).astype(np.float32)
    task = Task("grade", "grade", "multiclass", ("a", "b", "c"), calibration=Calibration(slope=0.1))
    predictor: Any = SimpleNamespace(
        runs=(),
        model=SimpleNamespace(tasks=[task], encode_labels=lambda _: label[:, None]),
        split_of=lambda _: ["test"] * n,
        group_by=None,
    )
    found = measure_performance(predictor, cohort, outputs)
    scaled = np.exp(outputs.astype(float) * 0.1)
    probability = scaled / scaled.sum(axis=1, keepdims=True)
    expected = [roc_auc_score(label == c, probability[:, c]) for c in range(3)]
    raw = np.exp(outputs.astype(float))
    assert expected != pytest.approx([roc_auc_score(label == c, raw[:, c] / raw.sum(axis=1)) for c in range(3)])
    assert found.metrics["test"]["grade"]["auc_by_class"] == pytest.approx(expected)
    aucs = [contrast.measure_auc(found.is_in("test")) for contrast in found.contrasts]
    assert [auc and auc.value for auc in aucs] == pytest.approx(expected)
