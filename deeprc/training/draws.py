"""Random numbers of a training, from generators that are seeded by seed, purpose and index of the update.

So an interrupted and resumed training makes the same choices as an uninterrupted one, and several processes that train
together need not exchange their draws. Letters: B repertoires of an update.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Draws", "Purpose", "make_generator"]


class Purpose(IntEnum):
    """Purpose of a random choice."""

    EPOCHS = 0
    SAMPLES = 1
    NOISE = 2
    START = 3
    VALIDATION = 4
    AUGMENTATION = 5
    MOTIFS = 6


def make_generator(seed: int, purpose: Purpose, *index: int) -> np.random.Generator:
    """Return the random generator for a purpose and an index, such as that of the update."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, int(purpose), *index))))


@dataclass(frozen=True)
class Draws:
    """The random choices of each update.

    Attributes
    ----------
    seed
        Seed of all random choices.
    n_repertoires
        Number of training repertoires.
    batch_size
        Number of repertoires of an update, B.
    """

    seed: int
    n_repertoires: int
    batch_size: int

    def choose_repertoires(self, update: int) -> NDArray[np.int64]:
        """Return the indices of the repertoires of an update, (B,); every epoch has its own random order.

        With 5 repertoires and B = 2, update 2 has the last repertoire of the first epoch and the first of the second.
        """
        n = self.n_repertoires
        places = np.arange(update * self.batch_size, (update + 1) * self.batch_size)  # in all epochs end to end
        epochs = {int(epoch) for epoch in places // n}
        orders = {epoch: make_generator(self.seed, Purpose.EPOCHS, epoch).permutation(n) for epoch in epochs}
        return np.array([orders[int(place // n)][place % n] for place in places], np.int64)

    def draw_sampling_keys(self, update: int) -> NDArray[np.int64]:
        """Return the keys with which an update draws the sequences of its repertoires, (B,)."""
        return make_generator(self.seed, Purpose.SAMPLES, update).integers(2**63, size=self.batch_size)

    def make_noise_generators(self, update: int, device: torch.device) -> list[torch.Generator]:
        """Return the random generator of the noise of each repertoire of an update, on a device."""
        seeds = make_generator(self.seed, Purpose.NOISE, update).integers(2**62, size=self.batch_size)
        return [torch.Generator(device).manual_seed(int(seed)) for seed in seeds]
