import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.experiment import resume_run, train_run
from deeprc.runs.run import load_run
from deeprc.tasks import Task
from deeprc.training import loggers
from deeprc.training.checkpoint import load_tensors
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.loggers import make_attention_histograms
from deeprc.training.state import TrainingState
from deeprc.training.trainer import Trainer
from tests.conftest import Killed

tensorboard = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

SETTINGS = ["n_updates=30", "evaluate_every=10", "n_kernels=8", "kernel_size=4", "n_sequences=40", "n_heads=2"]
CONFIG = load_config("deeprc", [*SETTINGS, "composition=false", "clones=false"])


def train(cohort: RepertoireDataset, folder: Path, **options: object) -> Path:
    arguments = {"targets": ["status"], "config": CONFIG, "split": SplitOptions(folds=3), "device": "cpu", **options}
    return train_run(cohort.container.path, folder, **arguments).path  # type: ignore[arg-type]


def events(run: Path) -> "tensorboard.EventAccumulator":
    return tensorboard.EventAccumulator(str(run / "tensorboard"), {"scalars": 0, "histograms": 0}).Reload()


def series(found: "tensorboard.EventAccumulator", tag: str) -> tuple[list[int], list[float]]:
    return [each.step for each in found.Scalars(tag)], [each.value for each in found.Scalars(tag)]


@pytest.fixture(scope="module")
def run(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(cohort, tmp_path_factory.mktemp("logged") / "run", logger="tensorboard")


def test_the_history_is_in_the_event_files(run: Path) -> None:
    found, history = events(run), pd.read_csv(run / "history.tsv", sep="\t")
    tags = {
        "train_loss": "loss/training",
        "validation_loss": "loss/validation",
        "validation_auc": "auc/validation",
        "seconds": "time/seconds",
    }
    assert sorted(found.Tags()["scalars"]) == sorted(tags.values())
    for column, tag in tags.items():
        steps, values = series(found, tag)
        assert steps == history["update"].tolist() == [10, 20, 30]
        assert values == pytest.approx(history[column].tolist(), rel=1e-6)


def test_histograms_hold_every_sequence_of_the_validation_repertoires(run: Path, cohort: RepertoireDataset) -> None:
    found = events(run)
    names = [f"{what}/head_{head}" for what in ("attention_logit", "log10_attention_weight") for head in (1, 2)]
    assert sorted(found.Tags()["histograms"]) == names
    splits = pd.read_json(run / "splits.json", typ="series")
    held_out = cohort.select(splits["validation"])
    for name in names:
        histograms = found.Histograms(name)
        assert [each.step for each in histograms] == [10, 20, 30]
        assert {each.histogram_value.num for each in histograms} == {held_out.n_sequences.sum()}
    weights = [each.histogram_value for each in found.Histograms(names[2])]
    assert all(each.max <= 0 for each in weights)


def test_a_histogram_is_of_the_weights_of_its_update(run: Path, cohort: RepertoireDataset) -> None:
    """The best evaluation's are those of the run."""
    best = load_run(run, device="cpu")
    place = pd.read_csv(run / "history.tsv", sep="\t")["validation_loss"].idxmin()
    held_out = cohort[np.array(best.split_of(cohort)) == "validation"]
    logits = [best.model.make_inference(held_out).compute_logits(i) for i in range(len(held_out))]
    for head in (0, 1):
        found = events(run).Histograms(f"attention_logit/head_{head + 1}")[place].histogram_value
        values = torch.cat(logits)[:, head].double()
        assert (found.min, found.max) == pytest.approx((float(values.min()), float(values.max())), rel=1e-5)
        assert found.sum == pytest.approx(float(values.sum()), rel=1e-4, abs=1e-3)


@pytest.mark.slow
def test_logging_changes_nothing(run: Path, cohort: RepertoireDataset, tmp_path: Path) -> None:
    torch.manual_seed(5)
    random.seed(5)
    states = torch.get_rng_state(), random.getstate()
    logged = train(cohort, tmp_path / "logged", logger="tensorboard")
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    plain = train(cohort, tmp_path / "plain")
    assert not (plain / "tensorboard").exists()
    for name, tensor in load_tensors(plain / "model.safetensors")[0].items():
        assert torch.equal(tensor, load_tensors(logged / "model.safetensors")[0][name]), name
    assert (plain / "metrics.json").read_text() == (logged / "metrics.json").read_text()


@pytest.mark.slow
def test_a_resumed_run_goes_on_without_doubled_steps(cohort: RepertoireDataset, tmp_path: Path, run: Path) -> None:
    """Killed after an evaluation whose checkpoint is lost: what was written of it is written again."""

    checkpoint = tmp_path / "cut" / "checkpoint" / "last.safetensors"
    kept: list[bytes] = []

    def kill(state: TrainingState, loss: Tensor) -> None:
        if state.update == 15:
            kept.append(checkpoint.read_bytes())
        if state.update == 25:
            checkpoint.write_bytes(kept[0])
            raise Killed

    with pytest.raises(Killed):
        train(cohort, tmp_path / "cut", logger="tensorboard", progress=kill)
    assert series(events(tmp_path / "cut"), "loss/training")[0] == [10, 20]
    resume_run(tmp_path / "cut", logger="tensorboard")
    found = events(tmp_path / "cut")
    for tag in ("loss/training", "loss/validation", "auc/validation"):
        assert series(found, tag) == series(events(run), tag)
    assert [each.step for each in found.Histograms("attention_logit/head_2")] == [10, 20, 30]


def test_unusable_loggers_are_refused_before_anything_is_written(
    cohort: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="`logger`: expected tensorboard, found 'wandb'"):
        train(cohort, tmp_path / "run", logger="wandb")
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs tensorboard: pip install 'deeprc\[tensorboard\]'"):
        train(cohort, tmp_path / "run", logger="tensorboard")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_command_line_takes_it(cohort: RepertoireDataset, tmp_path: Path) -> None:
    def deeprc(*arguments: str) -> object:
        with pytest.raises(SystemExit) as end:
            main(["train", *arguments, "--logger", "tensorboard"])
        return end.value.code

    path, folder = str(cohort.container.path), str(tmp_path / "run")
    assert not deeprc(path, "--target", "status", "--output", folder, "--folds", "3", *SETTINGS)
    assert series(events(tmp_path / "run"), "loss/training")[0] == [10, 20, 30]
    assert deeprc("--resume", folder) == 2  # it has ended; --logger is no reason to refuse


def test_zero_weights_are_in_no_histogram() -> None:
    found = make_attention_histograms(np.array([[1.0], [2.0], [3.0]], np.float32), np.array([[0.0], [0.1], [0.9]]))
    assert found["attention_logit/head_1"].tolist() == [1, 2, 3]
    assert found["log10_attention_weight/head_1"] == pytest.approx(np.log10([0.1, 0.9]))


@pytest.mark.parametrize("top_fraction", [1.0, 0.1])
def test_the_weights_of_a_repertoire_sum_to_one(
    cohort_factory: Callable[..., RepertoireDataset], top_fraction: float
) -> None:
    cohort = cohort_factory(8, 40)
    config = load_config("deeprc", [*SETTINGS, f"top_fraction={top_fraction}"])
    repertoires = LabelledRepertoires(cohort, np.arange(8, dtype=np.float64)[:, None] % 2)
    task = Task("status", "status", "binary", ("healthy", "case"))
    trainer = Trainer(config, [task], repertoires, repertoires, seed=0, device=torch.device("cpu"))
    logits, weights = trainer.compute_validation_attention()
    assert logits.shape == weights.shape == (cohort.n_sequences.sum(), 2)
    parts = np.split(weights, np.cumsum(trainer.validation.dataset.n_sequences)[:-1])
    assert [part.sum(axis=0).tolist() for part in parts] == [pytest.approx([1, 1])] * 8
    assert ((weights > 0).mean() < 0.2) == (top_fraction < 1)
