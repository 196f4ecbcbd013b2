"""The training loop: sampled updates, early stopping on the validation loss, checkpoints.

Every random choice of an update is derived from the seed and the update's number, so a run that was killed and
resumed makes the same choices as one that was not. Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.device import resolve_precision
from deeprc.errors import InputError
from deeprc.nn.batch import BatchMaker, RepertoireBatch, draw_rows
from deeprc.nn.inference import cohort_outputs
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task, multitask_loss
from deeprc.training.augmentation import permute_residues, shuffle_negatives
from deeprc.training.checkpoint import load_tensors, optimizer_tensors, restore_optimizer, save_tensors

__all__ = ["SAVE_SECONDS", "Fold", "Trainer", "TrainingState", "build_network"]

logger = logging.getLogger(__name__)

SAVE_SECONDS = 60.0
"""A checkpoint is written at every evaluation, and between two of them when this time has passed."""

_EPOCHS, _SAMPLES, _NOISE, _START, _VALIDATION = range(5)  # streams of randomness derived from one seed


@dataclass(frozen=True)
class Fold:
    """Repertoires and their labels, (B, number of tasks) float64, NaN where missing."""

    dataset: RepertoireDataset
    labels: NDArray[np.float64]


@dataclass
class TrainingState:
    """Where training stands; everything but the tensors of a checkpoint.

    Attributes
    ----------
    update
        Updates made.
    best_loss, best_update
        The lowest validation loss so far, and after which update.
    history
        One row per evaluation.
    finished
        Whether training has ended.
    """

    update: int = 0
    best_loss: float = float("inf")
    best_update: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    finished: bool = False


def build_network(config: Config, tasks: Sequence[Task], *, seed: int, device: torch.device) -> DeepRC:
    """Return a new network for these tasks, its start drawn from the seed."""
    shape = dict(vars(config.network))
    shape.pop("abundance")
    shape["precision"] = resolve_precision(config.network.precision, device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(_generator(seed, _START).integers(2**62)))
        return DeepRC(n_outputs=sum(task.n_outputs for task in tasks), **shape).to(device)


class Trainer:
    """Train a DeepRC network on one fold and stop early on another.

    Parameters
    ----------
    config
        Network and training.
    tasks
        What is predicted.
    train, validation
        The two folds.
    seed
        Of every random choice.
    device
        Where to compute.
    monitor
        Further numbers for the history, from the validation outputs (B, T) and labels.
    checkpoint
        The checkpoint file; None keeps none. An existing one is continued.
    """

    def __init__(
        self,
        config: Config,
        tasks: Sequence[Task],
        train: Fold,
        validation: Fold,
        *,
        seed: int,
        device: torch.device,
        monitor: Callable[[Tensor, Tensor], dict[str, float]] | None = None,
        checkpoint: Path | None = None,
    ) -> None:
        self.config, self.tasks, self.seed, self.device = config, tuple(tasks), seed, device
        self.train, self.validation = train, validation
        self.monitor, self.checkpoint = monitor, checkpoint
        self.network = build_network(config, tasks, seed=seed, device=device)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=config.training.learning_rate, eps=config.training.adam_epsilon
        )
        self.state = TrainingState()
        self._best = self._weights()
        self._batches = BatchMaker(train.dataset, config.network.abundance)
        self._held_out = BatchMaker(validation.dataset, config.network.abundance)
        self._validation_rows = self._draw_validation_rows()
        self._labelled = np.flatnonzero(~np.isnan(train.labels).all(axis=1))
        self._losses: list[Tensor] = []
        self._saved = time.monotonic()
        self._check()
        if checkpoint is not None and checkpoint.exists():
            self._restore(checkpoint)

    def _check(self) -> None:
        if len(self._labelled) == 0:
            raise InputError("no training repertoire has a label")
        if np.isnan(self.validation.labels).all():
            raise InputError("no validation repertoire has a label; early stopping needs some")
        if self.config.training.shuffle_negatives and self.tasks[0].kind != "binary":
            raise InputError("shuffle_negatives: expected a binary first target")

    def _draw_validation_rows(self) -> list[NDArray[np.int64]]:
        """Choose the sequences that every look at the validation fold sees, (n,) positions per repertoire."""
        most = self.config.training.validation_sequences
        return [
            draw_rows(n, n if most is None else most, _generator(self.seed, _VALIDATION, i))
            for i, n in enumerate(self.validation.dataset.n_sequences.tolist())
        ]

    def fit(self, progress: Callable[[TrainingState, float], None] | None = None) -> TrainingState:
        """Train until the last update or until early stopping, and leave the best weights in `network`.

        Parameters
        ----------
        progress
            Called after every update with the state and the update's loss.
        """
        settings = self.config.training
        started = time.monotonic() - (self.state.history[-1]["seconds"] if self.state.history else 0.0)
        while not self.state.finished:
            self.network.train()
            loss = self._update(self.state.update)
            self.state.update += 1
            self._losses.append(loss)
            last = self.state.update >= settings.n_updates
            if self.state.update % settings.evaluate_every == 0 or last:
                self._evaluate(time.monotonic() - started)
                waited = (self.state.update - self.state.best_update) // settings.evaluate_every
                self.state.finished = last or (settings.patience is not None and waited >= settings.patience)
                self._save()
            elif time.monotonic() - self._saved >= SAVE_SECONDS:
                self._save()
            if progress is not None:
                progress(self.state, float(loss))
        self.network.load_state_dict(self._best)
        self.network.eval()
        return self.state

    def _update(self, number: int) -> Tensor:
        settings = self.config.training
        positions = self._positions(number)
        batch = self._sample(number, positions).to(self.device)
        generator = torch.Generator(self.device).manual_seed(int(_generator(self.seed, _NOISE, number).integers(2**62)))
        outputs = self.network(
            batch, top_fraction=settings.top_fraction, logit_noise=settings.logit_noise, generator=generator
        )
        targets = torch.from_numpy(self.train.labels[positions]).to(outputs.device)
        loss = multitask_loss(outputs, targets, self.tasks)
        self.optimizer.zero_grad()
        (loss + self._penalty()).backward()
        self.optimizer.step()
        return loss.detach()

    def _positions(self, number: int) -> NDArray[np.int64]:
        """Return which training repertoires update `number` sees: epochs in random order, end to end."""
        n, size = len(self._labelled), self.config.training.batch_size
        at = np.arange(number * size, (number + 1) * size)
        orders = {int(epoch): _generator(self.seed, _EPOCHS, int(epoch)).permutation(n) for epoch in np.unique(at // n)}
        return self._labelled[[orders[int(i // n)][i % n] for i in at]]

    def _sample(self, number: int, positions: NDArray[np.int64]) -> RepertoireBatch:
        settings = self.config.training
        rng = _generator(self.seed, _SAMPLES, number)
        batch = self._batches.sample(positions, settings.n_sequences, rng)
        if settings.shuffle_negatives:
            batch = shuffle_negatives(batch, self.train.labels[positions, 0] == 0, rng)
        if settings.residue_permutation:
            batch = permute_residues(batch, settings.residue_permutation, rng)
        return batch

    def _penalty(self) -> Tensor:
        settings = self.config.training
        penalty = torch.zeros((), device=self.device)
        if settings.l1 or settings.l2:
            for weight in self.network.parameters():
                penalty = penalty + settings.l1 * weight.abs().sum() + settings.l2 * weight.square().sum()
        return penalty

    def validate(self) -> tuple[float, dict[str, float]]:
        """Return the loss of the current weights on the validation repertoires, and the monitor's numbers."""
        self.network.eval()
        outputs = cohort_outputs(
            self.network,
            self._held_out,
            top_fraction=self.config.training.top_fraction,
            rows=self._validation_rows,
        )
        targets = torch.from_numpy(self.validation.labels).to(outputs.device)
        loss = float(multitask_loss(outputs, targets, self.tasks))
        if not np.isfinite(loss):
            raise InputError(f"the loss is {loss} after {self.state.update} updates; try a lower learning_rate")
        return loss, {} if self.monitor is None else self.monitor(outputs, targets)

    def _evaluate(self, seconds: float) -> None:
        loss, monitored = self.validate()
        row = {
            "update": self.state.update,
            "train_loss": float(torch.stack(self._losses).mean()),
            "validation_loss": loss,
            **monitored,
            "seconds": round(seconds, 3),
        }
        self._losses = []
        self.state.history.append(row)
        if loss < self.state.best_loss:
            self.state.best_loss, self.state.best_update = loss, self.state.update
            self._best = self._weights()

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        self.checkpoint.parent.mkdir(exist_ok=True)
        tensors = {f"network.{name}": tensor for name, tensor in self._weights().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        tensors["losses.since_evaluation"] = torch.stack(self._losses) if self._losses else torch.zeros(0)
        tensors |= {f"optimizer.{name}": tensor for name, tensor in optimizer_tensors(self.optimizer).items()}
        save_tensors(self.checkpoint, tensors, vars(self.state))
        self._saved = time.monotonic()

    def _restore(self, path: Path) -> None:
        tensors, state = load_tensors(path)
        parts: dict[str, dict[str, Any]] = {"network": {}, "best": {}, "losses": {}, "optimizer": {}}
        for key, tensor in tensors.items():
            part, name = key.split(".", 1)
            # the optimiser puts its state where it belongs: moments to the device, steps on the CPU
            parts[part][name] = tensor if part == "optimizer" else tensor.to(self.device)
        self.network.load_state_dict(parts["network"])
        self._best = parts["best"]
        self._losses = list(parts["losses"]["since_evaluation"])
        restore_optimizer(self.optimizer, parts["optimizer"])
        self.state = TrainingState(**state)
        logger.info("continuing after update %d", self.state.update)


def _generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
