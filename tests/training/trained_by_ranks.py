"""Trainings that one process and several ranks make alike. `test_ranks.py` starts this file, once for each rank."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from deeprc import ranks
from deeprc.config import Config, NetworkConfig, TrainingConfig
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.device import resolve_device
from deeprc.tasks import Task
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.model import TrainedModel
from deeprc.training.state import TrainingState
from deeprc.training.trainer import Trainer

TASKS = (Task("status", "status", "binary", ("healthy", "case")), Task("age", "age", "regression", ()))
NETWORK = {
    "n_kernels": 8,
    "kernel_size": 4,
    "abundance": "log1p",
    "n_heads": 2,
    "composition": False,
    "clones": False,
    "precision": "float32",  # on CUDA, too
}
TRAINING = {
    "n_sequences": 62,
    "n_updates": 20,
    "evaluate_every": 5,
    "seeded_start": 0.0,
    "adam_epsilon": 1e-3,  # rounding is not blown up where a gradient is nearly 0
}
OPTIONS: dict[str, dict[str, Any]] = {
    "missing labels": {"l2": 1e-2},
    "regularised": {
        "top_fraction": 0.3,
        "logit_noise": 0.5,
        "residue_permutation": 0.2,
        "shuffle_negatives": True,
        "batch_size": 5,
    },
    "constant part": {"top_fraction": 0.3, "unattended": "constant", "patience": 2, "least_gain": 0.5},
    "branches": {"composition": True, "clones": True, "seeded_start": 0.5, "abundance": "none"},
    "whole validation": {"validation_sequences": 20, "composition": True, "top_fraction": 0.3},
}


def labels(dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Return the labels; most repertoires lack the second one, so that some ranks' shares have none of it."""
    metadata = dataset.metadata
    age = metadata["age"].to_numpy(float) / 50
    age[np.arange(len(age)) % 5 > 0] = np.nan
    return np.stack([(metadata["status"] == "case").to_numpy(float), age], axis=1)


def make(
    dataset: RepertoireDataset, options: dict[str, Any], checkpoint: Path | None = None, device: str = "cpu"
) -> Trainer:
    """Return a training of two thirds of a cohort."""
    n = 2 * len(dataset) // 3
    parts = [
        LabelledRepertoires(dataset[rows], labels(dataset)[rows]) for rows in (np.arange(n), np.arange(n, len(dataset)))
    ]
    network = {**NETWORK, **{name: value for name, value in options.items() if name in vars(NetworkConfig())}}
    training = {**TRAINING, **{name: value for name, value in options.items() if name in vars(TrainingConfig())}}
    config = Config(NetworkConfig(**network), TrainingConfig(**training))
    return Trainer(config, TASKS, *parts, seed=5, device=resolve_device(device), checkpoint=checkpoint)


def finish(trainer: Trainer, dataset: RepertoireDataset) -> dict[str, Tensor]:
    """Train, and return the weights, the history, and the outputs of a cohort."""
    history = trainer.fit().history
    outputs = TrainedModel(TASKS, trainer.network, trainer.config).compute_outputs(dataset)
    losses = torch.tensor([[row["update"], row["train_loss"], row["validation_loss"]] for row in history])
    found = {**trainer.network.state_dict(), "losses": losses[~losses.isnan().any(dim=1)], "outputs": outputs}
    found["motifs"] = torch.tensor(len(trainer.start_motifs))
    return {name: tensor.cpu() for name, tensor in found.items()}


class Interrupted(Exception):
    """What interrupts a training."""


def interrupt(dataset: RepertoireDataset, checkpoint: Path, device: str = "cpu") -> None:
    """Train until an update between two evaluations, and leave a checkpoint."""

    def end(state: TrainingState, loss: Tensor) -> None:
        if state.update == 13:
            raise Interrupted

    with suppress(Interrupted):
        make(dataset, OPTIONS["missing labels"], checkpoint, device).fit(end)


def train_all(dataset: RepertoireDataset, keep: Callable[[str, dict[str, Tensor]], None], device: str = "cpu") -> None:
    """Make all trainings."""
    for name, options in OPTIONS.items():
        keep(name, finish(make(dataset, options, device=device), dataset))


def main(container: str, output: str, device: str, *checkpoints: str) -> None:
    """Train as a rank; rank 0 writes what came out. Trainings that were interrupted are continued."""
    folder, dataset = Path(output), open_dataset(container)

    def keep(name: str, tensors: dict[str, Tensor]) -> None:
        if ranks.is_main():
            save_file(tensors, folder / f"{name}.safetensors")

    with ranks.join_ranks():
        train_all(dataset, keep, device)
        for n, checkpoint in enumerate(map(Path, checkpoints)):
            resumed = make(dataset, OPTIONS["missing labels"], checkpoint, device)
            assert resumed.state.update == 10
            keep(f"resumed {n}", finish(resumed, dataset))
        interrupt(dataset, folder / "last.safetensors", device)


if __name__ == "__main__":
    main(*sys.argv[1:])
