"""The sequences that rank first over all repertoires of a cohort, as one table."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.interpretation.attention import RepertoireAttention
from deeprc.interpretation.column_tables import Columns
from deeprc.interpretation.false_sequences import FalseDiscoveryReference, HighestScores
from deeprc.interpretation.ranking import BY_ATTENTION, BestRows, Ranking

__all__ = ["best_sequences"]

_KEY, _POSITION = "key of the ranking", "position in the dataset"  # columns that are removed again


def best_sequences(
    attention: Iterable[RepertoireAttention],
    n: int,
    ranking: Ranking = BY_ATTENTION,
    *,
    reference: FalseDiscoveryReference | None = None,
) -> pd.DataFrame:
    """Return a table like `attention_table` of the sequences with the highest rank over all repertoires, best first.

    Parameters
    ----------
    attention
        Attention on each repertoire; it is iterated once.
    n
        Number of sequences.
    ranking
        Ranking of the sequences.
    reference
        If given, the last column, `q_value`, is the false discovery rate of each sequence. `attention` must then be
        that on all repertoires of the same dataset, in their order.
    """
    best, highest = BestRows(n), HighestScores()
    for position, repertoire_attention in enumerate(attention):
        keys = ranking.keys(repertoire_attention.scores)
        best.add_candidates(keys, partial(_make_columns_with_key, repertoire_attention, keys, position))
        if reference is not None:
            highest.add_candidates(position, ranking.drop_noncontributing(keys))
    table = best.make_table()
    if table.empty:
        return table
    scores, positions = table.pop(_KEY).to_numpy(np.float64), table.pop(_POSITION).to_numpy(np.int64)
    if reference is None:
        return table
    return table.assign(q_value=reference.compute_q_values(highest, ranking.drop_noncontributing(scores), positions))


def _make_columns_with_key(
    attention: RepertoireAttention, keys: NDArray[np.float64], position: int, rows: NDArray[np.int64]
) -> Columns:
    return {**attention.make_columns(rows), _KEY: keys[rows], _POSITION: np.full(len(rows), position)}
