"""`KNN` and `KNNRegressor`: the mean label of the nearest training repertoires (paper lines 8960-8974).

Letters: A new repertoires, n training repertoires, V numbers of neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.kernel_methods import KernelClassifier, KernelMethod, KernelRegressor
from deeprc.baselines.kernels import compute_dataset_kernel
from deeprc.baselines.parameters import check_whole_number
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["KNN", "KNNRegressor", "average_nearest"]


class _NearestNeighbours(KernelMethod):
    """An estimator that compares repertoires with the nearest training repertoires; the distance is 1 - kernel."""

    path_parameter = "n_neighbors"

    def __init__(
        self,
        *,
        kernel: str = "minmax",
        n_neighbors: int = 5,
        kmer_offsets: Sequence[int] | None = None,
        weighted: bool = False,
    ) -> None:
        self.kernel = kernel
        self.n_neighbors = n_neighbors
        self.kmer_offsets = kmer_offsets
        self.weighted = weighted

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_whole_number("n_neighbors", self.n_neighbors)

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        check_whole_number("n_neighbors", self.n_neighbors)
        super()._restore(arrays, values)

    def _average_nearest(self, X: RepertoireDataset, labels: NDArray[Any]) -> Floats:
        """Return the mean label, (A,), of the nearest training repertoires, whose labels are given, (n,)."""
        kernel = self._compute_kernel_to_kept(X)
        return np.asarray(average_nearest(kernel, np.broadcast_to(labels, kernel.shape), [self.n_neighbors])[0])

    def _path(
        self, X: RepertoireDataset, labels: NDArray[Any], X_new: RepertoireDataset, values: Sequence[Any]
    ) -> Floats:
        """Return the mean labels, (V, A), for each number of neighbours; each row's neighbours are sorted once."""
        numbers = [check_whole_number("n_neighbors", value) for value in values]
        kernel = compute_dataset_kernel(X_new, X, self.kernel, **self._settings)
        return average_nearest(kernel, np.broadcast_to(labels, kernel.shape), numbers)


class KNN(_NearestNeighbours, KernelClassifier):
    """Classification by the nearest training repertoires; the distance is 1 - kernel (Levandowsky and Winter 1971).

    The score is the fraction of the second class among the `n_neighbors` nearest repertoires. If several repertoires
    are equally far away, and there are not votes enough for all of them, they share the remaining votes equally. So
    their order does not matter.

    Parameters
    ----------
    kernel
        `minmax` or `jaccard`; see `deeprc.baselines.kernels.compute_cross_kernel`.
    n_neighbors
        Number of neighbours; a number above n counts as n.
    kmer_offsets
        Positions of a k-mer's residues, counted from its first. None means 4-mers without a gap, (0, 1, 2, 3).
    weighted
        Whether each sequence counts as often as its `duplicate_count` says.

    Attributes
    ----------
    support_
        k-mer representations of the training repertoires, (n, M).
    positive_
        Whether each of them is of the second class, (n,).
    """

    _row_attribute = "positive_"

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        check_whole_number("n_neighbors", self.n_neighbors)
        self._keep(X)
        self.positive_ = positive

    def _score_repertoires(self, X: RepertoireDataset) -> Floats:
        return self._average_nearest(X, self.positive_)


class KNNRegressor(_NearestNeighbours, KernelRegressor):
    """The mean of the nearest training repertoires' numbers; the distance is 1 - kernel. Ties are shared as in `KNN`.

    Parameters
    ----------
    kernel, n_neighbors, kmer_offsets, weighted
        As in `KNN`.

    Attributes
    ----------
    support_
        k-mer representations of the training repertoires, (n, M).
    numbers_
        Numbers of these repertoires, (n,), as differences from `mean_` in units of `scale_`.
    """

    _row_attribute = "numbers_"

    def _fit(self, X: RepertoireDataset, values: Floats) -> None:
        check_whole_number("n_neighbors", self.n_neighbors)
        self._keep(X)
        self.numbers_ = values

    def _predict(self, X: RepertoireDataset) -> Floats:
        return self._average_nearest(X, self.numbers_)


def average_nearest(kernel: Floats, labels: NDArray[Any], n_neighbors: Sequence[int]) -> Floats:
    """Return the mean label of the nearest training repertoires, (V, A); the mean of 0 and 1 is the fraction of 1.

    Parameters
    ----------
    kernel, labels
        Kernel of each new repertoire with each training repertoire, and the label of the latter, (A, n) each.
    n_neighbors
        Numbers of neighbours, (V,); a number above n counts as n.
    """
    n_used = np.minimum(np.asarray(n_neighbors, np.int64), kernel.shape[1])
    means = np.empty((len(n_used), len(kernel)))
    for row, (nearness, values) in enumerate(zip(kernel, labels, strict=True)):
        order = np.argsort(-nearness, kind="stable")
        last = np.flatnonzero(np.diff(nearness[order], append=-1.0))  # the last of each group that is equally near
        sums = np.cumsum(values[order])[last]
        # Between the ends of a group that is equally near, each further neighbour adds the group's mean.
        means[:, row] = np.interp(n_used, np.append(0, last + 1), np.append(0, sums)) / n_used
    return means
