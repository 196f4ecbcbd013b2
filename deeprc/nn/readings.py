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

__all__ = ["Reading", "ReadingScores", "Readings"]

Floats = NDArray[np.float64]


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
    """The readings of a network, with their learned gains.

    Parameters
    ----------
    readings
        The readings, at least one, each with a name of its own.
    n_outputs
        T.

    Attributes
    ----------
    gains
        What the scores are multiplied by, (Q, T); they start at 1.
    """

    def __init__(self, readings: Sequence[Reading], n_outputs: int) -> None:
        super().__init__()
        self.members = nn.ModuleDict({reading.name: reading for reading in readings})
        self.gains = nn.Parameter(torch.ones(len(readings), n_outputs))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the readings, in the order of their gains."""
        return tuple(self.members)

    def __iter__(self) -> Iterator[Reading]:
        return iter(cast("Iterable[Reading]", self.members.values()))

    def forward(self, scores: Tensor) -> Tensor:
        """Return what the readings add to the outputs, (B, T), from their scores, (B, Q, T)."""
        return (scores * self.gains).sum(dim=1)

    def score(self, repertoire: Repertoire) -> Floats:
        """Return the scores of a repertoire, (Q, T)."""
        return np.stack([reading.score(repertoire) for reading in self])

    def contributions(self, repertoire: Repertoire) -> Floats:
        """Return what each sequence adds to the outputs through each reading, (Q, N, T)."""
        gains = self.gains.detach().double().cpu().numpy()
        parts = [reading.contributions(repertoire) * gain for reading, gain in zip(self, gains, strict=True)]
        return np.stack(parts)


class ReadingScores:
    """The scores of all repertoires of a dataset: given ones, or those that the readings compute when asked for.

    Parameters
    ----------
    readings
        The readings.
    dataset
        The repertoires.
    known
        Scores that are given, (B, Q, T): the cross-fitted ones of training repertoires.
    """

    def __init__(self, readings: Readings, dataset: RepertoireDataset, known: Floats | None = None) -> None:
        self._readings, self._dataset = readings, dataset
        shape = (len(dataset), *readings.gains.shape)
        self._table = torch.full(shape, torch.nan) if known is None else torch.from_numpy(known).float()
        self._is_known = np.full(len(dataset), known is not None)

    def at(self, positions: Tensor) -> Tensor:
        """Return the scores of the repertoires at some positions, (B, Q, T) float32, on the device of the positions."""
        if not self._is_known.all():
            self._compute(positions.tolist())
        if self._table.device != positions.device:
            self._table = self._table.to(positions.device)
        return self._table[positions]

    def _compute(self, positions: Sequence[int]) -> None:
        for position in positions:
            if not self._is_known[position]:
                scores = torch.from_numpy(self._readings.score(self._dataset[position])).float()
                self._table[position] = scores
                self._is_known[position] = True
