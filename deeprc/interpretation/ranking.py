"""Sequences ranked over all repertoires of a cohort, and how well a ranking finds those that carry an implanted signal.

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

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.nn.contributions import SequenceScores
from deeprc.training.model import Model

__all__ = ["BY_ATTENTION", "RANKINGS", "BestRows", "Ranking", "WitnessRanking", "witness_ranking"]

RANKINGS = ("attention", "contribution", "response")
"""By what sequences can be ranked over repertoires; see `Ranking`."""

_AT = (100, 1000)
_MAX_OTHERS = 5_000_000


@dataclass(frozen=True)
class Ranking:
    """By what sequences are ranked.

    Attributes
    ----------
    by
        `attention`: how much the network looks at the sequence, by its logit, because a weight is relative to the
        others of its repertoire; `contribution`: what the sequence adds to the output of its repertoire through the
        attention and all readings; `response`: what the output would be from the attention on the sequence alone.
    output, sign
        Which output, and whether sequences that raise it (1) or lower it (-1) come first.

    Raises
    ------
    InputError
        If `by` is none of `RANKINGS`.
    """

    by: str = "attention"
    output: int = 0
    sign: int = 1

    def __post_init__(self) -> None:
        if self.by not in RANKINGS:
            raise InputError(f"expected a ranking by {' or '.join(RANKINGS)}, found {self.by!r}")

    def keys(self, scores: SequenceScores) -> NDArray[np.float64]:
        """Return the numbers by which the sequences of a repertoire are ranked, (N,); the highest is first."""
        if self.by == "attention":
            return scores.logit.astype(np.float64)
        numbers = scores.contributions if self.by == "contribution" else scores.responses
        return np.asarray(self.sign * numbers[:, self.output])

    def drop_silent(self, keys: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the keys, and -inf for contributions of 0 and less, which are none to the direction."""
        return np.where(keys > 0, keys, -np.inf) if self.by == "contribution" else keys


BY_ATTENTION = Ranking()
"""How much the network looks at a sequence."""


class BestRows:
    """The best rows of a table that is seen in parts; among equals the first counts.

    Memory grows with the number of rows kept, not with the table.

    Parameters
    ----------
    max_rows
        How many rows to keep, at most.
    once
        Columns, as far as the table has them. Of rows that are equal in all of them only the best counts.
    """

    def __init__(self, max_rows: int, once: Sequence[str] = ()) -> None:
        self.max_rows, self.once = max_rows, once
        self._keys: NDArray[np.float64] = np.zeros(0)
        self._frames: list[pd.DataFrame] = []
        self._bar = -np.inf

    def offer(self, keys: NDArray[np.float64], frame_of: Callable[[NDArray[np.int64]], pd.DataFrame]) -> None:
        """Take those of N rows that may be among the best.

        Parameters
        ----------
        keys
            By which they are ranked, (N,).
        frame_of
            Makes the table of the rows of given numbers, (n,).
        """
        rows = np.flatnonzero(keys > self._bar)
        if len(rows) > self.max_rows:
            rows = np.sort(rows[np.argsort(-keys[rows], kind="stable")[: self.max_rows]])
        if len(rows) == 0:
            return
        self._keys = np.concatenate([self._keys, keys[rows]])
        self._frames.append(frame_of(rows))
        if len(self._keys) > 2 * self.max_rows:
            self._shrink()

    def _shrink(self) -> None:
        best, table = np.argsort(-self._keys, kind="stable"), pd.concat(self._frames, ignore_index=True)
        columns = [name for name in self.once if name in table]
        if columns:
            best = best[~table[columns].iloc[best].duplicated().to_numpy()]
        best = best[: self.max_rows]
        self._frames = [table.iloc[best]]
        self._keys = self._keys[best]
        if len(best) == self.max_rows:
            self._bar = float(self._keys[-1])

    def table(self) -> pd.DataFrame:
        """Return the best rows, the best first."""
        if self._frames:
            self._shrink()
            return self._frames[0].reset_index(drop=True)
        return pd.DataFrame()


def witness_ranking(
    model: Model, dataset: RepertoireDataset, positions: Iterable[int] | None = None, *, output: int = 0, sign: int = 1
) -> pd.DataFrame:
    """Return how well attention and contribution find the sequences that carry a simulated signal.

    Parameters
    ----------
    model
        A trained model, or several together.
    dataset
        A simulated cohort, which knows the carriers (`/witness`).
    positions
        The repertoires to look at, all when None; the sequences of all are ranked together.
    output, sign
        The side that the signal was implanted in; see `Ranking`.

    Returns
    -------
    A row for each of `RANKINGS`: score (its name), n_sequences, n_witnesses, auc and average_precision (of telling
    carriers from all others), precision_at_100, precision_at_1000, recall_at_100 and recall_at_1000 (of the sequences
    ranked highest). NaN where there is no carrier, or nothing else. In cohorts of more than 5 million sequences auc and
    average_precision are estimated from all carriers and evenly chosen others, so that memory is bounded.

    Raises
    ------
    InputError
        If the container does not know which sequences carry the signal.
    """
    chosen = list(range(len(dataset)) if positions is None else positions)
    ranking = WitnessRanking(dataset, chosen, output=output, sign=sign)
    for position in chosen:
        ranking.add(position, model.score_sequences(dataset, position))
    return ranking.table()


class WitnessRanking:
    """How well the scores of sequences find those that carry a signal, from repertoires one by one.

    Parameters
    ----------
    dataset, positions
        A simulated cohort, and the repertoires of it to look at.
    output, sign
        As those of `witness_ranking`.
    """

    def __init__(self, dataset: RepertoireDataset, positions: Sequence[int], *, output: int = 0, sign: int = 1) -> None:
        self._dataset = dataset
        self._rankings = [Ranking(name, output, sign) for name in RANKINGS]
        self._positions = frozenset(positions)
        n_sequences = int(dataset.n_sequences[list(positions)].sum())
        step = max(1, -(-n_sequences // _MAX_OTHERS))
        self._tallies = [_Tally(step) for _ in RANKINGS]

    def add(self, position: int, scores: SequenceScores) -> None:
        """Take in the scores of a repertoire's sequences, if it is one of those to look at.

        Raises
        ------
        InputError
            If the container does not know which sequences carry the signal.
        """
        if position not in self._positions:
            return
        witness = self._dataset[position].witness
        if witness is None:
            raise InputError(f"{self._dataset.container.path}: does not say which sequences carry a signal (/witness)")
        for ranking, tally in zip(self._rankings, self._tallies, strict=True):
            tally.add(np.asarray(witness) > 0, ranking.keys(scores))

    def table(self) -> pd.DataFrame:
        """Return the table of `witness_ranking`."""
        tallied = zip(RANKINGS, self._tallies, strict=True) if self._positions else ()
        return pd.DataFrame([{"score": name, **tally.found()} for name, tally in tallied])


class _Tally:
    """How well one ranking finds carriers, from repertoires one by one; all carriers are kept, of the others a share.

    Parameters
    ----------
    step
        One in so many of the others is kept.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self._best = BestRows(max(_AT))
        self._keys: list[NDArray[np.float32]] = []
        self._carriers: list[NDArray[np.bool_]] = []
        self._n = self._total = 0

    def add(self, carrier: NDArray[np.bool_], keys: NDArray[np.float64]) -> None:
        """Take in the N sequences of a repertoire."""
        self._best.offer(keys, lambda rows: pd.DataFrame({"carrier": carrier[rows]}))
        others = np.flatnonzero(~carrier)[:: self.step]
        kept = np.concatenate([np.flatnonzero(carrier), others])
        self._keys.append(keys[kept].astype(np.float32))
        self._carriers.append(carrier[kept])
        self._n += len(carrier)
        self._total += int(carrier.sum())

    def found(self) -> dict[str, Any]:
        """Return a row of `witness_ranking`."""
        n, total, both = self._n, self._total, 0 < self._total < self._n
        carrier, key = np.concatenate(self._carriers), np.concatenate(self._keys)
        weight = np.where(carrier, 1.0, (n - total) / max(1, len(carrier) - total))
        first = self._best.table()
        hits = {at: int(first["carrier"].head(at).sum()) if len(first) else 0 for at in _AT}
        return {
            "n_sequences": n,
            "n_witnesses": total,
            "auc": float(roc_auc_score(carrier, key)) if both else np.nan,
            "average_precision": float(average_precision_score(carrier, key, sample_weight=weight)) if both else np.nan,
            **{f"precision_at_{at}": hits[at] / min(at, n) if both else np.nan for at in _AT},
            **{f"recall_at_{at}": hits[at] / total if both else np.nan for at in _AT},
        }
