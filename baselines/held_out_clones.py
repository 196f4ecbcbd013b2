"""How many associated clones each training repertoire carries, if these are chosen without some of the folds.

One pass over the clones gives it for all folds and thresholds.

Letters: B repertoires, D different ones, F folds, S sets of repertoires that clones are chosen on, T thresholds.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.association import critical_carriers
from deeprc.baselines.carriers import in_parts
from deeprc.compilation import njit
from deeprc.datasets.clones import Clones
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["held_out_counts"]

_LEAST = 2  # repertoires that carry a clone, among those it is chosen on


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

    The last axis says which fold is held out, to be tested on; the last of them is none. Clones are chosen without it
    and, with `cross_fit`, without the repertoire's own fold: no repertoire counts clones that were chosen on it. (With
    two folds, the own one stays where the other is held out.)

    Parameters
    ----------
    clones
        Of the container of X.
    X, positive, folds
        The training repertoires, their classes and their folds from 0, (B,).
    thresholds
        Of p-values, loosest first, (T,).
    """
    n_folds = int(folds.max()) + 1
    left_out, chosen_on = _sets(n_folds, cross_fit)
    needed = np.full((len(left_out), len(thresholds), len(X) + 1), len(X) + 1, np.int64)
    for number, without in enumerate(left_out):
        kept = ~without[folds]
        needed[number, :, : int(kept.sum()) + 1] = critical_carriers(
            thresholds, int(positive[kept].sum()), int(kept.sum())
        )
    rows, place = np.unique(X.rows, return_inverse=True)
    own = np.full(len(X.container.repertoire_ids), -1)
    own[rows] = np.arange(len(rows))
    fold = np.zeros(len(rows), np.int64)
    fold[place] = folds
    every, of_positive = np.bincount(place), np.bincount(place[positive], minlength=len(rows))
    work = partial(_count_part, clones, own, (fold, of_positive, every), left_out, needed, chosen_on)
    counts = np.zeros((len(rows), n_folds + 1, len(thresholds)), np.int64)
    for part in in_parts(work, len(clones)):
        counts += part
    passed = counts[:, :, ::-1].cumsum(axis=2)[:, :, ::-1]  # what passes a strict threshold passes the looser ones
    return np.ascontiguousarray(np.moveaxis(passed[place], 2, 0))


def _sets(n_folds: int, cross_fit: bool) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which folds each set leaves out, (S, F), and the set by the fold held out and the own one, (F + 1, F)."""
    numbers: dict[frozenset[int], int] = {}
    chosen_on = np.zeros((n_folds + 1, n_folds), np.int64)
    for held_out in range(n_folds + 1):
        for own in range(n_folds):
            rest = n_folds > 2 or held_out == n_folds  # of two folds, something has to be left
            without = ({held_out} - {n_folds}) | ({own} if cross_fit and rest else set())
            chosen_on[held_out, own] = numbers.setdefault(frozenset(without), len(numbers))
    left_out = np.zeros((len(numbers), n_folds), bool)
    for without_folds, number in numbers.items():
        left_out[number, list(without_folds)] = True
    return left_out, chosen_on


def _count_part(
    clones: Clones,
    own: NDArray[np.int64],
    of_row: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    left_out: NDArray[np.bool_],
    needed: NDArray[np.int64],
    chosen_on: NDArray[np.int64],
    start: int,
    stop: int,
) -> NDArray[np.int64]:
    counts = np.zeros((len(of_row[0]), len(chosen_on), needed.shape[1]), np.int64)
    bounds = clones.offsets[start : stop + 1]
    _count(bounds, clones.repertoires, own, *of_row, left_out, needed, chosen_on, counts)
    return counts


@njit(nogil=True)
def _count(
    offsets: NDArray[np.int64],
    repertoires: NDArray[np.int32],
    own: NDArray[np.int64],
    fold: NDArray[np.int64],
    of_positive: NDArray[np.int64],
    every: NDArray[np.int64],
    left_out: NDArray[np.bool_],
    needed: NDArray[np.int64],
    chosen_on: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Add to counts, (D, F + 1, T), the clones whose strictest threshold is t.

    `own` is a container's repertoire's number among the D different training ones, or -1; `fold`, `of_positive` and
    `every`, (D,), are their folds and how often they are among the positive ones and among all; `needed` (S, T, B + 1)
    how many positive carriers make a clone with so many carriers pass.
    """
    n_sets, n_folds = left_out.shape
    least = needed.min()
    passed = np.zeros(n_sets, np.int64)
    a, n, different = np.zeros(n_folds, np.int64), np.zeros(n_folds, np.int64), np.zeros(n_folds, np.int64)
    for clone in range(len(offsets) - 1):
        a[:], n[:], different[:] = 0, 0, 0
        for place in range(offsets[clone], offsets[clone + 1]):
            row = own[repertoires[place]]
            if row >= 0:
                a[fold[row]] += of_positive[row]
                n[fold[row]] += every[row]
                different[fold[row]] += 1
        if a.sum() < least:
            continue
        for number in range(n_sets):
            a_kept = n_kept = different_kept = 0
            for i in range(n_folds):
                if not left_out[number, i]:
                    a_kept += a[i]
                    n_kept += n[i]
                    different_kept += different[i]
            passed[number] = 0
            if different_kept >= _LEAST:
                while passed[number] < needed.shape[1] and a_kept >= needed[number, passed[number], n_kept]:
                    passed[number] += 1
        if passed.max() > 0:
            for place in range(offsets[clone], offsets[clone + 1]):
                row = own[repertoires[place]]
                if row >= 0:
                    for held_out in range(n_folds + 1):
                        strictest = passed[chosen_on[held_out, fold[row]]] - 1
                        if strictest >= 0:
                            counts[row, held_out, strictest] += 1
