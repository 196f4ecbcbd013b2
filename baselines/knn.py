"""`KNN`: the share of positive repertoires among the nearest ones (paper lines 8960-8974).

Letters: A new repertoires, n training repertoires, V numbers of neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeprc.baselines.kernels import KernelClassifier, similarity
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import canonical_order, encode_two_classes, fit_platt_scaling

__all__ = ["KNN", "checked_neighbors", "mean_of_nearest"]


class KNN(KernelClassifier):
    """The nearest neighbours' classes; the distance is 1 - kernel (Levandowsky and Winter 1971).

    The score is the share of the second class among the `n_neighbors` nearest. Where several repertoires are equally
    far away and not all of them are among the nearest, they share the remaining votes equally, so that their order
    does not matter. Probabilities are Platt's, from each training repertoire's score by the others.

    Parameters
    ----------
    kernel
        `minmax` or `jaccard`; see `deeprc.baselines.kernels.cross_kernel`.
    n_neighbors
        At most as many as there are training repertoires.
    places
        The residues of a k-mer, counted from its first; None: those of 4-mers, 0 to 3.
    weighted
        Count each sequence as often as its `duplicate_count` says.

    Attributes
    ----------
    support_
        Representations of the training repertoires, (n, M).
    positive_
        Whether each of them is of the second class, (n,).
    """

    path_parameter = "n_neighbors"

    def __init__(
        self,
        *,
        kernel: str = "minmax",
        n_neighbors: int = 5,
        places: Sequence[int] | None = None,
        weighted: bool = False,
    ) -> None:
        self.kernel = kernel
        self.n_neighbors = n_neighbors
        self.places = places
        self.weighted = weighted

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        number, n = checked_neighbors(self.n_neighbors), len(X)
        order = canonical_order(X, positive.astype(np.int64))
        self._keep(X[order])
        self.positive_ = positive[order]
        others = ~np.eye(n, dtype=bool)
        kernel = self._gram(X[order])[others].reshape(n, n - 1)
        classes = np.broadcast_to(self.positive_, (n, n))[others].reshape(n, n - 1)
        own = mean_of_nearest(kernel, classes, np.array([min(number, n - 1)]))[0]
        self.calibration_ = fit_platt_scaling(own, self.positive_)

    def _decide(self, X: RepertoireDataset) -> NDArray[np.float64]:
        kernel = self._similarity(X)
        classes = np.broadcast_to(self.positive_, kernel.shape)
        return np.asarray(mean_of_nearest(kernel, classes, np.array([min(self.n_neighbors, len(self.positive_))]))[0])

    def decision_path(
        self, X: RepertoireDataset, y: ArrayLike, X_new: RepertoireDataset, values: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return the scores, (V, A), of each number of neighbours; see `BinaryClassifier.decision_path`.

        Each new repertoire's neighbours are sorted once. More of them than training repertoires count as all of these.
        """
        _, positive = encode_two_classes(X, y)
        numbers = np.array([min(checked_neighbors(value), len(X)) for value in values], np.int64)
        kernel = similarity(X_new, X, self.kernel, **self._settings)
        return mean_of_nearest(kernel, np.broadcast_to(positive, kernel.shape), numbers)


def mean_of_nearest(
    kernel: NDArray[np.float64], of_each: NDArray[Any], numbers: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the mean of numbers (of 0 and 1, the share of 1) among the nearest, (V, A).

    Parameters
    ----------
    kernel, of_each
        Nearness and number of the training repertoires, for each new one, (A, n).
    numbers
        Of neighbours, (V,).
    """
    shares = np.empty((len(numbers), len(kernel)))
    for row, (nearness, values) in enumerate(zip(kernel, of_each, strict=True)):
        order = np.argsort(-nearness, kind="stable")
        last = np.flatnonzero(np.diff(nearness[order], append=-1.0))  # of those equally near
        votes = np.cumsum(values[order])[last]
        # Between the ends of a group of equally near ones, each further neighbour adds the group's mean vote.
        shares[:, row] = np.interp(numbers, np.append(0, last + 1), np.append(0, votes)) / numbers
    return shares


def checked_neighbors(value: Any) -> int:
    """Return the number of neighbours; raise InputError if it is no whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"n_neighbors: expected a whole number of at least 1, found {value!r}")
    return int(value)
