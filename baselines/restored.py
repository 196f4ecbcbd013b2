"""Check the arrays of saved estimators: the file may be a stranger's, and compiled code reads them without any check.

Letters: J clones, R residues, M features, n features with a coefficient, S training repertoires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_matrix

from deeprc.arrays import Floats
from deeprc.datasets.alphabet import AMINO_ACIDS, MAX_LENGTH
from deeprc.documents import abbreviate

__all__ = [
    "SPARSE_PARTS",
    "check_clones",
    "check_coefficients",
    "check_dtype",
    "check_numbers",
    "check_texts",
    "restore_rows",
]

SPARSE_PARTS = ("data", "indices", "indptr")
"""The arrays of a sparse matrix."""


def check_dtype(name: str, array: NDArray[Any], dtype: DTypeLike, *, ndim: int = 1) -> None:
    """Raise ValueError if an array does not have a type and a number of dimensions."""
    if array.dtype != dtype or array.ndim != ndim:
        expected = f"{ndim} dimension{'s' if ndim > 1 else ''} of {np.dtype(dtype)}"
        raise ValueError(f"{name}: expected {expected}, found {array.dtype} {array.shape}")


def check_numbers(name: str, numbers: object, n: int) -> None:
    """Raise ValueError if an attribute is not an array of n finite numbers, (n,)."""
    found = abbreviate(numbers)
    if isinstance(numbers, np.ndarray):
        if numbers.dtype.kind in "bif" and numbers.shape == (n,) and np.isfinite(numbers).all():
            return
        found = f"{numbers.dtype} {numbers.shape}"
    raise ValueError(f"{name}: expected {n:,} finite number{'s' if n != 1 else ''}, found {found}")


def check_texts(name: str, texts: object) -> None:
    """Raise ValueError if an attribute is not an array of texts, (n,)."""
    if not (isinstance(texts, np.ndarray) and texts.dtype.kind == "U" and texts.ndim == 1):
        raise ValueError(f"{name}: expected texts, found {abbreviate(texts)}")


def check_clones(residues: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
    """Raise ValueError if residues, (R,), and offsets, (J + 1,), are no junctions; see `Sequences`."""
    check_dtype("residues", residues, np.uint8)
    check_dtype("offsets", offsets, np.int64)
    n = len(residues)
    is_within = len(offsets) >= 1 and offsets[0] == 0 and offsets[-1] == n and ((offsets >= 0) & (offsets <= n)).all()
    lengths = np.diff(offsets)
    if not is_within or ((lengths < 1) | (lengths > MAX_LENGTH)).any():
        raise ValueError(f"offsets: expected to rise from 0 to {n:,} by 1 to {MAX_LENGTH} residues a clone")
    if (residues >= len(AMINO_ACIDS)).any():
        raise ValueError(f"residues: expected values of at most {len(AMINO_ACIDS) - 1}, found {residues.max()}")


def check_coefficients(features: NDArray[np.int64], coefficients: Floats) -> None:
    """Raise ValueError if features, (n,), are no rising indices, or their coefficients, (n,), no finite numbers."""
    check_dtype("features", features, np.int64)
    check_dtype("coef", coefficients, np.float64)
    if features.shape != coefficients.shape:
        raise ValueError(f"coef: expected {features.size} numbers, found {coefficients.shape}")
    if len(features) and (features[0] < 0 or (features[1:] <= features[:-1]).any()):
        raise ValueError("features: expected indices from 0 in rising order")
    if not np.isfinite(coefficients).all():
        raise ValueError("coef: expected finite numbers")


def restore_rows(arrays: Mapping[str, NDArray[Any]], name: str, n_features: int) -> NDArray[np.float32] | csr_matrix:
    """Return the rows, (S, M), that are saved as one array, or as `SPARSE_PARTS` if they are sparse.

    Raises
    ------
    ValueError
        If they are not such rows, or not finite.
    """
    if name in arrays:
        rows: Any = arrays[name]
        check_dtype(name, rows, np.float32, ndim=2)
        values, shape = rows, rows.shape
    else:
        values, indices, starts = (arrays[f"{name}.{part}"] for part in SPARSE_PARTS)
        check_dtype(f"{name}.data", values, np.float32)
        rows = csr_matrix((values, indices, starts), shape=(max(len(starts) - 1, 0), n_features))
        rows.check_format(full_check=True)
        shape = rows.shape
    if shape[1] != n_features:
        raise ValueError(f"{name}: expected rows of {n_features:,} numbers, found {shape[1]:,}")
    if not (values >= 0).all() or not np.isfinite(values).all():
        raise ValueError(f"{name}: expected finite numbers of at least 0")
    return rows
