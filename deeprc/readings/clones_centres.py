"""Search for centres: clones whose near neighbours, with one substitution, may count as the clone itself.

A clone is a candidate if its exact carriers are weakly associated with the label. The sequences within one substitution
of it are its ball. A selection is a set of folds that are not held out. In each selection, a centre is retrieved
exactly or by its ball, whichever has the smaller p-value; overlapping balls are counted once. A centre counts only in a
selection in which its exact carriers are weakly associated with the label. Otherwise held-out repertoires would have an
influence on its selection.

Letters: J centres, D different training repertoires, F folds, S selections, T thresholds, B training repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.carriers import MIN_CARRIERS
from deeprc.baselines.held_out_clones import (
    FoldedRepertoires,
    Selections,
    count_by_threshold,
    find_critical_sums,
    find_passing_clones,
)
from deeprc.compilation import njit
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.clone_groups import Clones
from deeprc.datasets.clone_neighbours import NeighbourSearch, find_neighbours
from deeprc.datasets.clone_set import CloneSet
from deeprc.datasets.clones import take_sequences
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.readings.clones_searches import CloneSearch

__all__ = ["Centres", "Chosen", "choose_centres", "compute_content_order", "count_centres", "find_centres"]

_LOOSE = (0.02, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)  # levels of candidates; the first with few clones is used
_MAX_CENTRES = 20_000  # largest number of centres of all searches together, in each selection
_BALL_FACTOR = 3.0  # factor of the p-value of a ball, because a candidate with its ball is tested once more
_NONE, _EXACT, _BALL = -1, 0, 1

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Centres:
    """The centres of all searches, ordered by content, and their carriers.

    Attributes
    ----------
    clones
        The J centres.
    levels
        Level of each search: the p-value that a centre must have with its exact carriers, by selection, (S + 1,). The
        last selection leaves no fold out.
    rows
        Rows of the different repertoires in the container, ascending, (D,).
    offsets, carried, is_exact
        Centres that repertoire d carries, each once: carried[offsets[d]:offsets[d + 1]], and whether it carries each
        exactly or only within its ball.
    near_offsets, near
        Centres within one substitution of centre j: near[near_offsets[j]:near_offsets[j + 1]].
    """

    clones: CloneSet
    levels: Sequence[Floats]
    rows: Integers
    offsets: Integers
    carried: NDArray[np.int32]
    is_exact: NDArray[np.bool_]
    near_offsets: Integers
    near: Integers


class Chosen(NamedTuple):
    """The centres that are retrieved in one selection.

    Attributes
    ----------
    modes
        How each centre is retrieved, (J,): -1 not at all, 0 exactly, 1 by its ball.
    p_values
        P-value of each centre in its mode, 1 if it is not retrieved, (J,).
    label_sums, n_carriers
        Sum of the labels of the carriers of each centre in its mode, and number of the carriers, (J,) each.
    """

    modes: Integers
    p_values: Floats
    label_sums: Integers
    n_carriers: Integers


def find_centres(
    dataset: RepertoireDataset, clones: Clones, searches: Sequence[CloneSearch], fields: Sequence[str]
) -> Centres:
    """Return the centres of all searches, after one pass over the repertoires.

    Parameters
    ----------
    dataset
        Training repertoires.
    clones
        Clones that repertoires of the container share.
    searches
        Searches of which centres are found.
    fields
        Gene fields that are part of a clone.
    """
    limit = max(1, _MAX_CENTRES // max(1, len(searches)))
    found = [_find_candidates(clones, search, limit) for search in searches]
    indices = np.unique(np.concatenate([np.zeros(0, np.int64), *(each[0] for each in found)]))
    centres = CloneSet(take_sequences(dataset, clones.representative[indices], fields))
    centres = centres.take(compute_content_order(centres))
    rows, first = np.unique(dataset.rows, return_index=True)
    carried, is_exact, sizes = [np.zeros(0, np.int32)], [np.zeros(0, bool)], np.zeros(len(rows), np.int64)
    for place, neighbours in enumerate(find_neighbours(centres, dataset[first])):
        kinds = np.zeros(len(centres), np.uint8)
        kinds[neighbours.clones] = 1
        kinds[neighbours.clones[neighbours.mismatches == 0]] = 2
        own = np.flatnonzero(kinds)
        sizes[place] = len(own)
        carried.append(own.astype(np.int32))
        is_exact.append(kinds[own] == 2)
    near_offsets, near = _adjacency(centres)
    levels = [each[1] for each in found]
    joined = np.concatenate(carried), np.concatenate(is_exact)
    return Centres(centres, levels, rows, compute_offsets(sizes), *joined, near_offsets, near)


def _mark_left_out(search: CloneSearch) -> NDArray[np.bool_]:
    """Return whether each selection leaves out each fold, (S + 1, F); the last one leaves out none."""
    return np.concatenate([Selections.of(search.n_folds).left_out, np.zeros((1, search.n_folds), bool)])


def _find_candidates(clones: Clones, search: CloneSearch, limit: int) -> tuple[Integers, Floats]:
    """Return the indices of the candidates among all clones, and the level of each selection, (S + 1,)."""
    left_out = _mark_left_out(search)
    repertoires = FoldedRepertoires.of(search.X, search.carriers, search.folds)
    needed = find_critical_sums(left_out, repertoires, _LOOSE, search.test)
    indices, passed = find_passing_clones(clones, repertoires, left_out, needed)
    n_passing = np.stack([(passed > level).sum(axis=0) for level in range(len(_LOOSE))])  # (levels, S + 1)
    level = np.minimum((n_passing > limit).sum(axis=0), len(_LOOSE) - 1)
    return indices[(passed > level).any(axis=1)], np.array(_LOOSE)[level]


def compute_content_order(clones: CloneSet) -> Integers:
    """Return the order of clones, (J,), by sequences and genes, which does not depend on their present order."""
    columns = [clones.sequences.decode(), *(calls.names().tolist() for calls in clones.sequences.genes.values())]
    keys = list(zip(*columns, strict=True))
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def _adjacency(clones: CloneSet) -> tuple[Integers, Integers]:
    """Return the clones within one substitution of each clone, as offsets (J + 1,) and indices."""
    search = NeighbourSearch(clones)
    vocabularies = {field: calls.vocabulary for field, calls in clones.sequences.genes.items()}
    arrays, is_known = clones.encode_genes(vocabularies)
    pairs = search.find(arrays, search.make_table(arrays, is_known), 0, len(clones))
    differ = pairs.mismatches == 1
    return compute_offsets(np.bincount(pairs.rows[differ], minlength=len(clones))), pairs.clones[differ]


def choose_centres(
    centres: Centres, search: CloneSearch, repertoires: FoldedRepertoires, sums: Integers, index: int, level: float
) -> Chosen:
    """Return the centres that are retrieved in one selection.

    Parameters
    ----------
    centres, search, repertoires
        Centres, one of their searches, and its repertoires.
    sums
        Sums from `_sum_by_fold`, (2, 3, J, F).
    index
        Index of the selection; the last one leaves no fold out.
    level
        Level of the selection, see `Centres.levels`.
    """
    left_out = _mark_left_out(search)[index]
    kept = repertoires.labels[~left_out[repertoires.folds_of_labels]]
    total = sums[..., ~left_out].sum(axis=3)  # (2, 3, J)
    exact, ball = (search.test.p_values(total[mode, 0], total[mode, 1], kept) for mode in (_EXACT, _BALL))
    is_candidate = (exact < level) & (total[_EXACT, 2] >= MIN_CARRIERS)
    items = np.where(is_candidate, [exact, np.minimum(_BALL_FACTOR * ball, 1.0)], 1.0)  # (2, J)
    order = np.argsort(items, axis=None, kind="stable")  # among equal p-values, exact ones are first
    order = order[items.ravel()[order] < 1]
    modes = np.full(len(is_candidate), _NONE, np.int64)
    _retrieve(order, centres.near_offsets, centres.near, modes)
    columns = modes.clip(0), np.arange(len(modes))
    return Chosen(modes, np.where(modes >= 0, items[columns], 1.0), total[:, 0][columns], total[:, 1][columns])


def count_centres(
    centres: Centres, search: CloneSearch, levels: Floats, thresholds: Sequence[float]
) -> tuple[Integers, Chosen]:
    """Return the number of retrieved centres in each repertoire, (T, B, F + 1), and the centres without held-out folds.

    The last axis is the fold that is held out, as in `count_held_out_clones`.

    Parameters
    ----------
    centres, search
        Centres, and one of their searches.
    levels
        Levels of the search, see `Centres.levels`.
    thresholds
        Largest p-values of a centre, descending, (T,).
    """
    repertoires = FoldedRepertoires.of(search.X, search.carriers, search.folds)
    places = np.searchsorted(centres.rows, np.unique(search.X.rows))  # rows of the D different repertoires
    sums = np.zeros((2, 3, len(centres.clones), search.n_folds), np.int64)
    order = np.argsort(repertoires.carrier, kind="stable")
    _sum_by_fold(centres.offsets, centres.carried, centres.is_exact, places, order, repertoires, sums)
    selections = Selections.of(search.n_folds)
    counts = np.zeros((len(places), search.n_folds + 1, len(thresholds)), np.int64)
    for selection in range(len(selections.left_out)):
        chosen = choose_centres(centres, search, repertoires, sums, selection, float(levels[selection]))
        passed = (chosen.p_values[:, None] < np.asarray(thresholds)).sum(axis=1)
        for held_out, fold in np.argwhere(selections.of_fold == selection).tolist():
            some = np.flatnonzero(repertoires.fold == fold)
            arrays = centres.offsets, centres.carried, centres.is_exact
            _count(*arrays, places, some, chosen.modes, passed, counts[:, held_out])
    final = choose_centres(centres, search, repertoires, sums, len(selections.left_out), float(levels[-1]))
    return count_by_threshold(counts, repertoires, search.X), final


@njit(nogil=True)
def _retrieve(order: Integers, near_offsets: Integers, near: Integers, modes: Integers) -> None:
    """Write the modes of centres, (J,), so that no centre counts twice.

    `order` has indices of exact matches, j, and of balls, J + j, best first. A ball is not retrieved if a neighbour of
    its centre is retrieved; a centre is not retrieved if it lies in a retrieved ball. Balls whose centres differ by two
    substitutions may still share a sequence.
    """
    n = len(modes)
    for item in order:
        centre, mode = item % n, item // n
        if modes[centre] != _NONE:
            continue
        overlaps = False
        for i in range(near_offsets[centre], near_offsets[centre + 1]):
            other = modes[near[i]]
            if other == _BALL or (mode == _BALL and other == _EXACT):
                overlaps = True
        if not overlaps:
            modes[centre] = mode


@njit(nogil=True)
def _sum_by_fold(
    offsets: Integers,
    carried: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    places: Integers,
    order: Integers,
    repertoires: FoldedRepertoires,
    sums: Integers,
) -> None:
    """Add to `sums`, (2, 3, J, F), for exact matches and balls: sum of labels, number of all and of different carriers.

    `order` lists the D repertoires carrier by carrier, because each carrier counts once for a centre.
    """
    last_seen = np.full((2, sums.shape[2]), -1, np.int64)  # last carrier that was counted for each centre
    for d in order:
        fold, carrier = repertoires.fold[d], repertoires.carrier[d]
        for i in range(offsets[places[d]], offsets[places[d] + 1]):
            for mode in range(0 if is_exact[i] else 1, 2):
                if last_seen[mode, carried[i]] != carrier:
                    last_seen[mode, carried[i]] = carrier
                    sums[mode, 0, carried[i], fold] += repertoires.label_sum[carrier]
                    sums[mode, 1, carried[i], fold] += repertoires.n_all[carrier]
                    sums[mode, 2, carried[i], fold] += 1


@njit(nogil=True)
def _count(
    offsets: Integers,
    carried: NDArray[np.int32],
    is_exact: NDArray[np.bool_],
    places: Integers,
    some: Integers,
    modes: Integers,
    passed: Integers,
    counts: Integers,
) -> None:
    """Count the retrieved centres of some repertoires, by the strictest threshold that a centre passes, (D, T)."""
    for d in some:
        for i in range(offsets[places[d]], offsets[places[d] + 1]):
            centre = carried[i]
            if passed[centre] > 0 and (is_exact[i] or modes[centre] == _BALL):
                counts[d, passed[centre] - 1] += 1
