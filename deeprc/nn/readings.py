"""Readings of a whole repertoire besides the attention: each gives every output a score, to which sequences contribute.

The attention finds patterns that some sequences of a repertoire share. Signals that are in all sequences, or in single
ones, need other averages. A reading is learned from the training repertoires before the first update, and is constant
from then on; the network learns its gain. The outputs of the network are

    o(attention) + sum over readings r of gain_r * score_r.

A reading has seen the labels of the training repertoires, so its scores of them look surer than those of new ones. So
the network learns from cross-fitted scores: those of a reading that was learned without the repertoire.

Letters: N sequences of one repertoire, B repertoires, Q readings, T outputs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeprc.datasets.dataset import Repertoire, RepertoireDataset

__all__ = ["Reading", "ReadingScores", "Readings", "as_array"]

Floats = NDArray[np.float64]


def as_array(tensor: Tensor) -> NDArray[Any]:
    """Return the numbers of a tensor on any device, without their gradient."""
    return np.asarray(tensor.detach().cpu().numpy())


class Reading(nn.Module):
    """One reading of repertoires. Its numbers are buffers, which the weights of the network include."""

    name: ClassVar[str]
    """What configurations, files and tables call it."""

    @abstractmethod
    def contributions(self, repertoire: Repertoire) -> Floats:
        """Return what each sequence of a repertoire adds to the scores, (N, T); the sum over the sequences is `score`.

        Raises
        ------
        InputError
            If the repertoire's container lacks something that the reading needs.
        """

    def score(self, repertoire: Repertoire) -> Floats:
        """Return the scores of a repertoire, (T,); 0 says nothing about an output. That of no sequence is 0.

        Raises
        ------
        InputError
            If the repertoire's container lacks something that the reading needs.
        """
        return np.asarray(self.contributions(repertoire).sum(axis=0))

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what `from_description` needs besides the buffers, in a form that JSON can hold."""

    @classmethod
    @abstractmethod
    def from_description(cls, description: Any, n_outputs: int, where: str) -> Reading:
        """Return a reading whose buffers have the right shapes, before they are loaded.

        Parameters
        ----------
        description
            What `describe` returned, read from a file.
        n_outputs
            T.
        where
            The file and the key, with which error messages begin.

        Raises
        ------
        InputError
            If the description is not one that `describe` returns.
        """

    @abstractmethod
    def check(self, where: str) -> None:
        """Raise InputError if the buffers, read from a file, hold numbers that compiled code must not see."""


class Readings(nn.Module):
    """The readings of a network, with their learned gains, and the cross-fitted scores of what they learned from.

    A repertoire from which the readings learned has its cross-fitted scores wherever it is met: in training, and in any
    prediction. It is known by its content.

    Parameters
    ----------
    readings
        The readings, at least one, each with a name of its own.
    n_outputs
        T.
    digests
        The digests of the K different repertoires from which the readings learned, see `Repertoire.digest`.

    Attributes
    ----------
    gains
        What the scores are multiplied by, (Q, T); they start at 1.
    known_sizes, known_scores
        The numbers of sequences of these repertoires, (K,), and their cross-fitted scores, (K, Q, T).
    """

    known_sizes: Tensor
    known_scores: Tensor

    def __init__(self, readings: Sequence[Reading], n_outputs: int, digests: Sequence[str] = ()) -> None:
        super().__init__()
        self.members = nn.ModuleDict({reading.name: reading for reading in readings})
        self.gains = nn.Parameter(torch.ones(len(readings), n_outputs))
        self.digests = tuple(digests)
        self._index_of = {digest: index for index, digest in enumerate(self.digests)}
        self.register_buffer("known_sizes", torch.zeros(len(self.digests), dtype=torch.int64))
        self.register_buffer("known_scores", torch.zeros(len(self.digests), *self.gains.shape))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the readings, in the order of their gains."""
        return tuple(self.members)

    def __iter__(self) -> Iterator[Reading]:
        return iter(cast("Iterable[Reading]", self.members.values()))

    @torch.no_grad()
    def remember(self, dataset: RepertoireDataset, scores: Floats) -> None:
        """Keep the cross-fitted scores of the repertoires from which the readings learned, (B, Q, T)."""
        at = [self._index_of[repertoire.digest()] for repertoire in dataset]
        self.known_sizes[at] = torch.from_numpy(dataset.n_sequences).to(self.known_sizes)
        self.known_scores[at] = torch.from_numpy(scores).to(self.known_scores)

    def forward(self, scores: Tensor) -> Tensor:
        """Return what the readings add to the outputs, (B, T), from their scores, (B, Q, T)."""
        return (scores * self.gains).sum(dim=1)

    def score(self, repertoire: Repertoire) -> Floats:
        """Return the scores of a repertoire, (Q, T), cross-fitted if the readings learned from it."""
        known = self._known(repertoire)
        return np.stack([reading.score(repertoire) for reading in self]) if known is None else known

    def contributions(self, repertoire: Repertoire) -> Floats:
        """Return what each sequence adds to the outputs through each reading, (Q, N, T).

        If the readings learned from the repertoire, the difference between the cross-fitted score and the sum of what
        the sequences add is shared equally by all sequences.
        """
        parts = np.stack([reading.contributions(repertoire) for reading in self])
        known = self._known(repertoire)
        if known is not None and len(repertoire):
            parts += (known - parts.sum(axis=1))[:, None] / len(repertoire)
        return np.asarray(parts * as_array(self.gains).astype(np.float64)[:, None])

    def _known(self, repertoire: Repertoire) -> Floats | None:
        """Return the cross-fitted scores of a repertoire from which the readings learned, (Q, T)."""
        if not bool((self.known_sizes == len(repertoire)).any()):
            return None  # so that large new repertoires need no digest
        index = self._index_of.get(repertoire.digest())
        return None if index is None else as_array(self.known_scores[index]).astype(np.float64)

    def check(self, where: str) -> None:
        """Raise InputError if a reading's buffers, read from a file, hold what compiled code must not see."""
        for reading in self:
            reading.check(f"{where}: readings: {reading.name}")


class ReadingScores:
    """The scores of all repertoires of a dataset, computed when they are asked for.

    Parameters
    ----------
    readings
        The readings.
    dataset
        The repertoires.
    """

    def __init__(self, readings: Readings, dataset: RepertoireDataset) -> None:
        self._readings, self._dataset = readings, dataset
        self._table = torch.full((len(dataset), *readings.gains.shape), torch.nan)
        self._is_known = np.zeros(len(dataset), bool)
        self._copies: dict[torch.device, Tensor] = {}

    def at(self, positions: Tensor) -> Tensor:
        """Return the scores of the repertoires at some positions, (B, Q, T) float32, on the device of the positions."""
        if positions.device.type == "cpu":
            self._compute(positions.tolist())
            return self._table[positions]
        if positions.device not in self._copies:  # a recorded graph reads it, so it stays where it is
            self._compute(range(len(self._dataset)))
            self._copies[positions.device] = self._table.to(positions.device)
        return self._copies[positions.device][positions]

    def _compute(self, positions: Iterable[int]) -> None:
        for position in positions:
            if not self._is_known[position]:
                scores = torch.from_numpy(self._readings.score(self._dataset[position])).float()
                self._table[position] = scores
                self._is_known[position] = True
