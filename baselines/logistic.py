"""Linear models of the k-mer representation: logistic regression, converged or by Adam as in the paper, and ridge.

Letters: B repertoires, M k-mers, V values of a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.adam import AdamSettings, AdamState, draw_batches, make_updates
from deeprc.baselines.elastic_net import Solution
from deeprc.baselines.linear import FeatureMatrix, LinearClassifier, PenalisedClassifier, RidgeRegressor
from deeprc.baselines.parameters import check_choice, check_not_negative, check_positive, check_whole_number
from deeprc.baselines.standardised_columns import ColumnScaling, StandardisedColumns
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import check_kmer_offsets
from deeprc.datasets.representations import compute_kmer_frequencies, compute_kmer_matrix
from deeprc.errors import InputError
from deeprc.estimators import RepertoireEstimator

__all__ = ["AdamLogisticRegression", "KmerFeatures", "KmerRidge", "LogisticRegression"]

_MAX_K = 4  # largest k-mer for Adam, which needs dense features


class KmerFeatures(RepertoireEstimator):
    """A mixin class for linear models: the features are the frequency of each k-mer in a repertoire."""

    kmer_offsets: Sequence[int] | None
    weighted: bool

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_kmer_offsets(self._offsets)

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the k-mer counts of the container's repertoires."""
        compute_kmer_matrix(X[:0], self._offsets, weighted=self.weighted)

    @property
    def _offsets(self) -> Sequence[int]:
        return (0, 1, 2, 3) if self.kmer_offsets is None else self.kmer_offsets

    def _compute_features(self, X: RepertoireDataset) -> FeatureMatrix:
        return compute_kmer_frequencies(X, self._offsets, weighted=self.weighted)

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        check_kmer_offsets(self._offsets)
        super()._restore(arrays, values)


class LogisticRegression(KmerFeatures, PenalisedClassifier):
    """Logistic regression on the k-mer representation of paper lines 8940-8950, solved to convergence.

    The model is the paper's (lines 8985-8998). The paper trains it by Adam, where the learning rate and early stopping
    limit the weights; here only the penalty does.

    Parameters
    ----------
    penalty
        `l1` or `l2`.
    C
        Weight of the losses against the penalty, as in scikit-learn; many values cost little more than one, see
        `decision_path`.
    kmer_offsets
        Positions of a k-mer's residues, counted from its first: (0, 1, 3) leaves out the third position. None means
        4-mers without a gap, (0, 1, 2, 3).
    weighted
        Whether each sequence counts as often as its `duplicate_count` says.
    scale
        `standard` divides the frequency of each k-mer by its standard deviation. `common` divides all frequencies by
        the same number.
    """

    def __init__(
        self,
        *,
        penalty: str = "l1",
        C: float = 1.0,
        kmer_offsets: Sequence[int] | None = None,
        weighted: bool = False,
        scale: ColumnScaling = "standard",
    ) -> None:
        self.penalty = penalty
        self.C = C
        self.kmer_offsets = kmer_offsets
        self.weighted = weighted
        self.scale = scale


class KmerRidge(KmerFeatures, RidgeRegressor):
    """Ridge regression on the k-mer representation of paper lines 8940-8950: `LogisticRegression` for a number.

    Parameters
    ----------
    C
        Weight of the squared errors against the penalty; see `deeprc.baselines.linear.fit_ridge_path`.
    kmer_offsets, weighted, scale
        As in `LogisticRegression`.
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        kmer_offsets: Sequence[int] | None = None,
        weighted: bool = False,
        scale: ColumnScaling = "common",
    ) -> None:
        self.C = C
        self.kmer_offsets = kmer_offsets
        self.weighted = weighted
        self.scale = scale


class AdamLogisticRegression(KmerFeatures, LinearClassifier):
    """Logistic regression on the k-mer representation by Adam, as in the paper (lines 8985-8998 and 9093-9112).

    All weights start at 0. Each update reads one batch of the training repertoires. The batches are cut from random
    permutations of all training repertoires. The loss is mean cross-entropy + l1 * |w|_1 + l2 / 2 * |w|_2^2; the
    intercept has no penalty.

    Parameters
    ----------
    learning_rate
        Step size of Adam; the paper searches 1e-2, 1e-3 and 1e-4.
    l1, l2
        Weights of the penalties; the paper searches (1e-7, 1e-3) and (1e-7, 1e-5).
    batch_size
        Number of repertoires in a batch.
    n_updates
        Number of updates; the paper makes up to 100,000 and stops early. `decision_path` trains once, for the largest
        number.
    kmer_offsets, weighted
        As in `LogisticRegression`; at most 4 offsets.
    scale
        `none` leaves the frequencies unchanged, as in the paper; `standard` centres them and divides them by their
        standard deviations.
    seed
        Seed of the random batches.
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
        kmer_offsets: Sequence[int] | None = None,
        weighted: bool = False,
        scale: str = "none",
        seed: int = 0,
    ) -> None:
        self.learning_rate = learning_rate
        self.l1 = l1
        self.l2 = l2
        self.batch_size = batch_size
        self.n_updates = n_updates
        self.kmer_offsets = kmer_offsets
        self.weighted = weighted
        self.scale = scale
        self.seed = seed

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        self._check_values([self.n_updates])

    def _fit_path(self, X: RepertoireDataset, labels: NDArray[Any], values: Sequence[Any]) -> Iterator[Solution]:
        self._check_values(values)
        features, settings = self._select_features(X), AdamSettings(self.learning_rate, self.l1, self.l2)
        batches = draw_batches(len(X), self.batch_size, max(values), self.seed)
        state, solution_of = AdamState(len(features.columns)), {}
        for value in sorted(set(values)):
            make_updates(state, features.matrix, labels, batches[state.n_updates : value], settings)
            solution_of[value] = features.make_solution(state)
        return iter([solution_of[value] for value in values])

    def _check_values(self, values: Sequence[Any]) -> None:
        """Raise InputError if a parameter, or a number of updates in `values`, is out of range."""
        check_choice("scale", self.scale, ("none", "standard"))
        if len(self._offsets) > _MAX_K:
            raise InputError(f"kmer_offsets: expected at most {_MAX_K}, found {list(self._offsets)}")
        check_whole_number("batch_size", self.batch_size)
        for value in values:
            check_whole_number("n_updates", value)
        check_not_negative("l1", self.l1)
        check_not_negative("l2", self.l2)
        check_positive("learning_rate", self.learning_rate)

    def _select_features(self, X: RepertoireDataset) -> _Features:
        """Return the features without those that are 0 everywhere (their weight would stay 0) or constant."""
        rows = np.asarray(self._compute_features(X))
        if self.scale == "none":
            columns = np.flatnonzero(rows.any(axis=0))
            return _Features(rows[:, columns], columns, np.zeros(len(columns)), np.ones(len(columns)))
        standard = StandardisedColumns(rows)
        columns = np.flatnonzero(standard.factor)
        centre, factor = standard.centre[columns], standard.factor[columns]
        rows = rows[:, columns]
        rows -= centre.astype(np.float32)
        rows *= factor.astype(np.float32)
        return _Features(rows, columns, centre, factor)


@dataclass(frozen=True)
class _Features:
    """The columns from which Adam learns, (B, n), centred and scaled: (x[:, columns] - centre) * factor."""

    matrix: NDArray[np.float32]
    columns: NDArray[np.int64]
    centre: NDArray[np.float64]
    factor: NDArray[np.float64]

    def make_solution(self, state: AdamState) -> Solution:
        values = state.values[0].astype(np.float64)
        coefficients = values[:-1] * self.factor
        return Solution(self.columns, coefficients, float(values[-1] - coefficients @ self.centre), np.inf)
