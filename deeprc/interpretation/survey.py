"""What a trained network sees in a whole cohort, gathered in one pass: for figures, motifs and the report.

Letters: N sequences of one repertoire, B repertoires, H heads, T outputs, G genes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.attention import HEADS_COLUMNS, RepertoireAttention, iterate_attention
from deeprc.interpretation.ranking import BestRows, ranking_of
from deeprc.runs.run import Run
from deeprc.tasks import Task

__all__ = ["Side", "Survey", "find_side", "sides_of", "survey"]

_SHARES = np.logspace(-6, 0, 61)
_UNKNOWN = "unknown"
_FIELDS = ("v_call", "j_call")


@dataclass(frozen=True)
class Side:
    """A direction of an output: the sequences that raise it, or those that lower it.

    Attributes
    ----------
    name
        What they speak for, in words that no other side has: the label, with its target where there are several.
    label
        A class, or "higher" and "lower" of a number.
    output
        Which of the T outputs.
    sign
        1 where they raise it, -1 where they lower it.
    target
        The target's name.
    """

    name: str
    label: str
    output: int
    sign: int
    target: str


@dataclass(frozen=True)
class Survey:
    """What `survey` found.

    Attributes
    ----------
    outputs
        Of the repertoires, before their activation, (B, T).
    heads
        One row per repertoire and head; see `RepertoireAttention.head_rows`.
    curves
        How attention is shared out: repertoire_id, share (of the repertoire's sequences, the most attended first),
        attention (their weights' sum).
    genes
        field ("v_call", "j_call"), name, all (mean over repertoires of the share of sequences with the gene), attended
        (of the attention on them). Empty where the container has no genes.
    sides
        The directions of the outputs.
    top
        For each side, by its name: the sequences that contribute most to it over all repertoires, the best first; the
        columns of `attention_table`, with `contribution` and `response` of this side's output only, and `split`. Only
        sequences that speak for the side at all.
    """

    outputs: NDArray[np.float64]
    heads: pd.DataFrame
    curves: pd.DataFrame
    genes: pd.DataFrame
    sides: list[Side]
    top: dict[str, pd.DataFrame]


def sides_of(tasks: Sequence[Task]) -> list[Side]:
    """Return the sides of all targets' outputs; no two have one name."""
    sides, output = [], 0
    columns = Counter(task.column for task in tasks)
    for task in tasks:
        if task.kind == "binary":
            labelled = [(task.positive, 0, 1), (task.negative, 0, -1)]
        elif task.kind == "multiclass":
            labelled = [(label, c, 1) for c, label in enumerate(task.classes)]
        else:
            labelled = [("higher", 0, 1), ("lower", 0, -1)]
        target = task.column if columns[task.column] == 1 else task.name
        prefix = f"{target}: " if len(tasks) > 1 or task.kind == "regression" else ""
        sides += [Side(prefix + label, label, output + shift, sign, task.name) for label, shift, sign in labelled]
        output += task.n_outputs
    return sides


def find_side(tasks: Sequence[Task], name: str | None) -> Side:
    """Return the side of a name, of the first target's where None: its positive class, or first class, or "higher".

    Raises
    ------
    InputError
        If there is no side of this name.
    """
    sides = sides_of(tasks)
    chosen = sides[0] if name is None else next((side for side in sides if side.name == name), None)
    if chosen is None:
        raise InputError(f"expected one of {', '.join(side.name for side in sides)}, found {name!r}")
    return chosen


def survey(run: Run, dataset: RepertoireDataset, *, top: int = 1000, positions: Iterable[int] | None = None) -> Survey:
    """Look at every repertoire once.

    Parameters
    ----------
    run
        A trained model.
    dataset
        The cohort.
    top
        Sequences to keep for each side.
    positions
        All positions in order, wrapped in a progress bar, if one is wanted; or some of them.
    """
    sides = sides_of(run.tasks)
    best = [BestRows(top) for _ in sides]
    usage = {field: _Usage() for field in _FIELDS}
    outputs, curves = [], []
    heads: list[tuple[str, int, int, int, str]] = []
    chosen = list(range(len(dataset))) if positions is None else positions
    splits = run.split_of(dataset)
    number = {str(name): i for i, name in enumerate(dataset.repertoire_ids)}
    for one in iterate_attention(run, dataset, chosen):
        outputs.append(one.scores.outputs)
        heads += one.head_rows
        curves.append(_curve(one))
        for field, genes in usage.items():
            genes.add(one.repertoire, field, one.scores.weight)
        split = splits[number[one.scores.repertoire_id]]
        for side, rows in zip(sides, best, strict=True):
            keys = ranking_of(one.scores, "contribution", output=side.output, sign=side.sign)
            rows.offer(np.where(keys > 0, keys, -np.inf), _Rows(one, side, split))
    return Survey(
        np.stack(outputs) if outputs else np.zeros((0, sum(task.n_outputs for task in run.tasks))),
        pd.DataFrame(heads, columns=HEADS_COLUMNS),
        _joined(curves, ["repertoire_id", "share", "attention"]),
        _joined([usage[field].table(field) for field in _FIELDS], ["field", "name", "all", "attended"]),
        sides,
        {side.name: rows.table() for side, rows in zip(sides, best, strict=True)},
    )


@dataclass(frozen=True)
class _Rows:
    """Makes the table of some sequences of a repertoire for one side."""

    attention: RepertoireAttention
    side: Side
    split: str

    def __call__(self, rows: NDArray[np.int64]) -> pd.DataFrame:
        frame = self.attention.frame(rows)
        scores, t = self.attention.scores, self.side.output
        of_all = [name for name in frame if str(name).startswith(("contribution", "response"))]
        own = {"contribution": scores.contributions[rows, t], "response": scores.responses[rows, t]}
        return frame.drop(columns=of_all).assign(**own, split=self.split)


def _curve(one: RepertoireAttention) -> pd.DataFrame:
    """Return the attention on the most attended share of the sequences, from one sequence to all."""
    N = len(one.scores)
    if N == 0:
        return pd.DataFrame({"repertoire_id": [], "share": [], "attention": []})
    cumulated = np.cumsum(-np.sort(-one.scores.weight))
    shares = np.unique(np.concatenate([[1 / N], _SHARES[_SHARES > 1 / N]]))
    attention = np.interp(shares * N, np.arange(1, N + 1), cumulated)
    return pd.DataFrame({"repertoire_id": one.scores.repertoire_id, "share": shares, "attention": attention})


class _Usage:
    """Shares of genes among all sequences and in the attention, averaged over repertoires that have sequences."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.sums: NDArray[np.float64] = np.zeros((2, 0))
        self.n = 0

    def add(self, repertoire: Repertoire, field: str, weight: NDArray[np.float64]) -> None:
        genes = repertoire.genes.get(field)
        if genes is None or len(repertoire) == 0:
            return
        if self.n == 0:
            self.names, self.sums = tuple(genes.vocabulary), np.zeros((2, len(genes.vocabulary)))
        codes, size = genes.codes, len(self.names)
        self.sums[0] += np.bincount(codes, minlength=size) / len(repertoire)
        self.sums[1] += np.bincount(codes, weights=weight, minlength=size)
        self.n += 1

    def table(self, field: str) -> pd.DataFrame:
        names = [name or _UNKNOWN for name in self.names]
        shares = self.sums / max(self.n, 1)
        frame = pd.DataFrame({"field": field, "name": names, "all": shares[0], "attended": shares[1]})
        return frame[frame["all"] > 0]


def _joined(parts: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    kept = [part for part in parts if len(part)]
    return pd.concat(kept, ignore_index=True)[columns] if kept else pd.DataFrame(columns=columns)
