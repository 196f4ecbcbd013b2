"""What a survey collects of a cohort, repertoire by repertoire; what several workers collected can be joined.

Letters: N sequences of one repertoire, B repertoires, G genes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.branches.clones import CloneBranch
from deeprc.datasets.categorical import extend_vocabulary
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.interpretation.attention import HeadRow, RepertoireAttention
from deeprc.interpretation.column_tables import Columns
from deeprc.interpretation.directions import Direction, list_directions
from deeprc.interpretation.false_sequences import HighestScores
from deeprc.interpretation.ranking import BestRows, Ranking, WitnessRanking, choose_witness_step
from deeprc.interpretation.residue_counts import ResidueCounts
from deeprc.nn.sequence_scores import OutputParts
from deeprc.training.model import Model

__all__ = ["POSITION", "ROW", "SurveyCollector", "SurveyPlan"]

POSITION, ROW = "position in the dataset", "row in the repertoire"
"""Columns of the tables of the best sequences that are removed again."""

_SHARES = np.logspace(-6, 0, 61)
_UNKNOWN = "unknown"
_CLONE = ("junction_aa", *GENE_FIELDS)


@dataclass(frozen=True)
class SurveyPlan:
    """The plan of a survey: what it collects.

    Attributes
    ----------
    directions
        Directions of the outputs.
    top
        Number of sequences to keep for each direction.
    has_branches
        Whether the model has branches.
    genes
        Names of the genes of the container, by field.
    witness_step
        Number of sequences without a signal of which one is kept for the ranking of witnesses; None: no ranking.
    """

    directions: Sequence[Direction]
    top: int
    has_branches: bool
    genes: Mapping[str, Sequence[str]]
    witness_step: int | None

    @classmethod
    def of(cls, model: Model, dataset: RepertoireDataset, top: int, witnesses_among: Sequence[int]) -> SurveyPlan:
        """Return the plan of `deeprc.interpretation.survey.survey_cohort`, whose parameters these are."""
        known = getattr(dataset.container, "gene_names", {})  # a simulated cohort makes them with its sequences
        step = choose_witness_step(dataset, witnesses_among) if len(witnesses_among) else None
        return cls(list_directions(model.tasks), top, bool(model.branch_names), dict(known), step)


class SurveyCollector:
    """The results of a survey, which it collects repertoire by repertoire.

    Parameters
    ----------
    plan
        Directions, numbers and kinds of the collected values.

    Attributes
    ----------
    outputs
        Outputs of each repertoire.
    residues
        Counts of the residues.
    highest
        Highest contributions to each direction, by its name.
    """

    def __init__(self, plan: SurveyPlan) -> None:
        self.outputs: list[OutputParts] = []
        self.residues = ResidueCounts()
        self._best = _BestByDirection(plan.directions, plan.top, has_branches=plan.has_branches)
        self.highest = self._best.highest
        self._usage = {field: _GeneUsage(plan.genes.get(field, ())) for field in GENE_FIELDS}
        self._curves: list[pd.DataFrame] = []
        self.head_rows: list[HeadRow] = []
        self._witnesses: list[WitnessRanking] = []
        if plan.witness_step is not None:
            self._witnesses = [
                WitnessRanking(plan.witness_step, output=direction.output, sign=direction.sign)
                for direction in plan.directions
            ]

    def add(self, attention: RepertoireAttention, position: int, *, part: str | None, has_witnesses: bool) -> None:
        """Add a repertoire.

        Parameters
        ----------
        attention
            The attention on its sequences.
        position
            Position of the repertoire in the dataset.
        part
            Its part of the split in training; None leaves it out.
        has_witnesses
            Whether witnesses are searched among its sequences.
        """
        self.outputs.append(attention.scores.output_parts)
        self.head_rows += attention.head_rows
        self._curves.append(_compute_attention_curve(attention))
        self.residues.add(attention.repertoire)
        for field, genes in self._usage.items():
            genes.add(attention.repertoire, field, attention.scores.weight)
        for ranking in self._witnesses if has_witnesses else ():
            ranking.add(attention.repertoire, attention.scores)
        self._best.add_candidates(attention, position, part)

    def join(self, other: SurveyCollector, start: int, parts: Sequence[str] | None) -> None:
        """Add the results of another collector, whose repertoires follow those of this one.

        Parameters
        ----------
        other
            Collector whose positions count from 0.
        start
            Position of its first repertoire in the dataset.
        parts
            Part of the split of each repertoire of the dataset, (B,); None leaves it out.
        """
        self.outputs += other.outputs
        self.head_rows += other.head_rows
        self._curves += other._curves
        self.residues.join(other.residues)
        for field, genes in self._usage.items():
            genes.join(other._usage[field])
        for ranking, other_ranking in zip(self._witnesses, other._witnesses, strict=True):
            ranking.join(other_ranking)
        self._best.join(other._best, start, parts)

    def make_top_tables(self) -> dict[str, pd.DataFrame]:
        """Return a table of the sequences that contribute most to each direction, by its name."""
        return self._best.make_top_tables()

    def make_residue_tables(self) -> dict[str, pd.DataFrame]:
        """Return the same by their residues; empty if the model has no branches, because they are the same then."""
        return self._best.make_residue_tables()

    def make_curves_table(self) -> pd.DataFrame:
        """Return the table of attention curves: how much attention the most attended share of sequences has."""
        return _concatenate_tables(self._curves, ["repertoire_id", "share", "attention"])

    def make_genes_table(self) -> pd.DataFrame:
        """Return the table of genes."""
        return _concatenate_tables(
            [self._usage[field].table(field) for field in GENE_FIELDS], ["field", "name", "all", "attended"]
        )

    def make_witness_tables(self) -> list[pd.DataFrame]:
        """Return the tables of `witness_ranking` for each direction; empty if witnesses were not searched."""
        return [ranking.make_table() for ranking in self._witnesses]


class _BestByDirection:
    """Collector of the sequences that contribute most to each direction, in total and by their residues."""

    def __init__(self, directions: Sequence[Direction], top: int, *, has_branches: bool) -> None:
        self._directions = directions
        unique_by = _CLONE if has_branches else ()
        self._top = [BestRows(top, unique_by) for _ in directions]
        self._by_residues = [BestRows(top, unique_by) for _ in directions] if has_branches else []
        self.highest = {direction.name: HighestScores() for direction in directions}

    def add_candidates(self, attention: RepertoireAttention, position: int, part: str | None) -> None:
        """Add the sequences of a repertoire."""
        for d, direction in enumerate(self._directions):
            make_columns = partial(_make_columns, attention, direction, position, part)
            ranking = Ranking("contribution", direction.output, direction.sign)
            keys = ranking.keys(attention.scores)
            contributing = ranking.drop_noncontributing(keys)
            self._top[d].add_candidates(contributing, make_columns)
            self.highest[direction.name].add_candidates(position, contributing)
            if self._by_residues:
                through_clones = attention.scores.beside_attention.get(CloneBranch.name)
                if through_clones is not None:
                    keys = keys - direction.sign * through_clones[:, direction.output]
                self._by_residues[d].add_candidates(ranking.drop_noncontributing(keys), make_columns)

    def join(self, other: _BestByDirection, start: int, parts: Sequence[str] | None) -> None:
        """Add the best sequences of another collector; see `SurveyCollector.join`."""

        def move(columns: Columns) -> Columns:
            positions = columns[POSITION] + start
            split = {} if parts is None else {"split": np.array(parts, object)[positions]}
            return {**columns, **split, POSITION: positions}

        rankings = [*self._top, *self._by_residues], [*other._top, *other._by_residues]
        for ranking, other_ranking in zip(*rankings, strict=True):
            ranking.join(other_ranking, move)
        for name, highest in self.highest.items():
            highest.join(other.highest[name], start)

    def make_top_tables(self) -> dict[str, pd.DataFrame]:
        """Return a table of the best sequences in total for each direction, by its name."""
        return {direction.name: best.make_table() for direction, best in zip(self._directions, self._top, strict=True)}

    def make_residue_tables(self) -> dict[str, pd.DataFrame]:
        """Return a table of the best sequences by their residues for each direction; empty without branches."""
        if not self._by_residues:
            return {}
        ranked = zip(self._directions, self._by_residues, strict=True)
        return {direction.name: best.make_table() for direction, best in ranked}


def _make_columns(
    attention: RepertoireAttention, direction: Direction, position: int, part: str | None, rows: NDArray[np.int64]
) -> Columns:
    """Return a table of some sequences of one repertoire, for one direction of an output."""
    split = {} if part is None else {"split": np.full(len(rows), part, object)}
    origin = {POSITION: np.full(len(rows), position), ROW: attention.rows[rows]}
    return {**attention.make_columns(rows, direction.output), **split, **origin}


def _compute_attention_curve(repertoire_attention: RepertoireAttention) -> pd.DataFrame:
    """Return the sum of weights of the most attended share of the sequences, for shares from one sequence to all."""
    N = len(repertoire_attention.scores)
    if N == 0:
        return pd.DataFrame({"repertoire_id": [], "share": [], "attention": []})
    cumulated = np.cumsum(-np.sort(-repertoire_attention.scores.weight))
    shares = np.unique(np.concatenate([[1 / N], _SHARES[_SHARES > 1 / N]]))
    attention = np.interp(shares * N, np.arange(1, N + 1), cumulated)
    return pd.DataFrame(
        {"repertoire_id": repertoire_attention.scores.repertoire_id, "share": shares, "attention": attention}
    )


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
        new_codes = extend_vocabulary(self.code_of, genes.vocabulary)  # vocabularies differ between parts of a cohort
        size = len(self.code_of)
        self.sums = np.pad(self.sums, ((0, 0), (0, size - self.sums.shape[1])))
        codes = new_codes[genes.codes]
        self.sums[0] += np.bincount(codes, minlength=size) / len(repertoire)
        self.sums[1] += np.bincount(codes, weights=weight, minlength=size)
        self.n += 1

    def join(self, other: _GeneUsage) -> None:
        """Add the shares of another collector."""
        codes = extend_vocabulary(self.code_of, list(other.code_of))
        self.sums = np.pad(self.sums, ((0, 0), (0, len(self.code_of) - self.sums.shape[1])))
        self.sums[:, codes] += other.sums
        self.n += other.n

    def table(self, field: str) -> pd.DataFrame:
        names = [name or _UNKNOWN for name in self.code_of]
        shares = self.sums / max(self.n, 1)
        frame = pd.DataFrame({"field": field, "name": names, "all": shares[0], "attended": shares[1]})
        return frame[frame["all"] > 0]


def _concatenate_tables(parts: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    kept = [part for part in parts if len(part)]
    return pd.concat(kept, ignore_index=True)[columns] if kept else pd.DataFrame(columns=columns)
