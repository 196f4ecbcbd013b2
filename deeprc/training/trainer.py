"""The training loop: sampled updates, early stopping on the validation loss, checkpoints.

Every random choice of an update is derived from the seed and the update's number, so a run that was killed and
resumed makes the same choices as one that was not. Letters: B repertoires, T outputs.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.device import resolve_precision
from deeprc.documents import AnyFloat, abbreviate, validate
from deeprc.errors import InputError
from deeprc.estimators import canonical_order
from deeprc.files import name_write_errors
from deeprc.nn.batch import Collator, RepertoireBatch, cache_device
from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.nn.genes import GeneNames
from deeprc.nn.inference import Inference, attention_weights
from deeprc.nn.motif_convolution import has_compiled_form
from deeprc.nn.network import DeepRC
from deeprc.nn.sampling import draw_rows
from deeprc.outputs import multitask_loss, output_names
from deeprc.tasks import Task
from deeprc.training.augmentation import permute_residues, shuffle_negatives
from deeprc.training.checkpoint import load_tensors, optimizer_tensors, restore_optimizer, save_tensors
from deeprc.training.confirmation import confirm_motifs
from deeprc.training.enrichment import LEVEL, Motif
from deeprc.training.seeding import describe_start, find_seeds, seed_network
from deeprc.training.step import CapturedStep, Prefetcher, Step

__all__ = ["MOST_WEIGHTS", "SAVE_SECONDS", "Fold", "Trainer", "TrainingState", "build_network"]

logger = logging.getLogger(__name__)

SAVE_SECONDS = 60.0
"""A checkpoint is written at every evaluation, and between two of them when this time has passed."""

MOST_WEIGHTS = 500_000_000
"""Of a network; training keeps about six numbers of 32 bits for each."""

_COUNT = {"low": 0, "high": 2**53}  # limits where a checkpoint is read

# streams of randomness derived from one seed
_EPOCHS, _SAMPLES, _NOISE, _START, _VALIDATION, _AUGMENTATION, _SEEDS = range(7)


@dataclass(frozen=True)
class Fold:
    """Repertoires and their labels, (B, number of tasks) float64, NaN where missing."""

    dataset: RepertoireDataset
    labels: NDArray[np.float64]

    def ordered(self) -> Fold:
        """Return the repertoires that have a label, in an order that their content decides, see `canonical_order`."""
        rows = np.flatnonzero(~np.isnan(self.labels).all(axis=1))
        if len(rows):
            rows = rows[canonical_order(self.dataset[rows], self.labels[rows])]
        return Fold(self.dataset[rows], self.labels[rows])


@dataclass
class TrainingState:
    """Where training stands; everything but the tensors of a checkpoint.

    Attributes
    ----------
    update
        Updates made.
    best_loss, best_update
        The best validation loss so far (see `TrainingConfig.least_gain`), and after which update.
    history
        One row per evaluation; its `best_update` is the best one so far.
    finished
        Whether training has ended.
    started
        Whether the motifs to start from have been sought.
    seeds
        Those that kernels started from, as mappings.
    """

    update: int = field(default=0, metadata=_COUNT)
    best_loss: AnyFloat = float("inf")
    best_update: int = field(default=0, metadata=_COUNT)
    history: list[dict[str, AnyFloat]] = field(default_factory=list)
    finished: bool = False
    started: bool = False
    seeds: list[dict[str, Any]] = field(default_factory=list)


def build_network(
    config: Config, tasks: Sequence[Task], *, seed: int, device: torch.device, genes: GeneNames | None = None
) -> DeepRC:
    """Return a new network for these tasks, its start drawn from the seed; on the device `meta` shapes without numbers.

    `genes` are those that it knows, needed where `gene_units` is not 0.

    Raises
    ------
    InputError
        If it would have more than `MOST_WEIGHTS` weights.
    """
    shape = dict(vars(config.network))
    shape.pop("abundance")
    shape["precision"] = resolve_precision(config.network.precision, device)
    form = partial(DeepRC, n_outputs=sum(task.n_outputs for task in tasks), gene_names=genes, **shape)
    with torch.device("meta"):
        n_weights = sum(parameter.numel() for parameter in form().parameters())
        if n_weights > MOST_WEIGHTS:
            raise InputError(f"the network would have {n_weights:,} weights; expected at most {MOST_WEIGHTS:,}")
    if device.type == "meta":
        with device:
            return form()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(_generator(seed, _START).integers(2**62)))
        return form().to(device)


class Trainer:
    """Train a DeepRC network on one fold and stop early on another.

    What is drawn and summed over repertoires follows their content: in which order the folds list them, and which
    others without a label they hold, changes nothing, to the last bit. So `deeprc train`, `DeepRCClassifier` and
    `deeprc benchmark` are one training.

    Parameters
    ----------
    config
        Network and training.
    tasks
        What is predicted.
    train, validation
        The two folds; repertoires without any label are left out.
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
        self.train, self.validation = train.ordered(), validation.ordered()
        self._check()
        self.monitor, self.checkpoint = monitor, checkpoint
        genes = GeneNames.of(self.train.dataset) if config.network.gene_units else None
        self.network = build_network(config, tasks, seed=seed, device=device, genes=genes)
        self.step = Step(self.network, tasks, config.training)
        self.state = TrainingState()
        self._best = _copied(self.network)
        self._batches, self._held_out = (self._make_collator(fold.dataset) for fold in (self.train, self.validation))
        self._validation_rows = self._draw_validation_rows()
        self._losses: list[Tensor] = []
        self._saved = time.monotonic()
        if checkpoint is not None and checkpoint.exists():
            self._restore(checkpoint)

    def _make_collator(self, dataset: RepertoireDataset) -> Collator:
        choice = "never" if self._changes_batches else self.config.training.device_cache
        genes = self.network.gene_names
        device = cache_device(dataset, choice, self.device, genes=genes is not None)
        return Collator(dataset, self.config.network.abundance, genes=genes, device=device)

    @property
    def _changes_batches(self) -> bool:
        """Whether batches are changed after they were drawn, which happens on the CPU."""
        return self.config.training.shuffle_negatives or self.config.training.residue_permutation > 0

    def _check(self) -> None:
        if len(self.train.labels) == 0:
            raise InputError("no training repertoire has a label")
        if len(self.validation.labels) == 0:
            raise InputError("no validation repertoire has a label; early stopping needs some")
        if self.config.training.shuffle_negatives and self.tasks[0].kind != "binary":
            raise InputError("shuffle_negatives: expected a binary first target")

    def _draw_validation_rows(self) -> list[NDArray[np.int64]]:
        """Choose the sequences that every look at the validation fold sees, (n,) positions per repertoire."""
        sizes = torch.from_numpy(self.validation.dataset.n_sequences)
        most = self.config.training.validation_sequences or int(self.validation.dataset.n_sequences.max(initial=0))
        keys = torch.from_numpy(_generator(self.seed, _VALIDATION).integers(2**63, size=len(sizes)))
        rows, _, offsets = draw_rows(sizes, most, keys)
        return np.split(rows.numpy(), offsets[1:-1].numpy())

    def fit(self, progress: Callable[[TrainingState, Tensor], None] | None = None) -> TrainingState:
        """Train until the last update or until early stopping, and leave the best weights in `network`.

        Parameters
        ----------
        progress
            Called after every update with the state and the update's loss, which is on the device: to look at it is to
            wait for the update.
        """
        started = time.monotonic() - (self.state.history[-1]["seconds"] if self.state.history else 0.0)
        self.start()
        if self.state.seeds and not self.state.history:
            self._evaluate(time.monotonic() - started)  # the start may be as good as it gets
        update = self.updates()
        while not self.state.finished:
            self.network.train()
            loss = update(self.state.update)
            self.state.update += 1
            self._losses.append(loss)
            self._evaluate_if_due(time.monotonic() - started)
            if progress is not None:
                progress(self.state, loss)
        self.network.load_state_dict(self._best)
        self.network.eval()
        self.step.average.restart()
        return self.state

    @property
    def seeds(self) -> list[Motif]:
        """The motifs that kernels started from, in the kernels' order; known once training has begun."""
        return [Motif(**{**seed, "letters": tuple(seed["letters"])}) for seed in self.state.seeds]

    def start(self) -> None:
        """Look for motifs that go with a label in the training fold, and start the network from them.

        `fit` does it before the first update; a second call changes nothing. A doubtful motif is taken if the
        validation fold confirms it. Where counts scale the residues (`abundance`), or there are no kernels, nothing is
        sought.
        """
        if self.state.started or self.state.update > 0:
            return
        may_start = self.network.embedding.starts_from_motifs and self.config.network.abundance == "none"
        if self.config.training.seeded_start > 0 and may_start:
            self._start_from_motifs()
        self.state.started = True
        self._save()

    def _start_from_motifs(self) -> None:
        seed = int(_generator(self.seed, _SEEDS).integers(2**62))
        seeds = find_seeds(self.config, self.tasks, self.train.dataset, self.train.labels, seed=seed)
        if any(motif.p_value > LEVEL for motif in seeds):
            found, (elsewhere, labels) = seeds, (self.validation.dataset, self.validation.labels)
            seeds = confirm_motifs(found, elsewhere, labels, self.tasks, seed=seed)
            refused = [motif for motif in found if motif not in seeds]
            if refused:
                names = ", ".join(motif.pattern for motif in refused)
                logger.info("not taken, since doubtful and not confirmed by the validation repertoires: %s", names)
        fraction = self.config.training.averaged_fraction
        seed_network(self.network, seeds, self._batches, self.train.labels, self.tasks, top_fraction=fraction)
        self.step.average.restart()
        self._best = _copied(self.network)
        self.state.seeds = [asdict(motif) for motif in seeds]
        logger.info("%s", describe_start(seeds, self.train.labels, self.config.network.n_kernels))

    def _evaluate_if_due(self, seconds: float) -> None:
        """Evaluate, save and stop where it is time to."""
        settings = self.config.training
        last = self.state.update >= settings.n_updates
        if self.state.update % settings.evaluate_every == 0 or last:
            self._evaluate(seconds)
            self.state.finished = last or self._has_waited()
            self._save()
        elif time.monotonic() - self._saved >= SAVE_SECONDS:
            self._save()

    def _has_waited(self) -> bool:
        """Say whether nothing better has come for long enough, or nothing better can come."""
        settings = self.config.training
        if settings.patience is None:
            return False
        waited = (self.state.update - self.state.best_update) // settings.evaluate_every
        return waited >= settings.patience or self.state.best_loss <= settings.least_gain

    def updates(self, *, capture: bool = True) -> Callable[[int], Tensor]:
        """Return the function that makes an update, by its number, and returns its loss.

        Unless `capture` is False, updates that are a fixed sequence of work on a CUDA device are recorded and replayed.
        """
        if capture and self._is_capturable():
            step = CapturedStep(self.step, self._batches, self.train.labels, self.config.training.batch_size)
            return lambda number: step(self._positions(number), self._keys(number))
        return partial(self._update, Prefetcher(self.sample, self.device))

    def _is_capturable(self) -> bool:
        if self._batches.device.type != "cuda" or self.config.training.logit_noise:
            return False
        return self.network.embedding.has_fixed_work and has_compiled_form("cuda")

    def _update(self, batches: Prefetcher, number: int) -> Tensor:
        batch = batches(number)
        targets = torch.from_numpy(self.train.labels[self._positions(number)]).to(self.device)
        noise = torch.Generator(self.device).manual_seed(int(_generator(self.seed, _NOISE, number).integers(2**62)))
        return self.step(batch, targets, noise)

    def _positions(self, number: int) -> NDArray[np.int64]:
        """Return which training repertoires update `number` sees: epochs in random order, end to end."""
        n, size = len(self.train.labels), self.config.training.batch_size
        at = np.arange(number * size, (number + 1) * size)
        orders = {int(epoch): _generator(self.seed, _EPOCHS, int(epoch)).permutation(n) for epoch in np.unique(at // n)}
        return np.array([orders[int(i // n)][i % n] for i in at], np.int64)

    def _keys(self, number: int) -> NDArray[np.int64]:
        """Return the keys of update `number`'s draws, (batch_size,)."""
        return _generator(self.seed, _SAMPLES, number).integers(2**63, size=self.config.training.batch_size)

    def sample(self, number: int) -> RepertoireBatch:
        """Return the batch of update `number`, where the sequences are read from."""
        settings, collator = self.config.training, self._batches
        positions = self._positions(number)
        at, keys = (torch.from_numpy(values).to(collator.device) for values in (positions, self._keys(number)))
        batch = collator.draw(at, settings.n_sequences or int(collator.dataset.n_sequences.max()), keys)
        rng = _generator(self.seed, _AUGMENTATION, number)
        if settings.shuffle_negatives:
            batch = shuffle_negatives(batch, self.train.labels[positions, 0] == 0, rng)
        if settings.residue_permutation:
            batch = permute_residues(batch, settings.residue_permutation, rng)
        return batch

    def validate(self) -> tuple[float, dict[str, float]]:
        """Return the loss of the averaged weights on the validation repertoires, and the monitor's numbers."""
        network = self.step.average.network.eval()
        inference = Inference(network, self._held_out, self.config.training.averaged_fraction)
        outputs = inference.outputs(rows=self._validation_rows)
        targets = torch.from_numpy(self.validation.labels).to(outputs.device)
        loss = float(multitask_loss(outputs, targets, self.tasks))
        if not np.isfinite(loss):
            raise InputError(f"the loss is {loss} after {self.state.update} updates; try a lower learning_rate")
        return loss, {} if self.monitor is None else self.monitor(outputs, targets)

    def validation_attention(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return the attention logits and weights of the sequences of `validation`'s repertoires, in its order.

        Both (n, H), of the averaged weights and the sequences that every look sees. Weights sum to 1 per repertoire and
        head; those of sequences that the top fraction leaves out are 0.
        """
        inference = Inference(self.step.average.network, self._held_out, self.config.training.averaged_fraction)
        logits = [inference.logits(i, rows) for i, rows in enumerate(self._validation_rows)]
        weights = [attention_weights(part, inference.top_fraction) for part in logits]
        return torch.cat(logits).numpy(), torch.cat(weights).numpy()

    def _evaluate(self, seconds: float) -> None:
        loss, monitored = self.validate()
        row = {
            "update": self.state.update,
            "train_loss": float(torch.stack(self._losses).mean()) if self._losses else float("nan"),
            "validation_loss": loss,
            **monitored,
            "seconds": round(seconds, 3),
        }
        self._losses = []
        if loss < self.state.best_loss - self.config.training.least_gain:
            self.state.best_loss, self.state.best_update = loss, self.state.update
            self._best = _copied(self.step.average.network)
        self.state.history.append({**row, "best_update": self.state.best_update})

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        with name_write_errors(self.checkpoint):
            self.checkpoint.parent.mkdir(exist_ok=True)
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"average.{name}": tensor for name, tensor in self.step.average.tensors().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        tensors["losses.since_evaluation"] = torch.stack(self._losses) if self._losses else torch.zeros(0)
        tensors |= {f"optimizer.{name}": tensor for name, tensor in optimizer_tensors(self.step.optimizer).items()}
        save_tensors(self.checkpoint, tensors, vars(self.state))
        self._saved = time.monotonic()

    def _restore(self, path: Path) -> None:
        tensors, state = load_tensors(path, self._expected)
        self.state = _training_state(state, len(output_names(self.tasks)), f"{path}: state")
        parts: dict[str, dict[str, Any]] = {"network": {}, "average": {}, "best": {}, "losses": {}, "optimizer": {}}
        for key, tensor in tensors.items():
            part, name = key.split(".", 1)
            # the optimiser puts its state where it belongs
            parts[part][name] = tensor if part == "optimizer" else tensor.to(self.device)
        self.network.load_state_dict(parts["network"])
        self.step.average.restore(parts["average"])
        self._best = parts["best"]
        self._losses = list(parts["losses"]["since_evaluation"])
        restore_optimizer(self.step.optimizer, parts["optimizer"])
        logger.info("continuing after update %d", self.state.update)

    def _expected(self, _: object, names: Collection[str]) -> dict[str, Tensor]:
        """Return tensors like those of a checkpoint; an optimiser that has made no update has no state."""
        network = self.network.state_dict()
        expected = {f"{part}.{name}": tensor for part in ("network", "best") for name, tensor in network.items()}
        expected |= {f"average.{name}": tensor for name, tensor in self.step.average.tensors().items()}
        expected["losses.since_evaluation"] = torch.zeros(0)
        for number, parameter in enumerate(self.network.parameters()):
            if f"optimizer.{number}.step" in names:
                like = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
                expected |= {f"optimizer.{number}.{name}": tensor for name, tensor in like.items()}
        return expected


def _training_state(body: Any, n_outputs: int, where: str) -> TrainingState:
    """Return the state of a checkpoint, if it is one of a network with so many outputs."""
    state: TrainingState = validate(body, TrainingState, where)
    state.history = list(body.get("history", []))  # as it was written, updates as whole numbers
    for row in state.history:
        for name in ("update", "seconds"):
            if not math.isfinite(row.get(name, math.nan)):
                raise InputError(f"{where}: history: expected a number {name!r} in each row, found {abbreviate(row)}")
    for motif in (validate(seed, Motif, f"{where}: seeds") for seed in state.seeds):
        if not (0 <= motif.output < n_outputs and all(-1 <= letter < N_AMINO_ACIDS for letter in motif.letters)):
            raise InputError(f"{where}: seeds: expected letters and an output that exist, found {abbreviate(motif)}")
    return state


def _copied(network: DeepRC) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


def _generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
