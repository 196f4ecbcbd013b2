"""The progress of a benchmark: which jobs come first, the time that is left, and what a step belongs to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.progress import open_step
from tests.conftest import StepRecorder

pytestmark = pytest.mark.usefixtures("no_pictures")


class Slow(BaseEstimator):
    """An estimator that shows a step while it is fitted."""

    def fit(self, X: RepertoireDataset, y: Any) -> Slow:
        self.classes_ = np.array([0, 1])
        with open_step("training", 1):
            return self

    def decision_function(self, X: RepertoireDataset) -> Any:
        return np.arange(len(X)) / len(X)

    def predict_proba(self, X: RepertoireDataset) -> Any:
        return np.full((len(X), 2), 0.5)


@pytest.fixture
def data(small_cohort: Callable[..., RepertoireDataset]) -> RepertoireDataset:
    return small_cohort(["well", "sick"] * 15)


def test_one_job_of_each_method_comes_first(data: RepertoireDataset, toys: ModuleType, tmp_path: Path) -> None:
    """So the time left is known after three jobs: without this, all folds of what has no search would come first."""
    (tmp_path / "preset.yaml").write_text("searched: {search: {salt: [1, 2]}}\n")
    shown: list[tuple[int, int, float | None]] = []
    result = benchmark(
        data,
        target="status=sick",
        methods={"slow": Slow(), "searched": toys.Noise(), "plain": toys.Noise()},
        options=BenchmarkOptions(preset=tmp_path / "preset.yaml", folds=3),
        progress=lambda *counts: shown.append(counts),
    )
    assert not result.failures
    order = [f"{row.method} {row.fold} {row.task}" for row in result.costs.itertuples()]
    assert order[:3] == ["slow 0 final", "plain 0 final", "searched 0 search"]
    assert order[3:7] == ["slow 1 final", "slow 2 final", "plain 1 final", "plain 2 final"]
    assert order[7:] == [f"searched {f} search" for f in (1, 2, 0, 1, 2)] + [f"searched {f} final" for f in range(3)]
    assert [(done, left is None) for done, _, left in shown[:4]] == [(0, True), (1, True), (2, True), (3, False)]


def test_steps_of_a_fit_name_its_method_and_fold(data: RepertoireDataset, recorder: StepRecorder) -> None:
    benchmark(data, target="status=sick", methods={"slow": Slow()}, options=BenchmarkOptions(folds=3))
    titles = [step.title for step in recorder.steps if step.name == "training"]
    assert titles == [f"slow, fold {fold}{refit}: training" for fold in range(3) for refit in ("", ", refitted")]
