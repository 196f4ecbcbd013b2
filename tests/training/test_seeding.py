from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from deeprc.config import Config, NetworkConfig, TrainingConfig
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.nn.batch import BatchMaker
from deeprc.tasks import Task
from deeprc.training import seeding
from deeprc.training.enrichment import Motif
from deeprc.training.seeding import SeedsAlone, seed_network
from deeprc.training.trainer import Fold, Trainer, build_network
from tests.conftest import random_sequences, write_cohort

CPU = torch.device("cpu")
TASKS = [Task("status", "status", "binary", ("healthy", "case"))]


@pytest.fixture(autouse=True)
def _few_labels_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding, "_FEWEST_LABELS", 8)


def motif(pattern: str, sign: float = 1.0, output: int = 0) -> Motif:
    letters = tuple(-1 if letter == "." else AMINO_ACIDS.index(letter) for letter in pattern)
    return Motif(letters, output, 0.5 * sign, 0.01)


def config(**training: object) -> Config:
    settings: dict[str, object] = {"n_updates": 12, "evaluate_every": 4, "n_sequences": 50, "seeded_start": 0.5}
    network = NetworkConfig(n_kernels=8, kernel_size=4, abundance="none")
    return Config(network, TrainingConfig(**{**settings, **training}))  # type: ignore[arg-type]


def label(dataset: RepertoireDataset) -> NDArray[np.float64]:
    return (dataset.metadata["status"] == "case").to_numpy(np.float64)[:, None]


def make(dataset: RepertoireDataset, settings: Config, checkpoint: Path | None = None) -> Trainer:
    train, validation = dataset[:24], dataset[24:]
    folds = Fold(train, label(train)), Fold(validation, label(validation))
    return Trainer(settings, TASKS, *folds, seed=0, device=CPU, checkpoint=checkpoint)


def four(folder: Path, sequences: list[str]) -> RepertoireDataset:
    return write_cohort(folder / "few.h5", [sequences], pd.DataFrame({"status": ["case"]}))


def test_a_kernel_fires_at_its_motif_alone_and_attention_follows(tmp_path: Path) -> None:
    rest = random_sequences(np.random.default_rng(0), 200, low=8)
    rest = [s for s in rest if "SFE" not in s]
    cohort = four(tmp_path, ["SFENAAAA", "ACDSFENC", "DDDDSFEN", "ACDSFWNC", *rest])
    network = build_network(config(), TASKS, seed=0, device=CPU)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    maker = BatchMaker(cohort, "none")
    seed_network(network, [motif("SFEN"), motif("W.Y", -1.0)], maker)
    values, logits = (each.detach() for each in network.attend(maker.take(0, slice(None))))
    fires = values[:, 0] > 1
    assert fires.tolist() == [True] * 3 + [False] * (1 + len(rest))
    assert bool((values[3:, 0] < -1).all())
    lacking = (values[:, 1] < -1) & ~fires
    assert float(logits[fires, 0].mean() - logits[lacking, 0].mean()) == pytest.approx(4.0, abs=1.5)
    after = network.state_dict()
    assert torch.equal(after["embedding.weight"][2:], before["embedding.weight"][2:])
    assert torch.equal(after["key_network.0.weight"][1:], before["key_network.0.weight"][1:])
    weight = next(value for name, value in after.items() if name.startswith("output_network") and value.ndim == 2)
    np.testing.assert_allclose(weight[0].numpy(), [2**-0.5, -(2**-0.5), *[0] * 6], rtol=1e-6)


def test_without_motifs_the_start_is_the_plain_one(cohort: RepertoireDataset) -> None:
    network = build_network(config(), TASKS, seed=0, device=CPU)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    seed_network(network, [], BatchMaker(cohort, "none"))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("shape", [{"n_key_layers": 0, "key_units": 8}, {"n_heads": 2}, {"n_output_layers": 2}])
def test_other_shapes(cohort: RepertoireDataset, shape: dict[str, int]) -> None:
    network_config = NetworkConfig(n_kernels=8, kernel_size=4, **shape)  # type: ignore[arg-type]
    network = build_network(Config(network_config), TASKS, seed=0, device=CPU)
    maker = BatchMaker(cohort, "none")
    seed_network(network, [motif("WWHW")], maker)
    values, logits = (each.detach() for each in network.attend(maker.take(1, slice(None))))
    fires = values[:, 0] > 1
    assert 0 < int(fires.sum()) < len(fires)
    assert float(logits[fires, 0].mean() - logits[~fires, 0].mean()) > 2


def test_a_trainer_finds_the_motif_in_the_training_fold(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    trainer = make(cohort_factory(40), config(n_updates=60, evaluate_every=20))
    state = trainer.fit()
    assert set(trainer.seeds[0].pattern) <= set("WH.")
    assert state.history[-1]["validation_loss"] < 0.6


def test_validation_and_test_repertoires_cannot_influence_the_start(tmp_path: Path) -> None:
    """Two containers share the training repertoires; one has a motif of its own in the validation and test ones."""
    rng = np.random.default_rng(0)
    train = [random_sequences(rng, 60) for _ in range(24)]
    train = [
        [s[:1] + "WWHW" + s[1:] if b % 2 and i % 8 == 0 else s for i, s in enumerate(r)] for b, r in enumerate(train)
    ]
    others = [[random_sequences(rng, 60) for _ in range(12)] for _ in range(2)]
    others[1] = [[s + "CYFC" if b % 2 else s for s in r] for b, r in enumerate(others[1])]
    status = ["case" if b % 2 else "healthy" for b in range(36)]
    weights = []
    for number, rest in enumerate(others):
        folder = tmp_path / str(number)
        folder.mkdir()
        trainer = make(write_cohort(folder / "cohort.h5", train + rest, pd.DataFrame({"status": status})), config())
        if number:  # nor can their labels
            trainer.validation.labels[:] = 1 - trainer.validation.labels
        trainer.start()
        assert trainer.seeds
        weights.append((trainer.seeds, {k: v.clone() for k, v in trainer.network.state_dict().items()}))
    (seeds, first), (others_seeds, second) = weights
    assert seeds == others_seeds
    assert all(torch.equal(second[name], value) for name, value in first.items())


def test_labels_of_nobody_leave_the_plain_training(cohort: RepertoireDataset) -> None:
    rng = np.random.default_rng(0)
    histories = []
    train, validation = cohort[:20], cohort[20:]
    folds = Fold(train, rng.permutation(label(train))), Fold(validation, label(validation))
    for share in (0.0, 0.5):
        trainer = Trainer(config(seeded_start=share), TASKS, *folds, seed=0, device=CPU)
        history = trainer.fit().history
        assert trainer.seeds == []
        histories.append([{k: v for k, v in row.items() if k != "seconds"} for row in history])
    assert histories[0] == histories[1]


@pytest.mark.parametrize("alone", [0, 6, 100])
def test_a_resumed_training_equals_an_uninterrupted_one(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, alone: int
) -> None:
    cohort, settings = cohort_factory(40), config(seeds_alone=alone)

    class Killed(Exception):
        pass

    def kill(state: object, loss: torch.Tensor) -> None:
        if getattr(state, "update", 0) == 5:
            raise Killed

    whole = make(cohort, settings)
    whole.fit()
    path = tmp_path / "checkpoint" / "last.safetensors"
    with pytest.raises(Killed):
        make(cohort, settings, path).fit(kill)
    resumed = make(cohort, settings, path)
    assert resumed.state.update == 4
    resumed.fit()
    assert resumed.seeds == whole.seeds
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(resumed.network.state_dict()[name], tensor), name


def test_alone_nothing_but_the_seeded_outputs_learns(cohort: RepertoireDataset) -> None:
    network = build_network(config(), TASKS, seed=0, device=CPU)
    maker = BatchMaker(cohort, "none")
    seed_network(network, [motif("WWHW")], maker)
    alone = SeedsAlone(network, 1)
    batch = maker.sample(np.arange(4), 50, np.random.default_rng(0))

    def gradients() -> dict[str, bool]:
        network.zero_grad()
        (network(batch) - 1).square().sum().backward()
        return {n: bool(p.grad is not None and p.grad.count_nonzero()) for n, p in network.named_parameters()}

    learning = {name for name, nonzero in gradients().items() if nonzero}
    assert all(name.startswith("output_network") for name in learning)
    assert len(learning) == 2
    alone.end()
    assert {"embedding.weight", "pooling.queries"} <= {name for name, nonzero in gradients().items() if nonzero}


def test_few_labels_leave_the_plain_start(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeding, "_FEWEST_LABELS", 25)
    trainer = make(cohort_factory(40), config())
    trainer.start()
    assert trainer.seeds == []


def test_an_lstm_has_no_kernels_to_start(cohort: RepertoireDataset) -> None:
    settings = Config(NetworkConfig(embedding="lstm", n_kernels=8), TrainingConfig(seeded_start=0.5))
    with pytest.raises(InputError, match="seeded_start: expected embedding=convolution"):
        make(cohort, settings)
