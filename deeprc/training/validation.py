"""Losses of a network on the validation repertoires: on a sample of their sequences, or on all of them.

Letters: B repertoires, N sequences, H heads, T outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc import ranks
from deeprc.config import TrainingConfig
from deeprc.nn.batch import Collator
from deeprc.nn.branches import Branches, BranchScores
from deeprc.nn.inference import Inference, compute_attention_weights
from deeprc.nn.network import DeepRC
from deeprc.nn.pooled_values import PooledValueCache
from deeprc.nn.sampling import draw_rows
from deeprc.outputs import compute_multitask_loss, compute_repertoire_losses
from deeprc.progress import track
from deeprc.tasks import Task
from deeprc.training.draws import Purpose, make_generator
from deeprc.training.labelled_repertoires import LabelledRepertoires

__all__ = ["FEW_DONORS", "Evaluator", "Monitor"]

Monitor = Callable[[Tensor, Tensor], dict[str, float]]
"""Function of the validation outputs, (B, T), and labels that returns additional numbers for the history."""

FEW_DONORS = 50
"""With fewer validation donors, the lowest of many losses is often lower than that of the start by chance."""


class Evaluator:
    """A function of networks: their losses on the validation repertoires.

    `compute_sample_loss` reads a sample of each repertoire's sequences, in every evaluation the same one. This is
    enough to compare updates with each other, because updates learn from samples, too.

    `compute_whole_loss` reads all sequences. It is needed for a network that was fitted to whole repertoires, such as
    the start from motifs. For example, a motif is in 3% of the sequences of each repertoire. Then its frequency in a
    sample of 20,000 sequences has an error of 4%, and a signal of 1% is lost.

    Parameters
    ----------
    repertoires
        Validation repertoires, with at least one label in each repertoire.
    collator
        Maker of its batches.
    settings, tasks
        Settings of the training, and tasks of the labels.
    seed
        Seed of the sample.
    monitor
        Function of outputs and labels that returns additional numbers.
    pooled_value_cache
        Averages of whole repertoires that are not computed again; None keeps none.

    Attributes
    ----------
    settings, tasks
        The parameters.
    reads_samples
        Whether an evaluation leaves out sequences.
    n_donors
        Number of donors of the repertoires.
    """

    def __init__(
        self,
        repertoires: LabelledRepertoires,
        collator: Collator,
        settings: TrainingConfig,
        tasks: Sequence[Task],
        *,
        seed: int,
        monitor: Monitor | None = None,
        pooled_value_cache: PooledValueCache | None = None,
    ) -> None:
        self.repertoires, self.collator = repertoires, collator
        self.settings, self.tasks, self.monitor = settings, tasks, monitor
        self._pooled_value_cache, self._top_fraction = pooled_value_cache, settings.averaged_fraction
        sizes = repertoires.dataset.n_sequences
        max_rows = settings.validation_sequences or int(sizes.max(initial=0))
        keys = torch.from_numpy(make_generator(seed, Purpose.VALIDATION).integers(2**63, size=len(sizes)))
        rows, _, offsets = draw_rows(torch.from_numpy(sizes), max_rows, keys)
        self._rows = np.split(rows.numpy(), offsets[1:-1].numpy())
        self.reads_samples = bool((sizes > max_rows).any())
        self.n_donors = len(np.unique(repertoires.index_donors()))

    @property
    def has_few_donors(self) -> bool:
        """Whether the repertoires are of fewer than 50 donors."""
        return self.n_donors < FEW_DONORS

    def attach_branches(self, branches: Branches) -> None:
        """Let branches add to the outputs of networks that have them."""
        self.collator.branches = BranchScores(branches, self.repertoires.dataset)

    def compute_sample_loss(self, network: DeepRC) -> tuple[float, dict[str, float]]:
        """Return the loss of a network on the sample, and the numbers of the monitor.

        The ranks divide the repertoires among themselves. Rank 0 computes the loss and the numbers for all, so that all
        ranks decide alike. If the loss is not finite, there are no other numbers.
        """
        return self._compute_loss_and_metrics(self._compute_sample_outputs(network))

    def compute_whole_loss(self, network: DeepRC) -> tuple[float, dict[str, float]]:
        """Return the loss of a network on whole repertoires, and the numbers of the monitor, as of the sample."""
        return self._compute_loss_and_metrics(self._compute_whole_outputs(network))

    def compute_repertoire_losses(self, network: DeepRC) -> NDArray[np.float64]:
        """Return the loss of a network on each whole repertoire, (B,); the sum is that of `compute_whole_loss`."""
        outputs, labels = self._compute_whole_outputs(network), torch.from_numpy(self.repertoires.labels)
        return ranks.compute_once(
            lambda: compute_repertoire_losses(torch.stack([*outputs]), labels, self.tasks).double().numpy()
        )

    def _compute_sample_outputs(self, network: DeepRC) -> Sequence[Tensor]:
        """Return the outputs of the sample of each repertoire, (T,) each, which the ranks divide among themselves."""
        share = ranks.take_share(len(self.repertoires.labels))
        positions, rows = range(share.start, share.stop), self._rows[share]
        return ranks.gather([*self._make_inference(network).iterate_outputs(positions, rows=rows)])

    def _compute_whole_outputs(self, network: DeepRC) -> Sequence[Tensor]:
        """Return the outputs of each whole repertoire, (T,) each, which the ranks divide among themselves."""
        share = ranks.take_share(len(self.repertoires.labels))
        positions = range(share.start, share.stop)
        outputs = self._make_inference(network).iterate_outputs(positions)
        return ranks.gather([*track(outputs, "whole validation repertoires", len(positions))])

    def _make_inference(self, network: DeepRC) -> Inference:
        return Inference(network.eval(), self.collator, self._top_fraction, pooled_value_cache=self._pooled_value_cache)

    def _compute_loss_and_metrics(self, outputs: Sequence[Tensor]) -> tuple[float, dict[str, float]]:
        """Return the loss and the numbers of the monitor, computed on rank 0 from all outputs, (T,) each."""

        def compute() -> tuple[float, dict[str, float]]:
            stacked, labels = torch.stack([*outputs]), torch.from_numpy(self.repertoires.labels)
            loss = float(compute_multitask_loss(stacked, labels, self.tasks))
            return loss, {} if self.monitor is None or not np.isfinite(loss) else self.monitor(stacked, labels)

        return ranks.compute_once(compute)

    def compute_attention(self, network: DeepRC) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return the attention logits and attention weights of the sequences of the sample, (N, H) each.

        They are listed repertoire by repertoire. The weights of each repertoire and head sum to 1; a sequence beyond
        the top fraction has weight 0.
        """
        inference = Inference(network, self.collator, self._top_fraction)
        logits = [inference.compute_logits(i, rows) for i, rows in enumerate(self._rows)]
        weights = [compute_attention_weights(part, inference.top_fraction) for part in logits]
        return torch.cat(logits).numpy(), torch.cat(weights).numpy()
