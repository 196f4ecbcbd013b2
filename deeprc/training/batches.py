"""The batches from which a training learns: repertoires, some of their sequences, and augmentation.

Letters: B repertoires of an update.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from deeprc import ranks
from deeprc.config import TrainingConfig
from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.training.augmentation import permute_residues, shuffle_negatives
from deeprc.training.draws import Draws, Purpose, make_generator

__all__ = ["TrainingBatches", "is_augmented"]

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
