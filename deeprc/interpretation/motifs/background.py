"""Choice of the sequences for a search for motifs: different attended sequences, and a background of others."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.progress import track

__all__ = ["draw_compared_sequences", "draw_other_sequences", "find_unique_rows", "match_lengths"]

_POOL = 4  # factor by which more sequences are drawn than wanted, to choose those of the right lengths from them
_MATCHED = 0.9  # smallest share of the wanted numbers by length that the background should reach
_MIN_EACH = 5  # up to so many background sequences per attended one, lengths may differ in their distribution
_ENOUGH_EACH = 10  # if there are fewer background sequences per attended one, those of the nearest lengths are added


def find_unique_rows(sequences: pd.DataFrame, change: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the row with the largest change of each different `junction_aa`, sorted by `junction_aa`."""
    table = sequences[["junction_aa", "repertoire_id", "sequence_id"]].reset_index(drop=True)
    table["size"] = -np.abs(np.nan_to_num(change))
    ordered = table.sort_values(["junction_aa", "size", "repertoire_id", "sequence_id"], kind="stable")
    return np.asarray(ordered.index[~ordered["junction_aa"].duplicated()], np.int64)


def draw_compared_sequences(
    attended: list[str], dataset: RepertoireDataset, *, background: int, seed: int
) -> ComparedSequences:
    """Return the attended sequences and at most `background` others of the cohort; see `draw_other_sequences`."""
    others = draw_other_sequences(dataset, attended, max_sequences=background, seed=seed)
    return ComparedSequences.of(attended, others)


def draw_other_sequences(
    dataset: RepertoireDataset, attended: list[str], *, max_sequences: int, seed: int
) -> list[str]:
    """Draw different sequences to compare the attended ones with, which are left out.

    Each repertoire gives about equally many, and their lengths are similar to those of the attended sequences.
    """
    rng = np.random.default_rng(seed)
    n_each = -(-_POOL * max_sequences // max(1, len(dataset)))
    pool: set[str] = set()
    for position in track(range(len(dataset)), "drawing sequences to compare with", len(dataset)):
        repertoire = dataset[position]
        rows = rng.choice(len(repertoire), min(n_each, len(repertoire)), replace=False, shuffle=False)
        pool.update(repertoire.to_frame(np.sort(rows))["junction_aa"])
    others = sorted(pool - set(attended))
    chosen = match_lengths(
        np.array([*map(len, attended)], np.int64),
        np.array([*map(len, others)], np.int64),
        max_rows=max_sequences,
        rng=rng,
    )
    return [others[row] for row in chosen]


def match_lengths(
    wanted: NDArray[np.int64], available: NDArray[np.int64], *, max_rows: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return at most `max_rows` indices into `available`, ascending, whose lengths are distributed like `wanted`.

    If some lengths are rare, fewer sequences of the other lengths are taken, too, as long as there are 5 per wanted
    one. If this gives fewer than 10 per wanted one, sequences of the nearest lengths are added. They are needed because
    the few other sequences of a rare length may all carry the motif that made them so long.
    """
    if not len(wanted) or not len(available):
        return np.zeros(0, np.int64)
    longest = int(max(wanted.max(), available.max()))
    n_wanted, n_available = (np.bincount(lengths, minlength=longest + 1) for lengths in (wanted, available))
    n_each = _choose_number_per_wanted(n_wanted, n_available, max_rows / len(wanted))
    n_taken = np.minimum(n_available, np.floor(n_each * n_wanted + 1e-9).astype(np.int64))
    keys = rng.random(len(available))
    order = np.lexsort((keys, available))
    index_in_length = np.arange(len(order)) - np.repeat(np.cumsum(n_available) - n_available, n_available)
    is_taken = np.zeros(len(available), bool)
    is_taken[order[index_in_length < n_taken[available[order]]]] = True
    n_missing = min(_ENOUGH_EACH * len(wanted), max_rows) - int(is_taken.sum())
    if n_missing > 0:
        distance = np.abs(np.arange(longest + 1)[:, None] - np.flatnonzero(n_wanted)).min(axis=1)[available]
        is_taken[np.lexsort((keys, distance, is_taken))[:n_missing]] = True
    return np.flatnonzero(is_taken)


def _choose_number_per_wanted(n_wanted: NDArray[np.int64], n_available: NDArray[np.int64], most: float) -> float:
    """Return how many sequences are taken for each wanted one: as many as nearly all lengths have, from 5 to `most`.

    `n_wanted` and `n_available` are the numbers of sequences by length.
    """
    lengths = np.flatnonzero(n_wanted)
    options = np.unique(np.append(n_available[lengths] / n_wanted[lengths], most))
    options = options[options <= most]
    filled = np.array(
        [np.minimum(n_available, option * n_wanted).sum() / max(option * n_wanted.sum(), 1) for option in options]
    )
    return float(max(options[filled >= _MATCHED].max(initial=0.0), min(_MIN_EACH, most)))
