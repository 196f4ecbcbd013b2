"""Clones of a cohort that tell how often clones match a database by chance.

Public clones, those that many people carry, are short, easily made, and over-represented in databases. So the clones of
a table match more often than random clones, whatever they are specific for. They are compared with clones of the cohort
that as many repertoires carry, with the same V gene and length.

Letters: n sequences of the table, m clones of the background, A organisms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequence_hash import hash_sequences
from deeprc.datasets.sequences import Sequences

__all__ = [
    "BackgroundClones",
    "Strata",
    "classify_publicity",
    "count_carrying_repertoires",
    "draw_clone_background",
    "estimate_match_rates",
]

_MAX_CLONES = 300_000  # largest number of clones of each publicity
_N_PRIVATE = 1_000_000
_TRUST = 50.0  # number of clones for which the rate of the coarser stratum counts
_SEED = 0


class Strata(NamedTuple):
    """The strata of sequences: V gene (index of a name), length, and class of the number of carriers, (n,) each."""

    v_gene: Integers
    length: Integers
    publicity: Integers


class BackgroundClones(NamedTuple):
    """m clones of a cohort, and the class of their number of carriers, (m,), see `classify_publicity`."""

    sequences: Sequences
    publicity: Integers


def classify_publicity(n_carriers: Integers) -> Integers:
    """Return classes of publicity, (n,): 0 for at most one carrier, 1 for 2, 2 for 3 and 4, 3 for 5 to 8 and so on."""
    return np.ceil(np.log2(np.maximum(n_carriers, 1))).astype(np.int64)


def count_carrying_repertoires(dataset: RepertoireDataset, clones: CloneSet, sequence_of_clone: Integers) -> Integers:
    """Return for each sequence the number of repertoires that carry at least one of its clones, (n,).

    Several clones may belong to one sequence: `sequence_of_clone` is the index of each clone's sequence, (c,).
    """
    n_carriers = np.zeros(1 + int(sequence_of_clone.max(initial=-1)), np.int64)
    for carried in clones.find_in(dataset):
        n_carriers[np.unique(sequence_of_clone[carried])] += 1
    return n_carriers


def draw_clone_background(dataset: RepertoireDataset, *, without: Sequence[str] = ()) -> BackgroundClones:
    """Return clones of each publicity of a cohort, drawn at random; a clone is a junction here.

    `without` are junctions that are left out: those of the table, which are compared with the others.
    """
    rng = np.random.default_rng(_SEED)
    shared = find_shared_clones(dataset)
    publicity = classify_publicity(np.diff(shared.offsets))
    rows, classes = [], []
    for value in np.unique(publicity):
        indices = np.flatnonzero(publicity == value)
        indices = rng.choice(indices, _MAX_CLONES, replace=False) if len(indices) > _MAX_CLONES else indices
        rows.append(shared.representative[indices])
        classes.append(np.full(len(indices), value))
    n = int(dataset.container.repertoire_offsets[-1])
    any_rows = np.sort(rng.choice(n, min(_N_PRIVATE, n), replace=False))
    known = hash_sequences(dataset, shared.representative)
    private = any_rows[~np.isin(hash_sequences(dataset, any_rows), known)]
    rows, classes = [*rows, private], [*classes, np.zeros(len(private), np.int64)]
    fields = [name for name in dataset.gene_fields if name == "v_call"]
    clones = dataset.take_clones(np.concatenate(rows), fields)
    kept = np.flatnonzero(~pd.Series(clones.decode(), dtype=object).isin(set(without)))
    return BackgroundClones(clones.take(kept), np.concatenate(classes)[kept])


def estimate_match_rates(table: Strata, background: Strata, hits: NDArray[np.bool_]) -> Floats:
    """Return the probability that chance alone lets each sequence of the table match each organism, (n, A).

    It is the share of background clones in the same stratum that match the organism. A stratum may have few clones. So
    its share is drawn towards that of the coarser stratum without the V gene, and this one towards that of all clones
    of its publicity.

    Parameters
    ----------
    table, background
        Strata of the n sequences of the table, and of the m clones of the background.
    hits
        Whether each clone of the background matches each organism, (m, A).
    """
    rates = np.broadcast_to((hits.sum(axis=0) + 1.0) / (len(hits) + 1.0), (len(table.length), hits.shape[1]))
    levels = (
        (table.publicity,),
        (table.publicity, table.length),
        (table.publicity, table.length, table.v_gene),
    )
    background_levels = (background.publicity, background.length, background.v_gene)
    for level in levels:
        strata = np.stack(level, axis=1)
        keys, key_index = np.unique(strata, axis=0, return_inverse=True)
        stratum_index = _find_row_indices(keys, np.stack(background_levels[: len(level)], axis=1))
        is_like_any = stratum_index >= 0
        sizes = np.bincount(stratum_index[is_like_any], minlength=len(keys))
        clones, organisms = np.nonzero(hits & is_like_any[:, None])
        cells = stratum_index[clones] * hits.shape[1] + organisms
        counts = np.bincount(cells, minlength=len(keys) * hits.shape[1]).reshape(len(keys), -1)
        key_index = key_index.ravel()
        rates = (counts[key_index] + _TRUST * rates) / (sizes[key_index, None] + _TRUST)
    return np.asarray(rates)


def _find_row_indices(keys: Integers, rows: Integers) -> Integers:
    """Return the index in `keys`, (k, d), of each of the rows, (m, d), or -1; the keys are sorted and different."""
    spans = np.maximum(keys.max(axis=0), rows.max(axis=0, initial=0)) + 2
    scale = np.append(np.cumprod(spans[::-1])[::-1][1:], 1)
    codes, row_codes = (keys + 1) @ scale, (rows + 1) @ scale
    index = np.searchsorted(codes, row_codes).clip(0, len(codes) - 1)
    return np.where(codes[index] == row_codes, index, -1)
