"""Boosted trees: learned by scikit-learn, kept as arrays, and read by compiled code without scikit-learn.

Letters: B repertoires, F features, T trees, N nodes of all trees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from deeprc.arrays import Floats, Integers
from deeprc.compilation import njit

__all__ = ["Trees"]

_LEAF = -1


class Trees(NamedTuple):
    """The trees of a boosted ensemble with one output, one tree after the other.

    Attributes
    ----------
    starts
        Start of the nodes of each tree, and end of the last, (T + 1,): tree t has the nodes from starts[t] to starts[t
        + 1]. The first of them is its root.
    features
        Index of the feature that a node compares, (N,); -1 for a leaf.
    thresholds
        Threshold of each node, (N,): a row whose feature is at most this number goes left.
    left, right
        Children of each node, (N,) each, counted from the root of its tree. A child comes after its parent.
    values
        Number that a leaf adds to the output, (N,).
    """

    starts: Integers
    features: Integers
    thresholds: Floats
    left: Integers
    right: Integers
    values: Floats

    @classmethod
    def of(cls, model: HistGradientBoostingClassifier | HistGradientBoostingRegressor) -> Trees:
        """Return the trees of a fitted model of scikit-learn that has one output and no categorical features."""
        nodes_of_trees = [predictor.nodes for (predictor,) in model._predictors]
        nodes = np.concatenate(nodes_of_trees)
        is_leaf = nodes["is_leaf"].astype(bool)
        return cls(
            np.cumsum([0, *map(len, nodes_of_trees)], dtype=np.int64),
            np.where(is_leaf, _LEAF, nodes["feature_idx"]).astype(np.int64),
            np.where(is_leaf, 0.0, nodes["num_threshold"]),
            nodes["left"].astype(np.int64),
            nodes["right"].astype(np.int64),
            np.where(is_leaf, nodes["value"], 0.0),
        )

    def check(self, n_features: int) -> None:
        """Raise ValueError if the arrays are no trees for this number of features: the file may be a stranger's."""
        n_nodes = len(self.features)
        for name, array in zip(self._fields, self, strict=True):
            kind = "f" if name in ("thresholds", "values") else "i"
            if array.ndim != 1 or array.dtype.kind != kind or array.dtype.itemsize != 8:
                found = f"{array.dtype} {array.shape}"
                raise ValueError(f"{name}: expected a one-dimensional array of 64-bit numbers, found {found}")
            if name != "starts" and len(array) != n_nodes:
                raise ValueError(f"{name}: expected {n_nodes} nodes, found {len(array)}")
        self._check_starts(n_nodes)
        self._check_inner_nodes(n_features)
        if not np.isfinite(self.values).all() or np.isnan(self.thresholds).any():
            raise ValueError("thresholds, values: expected finite numbers")

    def _check_starts(self, n_nodes: int) -> None:
        starts = self.starts
        is_valid = len(starts) >= 2 and starts[0] == 0 and starts[-1] == n_nodes
        # compared with limits, too, because the difference of extreme numbers overflows
        if not is_valid or ((starts < 0) | (starts > n_nodes)).any() or (np.diff(starts) < 1).any():
            raise ValueError(f"starts: expected rising numbers from 0 to {n_nodes}")

    def _check_inner_nodes(self, n_features: int) -> None:
        is_inner = self.features != _LEAF
        features = self.features[is_inner]
        if not ((features >= 0) & (features < n_features)).all():
            raise ValueError(f"features: expected numbers from 0 to {n_features - 1}, or {_LEAF} for a leaf")
        sizes = np.diff(self.starts)
        index_in_tree = np.arange(len(self.features)) - np.repeat(self.starts[:-1], sizes)
        size_of_tree = np.repeat(sizes, sizes)
        for name in ("left", "right"):
            child = getattr(self, name)
            if not ((child > index_in_tree) & (child < size_of_tree))[is_inner].all():
                raise ValueError(f"{name}: expected nodes of the same tree, after their parents")

    def sum_leaves(self, rows: Floats) -> Floats:
        """Return the sum of the leaf values that each row, (B, F), reaches in the trees, (B,)."""
        return np.asarray(_sum_leaves(rows, *self))


@njit(nogil=True)
def _sum_leaves(
    rows: Floats, starts: Integers, features: Integers, thresholds: Floats, left: Integers, right: Integers, values: Any
) -> Floats:
    """Return the sum of the leaf values of all trees for each row, (n,)."""
    total = np.zeros(len(rows))
    for row in range(len(rows)):
        for tree in range(len(starts) - 1):
            node = starts[tree]
            while features[node] != _LEAF:
                goes_left = rows[row, features[node]] <= thresholds[node]
                node = starts[tree] + (left[node] if goes_left else right[node])
            total[row] += values[node]
    return total
