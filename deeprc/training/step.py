"""One update of the network, with prefetched batches or as a CUDA graph.

`TrainingStep` is the update: forward, backward, optimiser. If the sequences are on a CUDA device, `CapturedStep`
records sampling and update once in a CUDA graph and replays it. If they are not, `Prefetcher` makes the next batch
while the CUDA device computes this update. Several ranks (`deeprc.ranks`) make an update together: each draws its share
of the repertoires, and their gradients are summed. Letters: B repertoires of an update.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc import ranks
from deeprc.config import TrainingConfig
from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.nn.network import DeepRC
from deeprc.optimizers import Adam
from deeprc.outputs import compute_multitask_loss, count_known
from deeprc.tasks import Task
from deeprc.training.averaging import AveragedNetwork

__all__ = ["CapturedStep", "Prefetcher", "TrainingStep"]

_logger = logging.getLogger(__name__)

_EAGER_UPDATES = 3  # first updates, which a graph must not contain, because CUDA libraries initialise themselves


class TrainingStep:
    """A function that makes one update of a network from a batch.

    Parameters
    ----------
    network
        Network whose weights are updated.
    tasks
        Tasks of the labels.
    settings
        Settings of the training: optimiser, penalties and attention-based subsampling.
    """

    def __init__(self, network: DeepRC, tasks: Sequence[Task], settings: TrainingConfig) -> None:
        self.network, self.tasks, self.settings = network, tuple(tasks), settings
        kind = network.pooling.queries.device.type
        self.optimizer = Adam(
            network.parameters(),
            lr=settings.learning_rate,
            eps=settings.adam_epsilon,
            fused=kind in ("cpu", "cuda"),
            capturable=kind == "cuda",
        )
        self.average = AveragedNetwork(network, settings.weight_average)

    def __call__(self, batch: RepertoireBatch, labels: Tensor, generators: Sequence[torch.Generator] = ()) -> Tensor:
        """Make one update and return its loss.

        Parameters
        ----------
        batch
            Repertoires of this rank, see `deeprc.ranks`.
        labels
            Labels of the repertoires of all ranks, (B, number of tasks).
        generators
            Random generator of the noise of each repertoire of the batch.
        """
        outputs = self.network(
            batch,
            top_fraction=self.settings.top_fraction,
            top_number=self.settings.top_number,
            unattended=self.settings.unattended,
            logit_noise=self.settings.logit_noise,
            generators=generators,
        )
        own_labels = labels[ranks.take_share(len(labels))]
        loss = compute_multitask_loss(outputs, own_labels, self.tasks, n_known=count_known(labels))
        self.optimizer.zero_grad()
        # Gradients are summed over ranks, so each rank adds its part of the penalty.
        own_penalty = self._compute_penalty() / ranks.count_ranks()
        (loss + own_penalty).backward()
        loss = loss.detach()
        gradients = [weight.grad for weight in self.network.parameters() if weight.grad is not None]
        ranks.sum_tensors([*gradients, loss])
        self.optimizer.step()
        self.average.update()
        return loss

    def _compute_penalty(self) -> Tensor:
        """Return the l1 and l2 penalty of all weights, a scalar."""
        penalty = torch.zeros((), device=self.network.pooling.queries.device)
        if self.settings.l1 or self.settings.l2:
            for weight in self.network.parameters():
                penalty = penalty + self.settings.l1 * weight.abs().sum() + self.settings.l2 * weight.square().sum()
        return penalty


class CapturedStep:
    """A function that samples and updates on the device, recorded in a CUDA graph.

    The host only sends the indices of the repertoires and the keys of their draws. The first updates run without a
    graph, then the graph is recorded. On the CPU nothing is recorded, and the results are the same.

    Parameters
    ----------
    step
        Update that is recorded.
    collator
        Collator that reads the sequences on the device.
    labels
        Labels of all repertoires of the collator's dataset, (number of repertoires, number of tasks).
    batch_size
        Number of repertoires of an update, B.
    """

    def __init__(self, step: TrainingStep, collator: Collator, labels: NDArray[np.float64], batch_size: int) -> None:
        self._step, self._collator = step, collator
        self._labels = torch.from_numpy(labels).to(collator.device)
        self._inputs = torch.zeros((2, batch_size), dtype=torch.int64, device=collator.device)  # repertoires and keys
        self._max_rows = int(collator.dataset.n_sequences.max())
        if step.settings.n_sequences is not None:
            self._max_rows = min(step.settings.n_sequences, self._max_rows)
        self._total = batch_size * self._max_rows  # sequences of every batch: those beyond the drawn ones only fill it
        self._graph: torch.cuda.CUDAGraph | None = None
        self._loss = torch.zeros(())
        self._n_eager = 0  # number of updates on a CUDA device without a graph
        self._recording_failed = False  # if so, it is never tried again

    def __call__(self, repertoires: NDArray[np.int64], keys: NDArray[np.int64]) -> Tensor:
        """Make one update with repertoires, (B,), and the keys of their draws, (B,); return its loss."""
        inputs = torch.from_numpy(np.stack([repertoires, keys]))
        if self._collator.device.type != "cuda":
            self._inputs.copy_(inputs)
            return self._update()
        with torch.cuda.device(self._collator.device):  # the recording uses streams of this device
            return self._update_on_device(inputs)

    def _update_on_device(self, inputs: Tensor) -> Tensor:
        """Make one update from the inputs, by the recorded graph as soon as there is one; return its loss."""
        self._inputs.copy_(inputs.pin_memory(), non_blocking=True)
        if self._graph is None and self._n_eager >= _EAGER_UPDATES and not self._recording_failed:
            self._capture()
        if self._graph is None:
            self._n_eager += 1
            return self._update_on_side_stream()
        self._graph.replay()
        return self._loss.clone()  # a copy, because the next replay overwrites it

    def _update(self) -> Tensor:
        repertoires, keys = self._inputs
        batch = self._collator.draw(repertoires, self._max_rows, keys, total=self._total)
        return self._step(batch, self._labels[repertoires])

    def _update_on_side_stream(self) -> Tensor:
        """Update on another stream than the default one, which is required for the updates before a recording."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self._update()
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _capture(self) -> None:
        """Record an update in a CUDA graph; if this fails, log it and go on without a graph."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._step.optimizer.zero_grad()  # so that the graph allocates its own gradients
        try:
            with torch.cuda.graph(graph):
                self._loss = self._update()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            cause = error.__context__ or error  # leaving the recording also fails, and hides the first error
            _logger.warning("updates are not recorded in a CUDA graph and take longer: %s", str(cause).splitlines()[0])
            torch.cuda.set_stream(stream)
            self._step.optimizer.zero_grad()
            self._recording_failed = True
        else:
            self._graph = graph


class Prefetcher:
    """A maker of batches: it makes the next batch and copies it to the device while the device computes an update.

    Parameters
    ----------
    make
        Function that returns the batch of an update from the index of the update alone.
    device
        Device of the batches. On the CPU no batch is made in advance, because the update needs all cores.
    """

    def __init__(self, make: Callable[[int], RepertoireBatch], device: torch.device) -> None:
        self._make, self._device = make, device
        self._worker = ThreadPoolExecutor(1) if device.type == "cuda" else None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._ahead: dict[int, Future[RepertoireBatch]] = {}

    def __call__(self, update: int) -> RepertoireBatch:
        """Return the batch of an update, by its index, and start to make the next one."""
        if self._worker is None:
            return self._make(update).to(self._device)
        waiting = self._ahead.pop(update, None) or self._worker.submit(self._load_on_side_stream, update)
        batch = waiting.result()
        self._ahead = {update + 1: self._worker.submit(self._load_on_side_stream, update + 1)}
        for tensor in batch.tensors():
            tensor.record_stream(torch.cuda.current_stream(self._device))
        return batch

    def _load_on_side_stream(self, update: int) -> RepertoireBatch:
        assert self._stream is not None
        with torch.cuda.stream(self._stream):
            batch = self._make(update).to(self._device)
        self._stream.synchronize()  # the worker thread waits, not the main thread
        return batch
