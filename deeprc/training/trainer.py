"""The training loop: sampled updates, early stopping on the validation loss, checkpoints.

A training has four phases:

1. `__init__` builds the network, or restores it from a checkpoint.
2. `initialise_network` learns the start: branches and motifs.
3. The loop in `fit` makes updates and evaluates them.
4. `_choose_final_weights` decides which weights are kept.

A training may be interrupted between any two updates. What later phases need is in `TrainingState` and in the tensors
of `collect_tensors`. Every random choice of an update depends on the seed and on its index alone. So a resumed run
makes the same choices. Several processes (ranks) may train together. All make the same calls in the same order, and
only rank 0 writes files.

Letters: B repertoires, T outputs, H heads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc import ranks
from deeprc.branches.fit import attach_described_branches, describe_branches
from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.files import name_write_errors
from deeprc.labels import validate_sequences
from deeprc.nn.batch import Collator, choose_cache_device
from deeprc.nn.branches import BranchScores
from deeprc.nn.genes import GeneNames
from deeprc.nn.inference import Inference
from deeprc.nn.motif_convolution import has_compiled_form
from deeprc.nn.network import DeepRC
from deeprc.nn.pooled_values import PooledValueCache
from deeprc.progress import open_step
from deeprc.tasks import Task
from deeprc.training.batches import TrainingBatches, is_augmented
from deeprc.training.building import build_network
from deeprc.training.checkpoint import load_tensors, save_tensors
from deeprc.training.checkpoint_tensors import collect_tensors, make_expected_tensors, restore_tensors
from deeprc.training.draws import Draws
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.model import TrainedModel
from deeprc.training.network_start import fit_branches_and_find_motifs, start_network
from deeprc.training.start_choice import choose_start_motifs
from deeprc.training.state import TrainingState, parse_state
from deeprc.training.step import CapturedStep, Prefetcher, TrainingStep
from deeprc.training.validation import Evaluator, Monitor
from deeprc.training.weight_choice import StateDict, WeightChoice, copy_state

__all__ = ["SAVE_SECONDS", "Trainer"]

_logger = logging.getLogger(__name__)

SAVE_SECONDS = 60.0
"""Time after which a checkpoint is written between evaluations, in seconds; each evaluation writes one, too."""


class Trainer:
    """The training of a DeepRC network on some repertoires, with early stopping on others.

    Repertoires are ordered by their content. So neither the order in which they are given nor repertoires without a
    label change the result, to the last bit.

    A training has up to four sets of weights:

    - those of `network`, which the updates change;
    - their moving average, `step.average`, which is evaluated;
    - the best averages of all evaluations, `_best_weights`;
    - those of the start, `_start_weights`, if they are compared with the best ones at the end, see `WeightChoice`.

    Parameters
    ----------
    config
        Settings of network and training.
    tasks
        Tasks of the labels.
    train, validation
        Training and validation repertoires; those without any label are left out.
    seed
        Seed of all random choices.
    device
        Device of the network.
    monitor
        Function of the validation outputs, (B, T), and labels that returns additional numbers for the history.
    checkpoint
        Path of the checkpoint file. If it exists, training continues from it. If it is None, no checkpoint is written.
    """

    def __init__(
        self,
        config: Config,
        tasks: Sequence[Task],
        train: LabelledRepertoires,
        validation: LabelledRepertoires,
        *,
        seed: int,
        device: torch.device,
        monitor: Monitor | None = None,
        checkpoint: Path | None = None,
    ) -> None:
        self.config, self.tasks, self.seed, self.device = config, tuple(tasks), seed, device
        self.train, self.validation = train.take_labelled_in_order(), validation.take_labelled_in_order()
        self._check_folds()
        self.checkpoint = checkpoint
        self.draws = Draws(seed, len(self.train.labels), config.training.batch_size)
        resumes = checkpoint is not None and ranks.compute_once(checkpoint.exists)
        self.network = self._make_network(load_weights=not resumes)  # a checkpoint has the loaded weights, too
        self.step = TrainingStep(self.network, tasks, config.training)
        self.state = TrainingState()
        self._best_weights = copy_state(self.network)
        self._start_weights: StateDict = {}  # empty if they are not compared again
        self._train_collator = self._make_collator(self.train.dataset)
        self.batches = TrainingBatches(self._train_collator, self.train.labels, config.training, self.draws)
        self._pooled_value_cache = PooledValueCache()
        self._evaluator = Evaluator(
            self.validation,
            self._make_collator(self.validation.dataset),
            config.training,
            self.tasks,
            seed=seed,
            monitor=monitor,
            pooled_value_cache=self._pooled_value_cache,
        )
        self._recent_losses: list[Tensor] = []  # of the updates since the last evaluation
        self._start_time: float | None = None  # as if the training had never been interrupted
        self._last_save_time = time.monotonic()
        self._has_final_weights = False  # whether `fit` has put the best weights into the network
        if checkpoint is not None and resumes:
            self._restore_checkpoint(checkpoint)

    def _check_folds(self) -> None:
        """Raise InputError if the repertoires, or settings beside them, do not allow a training."""
        if len(self.train.labels) == 0:
            raise InputError("no training repertoire has a label")
        validate_sequences(self.train.dataset)
        if len(self.validation.labels) == 0:
            raise InputError("no validation repertoire has a label; early stopping needs some")
        if self.config.training.batch_size < ranks.count_ranks():
            raise InputError(
                f"batch_size={self.config.training.batch_size}: expected at least {ranks.count_ranks()}, because each "
                "process takes a share of the repertoires of an update"
            )
        if self.config.training.shuffle_negatives and self.tasks[0].kind != "binary":
            raise InputError("shuffle_negatives: expected a binary first target")

    def _make_network(self, *, load_weights: bool = True) -> DeepRC:
        """Return the network with its initial weights, those of `embedding_weights` among them."""
        gene_names = GeneNames.of(self.train.dataset) if self.config.network.gene_units else None
        network = build_network(self.config, self.tasks, seed=self.seed, device=self.device, gene_names=gene_names)
        if load_weights and self.config.network.embedding_weights is not None:
            network.embedding.load_weights(Path(self.config.network.embedding_weights))
        return network

    def _make_collator(self, dataset: RepertoireDataset) -> Collator:
        choice = "never" if is_augmented(self.config.training) else self.config.training.device_cache
        gene_names = self.network.gene_names
        device = choose_cache_device(dataset, choice, self.device, with_genes=gene_names is not None)
        return Collator(dataset, self.config.network.abundance, gene_names=gene_names, device=device)

    def fit(self, progress: Callable[[TrainingState, Tensor], None] | None = None) -> TrainingState:
        """Train until the last update or until early stopping, and leave the best weights in `network`.

        A second call changes nothing.

        Parameters
        ----------
        progress
            Function that is called after every update with the state and the loss of the update. The loss is on the
            device, so to read it is to wait for the update.
        """
        if self._has_final_weights:
            return self.state
        self.initialise_network()
        if self._has_learned_start and not self.state.history:
            self._evaluate_start()
            self._restart_without_gap_weights()
        update = self.make_update_function()
        with open_step("training", self.config.training.n_updates, done=self.state.update) as shown_step:
            while not self.state.finished:
                self.network.train()
                loss = update(self.state.update)
                self.state.update += 1
                self._recent_losses.append(loss)
                self._evaluate_if_due()
                shown_step.note = self.state.describe_last_evaluation()
                shown_step.advance()
                if progress is not None:
                    progress(self.state, loss)
        self._choose_final_weights()
        self._update_seconds()
        return self.state

    def initialise_network(self) -> None:
        """Learn branches and motifs, and start the network from them; a second call changes nothing.

        See `fit_branches_and_find_motifs` and `choose_start_motifs`. `fit` calls this before the first update.
        """
        if self._start_time is None:
            self._start_time = time.monotonic() - self.state.seconds
        if self.state.started or self.state.update > 0:  # checkpoints of earlier versions lack `started`
            return
        motifs = fit_branches_and_find_motifs(
            self.network, self.config, self.tasks, self.train, self.validation, seed=self.seed
        )
        self._use_branches()
        motifs = choose_start_motifs(self._make_training_inference(), motifs, self.train.labels, self._evaluator)
        self.state.start_motifs = [asdict(motif) for motif in motifs]
        self._start_from_motifs(motifs)
        self._best_weights = copy_state(self.network)
        self.state.started = True
        self._save_checkpoint()

    @property
    def start_motifs(self) -> list[EnrichedMotif]:
        """Motifs from which kernels started, in the order of the kernels; empty before training has begun."""
        return [EnrichedMotif.from_json(motif) for motif in self.state.start_motifs]

    def _start_from_motifs(self, motifs: Sequence[EnrichedMotif]) -> None:
        """Start kernels, attention and outputs from motifs."""
        start_network(self._make_training_inference(), motifs, self.train.labels, self.tasks)
        self.step.average.restart()

    def _use_branches(self) -> None:
        """Give updates and evaluations the scores of the attached branches; updates then also learn their gains."""
        if self.network.branches is None:
            return
        self.state.branches = describe_branches(self.network.branches)
        self.step = TrainingStep(self.network, self.tasks, self.config.training)
        self._train_collator.branches = BranchScores(self.network.branches, self.train.dataset)
        self._evaluator.attach_branches(self.network.branches)

    @property
    def _has_learned_start(self) -> bool:
        """Whether the network starts from branches or motifs, not from random weights alone."""
        return bool(self.state.start_motifs or self.state.branches)

    def _evaluate_start(self) -> None:
        """Evaluate the network before its first update, because the start may be better than every update.

        If evaluations read samples, which are misleading about the start (see `Evaluator`), `best_loss` compares only
        updates with each other. `WeightChoice` compares the best update with the start.
        """
        self._evaluate()
        if self._evaluator.reads_samples or self._evaluator.has_few_donors:
            self._start_weights = copy_state(self.network)
        if self._evaluator.reads_samples:
            self.state.best_loss = float("inf")

    def _restart_without_gap_weights(self) -> None:
        """Replace a start with gap weights by one without them, since updates after it ended worse on one cohort.

        The start with gap weights has been evaluated, and stays a candidate for the weights that are kept.
        """
        if not any(any(motif.gap_weights) for motif in self.start_motifs):
            return
        initial = self._make_network().state_dict()  # without branches, so those of the network stay
        self.network.load_state_dict({**self.network.state_dict(), **initial})
        self._start_from_motifs([replace(motif, gap_weights=()) for motif in self.start_motifs])
        self._save_checkpoint()

    def make_update_function(self, *, capture: bool = True) -> Callable[[int], Tensor]:
        """Return a function that makes the update with an index and returns its loss.

        If `capture` is True, and every update does the same work on a CUDA device, the update is recorded and replayed.
        """
        if capture and self._is_capturable():
            step = CapturedStep(self.step, self._train_collator, self.train.labels, self.config.training.batch_size)
            return lambda update: step(self.draws.choose_repertoires(update), self.draws.draw_sampling_keys(update))
        return partial(self._make_update, Prefetcher(self.batches.draw, self.device))

    def _is_capturable(self) -> bool:
        if self._train_collator.device.type != "cuda" or self.config.training.logit_noise or ranks.are_joined():
            return False  # it is not tested whether communication of ranks can be recorded
        return self.network.embedding.has_fixed_work and has_compiled_form("cuda")

    def _make_update(self, batches: Prefetcher, update: int) -> Tensor:
        batch = batches(update)
        labels = torch.from_numpy(self.train.labels[self.draws.choose_repertoires(update)]).to(self.device)
        noise: Sequence[torch.Generator] = ()
        if self.config.training.logit_noise:
            noise = self.draws.make_noise_generators(update, self.device)[ranks.take_share(len(labels))]
        return self.step(batch, labels, noise)

    def _evaluate_if_due(self) -> None:
        """Evaluate, save and decide whether to stop, if an evaluation or a checkpoint is due."""
        settings = self.config.training
        is_last = self.state.update >= settings.n_updates
        if self.state.update % settings.evaluate_every == 0 or is_last:
            self._evaluate()
            self.state.finished = is_last or self._stops_early()
            self._save_checkpoint()
        elif time.monotonic() - self._last_save_time >= SAVE_SECONDS:
            self._save_checkpoint()

    def _stops_early(self) -> bool:
        """Return whether the loss has not improved for `patience` evaluations, or cannot improve by `least_gain`."""
        settings = self.config.training
        if settings.patience is None:
            return False
        n_evaluations = (self.state.update - self.state.best_update) // settings.evaluate_every  # since the best one
        return n_evaluations >= settings.patience or self.state.best_loss <= settings.least_gain

    def _evaluate(self) -> None:
        """Compute the validation loss of the averaged weights, add it to the history, and keep the best weights."""
        loss, monitored = self._evaluator.compute_sample_loss(self.step.average.network)
        if not np.isfinite(loss):
            raise InputError(f"the loss is {loss} after {self.state.update} updates; try a lower learning_rate")
        row = {
            "update": self.state.update,
            "train_loss": float(torch.stack(self._recent_losses).mean()) if self._recent_losses else float("nan"),
            "validation_loss": loss,
            **monitored,
            "seconds": self._update_seconds(),
        }
        self._recent_losses = []
        if loss < self.state.best_loss - self.config.training.least_gain:
            self.state.best_loss, self.state.best_update = loss, self.state.update
            self._best_weights = copy_state(self.step.average.network)
        self.state.history.append({**row, "best_update": self.state.best_update})

    def _update_seconds(self) -> float:
        assert self._start_time is not None
        self.state.seconds = round(time.monotonic() - self._start_time, 3)
        return self.state.seconds

    def _choose_final_weights(self) -> None:
        """Leave the best weights in the network."""
        choice = WeightChoice(
            self._make_training_inference(),
            self.train.labels,
            self._evaluator,
            self.state,
            update_weights=self._best_weights,
            start_weights=self._start_weights,
        )
        self._best_weights = choice.choose()
        self.network.load_state_dict(self._best_weights)
        self.network.eval()
        self.step.average.restart()
        self._has_final_weights = True

    def make_model(self) -> TrainedModel:
        """Return the network as a model that knows what this training has computed about whole repertoires."""
        return TrainedModel(self.tasks, self.network, self.config, pooled_value_cache=self._pooled_value_cache)

    def _make_training_inference(self) -> Inference:
        """Return the network with the training repertoires, of which it reads all sequences."""
        fraction = self.config.training.averaged_fraction
        return Inference(self.network, self._train_collator, fraction, pooled_value_cache=self._pooled_value_cache)

    def compute_validation_attention(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return logits and weights of attention of the averaged weights, see `Evaluator.compute_attention`."""
        return self._evaluator.compute_attention(self.step.average.network)

    def _save_checkpoint(self) -> None:
        """Write the state of the training on rank 0, if there is a path of a checkpoint."""
        if self.checkpoint is None or not ranks.is_main():
            return
        self._update_seconds()
        with name_write_errors(self.checkpoint):
            self.checkpoint.parent.mkdir(exist_ok=True)
        tensors = collect_tensors(self.network, self.step, self._best_weights, self._start_weights, self._recent_losses)
        save_tensors(self.checkpoint, tensors, vars(self.state))
        self._last_save_time = time.monotonic()

    def _restore_checkpoint(self, path: Path) -> None:
        """Continue from a checkpoint, which rank 0 alone reads."""

        def make_expected(state: dict[str, Any], names: Collection[str]) -> dict[str, Tensor]:
            self._attach_branches(path, state)  # a checkpoint has tensors for them
            return make_expected_tensors(self.network, self.step, names)

        tensors, state = ranks.compute_once(lambda: load_tensors(path, make_expected))
        self._attach_branches(path, state)  # on the other ranks
        self.state = parse_state(state, self.network.n_outputs, f"{path}: state")
        restored = restore_tensors(tensors, self.network, self.step, self.device, str(path))
        self._best_weights, self._start_weights, self._recent_losses = restored
        if self._start_weights and not any(row["update"] == 0 for row in self.state.history):
            raise InputError(f"{path}: state: history: expected a row of update 0, whose weights it has")
        _logger.info("continuing after update %d", self.state.update)

    def _attach_branches(self, path: Path, state: dict[str, Any]) -> None:
        attach_described_branches(self.network, self.tasks, state.get("branches", {}), f"{path}: state")
        self._use_branches()
