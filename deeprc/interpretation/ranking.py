"""Sequences ranked over all repertoires of a cohort, and how well a ranking finds those that carry an implanted signal.

Letters: N sequences of one repertoire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.run import Run
from deeprc.interpretation.contributions import SequenceScores, score_sequences

__all__ = ["RANKINGS", "BestRows", "ranking_of", "witness_ranking"]

RANKINGS = ("attention", "contribution", "response")
"""By what sequences can be ranked over repertoires; see `ranking_of`."""

_AT = (100, 1000)


def ranking_of(scores: SequenceScores, by: str, *, output: int = 0, sign: int = 1) -> NDArray[np.float64]:
    """Return by what the sequences of a repertoire are ranked among those of others, (N,); the highest is first.

    Parameters
    ----------
    scores
        Of the repertoire.
    by
        `attention`: the logit, because a weight is relative to the others of its repertoire; `contribution`: what the
        sequence adds to the output of its repertoire; `response`: what the output would be from the sequence alone.
    output, sign
        Which output, and whether sequences that raise it (1) or lower it (-1) come first.
    """
    if by not in RANKINGS:
        raise InputError(f"expected a ranking by {' or '.join(RANKINGS)}, found {by!r}")
    if by == "attention":
        return scores.logit.astype(np.float64)
    return sign * (scores.contributions if by == "contribution" else scores.responses)[:, output]


class BestRows:
    """The best rows of a table that is seen in parts; among equals the first counts.

    Memory grows with the number of rows kept, not with the table.

    Parameters
    ----------
    most
        How many rows to keep.
    """

    def __init__(self, most: int) -> None:
        self.most = most
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
        if len(rows) > self.most:
            rows = np.sort(rows[np.argsort(-keys[rows], kind="stable")[: self.most]])
        if len(rows) == 0:
            return
        self._keys = np.concatenate([self._keys, keys[rows]])
        self._frames.append(frame_of(rows))
        if len(self._keys) > 2 * self.most:
            self._shrink()

    def _shrink(self) -> None:
        best = np.argsort(-self._keys, kind="stable")[: self.most]
        self._frames = [pd.concat(self._frames, ignore_index=True).iloc[best]]
        self._keys = self._keys[best]
        if len(best) == self.most:
            self._bar = float(self._keys[-1])

    def table(self) -> pd.DataFrame:
        """Return the best rows, the best first."""
        if self._frames:
            self._shrink()
            return self._frames[0].reset_index(drop=True)
        return pd.DataFrame()


def witness_ranking(
    run: Run, dataset: RepertoireDataset, positions: Iterable[int] | None = None, *, output: int = 0, sign: int = 1
) -> pd.DataFrame:
    """Return how well attention and contribution find the sequences that carry a simulated signal.

    Parameters
    ----------
    run
        A trained model.
    dataset
        A simulated cohort, which knows the carriers (`/witness`).
    positions
        Of the repertoires to look at, all when None; the sequences of all are ranked together.
    output, sign
        The side that the signal was implanted in; see `ranking_of`.

    Returns
    -------
    A row for each of `RANKINGS`: score (its name), n_sequences, n_witnesses, auc and average_precision (of telling
    carriers from all others), precision_at_100, precision_at_1000, recall_at_100 and recall_at_1000 (of the sequences
    ranked highest). NaN where there is no carrier, or nothing else.

    Raises
    ------
    InputError
        If the container does not know which sequences carry the signal.
    """
    keys: dict[str, list[NDArray[np.float32]]] = {name: [] for name in RANKINGS}
    carriers = []
    for position in range(len(dataset)) if positions is None else positions:
        known = dataset[position].witness
        if known is None:
            raise InputError(f"{dataset.container.path}: does not say which sequences carry a signal (/witness)")
        scores = score_sequences(run, dataset, position)
        carriers.append(np.asarray(known) > 0)
        for name, parts in keys.items():
            parts.append(ranking_of(scores, name, output=output, sign=sign).astype(np.float32))
    carrier = np.concatenate(carriers) if carriers else np.zeros(0, np.bool_)
    return pd.DataFrame(
        [{"score": name, **_found(carrier, np.concatenate(parts))} for name, parts in keys.items() if parts]
    )


def _found(carrier: NDArray[np.bool_], key: NDArray[np.float32]) -> dict[str, Any]:
    n, total = len(carrier), int(carrier.sum())
    both = 0 < total < n
    order = np.argsort(-key, kind="stable")
    found = {
        "n_sequences": n,
        "n_witnesses": total,
        "auc": float(roc_auc_score(carrier, key)) if both else np.nan,
        "average_precision": float(average_precision_score(carrier, key)) if both else np.nan,
    }
    hits = {most: int(carrier[order[:most]].sum()) for most in _AT}
    found |= {f"precision_at_{most}": hits[most] / min(most, n) if both else np.nan for most in _AT}
    found |= {f"recall_at_{most}": hits[most] / total if both else np.nan for most in _AT}
    return found
