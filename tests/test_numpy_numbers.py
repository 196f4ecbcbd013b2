"""numpy's numbers are numbers everywhere in the public interface, and give what Python's give."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import deeprc
from deeprc.airr_ml import ImmuneStatePredictor
from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.import_paths import import_estimator_class
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.benchmarking.registry import METHODS
from deeprc.config import Config, NetworkConfig, TrainingConfig, load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation import SimulatedDataset, load_recipe
from deeprc.datasets.simulation.recipe import cohort_to_mapping
from deeprc.documents import to_plain
from deeprc.evaluation.splits import SplitOptions, make_split
from deeprc.hopfield import Hopfield, HopfieldPooling
from deeprc.runs.run import Run
from deeprc.tasks import parse_tasks

SMALL = {"n_updates": 1, "evaluate_every": 1, "n_kernels": 4, "key_units": 4, "n_sequences": 20, "standardise": True,
         "learning_rate": 0.5, "seeded_start": 0.0, "composition": False}  # fmt: skip


def of_numpy(values: dict[str, Any], whole: type = np.int64, real: type = np.float32) -> dict[str, Any]:
    """Return the numbers of a mapping as numpy's; all here are the same in 32 bits."""
    kinds = {bool: np.bool_, int: whole, float: real}
    return {name: kinds[type(value)](value) if type(value) in kinds else value for name, value in values.items()}


@pytest.fixture(scope="module")
def data(cohort_factory: Callable[..., RepertoireDataset]) -> RepertoireDataset:
    return cohort_factory(18, 12, seed=5)


@pytest.fixture(scope="module")
def trained(data: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("numpy") / "run"
    config = load_config("deeprc", of_numpy(SMALL))
    split = deeprc.SplitOptions(folds=np.int64(3), fold=np.uint8(1), validation_fold=np.int32(2))
    return deeprc.train(
        data.container.path, folder, targets="status=case", config=config, split=split, seed=np.int64(5), device="cpu"
    )


def test_configurations() -> None:
    for whole in (np.int64, np.int32, np.uint8):
        assert load_config("deeprc", of_numpy(SMALL, whole)) == load_config("deeprc", SMALL)
    own = Config(NetworkConfig(n_kernels=np.int64(4), standardise=np.bool_(False)), TrainingConfig(l1=np.float32(0.5)))
    expected = Config(NetworkConfig(n_kernels=4, standardise=False), TrainingConfig(l1=0.5))
    assert yaml.safe_dump(own.to_mapping()) == yaml.safe_dump(expected.to_mapping())


@pytest.mark.slow
def test_training_writes_the_run_that_python_numbers_give(
    trained: Run, data: RepertoireDataset, tmp_path: Path
) -> None:
    config = load_config("deeprc", SMALL)
    split = deeprc.SplitOptions(folds=3, fold=1, validation_fold=2)
    usual = deeprc.train(
        data.container.path, tmp_path / "run", targets="status=case", config=config, split=split, seed=5, device="cpu"
    )
    for name in ("config.yaml", "predictions.tsv", "splits.json", "metrics.json"):
        assert (trained.path / name).read_text() == (usual.path / name).read_text()
    assert deeprc.load_ensemble([trained.path], device="cpu").tasks == usual.tasks


def test_a_configuration_of_numpy_numbers_is_written(data: RepertoireDataset, tmp_path: Path) -> None:
    network = NetworkConfig(**of_numpy({"n_kernels": 4, "key_units": 4, "standardise": True}))
    training = TrainingConfig(**of_numpy({"n_updates": 1, "evaluate_every": 1, "n_sequences": 20}))
    run = deeprc.train(
        data.container.path,
        tmp_path / "run",
        targets="status",
        config=Config(network, training),
        split=deeprc.SplitOptions(folds=3),
    )
    assert deeprc.load(run.path).settings.config == Config(network, training)


def test_datasets_and_attention(trained: Run, data: RepertoireDataset) -> None:
    for kind in (np.int64, np.uint8):
        assert data[kind(3)].repertoire_id == "rep.3"
        assert list(data[kind(1) : kind(3)].repertoire_ids) == ["rep.1", "rep.2"]
        table = deeprc.attention_table(trained.model, data, kind(3), top=kind(2))
        assert table.equals(deeprc.attention_table(trained.model, data, 3, top=2))


def test_splits(data: RepertoireDataset) -> None:
    tasks = parse_tasks(["status=case"], data.metadata)
    usual = make_split(data.metadata, tasks, SplitOptions(folds=3, fold=1, validation_fold=0), seed=2)
    split = make_split(
        data.metadata,
        tasks,
        SplitOptions(folds=np.int64(3), fold=np.int64(1), validation_fold=np.uint8(0)),
        seed=np.uint32(2),
    )
    assert split.ids(data.repertoire_ids) == usual.ids(data.repertoire_ids)


@pytest.mark.slow
def test_benchmarks(data: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeprc.benchmarking.result.draw_curves", lambda *_: None)
    numbers: dict[str, Any] = {"folds": np.int64(3), "seed": np.uint64(1), "jobs": np.int64(1)}
    call: dict[str, Any] = {"target": "status=case", "methods": ["repertoire-size"], "output": tmp_path / "b"}
    found = benchmark(data, **call, options=BenchmarkOptions(**numbers))
    again = benchmark(data, **call, options=BenchmarkOptions(folds=3, seed=1), resume=True)
    assert found.predictions.equals(again.predictions)


def test_simulated_cohorts() -> None:
    usual, mapping = load_recipe("simulated-4", scale=0.001, seed=5)
    numbers = replace(usual, seed=np.int64(5), n_repertoires=np.int64(usual.n_repertoires), label_noise=np.float64(0))
    assert json.loads(json.dumps(cohort_to_mapping(numbers))) == json.loads(json.dumps(mapping))
    asked, _ = load_recipe("simulated-4", scale=np.float64(0.001), seed=np.int64(5))
    for cohort in (numbers, asked, replace(usual, seed=np.uint8(5))):
        for number in (0, np.int64(1)):
            drawn, expected = cohort.draw(number, np.arange(3))[0], usual.draw(int(number), np.arange(3))[0]
            np.testing.assert_array_equal(drawn.residues, expected.residues)
    with_stream = [replace(usual, seeds={"signal": kind(9)}).draw(1, np.arange(5))[0] for kind in (int, np.int64)]
    np.testing.assert_array_equal(with_stream[0].residues, with_stream[1].residues)
    assert len(SimulatedDataset(numbers)) == usual.n_repertoires


def test_hopfield_layers() -> None:
    x = torch.ones(2, 5, 8)
    shapes = [Hopfield(kind(8), n_heads=kind(2), max_updates=kind(3))(x, x, x).shape for kind in (int, np.int64)]
    assert shapes[0] == shapes[1]
    shapes = [HopfieldPooling(kind(8), n_queries=kind(3), n_heads=kind(2))(x).shape for kind in (int, np.int64)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", ["deeprc", "svm-minmax", "knn-jaccard", "logistic", "public-clones"])
def test_estimators(name: str, data: RepertoireDataset, tmp_path: Path) -> None:
    y = np.arange(len(data)) % 2
    kind = import_estimator_class(METHODS[name].estimator)
    given = {"overrides": SMALL, "device": "cpu"} if name == "deeprc" else dict(METHODS[name].fixed)
    usual = kind().set_params(**given)
    numbers = kind().set_params(**of_numpy({**usual.get_params(), **given}, real=np.float64))
    if name == "deeprc":
        numbers.set_params(overrides=of_numpy(SMALL))
    numbers.fit(data, y).save(tmp_path / "e.safetensors")
    expected = usual.fit(data, y).predict_proba(data)
    np.testing.assert_array_equal(numbers.predict_proba(data), expected)
    np.testing.assert_array_equal(kind.load(tmp_path / "e.safetensors").predict_proba(data), expected)


def test_the_challenges_interface() -> None:
    found = ImmuneStatePredictor(n_jobs=np.int64(1), n_folds=np.int64(3), device="cpu")
    assert (found.n_jobs, found.n_folds) == (1, 3)


def test_plain_values() -> None:
    body = {"a": np.int64(1), "b": [np.float32(0.5), (np.bool_(True),)], "c": {np.str_("d"): np.arange(2)}, "e": None}
    assert json.dumps(to_plain(body)) == '{"a": 1, "b": [0.5, [true]], "c": {"d": [0, 1]}, "e": null}'


def test_preprocessing(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("junction_aa\tduplicate_count\nCASLF\t1\nCF\t1\n")
    (tmp_path / "m.tsv").write_text("ID\ty\na\t1\n")
    containers = []
    for name, kind in (("python", int), ("numpy", np.int64)):
        report = deeprc.preprocess(
            tmp_path / "a.tsv", tmp_path / "m.tsv", tmp_path / f"{name}.h5",
            options=deeprc.ReadingOptions(min_length=kind(3), max_length=kind(30)), jobs=kind(1),
        )  # fmt: skip
        assert sum(each.kept for each in report.repertoires) == 1
        containers.append((tmp_path / f"{name}.h5").read_bytes())
    assert containers[0] == containers[1]
