"""Linear models of the k-mer representation: logistic regression, solved or by Adam as in the paper, and ridge.

Letters: B repertoires, M k-mers, V values of a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.adam import AdamState, draw_batches, train
from deeprc.baselines.columns import Columns, Scale
from deeprc.baselines.elastic_net import Solution
from deeprc.baselines.linear import (
    LinearClassifier,
    Matrix,
    PenalisedClassifier,
    check_choice,
)
from deeprc.baselines.ridge import RidgeRegressor
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import kmer_frequencies, kmer_matrix
from deeprc.errors import InputError
from deeprc.estimators import RepertoireEstimator

__all__ = ["AdamLogisticRegression", "KmerRidge", "LogisticRegression"]

_MOST_PLACES = 4


class _KmerFeatures(RepertoireEstimator):
    """Reads how often each k-mer occurs in a repertoire."""

    places: Sequence[int] | None
    weighted: bool

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the container's k-mers."""
        kmer_matrix(X[:0], _places(self.places), weighted=self.weighted)

    def _rows(self, X: RepertoireDataset) -> Matrix:
        return kmer_frequencies(X, _places(self.places), weighted=self.weighted)


class LogisticRegression(_KmerFeatures, PenalisedClassifier):
    """Logistic regression on the k-mer representation of paper lines 8940-8950, solved to convergence.

    It is the same model as the paper's (lines 8985-8998) with a stronger solver: no learning rate and no early stopping
    stand in the place of the penalty.

    Parameters
    ----------
    penalty
        `l1` or `l2`.
    C
        Weight of the losses against the penalty, as in scikit-learn; many values cost little more than one, see
        `decision_path`.
    places
        The residues of a k-mer, counted from its first; None: those of 4-mers, 0 to 3.
    weighted
        Count each sequence as often as its `duplicate_count` says.
    scale
        `standard`: each k-mer's frequency is divided by its standard deviation. `common`: all are divided by the
        same number.
    """

    def __init__(
        self,
        *,
        penalty: str = "l1",
        C: float = 1.0,
        places: Sequence[int] | None = None,
        weighted: bool = False,
        scale: Scale = "standard",
    ) -> None:
        self.penalty = penalty
        self.C = C
        self.places = places
        self.weighted = weighted
        self.scale = scale


class KmerRidge(_KmerFeatures, RidgeRegressor):
    """Ridge regression on the k-mer representation of paper lines 8940-8950: `LogisticRegression` for a number.

    Parameters
    ----------
    C
        See `deeprc.baselines.ridge.RidgeRegressor`.
    places, weighted, scale
        As in `LogisticRegression`.
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        places: Sequence[int] | None = None,
        weighted: bool = False,
        scale: Scale = "common",
    ) -> None:
        self.C = C
        self.places = places
        self.weighted = weighted
        self.scale = scale


class AdamLogisticRegression(_KmerFeatures, LinearClassifier):
    """Logistic regression on the k-mer representation by Adam, as in the paper (lines 8985-8998 and 9093-9112).

    All weights are 0 at first. Each update sees a batch of the training repertoires; they are drawn in permutations
    of all of them, one after the other. The loss is the mean cross-entropy + l1 * |w|_1 + l2 / 2 * |w|_2^2, without
    a penalty of the intercept.

    Parameters
    ----------
    learning_rate, l1, l2, batch_size
        The paper searches learning rates 1e-2, 1e-3 and 1e-4, and (l1, l2) of (1e-7, 1e-3) and (1e-7, 1e-5).
    n_updates
        The paper makes up to 100,000 and stops early; all numbers asked of `decision_path` cost as much as the largest.
    places, weighted
        As in `LogisticRegression`; at most 4 places.
    scale
        `none`: frequencies as they are, as in the paper. `standard`: centred and divided by their standard deviations.
    seed
        Of the batches.
    """

    path_parameter: ClassVar[str] = "n_updates"

    def __init__(
        self,
        *,
        learning_rate: float = 1e-3,
        l1: float = 1e-7,
        l2: float = 1e-3,
        batch_size: int = 4,
        n_updates: int = 10_000,
        places: Sequence[int] | None = None,
        weighted: bool = False,
        scale: str = "none",
        seed: int = 0,
    ) -> None:
        self.learning_rate = learning_rate
        self.l1 = l1
        self.l2 = l2
        self.batch_size = batch_size
        self.n_updates = n_updates
        self.places = places
        self.weighted = weighted
        self.scale = scale
        self.seed = seed

    def _solutions(
        self, X: RepertoireDataset, positive: NDArray[np.bool_], values: Sequence[Any]
    ) -> Iterator[Solution]:
        self._check(values)
        data = self._data(X)
        batches = draw_batches(len(X), self.batch_size, max(values), self.seed)
        state, found = AdamState(len(data.columns)), {}
        for value in sorted(set(values)):
            part = batches[state.n_updates : value]
            train(state, data.matrix, positive, part, learning_rate=self.learning_rate, l1=self.l1, l2=self.l2)
            found[value] = data.solution(state)
        return iter([found[value] for value in values])

    def _check(self, values: Sequence[Any]) -> None:
        check_choice("scale", self.scale, ("none", "standard"))
        if len(_places(self.places)) > _MOST_PLACES:
            raise InputError(f"places: expected at most {_MOST_PLACES}, found {list(_places(self.places))}")
        whole = [("batch_size", self.batch_size), *(("n_updates", value) for value in values)]
        for name, value in whole:
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name}: expected a whole number of at least 1, found {value!r}")
        for name, value in (("l1", self.l1), ("l2", self.l2)):
            if not isinstance(value, int | float | np.number) or not 0 <= value < np.inf:
                raise InputError(f"{name}: expected a number of at least 0, found {value!r}")
        if not isinstance(self.learning_rate, int | float | np.number) or not 0 < self.learning_rate < np.inf:
            raise InputError(f"learning_rate: expected a number above 0, found {self.learning_rate!r}")

    def _data(self, X: RepertoireDataset) -> _Data:
        """Return the features; without those that are 0 everywhere, whose weight would remain 0, or constant."""
        rows = np.asarray(self._rows(X))
        if self.scale == "none":
            columns = np.flatnonzero(rows.any(axis=0))
            return _Data(rows[:, columns], columns, np.zeros(len(columns)), np.ones(len(columns)))
        every = Columns(rows)
        columns = np.flatnonzero(every.factor)
        centre, factor = every.centre[columns], every.factor[columns]
        rows = rows[:, columns]
        rows -= centre.astype(np.float32)
        rows *= factor.astype(np.float32)
        return _Data(rows, columns, centre, factor)


@dataclass(frozen=True)
class _Data:
    """What Adam learns from: some columns of the features, centred and scaled."""

    matrix: NDArray[np.float32]
    columns: NDArray[np.int64]
    centre: NDArray[np.float64]
    factor: NDArray[np.float64]

    def solution(self, state: AdamState) -> Solution:
        values = state.values[0].astype(np.float64)
        coefficients = values[:-1] * self.factor
        return Solution(self.columns, coefficients, float(values[-1] - coefficients @ self.centre), np.inf)


def _places(places: Sequence[int] | None) -> Sequence[int]:
    return (0, 1, 2, 3) if places is None else places
