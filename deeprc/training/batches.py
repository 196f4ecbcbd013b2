"""The batches from which a training learns: repertoires, some of their sequences, and augmentation.

The augmentations, regularisers of the paper, change the sequences of a batch (paper lines 8655-8675).

Letters: B repertoires of an update, R residues of its sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from deeprc import ranks
from deeprc.config import TrainingConfig
from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.training.draws import Draws, Purpose, make_generator

__all__ = ["TrainingBatches", "is_augmented", "permute_residues", "shuffle_negatives"]

_UPDATES_AHEAD = 2  # number of later updates whose sequences are already read from the disk


def is_augmented(settings: TrainingConfig) -> bool:
    """Return whether batches are changed after they were drawn, which needs the CPU."""
    return settings.shuffle_negatives or settings.residue_permutation > 0


@dataclass(frozen=True)
class TrainingBatches:
    """The batch of each update, which depends on the index of the update alone.

    Attributes
    ----------
    collator
        Collator of the training repertoires.
    labels
        Labels of the training repertoires, (number of repertoires, number of tasks).
    settings
        Settings of the training.
    draws
        Random choices of the updates.
    """

    collator: Collator
    labels: NDArray[np.float64]
    settings: TrainingConfig
    draws: Draws

    def draw(self, update: int) -> RepertoireBatch:
        """Return this rank's share of the batch of an update, on the device from which sequences are read.

        Augmentation may exchange sequences between repertoires of a batch. So with it, every rank draws all of them.
        """
        settings, collator = self.settings, self.collator
        repertoires, keys = self.draws.choose_repertoires(update), self.draws.draw_sampling_keys(update)
        rank_share = ranks.take_share(len(repertoires))
        drawn_slice = slice(None) if is_augmented(settings) else rank_share
        collator.prefetch(self.draws.choose_repertoires(update + _UPDATES_AHEAD)[drawn_slice])
        batch = collator.draw(
            torch.from_numpy(repertoires[drawn_slice]).to(collator.device),
            settings.n_sequences or int(collator.dataset.n_sequences.max()),
            torch.from_numpy(keys[drawn_slice]).to(collator.device),
        )
        if not is_augmented(settings):
            return batch
        rng = make_generator(self.draws.seed, Purpose.AUGMENTATION, update)
        if settings.shuffle_negatives:
            batch = shuffle_negatives(batch, self.labels[repertoires, 0] == 0, rng)
        if settings.residue_permutation:
            batch = permute_residues(batch, settings.residue_permutation, rng)
        return batch.take_repertoires(rank_share)


def permute_residues(batch: RepertoireBatch, share: float, rng: np.random.Generator) -> RepertoireBatch:
    """Permute a random share of the residues within each sequence.

    Every residue is chosen with probability `share`; the chosen residues of a sequence exchange their positions.
    """
    sequences = batch.sequences.compact()
    residues = sequences.residues.numpy().copy()
    segments = np.repeat(np.arange(sequences.n_sequences), sequences.lengths.numpy())  # (R,)
    chosen = np.flatnonzero(rng.random(len(residues)) < share)
    order = np.lexsort((rng.random(len(chosen)), segments[chosen]))
    residues[chosen] = residues[chosen[order]]
    return replace(batch, sequences=sequences._replace(residues=torch.from_numpy(residues)))


def shuffle_negatives(batch: RepertoireBatch, negative: NDArray[np.bool_], rng: np.random.Generator) -> RepertoireBatch:
    """Exchange sequences at random between negative repertoires; each repertoire keeps its size.

    Parameters
    ----------
    batch
        Batch of B repertoires.
    negative
        Whether each repertoire belongs to the negative class, (B,).
    rng
        Random generator of the permutation.
    """
    sizes = batch.offsets.diff().numpy()
    rows = np.flatnonzero(np.repeat(negative, sizes))
    order = np.arange(batch.sequences.n_sequences)
    order[rows] = rng.permutation(rows)
    return batch.take(torch.from_numpy(order), batch.offsets)
