"""Folds of the training repertoires that depend on their content alone, not on their order or a seed.

Letters: B repertoires, S strata (such as classes), U units (groups of repertoires that no fold separates).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, index_connected
from deeprc.baselines.parameters import check_whole_number
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import make_content_keys

__all__ = ["assign_grouped_folds", "assign_inner_folds"]


def assign_inner_folds(
    X: RepertoireDataset, positive: NDArray[np.bool_], n_folds: int, groups: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the fold of each repertoire, (B,) from 0, stratified by class.

    Repertoires of the same content are in the same fold. So are those of equal `groups`, (B,), if there are any; see
    `assign_grouped_folds`. If the smaller class has fewer than `n_folds` different repertoires, or is in fewer groups,
    there are only as many folds. If it has only one, all repertoires are in fold 0.

    Raises
    ------
    InputError
        If `n_folds` is not a whole number of at least 2.
    """
    check_whole_number("folds", n_folds, low=2)
    digests = make_content_keys(X)
    if groups is not None:
        return assign_grouped_folds(digests, positive.astype(np.int64), n_folds, groups=groups)
    class_of: dict[str, bool] = {}
    for digest, is_positive in zip(digests, positive.tolist(), strict=True):
        class_of[digest] = class_of.get(digest, False) or is_positive
    ordered = sorted(class_of, key=lambda digest: (class_of[digest], digest))
    n_positive = sum(class_of.values())
    n = max(1, min(n_folds, n_positive, len(ordered) - n_positive))
    fold_of = {digest: rank % n for rank, digest in enumerate(ordered)}
    return np.array([fold_of[digest] for digest in digests], np.int64)


def assign_grouped_folds(
    digests: Sequence[str],
    strata: NDArray[np.int64],
    n_folds: int,
    *,
    groups: NDArray[np.int64] | None = None,
    repeat: int = 0,
) -> NDArray[np.int64]:
    """Return the fold of each repertoire, (B,) from 0, stratified; no fold separates a group or equal repertoires.

    If a stratum is in fewer than `n_folds` units, there are as many folds as it has units. The largest units are
    assigned first, each to the fold whose share of the unit's strata is the smallest.

    Parameters
    ----------
    digests
        Digest of the content of each repertoire, (B,).
    strata
        Index of the stratum of each repertoire, from 0, (B,).
    n_folds
        Number of folds.
    groups
        Index of the group of each repertoire, (B,); None: each repertoire has its own group.
    repeat
        Index of the repeat; another index gives other folds.
    """
    unit_of = _find_units(digests, groups)
    counts = np.zeros((int(unit_of.max(initial=-1)) + 1, int(strata.max(initial=0)) + 1))  # of repertoires, (U, S)
    np.add.at(counts, (unit_of, strata), 1)
    n_units_of_stratum = (counts > 0).sum(axis=0)
    fewest_units = int(n_units_of_stratum[n_units_of_stratum > 0].min(initial=n_folds))
    keys = _digest_units(unit_of, digests, repeat)
    largest_first = sorted(range(len(counts)), key=lambda unit: (-counts[unit].sum(), keys[unit]))
    shares = counts / np.maximum(counts.sum(axis=0), 1)  # of each stratum's repertoires that a unit has, (U, S)
    return np.asarray(_fill_folds(shares, largest_first, max(1, min(n_folds, fewest_units)))[unit_of])


def _digest_units(unit_of: NDArray[np.int64], digests: Sequence[str], repeat: int) -> list[bytes]:
    """Return a digest of the content of each unit, (U,), and of `repeat`, which decides between units of one size."""
    names = [f"{repeat}"] * (int(unit_of.max(initial=-1)) + 1)
    for unit, digest in sorted(zip(unit_of.tolist(), digests, strict=True)):
        names[unit] += f" {digest}"
    return [hashlib.blake2b(name.encode(), digest_size=16).digest() for name in names]


def _fill_folds(shares: Floats, order: Sequence[int], n_folds: int) -> NDArray[np.int64]:
    """Return the fold of each unit, (U,): in this order, each is put into the fold that has least of its strata.

    `shares` are the shares of the repertoires of each stratum that each unit has, (U, S).
    """
    fold_shares = np.zeros((n_folds, shares.shape[1]))
    fold_of = np.zeros(len(shares), np.int64)
    for unit in order:
        overlap = fold_shares @ shares[unit]  # how much each fold already has of this unit's strata
        fold_of[unit] = min(range(n_folds), key=lambda fold: (overlap[fold], fold_shares[fold].sum()))
        fold_shares[fold_of[unit]] += shares[unit]
    return fold_of


def _find_units(digests: Sequence[str], groups: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return the index of each repertoire's unit, (B,): what must stay in one fold.

    Repertoires with the same group, or with the same content, are in one unit. So are those that a third connects.
    """
    _, contents = np.unique(np.array(digests), return_inverse=True)
    if groups is None:
        return np.asarray(contents, np.int64)
    _, group_of = np.unique(groups, return_inverse=True)
    shape = (int(contents.max(initial=-1)) + 1, int(group_of.max(initial=-1)) + 1)
    n_contents, n = shape[0], sum(shape)
    component_of = index_connected(np.stack([contents, group_of + n_contents]), n)
    return component_of[:n_contents][contents]
