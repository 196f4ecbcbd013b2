"""Folds of the training repertoires that depend on their content alone, not on their order or a seed.

Letters: B repertoires.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.parameters import check_whole_number
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["inner_folds"]


def inner_folds(X: RepertoireDataset, positive: NDArray[np.bool_], n_folds: int) -> NDArray[np.int64]:
    """Return the fold of each repertoire, (B,) from 0, stratified by class.

    Repertoires of the same content are in the same fold. If the smaller class has fewer than `n_folds` different
    repertoires, there are as many folds as it has; with one, all repertoires are in fold 0.

    Raises
    ------
    InputError
        If `n_folds` is not a whole number of at least 2.
    """
    check_whole_number("folds", n_folds, low=2)
    digests = [repertoire.digest() for repertoire in X]
    class_of: dict[str, bool] = {}
    for digest, is_positive in zip(digests, positive.tolist(), strict=True):
        class_of[digest] = class_of.get(digest, False) or is_positive
    ordered = sorted(class_of, key=lambda digest: (class_of[digest], digest))
    n_positive = sum(class_of.values())
    n = max(1, min(n_folds, n_positive, len(ordered) - n_positive))
    fold_of = {digest: rank % n for rank, digest in enumerate(ordered)}
    return np.array([fold_of[digest] for digest in digests], np.int64)
