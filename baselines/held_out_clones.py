"""How many associated clones each training repertoire carries, if the clones are selected without some of the folds.

One pass over the clones gives the counts for all folds and thresholds.

Letters: B training repertoires, D different ones among them, F folds, S selections (sets of folds on which clones are
selected), T thresholds.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.association import critical_carriers
from deeprc.baselines.carriers import MIN_CARRIERS, in_parts
from deeprc.compilation import njit
from deeprc.datasets.clones import Clones
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["held_out_counts"]


class _Repertoires(NamedTuple):
    """The D different training repertoires.

    Attributes
    ----------
    index_of
        Index of each repertoire of the container among them, or -1.
    fold
        Their folds, (D,).
    n_positive, n_all
        How often each of them is among the positive and among all training repertoires, (D,) each.
    """

    index_of: NDArray[np.int64]
    fold: NDArray[np.int64]
    n_positive: NDArray[np.int64]
    n_all: NDArray[np.int64]


class _Selections(NamedTuple):
    """The sets of folds on which clones are selected.

    Attributes
    ----------
    left_out
        Which folds each selection leaves out, (S, F).
    needed
        How many positive carriers a clone needs to pass a threshold, by its number of carriers, (S, T, B + 1).
    of_fold
        The selection whose clones are counted, by the fold that is held out and the repertoire's own fold, (F + 1, F).
    """

    left_out: NDArray[np.bool_]
    needed: NDArray[np.int64]
    of_fold: NDArray[np.int64]


def held_out_counts(
    clones: Clones,
    X: RepertoireDataset,
    positive: NDArray[np.bool_],
    folds: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    *,
    cross_fit: bool,
) -> NDArray[np.int64]:
    """Return how many associated clones each repertoire carries, (T, B, F + 1).

    The last axis is the fold that is held out to test on; its last entry holds out none. Clones are selected without
    the held-out fold. With `cross_fit` they are also selected without the repertoire's own fold, so that no repertoire
    counts clones that were selected on it. (With two folds, the own fold stays if the other one is held out.)

    Parameters
    ----------
    clones
        The clones of the container of X.
    X, positive, folds
        The training repertoires, whether each is of the second class, and their folds from 0, (B,) each.
    thresholds
        Largest p-values of an associated clone, in falling order, (T,).
    """
    selections = _select(folds, positive, thresholds, cross_fit)
    rows, inverse = np.unique(X.rows, return_inverse=True)
    index = np.full(len(X.container.repertoire_ids), -1)
    index[rows] = np.arange(len(rows))
    fold = np.zeros(len(rows), np.int64)
    fold[inverse] = folds
    n_positive = np.bincount(inverse[positive], minlength=len(rows))
    repertoires = _Repertoires(index, fold, n_positive, np.bincount(inverse))
    counts = np.zeros((len(rows), len(selections.of_fold), len(thresholds)), np.int64)
    for part in in_parts(partial(_count_part, clones, repertoires, selections), len(clones)):
        counts += part
    passed = counts[:, :, ::-1].cumsum(axis=2)[:, :, ::-1]  # what passes a strict threshold passes the looser ones
    return np.ascontiguousarray(np.moveaxis(passed[inverse], 2, 0))


def _select(
    folds: NDArray[np.int64], positive: NDArray[np.bool_], thresholds: NDArray[np.float64], cross_fit: bool
) -> _Selections:
    """Return all selections that are needed for training repertoires with these folds and classes, (B,) each."""
    n_folds = int(folds.max()) + 1
    index_of: dict[frozenset[int], int] = {}
    of_fold = np.zeros((n_folds + 1, n_folds), np.int64)
    for held_out in range(n_folds + 1):
        for own in range(n_folds):
            leaves_some = n_folds > 2 or held_out == n_folds  # without both of two folds, nothing would be left
            without = ({held_out} - {n_folds}) | ({own} if cross_fit and leaves_some else set())
            of_fold[held_out, own] = index_of.setdefault(frozenset(without), len(index_of))
    left_out = np.zeros((len(index_of), n_folds), bool)
    needed = np.full((len(index_of), len(thresholds), len(folds) + 1), len(folds) + 1, np.int64)
    for without_folds, selection in index_of.items():
        left_out[selection, list(without_folds)] = True
        kept = ~left_out[selection][folds]
        n_positive, n_all = int(positive[kept].sum()), int(kept.sum())
        needed[selection, :, : n_all + 1] = critical_carriers(thresholds, n_positive, n_all)
    return _Selections(left_out, needed, of_fold)


def _count_part(
    clones: Clones, repertoires: _Repertoires, selections: _Selections, start: int, stop: int
) -> NDArray[np.int64]:
    counts = np.zeros((len(repertoires.fold), len(selections.of_fold), selections.needed.shape[1]), np.int64)
    _count(clones.offsets[start : stop + 1], clones.repertoires, repertoires, selections, counts)
    return counts


@njit(nogil=True)
def _count(
    offsets: NDArray[np.int64],
    carriers: NDArray[np.int32],
    repertoires: _Repertoires,
    selections: _Selections,
    counts: NDArray[np.int64],
) -> None:
    """Add to `counts`, (D, F + 1, T), each clone at the strictest threshold that it passes.

    The carriers of a clone, as rows of the container, are `carriers[offsets[clone] : offsets[clone + 1]]`.
    """
    index, fold, n_positive, n_all = repertoires
    left_out, needed, of_fold = selections
    n_selections, n_folds = left_out.shape
    least = needed.min()
    passed = np.zeros(n_selections, np.int64)
    a, n, different = np.zeros(n_folds, np.int64), np.zeros(n_folds, np.int64), np.zeros(n_folds, np.int64)
    for clone in range(len(offsets) - 1):
        a[:], n[:], different[:] = 0, 0, 0
        for i in range(offsets[clone], offsets[clone + 1]):
            row = index[carriers[i]]
            if row >= 0:
                a[fold[row]] += n_positive[row]
                n[fold[row]] += n_all[row]
                different[fold[row]] += 1
        if a.sum() < least:
            continue
        for selection in range(n_selections):
            a_kept = n_kept = different_kept = 0
            for f in range(n_folds):
                if not left_out[selection, f]:
                    a_kept += a[f]
                    n_kept += n[f]
                    different_kept += different[f]
            passed[selection] = 0
            if different_kept >= MIN_CARRIERS:
                while passed[selection] < needed.shape[1] and a_kept >= needed[selection, passed[selection], n_kept]:
                    passed[selection] += 1
        if passed.max() > 0:
            for i in range(offsets[clone], offsets[clone + 1]):
                row = index[carriers[i]]
                if row >= 0:
                    for held_out in range(n_folds + 1):
                        strictest = passed[of_fold[held_out, fold[row]]] - 1
                        if strictest >= 0:
                            counts[row, held_out, strictest] += 1
