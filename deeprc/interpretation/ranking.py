"""Rankings of sequences over all repertoires of a cohort, and measures of how well they find witnesses.

Letters: N sequences of one repertoire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.column_tables import Columns, concatenate_columns, take_rows
from deeprc.nn.sequence_scores import SequenceScores
from deeprc.training.model import Model

__all__ = ["BY_ATTENTION", "BestRows", "Ranking", "WitnessRanking", "choose_witness_step", "witness_ranking"]

_RANKINGS = ("attention", "contribution", "response")
"""Values by which sequences can be ranked over repertoires; see `Ranking`."""

_TOP_SIZES = (100, 1000)  # numbers of sequences for precision and recall
_MAX_OTHERS = 5_000_000


@dataclass(frozen=True)
class Ranking:
    """A ranking of sequences by one of their values.

    Attributes
    ----------
    by
        `attention`: the attention logit of the sequence (not the weight, which depends on the other sequences of its
        repertoire). `contribution`: the amount that the sequence adds to the output of its repertoire through the
        attention and all branches. `response`: the output that the network would have if all attention were on the
        sequence.
    output
        Index of the output.
    sign
        1 puts sequences first that raise the output, -1 those that lower it.

    Raises
    ------
    InputError
        If `by` is none of these.
    """

    by: str = "attention"
    output: int = 0
    sign: int = 1

    def __post_init__(self) -> None:
        if self.by not in _RANKINGS:
            raise InputError(f"expected a ranking by {' or '.join(_RANKINGS)}, found {self.by!r}")

    def keys(self, scores: SequenceScores) -> NDArray[np.float64]:
        """Return the keys by which the sequences of a repertoire are ranked, (N,); the highest is first."""
        if self.by == "attention":
            return scores.logit.astype(np.float64)
        numbers = scores.contributions if self.by == "contribution" else scores.responses
        return np.asarray(self.sign * numbers[:, self.output])

    def drop_noncontributing(self, keys: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return keys with -inf in place of contributions of at most 0, which do not contribute to the direction."""
        return np.where(keys > 0, keys, -np.inf) if self.by == "contribution" else keys


BY_ATTENTION = Ranking()
"""The ranking by attention."""


class BestRows:
    """The best rows of a table that is given in parts; among equal rows the first counts.

    Memory grows with the number of kept rows, not with the table.

    Parameters
    ----------
    max_rows
        Largest number of rows to keep.
    unique_by
        Names of columns; those that the table lacks are ignored. Of rows that are equal in all of them only the best
        counts.
    """

    def __init__(self, max_rows: int, unique_by: Sequence[str] = ()) -> None:
        self.max_rows, self.unique_by = max_rows, unique_by
        self._keys: NDArray[np.float64] = np.zeros(0)
        self._parts: list[Columns] = []
        self._lowest_kept = -np.inf

    def add_candidates(self, keys: NDArray[np.float64], columns_of: Callable[[NDArray[np.int64]], Columns]) -> None:
        """Keep those of N rows that may be among the best.

        Parameters
        ----------
        keys
            Keys by which the rows are ranked, (N,).
        columns_of
            Function that makes the columns of some rows, the same in each call, from their indices, (n,).
        """
        rows = np.flatnonzero(keys > self._lowest_kept)
        if len(rows) > self.max_rows:
            rows = rows[np.argsort(-keys[rows], kind="stable")]
            if not self.unique_by:
                rows = rows[: self.max_rows]
        for start in range(0, len(rows), max(self.max_rows, 1)):
            block = rows[start : start + self.max_rows]
            if keys[block[0]] <= self._lowest_kept:  # as are all that follow
                break
            self._keys = np.concatenate([self._keys, keys[block]])
            self._parts.append(columns_of(block))
            if len(self._keys) > 2 * self.max_rows or start + len(block) < len(rows):
                self._drop_low_rows()

    def join(self, other: BestRows, change: Callable[[Columns], Columns]) -> None:
        """Add the best rows of a collector of later repertoires; `change` converts its columns to ours."""
        if other._parts:
            other._drop_low_rows()
            self.add_candidates(other._keys, lambda rows: change(take_rows(other._parts[0], rows)))

    def _drop_low_rows(self) -> None:
        """Keep only the rows with the highest keys, each different row once."""
        best, joined = np.argsort(-self._keys, kind="stable"), concatenate_columns(self._parts)
        equal_in = {name: joined[name][best] for name in self.unique_by if name in joined}
        if equal_in:
            best = best[~pd.DataFrame(equal_in).duplicated().to_numpy()]
        best = best[: self.max_rows]
        self._parts = [take_rows(joined, best)]
        self._keys = self._keys[best]
        if len(best) == self.max_rows:
            self._lowest_kept = float(self._keys[-1])

    def make_table(self) -> pd.DataFrame:
        """Return a table of the best rows, best first."""
        if self._parts:
            self._drop_low_rows()
            return pd.DataFrame(self._parts[0])
        return pd.DataFrame()


def witness_ranking(
    model: Model, dataset: RepertoireDataset, positions: Iterable[int] | None = None, *, output: int = 0, sign: int = 1
) -> pd.DataFrame:
    """Return a table of how well each ranking finds the witnesses of a simulated cohort.

    Parameters
    ----------
    model
        A trained model, or an ensemble.
    dataset
        Simulated cohort, whose container knows the witnesses (`/witness`).
    positions
        Positions of the repertoires to use; None uses all. Their sequences are ranked together.
    output, sign
        Output, and sign of the direction that the signal belongs to; see `Ranking`.

    Returns
    -------
    A row for each ranking, with score (attention, contribution or response), n_sequences, n_witnesses, auc and
    average_precision (witnesses against all others), precision_at_100, precision_at_1000, recall_at_100 and
    recall_at_1000 (among the sequences with the highest ranks). They are NaN if all or none of the sequences are
    witnesses. In cohorts of more than 5 million sequences auc and average_precision are estimated from all witnesses
    and evenly chosen others, to limit the memory.

    Raises
    ------
    InputError
        If the container does not know which sequences carry the signal.
    """
    chosen = list(range(len(dataset)) if positions is None else positions)
    ranking = WitnessRanking(choose_witness_step(dataset, chosen), output=output, sign=sign)
    for position in chosen:
        ranking.add(dataset[position], model.score_sequences(dataset, position))
    return ranking.make_table()


def choose_witness_step(dataset: RepertoireDataset, positions: Sequence[int]) -> int:
    """Return the number of sequences without a signal of which a `WitnessRanking` of some repertoires keeps one."""
    return max(1, -(-int(dataset.n_sequences[list(positions)].sum()) // _MAX_OTHERS))


class WitnessRanking:
    """Collector of scores, repertoire by repertoire, from which the table of `witness_ranking` is made.

    Parameters
    ----------
    step
        See `choose_witness_step`.
    output, sign
        Direction of the signal, see `witness_ranking`.
    """

    def __init__(self, step: int, *, output: int = 0, sign: int = 1) -> None:
        self._rankings = [Ranking(name, output, sign) for name in _RANKINGS]
        self._tallies = [_Tally(step) for _ in _RANKINGS]

    def add(self, repertoire: Repertoire, scores: SequenceScores) -> None:
        """Add the scores of the sequences of a repertoire.

        Raises
        ------
        InputError
            If the container does not know which sequences carry the signal.
        """
        witness = repertoire.witness
        if witness is None:
            raise InputError(f"{repertoire.container.path}: does not say which sequences carry a signal (/witness)")
        for ranking, tally in zip(self._rankings, self._tallies, strict=True):
            tally.add(np.asarray(witness) > 0, ranking.keys(scores))

    def join(self, other: WitnessRanking) -> None:
        """Add the scores that another collector has of the repertoires that follow."""
        for tally, other_tally in zip(self._tallies, other._tallies, strict=True):
            tally.join(other_tally)

    def make_table(self) -> pd.DataFrame:
        """Return the table of `witness_ranking`."""
        tallied = zip(_RANKINGS, self._tallies, strict=True)
        return pd.DataFrame([{"score": name, **tally.to_row()} for name, tally in tallied if tally.has_any])


class _Tally:
    """Collector of the keys of one ranking, repertoire by repertoire; it keeps all witnesses and a share of the others.

    Parameters
    ----------
    step
        Number of other sequences of which one is kept.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self._best = BestRows(max(_TOP_SIZES))
        self._keys: list[NDArray[np.float32]] = []
        self._is_witness: list[NDArray[np.bool_]] = []
        self._n_sequences = self._n_witnesses = 0

    def add(self, is_witness: NDArray[np.bool_], keys: NDArray[np.float64]) -> None:
        """Add the N sequences of a repertoire."""
        self._best.add_candidates(keys, lambda rows: {"is_witness": is_witness[rows]})
        others = np.flatnonzero(~is_witness)[:: self.step]
        kept = np.concatenate([np.flatnonzero(is_witness), others])
        self._keys.append(keys[kept].astype(np.float32))
        self._is_witness.append(is_witness[kept])
        self._n_sequences += len(is_witness)
        self._n_witnesses += int(is_witness.sum())

    def join(self, other: _Tally) -> None:
        """Add the sequences of another collector, whose repertoires follow."""
        self._best.join(other._best, lambda columns: columns)
        self._keys += other._keys
        self._is_witness += other._is_witness
        self._n_sequences += other._n_sequences
        self._n_witnesses += other._n_witnesses

    @property
    def has_any(self) -> bool:
        """Whether any repertoire was added."""
        return bool(self._keys)

    def to_row(self) -> dict[str, Any]:
        """Return the row of the ranking for `witness_ranking`."""
        n, n_witnesses = self._n_sequences, self._n_witnesses
        row: dict[str, Any] = {"n_sequences": n, "n_witnesses": n_witnesses}
        precisions, recalls = ([f"{name}_at_{k}" for k in _TOP_SIZES] for name in ("precision", "recall"))
        if not 0 < n_witnesses < n:
            return row | dict.fromkeys(["auc", "average_precision", *precisions, *recalls], np.nan)
        is_witness, key = np.concatenate(self._is_witness), np.concatenate(self._keys)
        weight = np.where(is_witness, 1.0, (n - n_witnesses) / max(1, len(is_witness) - n_witnesses))
        row["auc"] = float(roc_auc_score(is_witness, key))
        row["average_precision"] = float(average_precision_score(is_witness, key, sample_weight=weight))
        best = self._best.make_table()["is_witness"]
        hits = [int(best.head(k).sum()) for k in _TOP_SIZES]
        row |= {name: found / min(k, n) for name, found, k in zip(precisions, hits, _TOP_SIZES, strict=True)}
        return row | {name: found / n_witnesses for name, found in zip(recalls, hits, strict=True)}
