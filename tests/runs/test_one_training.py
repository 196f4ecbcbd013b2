"""`deeprc train` and the DeepRC of `deeprc benchmark` are one training."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.experiment import train_run
from tests.conftest import random_sequences, write_cohort

SETTINGS = {"n_updates": 20, "evaluate_every": 5, "n_kernels": 8, "kernel_size": 4, "n_sequences": 30, "gene_units": 2}


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Return a cohort sorted by nothing, with repertoires without a label and people with two repertoires."""
    rng = np.random.default_rng(3)
    status = np.where(rng.permutation(27) % 2 == 1, "case", "healthy").astype(object)
    status[[4, 11, 20]] = None
    metadata = pd.DataFrame({"status": status, "donor": [f"d{i // 2}" for i in range(27)]})
    path = tmp_path_factory.mktemp("incomplete") / "cohort.h5"
    return write_cohort(path, [random_sequences(rng, 40) for _ in range(27)], metadata)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "group_by"), [pytest.param("status", None, marks=pytest.mark.long), ("status=healthy", "donor")]
)
def test_train_and_benchmark_predict_the_same_to_the_last_bit(
    incomplete: RepertoireDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    group_by: str | None,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # two trainings on CUDA differ by rounding
    preset = tmp_path / "one.yaml"
    preset.write_text(yaml.safe_dump({"deeprc": {"fixed": {"config": "deeprc", "overrides": SETTINGS}}}))
    cohort = incomplete.container.path
    how = BenchmarkOptions(preset=preset, folds=3, group_by=group_by, seed=7)
    result = benchmark(cohort, target=target, methods=["deeprc"], output=tmp_path / "compared", options=how)
    assert result.failures == {}
    stored = pd.read_csv(tmp_path / "compared" / "predictions.tsv", sep="\t").set_index("repertoire_id")
    for fold in range(3):
        config = load_config("deeprc", {**SETTINGS, "branches_use_validation": False})  # as other methods
        split = SplitOptions(folds=3, fold=fold, group_by=group_by)
        run = train_run(cohort, tmp_path / str(fold), targets=target, config=config, split=split, seed=7)
        predicted = pd.read_csv(run.path / "predictions.tsv", sep="\t").set_index("repertoire_id")
        tested = predicted[predicted["split"] == "test"]
        compared = stored[stored["fold"] == fold]
        assert set(tested.index) == set(compared.index)
        assert tested["label"].to_dict() == compared["label"].to_dict()
        assert tested["probability"].to_dict() == compared["probability"].to_dict()


def test_the_default_benchmark_has_one_setting_of_deeprc(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    from deeprc.benchmarking.methods import choose_methods
    from deeprc.benchmarking.search import apply_setting

    (method,), _ = choose_methods(["deeprc"], preset="quick", dataset=cohort_factory(6, 10))
    (setting,) = method.search.list_settings([0])
    estimator = apply_setting(method.estimator, setting)
    assert load_config(estimator.config, estimator.overrides or {}) == load_config()
