"""The split of the repertoires of an estimator into those to learn from and those for early stopping.

Letters: B repertoires.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold, train_test_split

from deeprc.groups import shuffle_groups
from deeprc.training.labelled_repertoires import LabelledRepertoires

__all__ = ["split_repertoires"]

_MAX_FRACTION_OF_DONORS = 0.5  # largest `validation_fraction` if donors stay together


def split_repertoires(
    repertoires: LabelledRepertoires, fraction: float, *, stratify: bool, seed: int
) -> tuple[LabelledRepertoires, LabelledRepertoires]:
    """Split repertoires into those to learn from and those for early stopping; their order has no effect.

    Parameters
    ----------
    repertoires
        B repertoires with one task. Those with equal groups stay together.
    fraction
        Share of the repertoires that are for early stopping: at least one repertoire, or one of each class. If they
        have groups, the share is only about this one, because donors are not divided.
    stratify
        Whether labels are classes, whose shares both parts keep.
    seed
        Seed of the split.

    Raises
    ------
    ValueError
        If too few repertoires are left to learn from, a class has one repertoire only (with groups: each class), or
        there are groups and the fraction is above 0.5.
    """
    repertoires = repertoires.take_labelled_in_order()
    n, labels = len(repertoires.labels), repertoires.labels[:, 0]
    class_sizes = np.unique(labels, return_counts=True)[1] if stratify else np.array([n])
    n_held_out = max(len(class_sizes), round(fraction * n))
    if repertoires.groups is None:
        if class_sizes.min() < 2:
            raise ValueError("y: expected at least two repertoires of each class, found one")
        _check_enough_left(n - n_held_out, fraction, class_sizes)
        strata = labels if stratify else None
        parts = train_test_split(np.arange(n), test_size=n_held_out, stratify=strata, random_state=seed)
    else:
        _check_donors_can_be_split(fraction, class_sizes, stratify=stratify)
        split = _split_donors_by_class if stratify else _split_donors
        parts = split(repertoires.groups, labels, n_held_out, seed)
    train, held_out = (repertoires.take(part) for part in parts)
    return train, held_out


def _check_donors_can_be_split(fraction: float, class_sizes: NDArray[np.int64], *, stratify: bool) -> None:
    """Raise ValueError if too few donors would be left to learn from."""
    if fraction > _MAX_FRACTION_OF_DONORS:
        raise ValueError(
            f"validation_fraction: expected at most {_MAX_FRACTION_OF_DONORS} with groups, found {fraction}"
        )
    if stratify and class_sizes.max() < 2:
        raise ValueError("y: expected a class of at least two repertoires, found one repertoire of each class")


def _check_enough_left(n_left: int, fraction: float, class_sizes: NDArray[np.int64]) -> None:
    """Raise ValueError if too few repertoires are left to learn from."""
    if n_left < len(class_sizes):
        raise ValueError(
            f"validation_fraction: expected a share that leaves at least {len(class_sizes)} of {class_sizes.sum()} "
            f"repertoires to learn from, found {fraction}, which leaves {n_left}"
        )


def _split_donors(
    groups: NDArray[np.int64], labels: NDArray[np.float64], n_held_out: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions to learn from, and about `n_held_out` positions of other groups."""
    share = min(_MAX_FRACTION_OF_DONORS, n_held_out / len(labels))
    train, held_out = next(GroupShuffleSplit(1, test_size=share, random_state=seed).split(labels, groups=groups))
    return train, held_out


def _split_donors_by_class(
    groups: NDArray[np.int64], labels: NDArray[np.float64], n_held_out: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions to learn from, and about `n_held_out` positions of other groups.

    If possible, both have a repertoire of each class, otherwise those to learn from.
    """
    n_folds = min(len(np.unique(groups)), max(2, round(len(groups) / n_held_out)))
    with warnings.catch_warnings():  # a class may be missing in some folds, because one fold is chosen
        warnings.filterwarnings("ignore", "The least populated class in y", UserWarning)
        splits = list(StratifiedGroupKFold(n_folds).split(groups, labels, shuffle_groups(groups, seed)))
    n_classes = len(np.unique(labels))
    has_each_class = [[len(np.unique(labels[part])) == n_classes for part in split] for split in splits]
    best = max(range(n_folds), key=has_each_class.__getitem__)  # the first of equal ones
    train, held_out = splits[best]
    return train, held_out
