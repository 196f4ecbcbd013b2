"""The base of methods that compare repertoires by a kernel.

Letters: B repertoires, S repertoires kept after `fit`, M k-mers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.kernels import (
    KERNELS,
    Rows,
    are_of_same_container,
    compute_cross_kernel,
    compute_dataset_kernel,
    compute_gram,
)
from deeprc.baselines.parameters import check_choice
from deeprc.baselines.restored import SPARSE_PARTS, check_numbers, restore_rows
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import check_kmer_offsets
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.estimators import BinaryClassifier, RepertoireEstimator, RepertoireRegressor, collect_fitted_state

__all__ = ["KernelClassifier", "KernelMethod", "KernelRegressor"]


class KernelMethod(RepertoireEstimator):
    """An estimator that compares repertoires with training repertoires by a kernel.

    After `fit`, `support_` holds the k-mer representations of the training repertoires that it needs, (S, M). They are
    computed when they are first needed: to compare them with repertoires of another container, or to save them.
    """

    kernel: str
    kmer_offsets: Sequence[int] | None
    weighted: bool

    _row_attribute: ClassVar[str]  # name of the fitted attribute with a number for each row of `support_`, (S,)

    _kept: RepertoireDataset | None = None

    @property
    def _settings(self) -> dict[str, Any]:
        offsets = (0, 1, 2, 3) if self.kmer_offsets is None else self.kmer_offsets
        return {"kmer_offsets": offsets, "weighted": self.weighted}

    @cached_property
    def support_(self) -> Rows:
        """k-mer representations of the training repertoires with which new ones are compared, (S, M)."""
        if self._kept is None:
            raise AttributeError("support_")
        return compute_kmer_frequencies(self._kept, **self._settings)

    def _keep(self, X: RepertoireDataset) -> None:
        self._kept = X
        self.__dict__.pop("support_", None)

    def _compute_gram(self, X: RepertoireDataset) -> Floats:
        return compute_gram(X, self.kernel, **self._settings)

    def _compute_kernel_to_kept(self, X: RepertoireDataset) -> Floats:
        """Return the kernel of each repertoire with each one that was kept, (B, S)."""
        if self._kept is not None and are_of_same_container(X, self._kept):
            return compute_dataset_kernel(X, self._kept, self.kernel, **self._settings)
        return compute_cross_kernel(compute_kmer_frequencies(X, **self._settings), self.support_, self.kernel)

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_choice("kernel", self.kernel, KERNELS)
        check_kmer_offsets(self._settings["kmer_offsets"])

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the Gram matrix of the container's repertoires."""
        self._compute_gram(X[:0])

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        rows = self.support_
        arrays, values = collect_fitted_state({name: value for name, value in vars(self).items() if name != "support_"})
        if isinstance(rows, np.ndarray):
            return {**arrays, "support_": rows}, values
        return {**arrays, **{f"support_.{part}": getattr(rows, part) for part in SPARSE_PARTS}}, values

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        own_arrays = {name: array for name, array in arrays.items() if not name.startswith("support_")}
        super()._restore(own_arrays, values)
        check_kmer_offsets(self._settings["kmer_offsets"])
        self.support_ = restore_rows(arrays, "support_", 20 ** len(self._settings["kmer_offsets"]))
        check_numbers(self._row_attribute, getattr(self, self._row_attribute, None), self.support_.shape[0])


class KernelClassifier(KernelMethod, BinaryClassifier):
    """A classifier that reads repertoires only through a kernel."""


class KernelRegressor(KernelMethod, RepertoireRegressor):
    """A regressor that reads repertoires only through a kernel."""
