"""Multiple-instance data sets: bags of instances end to end, read from `.mat` or CSV files.

Letters: N instances of all bags end to end, F features, B bags.
"""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse
from numpy.typing import NDArray

from deeprc.errors import InputError

__all__ = ["DATASETS", "Bags", "read_bags"]

DATASETS = {
    "elephant": "elephant_100x100.mat",
    "fox": "fox_100x100.mat",
    "tiger": "tiger_100x100.mat",
    "musk1": "musk1.csv",
    "musk2": "musk2.csv",
    "ucsb": "ucsb_breast_cancer.csv",
}
_OPENERS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.decompress, ".xz": lzma.decompress}
_BROKEN = (OSError, EOFError, ValueError, KeyError, TypeError, NotImplementedError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Bags:
    """Bags of instances, end to end.

    Attributes
    ----------
    features
        Features of the instances, (N, F) float32.
    offsets
        Offsets of the bags, (B + 1,) int64: bag b is features[offsets[b]:offsets[b + 1]], and none is empty.
    labels
        Labels of the bags, (B,) float32: 1 if positive, else 0.
    """

    features: NDArray[np.float32]
    offsets: NDArray[np.int64]
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: NDArray[np.int64], keep: NDArray[np.bool_] | None = None) -> Bags:
        """Return the chosen bags, in this order; with `keep`, (N,), only with the instances for which it is True."""
        sizes = np.diff(self.offsets)[chosen]
        ends = np.cumsum(sizes)
        rows = np.repeat(self.offsets[chosen] - (ends - sizes), sizes) + np.arange(sizes.sum())
        if keep is not None:
            kept = keep[rows]
            ends = np.cumsum(kept)[ends - 1]
            rows = rows[kept]
        return Bags(self.features[rows], np.concatenate([[0], ends]), self.labels[chosen])


def read_bags(folder: Path, dataset: str) -> Bags:
    """Read a data set from a folder, by the name of its file: plain, `.gz` or `.xz`.

    Raises
    ------
    InputError
        If there is no such file, or its content is not as expected.
    """
    name = DATASETS[dataset]
    found = [(folder / (name + ending), unpack) for ending, unpack in _OPENERS.items()]
    path, unpack = next(((path, unpack) for path, unpack in found if path.is_file()), (None, None))
    if path is None or unpack is None:
        raise InputError(f"{folder}: expected {name}, {name}.gz or {name}.xz for the data set {dataset}, found none")
    try:
        content = unpack(path.read_bytes())
        features, ids, labels = _read_mat(content) if name.endswith(".mat") else _read_csv(content)
    except _BROKEN as error:
        raise InputError(f"{path}: cannot be read as {name}: {error}") from error
    if not np.isfinite(features).all():
        raise InputError(f"{path}: expected a number for each feature, found some that are none")
    bags = _sort_by_bag(features, ids, labels)
    if not 0 < bags.labels.sum() < len(bags):
        raise InputError(f"{path}: expected positive and negative bags, found {len(bags)} bags of one kind")
    return bags


def _read_mat(content: bytes) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """Read features (N, F), bag ids and labels (N,) from sparse matrices with an instance per row."""
    table = scipy.io.loadmat(io.BytesIO(content), variable_names=["features", "bag_ids", "labels"])
    features, ids, labels = (_convert_to_dense(table[key]) for key in ("features", "bag_ids", "labels"))
    if not len(features) == ids.size == labels.size:
        raise ValueError(f"expected a bag id and a label for each of {len(features)} instances")
    return features, ids.ravel().astype(np.int64), labels.ravel() > 0  # converted, because ids may be stored as uint8


def _convert_to_dense(matrix: scipy.sparse.spmatrix | NDArray[np.generic]) -> NDArray[np.float64]:
    return np.asarray(matrix.toarray() if scipy.sparse.issparse(matrix) else matrix, dtype=np.float64)


def _read_csv(content: bytes) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """Read rows of label, bag id, features, without a header."""
    table = pd.read_csv(io.BytesIO(content), header=None).to_numpy(dtype=np.float64)
    if table.shape[1] < 3:
        raise ValueError(f"expected columns for label, bag id and features, found {table.shape[1]}")
    return table[:, 2:], table[:, 1].astype(np.int64), table[:, 0] > 0


def _sort_by_bag(features: NDArray[np.float64], ids: NDArray[np.int64], labels: NDArray[np.bool_]) -> Bags:
    """Sort the instances by bag; a bag is positive if any of its instances is."""
    order = np.argsort(ids, kind="stable")
    sizes = np.unique(ids, return_counts=True)[1]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    positive = np.logical_or.reduceat(labels[order], offsets[:-1])
    return Bags(features[order].astype(np.float32), offsets, positive.astype(np.float32))
