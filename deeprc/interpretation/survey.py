"""Survey of a cohort with a trained network, in one pass, for figures, motifs and the report.

Letters: N sequences of one repertoire, B repertoires, H heads, T outputs, G genes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.categorical import extend_vocabulary
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.attention import HEADS_COLUMNS, RepertoireAttention, iterate_attention
from deeprc.interpretation.false_sequences import HeldOutSequences, HighestScores
from deeprc.interpretation.ranking import BestRows, Ranking, WitnessRanking
from deeprc.interpretation.residue_counts import ResidueCounts
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.nn.contributions import OutputParts
from deeprc.readings.clones import CloneReading
from deeprc.runs.performance import held_out_split
from deeprc.runs.predictor import Predictor
from deeprc.tasks import Task
from deeprc.training.model import Model

__all__ = [
    "Direction",
    "Survey",
    "TopSequences",
    "add_q_values",
    "directions_of",
    "find_direction",
    "held_out_sequences",
    "survey",
]

_SHARES = np.logspace(-6, 0, 61)
_UNKNOWN = "unknown"
_FIELDS = ("v_call", "j_call")
_CLONE = ("junction_aa", *_FIELDS)
_POSITION, _ROW = "position in the dataset", "row in the repertoire"  # columns that are removed again


@dataclass(frozen=True)
class Direction:
    """A direction of an output, up or down.

    Attributes
    ----------
    name
        Unique name of the direction: its label, with the target if there are several.
    label
        Class that sequences of this direction contribute to, or "higher" or "lower" for a number.
    output
        Index of the output.
    sign
        1 for the direction in which sequences raise the output, -1 for that in which they lower it.
    target
        Name of the target.
    """

    name: str
    label: str
    output: int
    sign: int
    target: str


@dataclass(frozen=True)
class TopSequences:
    """The sequences that contribute most to a direction over all repertoires, best first.

    Sequences that do not contribute to the direction are never among them.

    Attributes
    ----------
    table
        Table with the columns of `attention_table`, with contribution, its parts and response for the output of this
        direction only; and `split` if the splits are known.
    index
        Index of the sequences in the dataset.
    """

    table: pd.DataFrame
    index: SequenceIndex

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Survey:
    """The results of `survey`.

    Attributes
    ----------
    outputs
        Outputs of the repertoires before their activation, (B, T), and their parts through each reading.
    heads
        Table with one row per repertoire and head; see `RepertoireAttention.head_rows`.
    curves
        Table of the concentration of attention: repertoire_id, share (of the repertoire's sequences, most attended
        first), attention (sum of their weights).
    genes
        Table of genes: field ("v_call", "j_call"), name, all (share of sequences with the gene) and attended (share of
        the attention on them), both as means over repertoires. Empty if the container has no genes.
    residue_frequencies
        Frequency of each amino acid among all residues, (20,), in the order of `AMINO_ACIDS`.
    directions
        Directions of the outputs.
    top
        Sequences that contribute most to each direction, by its name. If the model has readings, each clone is included
        once, where it contributes most: otherwise a few public clones, which many repertoires have, would fill the
        table.
    by_residues
        Sequences that contribute most by their residues and genes, through attention and composition; the same as `top`
        if the model has no readings. A stored clone counts as a whole, so its residues explain nothing. So
        attributions, kernels and motifs are computed for these sequences.
    highest
        Highest contributions to each direction, by its name, from which `HeldOutSequences` estimates false discovery
        rates.
    witnesses
        Tables of `witness_ranking` for each direction; empty if witnesses were not searched.
    """

    outputs: OutputParts
    heads: pd.DataFrame
    curves: pd.DataFrame
    genes: pd.DataFrame
    residue_frequencies: NDArray[np.float64]
    directions: list[Direction]
    top: dict[str, TopSequences]
    by_residues: dict[str, TopSequences]
    highest: dict[str, HighestScores]
    witnesses: list[pd.DataFrame]


def directions_of(tasks: Sequence[Task]) -> list[Direction]:
    """Return the directions of the outputs of all targets, each with a unique name."""
    directions, output = [], 0
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
        directions += [
            Direction(prefix + label, label, output + shift, sign, task.name) for label, shift, sign in labelled
        ]
        output += task.n_outputs
    return directions


def find_direction(tasks: Sequence[Task], name: str | None) -> Direction:
    """Return the direction with a name; None is the positive class, first class, or "higher", of the first target.

    Raises
    ------
    InputError
        If there is no direction with this name.
    """
    directions = directions_of(tasks)
    chosen = (
        directions[0] if name is None else next((direction for direction in directions if direction.name == name), None)
    )
    if chosen is None:
        raise InputError(f"expected one of {', '.join(direction.name for direction in directions)}, found {name!r}")
    return chosen


def survey(
    model: Model,
    dataset: RepertoireDataset,
    *,
    top: int = 1000,
    splits: Sequence[str] | None = None,
    witnesses_among: Sequence[int] = (),
) -> Survey:
    """Survey a cohort with a trained model; every repertoire is read once.

    Parameters
    ----------
    model
        A trained model, or an ensemble.
    dataset
        The cohort.
    top
        Number of sequences to keep for each direction.
    splits
        Part of the split of each repertoire in training, (B,), for the tables; None leaves it out.
    witnesses_among
        Positions of the repertoires of a simulated cohort in which witnesses are searched.
    """
    directions = directions_of(model.tasks)
    best = _Best(directions, top, has_readings=bool(model.reading_names))
    rankings = [
        WitnessRanking(dataset, witnesses_among, output=direction.output, sign=direction.sign)
        for direction in (directions if len(witnesses_among) else ())
    ]
    known = getattr(dataset.container, "gene_names", {})  # a simulated cohort makes them with its sequences
    usage, residues = {field: _GeneUsage(known.get(field, ())) for field in _FIELDS}, ResidueCounts()
    outputs: list[OutputParts] = []
    curves = []
    heads: list[tuple[str, int, int, int, str]] = []
    for position, one in enumerate(iterate_attention(model, dataset)):
        outputs.append(one.scores.output_parts)
        heads += one.head_rows
        curves.append(_curve(one))
        residues.add(one.repertoire)
        for field, genes in usage.items():
            genes.add(one.repertoire, field, one.scores.weight)
        for ranking in rankings:
            ranking.add(position, one.scores)
        best.offer(one, position, None if splits is None else splits[position])
    return Survey(
        OutputParts.stack(outputs, model.n_outputs),
        pd.DataFrame(heads, columns=HEADS_COLUMNS),
        _joined(curves, ["repertoire_id", "share", "attention"]),
        _joined([usage[field].table(field) for field in _FIELDS], ["field", "name", "all", "attended"]),
        residues.frequencies(),
        directions,
        *best.found(),
        best.highest,
        [ranking.table() for ranking in rankings],
    )


def held_out_sequences(
    predictor: Predictor, dataset: RepertoireDataset, direction: Direction, splits: Sequence[str]
) -> HeldOutSequences | None:
    """Return the held-out repertoires from which false discovery rates for a direction are estimated.

    The result is None if there are none, or if the output is a number.

    Parameters
    ----------
    predictor, dataset
        The model with its training, and the cohort.
    direction
        Direction of an output.
    splits
        Part of the split of each repertoire in training, (B,).
    """
    parts = np.array(splits, dtype=object)
    name = held_out_split(parts, predictor.model.labels(dataset))
    if name is None:
        return None
    return HeldOutSequences.of(
        predictor.model,
        dataset,
        parts == name,
        output=direction.output,
        sign=direction.sign,
        group_by=predictor.group_by,
    )


def add_q_values(found: Survey, predictor: Predictor, dataset: RepertoireDataset, splits: Sequence[str]) -> None:
    """Add the column `q_value` to the tables of the top sequences of a survey, see `HeldOutSequences.q_values`.

    Directions of numbers get no such column, and if no repertoire is held out, no direction does. The parameters are
    those of `held_out_sequences`.
    """
    for direction in found.directions:
        top = found.top[direction.name]
        known = held_out_sequences(predictor, dataset, direction, splits)
        if known is not None and len(top):
            scores = direction.sign * top.table["contribution"].to_numpy(np.float64)
            q_values = known.q_values(found.highest[direction.name], scores, top.index.positions)
            top.table["q_value"] = q_values


class _Best:
    """Collector of the sequences that contribute most to each direction, in total and by their residues."""

    def __init__(self, directions: Sequence[Direction], top: int, *, has_readings: bool) -> None:
        self._directions = directions
        once = _CLONE if has_readings else ()
        self._top = [BestRows(top, once) for _ in directions]
        self._by_residues = [BestRows(top, once) for _ in directions] if has_readings else []
        self.highest = {direction.name: HighestScores() for direction in directions}

    def offer(self, one: RepertoireAttention, position: int, split: str | None) -> None:
        """Add the sequences of a repertoire."""
        for d, direction in enumerate(self._directions):
            rows = _Rows(one, direction, position, split)
            ranking = Ranking("contribution", direction.output, direction.sign)
            keys = ranking.keys(one.scores)
            speaks = ranking.drop_silent(keys)
            self._top[d].offer(speaks, rows)
            self.highest[direction.name].offer(position, speaks)
            if self._by_residues:
                retrieved = one.scores.through_readings.get(CloneReading.name)
                if retrieved is not None:
                    keys = keys - direction.sign * retrieved[:, direction.output]
                self._by_residues[d].offer(ranking.drop_silent(keys), rows)

    def found(self) -> tuple[dict[str, TopSequences], dict[str, TopSequences]]:
        """Return the best sequences by the name of the direction, in total and by their residues."""
        names = [direction.name for direction in self._directions]
        top = dict(zip(names, map(_top_sequences, self._top), strict=True))
        if not self._by_residues:
            return top, top
        return top, dict(zip(names, map(_top_sequences, self._by_residues), strict=True))


@dataclass(frozen=True)
class _Rows:
    """A function that makes the table of some sequences of a repertoire for one direction, with their indices."""

    attention: RepertoireAttention
    direction: Direction
    position: int
    split: str | None

    def __call__(self, rows: NDArray[np.int64]) -> pd.DataFrame:
        found = self.attention.frame(rows, self.direction.output)
        if self.split is not None:
            found["split"] = self.split
        found[_POSITION], found[_ROW] = self.position, self.attention.rows[rows]
        return found


def _top_sequences(best: BestRows) -> TopSequences:
    table = best.table()
    if table.empty:
        return TopSequences(table, SequenceIndex(np.zeros(0, np.int64), np.zeros(0, np.int64)))
    positions, rows = (table.pop(name).to_numpy(np.int64) for name in (_POSITION, _ROW))
    return TopSequences(table, SequenceIndex(positions, rows))


def _curve(one: RepertoireAttention) -> pd.DataFrame:
    """Return the sum of weights of the most attended share of the sequences, for shares from one sequence to all."""
    N = len(one.scores)
    if N == 0:
        return pd.DataFrame({"repertoire_id": [], "share": [], "attention": []})
    cumulated = np.cumsum(-np.sort(-one.scores.weight))
    shares = np.unique(np.concatenate([[1 / N], _SHARES[_SHARES > 1 / N]]))
    attention = np.interp(shares * N, np.arange(1, N + 1), cumulated)
    return pd.DataFrame({"repertoire_id": one.scores.repertoire_id, "share": shares, "attention": attention})


class _GeneUsage:
    """Shares of genes among all sequences and in the attention, as means over repertoires that have sequences."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.code_of = {name: code for code, name in enumerate(names)}
        self.sums: NDArray[np.float64] = np.zeros((2, len(names)))
        self.n = 0

    def add(self, repertoire: Repertoire, field: str, weight: NDArray[np.float64]) -> None:
        genes = repertoire.genes.get(field)
        if genes is None or len(repertoire) == 0:
            return
        own = extend_vocabulary(self.code_of, genes.vocabulary)  # vocabularies differ between parts of a cohort
        size = len(self.code_of)
        self.sums = np.pad(self.sums, ((0, 0), (0, size - self.sums.shape[1])))
        codes = own[genes.codes]
        self.sums[0] += np.bincount(codes, minlength=size) / len(repertoire)
        self.sums[1] += np.bincount(codes, weights=weight, minlength=size)
        self.n += 1

    def table(self, field: str) -> pd.DataFrame:
        names = [name or _UNKNOWN for name in self.code_of]
        shares = self.sums / max(self.n, 1)
        frame = pd.DataFrame({"field": field, "name": names, "all": shares[0], "attended": shares[1]})
        return frame[frame["all"] > 0]


def _joined(parts: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    kept = [part for part in parts if len(part)]
    return pd.concat(kept, ignore_index=True)[columns] if kept else pd.DataFrame(columns=columns)
