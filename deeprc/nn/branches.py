"""Branches beside the attention: parts of the network that score a whole repertoire.

The attention finds patterns that some sequences of a repertoire share. Signals that are in all sequences, or in single
ones, need other averages. A branch gives each output a score, which is a sum over sequences. It is learned from the
training repertoires before the first update, and is constant from then on; only its gain is learned by the updates. The
outputs of the network are

    o(attention) + sum over branches q of gain_q * score_q.

A branch has seen the labels of the training repertoires, so it separates them better than new ones. So the network
learns from cross-fitted scores: the score of a repertoire is then that of a branch that was learned without it.

Letters: N sequences of one repertoire, B repertoires, Q branches, T outputs. M repertoires that branches learned from.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeprc.arrays import Floats
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.known_repertoires import KnownRepertoires, identify_repertoire, identify_repertoires

__all__ = ["Branch", "BranchScores", "Branches", "iterate_branches", "to_array"]


def to_array(tensor: Tensor) -> NDArray[Any]:
    """Return the numbers of a tensor on any device, without their gradient."""
    return np.asarray(tensor.detach().cpu().numpy())


class Branch(nn.Module):
    """Base class of branches. The numbers of a branch are buffers, which are saved with the weights of the network."""

    name: ClassVar[str]
    """Name of the branch in configurations, files and tables."""

    @property
    def reads_counts(self) -> bool:
        """Whether the scores depend on the counts of the sequences."""
        return False

    @property
    def features(self) -> list[str]:
        """What the branch reads, such as k-mers and genes; empty if that is always the same."""
        return []

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be chance that the branch predicts left-out repertoires.

        A doubtful branch is of use only if the network has no other branch.
        """
        return False

    @abstractmethod
    def compute_contributions(self, repertoire: Repertoire) -> Floats:
        """Return the contribution of each sequence of a repertoire to the scores, (N, T); their sum is `score`.

        Raises
        ------
        InputError
            If the repertoire's container lacks something that the branch needs.
        """

    def score(self, repertoire: Repertoire) -> Floats:
        """Return the scores of a repertoire, (T,). A score of 0 is no evidence; an empty repertoire has scores of 0.

        Raises
        ------
        InputError
            If the repertoire's container lacks something that the branch needs.
        """
        return np.asarray(self.compute_contributions(repertoire).sum(axis=0))

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what `from_description` needs beside the buffers, as values for JSON."""

    @classmethod
    @abstractmethod
    def from_description(cls, description: Any, n_outputs: int, where: str) -> Branch:
        """Return a branch whose buffers have the right shapes, before they are loaded.

        Parameters
        ----------
        description
            Result of `describe`, read from a file.
        n_outputs
            Number of outputs, T.
        where
            File and key of the description; error messages begin with them.

        Raises
        ------
        InputError
            If the description is not one that `describe` returns.
        """

    def check_targets(self, is_numeric: Sequence[bool], where: str) -> None:
        """Raise InputError if a branch, read from a file, cannot score an output; `is_numeric` has its kind, (T,)."""

    @abstractmethod
    def check(self, where: str) -> None:
        """Raise InputError if the buffers, read from a file, have numbers that would crash compiled code."""


class Branches(nn.Module):
    """The branches of a network, with their gains and the cross-fitted scores of the repertoires they learned from.

    A repertoire from which the branches learned gets its cross-fitted scores in training and in every prediction. It is
    recognised by its content, also if it was processed anew without genes; see `KnownRepertoires.find`.

    Parameters
    ----------
    branches
        The branches, at least one, with different names.
    n_outputs
        Number of outputs, T.
    identities
        Identities of the M different repertoires from which the branches learned, see `identify_repertoires`.

    Attributes
    ----------
    gains
        Factors of the scores, (Q, T); they start at 1.
    known_sizes, known_scores
        Numbers of sequences of these repertoires, (M,), and their cross-fitted scores, (M, Q, T).
    """

    known_sizes: Tensor
    known_scores: Tensor

    def __init__(self, branches: Sequence[Branch], n_outputs: int, identities: Sequence[str] = ()) -> None:
        super().__init__()
        self.members = nn.ModuleDict({branch.name: branch for branch in branches})
        self.gains = nn.Parameter(torch.ones(len(branches), n_outputs))
        self.identities = tuple(identities)
        self._known = KnownRepertoires(self.identities)
        self.register_buffer("known_sizes", torch.zeros(len(self.identities), dtype=torch.int64))
        self.register_buffer("known_scores", torch.zeros(len(self.identities), *self.gains.shape))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the branches, in the order of their gains."""
        return tuple(self.members)

    def __iter__(self) -> Iterator[Branch]:
        return iter(cast("Iterable[Branch]", self.members.values()))

    @torch.no_grad()
    def store_known_scores(self, dataset: RepertoireDataset, scores: Floats) -> None:
        """Store the cross-fitted scores, (B, Q, T), of the repertoires from which the branches learned."""
        indices = [self._known.find(identity) for identity in identify_repertoires(dataset)]
        self.known_sizes[indices] = torch.from_numpy(dataset.n_sequences).to(self.known_sizes)
        self.known_scores[indices] = torch.from_numpy(scores).to(self.known_scores)

    def forward(self, scores: Tensor) -> Tensor:
        """Return the part of the outputs through the branches, (B, T), from their scores, (B, Q, T)."""
        return (scores * self.gains).sum(dim=1)

    def score(self, repertoire: Repertoire) -> Floats:
        """Return the scores of a repertoire, (Q, T); they are cross-fitted if the branches learned from it."""
        cross_fitted = self._find_known_scores(repertoire)
        return np.stack([branch.score(repertoire) for branch in self]) if cross_fitted is None else cross_fitted

    def compute_contributions(self, repertoire: Repertoire) -> Floats:
        """Return the contribution of each sequence to the outputs through each branch, (Q, N, T).

        If the branches learned from the repertoire, the difference between the cross-fitted score and the sum of the
        contributions is shared equally by all sequences.
        """
        parts = np.stack([branch.compute_contributions(repertoire) for branch in self])
        cross_fitted = self._find_known_scores(repertoire)
        if cross_fitted is not None and len(repertoire):
            parts += (cross_fitted - parts.sum(axis=1))[:, None] / len(repertoire)
        return np.asarray(parts * to_array(self.gains).astype(np.float64)[:, None])

    def _find_known_scores(self, repertoire: Repertoire) -> Floats | None:
        """Return the cross-fitted scores of a repertoire, (Q, T); None if the branches did not learn from it."""
        if not bool((self.known_sizes == len(repertoire)).any()):
            return None  # no known repertoire has this size, so no digest is computed
        index = self._known.find(identify_repertoire(repertoire))
        return None if index is None else to_array(self.known_scores[index]).astype(np.float64)

    def check(self, where: str) -> None:
        """Raise InputError if buffers, read from a file, have numbers with which compiled code would crash."""
        for branch in self:
            branch.check(f"{where}: branches: {branch.name}")


def iterate_branches(branches: Branches | None) -> Iterator[tuple[Branch, list[float]]]:
    """Yield each branch with its gains, (T,); nothing for a network without branches."""
    if branches is not None:
        yield from zip(branches, branches.gains.tolist(), strict=True)


class BranchScores:
    """The scores of all repertoires of a dataset, each computed when it is needed first.

    Parameters
    ----------
    branches
        Branches that score the repertoires.
    dataset
        The repertoires.
    """

    def __init__(self, branches: Branches, dataset: RepertoireDataset) -> None:
        self._branches, self._dataset = branches, dataset
        self._table = torch.full((len(dataset), *branches.gains.shape), torch.nan)
        self._is_known = np.zeros(len(dataset), bool)
        self._copies: dict[torch.device, Tensor] = {}

    def take(self, positions: Tensor) -> Tensor:
        """Return the scores of the repertoires at these positions, (B, Q, T) float32, on the positions' device."""
        if positions.device.type == "cpu":
            self._compute(positions.tolist())
            return self._table[positions]
        if positions.device not in self._copies:  # made once per device, because a recorded graph reads this memory
            self._compute(range(len(self._dataset)))
            self._copies[positions.device] = self._table.to(positions.device)
        return self._copies[positions.device][positions]

    def _compute(self, positions: Iterable[int]) -> None:
        for position in positions:
            if not self._is_known[position]:
                scores = torch.from_numpy(self._branches.score(self._dataset[position])).float()
                self._table[position] = scores
                self._is_known[position] = True
